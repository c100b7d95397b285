"""fetch: each task of the list is fetched by one Spark task into a journal; a second step derives the tables from it.

The Spark action runs once and returns only manifests (DESIGN section 1): whatever died, a rerun reads the journals that
are sealed and goes on. `fetches` and `robots` are functions of the journals, so the second step may be repeated.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spindle import runner, schema, tables
from spindle.config import from_json
from spindle.errors import ConfigError
from spindle.progress import watch
from spindle.runner import Turn
from spindle.segments import State, advance

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MANIFEST = pa.schema([("task", pa.int32()), ("manifest", pa.string())])
#: Times to the microsecond: a revisit record names the very instant of its original, and no delay loses its fraction.
_ROW_JSON = "to_json(struct(*), map('timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\"))"


def task_rows(listed: DataFrame, hosts: DataFrame, robots: DataFrame) -> DataFrame:
    """All that the tasks must know, as (task, what, place, JSON): the list, what is known of its hosts, their rules."""
    listed_rows = listed.selectExpr("task", "'url' AS what", "position AS place", f"{_ROW_JSON} AS payload")
    task_of = listed.select("task", "host").distinct()
    host_rows = hosts.join(task_of, "host").selectExpr("task", "'host' what", "0 place", f"{_ROW_JSON} payload")
    current = robots.filter("until IS NULL").join(task_of, "host")
    robots_rows = current.selectExpr("task", "'robots' what", "0 place", f"{_ROW_JSON} payload")
    return listed_rows.union(host_rows).union(robots_rows)


def manifests(rows: DataFrame, turn: Turn, tasks: int, deadline: float) -> list[dict[str, Any]]:
    """Runs the fetch: one Spark partition a task, hosts whole. The one action; its result is small."""
    spark = rows.sparkSession
    work = _worker(turn.settings.to_json(), turn.warehouse.store.root, str(turn.segment), turn.month, deadline)
    before = spark.conf.get("spark.sql.adaptive.enabled")
    spark.conf.set("spark.sql.adaptive.enabled", "false")  # AQE may merge or split partitions: hosts must stay whole
    try:
        placed = rows.repartitionById(tasks, rows.task).sortWithinPartitions("what", "place")
        found = placed.mapInArrow(work, "task INT, manifest STRING").collect()
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", before or "true")
    return [json.loads(row.manifest) for row in found]


def _worker(settings_json: str, root: str, segment: str, month: str, deadline: float) -> Any:
    """The function that runs in Spark's Python worker; it closes over plain values only."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from spindle.fetcher import Listing, run_task

        rows: dict[str, list[Any]] = {"url": [], "host": [], "robots": []}
        task = -1
        for batch in batches:
            for row in batch.to_pylist():
                task = row["task"]
                rows[row["what"]].append(json.loads(row["payload"]))
        if task < 0:
            return
        hosts = {row["host"]: row for row in rows["host"]}
        robots = {row["origin"]: row for row in rows["robots"]}
        listing = Listing(rows["url"], hosts, robots, month, deadline)
        made = run_task(listing, from_json(settings_json), root, segment, task)
        yield pa.RecordBatch.from_pylist([{"task": task, "manifest": json.dumps(made)}], schema=_MANIFEST)

    return work


def journal(turn: Turn, parts: Sequence[str], kind: str, table: str) -> DataFrame:
    """The journal's records of one kind as a frame with the table's columns."""
    spark, folder = turn.warehouse.spark, f"{turn.warehouse.uri}/{turn.segment.folder}"
    ddl = "type STRING, " + schema.TABLES[table].replace(" NOT NULL", "")
    frame = (
        spark.read.schema(ddl).json([f"{folder}/{part}" for part in parts]) if parts else spark.createDataFrame([], ddl)
    )
    in_warehouse = f"IF(warc_file IS NULL, NULL, concat('{turn.segment.folder}/', warc_file)) AS warc_file"
    return frame.filter(f"type = '{kind}'").selectExpr(
        *(in_warehouse if name == "warc_file" else name for name in schema.columns(table))
    )


def fetches(records: DataFrame, turn: Turn) -> DataFrame:
    """Rows of `fetches`; the month is the segment's, so that a rerun replaces exactly its own rows."""
    return records.drop("month").selectExpr("*", f"'{turn.month}' AS month")


