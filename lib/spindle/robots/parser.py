"""Parsing: which lines of a robots.txt speak to one crawler (RFC 9309 2.2.1, 2.2.4, 2.4, 2.5). Knows no URL.

Lenient where the RFC is (BOM, line ends, blanks, unknown lines), and exact where it is exact (names of lines, tokens):
a misspelt "Dissalow" is an unknown line.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

from spindle.robots.rules import Rules

#: RFC 9309 2.5 asks for at least 500 KiB; a file that fills it is taken as cut, and its last, broken line left out.
MAX_BYTES = 524_288
#: No window is longer than a year, and a time beyond the calendar's end would break the tables: 1e300 means this.
MAX_CRAWL_DELAY_S = 31_536_000.0

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
#: RFC 9309 2.2.1 has letters, "_" and "-"; digits are taken too, as every known parser but Google's does.
_TOKEN = re.compile(rb"[A-Za-z0-9_-]+")
_COMPATIBLE = re.compile(rb"\(compatible;\s*([A-Za-z0-9_-]+)")  # the form of RFC 9309 2.2.1, figure 1
_DELAY = re.compile(rb"(?:\d+\.?\d*|\.\d+)(?:[eE]\+?\d+)?")


class _Group:
    """What the groups of one name add up to; RFC 9309 2.2.1 merges groups of equal name."""

    __slots__ = ("crawl_delay_s", "named", "rules")

    def __init__(self) -> None:
        self.named = False
        self.rules: list[tuple[bool, bytes]] = []
        self.crawl_delay_s: float | None = None


class _Reader:
    """Takes the lines in order and gives each to the groups of ours that it belongs to: the token's, and "*"."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.ours, self.anyone = _Group(), _Group()
        self._rule_run: list[_Group] = []  # which of the two the present group names
        self._delay_run: list[_Group] = []
        self._rules_began = self._delays_began = True  # the next User-agent line starts anew

    def user_agent(self, value: bytes) -> None:
        if self._rules_began:
            self._rule_run = []
        if self._delays_began:
            self._delay_run = []
        self._rules_began = self._delays_began = False
        group = self._group_of(value)
        if group is not None:
            group.named = True
            self._rule_run = _with(self._rule_run, group)
            self._delay_run = _with(self._delay_run, group)

    def rule(self, allow: bool, value: bytes) -> None:
        self._rules_began = self._delays_began = True
        self._delay_run = self._rule_run
        for group in self._rule_run if value else ():  # an empty pattern matches nothing
            group.rules.append((allow, value))

    def crawl_delay(self, value: bytes) -> None:
        self._delays_began = True
        seconds = _delay_s(value)
        if seconds is None:
            return
        for group in self._delay_run:
            group.crawl_delay_s = max(seconds, group.crawl_delay_s or 0.0)

    def _group_of(self, value: bytes) -> _Group | None:
        if value.split(maxsplit=1)[:1] == [b"*"]:
            return self.anyone
        name = _leading_token(value)
        return self.ours if name and name == self.token else None


def _with(run: list[_Group], group: _Group) -> list[_Group]:
    """A name said twice counts once: a file that repeats "*" a thousand times must not multiply its rules."""
    return run if group in run else [*run, group]


def parse(body: bytes, user_agent: str, *, max_bytes: int = MAX_BYTES) -> Rules:
    """The rules that the robots.txt `body` holds for the crawler `user_agent`. Never raises.

    `user_agent` is a product token, or a User-Agent header that holds one (`product_token`). The groups that name it
    exactly (letter case aside) count, all together; only where there is none, those of "*" (RFC 9309 2.2.1). A Sitemap
    or unknown line ends no group (2.2.4). Crawl-delay is no part of the RFC: it holds for the names above it since the
    last rule or delay, so "User-agent: a, Crawl-delay: 9, User-agent: b" gives b no delay; of several the longest.
    """
    truncated = len(body) >= max_bytes
    reader = _Reader(product_token(user_agent))
    sitemaps: dict[str, None] = {}  # a set that keeps its order
    for key, value in _lines(body[:max_bytes], truncated):
        if key == b"allow" or key == b"disallow":
            reader.rule(key == b"allow", value)
        elif key == b"user-agent":
            reader.user_agent(value)
        elif key == b"crawl-delay":
            reader.crawl_delay(value)
        elif key == b"sitemap" and value:
            sitemaps[value.decode("utf-8", "replace")] = None
    chosen = reader.ours if reader.ours.named else reader.anyone
    return Rules(chosen.rules, chosen.crawl_delay_s, sitemaps, truncated)


def product_token(user_agent: str) -> str:
    """The product token of a User-Agent header or of itself, in lower case; "" where there is none.

    RFC 9309 2.2.1: the token is part of the header. It is taken after "(compatible;" or else from the start.
    """
    octets = user_agent.encode("utf-8", "replace")
    found = _COMPATIBLE.search(octets)
    return found[1].decode("ascii").lower() if found else _leading_token(octets)


def _leading_token(octets: bytes) -> str:
    found = _TOKEN.match(octets.lstrip())
    return found[0].decode("ascii").lower() if found else ""


def _lines(body: bytes, truncated: bool) -> Iterator[tuple[bytes, bytes]]:
    """Key (lower case) and value of each line that has a colon; comments, blanks and any line ends taken care of."""
    for bom, encoding in _BOMS:
        if body.startswith(bom):
            body = body[len(bom) :]
            if encoding != "utf-8":
                body = body.decode(encoding, "replace").encode("utf-8", "replace")
            break
    lines = body.splitlines(keepends=truncated)
    if truncated and lines and not lines[-1].endswith((b"\n", b"\r")):
        lines.pop()  # half a rule is another rule
    for line in lines:
        key, colon, value = line.partition(b"#")[0].partition(b":")
        if colon:
            yield key.strip().lower(), value.strip()


def _delay_s(value: bytes) -> float | None:
    """Seconds of a Crawl-delay, at most a year; None for what is no plain number (inf, nan, -5, 10s)."""
    return min(float(value), MAX_CRAWL_DELAY_S) if _DELAY.fullmatch(value) else None
