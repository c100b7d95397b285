"""What a fetch does to a row. The law is walked whole; the rest are tables of cases, each with its reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle import config, schema
from spindle.defaults import default_layer
from spindle.lifecycle import FAILURES, NEXT, POSTPONING, REFUSALS, FetchEvent, UrlFacts, advance
from spindle.outcome import Outcome, Status
from spindle.recrawl import Seen, planned

SETTINGS = config.build([default_layer()]).recrawl
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR, DAY = 3600, 86400
LONGEST = SETTINGS.max_interval_s


def event(outcome: Outcome = Outcome.OK, days: float = 0, **values: object) -> FetchEvent:
    return FetchEvent(outcome, NOON + timedelta(days=days), **values)  # type: ignore[arg-type]


def page(days: float = 0, **values: object) -> FetchEvent:
    """A 200 with content A unless the values say otherwise."""
    usual: dict[str, object] = {"http_status": 200, "content_hash": "A", "simhash": 0, "warc_file": "w1"}
    return event(Outcome.OK, days, **{**usual, **values})


def after(*events: FetchEvent, row: UrlFacts | None = None) -> UrlFacts:
    row = row or UrlFacts()
    for one in events:
        row = advance(row, one, SETTINGS)
    return row


def wait_s(row: UrlFacts, start: datetime = NOON) -> float:
    assert row.next_fetch is not None
    return (row.next_fetch - start).total_seconds()


# --- the law ---


def expected_status(status: Status, outcome: Outcome) -> Status:
    """The same law in words, written independently of the table."""
    if outcome in (Outcome.THROTTLED, Outcome.ROBOTS_UNREACHABLE, Outcome.NOT_REACHED):
        return status  # they tell nothing of the URL
    if outcome == Outcome.OK:
        return Status.FETCHED
    if outcome == Outcome.NOT_MODIFIED:
        return Status.DUPLICATE if status == Status.DUPLICATE else Status.FETCHED
    if outcome == Outcome.REDIRECT:
        return Status.REDIRECTED
    if outcome == Outcome.DENIED:
        return Status.DENIED
    if outcome in (Outcome.NOT_FOUND, Outcome.GONE):
        return Status.GONE
    if outcome in (Outcome.BAD_TYPE, Outcome.TOO_LARGE):
        return Status.UNSUPPORTED
    return status if status in (Status.GONE, Status.UNSUPPORTED, Status.DEAD) else Status.RETRY


def test_law_covers_the_whole_product() -> None:
    assert set(NEXT) == set(product(Status, Outcome))
    assert len(NEXT) == 9 * 20


@pytest.mark.parametrize(("status", "outcome"), list(product(Status, Outcome)))
def test_law_says_what_the_words_say(status: Status, outcome: Outcome) -> None:
    assert NEXT[status, outcome] == expected_status(status, outcome)


def test_a_missing_pair_raises() -> None:
    with pytest.raises(KeyError):
        NEXT["lost", Outcome.OK]  # type: ignore[index]


def test_every_outcome_has_one_reading() -> None:
    others = {Outcome.OK, Outcome.NOT_MODIFIED, Outcome.REDIRECT, Outcome.DENIED, Outcome.NOT_REACHED}
    counts = Counter([*FAILURES, *POSTPONING, *REFUSALS, *others])
    assert counts == Counter(Outcome)


def test_facts_are_columns_of_urls() -> None:
    assert {field.name for field in fields(UrlFacts)} <= set(schema.columns("urls"))


# --- content: first sight, change, no change ---


def test_first_fetch_sets_everything_and_counts_no_change() -> None:
    row = after(page(etag='"1"', last_modified="Sun, 01 Mar 2026 11:00:00 GMT", warc_offset=7, warc_length=9))
    assert row == UrlFacts(
        status=Status.FETCHED,
        last_outcome=Outcome.OK,
        last_fetch=NOON,
        next_fetch=NOON + timedelta(days=1),
        fetch_interval_s=DAY,
        http_status=200,
        etag='"1"',
        last_modified="Sun, 01 Mar 2026 11:00:00 GMT",
        last_change=NOON,
        content_hash="A",
        simhash=0,
        warc_file="w1",
        warc_offset=7,
        warc_length=9,
        record_date=NOON,
        fetch_count=1,
    )


SECOND_VISITS = [
    # second visit, interval, changes, last_change in days, why
    (page(1), 2 * DAY, 0, 0, "same bytes: doubled"),
    (event(Outcome.NOT_MODIFIED, 1, http_status=304), 2 * DAY, 0, 0, "304 is the same as a 200 with the same bytes"),
    (page(1, content_hash="B", simhash=0b111), 2 * DAY, 0, 0, "3 bits apart: another date or advertisement"),
    (page(1, content_hash="B", simhash=0b1111), DAY / 2, 1, 1, "4 bits apart: changed, halved"),
    (page(1, content_hash="B", simhash=-1), DAY / 2, 1, 1, "64 bits apart, as a signed number"),
    (page(1, content_hash="B", simhash=None), DAY / 2, 1, 1, "no SimHash (too little text): the bytes decide"),
    (event(Outcome.REDIRECT, 1, redirect_to="http://b.test/"), DAY / 2, 1, 1, "a page that became a redirect changed"),
]


@pytest.mark.parametrize(("second", "interval_s", "changes", "change_day", "why"), SECOND_VISITS)
def test_second_visit(second: FetchEvent, interval_s: float, changes: int, change_day: int, why: str) -> None:
    row = after(page(), second)
    assert row.fetch_interval_s == interval_s, why
    assert wait_s(row, second.started_at) == interval_s
    assert row.change_count == changes
    assert row.last_change == NOON + timedelta(days=change_day)
    assert row.unchanged_streak == 1 - changes
    assert row.fetch_count == 2


def test_interval_stays_between_one_hour_and_sixty_days() -> None:
    changing = after(*(page(n, content_hash=str(n), simhash=None) for n in range(12)))
    assert (changing.fetch_interval_s, changing.change_count) == (HOUR, 11)
    steady = after(*(page(n) for n in range(12)))
    assert (steady.fetch_interval_s, steady.unchanged_streak) == (60 * DAY, 11)


def test_modified_time_is_ours_whatever_the_server_claims() -> None:
    """known_faults: apache/nutch#108 (NUTCH-2164, NUTCH-2242)."""
    first = after(page())
    assert first.last_change == NOON and first.last_modified is None
    same = after(page(1), row=first)
    assert same.last_change == NOON
    for absurd in ("Thu, 01 Jan 2099 00:00:00 GMT", "Mon, 01 Jan 0001 00:00:00 GMT", "yesterday", "99999999999"):
        row = after(page(2, content_hash="B", simhash=-1, last_modified=absurd), row=same)
        assert row.last_modified == absurd  # text for If-Modified-Since, nothing else
        assert row.last_change == row.record_date == row.last_fetch == NOON + timedelta(days=2)


