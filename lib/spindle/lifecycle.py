"""What a fetch does to the row of its URL: the table status x outcome -> status, and the rest of the row with it.

This file alone decides status, counts, streaks and the next fetch. It knows nothing of tables, links or hosts, and asks
no clock: every time it writes is the event's own start, never a date that a server sent. Applying the same event twice,
or one older than the last, changes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from spindle.config import CENTURY_S, RecrawlSettings
from spindle.outcome import Outcome, Status
from spindle.recrawl import Seen, Visit, halve_and_double, planned, remembered

# The law. `-` leaves the status as it is. Rows that are only probed (gone, unsupported, dead) stay what they are when a
# probe fails. `retry` becomes `dead` after max_failures in a row (`_failed`), which a pair cannot express.
# 404 and 410 are both `gone`; a 404 is asked again much sooner (RFC 9110 15.5.5: it does not say for how long).
# Forbidden (401, 403, 451), other 4xx and a blocked address are mostly a matter of days or of our manners: they are
# tried again as failures are, and end as `dead`, which is still probed.
_LAW = """
                    new fetched redirected duplicate retry denied gone unsupported dead
ok                  F   F       F          F         F     F      F    F           F
not_modified        F   F       F          -         F     F      F    F           F
redirect            R   R       R          R         R     R      R    R           R
denied              D   D       D          D         D     D      D    D           D
not_found           G   G       G          G         G     G      G    G           G
gone                G   G       G          G         G     G      G    G           G
throttled           -   -       -          -         -     -      -    -           -
server_error        T   T       T          T         T     T      -    -           -
timeout             T   T       T          T         T     T      -    -           -
dns_error           T   T       T          T         T     T      -    -           -
tls_error           T   T       T          T         T     T      -    -           -
connect_error       T   T       T          T         T     T      -    -           -
protocol_error      T   T       T          T         T     T      -    -           -
too_large           U   U       U          U         U     U      U    U           U
bad_type            U   U       U          U         U     U      U    U           U
blocked_address     T   T       T          T         T     T      -    -           -
forbidden           T   T       T          T         T     T      -    -           -
client_error        T   T       T          T         T     T      -    -           -
robots_unreachable  -   -       -          -         -     -      -    -           -
not_reached         -   -       -          -         -     -      -    -           -
"""
_LETTERS = {
    "F": Status.FETCHED,
    "R": Status.REDIRECTED,
    "T": Status.RETRY,
    "D": Status.DENIED,
    "G": Status.GONE,
    "U": Status.UNSUPPORTED,
}


def _read_law(text: str) -> dict[tuple[Status, Outcome], Status]:
    header, *rows = [line.split() for line in text.strip().splitlines()]
    before = [Status(name) for name in header]
    return {
        (status, Outcome(row[0])): status if letter == "-" else _LETTERS[letter]
        for row in rows
        for status, letter in zip(before, row[1:], strict=True)
    }


#: Status and outcome -> status, the whole product; a pair that is missing raises KeyError.
NEXT: dict[tuple[Status, Outcome], Status] = _read_law(_LAW)

#: They tell of the host's mood, not of the URL: only the next fetch moves, nothing counts towards dead.
POSTPONING = frozenset({Outcome.THROTTLED, Outcome.ROBOTS_UNREACHABLE})

#: No usable answer. Counted in a row, each one waiting twice as long as the one before.
FAILURES = frozenset(outcome for outcome in Outcome if NEXT[Status.NEW, outcome] == Status.RETRY)

#: A clear answer that is no page of ours.
REFUSALS = frozenset(o for o in Outcome if NEXT[Status.NEW, o] in (Status.GONE, Status.UNSUPPORTED))

#: Status after a fetch that told whether the page had changed.
SEEN = frozenset({Status.FETCHED, Status.REDIRECTED, Status.DUPLICATE})

PERMANENT_REDIRECTS = frozenset({301, 308})  # RFC 9110 15.4.2, 15.4.9
MAX_VALIDATOR_CHARS = (
    512  # a longer ETag or Last-Modified is dropped, not cut: rows stay small, and half an ETag is none
)


@dataclass(frozen=True, slots=True)
class UrlFacts:
    """The columns of `urls` that a fetch may change; names, units and nulls as in `schema`. Times are aware, UTC."""

    status: Status = Status.NEW
    last_outcome: Outcome | None = None
    last_fetch: datetime | None = None
    next_fetch: datetime | None = None
    fetch_interval_s: int | None = None
    fixed_interval_s: int | None = None
    http_status: int | None = None
    etag: str | None = None
    last_modified: str | None = None
    last_change: datetime | None = None
    content_hash: str | None = None
    simhash: int | None = None
    warc_file: str | None = None
    warc_offset: int | None = None
    warc_length: int | None = None
    record_date: datetime | None = None
    redirect_to: str | None = None
    duplicate_of: int | None = None
    fetch_count: int = 0
    change_count: int = 0
    failure_count: int = 0
    failure_streak: int = 0
    unchanged_streak: int = 0
    rate_changes: float = 0.0
    rate_changed_s: float = 0.0
    rate_unchanged_s: float = 0.0


@dataclass(frozen=True, slots=True)
class FetchEvent:
    """One row of `fetches`, hop 0, with the SimHash that parse found. `started_at` is aware, UTC, and of our clock.

    Raises:
        ValueError: `started_at` without a zone.
    """

    outcome: Outcome
    started_at: datetime
    http_status: int | None = None
    etag: str | None = None
    last_modified: str | None = None
    content_hash: str | None = None
    simhash: int | None = None
    warc_file: str | None = None
    warc_offset: int | None = None
    warc_length: int | None = None
    redirect_to: str | None = None
    retry_after_s: float | None = None

    def __post_init__(self) -> None:
        if self.started_at.tzinfo is None:
            raise ValueError("FetchEvent.started_at needs a time zone (UTC)")


def advance(row: UrlFacts, event: FetchEvent, settings: RecrawlSettings, price: float | None = None) -> UrlFacts:
    """The row after the event.

    `price` is that of a visit under the policy `budget` (`recrawl.planned`), None under halve and double; a seed's own
    `fixed_interval_s` wins over both. Failures, denials and refusals wait by their own rules.
    """
    if event.outcome == Outcome.NOT_REACHED or _is_old(row, event):
        return row
    if event.outcome in POSTPONING:
        return replace(row, next_fetch=_postponed(row, event, settings))
    meaning = _meaning(row, event, settings)
    tried = replace(
        row,
        status=NEXT[row.status, meaning],
        last_outcome=event.outcome,
        last_fetch=event.started_at,
        http_status=event.http_status,
    )
    if meaning in FAILURES:
        return _failed(tried, event, settings)
    if meaning == Outcome.DENIED:  # no request was made, so nothing is counted
        return _due(tried, event, settings.denied_recheck_s)
    answered = replace(tried, fetch_count=row.fetch_count + 1, failure_streak=0)
    if meaning in REFUSALS:
        return _refused(row, answered, event, meaning, settings)
    changed = _changed(row, event, meaning)
    learned = _learned(_timed(row, answered, event, changed, settings), event, meaning, changed)
    return _revisited(learned, event, changed, settings, price)


def _is_old(row: UrlFacts, event: FetchEvent) -> bool:
    return row.last_fetch is not None and event.started_at <= row.last_fetch


def _postponed(row: UrlFacts, event: FetchEvent, settings: RecrawlSettings) -> datetime:
    """Never brought forward; the server's wish is heard up to the longest interval (`inf`, `nan`, negative: not)."""
    wish_s = event.retry_after_s or 0.0
    wait_s = max(settings.retry_s, min(wish_s, settings.max_interval_s) if math.isfinite(wish_s) else 0)
    until = event.started_at + timedelta(seconds=wait_s)
    return until if row.next_fetch is None else max(until, row.next_fetch)


