"""What an update costs: the same batch into the same slice of a table ten times as large; and beside a bare MERGE.

Run: `.venv/bin/python bench/update.py --slice-rows 1000000 --times 10 --fetched 50000 --links 500000` (minutes; small
by default). CPU seconds of this process and its JVM, the best of some attempts on copies of one warehouse, side by side
in one run: read the ratios. The bars (issue 7): a table ten times as large at most 1.1 times the cost; the whole job at
most 1.6 times a bare MERGE of the same rows and an append of its events, in the same warm session.

The rest of the large table is the slice's own files, linked under other buckets: Delta sees the rows and their files,
the disk holds them once. Beside it stands what Nutch 1.x needed for updatedb of the same size (see bench/README.md).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from generate import cpu_of, fill

from spindle import config, runner, schema, tables
from spindle.defaults import default_layer
from spindle.jobs import generate, update
from spindle.segments import SegmentId, State
from spindle.session import open_session

NOW = datetime.datetime(2026, 11, 30, 12, tzinfo=datetime.UTC)
SETTINGS = config.build([default_layer(), ("bench", {"agent": {"contact": "a@b.test"}})])
NUTCH = {1: 25.9, 5: 42.5, 20: 95.1}  # CPU seconds of updatedb, 50 k pages and 1 M links, by million rows


def widen(folder: str, times: int) -> None:
    """Links the files of the first slice's four buckets under those of the others, and says so in a commit."""
    root = Path(folder) / "urls"
    log = sorted((root / "_delta_log").glob("*.json"))
    lines = [json.loads(line) for path in log for line in path.read_text().splitlines()]
    actions = []
    for add in (line["add"] for line in lines if "add" in line):
        own, name = int(add["partitionValues"]["bucket"]), add["path"].rsplit("/", 1)[-1]
        for slice_ in range(1, times):
            bucket = own + 4 * slice_
            (root / f"bucket={bucket}").mkdir(exist_ok=True)
            os.link(root / add["path"], root / f"bucket={bucket}" / name)
            told = {"path": f"bucket={bucket}/{name}", "partitionValues": {"bucket": str(bucket)}}
            actions.append({"add": {**add, **told, "dataChange": True}})
    told = {"timestamp": 0, "operation": "WRITE", "operationParameters": {}, "isBlindAppend": True}
    text = "\n".join(json.dumps(action) for action in [{"commitInfo": told}, *actions])
    (root / "_delta_log" / f"{len(log):020d}.json").write_text(text + "\n")