@pytest.mark.parametrize(
    ("given_etag", "kept", "why"),
    [
        ('"2"', '"2"', "RFC 9111 4.3.4: a 304 replaces the stored headers"),
        (None, '"1"', "a 304 that names none leaves them"),
        ("x" * 513, '"1"', "too long for a row of some hundred bytes"),
    ],
)
def test_validators_after_304(given_etag: str | None, kept: str, why: str) -> None:
    row = after(page(etag='"1"'), event(Outcome.NOT_MODIFIED, 1, http_status=304, etag=given_etag))
    assert row.etag == kept, why


def test_validators_of_a_new_200_replace_the_old_ones_even_by_none() -> None:
    row = after(page(etag='"1"', last_modified="x"), page(1, content_hash="B"))
    assert (row.etag, row.last_modified) == (None, None)


def test_same_bytes_keep_the_pointer_to_the_record_that_holds_them() -> None:
    row = after(page(), page(1, warc_file="w2"))  # w2 may be a `revisit` record
    assert (row.warc_file, row.record_date) == ("w1", NOON)
    near = after(page(), page(1, warc_file="w2", content_hash="B", simhash=1))
    assert (near.warc_file, near.record_date, near.content_hash) == ("w2", NOON + timedelta(days=1), "B")


def test_same_bytes_take_the_new_pointer_when_there_is_none() -> None:
    row = after(page(), page(1, warc_file="w2"), row=UrlFacts(content_hash="A"))
    assert row.warc_file == "w1"