def _meaning(row: UrlFacts, event: FetchEvent, settings: RecrawlSettings) -> Outcome:
    """The outcome as the law reads it: what makes no sense here is a failure, the page that we hold is unmodified."""
    if event.outcome == Outcome.NOT_MODIFIED and row.content_hash is None:
        return Outcome.PROTOCOL_ERROR  # of what?
    if event.outcome == Outcome.REDIRECT and not event.redirect_to:
        return Outcome.PROTOCOL_ERROR  # to where?
    if event.outcome == Outcome.OK and _is_held(row, event, settings.near_copy_bits):
        return Outcome.NOT_MODIFIED  # RFC 9110 15.4.5: a 304 only saves the body of such a 200
    return event.outcome


def _is_held(row: UrlFacts, event: FetchEvent, near_copy_bits: int) -> bool:
    """The same bytes, or a text so near (another date, another advertisement) that nobody would call it changed."""
    if row.content_hash is None:
        return False
    if row.content_hash == event.content_hash:
        return True
    if row.simhash is None or event.simhash is None:
        return False
    return ((row.simhash ^ event.simhash) & 0xFFFF_FFFF_FFFF_FFFF).bit_count() <= near_copy_bits


def _failed(row: UrlFacts, event: FetchEvent, settings: RecrawlSettings) -> UrlFacts:
    streak = row.failure_streak + 1
    row = replace(row, failure_count=row.failure_count + 1, failure_streak=streak)
    if row.status == Status.RETRY and streak < settings.max_failures:
        return _due(row, event, _doubled(settings.retry_s, streak - 1, settings))
    if row.status == Status.RETRY:
        row = replace(row, status=Status.DEAD)
    return _due(row, event, settings.dead_probe_s)


