"""Names to addresses: the hosts file first, then the system's resolver, off the loop and within a time limit.

This file decides how long an answer or a failure is remembered and how many look-ups run at once; which addresses are
allowed is `addresses`' decision. One resolver belongs to one loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from aiohttp.abc import AbstractResolver, ResolveResult

from spindle.config import NetworkSettings
from spindle.errors import ConfigError
from spindle.fetcher.addresses import AddressRule

Lookup = Callable[[str], list[str]]  # name -> addresses; blocks; raises OSError

_LOOKUPS = 256  # threads at most; a dead name server holds each of its own, and no name waits behind another's


class NameNotFound(OSError):
    """The name has no address (or none was found in time)."""


class BlockedAddress(OSError):
    """The address is outside the public internet and not in network.allow_addresses."""


@dataclass(frozen=True, slots=True)
class HostsFile:
    """Lines `address[:port] name...`; `*.name` stands for every name below `name`; `#` begins a comment."""

    names: dict[str, tuple[str, int | None]]
    below: dict[str, tuple[str, int | None]]

    @classmethod
    def parse(cls, text: str, place: str) -> HostsFile:
        """Raises ConfigError with the line that cannot be read."""
        names: dict[str, tuple[str, int | None]] = {}
        below: dict[str, tuple[str, int | None]] = {}
        for number, line in enumerate(text.splitlines(), 1):
            where, *hosts = line.partition("#")[0].split() or [""]
            if not where:
                continue
            target = _target(where)
            if target is None or not hosts:
                raise ConfigError(f"{place}, line {number}: expected `address[:port] name`, found {line.strip()!r}")
            for host in hosts:
                (below if host.startswith("*.") else names)[host.removeprefix("*.").lower().rstrip(".")] = target
        return cls(names, below)

    def find(self, host: str) -> tuple[str, int | None] | None:
        found = self.names.get(host)
        parent = host
        while found is None and "." in parent and self.below:
            parent = parent.partition(".")[2]
            found = self.below.get(parent)
        return found


class Resolver(AbstractResolver):
    """aiohttp's resolver. `lookup` is the blocking call (tests script it); `timeout_s` bounds one look-up."""

    def __init__(
        self,
        settings: NetworkSettings,
        rule: AddressRule,
        *,
        timeout_s: float,
        lookup: Lookup | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._rule, self._timeout_s, self._now = settings, rule, timeout_s, now
        self._lookup = lookup or system_lookup
        self._hosts = read_hosts_file(settings.hosts_file)
        self._known: OrderedDict[str, tuple[float, list[str]]] = OrderedDict()  # name -> (until, addresses or [])
        self._slots = asyncio.Semaphore(_LOOKUPS)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Addresses that may be connected to.

        Raises:
            NameNotFound: no answer, or none in time.
            BlockedAddress: answers, none of them allowed.
        """
        name = host.lower().rstrip(".")
        pinned = self._hosts.find(name)
        if pinned is not None:
            addresses, port = [pinned[0]], pinned[1] or port
        elif self._settings.hosts_file_only:
            raise NameNotFound(f"{name} is not in the hosts file (network.hosts_file_only)")
        else:
            addresses = await self._addresses(name)
        allowed = [address for address in addresses if self._rule.permits(address)]
        if not allowed:
            raise BlockedAddress(f"{name} is at {', '.join(addresses)}: not a public address")
        return [_result(host, address, port) for address in allowed]

    async def close(self) -> None:
        self._known.clear()

    async def _addresses(self, name: str) -> list[str]:
        until, addresses = self._known.get(name, (0.0, []))
        if self._now() >= until:
            addresses = await self._ask(name)
            ttl = self._settings.dns_ttl_s if addresses else self._settings.dns_negative_ttl_s
            self._known[name] = (self._now() + ttl, addresses)
            self._known.move_to_end(name)
            if len(self._known) > self._settings.dns_max_entries:
                self._known.popitem(last=False)
        if not addresses:
            raise NameNotFound(f"{name} does not resolve")
        return addresses

    async def _ask(self, name: str) -> list[str]:
        """One look-up in a thread of its own. A thread that hangs keeps its slot until it returns, and no longer."""
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._slots.acquire()
                answer: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
                threading.Thread(target=self._work, args=(name, answer), daemon=True).start()
                return await asyncio.shield(answer)
        except TimeoutError:
            return []

    def _work(self, name: str, answer: asyncio.Future[list[str]]) -> None:
        try:
            addresses = self._lookup(name)
        except (OSError, UnicodeError):  # UnicodeError: a label that IDNA refuses
            addresses = []
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            answer.get_loop().call_soon_threadsafe(self._done, answer, addresses)

    def _done(self, answer: asyncio.Future[list[str]], addresses: list[str]) -> None:
        self._slots.release()
        if not answer.done():
            answer.set_result(addresses)


def system_lookup(name: str) -> list[str]:
    """What the operating system answers, in its order, each address once."""
    answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


def read_hosts_file(path: str) -> HostsFile:
    """The file of network.hosts_file; "" is an empty one.

    Raises:
        ConfigError: it cannot be read, or a line makes no sense.
    """
    if not path:
        return HostsFile({}, {})
    try:
        return HostsFile.parse(Path(path).read_text(encoding="utf-8"), path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"network.hosts_file: cannot read {path}: {error}") from None


def _target(text: str) -> tuple[str, int | None] | None:
    """`1.2.3.4`, `1.2.3.4:80`, `::1` or `[::1]:80` as address and port."""
    address, port = text, ""
    if text.startswith("["):
        address, closed, port = text[1:].partition("]")
        if not closed or not (port == "" or port.startswith(":")):
            return None
        port = port[1:]
    elif text.count(":") == 1:
        address, _, port = text.partition(":")
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    except OSError:
        return None
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        return None
    return address, int(port) if port else None


def _result(host: str, address: str, port: int) -> ResolveResult:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=socket.AI_NUMERICHOST)