def test_304_for_a_url_of_which_we_hold_nothing_is_a_failure() -> None:
    row = after(event(Outcome.NOT_MODIFIED, http_status=304))
    assert (row.status, row.failure_streak, row.last_outcome) == (Status.RETRY, 1, Outcome.NOT_MODIFIED)


# --- whose interval ---


@pytest.mark.parametrize(
    ("fixed_s", "price", "interval_s", "why"),
    [
        (None, None, DAY, "halve and double: the first one"),
        (None, 20_000.0, planned(Seen(0, 0, 0), DAY, 20_000.0, SETTINGS), "the policy that spends a budget"),
        (None, 0.0, HOUR, "visits that cost nothing: the shortest"),
        (None, 1e9, LONGEST, "no visit is worth that: the longest"),
        (600, None, 600, "a seed's own interval, even below the shortest"),
        (600, 20_000.0, 600, "a seed's own interval beats the plan"),
        (-5, None, DAY, "a negative interval is none"),
        (0, None, DAY, "so is 0"),
        (2**62, None, config.CENTURY_S, "absurd, but no overflow"),
    ],
)
def test_whose_interval(fixed_s: int | None, price: float | None, interval_s: int, why: str) -> None:
    row = advance(UrlFacts(fixed_interval_s=fixed_s), page(), SETTINGS, price)
    assert row.fetch_interval_s == wait_s(row) == interval_s, why


def test_visits_that_tell_of_change_are_remembered() -> None:
    """A first sight tells nothing, nor does a visit after failures: since when the page may have changed is not known.
    A text within three bits is no change, a 304 neither."""
    other = "0" * 64
    row = after(page(), page(1, content_hash=other, simhash=7), event(Outcome.NOT_MODIFIED, 3, http_status=304))
    assert (row.rate_changes, row.rate_changed_s, row.rate_unchanged_s) == (0, 0, 3 * DAY)
    row = after(page(7, content_hash="B", simhash=-1), row=row)
    assert (row.rate_changes, row.rate_changed_s, row.rate_unchanged_s) == (1, 4 * DAY, 3 * DAY)
    row = after(event(Outcome.TIMEOUT, 8), page(9, content_hash="C", simhash=0), row=row)
    assert (row.rate_changes, row.rate_changed_s, row.rate_unchanged_s) == (1, 4 * DAY, 3 * DAY)
    row = after(page(10, content_hash="D", simhash=-1), row=row)
    assert (row.rate_changes, row.rate_changed_s, row.rate_unchanged_s) == (2, 5 * DAY, 3 * DAY)


@pytest.mark.parametrize("damaged", [None, 0, -1, -(2**62)])
def test_damaged_interval_counts_as_the_initial_one(damaged: int | None) -> None:
    assert after(page(1), row=replace(after(page()), fetch_interval_s=damaged)).fetch_interval_s == 2 * DAY


# --- failures ---

FAULTS = [
    # outcome, failures in a row before -> status, streak, wait; apache/stormcrawler#203: rows at retry 0, 2 and 3
    (Outcome.TIMEOUT, 0, Status.RETRY, 1, HOUR),
    (Outcome.TIMEOUT, 1, Status.RETRY, 2, 2 * HOUR),
    (Outcome.TIMEOUT, 2, Status.DEAD, 3, 30 * DAY),
    (Outcome.TIMEOUT, 3, Status.DEAD, 4, 30 * DAY),
    (Outcome.DNS_ERROR, 0, Status.RETRY, 1, HOUR),
    (Outcome.SERVER_ERROR, 2, Status.DEAD, 3, 30 * DAY),
    (Outcome.TLS_ERROR, 2, Status.DEAD, 3, 30 * DAY),
    (Outcome.CONNECT_ERROR, 0, Status.RETRY, 1, HOUR),
    (Outcome.FORBIDDEN, 0, Status.RETRY, 1, HOUR),
    (Outcome.NOT_FOUND, 2, Status.GONE, 0, 7 * DAY),
    (Outcome.GONE, 2, Status.GONE, 0, LONGEST),
    (Outcome.THROTTLED, 2, Status.RETRY, 2, HOUR),
    (Outcome.ROBOTS_UNREACHABLE, 2, Status.RETRY, 2, HOUR),
    (Outcome.DENIED, 2, Status.DENIED, 2, 7 * DAY),
    (Outcome.OK, 2, Status.FETCHED, 0, DAY),
]


