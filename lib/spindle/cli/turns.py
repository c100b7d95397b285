"""The turns of the wheel as an operator sees them: which are there, how far each is, who holds it; and ending one.

Reads the ledger, which is the truth of it; the table `segments` is its copy for SQL. No JVM is started, so that a
scheduler can ask between two jobs.
"""

from __future__ import annotations

import argparse
import datetime
import json
import time
from collections.abc import Iterable, Sequence
from typing import Any

from spindle import inbox, runner, tables
from spindle.ledger import Ledger, holder
from spindle.segments import CLOSED, Entry, SegmentId, State, latest
from spindle.store import open_store
from spindle.wishes import What

_COLUMNS = ("segment", "state", "since", "buckets", "lease", "counts")


def segments(argv: Sequence[str]) -> int:
    parser = _parser("segments", "Turns of the wheel, the latest first: state, range, lease, counts.")
    parser.add_argument("segment", nargs="?", metavar="ID", help="this one only; exit code 1 where it is not there")
    parser.add_argument("--open", action="store_true", help="only those that own their range")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--rows", type=int, default=20, metavar="N", help="turns shown at most (default 20)")
    return runner.main("segments", parser, _segments, argv)


def _segments(options: argparse.Namespace) -> int:
    wanted = options.segment and str(SegmentId.parse(options.segment))
    found = [turn for turn in turns(_ledger(options).entries()) if wanted in (None, turn["segment"])]
    shown = [turn for turn in found if turn["open"] or not options.open][: max(0, options.rows)]
    if options.json:
        print("\n".join(json.dumps(turn, sort_keys=True) for turn in shown))
    else:
        _table(shown, time.time())
    return 1 if wanted and not found else 0


def turns(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Each segment as it stands, the latest change first; `counts` of all its states together. Times are seconds since
    the epoch, UTC; `buckets` is [low, high), what it owns while `open`."""
    log = list(entries)
    counts: dict[str, dict[str, int]] = {}
    for entry in sorted(log, key=lambda entry: entry.seq):
        counts.setdefault(entry.segment, {}).update(entry.counts)
    return [
        {
            "segment": entry.segment,
            "state": str(entry.state),
            "open": entry.state not in CLOSED,
            "at": entry.at,
            "buckets": [entry.bucket_lo, entry.bucket_hi],
            "lease_until": entry.lease_until,
            "holder": entry.holder,
            "turn": entry.turn,
            "counts": counts[entry.segment],
        }
        for entry in sorted(latest(log).values(), key=lambda entry: -entry.seq)
    ]


def _table(shown: Sequence[dict[str, Any]], now: float) -> None:
    rows = [_COLUMNS, *(_cells(turn, now) for turn in shown)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _cells(turn: dict[str, Any], now: float) -> tuple[str, ...]:
    since = datetime.datetime.fromtimestamp(turn["at"], datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")
    low, high = turn["buckets"]
    left = turn["lease_until"] - now
    lease = f"{turn['holder']}, {f'{left:.0f} s left' if left > 0 else 'run out'}" if turn["open"] else "-"
    counts = ", ".join(f"{name} {value}" for name, value in sorted(turn["counts"].items()) if value)
    return turn["segment"], turn["state"], since, f"{low}..{high - 1}", lease, counts


def expire(argv: Sequence[str]) -> int:
    parser = _parser("expire", "End a segment's lease; its URLs go back to the frontier without penalty.")
    parser.add_argument("segment", metavar="ID")
    return runner.main("expire", parser, _expire, argv)


def _expire(options: argparse.Namespace) -> int:
    ledger, segment = _ledger(options), SegmentId.parse(options.segment)
    entry = ledger.move(str(segment), State.EXPIRED, time.time())
    tables.sync_segments(f"{tables.hadoop_uri(options.warehouse)}/segments", ledger)
    told = {"at": datetime.datetime.now(datetime.UTC).isoformat(), "who": holder(), "value": str(segment)}
    inbox.write(ledger.store, What.STOP, **told)  # its fetch may still run
    print(f"expire {segment}: it is {entry.state}; a fetch of it that still runs stops within seconds")
    return 0


def _ledger(options: argparse.Namespace) -> Ledger:
    marker = tables.read_marker(options.warehouse)
    return Ledger(open_store(options.warehouse), int(marker["buckets"]))


def _parser(name: str, description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"spindle {name}", description=description)
    runner.add_warehouse(parser)
    return parser
