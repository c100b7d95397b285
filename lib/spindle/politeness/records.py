"""What the back tier answers, what it keeps of hosts and addresses, and the agenda both stand on. Decides nothing."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ready(Generic[T]):
    """Fetch this now. The host is in flight and the item is out of its queue."""

    host: str
    item: T


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask again then; math.inf: only a finished request can change anything."""

    until: float


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing is left to do in this turn; what `drain` still gives was set aside."""


class Place(Enum):
    """Where a host is; waiting -> active -> flight -> active or idle."""

    IDLE = auto()  # nothing to offer
    WAITING = auto()  # for a back queue, in the list's order
    ACTIVE = auto()  # on the agenda, or in the line of its address
    FLIGHT = auto()


@dataclass(slots=True, eq=False)
class Host(Generic[T]):
    """A host: what is known of it, its queue, and where it stands."""

    name: str
    not_before: float
    crawl_delay_s: float | None
    limit_delay_s: float | None
    backoff_level: int
    backoff_until: float
    address: str | None
    failure_streak: int
    ended_at: float = -math.inf
    duration_s: float = 0.0
    hold_until: float = -math.inf
    given_up: bool = False
    items: list[T] = field(default_factory=list)  # from `head` on; a deque takes 700 bytes, and most hosts have one URL
    head: int = 0
    place: Place = Place.IDLE
    ticket: int = 0
    entered: tuple[Address[T], float, float] | None = None  # in flight: where, its start_ok_at before and after
    counted: int = 0  # of its items, in items_left
    left: bool = False  # counted in hosts_left

    def __len__(self) -> int:
        return len(self.items) - self.head

    def put_front(self, item: T) -> None:
        if self.head:
            self.head -= 1
            self.items[self.head] = item
        else:
            self.items.insert(0, item)

    def take(self) -> T:
        item = self.items[self.head]
        self.head += 1
        if self.head * 2 >= len(self.items):
            del self.items[: self.head]
            self.head = 0
        return item

    def take_all(self) -> list[T]:
        items, self.items, self.head = self.items[self.head :], [], 0
        return items

    @property
    def set_aside(self) -> bool:
        """Not offered again in this turn."""
        return self.given_up or self.hold_until == math.inf


@dataclass(slots=True, eq=False)
class Address(Generic[T]):
    """An address that several hosts may share."""

    name: str
    open: int = 0
    start_ok_at: float = -math.inf  # by the last start there
    end_ok_at: float = -math.inf  # by the last end
    line: deque[tuple[int, Host[T]]] = field(default_factory=deque)  # hosts that may start but for their address
    ticket: int = 0  # of its entry on the agenda, which lets the line's first host go; 0: it has none

    @property
    def next_ok_at(self) -> float:
        return max(self.start_ok_at, self.end_ok_at)

    def first_in_line(self) -> Host[T] | None:
        while self.line:
            ticket, host = self.line[0]
            if host.ticket == ticket:
                return host
            self.line.popleft()
        return None


class Agenda(Generic[T]):
    """Hosts and addresses by the time of their next turn. An entry whose ticket is no longer held is stale: skipped."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Host[T] | Address[T]]] = []
        self._last_ticket = 0

    def new_ticket(self) -> int:
        self._last_ticket += 1
        return self._last_ticket

    def push(self, at: float, entry: Host[T] | Address[T]) -> None:
        """Enters a host or address; any entry it had before is stale from now on."""
        entry.ticket = self.new_ticket()
        heapq.heappush(self._heap, (at, entry.ticket, entry))

    def pop(self, now: float) -> Host[T] | Address[T] | None:
        """Takes out the first entry whose time has come."""
        while self._heap and self._heap[0][0] <= now:
            _, ticket, entry = heapq.heappop(self._heap)
            if entry.ticket == ticket:
                return entry
        return None

    def next_at(self, is_idle: Callable[[Host[T] | Address[T]], bool]) -> float | None:
        """The time of the first entry that is neither stale nor idle; those before it are taken out."""
        while self._heap:
            at, ticket, entry = self._heap[0]
            if entry.ticket == ticket:
                if not is_idle(entry):
                    return at
                entry.ticket = 0
            heapq.heappop(self._heap)
        return None