@pytest.mark.parametrize(("outcome", "before", "status", "streak", "wait"), FAULTS)
def test_failures_back_off_and_end_as_dead(
    outcome: Outcome, before: int, status: Status, streak: int, wait: float
) -> None:
    row = after(event(outcome, content_hash="A"), row=UrlFacts(Status.RETRY, failure_streak=before))
    assert (row.status, row.failure_streak, wait_s(row)) == (status, streak, wait)


def test_last_weeks_content_survives_failures_and_the_dead_come_back() -> None:
    """known_faults: aio-libs/aiohttp#3026: signature and content reference are kept."""
    good = after(page(etag='"1"'))
    failed = after(*(event(Outcome.TIMEOUT, n) for n in (1, 2, 3)), row=good)
    assert (failed.status, failed.failure_count, failed.http_status) == (Status.DEAD, 3, None)
    assert (failed.content_hash, failed.etag, failed.warc_file) == ("A", '"1"', "w1")
    assert failed.fetch_interval_s == DAY and failed.last_change == NOON
    back = after(event(Outcome.NOT_MODIFIED, 33), row=failed)
    assert (back.status, back.failure_streak, back.failure_count) == (Status.FETCHED, 0, 3)
    assert back.fetch_interval_s == 2 * DAY


def test_a_failed_probe_of_the_dead_waits_for_the_next_probe() -> None:
    row = after(event(Outcome.DNS_ERROR), row=UrlFacts(Status.DEAD, failure_streak=3))
    assert (row.status, row.failure_streak, wait_s(row)) == (Status.DEAD, 4, 30 * DAY)


def test_a_redirect_to_nowhere_is_a_failure() -> None:
    assert after(event(Outcome.REDIRECT, http_status=301)).status == Status.RETRY


# --- what tells nothing of the URL ---


@pytest.mark.parametrize("status", list(Status))
@pytest.mark.parametrize("outcome", sorted(POSTPONING))
def test_throttled_and_robots_unreachable_move_the_next_fetch_only(outcome: Outcome, status: Status) -> None:
    row = UrlFacts(status, Outcome.OK, NOON - timedelta(days=9), failure_streak=2, failure_count=2, fetch_count=4)
    for n in range(10):  # ten times is no more than once
        row = advance(row, event(outcome, n, http_status=503, content_hash="X"), SETTINGS)
    moved = NOON + timedelta(days=9, seconds=SETTINGS.retry_s)
    untouched = UrlFacts(status, Outcome.OK, NOON - timedelta(days=9), failure_streak=2, failure_count=2, fetch_count=4)
    assert row == replace(untouched, next_fetch=moved)


@pytest.mark.parametrize(
    ("retry_after_s", "wait", "why"),
    [
        (None, HOUR, "our own wait"),
        (120.0, HOUR, "the host waits 120 s (politeness); the URL's turn comes later anyway"),
        (2.0 * DAY, 2 * DAY, "longer than ours is heard"),
        (99999999999.0, LONGEST, "absurd: up to the longest interval"),
        (float("inf"), HOUR, "not a number of seconds"),
        (float("nan"), HOUR, "not a number of seconds"),
        (-5.0, HOUR, "in the past"),
    ],
)
def test_retry_after(retry_after_s: float | None, wait: float, why: str) -> None:
    row = after(event(Outcome.THROTTLED, retry_after_s=retry_after_s))
    assert (row.status, wait_s(row)) == (Status.NEW, wait), why


def test_postponing_never_brings_forward() -> None:
    far = NOON + timedelta(days=20)
    assert after(event(Outcome.THROTTLED), row=UrlFacts(next_fetch=far)).next_fetch == far


@pytest.mark.parametrize("status", list(Status))
def test_not_reached_costs_nothing(status: Status) -> None:
    row = UrlFacts(status, next_fetch=NOON, failure_streak=1)
    assert advance(row, event(Outcome.NOT_REACHED), SETTINGS) is row


# --- robots.txt, gone, unsupported ---


