"""fetch: each task of the list is fetched by one Spark task into a journal; a second step derives the tables from it.

The Spark action runs once and returns only manifests (DESIGN section 1): whatever died, a rerun reads the journals that
are sealed and goes on. `fetches` and `robots` are functions of the journals, so the second step may be repeated.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spindle import runner, schema, tables
from spindle.config import from_json
from spindle.errors import ConfigError
from spindle.progress import watch
from spindle.runner import Turn
from spindle.segments import SegmentId, State, advance, unaccounted
from spindle.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MANIFEST = pa.schema([("task", pa.int32()), ("manifest", pa.string())])
_MOVED = pa.schema([("warc_file", pa.string()), ("now_in", pa.string()), ("base", pa.int64())])
Joined = Mapping[str, Sequence[Any]]  # WARC part -> file it was joined into, and what to add to an offset
#: Times to the microsecond: a revisit record names the very instant of its original, and no delay loses its fraction.
_ROW_JSON = "to_json(struct(*), map('timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\"))"


def task_rows(listed: DataFrame, hosts: DataFrame, robots: DataFrame) -> DataFrame:
    """All that the tasks must know, as (task, what, place, JSON): the list, what is known of its hosts, their rules."""
    listed_rows = listed.selectExpr("task", "'url' AS what", "position AS place", f"{_ROW_JSON} AS payload")
    task_of = listed.select("task", "host").distinct()
    host_rows = hosts.selectExpr("host", "'host' AS what", f"{_ROW_JSON} AS payload")
    current = robots.filter("until IS NULL").selectExpr("host", "'robots' AS what", f"{_ROW_JSON} AS payload")
    known = host_rows.union(current).join(task_of, "host").selectExpr("task", "what", "0 AS place", "payload")
    return listed_rows.union(known)


def left_by_expired(turn: Turn) -> dict[str, list[str]] | None:
    """Folder -> sealed journal parts of the expired segments over this range; None: there is no such segment."""
    span, store = turn.segment.buckets(turn.warehouse.buckets), turn.warehouse.store
    expired = unaccounted(turn.warehouse.ledger.entries(), span.start, span.stop)
    folders = [SegmentId.parse(entry.segment).folder for entry in expired]
    parts = {
        folder: [name for name in store.list(f"{folder}/journal/") if name.endswith(".jsonl")] for folder in folders
    }
    return {folder: [name.removeprefix(f"{folder}/") for name in names] for folder, names in parts.items()} or None


def left_rows(turn: Turn, left: Mapping[str, list[str]], listed: DataFrame) -> DataFrame:
    """What expired segments learned of the listed hosts, as `task_rows`: back-off, Retry-After and crawl-delay hold."""
    facts = ("next_ok_at", "crawl_delay_s", "backoff_level", "ip")
    rows = [journal(turn, parts, "fetch", "fetches", folder) for folder, parts in left.items()]
    told = functools.reduce(lambda one, other: one.union(other), rows).filter("next_ok_at IS NOT NULL")
    order = "PARTITION BY host ORDER BY ended_at DESC"
    last = told.selectExpr("host", *facts, f"row_number() OVER ({order}) AS n").filter("n = 1").drop("n")
    task_of = listed.select("task", "host").distinct()
    payload = last.selectExpr("host", f"{_ROW_JSON} AS payload").join(task_of, "host")
    return payload.selectExpr("task", "'left' AS what", "0 AS place", "payload")


def manifests(
    rows: DataFrame, turn: Turn, tasks: int, deadline: float, *, after_expired: bool = False
) -> list[dict[str, Any]]:
    """Runs the fetch: one Spark partition a task, hosts whole. The one action; its result is small.

    `after_expired`: a segment over these hosts has expired, and may just have touched any of them.
    """
    spark = rows.sparkSession
    plain = (turn.settings.to_json(), turn.warehouse.store.root, str(turn.segment), turn.month, deadline)
    work = _worker(*plain, after_expired)
    before = spark.conf.get("spark.sql.adaptive.enabled")
    spark.conf.set("spark.sql.adaptive.enabled", "false")  # AQE may merge or split partitions: hosts must stay whole
    try:
        placed = rows.repartitionById(tasks, rows.task).sortWithinPartitions("task", "what", "place")
        found = placed.mapInArrow(work, "task INT, manifest STRING").collect()
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", before or "true")
    return [json.loads(row.manifest) for row in found]


def _worker(settings_json: str, root: str, segment: str, month: str, deadline: float, after_expired: bool) -> Any:
    """The function that runs in Spark's Python worker; it closes over plain values only."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from spindle.fetcher import Listing, run_task

        told = _told(batches)
        if (first := next(told, None)) is None:
            return
        task, known = first[0], Known()
        urls = _sorted_out(itertools.chain([first], told), task, known)
        head = list(itertools.islice(urls, 1))  # all that is known comes before the first URL
        left = known.left if after_expired else None
        listing = Listing(itertools.chain(head, urls), known.hosts, known.robots, month, deadline, left)
        made = run_task(listing, from_json(settings_json), root, segment, task)
        yield pa.RecordBatch.from_pylist([{"task": task, "manifest": json.dumps(made)}], schema=_MANIFEST)

    return work


