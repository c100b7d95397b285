"""Rules that name a part of the web: a host, a registered domain, a SURT prefix, a pattern.

Alone decides how such a rule is written and what it matches; what follows from a match is `scope`'s and `sheets`'
business.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from spindle.errors import ConfigError, UrlRejected
from spindle.urls import normalize_host, surt


class Rules:
    """The rules of one list. Hosts and domains are looked up, so that block lists of any length cost the same."""

    def __init__(self, key: str, rules: Sequence[str]) -> None:
        self._hosts: set[str] = set()
        self._domains: set[str] = set()
        self._surts: list[str] = []
        self._patterns: list[re.Pattern[str]] = []
        for rule in rules:
            try:
                self._add(*rule.partition(":")[::2])
            except (ValueError, re.error) as error:
                raise ConfigError(f"{key}: {rule!r}: {error}") from None

    def first_match(self, url: str, host: str) -> str:
        """The rule that matches, as `kind:text`, or ""."""
        if host in self._hosts:
            return f"host:{host}"
        if self._domains and (parent := next((name for name in _upwards(host) if name in self._domains), "")):
            return f"domain:{parent}"
        if self._surts:
            forms = (surt(url), f"{url.partition(':')[0]}://{surt(url)}")
            if prefix := next((prefix for prefix in self._surts if any(f.startswith(prefix) for f in forms)), ""):
                return f"surt:{prefix}"
        return next((f"regex:{pattern.pattern}" for pattern in self._patterns if pattern.search(url)), "")

    def _add(self, kind: str, text: str) -> None:
        if not text:
            raise ValueError("expected host:NAME, domain:NAME, surt:PREFIX or regex:PATTERN")
        if kind in ("host", "domain"):
            (self._hosts if kind == "host" else self._domains).add(_host_name(text))
        elif kind == "surt":
            self._surts.append(_surt_prefix(text))
        elif kind == "regex":
            self._patterns.append(re.compile(text))
        else:
            raise ValueError("expected host:, domain:, surt: or regex:")


def _host_name(text: str) -> str:
    try:
        return normalize_host(text)
    except UrlRejected:
        raise ValueError("not a host name (a domain's rule takes in all below it; no `*`, port or path)") from None


def _surt_prefix(text: str) -> str:
    if not re.match(r"(https?://)?\(", text):
        raise ValueError("a SURT starts with '(' or 'http://(', for example surt:(org,example,")
    return text


def _upwards(host: str) -> Iterator[str]:
    """The host and the domains above it: a.b.c, b.c, c."""
    while host:
        yield host
        host = host.partition(".")[2]
