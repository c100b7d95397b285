"""One flat `Answer` for whatever came of a request, and the one place where aiohttp's errors become outcomes.

It sends nothing. What an outcome means for a URL is `rows`' decision.
"""

from __future__ import annotations

import errno
import ssl
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

from spindle.fetcher.resolver import BlockedAddress
from spindle.outcome import Outcome

_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL}


@dataclass(slots=True)
class Answer:
    """What one request brought. Times are of the caller's clock (seconds since the epoch), durations in seconds.

    `status` is None when no status line came; then `failure` says why. With a status, `failure` tells that the body is
    not whole (`timeout`, `protocol_error`), and `truncated` how. `body` has its transfer coding removed and its content
    coding on. `stale`: a kept connection was found closed before any answer; the server has not seen the request, or
    not answered it.
    """

    url: str
    started_at: float
    ended_at: float = 0.0
    duration_s: float = 0.0
    ttfb_s: float | None = None
    ip: str | None = None
    request: bytes = b""
    status: int | None = None
    status_line: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""
    body_skipped: bool = False
    truncated: str | None = None
    failure: Outcome | None = None
    error: str | None = None
    stale: bool = False
    refused: bool = False
    exhausted: bool = False
    fields: dict[bytes, bytes] = field(default_factory=dict)  # the headers by lower-case name, joined (RFC 9110 5.3)

    def header(self, name: bytes) -> str | None:
        """All values of a header (lower-case name) joined by ", ", or None."""
        found = self.fields.get(name)
        return None if found is None else found.decode("latin-1")


def note_head(answer: Answer, message: Any) -> int:
    """Take over status line and headers of aiohttp's RawResponseMessage; the size of the latter in bytes."""
    version = message.version
    reason = (message.reason or "").encode("utf-8", "surrogateescape")
    answer.status = message.code
    answer.status_line = b"HTTP/%d.%d %d %b" % (version.major, version.minor, message.code, reason)
    answer.headers, fields, size = message.raw_headers, answer.fields, 0
    for name, value in answer.headers:
        lower = name.lower()
        fields[lower] = fields[lower] + b", " + value if lower in fields else value
        size += len(name) + len(value) + 4
    return size


def expire(answer: Answer, reason: str) -> None:
    """A deadline has passed, for this reason."""
    answer.failure, answer.error = Outcome.TIMEOUT, reason
    if answer.status is not None:
        answer.truncated = "time"


def translate(error: Exception, answer: Answer, *, connected: bool, reused: bool) -> None:
    """Foreign errors become an outcome, once, here. `reused`: on a connection kept from an earlier request."""
    answer.failure, answer.error = _outcome_of(error), _text_of(error)
    if answer.status is not None:
        answer.truncated = "disconnect"
        if answer.failure is Outcome.CONNECT_ERROR:
            answer.failure = Outcome.PROTOCOL_ERROR  # the connection was there; the message broke off
    lost = isinstance(error, aiohttp.ClientOSError | aiohttp.ServerDisconnectedError | ConnectionError)
    answer.stale = answer.status is None and reused and lost
    cause = getattr(error, "os_error", None) or error
    answer.exhausted = not connected and getattr(cause, "errno", None) in _EXHAUSTED


def _outcome_of(error: Exception) -> Outcome:
    cause = getattr(error, "os_error", None) or error
    if isinstance(cause, BlockedAddress):
        return Outcome.BLOCKED_ADDRESS
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return Outcome.DNS_ERROR
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        return Outcome.TLS_ERROR
    if isinstance(error, TimeoutError):
        return Outcome.TIMEOUT
    if isinstance(error, aiohttp.ClientPayloadError | HttpProcessingError):
        return Outcome.PROTOCOL_ERROR
    if isinstance(error, aiohttp.ClientConnectionError | OSError):
        return Outcome.CONNECT_ERROR
    return Outcome.PROTOCOL_ERROR  # a URL or an answer that the library cannot take


def _text_of(error: Exception) -> str:
    """One short line without addresses of objects; the cause where it says more."""
    cause = getattr(error, "os_error", None) or error.__cause__ or error
    text = getattr(error, "message", "") if isinstance(error, HttpProcessingError) else str(cause)
    return " ".join(f"{type(error).__name__}: {text}".split())[:300]
