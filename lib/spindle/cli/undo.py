"""`spindle undo SEGMENT`: takes back what the last update of a range wrote, as if the segment had expired instead.

The rows as they stood are those of the table's version before the update's commit, which carries the segment's name;
they are laid back by a MERGE on the range, so that other ranges' turns and their commits stay. What was fetched stays
in the other tables: URLs come due again as before, and what the journal says of hosts still counts in the next turn.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from spindle import runner, schema, segments, tables
from spindle.segments import UNDO, SegmentId
from spindle.session import open_session
from spindle.tables import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LEASE_S = 3600.0
_KEYS = {"urls": ("bucket", "url_key"), "hosts": ("bucket", "host")}
_MARKS = ("links_version", "copies_version")


def main(argv: Sequence[str] | None = None) -> int:
    parser = runner.arguments("undo", "Take back the last update of a range.", segment=False)
    parser.add_argument("segment", metavar="SEGMENT", help="the last one that was updated on its range")
    return runner.main("undo", parser, _body, argv)


def _body(options: argparse.Namespace) -> int:
    settings, segment = runner.settings_of(options), SegmentId.parse(options.segment)
    tables.read_marker(options.warehouse)
    warehouse = tables.open_warehouse(open_session("spindle undo", settings.spark, quick=True), options.warehouse)
    pins = runner.pins(runner.now_of(options), settings)
    print(runner.summary_line("undo", str(segment), run(warehouse, segment, pins)))
    return 0


def run(warehouse: Warehouse, segment: SegmentId, pins: dict[str, Any]) -> dict[str, float]:
    """Holds the lease of the range meanwhile. A run that broke off is simply repeated.

    Raises:
        SegmentStateError: the segment is not the last of its range.
        LeaseHeld: a turn is open on the range.
        WarehouseError: the rows as they stood are not kept any more.
    """
    name = str(segment)
    segments.check_last(warehouse.ledger.entries(), name)
    lease = SegmentId(f"{UNDO}{time.time_ns()}", segment.i, segment.n)
    warehouse.ledger.open(lease, pins, LEASE_S, time.time)
    try:
        entry = segments.check_last(warehouse.ledger.entries(), name)
        counts = {table: float(laid_back(warehouse, segment, table)) for table in ("urls", "hosts")}
        marks = {mark: entry.counts.get(f"{mark}_before", 0) for mark in _MARKS}
        set_marks(warehouse, segment, marks)
        warehouse.rewrite("events", f"segment = '{name}'", [])
        warehouse.ledger.withdraw(name, time.time())
    finally:
        warehouse.ledger.release(str(lease), time.time())
        warehouse.sync_segments()
    runner.write_metrics(warehouse, name, "undo", counts)
    return counts


def laid_back(warehouse: Warehouse, segment: SegmentId, table: str) -> int:
    """Puts the range's rows of a table back as they stood; returns how many were changed or removed."""
    version = before(warehouse, segment, table)
    if version is None:
        return 0
    span = tables.in_buckets(segment.buckets(warehouse.buckets))
    was = warehouse.read_as_of(table, version).filter(span)
    source = differing(was, warehouse.read_range(table, segment), _KEYS[table])
    same = " AND ".join(f"t.{key} = s.{key}" for key in _KEYS[table])
    values: dict[str, Any] = {name: f"s.{name}" for name in schema.columns(table)}
    builder = warehouse.merge(table, source, f"t.{span} AND {same}").whenMatchedDelete("NOT s.stood")
    builder = builder.whenMatchedUpdate(set=values).whenNotMatchedInsert("s.stood", values)
    done = tables.retry_conflicts(builder.execute).head()
    return int(done.num_affected_rows) if done else 0


def before(warehouse: Warehouse, segment: SegmentId, table: str) -> int | None:
    """The version of a table before this segment's commit; None where it has made none."""
    history = warehouse.delta(table).history()
    first = history.filter(f"userMetadata = '{segment}'").selectExpr("min(version) AS version").head()
    return None if first is None or first.version is None else int(first.version) - 1


def differing(was: DataFrame, now: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Rows as they stood where they differ, and, with `stood` false, those that were not there."""
    text = "to_json(struct(*)) AS text"  # maps cannot be compared
    old, new = was.selectExpr("*", text), now.selectExpr(*keys, text)
    changed = old.join(new.withColumnRenamed("text", "now"), [*keys], "left").filter("NOT (text <=> now)")
    added = now.select(*keys).join(was.select(*keys), [*keys], "left_anti")
    rows = changed.drop("text", "now").selectExpr("*", "true AS stood")
    return rows.unionByName(added.selectExpr("*", "false AS stood"), allowMissingColumns=True)


def set_marks(warehouse: Warehouse, segment: SegmentId, marks: dict[str, int]) -> None:
    """Moves the watermarks of the range back: links and verdicts that the update folded are folded again."""
    span = segment.buckets(warehouse.buckets)
    kept = warehouse.values("seen", {"bucket": list(span)}, schema.columns("seen"))
    warehouse.rewrite("seen", tables.in_buckets(span), [row | marks for row in kept])
