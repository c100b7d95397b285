"""The one door to HTTP: a GET goes out byte for byte as it was asked, and comes back as one flat `Answer`.

This file decides how a request is sent and bounded (deadlines, rate, sizes) and translates every foreign error into an
outcome; it never raises for what a server did. It follows no redirect, keeps no cookie and repeats nothing: when and
what to fetch is the task's business. How bytes travel is `wire`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from time import monotonic
from types import TracebackType
from typing import Any

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

from spindle.coding import ACCEPT_ENCODING
from spindle.config import FetchSettings, Settings
from spindle.errors import ConfigError
from spindle.fetcher.addresses import AddressRule
from spindle.fetcher.answer import Answer, expire, note_head, translate
from spindle.fetcher.resolver import Resolver
from spindle.fetcher.wire import Admit, Exchange, Flight, Goal, Wire, current, goal_of, tls
from spindle.outcome import Outcome

ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.5"

_RATE_GRACE_S = 10.0  # before a transfer's rate is judged
_LARGE_BYTES = 1 << 20  # a body beyond this needs one of a few places, so that many of them cannot fill the memory
_LARGE_BODIES = 8


Wanted = Callable[[int, str | None], bool]  # (status, content type) -> whether to read the body


class Client:
    """Sends GETs. Use as an async context manager, inside the loop it shall live in.

    `clock` gives the time that answers carry; deadlines run by the monotonic clock.
    """

    def __init__(self, settings: Settings, resolver: Resolver, rule: AddressRule, clock: Callable[[], float]) -> None:
        self._settings, self._fetch, self._clock = settings, settings.fetch, clock
        self._flights: dict[asyncio.Task[Any], Flight] = {}
        self._large = asyncio.Semaphore(_LARGE_BODIES)
        self._wire = Wire(rule, resolver, settings.fetch)
        fixed = {"User-Agent": settings.agent.user_agent, "Accept": ACCEPT, "Accept-Encoding": ACCEPT_ENCODING}
        self._fixed = "".join(f"{name}: {value}\r\n" for name, value in fixed.items())
        if not (self._fixed.isascii() and self._fixed.replace("\r\n", "").isprintable()):
            raise ConfigError(f"agent: {settings.agent.user_agent!r} is no header; printable ASCII only")
        self._lax_hosts = frozenset(host.lower() for host in settings.fetch.tls_unverified_hosts)
        self._lax = tls(verify=False) if self._lax_hosts else None
        self._sweeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Client:
        self._sweeper = asyncio.create_task(self._sweep())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        await self._wire.close()

    async def get(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        max_bytes: int,
        wanted: Wanted | None = None,
        last: bool = False,
        admit: Admit | None = None,
    ) -> Answer:
        """GET a normalised URL. At most `max_bytes` of the body are read; none if `wanted` says so.

        `last`: nothing more is planned for this host, so that server and client may close the connection.
        `admit` is asked before a new connection is opened; a kept one is used without a question.
        """
        answer = Answer(url, self._clock(), request=self._head_of(url, headers, last))
        task = asyncio.current_task()
        assert task is not None
        now = monotonic()
        flight = self._flights[task] = Flight(now, now, admit=admit)
        current.set(flight)
        try:
            await self._exchange(answer, flight, max_bytes, wanted)
        except asyncio.CancelledError:
            if flight.expired is None:
                raise
            task.uncancel()
            expire(answer, flight.expired)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, HttpProcessingError) as error:
            if flight.expired is not None:  # the cancellation came out as another error
                while task.cancelling():
                    task.uncancel()
                expire(answer, flight.expired)
            else:
                translate(error, answer, connected=flight.connected is not None, reused=flight.reused)
                answer.refused = flight.refused and flight.connected is None
        finally:
            del self._flights[task]
            answer.ip = answer.ip or flight.ip
            answer.duration_s = monotonic() - flight.started
            answer.ended_at = answer.started_at + answer.duration_s
        return answer

    def _head_of(self, url: str, headers: Mapping[str, str] | None, last: bool) -> bytes:
        """The bytes of the request, as they are sent and recorded."""
        origin_end = url.index("/", 8)
        host, rest = url[url.index("://") + 3 : origin_end], url[origin_end:]
        more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        if last:
            more += "Connection: close\r\n"
        return f"GET {rest} HTTP/1.1\r\nHost: {host}\r\n{self._fixed}{more}\r\n".encode()

    async def _exchange(self, answer: Answer, flight: Flight, max_bytes: int, wanted: Wanted | None) -> None:
        exchange = await self._wire.send(self._goal_of(answer.url), answer.request)
        try:
            now = monotonic()
            flight.body_since = flight.progress = now
            answer.ttfb_s = now - flight.started
            size = note_head(answer, exchange.message)
            if size > self._fetch.max_header_bytes:
                answer.failure, answer.error = Outcome.PROTOCOL_ERROR, f"header of {size} bytes"
                answer.body_skipped = True
            elif wanted is not None and not wanted(exchange.message.code, answer.header(b"content-type")):
                answer.body_skipped = True
            if answer.body_skipped:
                exchange.close()
            else:
                await self._read_body(answer, flight, exchange, max_bytes)
        except BaseException:
            exchange.close()
            raise
        else:
            exchange.release()

    def _goal_of(self, url: str) -> Goal:
        goal = goal_of(url[: url.index("/", 8)], True)
        if self._lax is not None and _is_under(goal.host, self._lax_hosts):
            return goal_of(url[: url.index("/", 8)], self._lax)
        return goal

    async def _read_body(self, answer: Answer, flight: Flight, exchange: Exchange, max_bytes: int) -> None:
        """Collect the body into the answer, cut at `max_bytes`; what has come stays there when reading fails."""
        content, chunks, held = exchange.body, [], False
        try:
            while chunk := await content.readany():
                chunks.append(chunk)
                flight.received += len(chunk)
                flight.progress = monotonic()
                if flight.received > max_bytes:
                    answer.truncated = "length"
                    exchange.close()
                    break
                if flight.received > _LARGE_BYTES and not held:
                    held = await self._take_place(flight)
        finally:
            if held:
                self._large.release()
            body = b"".join(chunks) if len(chunks) != 1 else chunks[0]
            answer.body = body[:max_bytes]

    async def _take_place(self, flight: Flight) -> bool:
        """Wait for a place among the large bodies; the wait is taken off the flight's account."""
        flight.waiting, since = True, monotonic()
        try:
            await self._large.acquire()
        finally:
            waited = monotonic() - since
            flight.waiting = False
            flight.started += waited
            flight.progress = monotonic()
            if flight.body_since is not None:
                flight.body_since += waited
        return True

    async def _sweep(self) -> None:
        """Every deadline in one place: a timer object a request costs 14 % (research/fetch.md section 1)."""
        limits = self._fetch
        pause = min(1.0, min(limits.total_timeout_s, limits.connect_timeout_s, limits.read_timeout_s) / 8)
        while True:
            await asyncio.sleep(pause)
            now = monotonic()
            for task, flight in list(self._flights.items()):
                if flight.expired is None and (reason := _overdue(flight, now, limits)):
                    flight.expired = reason
                    task.cancel()


def _overdue(flight: Flight, now: float, limits: FetchSettings) -> str | None:
    if flight.waiting:
        return None
    if now - flight.started > limits.total_timeout_s:
        return f"no end within {limits.total_timeout_s:g} s"
    if flight.connected is None:
        late = now - flight.started > limits.connect_timeout_s
        return f"no connection within {limits.connect_timeout_s:g} s" if late else None
    if now - flight.progress > limits.read_timeout_s:
        return f"silent for {limits.read_timeout_s:g} s"
    if flight.body_since is not None and (elapsed := now - flight.body_since) > _RATE_GRACE_S:
        rate = flight.received / elapsed
        return f"{rate:.0f} bytes/s" if rate < limits.min_rate_bytes_s else None
    return None


def _is_under(host: str, parents: frozenset[str]) -> bool:
    """Whether the host, or one it is a subdomain of, is among `parents`."""
    while host not in parents and "." in host:
        host = host.partition(".")[2]
    return host in parents
