"""The door to Delta: makes a warehouse, opens it, reads, appends, replaces and merges its tables.

It decides how a write is made safe to run twice; what is written is the jobs' business. Paths go to Delta as paths,
never through SQL text, so that blanks and `%` in them are harmless.
"""

from __future__ import annotations

import datetime
import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from spindle import direct, schema
from spindle.errors import SegmentStateError, WarehouseError
from spindle.ledger import Ledger
from spindle.rounds import FileFacts
from spindle.segments import Entry, SegmentId
from spindle.store import LocalStore, Store, open_store

if TYPE_CHECKING:
    from delta.tables import DeltaMergeBuilder, DeltaTable
    from pyspark.sql import DataFrame, SparkSession

MARKER = "spindle.json"
_CONFLICT_ATTEMPTS = 5
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Warehouse:
    """An open warehouse. `uri` is spelled for Delta, `store` reaches its files that are not tables."""

    spark: SparkSession
    uri: str
    store: Store
    marker: dict[str, Any]

    @property
    def buckets(self) -> int:
        return int(self.marker["buckets"])

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.store, self.buckets)

    def location(self, table: str) -> str:
        return f"{self.uri}/{table}"

    def read(self, table: str) -> DataFrame:
        """The table as it is now. Read it anew after each commit: a frame is a promise, not a snapshot."""
        return self.spark.read.format("delta").load(self.location(table))

    def read_as_of(self, table: str, version: int) -> DataFrame:
        """The table as it was.

        Raises:
            WarehouseError: that version is not kept any more.
        """
        from pyspark.errors import AnalysisException

        try:
            return self.spark.read.format("delta").option("versionAsOf", version).load(self.location(table))
        except AnalysisException as error:
            cause = str(error).splitlines()[0]
            raise WarehouseError(f"{table} as of version {version} is not kept any more ({cause})") from None

    def read_range(self, table: str, segment: SegmentId) -> DataFrame:
        """The rows of a segment's bucket range; the literal list lets Delta skip all other partitions."""
        return self.read(table).filter(in_buckets(segment.buckets(self.buckets)))

    def local(self, table: str, equals: Mapping[str, Any]) -> DataFrame:
        """Rows that the driver can hold, by the values of their columns: read at once and without Spark's help."""
        return frame_of(self.spark, direct.read(self.location(table), equals))

    def values(self, table: str, equals: Mapping[str, Any], columns: Sequence[str]) -> list[dict[str, Any]]:
        """The same, as plain rows."""
        rows: list[dict[str, Any]] = direct.read(self.location(table), equals, columns).to_pylist()
        return rows

    def rows_in(self, span: range) -> int:
        """Rows of `urls` in these buckets, by the log: at least so many, since deleted ones count too."""
        counts = direct.row_counts(self.location("urls"), "bucket")
        return sum(rows for bucket, rows in counts.items() if int(bucket) in span)

    def file_facts(self) -> list[FileFacts]:
        """What the log says of the files of `urls` and when their rows are due: no row is read, and no JVM asked."""
        found = direct.files(self.location("urls"), "bucket", "last_fetch", "next_fetch")
        return [
            FileFacts(int(f["partition"]), f["rows"], f["deleted"], f["nulls"], f["least"], f["most"]) for f in found
        ]

    def rewrite(self, table: str, where: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Puts a few rows that the driver holds in the place of those that `where` names."""
        direct.replace(self.location(table), where, direct.from_rows(self.location(table), rows))

    def append(self, table: str, frame: DataFrame) -> None:
        """Adds rows. Not safe to repeat."""
        self._shaped(table, frame).write.format("delta").mode("append").save(self.location(table))

    def record(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Adds a few rows that the driver holds, without Spark's help. Not safe to repeat: for `metrics` only."""
        direct.append(self.location(table), direct.from_rows(self.location(table), rows))

    def replace(self, table: str, where: str, frame: DataFrame, *, few: bool = False) -> None:
        """Puts `frame` in the place of the rows that `where` names: a rerun leaves the same rows once. `few` says that
        the driver can hold them; they are then written without Spark's help, which costs a hundredth."""
        shaped = self._shaped(table, frame)
        if few:
            return direct.replace(self.location(table), where, shaped.toArrow())
        writer = shaped.write.format("delta").mode("overwrite").option("replaceWhere", where)
        retry_conflicts(writer.save, self.location(table))
        return None

    def delta(self, table: str) -> DeltaTable:
        """A fresh handle (one that outlives a commit reads stale: delta-io/delta#2063)."""
        from delta.tables import DeltaTable

        return DeltaTable.forPath(self.spark, self.location(table))

    def merge(self, table: str, source: DataFrame, condition: str) -> DeltaMergeBuilder:
        """A MERGE of `source` (alias s) into the table (alias t)."""
        return self.delta(table).alias("t").merge(source.alias("s"), condition)

    def sync_segments(self) -> None:
        """Copies the ledger's new entries to the table `segments`."""
        sync_segments(self.location("segments"), self.ledger)

    def _shaped(self, table: str, frame: DataFrame) -> DataFrame:
        """Exactly the table's columns in its order and types; a missing one fails here, with its name."""
        wanted = [ddl.replace(" NOT NULL", "").split(" ", 1) for ddl in schema.field_ddl(table)]
        if missing := {name for name, _ in wanted} - set(frame.columns):
            raise ValueError(f"{table}: the frame lacks {', '.join(sorted(missing))}")
        return frame.selectExpr(*(f"CAST({name} AS {kind}) AS {name}" for name, kind in wanted))


def sync_segments(location: str, ledger: Ledger) -> None:
    """Copies the ledger's new entries to the table `segments` at `location`. Needs no JVM."""
    copy_log(location, "segments", ledger.entries, lambda entry: entry.seq, _segment_row)


def copy_log(
    location: str,
    application: str,
    entries: Callable[[], Sequence[T]],
    number: Callable[[T], int],
    row: Callable[[T], Mapping[str, Any]],
) -> None:
    """Appends what a table lacks of a log, in one Delta transaction with the last entry's number as version: of two who
    copy at once one is refused by Delta, and looks again. Needs no JVM. `entries` are in the order of their numbers.

    Raises:
        WarehouseError: it was refused again and again.
    """
    for _ in range(_CONFLICT_ATTEMPTS):
        done = direct.version(location, application)
        if not (new := [entry for entry in entries() if number(entry) > done]):
            return
        rows = direct.from_rows(location, [row(entry) for entry in new])
        if direct.append(location, rows, (application, number(new[-1]))):
            return
    raise WarehouseError(f"{location}: lost {_CONFLICT_ATTEMPTS} races for one commit; is another process looping?")


def frame_of(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """A frame of rows that the driver holds. A table of no rows has no chunk either, which Spark cannot take."""
    return spark.createDataFrame(rows if rows.num_rows else pa.Table.from_batches([empty_batch(rows.schema)]))


def empty_batch(kinds: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=kinds)


def in_buckets(span: range) -> str:
    """The literal bucket list of a range, as a SQL predicate on `bucket`."""
    return f"bucket IN ({', '.join(map(str, span))})"


@contextmanager
def applied_once(warehouse: Warehouse, table: str, application: str, number: int, signature: str) -> Iterator[bool]:
    """Around one statement that commits: its commit carries an application's name with a number that grows (Delta
    protocol, "Transaction Identifiers") and, as userMetadata, a signature by which `undo` finds it. False when the
    table has seen that number: the statement then has nothing to do (Delta would skip it without a word).

    Raises:
        SegmentStateError: the table has seen a higher number: what is to be applied is out of order.
    """
    seen = direct.version(warehouse.location(table), application)
    if seen > number:
        raise SegmentStateError(
            f"{table} has had {application} up to turn {seen}; turn {number} ({signature}) is too old to be applied"
        )
    names = {"write.txnAppId": application, "write.txnVersion": str(number), "commitInfo.userMetadata": signature}
    settings = {f"spark.databricks.delta.{name}": value for name, value in names.items()} if seen < number else {}
    for name, value in settings.items():
        warehouse.spark.conf.set(name, value)
    try:
        yield seen < number
    finally:
        for name in settings:
            warehouse.spark.conf.unset(name)


def retry_conflicts(action: Callable[..., Any], *arguments: Any) -> Any:
    """Runs a commit again, from the read, when another writer's commit came between (it is then applied after it)."""
    from delta.exceptions import DeltaConcurrentModificationException

    for attempt in range(_CONFLICT_ATTEMPTS):
        try:
            return action(*arguments)
        except DeltaConcurrentModificationException:
            if attempt == _CONFLICT_ATTEMPTS - 1:
                raise
    return None


def create(spark: SparkSession, root: str, buckets: int, facts: dict[str, Any]) -> Warehouse:
    """A new, empty warehouse; the marker is written last, so that a broken creation is simply repeated.

    Raises:
        WarehouseError: the place holds other files, or cannot be written.
    """
    check_free(root)
    store = open_store(root)
    marker = {"format_version": schema.FORMAT_VERSION, "buckets": buckets, **facts}
    for table in schema.TABLES:
        name = f"{table}/_delta_log/{0:020d}.json"
        store.create_exclusive(name, first_commit(table, str(uuid.uuid4()), time.time_ns() // 1_000_000))
    store.create_exclusive(MARKER, json.dumps(marker, indent=1, sort_keys=True).encode())
    return open_warehouse(spark, root)


def exists(root: str) -> bool:
    return open_store(root).exists(MARKER)


def check_free(root: str) -> None:
    """Whether a warehouse can be made at `root`: nothing is there, or what a creation that broke off has left.

    Raises:
        WarehouseError: a file is there, or a folder that holds other things; names one.
    """
    store, own = open_store(root), {*schema.TABLES, "ledger", "segment-files", MARKER, "lost+found"}
    if isinstance(store, LocalStore):  # only the top: somebody may have named his home folder
        names = store.entries()
    else:
        names = [name.split("/")[0] for name in store.list("")]
    if foreign := next((name for name in names if name not in own), None):
        raise WarehouseError(f"{root}: not empty and not a warehouse (it holds {foreign}); choose another folder")


def read_marker(root: str) -> dict[str, Any]:
    """What the warehouse says of itself. Needs no JVM: jobs ask before they start one.

    Raises:
        WarehouseError: no warehouse there, or one of another format version.
    """
    try:
        marker = json.loads(open_store(root).get(MARKER))
    except FileNotFoundError:
        raise WarehouseError(f"{root} is not a warehouse (no {MARKER} in it); make one with `spindle inject`") from None
    except ValueError:
        marker = None
    if not isinstance(marker, dict) or not isinstance(marker.get("buckets"), int):
        raise WarehouseError(f"{root}/{MARKER} is damaged; restore it from a backup")
    if marker.get("format_version") != schema.FORMAT_VERSION:
        raise WarehouseError(
            f"{root} has format {marker.get('format_version')}, this Spindle reads format {schema.FORMAT_VERSION}; "
            f"use the Spindle that made it (see docs/operations.md, Upgrades)"
        )
    return marker


def open_warehouse(spark: SparkSession, root: str) -> Warehouse:
    """An existing warehouse; raises as `read_marker`."""
    return Warehouse(spark, hadoop_uri(root), open_store(root), read_marker(root))


def open_direct(root: str) -> Warehouse:
    """An existing warehouse for what needs no JVM: `values`, `rewrite`, `record`, ledger; raises as `read_marker`."""
    return Warehouse(None, hadoop_uri(root), open_store(root), read_marker(root))  # type: ignore[arg-type]


def hadoop_uri(root: str) -> str:
    """The spelling that Hadoop and Delta want for a store's root."""
    if root.startswith(("s3://", "s3a://")):
        return "s3a://" + root.split("://", 1)[1].rstrip("/")
    return str(open_store(root).root)


def first_commit(table: str, table_id: str, at_ms: int) -> bytes:
    """Version 0 of an empty table, by the Delta protocol ("Actions"). Written by hand because it is put-if-absent on
    every store and takes milliseconds, where fourteen DDL statements took half a minute on two cores."""
    properties = {"delta.enableDeletionVectors": "true"} if table in schema.DELETION_VECTORS else {}
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 2}
    if properties:
        features = {
            "readerFeatures": ["deletionVectors"],
            "writerFeatures": ["appendOnly", "deletionVectors", "invariants"],
        }
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    metadata = {
        "id": table_id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": _struct(table).json(),
        "partitionColumns": schema.PARTITIONS.get(table, []),
        "configuration": properties,
        "createdTime": at_ms,
    }
    told = {"timestamp": at_ms, "operation": "CREATE TABLE", "operationParameters": {}, "isBlindAppend": True}
    actions = [{"commitInfo": told}, {"protocol": protocol}, {"metaData": metadata}]
    return "".join(json.dumps(action) + "\n" for action in actions).encode()


def _struct(table: str) -> Any:
    from pyspark.sql.types import StructType, _parse_datatype_string

    parsed = _parse_datatype_string(schema.TABLES[table])
    if not isinstance(parsed, StructType):
        raise TypeError(f"{table}: its DDL is not a struct")
    return parsed


def _segment_row(entry: Entry) -> dict[str, Any]:
    def at(seconds: float) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC)

    segment = SegmentId.parse(entry.segment)
    same = {name: getattr(entry, name) for name in ("seq", "segment", "bucket_lo", "bucket_hi", "turn", "holder")}
    told = {"state": str(entry.state), "slice_i": segment.i, "slice_n": segment.n, "counts": dict(entry.counts)}
    return same | told | {"at": at(entry.at), "lease_until": at(entry.lease_until), "pins": entry.pins or None}
