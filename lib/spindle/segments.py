"""A segment's identity, its states, and who owns which range of buckets. Pure: the ledger's entries in, a verdict out.

One turn of the wheel is one segment `<run>.<i>of<n>`. It owns its bucket range from `opened` until `updated` or
`expired` (DESIGN section 1); overlap is judged on ranges, so 1/2 and 2/4 exclude each other. Storing entries is
`ledger`'s business.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from spindle.errors import InputError, LeaseHeld, SegmentStateError

_ID = re.compile(r"(?P<run>[A-Za-z0-9][A-Za-z0-9._:+-]{0,150}?)(?:\.(?P<i>\d{1,6})of(?P<n>\d{1,6}))?")


class State(StrEnum):
    OPENED = "opened"
    GENERATED = "generated"
    FETCHED = "fetched"
    PARSED = "parsed"
    UPDATED = "updated"
    EXPIRED = "expired"


UNDO = "undo-"  # how leases of undo are named
ORDER = [State.OPENED, State.GENERATED, State.FETCHED, State.PARSED, State.UPDATED]
CLOSED = frozenset({State.UPDATED, State.EXPIRED})


@dataclass(frozen=True, slots=True)
class SegmentId:
    """`run`: Airflow's logical date or a run id; slice `i` of `n`, 1-based."""

    run: str
    i: int = 1
    n: int = 1

    @classmethod
    def parse(cls, text: str) -> SegmentId:
        """A segment id; a bare run id means the one slice `1of1`.

        Raises:
            InputError: characters that a folder or an Airflow id cannot hold, or a slice outside 1..n.
        """
        match = _ID.fullmatch(text)
        if match is None:
            raise InputError(
                f"segment {text!r}: letters, digits and . _ : + - only, then .<i>of<n>, as in 20261130.1of4"
            )
        i, n = int(match["i"] or 1), int(match["n"] or 1)
        if not 1 <= i <= n:
            raise InputError(f"segment {text!r}: slice {i} of {n} does not exist; use 1of{n} to {n}of{n}")
        return cls(match["run"], i, n)

    def __str__(self) -> str:
        return f"{self.run}.{self.i}of{self.n}"

    def buckets(self, total: int) -> range:
        """The contiguous buckets of this slice of `total`; every bucket is in exactly one slice of n.

        Raises:
            InputError: more slices than buckets, so that some would be empty.
        """
        if self.n > total:
            raise InputError(f"segment {self}: {self.n} slices of {total} buckets; use at most {total} slices")
        return range((self.i - 1) * total // self.n, self.i * total // self.n)

    @property
    def folder(self) -> str:
        """Its folder below the warehouse; `:` and `+` of dates are escaped, as Hadoop paths cannot hold a colon."""
        return "segment-files/" + re.sub(r"[:+]", lambda m: f"~{ord(m.group()):02X}", str(self))


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the ledger: a segment reached a state. Times are seconds since the epoch, UTC."""

    seq: int
    segment: str
    state: State
    at: float
    bucket_lo: int
    bucket_hi: int  # exclusive
    turn: int
    lease_until: float
    holder: str
    pins: str = ""
    counts: Mapping[str, int] = dataclasses.field(default_factory=dict)


def latest(entries: Iterable[Entry]) -> dict[str, Entry]:
    """The newest entry of each segment."""
    return {entry.segment: entry for entry in sorted(entries, key=lambda e: e.seq)}


def pins_of(entries: Iterable[Entry], segment: str) -> str:
    """What `opened` pinned for this segment (JSON): now, seed of chance, configuration."""
    return next(e.pins for e in entries if e.segment == segment and e.state is State.OPENED)


def live_overlaps(entries: Iterable[Entry], lo: int, hi: int) -> list[Entry]:
    """Segments that still own a bucket of lo..hi (exclusive), oldest first."""
    return [e for e in latest(entries).values() if e.state not in CLOSED and e.bucket_lo < hi and lo < e.bucket_hi]


def check_last(entries: Iterable[Entry], segment: str) -> Entry:
    """The entry of an updated turn after which nothing was written to its range.

    Raises:
        SegmentStateError: it is no turn, is not updated, or something came after it; names what.
    """
    log = list(entries)
    own, known = latest(log), {entry.segment for entry in log if entry.state is State.FETCHED}
    entry = own.get(segment)
    if entry is None or entry.state is not State.UPDATED or segment not in known:
        state = "unknown" if entry is None else entry.state if segment in known else "a lease and no turn"
        raise SegmentStateError(f"segment {segment} is {state}: only a turn that is updated can be undone")
    over = (e for e in own.values() if e.bucket_lo < entry.bucket_hi and entry.bucket_lo < e.bucket_hi)
    later = [e.segment for e in over if e.state is State.UPDATED and e.seq > entry.seq and not is_undo(e.segment)]
    if later:
        raise SegmentStateError(f"{', '.join(later)} came after {segment}: only the last of a range can be undone")
    return entry


def is_undo(segment: str) -> bool:
    """Whether this names the lease of an undo."""
    return segment.startswith(UNDO)


def unaccounted(entries: Iterable[Entry], lo: int, hi: int) -> list[Entry]:
    """Expired segments over buckets of lo..hi (exclusive) whose range no turn has been through to its end since. They
    change no URL, but what their journals say of hosts and robots.txt still counts (DESIGN section 5.5)."""
    log = list(entries)
    fetched = {entry.segment for entry in log if entry.state is State.FETCHED}  # a lease of inject goes through nothing
    ends = [e for e in latest(log).values() if e.state is State.UPDATED and e.segment in fetched]

    def followed(expired: Entry) -> bool:
        return any(
            end.seq > expired.seq and end.bucket_lo <= expired.bucket_lo and expired.bucket_hi <= end.bucket_hi
            for end in ends
        )

    over = [e for e in latest(log).values() if e.state is State.EXPIRED and e.bucket_lo < hi and lo < e.bucket_hi]
    return [entry for entry in over if not followed(entry)]


def check_free(entries: Iterable[Entry], segment: str, lo: int, hi: int, now: float) -> list[Entry]:
    """The holders whose lease has run out, to be expired first; nobody else may hold a bucket of the range.

    Raises:
        LeaseHeld: a live segment owns part of the range; names it, its holder and when the lease ends.
    """
    stale = []
    for entry in live_overlaps(entries, lo, hi):
        if entry.segment == segment:
            continue
        if entry.lease_until > now:
            raise LeaseHeld(
                f"buckets {max(lo, entry.bucket_lo)}..{min(hi, entry.bucket_hi) - 1} belong to segment {entry.segment} "
                f"({entry.state}, held by {entry.holder}) for another {entry.lease_until - now:.0f} s; "
                f"finish that turn, or end it with `spindle expire {entry.segment}`"
            )
        stale.append(entry)
    return stale


def advance(current: Entry | None, segment: str, wanted: State) -> bool:
    """Whether the job that ends in `wanted` has work to do: False when the segment is already there or further.

    Raises:
        SegmentStateError: the segment is unknown, expired, or has not reached the state before.
    """
    if current is None:
        if wanted in (State.OPENED, State.GENERATED):
            return True
        raise SegmentStateError(f"segment {segment} does not exist in this warehouse; run generate first")
    if current.state is State.EXPIRED:
        raise SegmentStateError(
            f"segment {segment} has expired: its URLs went back to the frontier without penalty. Open a new segment"
        )
    here, there = ORDER.index(current.state), ORDER.index(wanted)
    if here < there - 1:
        missing = {State.GENERATED: "generate", State.FETCHED: "fetch", State.PARSED: "parse"}
        raise SegmentStateError(f"segment {segment} is {current.state}: run {missing[ORDER[here + 1]]} before this job")
    return here < there
