"""The two vocabularies of a fetch: what happened (`Outcome`) and where a URL stands (`Status`).

Both are closed; DESIGN section 2 lists them. The step from one to the other is `lifecycle`'s, not ours.
"""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    NEW = "new"
    FETCHED = "fetched"
    REDIRECTED = "redirected"
    DUPLICATE = "duplicate"
    RETRY = "retry"
    DENIED = "denied"  # by robots.txt
    GONE = "gone"
    UNSUPPORTED = "unsupported"
    DEAD = "dead"  # failures in a row


class Outcome(StrEnum):
    OK = "ok"
    NOT_MODIFIED = "not_modified"
    REDIRECT = "redirect"
    DENIED = "denied"
    NOT_FOUND = "not_found"
    GONE = "gone"
    THROTTLED = "throttled"  # 429, 503 with Retry-After
    SERVER_ERROR = "server_error"
    TIMEOUT = "timeout"
    DNS_ERROR = "dns_error"
    TLS_ERROR = "tls_error"
    CONNECT_ERROR = "connect_error"
    PROTOCOL_ERROR = "protocol_error"
    TOO_LARGE = "too_large"
    BAD_TYPE = "bad_type"
    BLOCKED_ADDRESS = "blocked_address"
    FORBIDDEN = "forbidden"  # 401, 403, 451
    CLIENT_ERROR = "client_error"
    ROBOTS_UNREACHABLE = "robots_unreachable"
    NOT_REACHED = "not_reached"  # the task ended first; costs the URL nothing


#: Outcomes that tell of the network or the host rather than of the URL; they feed "whose fault" and host back-off.
NETWORK_CLASS = frozenset({Outcome.TIMEOUT, Outcome.DNS_ERROR, Outcome.TLS_ERROR, Outcome.CONNECT_ERROR})


def of_status(http_status: int) -> Outcome:
    """The outcome that an HTTP status stands for, body aside (RFC 9110 section 15; 451: RFC 7725).

    429 and 503 both ask for less; other 5xx are the server's trouble. 2xx is `ok` (204 and 206 included: the row says
    which), 304 `not_modified`, 301/302/303/307/308 `redirect`. 1xx and the unassigned 3xx, where no target is defined,
    and anything outside 100..599 are a `protocol_error`.
    """
    exact = {
        304: Outcome.NOT_MODIFIED,
        401: Outcome.FORBIDDEN,
        403: Outcome.FORBIDDEN,
        404: Outcome.NOT_FOUND,
        410: Outcome.GONE,
        429: Outcome.THROTTLED,
        451: Outcome.FORBIDDEN,
        503: Outcome.THROTTLED,
    }
    if http_status in exact:
        return exact[http_status]
    if http_status in (301, 302, 303, 307, 308):
        return Outcome.REDIRECT
    if 200 <= http_status < 300:
        return Outcome.OK
    if 400 <= http_status < 500:
        return Outcome.CLIENT_ERROR
    return Outcome.SERVER_ERROR if 500 <= http_status < 600 else Outcome.PROTOCOL_ERROR