def robots_changes(attempts: DataFrame, known: DataFrame) -> DataFrame:
    """What becomes of `robots`: the last attempt of each origin renews the current row, or closes it and opens a new
    one when verdict or content changed. A body is kept once a hash."""
    order = "PARTITION BY origin ORDER BY attempted_at DESC, verdict"
    last = attempts.selectExpr("*", f"row_number() OVER ({order}) AS n").filter("n = 1").drop("n")
    current = known.filter("until IS NULL").selectExpr(
        "origin", "since AS old_since", "verdict AS old_verdict", "body_hash AS old_hash", "attempted_at AS old_attempt"
    )
    both = last.join(current, "origin", "left").filter("old_attempt IS NULL OR old_attempt < attempted_at")
    same = "old_verdict <=> verdict AND old_hash <=> body_hash"
    kept = [name for name in schema.columns("robots") if name not in ("since", "until")]
    renewed = both.selectExpr(
        *kept, f"IF({same}, old_since, attempted_at) AS since", "CAST(NULL AS TIMESTAMP) AS until", "false AS closing"
    )
    closed = both.filter(f"old_since IS NOT NULL AND NOT ({same})").selectExpr(
        *kept, "old_since AS since", "attempted_at AS until", "true AS closing"
    )
    return renewed.unionByName(closed)


def merge_robots(turn: Turn, attempts: DataFrame) -> None:
    """Writes the attempts into `robots`; running it again changes nothing (an attempt not newer is dropped)."""
    known = turn.warehouse.read("robots").filter(tables.in_buckets(turn.segment.buckets(turn.warehouse.buckets)))
    changes = robots_changes(attempts, known).persist()
    try:
        if changes.isEmpty():
            return
        names = [name for name in schema.columns("robots") if name not in ("origin", "since")]
        span = tables.in_buckets(turn.segment.buckets(turn.warehouse.buckets))
        builder = turn.warehouse.merge("robots", changes, f"t.{span} AND t.origin = s.origin AND t.since = s.since")
        builder = builder.whenMatchedUpdate("s.closing", {"until": "s.until"})
        builder = builder.whenMatchedUpdate("NOT s.closing", {name: f"s.{name}" for name in names})
        everything: dict[str, Any] = {name: f"s.{name}" for name in schema.columns("robots")}
        tables.retry_conflicts(builder.whenNotMatchedInsert("NOT s.closing", everything).execute)
    finally:
        changes.unpersist()


def run(turn: Turn) -> dict[str, float]:
    """Fetches what is listed, then derives `fetches` and `robots`."""
    warehouse = turn.warehouse
    if not turn.settings.agent.contact:
        raise ConfigError("agent.contact is empty: give site owners a URL or mail address, --set agent.contact=...")
    if not advance(turn.entry, str(turn.segment), State.FETCHED):
        return {}
    listed = turn.rows("fetchlist")
    span = tables.in_buckets(turn.segment.buckets(warehouse.buckets))
    rows = task_rows(listed, warehouse.read("hosts").filter(span), warehouse.read("robots").filter(span))
    sizes = {row.task: row["count"] for row in listed.groupBy("task").count().collect()}
    made: list[dict[str, Any]] = []
    if sizes:
        deadline = turn.entry.lease_until if turn.entry else time.time() + turn.settings.generate.lease_s
        with watch(warehouse.store, turn.segment.folder, sum(sizes.values())):
            made = manifests(rows, turn, max(sizes) + 1, deadline)
    parts = sorted(part for manifest in made for part in manifest["parts"])
    counts = derive(turn, parts)
    warehouse.ledger.move(str(turn.segment), State.FETCHED, time.time(), {"fetches": int(counts["fetches"])})
    warehouse.sync_segments()
    return counts


def derive(turn: Turn, parts: Sequence[str]) -> dict[str, float]:
    """The repeatable second step: tables from journals. Returns pages by outcome and what they weighed."""
    records = fetches(journal(turn, parts, "fetch", "fetches"), turn).persist()
    try:
        turn.put("fetches", records.coalesce(2))
        merge_robots(turn, journal(turn, parts, "robots", "robots"))
        rows = records.groupBy("outcome").agg({"*": "count", "wire_bytes": "sum"}).collect()
        gap = records.selectExpr("min(gap_ms) AS gap_ms").head()
    finally:
        records.unpersist()
    counts: dict[str, float] = {"fetches": sum(row["count(1)"] for row in rows)}
    counts |= {f"outcome.{row.outcome}": row["count(1)"] for row in sorted(rows, key=lambda r: -r["count(1)"])}
    counts["wire_bytes"] = sum(row["sum(wire_bytes)"] or 0 for row in rows)
    return counts | ({"min_gap_ms": gap.gap_ms} if gap and gap.gap_ms is not None else {})


def main(argv: Sequence[str] | None = None) -> int:
    parser = runner.arguments("fetch", "Fetch the URLs that generate listed.")
    return runner.main("fetch", parser, _body, argv)


def _body(options: argparse.Namespace) -> int:
    return runner.run_job(options, "fetch", run)


if __name__ == "__main__":
    sys.exit(main())
