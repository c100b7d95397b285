"""The ledger of segments: an append-only log of state changes in the store, each a compare-and-set.

Entry k is the file `ledger/<k>.json`, made by a conditional create: of two processes that both read k-1 entries and
judged themselves free, exactly one wins, and the other reads again. The table `segments` is its copy for SQL. Which
changes are lawful is `segments`' business; this file knows only how to read, append and retry.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from spindle import segments
from spindle.errors import SegmentStateError
from spindle.segments import Entry, SegmentId, State
from spindle.store import Store

_ATTEMPTS = 100  # each lost race means that somebody else made progress


@dataclass(frozen=True, slots=True)
class Ledger:
    store: Store
    buckets: int

    def entries(self) -> list[Entry]:
        """All entries, oldest first. A gap cannot occur: k is created only by one who read k-1."""
        return [_decode(self.store.get(name)) for name in self.store.list("ledger/")]

    def current(self, segment: str) -> Entry | None:
        return segments.latest(self.entries()).get(segment)

    def open(self, segment: SegmentId, pins: Mapping[str, Any], lease_s: float, clock: Callable[[], float]) -> Entry:
        """Takes the range of a segment; expires holders whose lease has run out. Opened before: that entry again.

        Raises:
            LeaseHeld: a live segment owns part of the range.
            SegmentStateError: the segment has expired.
        """
        span = segment.buckets(self.buckets)
        for _ in range(_ATTEMPTS):
            now, entries = clock(), self.entries()
            known = segments.latest(entries).get(str(segment))
            if known is not None:
                segments.advance(known, str(segment), State.GENERATED)
                return known
            stale = segments.check_free(entries, str(segment), span.start, span.stop, now)
            if stale:
                self._append(entries, _next(stale[0], State.EXPIRED, now))
                continue
            turn = 1 + max((e.turn for e in entries), default=0)
            entry = Entry(
                0,
                str(segment),
                State.OPENED,
                now,
                span.start,
                span.stop,
                turn,
                now + lease_s,
                holder(),
                json.dumps(pins),
            )
            if made := self._append(entries, entry):
                return made
        raise RuntimeError(f"ledger: {_ATTEMPTS} races lost for segment {segment}; is a clock or the store broken?")

    def move(self, segment: str, state: State, now: float, counts: Mapping[str, int] | None = None) -> Entry:
        """Records that a segment reached `state`; a no-op that returns the present entry when it is there or further.

        Raises:
            SegmentStateError: unknown, expired, or out of order.
        """
        for _ in range(_ATTEMPTS):
            entries = self.entries()
            known = segments.latest(entries).get(segment)
            if state is not State.EXPIRED and not segments.advance(known, segment, state):
                return known  # type: ignore[return-value] # advance raises for None here
            if known is None:
                raise SegmentStateError(f"segment {segment} does not exist in this warehouse")
            if known.state in segments.CLOSED:
                return known
            if made := self._append(entries, _next(known, state, now, counts)):
                return made
        raise RuntimeError(f"ledger: {_ATTEMPTS} races lost for segment {segment}")

    def release(self, segment: str, now: float, counts: Mapping[str, int] | None = None) -> None:
        """Ends the lease of what writes `urls` outside a turn (inject, maintenance): opened -> updated at once."""
        for _ in range(_ATTEMPTS):
            entries = self.entries()
            known = segments.latest(entries)[segment]
            if known.state in segments.CLOSED or self._append(entries, _next(known, State.UPDATED, now, counts)):
                return

    def withdraw(self, segment: str, now: float) -> None:
        """Records that an update was undone: updated -> expired, as if its turn had never come to the end.

        Raises:
            SegmentStateError: it is not updated.
        """
        for _ in range(_ATTEMPTS):
            entries = self.entries()
            known = segments.latest(entries).get(segment)
            if known is None or known.state is not State.UPDATED:
                raise SegmentStateError(f"segment {segment} is {known.state if known else 'unknown'}, not updated")
            if self._append(entries, _next(known, State.EXPIRED, now)):
                return
        raise RuntimeError(f"ledger: {_ATTEMPTS} races lost for segment {segment}")

    def sizes(self, segment: str) -> dict[str, int]:
        """What the segment's states have counted so far, the latest of each name."""
        found: dict[str, int] = {}
        for entry in self.entries():
            if entry.segment == segment:
                found |= entry.counts
        return found

    def pins(self, segment: str) -> dict[str, Any]:
        """What was pinned when the segment was opened."""
        pinned: dict[str, Any] = json.loads(segments.pins_of(self.entries(), segment))
        return pinned

    def _append(self, entries: list[Entry], entry: Entry) -> Entry | None:
        """The entry as stored, or None when somebody else's came first."""
        entry = dataclasses.replace(entry, seq=len(entries) + 1)
        won = self.store.create_exclusive(
            f"ledger/{entry.seq:09d}.json", json.dumps(dataclasses.asdict(entry)).encode()
        )
        return entry if won else None


def holder() -> str:
    """Who takes a lease: machine and process."""
    return f"{socket.gethostname()}:{os.getpid()}"


def is_gone(holder: str) -> bool:
    """Whether a holder was a process of this machine that has ended, or this one itself: a new process of a restarted
    container has the old one's name and number. Of other machines nothing is known."""
    machine, _, process = holder.rpartition(":")
    if machine != socket.gethostname() or not process.isdigit():
        return False
    try:
        os.kill(int(process), 0)  # 0: only asks
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return int(process) == os.getpid()


def _next(entry: Entry, state: State, now: float, counts: Mapping[str, int] | None = None) -> Entry:
    return dataclasses.replace(entry, state=state, at=now, holder=holder(), pins="", counts=dict(counts or {}))


def _decode(content: bytes) -> Entry:
    values = json.loads(content)
    return Entry(**{**values, "state": State(values["state"])})
