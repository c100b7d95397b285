"""Alarms: what should wake somebody, each as a question whose answer should have no row. Pure.

This file alone decides what is asked and how an alarm is worded. Where the answers come from is the caller's business:
the queries are of the SQL that Spark and DataFusion share, and the ledger's entries are values.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from spindle.config import CheckSettings
from spindle.segments import CLOSED, Entry, State, latest
from spindle.sqltext import instant

WORST = 5  # hosts, levels or ranges that an alarm names; the others are counted


@dataclass(frozen=True, slots=True)
class Question:
    """`query` gives a row for each breach: `who`, `seen` and `total` (numbers), worst first; `{names}` are limits of
    `[check]`, `{since}` the start of the window, `{now}`, and `{delay_s}` the smallest delay of each segment."""

    name: str
    asks: str
    tables: tuple[str, ...]
    query: str
    alarm: str  # of one row, with the same names


_SHARE = """
SELECT 'all hosts' AS who, share AS seen, total FROM (
  SELECT avg(CASE WHEN outcome = '{{outcome}}' THEN 1.0 ELSE 0.0 END) AS share, count(*) AS total FROM fetches
  WHERE started_at >= {{since}}) AS counted
WHERE total >= {{min_fetches}} AND share > {{{limit}}}"""


def _share(outcome: str, limit: str) -> str:
    return _SHARE.format(limit=limit).replace("{outcome}", outcome)


QUESTIONS = (
    Question(
        "throttled",
        "Are we told to slow down? (share of 429 among all requests)",
        ("fetches",),
        _share("throttled", "throttled_share"),
        "{seen:.1%} of {total} requests were answered with 429 (limit {throttled_share:.1%}); see the view "
        "host_report, and raise politeness.min_delay_s",
    ),
    Question(
        "forbidden",
        "Are we blocked? (share of 401, 403 and 451 among all requests)",
        ("fetches",),
        _share("forbidden", "forbidden_share"),
        "{seen:.1%} of {total} requests were forbidden (limit {forbidden_share:.1%}): sites may know us by agent or "
        "address",
    ),
    Question(
        "blocked_by",
        "Which hosts that served us before now refuse us?",
        ("fetches",),
        """
SELECT host AS who, share AS seen, total FROM (
  SELECT host,
    sum(CASE WHEN started_at >= {since} AND outcome = 'forbidden' THEN 1.0 ELSE 0.0 END)
      / nullif(sum(CASE WHEN started_at >= {since} THEN 1 ELSE 0 END), 0) AS share,
    sum(CASE WHEN started_at >= {since} THEN 1 ELSE 0 END) AS total,
    sum(CASE WHEN started_at < {since} AND outcome IN ('ok', 'not_modified') THEN 1 ELSE 0 END) AS before
  FROM fetches WHERE started_at IS NOT NULL GROUP BY host) AS counted
WHERE total >= {host_min_fetches} AND before > 0 AND share > {host_forbidden_share}
ORDER BY total DESC, host""",
        "{who} forbids {seen:.0%} of {total} requests, and did not before; block or slow it: `spindle hosts`",
    ),
    Question(
        "gaps",
        "Was a host asked sooner than its delay allows?",
        ("fetches", "hosts"),
        """
SELECT f.host AS who, min(f.gap_ms) AS seen, count(*) AS total FROM fetches f LEFT JOIN hosts h ON h.host = f.host
WHERE f.started_at >= {since} AND f.gap_ms < 1000 * greatest(
  coalesce(h.limit_delay_s, {delay_s}), coalesce(f.crawl_delay_s, 0.0))
GROUP BY f.host ORDER BY 2, 1""",
        "{who} was asked {total} times too soon, after {seen:.0f} ms at the least; see the view gap_violations, and "
        "stop the crawl: this is a fault",
    ),
    Question(
        "starved",
        "Which levels of the frontier have waited too long?",
        ("urls", "hosts"),
        """
SELECT concat('level ', cast(u.priority AS string)) AS who, count(*) AS seen, count(*) AS total FROM urls u
LEFT JOIN hosts h ON h.host = u.host
WHERE coalesce(u.next_fetch, u.discovered_at) < {starved_before} AND coalesce(h.paused, false) = false
  AND (h.backoff_until IS NULL OR h.backoff_until < {now})
GROUP BY u.priority ORDER BY 2 DESC""",
        "{who}: {total} URLs are overdue by more than {starved_d:g} days; `spindle explain URL` says why one is not "
        "listed",
    ),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`alarms` is empty where all is well; `more` counts those that are not named."""

    name: str
    asks: str
    alarms: Sequence[str] = ()
    more: int = 0