def test_denied_is_rechecked_and_recovers() -> None:
    denied = after(page(), event(Outcome.DENIED, 1))
    assert (denied.status, denied.fetch_count, denied.content_hash) == (Status.DENIED, 1, "A")
    assert wait_s(denied, NOON + timedelta(days=1)) == SETTINGS.denied_recheck_s
    assert after(page(8), row=denied).status == Status.FETCHED


def test_404_is_asked_again_ever_more_rarely_and_410_rarely_at_once() -> None:
    row, waits = UrlFacts(), []
    for n in range(6):
        row = advance(row, event(Outcome.NOT_FOUND, 100 * n, http_status=404), SETTINGS)
        waits.append(wait_s(row, NOON + timedelta(days=100 * n)) / DAY)
    assert waits == [7, 14, 28, 56, 60, 60]
    assert (row.status, row.fetch_count, row.failure_count, row.change_count) == (Status.GONE, 6, 0, 0)
    assert wait_s(after(event(Outcome.GONE, http_status=410))) == LONGEST
    assert after(page(1000), row=row).status == Status.FETCHED


@pytest.mark.parametrize("outcome", [Outcome.BAD_TYPE, Outcome.TOO_LARGE])
def test_unsupported_is_looked_at_rarely(outcome: Outcome) -> None:
    row = after(page(), event(outcome, 1, http_status=200, etag='"pdf"'))
    assert (row.status, row.etag, row.content_hash) == (Status.UNSUPPORTED, None, "A")
    assert wait_s(row, NOON + timedelta(days=1)) == LONGEST


@pytest.mark.parametrize("status", [Status.GONE, Status.UNSUPPORTED])
def test_a_failed_look_at_what_is_gone_changes_no_status(status: Status) -> None:
    row = after(*(event(Outcome.TIMEOUT, n) for n in range(5)), row=UrlFacts(status))
    assert (row.status, row.failure_count) == (status, 5)
    assert wait_s(row, NOON + timedelta(days=4)) == SETTINGS.dead_probe_s


# --- redirects and duplicates ---


def redirect(days: float = 0, to: str = "http://b.test/", http_status: int = 302) -> FetchEvent:
    return event(Outcome.REDIRECT, days, http_status=http_status, redirect_to=to)


def test_temporary_redirect_is_followed_up_like_a_page() -> None:
    row = after(redirect())
    assert (row.status, row.redirect_to, row.fetch_interval_s) == (Status.REDIRECTED, "http://b.test/", DAY)
    assert after(redirect(1), row=row).fetch_interval_s == 2 * DAY
    elsewhere = after(redirect(1, to="http://c.test/"), row=row)
    assert (elsewhere.fetch_interval_s, elsewhere.change_count, elsewhere.redirect_to) == (DAY / 2, 1, "http://c.test/")


@pytest.mark.parametrize(("http_status", "wait"), [(301, LONGEST), (308, LONGEST), (302, DAY), (303, DAY), (307, DAY)])
def test_permanent_redirects_are_looked_at_rarely(http_status: int, wait: float) -> None:
    assert wait_s(after(redirect(http_status=http_status))) == wait


def test_a_chain_or_loop_is_a_matter_of_each_row_alone() -> None:
    """A redirect limit reached says nothing about the target (known_faults: apache/nutch#485): rows have no targets."""
    row = after(*(redirect(n, to="http://self.test/") for n in range(4)))
    assert (row.status, row.failure_count) == (Status.REDIRECTED, 0)


def test_a_redirect_that_becomes_the_old_page_again_has_changed() -> None:
    row = after(page(), redirect(1), page(2))
    assert (row.status, row.redirect_to, row.change_count) == (Status.FETCHED, None, 2)
    assert row.last_change == NOON + timedelta(days=2)


