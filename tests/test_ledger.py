"""The ledger on a folder: leases are taken, kept, lost and ended; of two processes that race exactly one wins."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path
from typing import Any

import pytest

from spindle.errors import LeaseHeld, SegmentStateError
from spindle.ledger import Ledger
from spindle.segments import Entry, SegmentId, State
from spindle.store import LocalStore

PINS = {"now": "2026-11-30T12:00:00+00:00", "seed": 7}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(LocalStore(str(tmp_path)), 8)


def take(ledger: Ledger, segment: str, now: float = 1000.0, lease_s: float = 100.0, pins: Any = PINS) -> Entry:
    return ledger.open(SegmentId.parse(segment), pins, lease_s, lambda: now)


def story(ledger: Ledger) -> list[tuple[int, str, str]]:
    return [(entry.seq, entry.segment, str(entry.state)) for entry in ledger.entries()]


def test_a_turn_from_opened_to_updated(ledger: Ledger) -> None:
    opened = take(ledger, "a.2of2")
    assert (opened.seq, opened.state, opened.bucket_lo, opened.bucket_hi) == (1, State.OPENED, 4, 8)
    assert (opened.turn, opened.lease_until, opened.at) == (1, 1100.0, 1000.0)
    for place, state in enumerate([State.GENERATED, State.FETCHED, State.PARSED, State.UPDATED], start=2):
        moved = ledger.move("a.2of2", state, 1000.0 + place, {"rows": place})
        assert (moved.seq, moved.state, moved.counts, moved.at) == (place, state, {"rows": place}, 1000.0 + place)
        assert (moved.bucket_lo, moved.bucket_hi, moved.turn, moved.lease_until) == (4, 8, 1, 1100.0)
        assert ledger.move("a.2of2", state, 2000.0) == moved, "a second time is a no-op"
    assert ledger.current("a.2of2") == moved
    assert ledger.pins("a.2of2") == PINS, "pins survive every state"
    assert ledger.move("a.2of2", State.EXPIRED, 3000.0) == moved, "what is closed stays closed"


def test_opening_again_keeps_the_first_pins_and_lease(ledger: Ledger) -> None:
    first = take(ledger, "a")
    assert take(ledger, "a", now=1050.0, pins={"now": "later"}) == first, "the entry as it was"
    assert ledger.pins("a.1of1") == PINS
    assert len(ledger.entries()) == 1


def test_an_overlapping_range_is_refused_and_a_neighbour_is_not(ledger: Ledger) -> None:
    take(ledger, "a.1of2")
    with pytest.raises(LeaseHeld, match=r"belong to segment a\.1of2"):
        take(ledger, "b.2of4")
    assert take(ledger, "b.3of4").turn == 2
    with pytest.raises(LeaseHeld, match=r"buckets 0\.\.3 belong to segment a\.1of2"):
        take(ledger, "c.1of1")
    assert story(ledger) == [(1, "a.1of2", "opened"), (2, "b.3of4", "opened")]


def test_the_next_opener_expires_what_is_stale(ledger: Ledger) -> None:
    take(ledger, "a.1of2", now=1000.0, lease_s=100.0)
    take(ledger, "b.2of2", now=1000.0, lease_s=100.0)
    with pytest.raises(LeaseHeld):
        take(ledger, "c", now=1099.9)
    opened = take(ledger, "c", now=1100.0)
    assert (opened.seq, opened.turn) == (5, 3)
    assert story(ledger)[2:] == [(3, "a.1of2", "expired"), (4, "b.2of2", "expired"), (5, "c.1of1", "opened")]
    with pytest.raises(SegmentStateError, match="has expired"):
        ledger.move("a.1of2", State.GENERATED, 1101.0)
    with pytest.raises(SegmentStateError, match="has expired"):
        take(ledger, "a.1of2", now=5000.0)
    assert ledger.pins("a.1of2") == PINS


def test_states_cannot_be_left_out_and_a_stranger_cannot_move(ledger: Ledger) -> None:
    take(ledger, "a")
    ledger.move("a.1of1", State.GENERATED, 1.0)
    with pytest.raises(SegmentStateError, match="run fetch before this job"):
        ledger.move("a.1of1", State.PARSED, 1.0)
    with pytest.raises(SegmentStateError, match="does not exist"):
        ledger.move("b.1of1", State.FETCHED, 1.0)
    with pytest.raises(SegmentStateError, match="does not exist"):
        ledger.move("b.1of1", State.EXPIRED, 1.0)


def test_release_ends_a_lease_at_once_and_twice_is_harmless(ledger: Ledger) -> None:
    take(ledger, "inject-1")
    ledger.release("inject-1.1of1", 1001.0, {"seeds": 3})
    ledger.release("inject-1.1of1", 1002.0)
    assert story(ledger) == [(1, "inject-1.1of1", "opened"), (2, "inject-1.1of1", "updated")]
    assert ledger.entries()[1].counts == {"seeds": 3}
    assert take(ledger, "a").seq == 3, "the range is free again"


def test_expire_frees_the_range(ledger: Ledger) -> None:
    take(ledger, "a")
    assert ledger.move("a.1of1", State.EXPIRED, 1001.0).state is State.EXPIRED
    assert take(ledger, "b").seq == 3


def test_entries_are_read_back_whole(ledger: Ledger) -> None:
    take(ledger, "2026-11-30T01:02:03+00:00.1of4", pins={"text": "ü\n'"})
    ledger.move("2026-11-30T01:02:03+00:00.1of4", State.GENERATED, 1.5, {"listed": 2**40})
    again = Ledger(LocalStore(ledger.store.root), 8)
    assert again.entries() == ledger.entries()
    assert again.pins("2026-11-30T01:02:03+00:00.1of4") == {"text": "ü\n'"}
    assert again.entries()[1].counts == {"listed": 2**40}


# --- two processes

RANGES = [("1of2", "2of4"), ("1of1", "3of4"), ("2of3", "1of2"), ("1of4", "1of4")]  # each pair overlaps
ROUNDS = [RANGES[number % len(RANGES)] for number in range(20)]


def race(root: str, side: int, barrier: Any, answers: Any) -> None:
    """In each round opens a segment, then moves one that both know, each as soon as the other is ready too."""
    won = []
    for number, pair in enumerate(ROUNDS):
        ledger = Ledger(LocalStore(f"{root}/{number}"), 8)
        barrier.wait(60)
        try:
            ledger.open(SegmentId.parse(f"side{side}.{pair[side]}"), {"by": side}, 1000.0, time.time)
            won.append(number)
        except LeaseHeld:
            pass
        common = Ledger(LocalStore(f"{root}/common{number}"), 8)
        barrier.wait(60)
        common.move("a.1of1", State.GENERATED, 1.0)
    answers.put((side, won))


def test_of_two_processes_that_race_exactly_one_wins(tmp_path: Path) -> None:
    """Of two that open overlapping ranges one gets the lease; a state that two reach at once is recorded once."""
    for number in range(len(ROUNDS)):
        take(Ledger(LocalStore(str(tmp_path / f"common{number}")), 8), "a")
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(2), context.Queue()
    racers = [context.Process(target=race, args=(str(tmp_path), side, barrier, answers)) for side in (0, 1)]
    for racer in racers:
        racer.start()
    won = dict(answers.get(timeout=120) for _ in racers)
    for racer in racers:
        racer.join(30)
        assert racer.exitcode == 0
    assert sorted(won[0] + won[1]) == list(range(len(ROUNDS))), "each round has one winner"
    for number, pair in enumerate(ROUNDS):
        winner = 0 if number in won[0] else 1
        ledger = Ledger(LocalStore(str(tmp_path / str(number))), 8)
        assert story(ledger) == [(1, f"side{winner}.{pair[winner]}", "opened")]
        assert ledger.pins(f"side{winner}.{pair[winner]}") == {"by": winner}
        common = Ledger(LocalStore(str(tmp_path / f"common{number}")), 8)
        assert story(common) == [(1, "a.1of1", "opened"), (2, "a.1of1", "generated")]
