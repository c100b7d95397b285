"""HTTP/1.1 as bytes: a request read from its lines, the head of an answer, chunks (RFC 9112).

Decides the framing only. Written by hand because the crawler shares the machine with the demo web.
"""

from __future__ import annotations

from email.utils import formatdate
from http import HTTPStatus

from spindle.demo.respond import Request


def parse(raw: bytes) -> Request | None:
    """The request in these lines, or None where they are none. An absolute target names the host (RFC 9112 3.2.2)."""
    lines = raw.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return None
    pairs = (line.partition(":") for line in lines[1:])
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    if words[2] == "HTTP/1.0":
        headers.setdefault("connection", "close")
    host, target = headers.get("host", ""), words[1]
    if target.lower().startswith("http://"):
        host, slash, path = target[len("http://") :].partition("/")
        target = slash + path or "/"
    return Request(words[0], host.partition(":")[0].lower(), target, headers)


def head(status: int, headers: list[tuple[str, str]], length: int, chunked: bool, closing: bool) -> bytes:
    """Status line and headers, with the empty line that ends them."""
    lines = [f"HTTP/1.1 {status} {_reason(status)}", f"Date: {formatdate(usegmt=True)}", "Server: spindle-demo"]
    lines += [f"{name}: {value}" for name, value in headers]
    if status != 304:
        lines.append("Transfer-Encoding: chunked" if chunked else f"Content-Length: {length}")
    lines += ["Connection: close"] if closing else []
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


def chunks(body: bytes, size: int = 1_500) -> bytes:
    """Chunked transfer coding (RFC 9112 7.1)."""
    parts = (body[i : i + size] for i in range(0, len(body), size))
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
