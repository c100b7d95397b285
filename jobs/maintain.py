"""Maintain: small files of the tables become few, and what no version needs any more is removed.

Rules on top: which tables are compacted, and how. The job takes its turn on a range like a segment, so that it runs on
a busy wheel: `urls` is compacted bucket by bucket of the range alone; the tables that all ranges share only with the
slice 1/1, which owns everything. Rows are never changed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spindle import direct, runner, tables
from spindle.errors import InputError
from spindle.segments import SegmentId
from spindle.session import open_session
from spindle.tables import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LEASE_S = 6 * 3600.0
WEEK_H = 168.0  # Delta's own limit, whose check stays on
#: Not compacted: `links` lies sorted by target bucket in few files a segment, and larger ones, of several segments,
#: could no longer be skipped; `seen`, `fingerprints`, `copies` and `clusters` are rewritten whole by their owners.
SHARED = ("hosts", "fetches", "pages", "fetchlist", "robots", "events", "metrics", "segments", "inbox", "traps")
VACUUMED = ("urls", *SHARED, "links", "seen", "fingerprints", "copies", "clusters")


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done: `compact`, tables; `vacuum`, tables, none of whose versions older than `retain_h` hours stays
    readable."""

    compact: tuple[str, ...]
    vacuum: tuple[str, ...]
    retain_h: float


def work_of(segment: SegmentId, retain_h: float) -> Work:
    """The work of a slice.

    Raises:
        InputError: versions younger than a week are to go: a turn on another range, or a question that is being asked,
            may be reading them (delta-io/delta#1470).
    """
    if retain_h < WEEK_H:
        raise InputError(
            f"--retain-h {retain_h:g}: a week ({WEEK_H:g} hours) at least; readers may hold a version for days"
        )
    whole = segment.n == 1
    return Work(("urls", *SHARED) if whole else ("urls",), VACUUMED if whole else ("urls",), retain_h)


def compact(warehouse: Warehouse, table: str, segment: SegmentId) -> dict[str, float]:
    """OPTIMIZE: files below Delta's target size, and those with many deleted rows, are written anew as few."""
    plan = warehouse.delta(table).optimize()
    if table == "urls":
        plan = plan.where(tables.in_buckets(segment.buckets(warehouse.buckets)))
    made: DataFrame = tables.retry_conflicts(plan.executeCompaction)
    told = made.collect()[0].metrics
    return {"files_removed": told.numFilesRemoved, "files_added": told.numFilesAdded}


def vacuum(warehouse: Warehouse, table: str, retain_h: float, *, really: bool) -> int:
    """Removes files that no version of the last `retain_h` hours names; how many they are. `really` False counts."""
    spark, place = warehouse.spark, warehouse.location(table).replace("`", "``")
    going = spark.sql(f"VACUUM delta.`{place}` RETAIN {retain_h} HOURS DRY RUN").count()
    if really and going:
        spark.sql(f"VACUUM delta.`{place}` RETAIN {retain_h} HOURS").collect()
    return going


def run(
    warehouse: Warehouse, segment: SegmentId, work: Work, pins: dict[str, object], *, dry: bool
) -> dict[str, float]:
    """Does the work under the range's lease; with `dry` only counts `files.<table>` in use and `old.<table>` to go.

    Raises:
        LeaseHeld: a turn is open on the range.
    """
    if dry:
        counts = {f"files.{table}": float(direct.count(warehouse.location(table))[1]) for table in work.compact}
        old = {f"old.{table}": float(vacuum(warehouse, table, work.retain_h, really=False)) for table in work.vacuum}
        return counts | old
    made: dict[str, float] = {"files_removed": 0, "files_added": 0, "old_files": 0}
    warehouse.ledger.open(segment, pins, LEASE_S, time.time)
    try:
        for table in work.compact:
            for name, number in compact(warehouse, table, segment).items():
                made[name] += number
        for table in work.vacuum:
            made["old_files"] += vacuum(warehouse, table, work.retain_h, really=True)
    finally:
        warehouse.ledger.release(str(segment), time.time())
        warehouse.sync_segments()
    runner.write_metrics(warehouse, str(segment), "maintain", made)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    parser = runner.arguments("maintain", "Compact the tables, and remove what no version needs.", segment=False)
    parser.add_argument("--slice", default="1/1", metavar="I/N", help="part of the URL table (default: all of it)")
    parser.add_argument(
        "--retain-h",
        type=float,
        default=WEEK_H,
        metavar="HOURS",
        help=f"how far back versions stay readable, for time travel and undo (default and least: {WEEK_H:g}, a week)",
    )
    parser.add_argument("--dry-run", action="store_true", help="only count files")
    return runner.main("maintain", parser, _body, argv)


def _body(options: argparse.Namespace) -> int:
    settings, now = runner.settings_of(options), runner.now_of(options)
    segment = SegmentId.parse(f"maintain-{now:%Y%m%dT%H%M%S%f}.{options.slice.replace('/', 'of')}")
    work = work_of(segment, options.retain_h)
    tables.read_marker(options.warehouse)
    spark = open_session("spindle maintain", settings.spark, quick=True)
    warehouse = tables.open_warehouse(spark, options.warehouse)
    counts = run(warehouse, segment, work, runner.pins(now, settings), dry=options.dry_run)
    if options.dry_run:
        for table in work.vacuum:
            files = f"{counts[f'files.{table}']:.0f} files in use, " if f"files.{table}" in counts else ""
            print(f"  {table}: {files}{counts[f'old.{table}']:.0f} old ones would go")
        counts = {"old_files": sum(number for name, number in counts.items() if name.startswith("old."))}
    print(runner.summary_line("maintain", str(segment), counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
