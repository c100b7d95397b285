"""`spindle revive --since TIME --outcome NAME`: undoes an outage of ours, which made URLs retry or dead and hosts dead.

Failures of these outcomes since then are taken back: the URLs are what they were before, without the failures in a row,
and due at once; their hosts are up. What the failures added to `failure_count` stays: they happened.
"""

from __future__ import annotations

import argparse
import datetime
import time
from collections.abc import Sequence
from typing import Any

from spindle import runner, sqltext, tables
from spindle.errors import InputError
from spindle.lifecycle import FAILURES
from spindle.runner import Turn
from spindle.segments import SegmentId
from spindle.session import open_session

LEASE_S = 3600.0
_NETWORK = ("timeout", "dns_error", "tls_error", "connect_error")
#: What a row was before it failed, by what it still holds.
_BEFORE = """CASE WHEN status NOT IN ('retry', 'dead') THEN status WHEN redirect_to IS NOT NULL THEN 'redirected'
    WHEN content_hash IS NULL THEN 'new' WHEN duplicate_of IS NOT NULL THEN 'duplicate' ELSE 'fetched' END"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = runner.arguments("revive", "Undo an outage of ours; without --yes only count.", segment=False)
    parser.add_argument("--since", required=True, metavar="TIME", help="when it began, ISO 8601")
    names = sorted(str(outcome) for outcome in FAILURES)
    parser.add_argument(
        "--outcome", required=True, action="append", choices=names, help="as what it showed; repeatable"
    )
    parser.add_argument("--yes", action="store_true", help="do it")
    return runner.main("revive", parser, _body, argv)


def _body(options: argparse.Namespace) -> int:
    settings, now, since = runner.settings_of(options), runner.now_of(options), moment(options.since)
    tables.read_marker(options.warehouse)
    spark = open_session("spindle revive", settings.spark, quick=True)
    warehouse = tables.open_warehouse(spark, options.warehouse)
    turn = Turn(warehouse, SegmentId(f"revive-{now:%Y%m%dT%H%M%S%f}"), settings, now, 0, None)
    counts = run(turn, since, options.outcome, really=options.yes)
    if not options.yes:
        found = f"{counts['urls']:.0f} URLs and {counts['hosts']:.0f} hosts"
        print(f"revive: {found}; nothing was changed. Say --yes to do it")
    else:
        print(runner.summary_line("revive", str(turn.segment), counts))
    return 0


def moment(text: str) -> datetime.datetime:
    """A time in UTC unless it says otherwise.

    Raises:
        InputError: not ISO 8601.
    """
    try:
        return runner.utc(text)
    except (ValueError, OverflowError):
        raise InputError(f"--since {text!r}: expected ISO 8601, for example 2026-11-30T12:00:00Z") from None


def run(turn: Turn, since: datetime.datetime, outcomes: Sequence[str], *, really: bool) -> dict[str, float]:
    """Counts what comes back; with `really` does it, holding the lease of the whole range meanwhile.

    Raises:
        LeaseHeld: a turn is open.
    """
    warehouse, segment = turn.warehouse, turn.segment
    names = ", ".join(f"'{name}'" for name in outcomes)
    urls = f"failure_streak > 0 AND last_fetch >= {sqltext.instant(since)} AND last_outcome IN ({names})"
    if really:
        warehouse.ledger.open(segment, runner.pins(turn.now, turn.settings), LEASE_S, time.time)
    try:
        found = warehouse.read("urls").filter(urls)
        hosts = [row.host for row in found.select("host").distinct().collect()] if set(outcomes) & set(_NETWORK) else []
        struck = f"failure_streak > 0 AND host IN ({', '.join(map(sqltext.text, hosts)) or 'NULL'})"
        counts = {"urls": float(found.count()), "hosts": float(warehouse.read("hosts").filter(struck).count())}
        if really:
            back: dict[str, Any] = {"status": _BEFORE, "failure_streak": "0", "next_fetch": turn.now_sql}
            tables.retry_conflicts(warehouse.delta("urls").update, urls, back)
            up: dict[str, Any] = {"state": "'up'", "failure_streak": "0", "backoff_until": "NULL"}
            tables.retry_conflicts(warehouse.delta("hosts").update, struck, up)
    finally:
        if really:
            warehouse.ledger.release(str(segment), time.time())
            warehouse.sync_segments()
    if really:
        runner.write_metrics(warehouse, str(segment), "revive", counts)
    return counts