def limits_of(settings: CheckSettings, now: datetime.datetime, entries: Iterable[Entry]) -> dict[str, Any]:
    """What stands for the names in queries and alarms."""
    named: dict[str, Any] = {name: getattr(settings, name) for name in settings.__slots__}
    since = now - datetime.timedelta(seconds=settings.window_s)
    named |= {"since": instant(since), "now": instant(now), "delay_s": delay_of_segment(entries, since.timestamp())}
    named["starved_before"] = instant(now - datetime.timedelta(seconds=settings.starved_s))
    return named | {"starved_d": round(settings.starved_s / 86400, 2), "stale_d": round(settings.stale_s / 86400, 2)}


def delay_of_segment(entries: Iterable[Entry], since: float) -> str:
    """SQL: the smallest delay (s) that each pinned segment allows its hosts; 0 for those from before the window."""
    log = list(entries)
    lately = {entry.segment for entry in log if entry.at >= since}
    pinned = {entry.segment: json.loads(entry.pins) for entry in log if entry.pins and entry.segment in lately}
    cases = [
        f"WHEN '{segment}' THEN {_smallest_delay(pins['settings'])!r}"
        for segment, pins in sorted(pinned.items())
        if "politeness" in pins.get("settings", {})
    ]
    return f"CASE f.segment {' '.join(cases)} ELSE 0.0 END" if cases else "0.0"


def _smallest_delay(settings: Mapping[str, Any]) -> float:
    """The minimum, or that of the sheet that makes some hosts faster."""
    sheets = [sheet.get("delay_s") for sheet in settings.get("scope", {}).get("sheets", ())]
    return float(min([settings["politeness"]["min_delay_s"], *(delay for delay in sheets if delay is not None)]))


def verdict_of(question: Question, rows: Sequence[Mapping[str, Any]], limits: Mapping[str, Any]) -> Verdict:
    return _verdict(question.name, question.asks, [question.alarm.format(**{**limits, **row}) for row in rows])


def _verdict(name: str, asks: str, told: Sequence[str]) -> Verdict:
    """The worst are named, the others counted."""
    return Verdict(name, asks, told[:WORST], max(0, len(told) - WORST))


# --- of the ledger


def leaks(entries: Iterable[Entry], now: float) -> Verdict:
    """Turns that own their range although their lease has run out."""
    held = [e for e in latest(entries).values() if e.state not in CLOSED and e.lease_until <= now]
    told = [
        f"segment {e.segment} ({e.state}) holds buckets {e.bucket_lo}..{e.bucket_hi - 1} with a lease that ran out "
        f"{(now - e.lease_until) / 3600:.1f} h ago; finish that turn, or `spindle expire {e.segment}`"
        for e in sorted(held, key=lambda e: e.lease_until)
    ]
    return _verdict("leases", "Does a turn hold its range beyond its lease?", told)


def stale_ranges(entries: Iterable[Entry], buckets: int, now: float, settings: CheckSettings) -> Verdict:
    """Buckets that no turn has been through for too long, as ranges."""
    log = sorted(entries, key=lambda entry: entry.seq)
    told = [
        f"buckets {low}..{high}: no turn has gone through them for {age / 86400:.1f} days (limit "
        f"{settings.stale_s / 86400:g}); is a slice left out of the schedule?"
        for low, high, age in _ranges(_ages(log, buckets, now), settings.stale_s)
    ]
    return _verdict("stale", "Which slices has no turn gone through?", told)


def _ages(log: Sequence[Entry], buckets: int, now: float) -> list[float]:
    """Seconds since each bucket's last whole turn, or one that found nothing due; since the warehouse's first entry
    where there was none."""
    fetched = {entry.segment for entry in log if entry.state is State.FETCHED}
    last = [min((entry.at for entry in log), default=now)] * buckets
    for entry in log:
        idle = entry.state is State.GENERATED and entry.counts.get("listed") == 0
        if idle or (entry.state is State.UPDATED and entry.segment in fetched):
            for bucket in range(entry.bucket_lo, min(entry.bucket_hi, buckets)):
                last[bucket] = max(last[bucket], entry.at)
    return [now - at for at in last]


def _ranges(ages: Sequence[float], limit: float) -> Iterator[tuple[int, int, float]]:
    """Neighbours that are too old together: first and last bucket, and the largest age."""
    for old, group in groupby(range(len(ages)), key=lambda bucket: ages[bucket] > limit):
        if old:
            members = list(group)
            yield members[0], members[-1], max(ages[bucket] for bucket in members)