def batch(warehouse, segment: SegmentId, fetched: int, links: int) -> None:
    """A parsed segment: fetched rows of the slice, half of them changed, and links into it, half to known rows."""
    spark, month = warehouse.spark, f"{NOW:%Y-%m}"
    options = argparse.Namespace(now=NOW.isoformat())
    turn = generate.open_turn(warehouse, segment, SETTINGS, options)
    urls = warehouse.read_range("urls", segment)
    some = urls.orderBy("url_key").limit(fetched)
    listed = {"segment": f"'{segment}'", "task": "0", "position": "CAST(monotonically_increasing_id() AS INT)"}
    names = schema.columns("fetchlist")
    warehouse.replace(
        "fetchlist", turn.where, some.selectExpr(*(f"{listed.get(n, n)} AS {n}" for n in names)).coalesce(2)
    )
    start = f"TIMESTAMP '{NOW:%Y-%m-%d %H:%M:%S}Z'"
    told = {
        "segment": f"'{segment}'", "month": f"'{month}'", "hop": "0", "task": "0", "epoch": "1", "outcome": "'ok'",
        "http_status": "200", "started_at": start, "ended_at": start, "duration_ms": "100D", "backoff_level": "0",
        "content_hash": "sha2(url, 256)", "warc_file": "'w'", "warc_offset": "url_key", "warc_length": "9L",
    }  # fmt: skip
    same = ("url_key", "bucket", "url", "host", "kind", "depth")
    frame = rows(warehouse, "fetches", warehouse.read("fetchlist").filter(turn.where), told, same)
    warehouse.replace("fetches", f"month = '{month}' AND {turn.where}", frame.coalesce(2))
    told = {"segment": f"'{segment}'", "month": f"'{month}'", "parse_version": "1", "simhash": "xxhash64(url)"}
    frame = rows(
        warehouse,
        "pages",
        warehouse.read("fetchlist").filter(turn.where),
        told,
        ("url_key", "bucket", "url", "host", "kind"),
    )
    warehouse.replace("pages", f"month = '{month}' AND {turn.where}", frame.coalesce(2))
    known = (
        urls.orderBy("url_key").limit(links // 20).selectExpr("url_key AS k", "bucket AS b", "url AS u", "host AS h")
    )
    numbered = known.selectExpr("*", "row_number() OVER (ORDER BY k) AS n").crossJoin(
        spark.range(20).selectExpr("id AS c")
    )
    fresh = "c >= 10"
    told = {
        "segment": f"'{segment}'", "parse_version": "1", "src_key": "xxhash64(n, c)", "src_url": "'http://x.test/'",
        "src_host": "concat('s', pmod(xxhash64(n, c), 9999))", "rel": "'a'", "nofollow": "false", "depth": "3",
        "dst_key": f"IF({fresh}, xxhash64(u, c DIV 2), k)", "dst_bucket": "b", "dst_host": "h", "dst_domain": "h",
        "dst_url": f"IF({fresh}, concat(u, '/', c DIV 2), u)", "dst_kind": "'page'",
    }  # fmt: skip
    frame = rows(warehouse, "links", numbered, told, ())
    warehouse.replace("links", turn.where, frame.repartitionByRange(2, "dst_bucket").sortWithinPartitions("dst_bucket"))
    for state in (State.GENERATED, State.FETCHED, State.PARSED):
        counts = {"fetches": fetched, "listed": fetched, "links": links, "parse_version": 1}
        warehouse.ledger.move(str(segment), state, 1.0, counts)


def rows(warehouse, table: str, frame, told: dict[str, str], same: tuple[str, ...]):
    """A table's columns: told as SQL, taken over, or null."""
    kinds = {ddl.split()[0]: ddl.split(" ", 1)[1].replace(" NOT NULL", "") for ddl in schema.field_ddl(table)}
    chosen = {name: f"CAST(NULL AS {kind})" for name, kind in kinds.items()} | {name: name for name in same} | told
    return frame.selectExpr(*(f"{sql} AS {name}" for name, sql in chosen.items()))


def bare(warehouse, source: str, events: str, span: range) -> None:
    """The same rows merged and appended by somebody who has them ready."""
    frame = warehouse.spark.read.parquet(source)
    condition = f"t.{tables.in_buckets(span)} AND t.bucket = s.bucket AND t.url_key = s.url_key"
    values: dict[str, Any] = {name: f"s.{name}" for name in schema.columns("urls")}
    warehouse.merge("urls", frame, condition).whenMatchedUpdate(set=values).whenNotMatchedInsert(
        values=values
    ).execute()
    warehouse.append("events", warehouse.spark.read.parquet(events))


def fork(base: str, to: str) -> None:
    """A copy whose files are links: Delta never changes one."""
    subprocess.run(["cp", "-al", base, to], check=True)


def best(cpu: Callable[[], float], attempts: int, base: str, folder: str, work: Callable[[str], None]) -> float:
    costs = []
    for attempt in range(attempts):
        copy = f"{folder}/{attempt}-{work.__name__}"
        fork(base, copy)
        begun = cpu()
        work(copy)
        costs.append(cpu() - begun)
    return min(costs)


def measure(spark, folder: str, options: argparse.Namespace, times: int) -> tuple[float, float]:
    base, segment = f"{folder}/base", SegmentId("bench", 1, options.times)
    warehouse = tables.create(spark, base, 4 * options.times, {})
    fill(warehouse, options.slice_rows, 1)
    if times > 1:
        widen(base, times)
    batch(warehouse, segment, options.fetched, options.links)

    def whole(copy: str) -> None:
        runner.turn_of(tables.open_warehouse(spark, copy), segment, "update", update.run)

    def bare_merge(copy: str) -> None:
        bare(
            tables.open_warehouse(spark, copy),
            f"{folder}/source",
            f"{folder}/events",
            segment.buckets(4 * options.times),
        )

    cpu = cpu_of(spark)
    job = best(cpu, options.attempts, base, folder, whole)
    done = tables.open_warehouse(spark, f"{folder}/0-whole")
    known = tables.open_warehouse(spark, base).read_range("urls", segment).selectExpr("url_key", "struct(*) AS was")
    now = done.read_range("urls", segment).join(known, "url_key", "left")
    changed = now.filter("was IS NULL OR NOT (was.last_segment <=> last_segment AND was.inlink_bits = inlink_bits)")
    changed.drop("was").write.parquet(f"{folder}/source")
    done.read("events").write.parquet(f"{folder}/events")
    merge = best(cpu, options.attempts, base, folder, bare_merge)
    print(
        f"{options.slice_rows * times:>11,} rows, slice of {options.slice_rows:,}: update {job:.1f} CPU-s; "
        f"bare MERGE and append of the same {spark.read.parquet(folder + '/source').count():,} rows {merge:.1f} CPU-s; "
        f"{job / merge:.2f} x",
        flush=True,
    )
    return job, merge


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slice-rows", type=int, default=100_000, help="rows of the slice, and of the small table")
    parser.add_argument("--times", type=int, default=10, help="the large table has so many slices")
    parser.add_argument("--fetched", type=int, default=10_000, help="URLs fetched")
    parser.add_argument("--links", type=int, default=100_000, help="links into the slice")
    parser.add_argument("--attempts", type=int, default=2, help="of each; the best counts")
    options = parser.parse_args()
    spark = open_session("bench update", SETTINGS.spark)
    costs = []
    for times in (1, 1, options.times):  # the first warms the session up
        with tempfile.TemporaryDirectory() as folder:
            costs.append(measure(spark, folder, options, times)[0])
    print(f"{options.times} times the table: {costs[2] / costs[1]:.2f} times the cost")
    print(f"Nutch 1.x, updatedb of 50,000 pages and 1 M links, CPU-s by million rows: {NUTCH}")
    spark.stop()


if __name__ == "__main__":
    main()
