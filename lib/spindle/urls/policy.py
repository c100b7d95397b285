"""The normalisation policy: what a crawler should not tell apart although browsers do.

Alone decides which URLs are one. What is below, and NORMALIZATION_VERSION with it, may change only together with
`spindle rekey`. The policy, version 1, on top of the WHATWG form (white space, backslashes, dot segments, IPv4 forms,
IDNA, default ports and escapes of the host are settled there):

 - http and https only; the fragment goes; user name and password go, they must enter no table, log or WARC.
 - One trailing dot of the host goes. Refused is a host that DNS cannot hold (RFC 1035 2.3.4), or with characters
   other than letters, digits, "-" and "_": a quote was missing in the HTML, and no such name resolves.
 - Escapes: upper-case hex; unreserved characters (RFC 3986 2.3) bare; a stray "%" is "%25"; what RFC 3986 does not
   allow bare is escaped. Reserved characters stay as they came: "%26" and "&" may be two pages.
 - The query: empty pieces go, and with the last of them the "?". Tracking and session parameters go. The rest is
   sorted by name, stable, so that the values of one name keep their order. Session ids in the path go (";sid=").
 - Kept, since servers do tell them apart: case of the path, "//", index.html, trailing "/", "www.", "+" and "%20".
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable
from functools import lru_cache

from spindle.config import UrlSettings
from spindle.errors import ConfigError, UrlRejected
from spindle.urls.whatwg import resolve

#: Raised with every change that gives any URL another spelling; stored in the warehouse.
NORMALIZATION_VERSION = 1

UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")  # RFC 3986 2.3
_FORBIDDEN = "[]|\\^`{}"  # bare in path or query by WHATWG, not by RFC 3986 3.3 and 3.4
_HEX = "0123456789ABCDEFabcdef"
_CANONICAL = {
    "%" + high + low: chr(byte) if (byte := int(high + low, 16)) in UNRESERVED else f"%{byte:02X}"
    for high in _HEX
    for low in _HEX
} | {char: f"%{ord(char):02X}" for char in "%" + _FORBIDDEN}
_ODD = re.compile(r"%(?:[0-9A-Fa-f]{2})?|[][|\\^`{}]")
_EVEN = re.compile(r"[^][%|\\^`{}]*")  # no _ODD in it, seen four times as fast
_HOST = re.compile(r"(?:[a-z0-9_-]{1,63}\.)*[a-z0-9_-]{1,63}|\[[0-9a-f:]+\]")
_PATH_PARAM = re.compile(r";([^;/=]*)=([^;/]*)")


class Policy:
    """The policy under given settings, a pure function of the WHATWG form.

    Raises:
        ConfigError: a parameter pattern or a host of the settings cannot be understood.
    """

    def __init__(self, settings: UrlSettings) -> None:
        self.max_length = settings.max_length
        self._sorts = settings.sort_query
        self._unsorted_hosts = frozenset(_config_host(host, "sort_query_except") for host in settings.sort_query_except)
        self._session = Names(settings.session_params, "session_params")
        self._dropped = Names(settings.tracking_params, "tracking_params") | self._session
        self._kept = _kept_names(settings.keep_params)
        #: Whether the host has a say in the query.
        self.knows_hosts = bool(self._unsorted_hosts or self._kept)

    def apply(self, href: str) -> str:
        """The one spelling of a URL that `whatwg.resolve` gave.

        Raises:
            UrlRejected: scheme, bad_host or too_long.
        """
        scheme, _, rest = href.partition("://")
        if scheme not in ("http", "https"):
            raise UrlRejected("scheme", "only http and https are fetched")
        authority, _, tail = rest.partition("#")[0].partition("/")
        host, port = _normal_authority(authority.rpartition("@")[2])
        origin = f"{scheme}://{host}{port}"
        path, _, query = _canonical("/" + tail).partition("?")
        url = origin + self._path(origin, host, path)
        if query and (query := self.query(host, query)):
            url += "?" + query
        if len(url) > self.max_length:
            raise UrlRejected("too_long", f"{len(url)} characters, more than url.max_length = {self.max_length}")
        return url

    def asks_value(self, name: str) -> bool:
        """Whether a parameter of this name is dropped for some values only."""
        return self._dropped.match(name) and not self._dropped.match(name, "")

    def query(self, host: str, query: str) -> str:
        """The canonical query after parameters were dropped and sorted, without "?"."""
        pieces = [piece for piece in query.split("&") if piece and not self._drops(host, piece)]
        if len(pieces) > 1 and self._sorts and not _under(host, self._unsorted_hosts):
            pieces.sort(key=lambda piece: piece.partition("=")[0])
        return "&".join(pieces)

    def _path(self, origin: str, host: str, path: str) -> str:
        if ";" not in path:
            return path

        def unless_session(match: re.Match[str]) -> str:
            return "" if self._session.match(match[1], match[2]) and not self._keeps(host, match[1]) else match[0]

        shorter = _PATH_PARAM.sub(unless_session, path)
        if shorter != path and "/." in shorter:  # "/..;sid=1/" has become a dot segment
            return "/" + resolve(origin + shorter).partition("://")[2].partition("/")[2]
        return shorter

    def _drops(self, host: str, piece: str) -> bool:
        name, _, value = piece.partition("=")
        return self._dropped.match(name, value) and not self._keeps(host, name)

    def _keeps(self, host: str, name: str) -> bool:
        return any(names.match(name) for kept, names in self._kept.items() if _under(host, (kept,)))


class Names:
    """Parameter names, compared without case: `name`, `beginning*`, `name:16` (only if its value looks like an id)."""

    def __init__(self, patterns: Iterable[str], key: str) -> None:
        self._exact: dict[str, int] = {}
        self._beginnings: dict[str, int] = {}
        for pattern in patterns:
            match = re.fullmatch(r"([^\s*:&=;]+)(\*?)(?::([0-9]{1,4}))?", pattern)
            if match is None:
                raise ConfigError(f"url.{key}: {pattern!r}: expected name, beginning* or name:least-length")
            group = self._beginnings if match[2] else self._exact
            group[match[1].lower()] = int(match[3] or 0)
        self._any_beginning = tuple(self._beginnings)

    def __or__(self, other: Names) -> Names:
        both = Names((), "")
        both._exact = {**self._exact, **other._exact}
        both._beginnings = {**self._beginnings, **other._beginnings}
        both._any_beginning = tuple(both._beginnings)
        return both

    def match(self, name: str, value: str | None = None) -> bool:
        """Whether a parameter is meant; without a value, whether it may be."""
        name = name.lower()
        least = self._exact.get(name)
        if least is None:
            if not name.startswith(self._any_beginning):
                return False
            least = next(length for beginning, length in self._beginnings.items() if name.startswith(beginning))
        return not least or value is None or _looks_like_id(value, least)


def normalize_host(host: str) -> str:
    """The normal form of a host name that a person wrote: lower case, punycode, no trailing dot, no port.

    Raises:
        UrlRejected: bad_host.
    """
    if not re.search(r"[/\\?#@]|:[^]]*$", host):
        try:
            authority = resolve(f"https://{host}/").partition("://")[2].partition("/")[0]
        except UrlRejected:
            authority = ""
        return _normal_authority(authority)[0]
    raise UrlRejected("bad_host", "not a host name")


def policy_digest(settings: UrlSettings) -> str:
    """SHA-256 (hex) of all that decides a URL's spelling; where it differs from the warehouse's, rekey first."""
    facts = {"version": NORMALIZATION_VERSION, **dataclasses.asdict(settings)}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


@lru_cache(maxsize=100_000)
def _normal_authority(authority: str) -> tuple[str, str]:
    """Host and port (with its colon, or "") in normal form."""
    host, colon, port = authority.rpartition(":")
    if not colon or port.endswith("]"):
        host, colon, port = authority, "", ""
    host = host.removesuffix(".")
    if len(host) > 253 or not _HOST.fullmatch(host):
        raise UrlRejected("bad_host", "not a name that DNS can hold")
    return host, colon + port


def _canonical(text: str) -> str:
    return text if _EVEN.fullmatch(text) else _ODD.sub(lambda match: _CANONICAL[match[0]], text)


def _looks_like_id(value: str, least: int) -> bool:
    return len(value) >= least and value.isalnum() and any(char.isdigit() for char in value)


def _under(host: str, parents: Iterable[str]) -> bool:
    return any(host == parent or host.endswith("." + parent) for parent in parents)


def _kept_names(pairs: Iterable[str]) -> dict[str, Names]:
    names: dict[str, list[str]] = {}
    for pair in pairs:
        host, colon, name = pair.rpartition(":")
        if not colon:
            raise ConfigError(f"url.keep_params: {pair!r}: expected host:parameter")
        names.setdefault(_config_host(host, "keep_params"), []).append(name)
    return {host: Names(patterns, "keep_params") for host, patterns in names.items()}


def _config_host(host: str, key: str) -> str:
    try:
        return normalize_host(host)
    except UrlRejected:
        raise ConfigError(f"url.{key}: {host!r} is not a host name") from None
