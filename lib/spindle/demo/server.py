"""The sockets of the demo web: one listening socket for each address, keep-alive, a control port, the log.

Decides when bytes go out and what is logged; `respond` decides which bytes, `wire` how they are framed. Loopback only.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import socket
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from spindle.demo import wire
from spindle.demo.log import Entry, RequestLog
from spindle.demo.model import World, address
from spindle.demo.respond import Answer, Request, respond
from spindle.errors import InputError

_MAX_HEAD = 65_536  # bytes of request line and headers
_CLIENT_LEFT = 499
_TRIES = 20  # ports tried when the caller leaves the choice to us
Clock = Callable[[], float]


class Server:
    """A running demo web. `tick` moves by itself every `tick_s` seconds (0: never) and by `advance`."""

    def __init__(self, world: World, log: RequestLog, tick_s: float = 0.0, clock: Clock = time.monotonic) -> None:
        self.world = world
        self.port = self.admin_port = 0
        self._log, self._tick_s, self._clock = log, tick_s, clock
        self._start, self._wall = clock(), time.time()
        self._advanced = 0
        self._visits: Counter[tuple[str, str]] = Counter()
        self._servers: list[asyncio.Server] = []
        self._open: set[asyncio.Transport] = set()
        self._connections = 0

    @property
    def tick(self) -> int:
        """The world's time, which pages change by."""
        return self._advanced + (int((self._clock() - self._start) / self._tick_s) if self._tick_s else 0)

    def advance(self, ticks: int = 1) -> int:
        """Move the world's time on; the new tick."""
        self._advanced += ticks
        return self.tick

    def now(self) -> float:
        """Seconds since 1970 that never step back."""
        return self._wall + self._clock() - self._start

    def answer(self, request: Request) -> Answer:
        return respond(self.world, self._visits, request, self.tick)

    def record(self, entry: Entry) -> None:
        self._log.add(entry)

    def opened(self, transport: asyncio.Transport) -> int:
        """Note a connection; its number."""
        self._open.add(transport)
        self._connections += 1
        return self._connections

    def closed(self, transport: asyncio.Transport) -> None:
        self._open.discard(transport)

    async def listen(self, base_address: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        places = sorted({host.place for host in self.world.hosts.values()})
        sockets = _bind([address(base_address, place) for place in places], port)
        self.port = sockets[0].getsockname()[1]
        self._servers = [await loop.create_server(lambda: _Conversation(self), sock=each) for each in sockets]
        admin = await asyncio.start_server(self._control, "127.0.0.1", 0)
        self.admin_port = admin.sockets[0].getsockname()[1]
        self._servers.append(admin)

    async def close(self) -> None:
        """Stop listening, end every connection, close the log."""
        for server in self._servers:
            server.close()
        for transport in list(self._open):
            transport.abort()
        await asyncio.sleep(0)  # connections that were cut log their last request
        self._log.close()

    async def _control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """`POST /advance?ticks=2` moves the clock; anything else tells it. The answer is `{"tick": n}`."""
        method, target, *_ = [*(await reader.readline()).decode("latin-1").split(), "", ""]
        path, _, query = target.partition("?")
        steps = query.removeprefix("ticks=") or "1"
        good = path in ("/clock", "/advance") and steps.isdecimal()
        if good and method == "POST" and path == "/advance":
            self.advance(int(steps))
        body = json.dumps({"tick": self.tick} if good else {"error": "POST /advance?ticks=N, or GET /clock"}).encode()
        writer.write(
            wire.head(200 if good else 400, [("Content-Type", "application/json")], len(body), False, True) + body
        )
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()


class _Conversation(asyncio.Protocol):
    """One connection: requests one after the other, pipelined ones wait."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._buffer = b""
        self._began: float | None = None
        self._waiting: tuple[asyncio.TimerHandle, Request] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._address = transport.get_extra_info("sockname")[0]
        self._number = self._server.opened(transport)

    def data_received(self, data: bytes) -> None:
        if self._began is None:
            self._began = self._server.now()
        self._buffer += data
        if self._waiting is None:
            self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.closed(self._transport)
        if self._waiting:
            timer, request = self._waiting
            timer.cancel()
            self._record(request, _CLIENT_LEFT, 0)

    def _next(self) -> None:
        head, end, rest = self._buffer.partition(b"\r\n\r\n")
        if not end:
            if len(head) > _MAX_HEAD:
                self._transport.abort()
            return
        self._buffer = rest
        request = wire.parse(head)
        if request is None or request.method not in ("GET", "HEAD"):
            self._refuse(request)
            return
        answer = self._server.answer(request)
        if answer.delay_s:
            timer = asyncio.get_running_loop().call_later(answer.delay_s, self._send, request, answer)
            self._waiting = timer, request
        else:
            self._send(request, answer)

    def _refuse(self, request: Request | None) -> None:
        status = 405 if request else 400
        self._record(request or Request("?", "", "?", {}), status, 0)
        self._transport.write(wire.head(status, [], 0, False, True))
        self._transport.close()

    def _send(self, request: Request, answer: Answer) -> None:
        self._waiting = None
        closing = answer.cut or request.headers.get("connection", "").lower() == "close"
        sent = wire.head(answer.status, answer.headers, len(answer.body), answer.chunked, closing)
        if request.method != "HEAD":
            sent += wire.chunks(answer.body) if answer.chunked else answer.body
        if answer.cut:
            sent = sent[: len(sent) - len(answer.body) // 2]
        self._record(request, answer.status, len(sent))  # first, so that who has the answer finds it in the log
        self._transport.write(sent)
        if closing:
            self._transport.close()
        elif self._buffer:
            self._began = self._server.now()
            self._next()

    def _record(self, request: Request, status: int, sent: int) -> None:
        now, asked = self._server.now(), request.headers
        began, self._began = now if self._began is None else self._began, None
        self._server.record(
            Entry(
                t_start=began,
                t_end=now,
                host=request.host,
                method=request.method,
                path=request.target,
                status=status,
                agent=asked.get("user-agent", ""),
                if_none_match=asked.get("if-none-match", ""),
                if_modified_since=asked.get("if-modified-since", ""),
                address=self._address,
                conn=self._number,
                sent_bytes=sent,
            )
        )


def _bind(addresses: list[str], port: int) -> list[socket.socket]:
    """A listening socket for each address, all on one port. InputError if they cannot be had."""
    for _ in range(1 if port else _TRIES):
        sockets: list[socket.socket] = []
        try:
            for each in addresses:
                sockets.append(_listening(each, sockets[0].getsockname()[1] if sockets else port))
            return sockets
        except OSError as error:
            for opened in sockets:
                opened.close()
            if port or error.errno != errno.EADDRINUSE:
                raise InputError(
                    f"the demo web cannot listen on {each}, port {port or 'any'}: {error.strerror}"
                ) from error
    raise InputError(f"no port is free on all of {addresses[0]} to {addresses[-1]}")


def _listening(where: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((where, port))
        sock.listen(128)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader sees all of it or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


async def serve(
    world: World,
    *,
    log_path: Path,
    hosts_file: Path,
    base_address: str = "127.1.0.0",
    port: int = 0,
    tick_s: float = 0.0,
) -> Server:
    """Start the demo web in this event loop; it runs until `close`.

    port: of every host; 0 takes a free one. tick_s: real seconds of a tick, 0 for a clock that only `advance` moves.
    `hosts_file` (lines `address:port name`) is written last: when it is there, every host answers. Beside it stands
    `<hosts_file>.json` with pid, port, admin_port, log and seeds. Raises InputError where the sockets cannot be had and
    ValueError for addresses outside 127.0.0.0/8.
    """
    server = Server(world, RequestLog(log_path), tick_s)
    await server.listen(base_address, port)
    facts = {"pid": os.getpid(), "port": server.port, "admin_port": server.admin_port, "log": str(log_path)}
    facts |= {"seed": world.seed, "hosts": len(world.hosts), "seeds": list(world.seeds)}
    write_whole(hosts_file.with_name(hosts_file.name + ".json"), json.dumps(facts, indent=1) + "\n")
    write_whole(hosts_file, "\n".join([*world.lines_of_hosts(base_address, server.port), ""]))
    return server
