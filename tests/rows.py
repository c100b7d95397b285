"""Rows for Spark tests: a few named facts, the rest as a table's columns want them; and turns with chosen settings."""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable

from spindle import config, direct, schema, tables, urls
from spindle.defaults import default_layer
from spindle.jobs import generate
from spindle.runner import Turn
from spindle.segments import SegmentId
from spindle.tables import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOW = datetime.datetime(2026, 11, 30, 12, 0, 0, tzinfo=datetime.UTC)
ZEROS = ("fetch_count", "change_count", "failure_count", "failure_streak", "unchanged_streak", "inlink_bits", "inlinks")
RATES = ("rate_changes", "rate_changed_s", "rate_unchanged_s")
Row = dict[str, Any]


def ago(seconds: float) -> datetime.datetime:
    """A moment before NOW (after it, for negative seconds)."""
    return NOW - datetime.timedelta(seconds=seconds)


def utc(value: Any) -> Any:
    """A collected value: PySpark hands timestamps without a zone, in that of this process."""
    return value.astimezone(datetime.UTC) if isinstance(value, datetime.datetime) else value


def settings_of(**sections: Mapping[str, Any]) -> config.Settings:
    """The defaults but for what is given; no name is asked of the machine's resolver."""
    quiet = {"agent": {"contact": "a@b.test"}, "network": {"hosts_file_only": True}}
    return config.build([default_layer(), ("quiet", quiet), ("test", sections)])


def url_row(url: str, buckets: int = 4, **facts: Any) -> Row:
    """A row of `urls`: new, due since ten seconds, unless told otherwise."""
    host = urls.host_of(url)
    domain = urls.registered_domain(host)
    row: Row = dict.fromkeys(schema.columns("urls")) | dict.fromkeys(ZEROS, 0) | dict.fromkeys(RATES, 0.0)
    row |= {"url": url, "url_key": urls.url_key(url), "host": host, "domain": domain, "kind": "page", "status": "new"}
    row |= {"bucket": urls.bucket_of(domain, buckets), "depth": 1, "priority": 3, "score": 0.5}
    return row | {"discovered_at": ago(3600), "next_fetch": ago(10)} | facts


def host_row(host: str, buckets: int = 4, **facts: Any) -> Row:
    """A row of `hosts`: up, never back-off."""
    domain = urls.registered_domain(host)
    row: Row = dict.fromkeys(schema.columns("hosts")) | {"host": host, "domain": domain, "state": "up"}
    row |= {"bucket": urls.bucket_of(domain, buckets), "backoff_level": 0, "failure_streak": 0, "fetched_today": 0}
    return row | facts


def listed_row(known: Row, segment: str, position: int) -> Row:
    """The row of `fetchlist` that generate would make of a row of `urls`."""
    return {name: known.get(name) for name in schema.columns("fetchlist")} | {
        "segment": segment,
        "task": 0,
        "position": position,
    }


def fetched_row(known: Row, segment: str, outcome: str, **facts: Any) -> Row:
    """A row of `fetches`: a request of a tenth of a second, a minute before NOW, unless told otherwise."""
    same = {name: known[name] for name in ("url_key", "bucket", "url", "host", "kind", "depth")}
    row: Row = dict.fromkeys(schema.columns("fetches")) | same
    row |= {"segment": segment, "month": f"{NOW:%Y-%m}", "task": 0, "epoch": 1, "hop": 0, "outcome": outcome}
    row |= {"started_at": ago(60), "ended_at": ago(59.9), "duration_ms": 100.0, "backoff_level": 0}
    return row | facts


def link_row(source: str, target: str, segment: str, depth: int, buckets: int = 4, **facts: Any) -> Row:
    """A row of `links`."""
    src, dst = url_row(source, buckets), url_row(target, buckets)
    row: Row = dict.fromkeys(schema.columns("links")) | {"segment": segment, "parse_version": 1, "rel": "a"}
    row |= {"src_key": src["url_key"], "src_url": source, "src_host": src["host"], "nofollow": False, "depth": depth}
    row |= {"dst_key": dst["url_key"], "dst_bucket": dst["bucket"], "dst_url": target, "dst_host": dst["host"]}
    return row | {"dst_domain": dst["domain"], "dst_kind": "page"} | facts


def frame(spark: SparkSession, table: str, rows: Sequence[Row]) -> DataFrame:
    names = schema.columns(table)
    ddl = schema.TABLES[table].replace(" NOT NULL", "")
    return spark.createDataFrame([tuple(row[name] for name in names) for row in rows], ddl)


def add(warehouse: Warehouse, table: str, rows: Sequence[Row]) -> None:
    warehouse.append(table, frame(warehouse.spark, table, rows).coalesce(1))


def new_warehouse(spark: SparkSession, root: Path, buckets: int = 4) -> Warehouse:
    return tables.create(spark, str(root), buckets, {})


_ARROW = {"BIGINT": pa.int64(), "INT": pa.int32(), "STRING": pa.string(), "BOOLEAN": pa.bool_(), "DOUBLE": pa.float64()}
_ARROW |= {"TIMESTAMP": pa.timestamp("us", "UTC"), "DATE": pa.date32(), "BINARY": pa.binary()}
_ARROW |= {
    "ARRAY<BIGINT>": pa.list_(pa.int64()),
    "ARRAY<STRING>": pa.list_(pa.string()),
    "MAP<STRING, STRING>": pa.map_(pa.string(), pa.string()),
}
_ARROW |= {"MAP<STRING, BIGINT>": pa.map_(pa.string(), pa.int64())}


def direct_warehouse(root: Path, buckets: int = 4) -> Warehouse:
    """A new warehouse made without a JVM. Its tables have no deletion vectors, which delta-rs cannot make."""
    for table in schema.TABLES:
        fields = []
        for ddl in schema.field_ddl(table):
            name, kind = ddl.replace(" NOT NULL", "").split(" ", 1)
            fields.append(pa.field(name, _ARROW[kind], nullable="NOT NULL" not in ddl))
        DeltaTable.create(str(root / table), pa.schema(fields), partition_by=schema.PARTITIONS.get(table))
    marker = {"format_version": schema.FORMAT_VERSION, "buckets": buckets}
    (root / tables.MARKER).write_text(json.dumps(marker), encoding="utf-8")
    return tables.open_direct(str(root))


def put(warehouse: Warehouse, table: str, rows: Sequence[Row]) -> None:
    """`add` without a JVM."""
    direct.append(warehouse.location(table), direct.from_rows(warehouse.location(table), rows))


def open_turn(warehouse: Warehouse, segment: str, settings: config.Settings, now: datetime.datetime = NOW) -> Turn:
    told = argparse.Namespace(now=now.isoformat())
    return generate.open_turn(warehouse, SegmentId.parse(segment), settings, told)


def contents(warehouse: Warehouse, table: str) -> list[str]:
    """All rows of a table, in one order, as text: two warehouses hold the same exactly if these are equal."""
    return sorted(row.line for row in warehouse.read(table).selectExpr("to_json(struct(*)) AS line").collect())
