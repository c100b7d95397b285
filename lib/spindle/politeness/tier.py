"""The back tier of the frontier (Mercator's): back queues of one host each, and a heap of hosts by next allowed time.

It decides which host is touched next and when, for one task; it knows nothing of URLs, robots.txt or sockets: an item
is whatever the caller put in. Told what happened, asked what to do, never wrong about the clock, since it has none.

Invariants (tests/test_politeness.py holds them against a plain model):
 1. A host has at most one request in flight.
 2. No request to a host starts before the end of its last one plus the gap in force when it starts, nor before what
    its state of an earlier turn, Retry-After or `hold` says; whether its queue ran empty in between does not matter.
 3. At most `max_open` requests are in flight, at most `address_max_open` to one known address, and none starts at an
    address within `address_gap_s` of another's start or end there.
 4. Every item put comes out exactly once: by `next`, `drop` or `drain`; a host's items keep their order.
 5. `next` says Wait only when no host may start, and until no later than that can change; Done only when nothing is
    in flight and nothing is left that this turn may still offer.

Cost per URL is O(log hosts), amortised: a host is in one place at a time, and what it leaves behind elsewhere is stale
(`records.Agenda`), so nothing is ever searched for.
`queues` bounds the hosts that are active at once, so that connections stay few and hot and the list's order counts;
the bound is soft: rather than idle, the tier activates one more host (Mercator sized its queues to the same end).
"""

from __future__ import annotations

import math
from collections import deque
from typing import Generic

from spindle.config import PolitenessSettings
from spindle.politeness.addresses import Addresses
from spindle.politeness.law import HostState, Signal, expected_seconds, gap_s
from spindle.politeness.records import Address, Agenda, Done, Host, Place, Ready, T, Wait


