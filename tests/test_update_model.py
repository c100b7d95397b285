"""The MERGE of update against a plain dictionary: every row of the table, column by column. SPINDLE_MODEL_ROWS and
SPINDLE_MODEL_SEEDS make it larger."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rows import Row, ago, fetched_row, link_row, listed_row, new_warehouse, open_turn, put, settings_of, url_row
from spindle import inlinks, runner, schema
from spindle.jobs import update
from spindle.segments import State
from spindle.tables import Warehouse
from spindle.urls import url_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = int(os.environ.get("SPINDLE_MODEL_ROWS", "200000"))
SEEDS = range(1, 1 + int(os.environ.get("SPINDLE_MODEL_SEEDS", "1")))
SEGMENT, HASH = "m.1of1", "e" * 64
KEPT = ("depth", "inlink_bits", "status", "fetch_count", "failure_streak", "content_hash")
OUTCOMES = {"ok": ("fetched", 1, 0, HASH), "not_found": ("gone", 1, 0, None), "timeout": ("retry", 0, 1, None)}


def name(number: int) -> str:
    return f"http://h{number % 997}.test/{number}"


def known(warehouse: Warehouse, count: int) -> dict[int, list[Any]]:
    """Fills `urls` with new rows of any depth; returns the model: key -> KEPT. Keys are made in Python."""
    buckets = [url_row(name(n))["bucket"] for n in range(997)]
    rows = [(url_key(name(n)), buckets[n % 997], n % 9, n) for n in range(count)]
    columns = [pa.array(column) for column in zip(*rows, strict=True)]
    frame = warehouse.spark.createDataFrame(pa.table(columns, names=["url_key", "b", "d", "n"]))
    told = {
        "url_key": "url_key", "bucket": "CAST(b AS INT)", "url": "concat('http://h', n % 997, '.test/', n)",
        "host": "concat('h', n % 997, '.test')", "domain": "concat('h', n % 997, '.test')", "depth": "CAST(d AS INT)",
        "priority": "3", "score": "0.5D", "discovered_at": "TIMESTAMP '2026-11-01 00:00:00Z'",
    }  # fmt: skip
    kinds = {ddl.split()[0]: ddl.split(" ", 1)[1].replace(" NOT NULL", "") for ddl in schema.field_ddl("urls")}
    chosen = {column: f"CAST(NULL AS {kind})" for column, kind in kinds.items()} | schema.NEW_URL | told
    warehouse.append("urls", frame.selectExpr(*(f"{sql} AS {column}" for column, sql in chosen.items())))
    return {key: [depth, 0, "new", 0, 0, None] for key, _, depth, _ in rows}


def bits_of(spark: SparkSession, hosts: list[str]) -> dict[str, int]:
    frame = spark.createDataFrame([(host,) for host in hosts], "host STRING")
    rows = frame.selectExpr("host", f"{inlinks.bit_sql('xxhash64(host)')} AS bit").collect()
    return {row.host: row.bit for row in rows}


@pytest.mark.heavy
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", SEEDS)
def test_rows_after_an_update_are_those_of_a_dictionary(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    rng, warehouse = random.Random(seed), new_warehouse(spark, tmp_path / "w")
    model = known(warehouse, ROWS)
    turn = open_turn(warehouse, SEGMENT, settings_of())
    fetched, links = ROWS // 50, ROWS // 10
    lists: dict[str, list[Row]] = {"fetchlist": [], "fetches": [], "links": []}
    for place, number in enumerate(rng.sample(range(ROWS), fetched)):
        row = url_row(name(number), depth=model[url_key(name(number))][0], next_fetch=None, discovered_at=ago(9999))
        outcome = rng.choice(list(OUTCOMES))
        lists["fetchlist"].append(listed_row(row, SEGMENT, place))
        told = {"content_hash": HASH, "warc_file": "w", "warc_offset": 1, "warc_length": 2} if outcome == "ok" else {}
        lists["fetches"].append(fetched_row(row, SEGMENT, outcome, **told))
        model[row["url_key"]][2:] = OUTCOMES[outcome]
    sources = [f"s{n}.test" for n in range(300)]
    bits = bits_of(spark, sources)
    for _ in range(links):
        number, depth, source = rng.randrange(ROWS + ROWS // 4), rng.randrange(1, 9), rng.choice(sources)
        link = link_row(f"http://{source}/", name(number), SEGMENT, depth)
        lists["links"].append(link)
        row = model.setdefault(link["dst_key"], [depth, 0, "new", 0, 0, None])
        row[0], row[1] = min(row[0], depth), row[1] | bits[source]
    for table, rows in lists.items():
        put(warehouse, table, rows)
    for state in (State.GENERATED, State.FETCHED, State.PARSED):
        turn.entry = warehouse.ledger.move(SEGMENT, state, 1.0, {"fetches": fetched, "links": links})
    runner.turn_of(warehouse, turn.segment, "update", update.run)
    found = warehouse.read("urls").select("url_key", *KEPT, "inlinks").toArrow().to_pydict()
    keys = found.pop("url_key")
    assert len(keys) == len(set(keys)) == len(model)
    rows_found = zip(keys, *found.values(), strict=True)
    wrong = [(key, row) for key, *row in rows_found if row != [*model[key], inlinks.estimate(model[key][1])]]
    assert wrong[:3] == []
