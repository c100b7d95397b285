"""Several hosts on one server: how many requests an address takes at once, and how close together.

Decides whether a host that may start must stand in line for its address, and who goes next from a line. An address
with a line has one entry on the agenda unless its cap is reached, when the next request to end puts it there: so a
request costs O(log hosts) however many hosts share the address.
"""

from __future__ import annotations

from typing import Generic

from spindle.config import UNLIMITED, PolitenessSettings
from spindle.politeness.records import Address, Agenda, Host, T


class Addresses(Generic[T]):
    """The addresses that matter now: with a request in flight, a line, or a gap to keep."""

    def __init__(self, settings: PolitenessSettings, agenda: Agenda[T]) -> None:
        self._cap = settings.address_max_open
        self._gap_s = settings.address_gap_s
        self._agenda = agenda
        self._shares: dict[str, int] = {}  # address -> tasks that hold it, where there are several
        self._by_name: dict[str, Address[T]] = {}

    def share(self, name: str, tasks: int) -> None:
        """So many tasks hold this address: here it takes its part of the cap, at least one, and keeps their gaps."""
        if tasks > 1:
            self._shares[name] = tasks

    def admits(self, name: str, now: float) -> bool:
        """Whether a request to this address may start now."""
        address = self._by_name.get(name)
        return address is None or self._has_room(address, now)

    def unless_in_line(self, host: Host[T], now: float) -> Host[T] | None:
        """The host, if its address has room for it; or else it stands in line there."""
        address = self._by_name.get(host.address) if host.address else None
        if address is None or (not address.line and self._has_room(address, now)):
            return host
        host.ticket = self._agenda.new_ticket()
        address.line.append((host.ticket, host))
        self._schedule(address)
        return None

    def let_go(self, address: Address[T], now: float) -> Host[T] | None:
        """The first host of the line of an address whose entry has come up, if there is room for it."""
        address.ticket = 0
        host = address.first_in_line() if self._has_room(address, now) else None
        if host is None:
            self._schedule(address)
        else:
            address.line.popleft()
        return host

    def enter(self, host: Host[T], now: float) -> None:
        """Counts a request that starts now; -math.inf: one that had started before its address was known."""
        if host.address is None:
            return
        address = self._by_name.get(host.address)
        if address is None:
            address = self._by_name[host.address] = Address(host.address)
        before = address.start_ok_at
        address.open += 1
        address.start_ok_at = max(before, now + self._gap_of(address.name))
        host.entered = (address, before, address.start_ok_at)
        self._schedule(address)

    def leave(self, host: Host[T], now: float | None) -> None:
        """Counts a request out that ended now; None: there was none after all, and its start is taken back."""
        if host.entered is None:
            return
        (address, before, after), host.entered = host.entered, None
        address.open -= 1
        if now is not None:
            address.end_ok_at = max(address.end_ok_at, now + self._gap_of(address.name))
        elif address.start_ok_at == after > before:
            address.start_ok_at = before
            address.ticket = 0  # its entry, if any, would come up too late
        if not address.open and not address.line and self._gap_s == 0:
            del self._by_name[address.name]
        self._schedule(address)

    def _has_room(self, address: Address[T], now: float) -> bool:
        return self._below_cap(address) and address.next_ok_at <= now

    def _below_cap(self, address: Address[T]) -> bool:
        return self._cap == UNLIMITED or address.open < max(1, self._cap // self._shares.get(address.name, 1))

    def _gap_of(self, name: str) -> float:
        return self._gap_s * self._shares.get(name, 1) if self._gap_s else 0.0

    def _schedule(self, address: Address[T]) -> None:
        if address.line and not address.ticket and self._below_cap(address):
            self._agenda.push(address.next_ok_at, address)