def _refused(
    before: UrlFacts, row: UrlFacts, event: FetchEvent, meaning: Outcome, settings: RecrawlSettings
) -> UrlFacts:
    """Gone or unsupported. The streak counts equal refusals in a row, and a 404 waits twice as long after each."""
    streak = before.unchanged_streak + 1 if row.status == before.status else 0
    row = replace(row, unchanged_streak=streak, redirect_to=None)
    wait_s = settings.max_interval_s
    if meaning == Outcome.NOT_FOUND:
        wait_s = _doubled(settings.gone_recheck_s, streak, settings)
    return _due(row, event, wait_s)


def _changed(before: UrlFacts, event: FetchEvent, meaning: Outcome) -> bool | None:
    """None at first sight. A page that became a redirect, or the other way round, has changed."""
    if before.content_hash is None and before.redirect_to is None:
        return None
    if meaning == Outcome.REDIRECT:
        return event.redirect_to != before.redirect_to
    return meaning == Outcome.OK or before.redirect_to is not None


def _timed(
    before: UrlFacts, row: UrlFacts, event: FetchEvent, changed: bool | None, settings: RecrawlSettings
) -> UrlFacts:
    """The statistics of change with this visit. One after failures, denials or refusals is left out: since when the
    page may have changed is then not known, and what is left out by our mishaps favours neither answer."""
    if changed is None or before.last_fetch is None or before.status not in SEEN:
        return row
    gap_s = (event.started_at - before.last_fetch).total_seconds()
    seen = Seen(before.rate_changes, before.rate_changed_s, before.rate_unchanged_s)
    seen = remembered(seen, Visit(gap_s, changed), before.fetch_interval_s or settings.initial_interval_s)
    return replace(row, rate_changes=seen.changes, rate_changed_s=seen.changed_s, rate_unchanged_s=seen.unchanged_s)


def _learned(row: UrlFacts, event: FetchEvent, meaning: Outcome, changed: bool | None) -> UrlFacts:
    row = replace(
        row,
        redirect_to=event.redirect_to if meaning == Outcome.REDIRECT else None,
        last_change=row.last_change if changed is False else event.started_at,
        change_count=row.change_count + (changed is True),
        unchanged_streak=row.unchanged_streak + 1 if changed is False else 0,
    )
    return row if meaning == Outcome.REDIRECT else _holding(row, event, meaning)


def _holding(row: UrlFacts, event: FetchEvent, meaning: Outcome) -> UrlFacts:
    """What describes the content that we hold stays with it through redirects, failures and 404s, until other content
    replaces it. So a copy is a copy again when it comes back unchanged."""
    if meaning == Outcome.NOT_MODIFIED and row.duplicate_of is not None:
        row = replace(row, status=Status.DUPLICATE)
    if meaning == Outcome.OK:
        row = replace(row, duplicate_of=None)
    if event.outcome == Outcome.NOT_MODIFIED:  # RFC 9111 4.3.4: the headers of a 304 replace those stored
        return replace(
            row, etag=_kept(event.etag) or row.etag, last_modified=_kept(event.last_modified) or row.last_modified
        )
    row = replace(row, etag=_kept(event.etag), last_modified=_kept(event.last_modified))
    if row.content_hash == event.content_hash and row.warc_file is not None:
        return row  # the record that we point to holds these bytes; the new one may be a mere `revisit`
    return replace(
        row,
        content_hash=event.content_hash,
        simhash=event.simhash,
        warc_file=event.warc_file,
        warc_offset=event.warc_offset,
        warc_length=event.warc_length,
        record_date=event.started_at if event.warc_file is not None else None,
    )


def _kept(validator: str | None) -> str | None:
    """Text for If-None-Match or If-Modified-Since, never read as a date: servers send years 1 and 2099."""
    return validator if validator and len(validator) <= MAX_VALIDATOR_CHARS else None


def _revisited(
    row: UrlFacts, event: FetchEvent, changed: bool | None, settings: RecrawlSettings, price: float | None
) -> UrlFacts:
    interval_s = halve_and_double(row.fetch_interval_s, changed, settings)
    if price is not None:
        known_s = row.fetch_interval_s if row.fetch_interval_s and row.fetch_interval_s > 0 else None
        seen = Seen(row.rate_changes, row.rate_changed_s, row.rate_unchanged_s)
        interval_s = planned(seen, known_s or settings.initial_interval_s, price, settings)
    is_rare = row.status == Status.DUPLICATE or (
        row.status == Status.REDIRECTED and row.http_status in PERMANENT_REDIRECTS
    )
    wait_s = settings.max_interval_s if is_rare else interval_s
    if row.fixed_interval_s is not None and row.fixed_interval_s > 0:
        interval_s = wait_s = min(row.fixed_interval_s, CENTURY_S)
    return _due(replace(row, fetch_interval_s=interval_s), event, wait_s)


def _doubled(wait_s: int, times: int, settings: RecrawlSettings) -> int:
    return min(wait_s << min(times, 32), settings.max_interval_s)


def _due(row: UrlFacts, event: FetchEvent, wait_s: int) -> UrlFacts:
    return replace(row, next_fetch=event.started_at + timedelta(seconds=wait_s))