def _told(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, str, Any]]:
    for batch in batches:
        for row in batch.to_pylist():
            yield row["task"], row["what"], json.loads(row["payload"])


@dataclass
class Known:
    """What a task is told beside its URLs, by host or origin."""

    hosts: dict[str, Any] = field(default_factory=dict)
    robots: dict[str, Any] = field(default_factory=dict)
    left: dict[str, Any] = field(default_factory=dict)


def _sorted_out(told: Iterator[tuple[int, str, Any]], task: int, known: Known) -> Iterator[Any]:
    """The URLs one by one, never all in memory; what comes before them goes into `known`."""
    for of_task, what, row in told:
        if of_task != task:
            raise ValueError(f"tasks {task} and {of_task} came to one partition; generate numbers them without gaps")
        if what == "url":
            yield row
        elif what == "robots":
            known.robots[row["origin"]] = row
        else:
            (known.hosts if what == "host" else known.left)[row["host"]] = row


def journal(
    turn: Turn,
    parts: Sequence[str],
    kind: str,
    table: str,
    of: str | None = None,
    joined: Joined = MappingProxyType({}),
) -> DataFrame:
    """The journal's records of one kind as a frame with the table's columns. `of`: the folder of another segment;
    `joined`: where WARC parts went that its rows still name."""
    of = of or turn.segment.folder
    spark, folder = turn.warehouse.spark, f"{turn.warehouse.uri}/{of}"
    ddl = "type STRING, " + schema.TABLES[table].replace(" NOT NULL", "")
    frame = (
        spark.read.schema(ddl).json([f"{folder}/{part}" for part in parts]) if parts else spark.createDataFrame([], ddl)
    )
    frame = where_they_are(frame, joined)
    in_warehouse = f"IF(warc_file IS NULL, NULL, concat('{of}/', warc_file)) AS warc_file"
    return frame.filter(f"type = '{kind}'").selectExpr(
        *(in_warehouse if name == "warc_file" else name for name in schema.columns(table))
    )


def where_they_are(records: DataFrame, joined: Joined) -> DataFrame:
    """The same records, each pointing into the file that its WARC part was joined into."""
    if not joined:
        return records
    rows = [{"warc_file": part, "now_in": file, "base": base} for part, (file, base) in joined.items()]
    table = tables.frame_of(records.sparkSession, pa.Table.from_pylist(rows, schema=_MOVED)).hint("broadcast")
    kept = [name for name in records.columns if name not in ("warc_file", "warc_offset")]
    places = ["coalesce(now_in, warc_file) AS warc_file", "warc_offset + coalesce(base, 0L) AS warc_offset"]
    return records.join(table, "warc_file", "left").selectExpr(*kept, *places)


def joined_in(store: Store, folder: str) -> dict[str, Sequence[Any]]:
    """What the manifests of a segment's finished tasks say of joined parts."""
    done = [name for name in store.list(f"{folder}/journal/") if name.endswith(".done")]
    return {part: place for name in done for part, place in json.loads(store.get(name)).get("joined", {}).items()}


def fetches(records: DataFrame, turn: Turn) -> DataFrame:
    """Rows of `fetches`; the month is the segment's, so that a rerun replaces exactly its own rows."""
    return records.drop("month").selectExpr("*", f"'{turn.month}' AS month")


def last_attempts(attempts: DataFrame) -> DataFrame:
    order = "PARTITION BY origin ORDER BY attempted_at DESC, verdict"
    return attempts.selectExpr("*", f"row_number() OVER ({order}) AS n").filter("n = 1").drop("n")


def robots_changes(attempts: DataFrame, known: DataFrame) -> DataFrame:
    """What becomes of `robots`: the last attempt of each origin renews the current row, or closes it and opens a new
    one when verdict or content changed. A body is kept once a hash."""
    last = last_attempts(attempts)
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


