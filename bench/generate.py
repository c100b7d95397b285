"""What a fetch list costs: the same slice and list of a table that is ten times as large; and beside a bare scan.

Run: `.venv/bin/python bench/generate.py --rows 1000000 10000000 50000000 --slice-rows 1000000` (many minutes; small by
default). CPU seconds of this process and its JVM, side by side in one run: read the ratios. The bars (issue 4): a table
ten times as large at most 1.1 times the cost; at most 3 times a bare scan of the needed columns. `--month 1000000` runs
the simulated month of tests/month.py instead, and draws its priorities.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from spindle import config, schema, tables
from spindle.defaults import default_layer
from spindle.jobs import generate
from spindle.runner import kept
from spindle.segments import SegmentId, State
from spindle.session import open_session

ATTEMPTS = 3
NOW = datetime.datetime(2026, 11, 30, 12, tzinfo=datetime.UTC)


def cpu_of(spark) -> Callable[[], float]:
    """CPU seconds of this process and the JVM so far."""
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()

    def now() -> float:
        user, system = Path(f"/proc/{jvm}/stat").read_text().rsplit(") ", 1)[1].split()[11:13]
        return time.process_time() + (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    return now


def fill(warehouse, slice_rows: int, slices: int) -> None:
    """One slice of four buckets is made in Spark: hosts with Zipf sizes, nine rows in ten due. The other slices are its
    files again, hard-linked under the names of their buckets and added by a commit of our own: rows like any others for
    a reader, and a table of 50 million costs the disk of one slice."""
    known = {
        "url_key": "xxhash64(id)",
        "bucket": "CAST(pmod(host_number, 4) AS INT)",
        "url": "concat('http://h', host_number, '.test/', id)",
        "host": "concat('h', host_number, '.test')",
        "domain": "concat('h', host_number, '.test')",
        "score": "pmod(xxhash64(id, 1), 100000) / 100000D",
        "priority": "CAST(1 + pmod(xxhash64(id, 2), 5) AS INT)",
        "fetch_count": "CAST(pmod(xxhash64(id, 3), 2) AS INT)",
        "discovered_at": "TIMESTAMP '2026-11-01 00:00:00Z'",
        "last_fetch": "IF(pmod(xxhash64(id, 3), 2) = 0, NULL, TIMESTAMP '2026-11-02 00:00:00Z')",
        "next_fetch": f"TIMESTAMP '{NOW:%Y-%m-%d %H:%M:%S}Z' + make_interval(0, 0, 0, 1 - CAST(pmod(id, 10) AS INT))",
    }
    defaults = {name: sql for name, sql in schema.NEW_URL.items() if name not in known}
    number = f"CAST(pow({slice_rows / 100}D, pmod(xxhash64(id, 4), 1000000) / 1000000D) AS LONG) AS host_number"
    base = warehouse.spark.range(slice_rows, numPartitions=8).selectExpr("id", number)
    frame = base.selectExpr(*(f"{sql} AS {name}" for name, sql in {**known, **defaults}.items()))
    missing = [name for name in schema.columns("urls") if name not in frame.columns]
    kinds = {ddl.split()[0]: ddl.split(" ", 1)[1].replace(" NOT NULL", "") for ddl in schema.field_ddl("urls")}
    frame = frame.selectExpr("*", *(f"CAST(NULL AS {kinds[name]}) AS {name}" for name in missing))
    warehouse.append("urls", frame.repartition(8, "bucket", "host").sortWithinPartitions("bucket"))
    link_slices(Path(warehouse.location("urls")), slices)


def link_slices(table: Path, slices: int) -> None:
    """Adds the files of the first slice again for each of the others (Delta protocol, "Add File")."""
    log = table / "_delta_log"
    last = max(int(name.stem) for name in log.glob("*.json"))
    actions = [json.loads(line) for line in (log / f"{last:020d}.json").read_text().splitlines()]
    added = [action["add"] for action in actions if "add" in action]
    lines = [json.dumps({"commitInfo": {"timestamp": added[0]["modificationTime"], "operation": "WRITE"}})]
    for number in range(1, slices):
        for add in added:
            bucket = str(4 * number + int(add["partitionValues"]["bucket"]))
            path = f"bucket={bucket}/{add['path'].rpartition('/')[2]}"
            (table / path).parent.mkdir(exist_ok=True)
            os.link(table / add["path"], table / path)
            lines.append(json.dumps({"add": {**add, "path": path, "partitionValues": {"bucket": bucket}}}))
    (log / f"{last + 1:020d}.json").write_text("\n".join(lines) + "\n")


def bare_scan(turn) -> None:
    """The columns that generate needs of the slice, read and added up."""
    urls = turn.warehouse.read_range("urls", turn.segment)
    needed = "url_key, host, domain, priority, score, next_fetch, discovered_at, fetch_count, failure_count"
    urls.selectExpr(f"bit_xor(xxhash64({needed}))").collect()


def measure(spark, folder: str, rows: int, slices: int, list_size: int) -> tuple[float, float]:
    warehouse = tables.create(spark, folder, 4 * slices, {})
    fill(warehouse, rows // slices, slices)
    limits = {
        "list_size": list_size * slices,
        "fetch_tasks": 4,
        "resolve_hosts": 0,
    }  # a round's list: its slices share it
    chosen = {"generate": limits, "agent": {"contact": "a@b.test"}}
    settings = config.build([default_layer(), ("bench", chosen)])
    cpu, best = cpu_of(spark), {"scan": float("inf"), "list": float("inf")}
    for attempt in range(ATTEMPTS):  # the first pays for compiling
        options = argparse.Namespace(now=NOW.isoformat())
        begun = cpu()
        turn = generate.open_turn(warehouse, SegmentId(f"r{attempt}", 1, slices), settings, options)
        opened = cpu() - begun
        begun = cpu()
        bare_scan(turn)
        scanned = cpu()
        with kept() as keep:
            plan = generate.planned(turn, keep)
            listed = generate.fetchlist(plan, warehouse.read_range("urls", turn.segment), turn)
            warehouse.replace("fetchlist", turn.where, listed.coalesce(2))
        best = {"scan": min(best["scan"], scanned - begun), "list": min(best["list"], opened + cpu() - scanned)}
        warehouse.ledger.move(str(turn.segment), State.EXPIRED, time.time())
    counts = plan.counts(settings)
    print(
        f"{rows:>11,} rows, slice 1 of {slices}: due {counts['due']:,}, listed {counts['listed']:,}; "
        f"bare scan {best['scan']:.1f} CPU-s, list {best['list']:.1f} CPU-s ({best['list'] / best['scan']:.1f} x); "
        f"to the driver: {len(plan.counted.candidates):,} bars and {len(plan.loads):,} hosts, its Python process at "
        f"most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024:,} MB so far"
    )
    return best["scan"], best["list"]


def show_month(urls: int, plot: str) -> None:
    """The month of tests/month.py, which checks itself, and how well it kept priority."""
    from month import DAY, STEP, Month

    month, begun = Month(urls, urls // 100), time.process_time()
    report = month.run(30)
    bound = 5 * STEP + 100 / 16 * DAY
    waited = max(report.longest_wait, month.longest_still_waiting(30 * DAY))
    print(f"{urls:,} URLs, {urls // 100:,} hosts, 60 turns of 2 slices: {time.process_time() - begun:.0f} CPU-s")
    print(f"  listed {report.listed:,}; turns that died {report.expired}; leases refused {report.refused}")
    print(
        f"  waited beyond what its host's budget explains: at most {waited / DAY:.1f} days (bound {bound / DAY:.1f}); "
        f"never listed {month.never_listed():,}"
    )
    most = max(report.by_level.values())
    for level in sorted(report.by_level):
        print(f"  level {level} {'#' * (60 * report.by_level[level] // most)} {report.by_level[level]:,}")
    for name in ("strict", "ours", "round_robin"):
        print(f"  mean level where the list was cut, {name:11}: {getattr(report, name) / report.strict:.2f} x strict")
    if plot:
        Path(plot).write_text(svg(report.cut), encoding="utf-8")


COLOURS = {"ours (biased 50:25:13:8:4)": "#1f5fa8", "strict priority": "#2f8f4e", "round robin over hosts": "#b5532a"}


def svg(cut: list[tuple[int, int, int, int, int]]) -> str:
    """Mean level of what was listed (1 is the best), over the days on which the list was cut, as three lines."""
    width, height, left, top = 640, 320, 50, 20
    by_day: dict[int, list[int]] = {}
    for day, *sums in cut:
        by_day[day] = [a + b for a, b in zip(by_day.get(day, [0] * 4), sums, strict=True)]
    days = sorted(by_day)

    def at(day: int, level: float) -> str:
        x = left + (day - days[0]) / max(1, days[-1] - days[0]) * (width - left - 20)
        return f"{x:.1f},{top + (level - 1) / 4 * (height - top - 40):.1f}"

    size = f'width="{width}" height="{height}"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">']
    lines.append(f'<rect {size} fill="white"/>')
    for level in range(1, 6):
        x, y = at(days[0], level).split(",")
        lines.append(f'<line x1="{x}" y1="{y}" x2="{width - 20}" y2="{y}" stroke="#ddd"/>')
        lines.append(f'<text x="{left - 14}" y="{float(y) + 4}" text-anchor="end">{level}</text>')
    for number, (name, colour) in enumerate(COLOURS.items(), 1):
        points = " ".join(at(day, by_day[day][number] / by_day[day][0]) for day in days)
        lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        lines.append(f'<text x="{left + 190 * (number - 1)}" y="{height - 8}" fill="{colour}">{name}</text>')
    lines.append(
        f'<text x="{left}" y="{height - 26}">mean level listed (1 is the best), day {days[0]} to {days[-1]}</text>'
    )
    return "\n".join([*lines, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000], help="rows of each table")
    parser.add_argument("--slice-rows", type=int, default=100_000, help="rows of the slice, the same in each")
    parser.add_argument("--list", type=int, default=10_000, help="URLs listed")
    parser.add_argument("--month", type=int, metavar="URLS", help="the simulated month instead")
    parser.add_argument("--plot", default="", metavar="FILE", help="with --month: an SVG of the mean level listed")
    options = parser.parse_args()
    if options.month:
        show_month(options.month, options.plot)
        return
    spark = open_session("bench generate", config.build([default_layer()]).spark)
    lists = []
    for rows in options.rows:
        slices = max(1, rows // options.slice_rows)
        with tempfile.TemporaryDirectory() as folder:
            lists.append(measure(spark, folder + "/w", rows, slices, options.list)[1])
    for rows, cost in zip(options.rows[1:], lists[1:], strict=True):
        print(f"{rows // options.rows[0]} times the table: {cost / lists[0]:.2f} times the cost")
    spark.stop()


if __name__ == "__main__":
    main()
