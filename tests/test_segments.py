"""A segment's name, its buckets, its states, and who owns what: the table of who excludes whom."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.errors import InputError, LeaseHeld, SegmentStateError
from spindle.segments import (
    ORDER,
    Entry,
    SegmentId,
    State,
    advance,
    check_free,
    latest,
    live_overlaps,
    pins_of,
    unaccounted,
)

# --- names


@pytest.mark.parametrize(
    ("text", "run", "i", "n", "why"),
    [
        ("20261130.1of4", "20261130", 1, 4, "the usual one"),
        ("20261130", "20261130", 1, 1, "a bare run id is the one slice"),
        ("manual__2026-11-30T01:02:03+00:00.2of3", "manual__2026-11-30T01:02:03+00:00", 2, 3, "Airflow's run id"),
        ("a.1of1", "a", 1, 1, "short"),
        ("a.b.3of7", "a.b", 3, 7, "dots in the run"),
        ("a.1of2.2of2", "a.1of2", 2, 2, "only the last slice counts"),
        ("a1of4", "a1of4", 1, 1, "no dot, no slice"),
        ("a.007of010", "a", 7, 10, "leading zeros"),
        ("x" * 151, "x" * 151, 1, 1, "the longest run id"),
    ],
)
def test_ids_are_read(text: str, run: str, i: int, n: int, why: str) -> None:
    assert SegmentId.parse(text) == SegmentId(run, i, n), why
    assert SegmentId.parse(str(SegmentId(run, i, n))) == SegmentId(run, i, n), "and its spelling reads back"


@pytest.mark.parametrize(
    ("text", "told", "why"),
    [
        ("", "letters, digits", "empty"),
        (".1of1", "letters, digits", "no run"),
        ("../x", "letters, digits", "would leave its folder"),
        ("a/b", "letters, digits", "would be two folders"),
        ("a b", "letters, digits", "a blank"),
        ("a'b", "letters, digits", "would end a SQL text"),
        ("-a", "letters, digits", "looks like an option"),
        ("a\n", "letters, digits", "a line end"),
        ("ä", "letters, digits", "not ASCII"),
        ("x" * 152, "letters, digits", "too long for a folder with its slice"),
        ("a.0of4", "slice 0 of 4 does not exist; use 1of4 to 4of4", "slices count from 1"),
        ("a.5of4", "slice 5 of 4 does not exist", "beyond the last"),
        ("a.0of0", "slice 0 of 0 does not exist", "no slices"),
    ],
)
def test_bad_ids_are_refused_with_the_reason(text: str, told: str, why: str) -> None:
    with pytest.raises(InputError) as error:
        SegmentId.parse(text)
    assert told in str(error.value), why


@pytest.mark.parametrize(
    ("segment", "folder"),
    [
        (SegmentId("20261130", 2, 4), "segment-files/20261130.2of4"),
        (SegmentId("2026-11-30T01:02+00:00"), "segment-files/2026-11-30T01~3A02~2B00~3A00.1of1"),
    ],
)
def test_folder_holds_no_colon(segment: SegmentId, folder: str) -> None:
    assert segment.folder == folder


# --- ranges


@given(total=st.integers(1, 500), n=st.integers(1, 500))
def test_slices_are_contiguous_and_hold_every_bucket_once(total: int, n: int) -> None:
    if n > total:
        with pytest.raises(InputError, match=f"use at most {total} slices"):
            SegmentId("a", 1, n).buckets(total)
        return
    slices = [SegmentId("a", i, n).buckets(total) for i in range(1, n + 1)]
    assert [bucket for span in slices for bucket in span] == list(range(total))
    assert max(map(len, slices)) - min(map(len, slices)) <= 1


@given(st.integers(1, 200), st.data())
def test_doubling_the_buckets_keeps_each_slice(total: int, data: st.DataObject) -> None:
    """A bucket k becomes 2k and 2k+1: where n divides the buckets a slice owns the same hosts afterwards."""
    n = data.draw(st.sampled_from([n for n in range(1, total + 1) if total % n == 0]))
    segment = SegmentId("a", data.draw(st.integers(1, n)), n)
    halves = [half for bucket in segment.buckets(total) for half in (2 * bucket, 2 * bucket + 1)]
    assert list(segment.buckets(2 * total)) == halves


# --- owners


def entry(segment: str, state: State = State.OPENED, seq: int = 1, lease_until: float = 100.0, total: int = 8) -> Entry:
    span = SegmentId.parse(segment).buckets(total)
    return Entry(seq, segment, state, 0.0, span.start, span.stop, 1, lease_until, "here:1", pins=f"pins of {segment}")


@pytest.mark.parametrize(
    ("held", "wanted", "excluded", "why"),
    [
        ("a.1of2", "b.2of4", True, "2/4 is the second half of 1/2"),
        ("a.1of2", "b.1of4", True, "1/4 its first"),
        ("a.1of2", "b.3of4", False, "3/4 lies in 2/2"),
        ("a.1of1", "b.7of8", True, "everything excludes everybody"),
        ("a.8of8", "b.1of1", True, "and everybody everything"),
        ("a.1of3", "b.2of3", False, "neighbours"),
        ("a.1of3", "b.1of2", True, "buckets 0..1 and 0..3"),
        ("a.2of3", "b.1of4", False, "buckets 2..4 and 0..1: they touch, and share none"),
    ],
)
def test_overlap_is_judged_on_ranges(held: str, wanted: str, excluded: bool, why: str) -> None:
    span = SegmentId.parse(wanted).buckets(8)
    assert bool(live_overlaps([entry(held)], span.start, span.stop)) == excluded, why
    if excluded:
        with pytest.raises(LeaseHeld) as error:
            check_free([entry(held)], wanted, span.start, span.stop, now=40.0)
        assert f"belong to segment {held} (opened, held by here:1) for another 60 s" in str(error.value)
        assert f"spindle expire {held}" in str(error.value)
    else:
        assert check_free([entry(held)], wanted, span.start, span.stop, now=40.0) == []


@pytest.mark.parametrize(
    ("state", "lease_until", "told", "why"),
    [
        (State.OPENED, 100.0, "held", "alive"),
        (State.PARSED, 100.0, "held", "alive until it is updated"),
        (State.OPENED, 50.0, "stale", "its lease has just run out"),
        (State.FETCHED, 10.0, "stale", "in whatever state"),
        (State.UPDATED, 100.0, "free", "its turn is over"),
        (State.EXPIRED, 100.0, "free", "somebody ended it"),
    ],
)
def test_a_range_is_owned_until_the_end_or_the_lease(state: State, lease_until: float, told: str, why: str) -> None:
    entries = [entry("a.1of2"), entry("a.1of2", state, 2, lease_until)]
    if told == "held":
        with pytest.raises(LeaseHeld):
            check_free(entries, "b.1of1", 0, 8, now=50.0)
    else:
        assert [e.seq for e in check_free(entries, "b.1of1", 0, 8, now=50.0)] == ([2] if told == "stale" else []), why
    assert check_free(entries, "a.1of2", 0, 4, now=50.0) == [], "a segment does not exclude itself"


def test_the_newest_entry_counts_whatever_the_order_and_pins_are_the_first_ones() -> None:
    entries = [entry("a.1of2", State.FETCHED, 3), entry("a.1of2", State.OPENED, 1), entry("b.2of2", State.OPENED, 2)]
    assert {name: e.seq for name, e in latest(entries).items()} == {"a.1of2": 3, "b.2of2": 2}
    assert pins_of(entries, "b.2of2") == "pins of b.2of2"


# --- what expired segments have left


@pytest.mark.parametrize(
    ("log", "owed", "why"),
    [
        ("a.1of2 expired", "a.1of2", "nobody has been there since"),
        ("a.2of2 expired", "", "another range"),
        ("a.1of1 expired", "a.1of1", "part of the range is enough"),
        ("a.1of2 generated", "", "it lives"),
        ("a.1of2 expired, b.1of2 fetched, b.1of2 updated", "", "a turn has taken it over"),
        ("a.1of2 expired, b.1of2 fetched", "a.1of2", "that turn is not at its end"),
        ("b.1of2 fetched, b.1of2 updated, a.1of2 expired", "a.1of2", "that turn was before"),
        ("a.1of2 expired, b.1of4 fetched, b.1of4 updated", "a.1of2", "that turn saw half of it"),
        ("a.1of2 expired, inject.1of1 opened, inject.1of1 updated", "a.1of2", "a lease of inject fetches nothing"),
        ("a.1of2 expired, b.1of2 expired", "a.1of2 b.1of2", "both, in their order"),
    ],
)
def test_expired_segments_count_until_a_turn_has_been_through_their_range(log: str, owed: str, why: str) -> None:
    told = [line.split() for line in log.split(", ")]
    entries = [entry(name, State(state), seq) for seq, (name, state) in enumerate(told, 1)]
    assert [one.segment for one in unaccounted(entries, 0, 4)] == owed.split(), why


# --- states


@pytest.mark.parametrize(
    ("current", "wanted", "expected"),
    [
        (None, State.OPENED, True),
        (None, State.GENERATED, True),
        (None, State.FETCHED, "run generate first"),
        (None, State.PARSED, "run generate first"),
        (None, State.UPDATED, "run generate first"),
        (State.OPENED, State.GENERATED, True),
        (State.OPENED, State.FETCHED, "is opened: run generate before"),
        (State.OPENED, State.PARSED, "is opened: run generate before"),
        (State.OPENED, State.UPDATED, "is opened: run generate before"),
        (State.GENERATED, State.FETCHED, True),
        (State.GENERATED, State.PARSED, "is generated: run fetch before"),
        (State.GENERATED, State.UPDATED, "is generated: run fetch before"),
        (State.FETCHED, State.PARSED, True),
        (State.FETCHED, State.UPDATED, "is fetched: run parse before"),
        (State.PARSED, State.UPDATED, True),
    ],
)
def test_advance(current: State | None, wanted: State, expected: bool | str) -> None:
    known = None if current is None else entry("a", current)
    if isinstance(expected, str):
        with pytest.raises(SegmentStateError) as error:
            advance(known, "a", wanted)
        assert expected in str(error.value)
        assert error.value.exit_code == 3
    else:
        assert advance(known, "a", wanted) is expected


def test_what_is_reached_is_no_work_and_what_expired_is_over() -> None:
    for place, here in enumerate(ORDER):
        assert [advance(entry("a", here), "a", wanted) for wanted in ORDER[: place + 1]] == [False] * (place + 1)
    for wanted in ORDER:
        with pytest.raises(SegmentStateError, match="has expired"):
            advance(entry("a", State.EXPIRED), "a", wanted)
