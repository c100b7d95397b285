"""What servers of the wild do to a client, as scripts for `loopback`'s raw pages: one table, told to a single GET
(test_fetcher_client) and to a whole task (test_hostile_web)."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from typing import Any

from spindle.outcome import Outcome


def drip(*pieces: bytes, every_s: float = 0.1, endless: bytes | None = None) -> Callable[[socket.socket], None]:
    """Sends pieces slowly; then `endless` again and again, or nothing more, with the connection kept open."""

    def script(connection: socket.socket) -> None:
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(every_s)
        until = time.monotonic() + 8
        while time.monotonic() < until:
            if endless is not None:
                connection.sendall(endless)
            time.sleep(every_s)

    return script


def flood(head: bytes, chunk: bytes, limit: int = 300 << 20) -> Callable[[socket.socket], None]:
    """Sends as fast as it can, until the other side hangs up."""

    def script(connection: socket.socket) -> None:
        connection.sendall(head)
        for _ in range(limit // len(chunk)):
            connection.sendall(chunk)

    return script


def reset(*pieces: bytes) -> Callable[[socket.socket], None]:
    """Sends, then RST instead of FIN."""

    def script(connection: socket.socket) -> None:
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(0.1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()

    return script


OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
T, P, C = Outcome.TIMEOUT, Outcome.PROTOCOL_ERROR, Outcome.CONNECT_ERROR

# what the server does; status; failure; truncated; body (None: not looked at); why
HOSTILE: list[tuple[str, Any, int | None, Outcome | None, str | None, bytes | None]] = [
    ("accepts and is silent", drip(), None, T, None, b""),
    ("headers, then silence", drip(OK + b"Content-Length: 9\r\n\r\nab"), 200, T, "time", b"ab"),
    ("one byte every 100 ms", drip(OK + b"Content-Length: 1000\r\n\r\n", endless=b"x"), 200, T, "time", None),
    ("headers without end, slowly", drip(OK, endless=b"X-A: b\r\n"), None, T, None, b""),
    ("headers without end, fast", flood(OK, b"X-A: b\r\n" * 1000), None, P, None, b""),
    ("one header line without end", flood(OK + b"X-A: ", b"b" * 65536), None, P, None, b""),
    ("a status line without end", flood(b"HTTP/1.1 200 ", b"O" * 65536), None, P, None, b""),
    ("100 Continue without end", flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100), None, T, None, b""),
    ("a body without end", flood(OK + b"\r\n", b"x" * 65536), 200, None, "length", b"x" * 100_000),
    ("chunks without end", flood(CHUNKED, b"400\r\n" + b"x" * 1024 + b"\r\n"), 200, None, "length", b"x" * 100_000),
    ("chunks of one byte without end", flood(CHUNKED, b"1\r\nx\r\n" * 1000), 200, None, "length", b"x" * 100_000),
    ("a chunk that promises 16 EB", flood(CHUNKED + b"ffffffffffffffff\r\n", b"x" * 65536), None, None, None, None),
    ("a length that is too long", OK + b"Content-Length: 500\r\n\r\n" + b"y" * 120, 200, P, "disconnect", b"y" * 120),
    ("a length that is too short", OK + b"Content-Length: 3\r\n\r\nabcdef", None, None, None, None),
    ("a negative length", OK + b"Content-Length: -1\r\n\r\nabc", None, P, None, b""),
    ("two different lengths", OK + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", None, P, None, b""),
    ("two equal lengths", OK + b"Content-Length: 2\r\n" * 2 + b"\r\nab", None, P, None, b""),
    ("chunks without the last one", CHUNKED + b"3\r\nabc\r\n", 200, P, "disconnect", b"abc"),
    ("a broken chunk size", CHUNKED + b"3\r\nabc\r\nzz\r\n", None, P, None, None),
    ("no length, then the end", OK + b"\r\nabc", 200, None, None, b"abc"),
    ("RST before any answer", reset(), None, C, None, b""),
    ("RST in the headers", reset(OK), None, C, None, b""),
    ("RST in the body", reset(OK + b"Content-Length: 99\r\n\r\nabc"), 200, P, "disconnect", b"abc"),
    ("closes without an answer", b"", None, C, None, b""),
    ("no status line", b"<html>hello</html>", None, P, None, b""),
    ("an SSH server", b"SSH-2.0-OpenSSH_9.2\r\n", None, P, None, b""),
    ("a status that is no number", b"HTTP/1.1 abc OK\r\n\r\n", None, P, None, b""),
    ("a status without a reason", b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", 200, None, None, b"ok"),
    ("status 999", b"HTTP/1.1 999 No\r\nContent-Length: 2\r\n\r\nno", 999, None, None, b"no"),
    ("HTTP/1.0", b"HTTP/1.0 200 OK\r\n\r\nold", 200, None, None, b"old"),
    ("204 with a body", b"HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\nabc", None, None, None, None),
    ("204", b"HTTP/1.1 204 No Content\r\n\r\n", 204, None, None, b""),
    ("206 although nobody asked", b"HTTP/1.1 206 Partial\r\nContent-Length: 3\r\n\r\nabc", 206, None, None, b"abc"),
    (
        "103, then 200",
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK + b"Content-Length: 1\r\n\r\na",
        200,
        None,
        None,
        b"a",
    ),
    ("101 Switching", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\nxx", 101, None, None, None),
    ("a space before the colon", OK + b'P3P : CP="x"\r\nContent-Length: 1\r\n\r\na', None, None, None, None),
    ("a control byte in a header", OK + b"X: a\x01b\r\nContent-Length: 1\r\n\r\na", None, None, None, None),
    ("a NUL in a header", OK + b"X: a\x00b\r\nContent-Length: 1\r\n\r\na", None, P, None, b""),
    ("300 headers", OK + b"X: y\r\n" * 300 + b"\r\n", None, P, None, b""),
    ("a header of 10 MB", OK + b"X: " + b"y" * (10 << 20) + b"\r\n\r\n", None, P, None, b""),
    ("an unknown transfer coding", OK + b"Transfer-Encoding: foo\r\n\r\nabc", None, None, None, None),
]