COPY = replace(after(page()), status=Status.DUPLICATE, duplicate_of=42)
COPIES = [
    ((page(1),), Status.DUPLICATE, 42, "unchanged: still a copy"),
    ((event(Outcome.NOT_MODIFIED, 1),), Status.DUPLICATE, 42, "unchanged: still a copy"),
    ((page(1, content_hash="B", simhash=1),), Status.DUPLICATE, 42, "a near copy of a copy"),
    ((page(1, content_hash="B", simhash=-1),), Status.FETCHED, None, "other content: dedup judges anew"),
    ((event(Outcome.TIMEOUT, 1),), Status.RETRY, 42, "a failure forgets nothing"),
    ((event(Outcome.TIMEOUT, 1), page(2)), Status.DUPLICATE, 42, "and the copy is a copy again"),
    ((event(Outcome.NOT_FOUND, 1), page(2)), Status.DUPLICATE, 42, "so it is after a 404 that healed"),
]


@pytest.mark.parametrize(("events", "status", "cluster", "why"), COPIES)
def test_copies(events: tuple[FetchEvent, ...], status: Status, cluster: int | None, why: str) -> None:
    row = after(*events, row=COPY)
    assert (row.status, row.duplicate_of) == (status, cluster), why


def test_copies_are_recrawled_rarely() -> None:
    row = after(page(1), row=COPY)
    assert wait_s(row, NOON + timedelta(days=1)) == LONGEST
    assert row.fetch_interval_s == 2 * DAY  # what it goes back to when it stops being one


# --- order and repetition ---


@pytest.mark.parametrize("outcome", list(Outcome))
def test_an_older_event_never_overwrites(outcome: Outcome) -> None:
    row = after(page(5))
    late = event(outcome, 4, http_status=200, content_hash="B", redirect_to="http://b.test/")
    assert advance(row, late, SETTINGS) is row


def test_a_time_without_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        FetchEvent(Outcome.OK, datetime(2026, 1, 1))


HASHES = st.sampled_from([None, "A", "B"])
COUNTS = st.integers(0, 40)
TIMES = st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
KEYS = st.none() | st.integers(-(2**63), 2**63 - 1)
SECONDS = st.none() | st.integers(-(2**63), 2**63 - 1)
ROWS = st.builds(
    UrlFacts,
    status=st.sampled_from(list(Status)),
    last_fetch=st.none() | TIMES,
    next_fetch=st.none() | TIMES,
    fetch_interval_s=SECONDS,
    fixed_interval_s=SECONDS,
    content_hash=HASHES,
    simhash=KEYS,
    warc_file=HASHES,
    redirect_to=HASHES,
    duplicate_of=KEYS,
    fetch_count=COUNTS,
    change_count=COUNTS,
    failure_count=COUNTS,
    failure_streak=COUNTS,
    unchanged_streak=COUNTS,
)
EVENTS = st.builds(
    FetchEvent,
    outcome=st.sampled_from(list(Outcome)),
    started_at=TIMES,
    http_status=st.none() | st.integers(-1, 999),
    etag=st.none() | st.text(max_size=600),
    last_modified=st.none() | st.text(max_size=600),
    content_hash=HASHES,
    simhash=KEYS,
    warc_file=HASHES,
    redirect_to=st.sampled_from([None, "", "A", "B"]),
    retry_after_s=st.none() | st.floats(),
)


@given(ROWS, EVENTS)
def test_twice_is_once(row: UrlFacts, one: FetchEvent) -> None:
    once = advance(row, one, SETTINGS)
    assert advance(once, one, SETTINGS) == once


@given(ROWS, EVENTS)
def test_whatever_comes_the_row_stays_sane(row: UrlFacts, one: FetchEvent) -> None:
    new = advance(row, one, SETTINGS)
    for name in ("fetch_count", "change_count", "failure_count"):
        assert getattr(new, name) - getattr(row, name) in (0, 1), name
    if new.last_fetch != row.last_fetch:
        assert new.last_fetch == one.started_at
        assert new.next_fetch is not None
        assert timedelta(0) < new.next_fetch - one.started_at <= timedelta(seconds=config.CENTURY_S)
    assert new.status != Status.DUPLICATE or new.duplicate_of is not None or row.duplicate_of is None
    assert len(new.etag or "") <= 512


@given(st.lists(EVENTS, max_size=6))
def test_dead_only_after_failures_in_a_row(events: list[FetchEvent]) -> None:
    row = after(*events)
    assert row.status != Status.DEAD or row.failure_streak >= SETTINGS.max_failures
    assert row.failure_count >= row.failure_streak
    assert row.change_count <= max(0, row.fetch_count - 1)
