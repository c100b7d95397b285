"""One GET on a connection of aiohttp's pool: our bytes go out, a head and a stream of body chunks come back.

This file decides how aiohttp is used: its connector (pool, TLS, happy eyeballs) and its response parser, but not
`ClientSession`, whose work for each request (headers as a multidict, cookies, hooks, a hidden second try:
aio-libs/aiohttp#10790) costs as much as all of ours, and may change what goes out. Whether an address may be connected
to is asked here, when a socket is about to be made. Deadlines are `client`'s business.
"""

from __future__ import annotations

import asyncio
import asyncio.sslproto
import socket
import ssl
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from time import monotonic
from typing import Any

import aiohttp
import yarl
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection

from spindle.config import FetchSettings
from spindle.fetcher.addresses import AddressRule
from spindle.fetcher.resolver import BlockedAddress, Resolver

_MAX_FIELDS = 256  # header lines of an answer
_READ_BYTES = 1 << 16  # that the parser holds before it lets the socket wait
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=None)

Admit = Callable[[str], bool]  # address -> whether a connection may be opened there now


@dataclass(slots=True)
class Flight:
    """A request on its way; times of the monotonic clock."""

    started: float
    progress: float
    connected: float | None = None
    reused: bool = False
    body_since: float | None = None
    received: int = 0
    waiting: bool = False  # for a place among the large bodies; the server is not to blame
    ip: str | None = None
    expired: str | None = None
    admit: Admit | None = None
    refused: bool = False


current: ContextVar[Flight] = ContextVar("flight")  # inherited by the tasks that race for a connection


class Goal:
    """Where a request goes, in the terms in which aiohttp's connector asks a request for it."""

    __slots__ = ("connection_key", "host", "port", "proxy", "server_hostname", "ssl", "url")

    def __init__(self, origin: str, checks: ssl.SSLContext | bool) -> None:
        self.url = yarl.URL(origin, encoded=True)
        self.host, self.port, self.ssl = self.url.raw_host or "", self.url.port, checks
        self.proxy = self.server_hostname = None
        self.connection_key = ConnectionKey(self.host, self.port, self.is_ssl(), checks, None, None, None, None)

    def is_ssl(self) -> bool:
        return self.url.scheme == "https"


goal_of = lru_cache(4096)(Goal)


class Exchange:
    """An answer whose head has come. `message` has version, code, reason and raw_headers; `body` is a stream."""

    __slots__ = ("_connection", "body", "message")

    def __init__(self, connection: Connection, message: Any, body: Any) -> None:
        self._connection, self.message, self.body = connection, message, body

    def close(self) -> None:
        """Nothing more of this connection is wanted."""
        self._connection.close()

    def release(self) -> None:
        """Back into the pool with the connection; one that is not at its answer's end is closed there."""
        self._connection.release()


class Wire:
    """Sends requests. Make it in the loop that it shall live in."""

    def __init__(self, rule: AddressRule, resolver: Resolver, limits: FetchSettings) -> None:
        asyncio.sslproto.SSLProtocol.max_size = 32 * 1024  # 256 KiB a connection otherwise
        self._connector = _Connector(rule, resolver, limits)
        self._max_bytes = limits.max_header_bytes

    async def send(self, goal: Goal, request: bytes) -> Exchange:
        """Send a request's bytes as they are, once, and wait for the head of its answer.

        Raises:
            aiohttp.ClientError, OSError: no connection, or it broke. HttpProcessingError: no HTTP came back.
        """
        connection = await self._connector.connect(goal, [], _NO_TIMEOUT)
        try:
            protocol = connection.protocol
            if protocol is None or protocol.transport is None or protocol.transport.is_closing():
                raise aiohttp.ClientConnectionResetError("the connection was closed before the request")
            protocol.set_response_params(
                read_until_eof=True,
                auto_decompress=False,
                read_bufsize=_READ_BYTES,
                max_line_size=self._max_bytes,
                max_field_size=self._max_bytes,
                max_headers=_MAX_FIELDS,
            )
            protocol.transport.write(request)
            message, body = await protocol.read()
            while 100 <= message.code <= 199 and message.code != 101:  # RFC 9110 15.2: the answer is still to come
                message, body = await protocol.read()
        except BaseException:
            connection.close()
            raise
        return Exchange(connection, message, body)

    async def close(self) -> None:
        await self._connector.close()


class _Connector(aiohttp.TCPConnector):
    """Notes when and where a request got its connection, and refuses addresses when a socket is about to be made."""

    def __init__(self, rule: AddressRule, resolver: Resolver, limits: FetchSettings) -> None:
        self._rule, self._sockets_made = rule, 0
        super().__init__(
            limit=0,
            resolver=resolver,
            use_dns_cache=False,
            keepalive_timeout=limits.keep_dead_connections_s,
            ssl=tls(limits.verify_tls),
            socket_factory=self._make_socket,
        )

    def _make_socket(self, info: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, _, address = info
        if not self._rule.permits(address[0]):
            raise BlockedAddress(f"{address[0]}: not a public address")
        flight = current.get()
        if flight.admit is not None and not flight.admit(address[0]):
            flight.refused = True
            raise ConnectionRefusedError(f"{address[0]}: as many requests as it may have")
        self._sockets_made += 1
        return socket.socket(family, kind, protocol)

    async def connect(self, req: Any, traces: list[Any], timeout: aiohttp.ClientTimeout) -> Connection:
        before = self._sockets_made
        connection = await super().connect(req, traces, timeout)
        flight = current.get()
        # A kept connection is handed out without a pause, so no other request can have made a socket meanwhile.
        flight.reused = self._sockets_made == before
        flight.connected = flight.progress = monotonic()
        peer = connection.transport.get_extra_info("peername") if connection.transport else None
        flight.ip = peer[0] if peer else None
        return connection


def tls(verify: bool) -> ssl.SSLContext:
    """Made for each task, so that SSL_CERT_FILE and the system's authorities count as they are now."""
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context