class BackTier(Generic[T]):
    """See the head of this file. Times and spans are seconds; `now` must not run backwards.

    `hosts_left` and `items_left` count what this turn may still do (set aside hosts apart), `in_flight` open requests.
    """

    def __init__(self, settings: PolitenessSettings, *, max_open: int, queues: int) -> None:
        self._settings = settings
        self._max_open = max_open
        self._queues = queues
        self._hosts: dict[str, Host[T]] = {}
        self._agenda: Agenda[T] = Agenda()
        self._addresses = Addresses(settings, self._agenda)
        self._waiting: deque[tuple[int, Host[T]]] = deque()
        self._active = 0
        self.hosts_left = 0
        self.items_left = 0
        self.in_flight = 0

    # --- what there is to do

    def add_host(self, host: str, state: HostState) -> None:
        """Makes a host known, with what earlier turns learned of it. Before its first item; later calls do nothing."""
        if host not in self._hosts:
            self._hosts[host] = Host(
                host,
                max(state.next_ok_at, state.backoff_until),
                state.crawl_delay_s,
                state.limit_delay_s,
                state.backoff_level,
                state.backoff_until,
                state.address,
                state.failure_streak,
            )

    def put(self, host: str, item: T) -> None:
        """Queues an item behind the others of its host. Hosts are activated in the order of their first items."""
        record = self._known(host)
        record.items.append(item)
        self._grown(record)

    def put_front(self, host: str, item: T) -> None:
        """Queues an item before the others of its host: a redirect hop, or one given back for robots.txt's sake."""
        record = self._known(host)
        record.put_front(item)
        self._grown(record)

    def drop(self, host: str) -> list[T]:
        """Takes out everything still queued of a host, in order."""
        record = self._known(host)
        items = record.take_all()
        self._arrange(record)
        return items

    def drain(self) -> list[tuple[str, T]]:
        """Takes out everything still queued, set aside hosts included."""
        return [(host, item) for host, record in self._hosts.items() if len(record) for item in self.drop(host)]

    # --- what to do, and what happened

    def next(self, now: float) -> Ready[T] | Wait | Done:
        """What to do now. After Ready, exactly one of `finished` and `release` must follow for that host."""
        if self.in_flight >= self._max_open:
            return Wait(math.inf)
        while self._active < self._queues and self._activate():
            pass
        while True:
            record = self._due(now)
            if record is not None:
                return self._depart(record, now)
            if not self._activate():
                return self._nothing_due()

    def finished(
        self,
        host: str,
        now: float,
        *,
        duration_s: float,
        signal: Signal = Signal.OK,
        retry_after_s: float | None = None,
    ) -> None:
        """A request to a host in flight has ended at `now`: its gap starts.

        THROTTLED raises the back-off a level, OK lowers it by one. `retry_after_s` holds where it is longer; beyond
        `retry_after_max_s` the host is given up for this turn, as it is after `host_failures` FAILED in a row or at as
        many levels of back-off (one deep in back-off would hold up the task, not be spared).
        """
        record = self._landed(host)
        self._addresses.leave(record, now)
        record.ended_at, record.duration_s = now, max(0.0, duration_s)
        self._learn(record, signal, max(0.0, retry_after_s or 0.0))
        self._arrange(record)

    def release(self, host: str, now: float) -> None:
        """The item needed no request after all (denied, blocked): its host leaves flight as if never asked."""
        record = self._landed(host)
        self._addresses.leave(record, None)
        self._arrange(record)

    # --- what has been learned or ordered

    def set_crawl_delay(self, host: str, delay_s: float | None) -> None:
        """The delay its robots.txt asks for; None: none."""
        record = self._known(host)
        record.crawl_delay_s = delay_s
        self._arrange(record)

    def set_limit(self, host: str, delay_s: float | None) -> None:
        """The operator's delay, which holds from now on, for a gap that has begun as well; None: none."""
        record = self._known(host)
        record.limit_delay_s = delay_s
        self._arrange(record)

    def hold(self, host: str, until: float) -> None:
        """Leaves a host alone until then; math.inf: for this turn; a time in the past ends a hold."""
        record = self._known(host)
        record.hold_until = until
        self._arrange(record)

    def set_address(self, host: str, address: str) -> None:
        """The address a host was last seen at. A request in flight counts there from now on, even above its cap."""
        record = self._known(host)
        if record.address == address:
            return
        record.address = address
        if record.place is Place.FLIGHT:
            self._addresses.leave(record, None)
            self._addresses.enter(record, -math.inf)
        else:
            self._arrange(record)

    def share_address(self, address: str, tasks: int) -> None:
        """So many tasks hold hosts at this address, this one included: each keeps to its part of the cap."""
        self._addresses.share(address, tasks)

    def admit(self, host: str, address: str, now: float) -> bool:
        """Whether a host in flight may connect to the address it has just resolved to; if so it counts there.

        If not, the address has its fill: give the item back (`put_front`, `release`), and the host stands in line.
        """
        record = self._known(host)
        if record.entered is not None and record.address == address:
            return True
        self._addresses.leave(record, None)
        record.address = address
        if not self._addresses.admits(address, now):
            return False
        self._addresses.enter(record, now)
        return True

    # --- what one may ask

    def state(self, host: str) -> HostState:
        """What is known of a host now, for the next turn."""
        record = self._known(host)
        return HostState(
            next_ok_at=max(record.not_before, record.ended_at + self._delay_s(record)),
            crawl_delay_s=record.crawl_delay_s,
            limit_delay_s=record.limit_delay_s,
            backoff_level=record.backoff_level,
            backoff_until=record.backoff_until,
            address=record.address,
            failure_streak=record.failure_streak,
        )

    def delay_s(self, host: str) -> float:
        """The gap in force: what must pass after a request of the last one's duration."""
        return self._delay_s(self._known(host))

    def given_up(self, host: str) -> bool:
        """Whether the host is left alone for the rest of this turn because of what it answered (or did not)."""
        return self._known(host).given_up

    def slowest_host(self) -> tuple[str, float] | None:
        """The host whose queue takes longest, and the estimated seconds. Looks at every host: not for every URL."""
        left = [record for record in self._hosts.values() if record.left]
        estimates = [(self._estimate_s(record), record.name) for record in left]
        seconds, host = max(estimates, default=(0.0, ""))
        return (host, seconds) if estimates else None

    # --- inside

    def _known(self, host: str) -> Host[T]:
        try:
            return self._hosts[host]
        except KeyError:
            raise KeyError(f"{host}: add_host must come first, or what earlier turns learned is forgotten") from None

    def _delay_s(self, record: Host[T]) -> float:
        return gap_s(
            self._settings,
            crawl_delay_s=record.crawl_delay_s,
            limit_delay_s=record.limit_delay_s,
            duration_s=record.duration_s,
            backoff_level=record.backoff_level,
        )

    def _learn(self, record: Host[T], signal: Signal, retry_after_s: float) -> None:
        now, settings = record.ended_at, self._settings
        record.failure_streak = record.failure_streak + 1 if signal is Signal.FAILED else 0
        if signal is Signal.THROTTLED:
            record.backoff_level += 1
        elif signal is Signal.OK and record.backoff_level:
            record.backoff_level -= 1
        asked = min(retry_after_s, settings.retry_after_max_s)
        record.not_before = now + asked
        if record.backoff_level or asked:
            record.backoff_until = now + max(asked, self._delay_s(record))
        in_a_row = {Signal.OK: 0, Signal.THROTTLED: record.backoff_level, Signal.FAILED: record.failure_streak}[signal]
        record.given_up |= in_a_row >= settings.host_failures or retry_after_s > settings.retry_after_max_s

    def _estimate_s(self, record: Host[T]) -> float:
        return expected_seconds(len(record) + (record.place is Place.FLIGHT), self._delay_s(record), record.duration_s)

    def _grown(self, record: Host[T]) -> None:
        if record.place is Place.IDLE:
            self._arrange(record)
        else:
            self._count(record)

    def _arrange(self, record: Host[T]) -> None:
        """Puts a host where its facts say it belongs, after any of them has changed."""
        self._count(record)
        if record.place is Place.FLIGHT:
            return
        if not record.counted:
            self._active -= record.place is Place.ACTIVE
            record.place, record.ticket = Place.IDLE, 0
        elif record.place is Place.ACTIVE:
            self._enter_agenda(record)
        elif record.place is Place.IDLE:
            record.place, record.ticket = Place.WAITING, self._agenda.new_ticket()
            self._waiting.append((record.ticket, record))

    def _count(self, record: Host[T]) -> None:
        items = 0 if record.set_aside else len(record)
        left = items > 0 or record.place is Place.FLIGHT
        self.items_left += items - record.counted
        self.hosts_left += left - record.left
        record.counted, record.left = items, left

    def _activate(self) -> bool:
        while self._waiting:
            ticket, record = self._waiting.popleft()
            if record.ticket == ticket:
                record.place = Place.ACTIVE
                self._active += 1
                self._enter_agenda(record)
                return True
        return False

    def _enter_agenda(self, record: Host[T]) -> None:
        ready_at = max(record.not_before, record.ended_at + self._delay_s(record), record.hold_until)
        # A host without a gap goes on at once, while its connection is hot (research/fetch.md: -17 % CPU).
        self._agenda.push(ready_at if ready_at > record.ended_at else -math.inf, record)

    def _due(self, now: float) -> Host[T] | None:
        while (entry := self._agenda.pop(now)) is not None:
            if isinstance(entry, Address):
                record = self._addresses.let_go(entry, now)
            else:
                record = self._addresses.unless_in_line(entry, now)
            if record is not None:
                return record
        return None

    def _nothing_due(self) -> Wait | Done:
        until = self._agenda.next_at(lambda entry: isinstance(entry, Address) and entry.first_in_line() is None)
        if until is not None:
            return Wait(until)
        return Wait(math.inf) if self.in_flight else Done()

    def _depart(self, record: Host[T], now: float) -> Ready[T]:
        record.place, record.ticket = Place.FLIGHT, 0
        self.in_flight += 1
        item = record.take()
        self._addresses.enter(record, now)
        self._count(record)
        return Ready(record.name, item)

    def _landed(self, host: str) -> Host[T]:
        record = self._known(host)
        if record.place is not Place.FLIGHT:
            raise ValueError(f"{host}: no request is in flight")
        record.place = Place.ACTIVE
        self.in_flight -= 1
        return record