def merge_robots(turn: Turn, attempts: DataFrame, known: bool) -> None:
    """Writes the attempts into `robots`; running it again changes nothing (an attempt not newer is dropped).

    `known`: whether the table has a current row of any of the origins. Where it has none, as in the first turn of most,
    rows only come in, and Delta need not look for what they match twice.
    """
    span = tables.in_buckets(turn.segment.buckets(turn.warehouse.buckets))
    on = f"t.{span} AND t.origin = s.origin AND t.since = s.since"
    everything: dict[str, Any] = {name: f"s.{name}" for name in schema.columns("robots")}
    if not known:
        told = [name for name in schema.columns("robots") if name not in ("since", "until")]
        first = last_attempts(attempts).selectExpr(*told, "attempted_at AS since", "CAST(NULL AS TIMESTAMP) AS until")
        tables.retry_conflicts(
            turn.warehouse.merge("robots", first, on).whenNotMatchedInsert(values=everything).execute
        )
        return
    with runner.kept(few=turn.is_small()) as keep:
        changes = keep(robots_changes(attempts, turn.warehouse.read("robots").filter(span)))
        names = [name for name in schema.columns("robots") if name not in ("origin", "since")]
        builder = turn.warehouse.merge("robots", changes, on)
        builder = builder.whenMatchedUpdate("s.closing", {"until": "s.until"})
        builder = builder.whenMatchedUpdate("NOT s.closing", {name: f"s.{name}" for name in names})
        tables.retry_conflicts(builder.whenNotMatchedInsert("NOT s.closing", everything).execute)


def size(listed: DataFrame, turn: Turn) -> tuple[int, int]:
    """How many tasks and URLs were listed: as generate noted in the ledger, else asked from the list itself."""
    noted = turn.entry.counts if turn.entry else {}
    if "tasks" in noted and "listed" in noted:
        return noted["tasks"], noted["listed"]
    row = listed.selectExpr("max(task) AS last", "count(*) AS urls").collect()[0]
    return (0 if row.last is None else row.last + 1), row.urls


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
    tasks, urls = size(listed, turn)
    made: list[dict[str, Any]] = []
    if left := left_by_expired(turn):
        rows = rows.union(left_rows(turn, left, listed))
    if tasks:
        deadline = turn.entry.lease_until if turn.entry else time.time() + turn.settings.generate.lease_s
        with watch(warehouse.store, turn.segment.folder, urls):
            made = manifests(rows, turn, tasks, deadline, after_expired=left is not None)
    counts = derive(turn, made, left or {})
    warehouse.ledger.move(str(turn.segment), State.FETCHED, time.time(), {"fetches": int(counts["fetches"])})
    warehouse.sync_segments()
    return counts


def derive(
    turn: Turn, made: Sequence[Mapping[str, Any]], left: Mapping[str, list[str]] = MappingProxyType({})
) -> dict[str, float]:
    """The repeatable second step: tables from journals, and what expired segments (`left`) heard of robots.txt. Returns
    pages by outcome and what they weighed, which the manifests say, so that no table is asked."""
    parts = sorted(part for manifest in made for part in manifest["parts"])
    joined = {part: place for manifest in made for part, place in manifest["joined"].items()}
    records = fetches(journal(turn, parts, "fetch", "fetches", joined=joined), turn)
    turn.put("fetches", records.coalesce(2))
    sums = [manifest["sums"] for manifest in made]
    if left or any(one["robots"] for one in sums):
        attempts = journal(turn, parts, "robots", "robots", joined=joined)
        for folder, names in left.items():
            moved = joined_in(turn.warehouse.store, folder)
            attempts = attempts.union(journal(turn, names, "robots", "robots", folder, moved))
        merge_robots(turn, attempts, bool(left) or any(one["robots_known"] for one in sums))
    return totals(sums)


def totals(sums: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The sums of several tasks as counts of the job: `fetches`, `outcome.<name>` (most frequent first), `wire_bytes`,
    and `min_gap_ms` where any host was asked twice."""
    outcomes = sum((Counter(one["outcomes"]) for one in sums), Counter[str]())
    counts: dict[str, float] = {"fetches": outcomes.total()}
    counts |= {f"outcome.{name}": count for name, count in outcomes.most_common()}
    counts["wire_bytes"] = sum(one["wire_bytes"] for one in sums)
    gaps = [one["min_gap_ms"] for one in sums if one["min_gap_ms"] is not None]
    return counts | ({"min_gap_ms": min(gaps)} if gaps else {})


def main(argv: Sequence[str] | None = None) -> int:
    parser = runner.arguments("fetch", "Fetch the URLs that generate listed.")
    return runner.main("fetch", parser, _body, argv)


def _body(options: argparse.Namespace) -> int:
    return runner.run_job(options, "fetch", run)


if __name__ == "__main__":
    sys.exit(main())
