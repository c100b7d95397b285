"""Sitemaps and feeds: urlset, index, text, RSS and Atom, plain or gzipped, sloppy or right, whole or cut off.

This file alone decides what such a file lists. Nothing is fetched, no entity expanded, no XInclude followed. What the
file claims (lastmod, changefreq, priority) is handed on as a claim: the caller has the clock, and later fetches show
what it is worth. `located` tells whether the location rule holds; the caller decides whom it believes (a sitemap that
the host's own robots.txt names may list other hosts: sitemaps.org, "Sitemaps & Cross Submits").
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from spindle import charset, sitemapxml
from spindle.errors import UrlRejected
from spindle.sitemapxml import Claims, Reading
from spindle.urls import resolve
from spindle.webdate import normal_date

MAX_URLS = 50_000  # sitemaps.org protocol
MAX_BYTES = 52_428_800  # the same, uncompressed

_FREQUENCIES = frozenset({"always", "hourly", "daily", "weekly", "monthly", "yearly", "never"})
_MAY_BE_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|/")  # absolute, as the protocol asks, or nearly


class SitemapError(ValueError):
    """Not a sitemap or feed. `reason`: empty, not_gzip, not_sitemap (another root element) or no_urls (plain text)."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Entry(NamedTuple):
    """One URL as a browser serialises it. `lastmod` as `webdate.normal_date` writes it; `priority` 0..1.

    `located`: same scheme, host and port as the sitemap and below its folder (sitemaps.org, "Sitemap file location").
    """

    loc: str
    lastmod: str | None = None
    changefreq: str | None = None
    priority: float | None = None
    located: bool = True


@dataclass(frozen=True, slots=True)
class Sitemap:
    """`kind`: urlset, index, text, rss or atom. An index has `sitemaps` and no `urls`.

    rejected: entries without a usable URL, by `urls.REJECT_REASONS`; duplicates too. cut: entries past MAX_URLS.
    truncated: the file was longer than MAX_BYTES or ended too early.
    """

    kind: str
    urls: tuple[Entry, ...] = ()
    sitemaps: list[str] = field(default_factory=list)
    rejected: dict[str, int] = field(default_factory=dict)
    cut: int = 0
    truncated: bool = False


def parse(body: bytes, url: str) -> Sitemap:
    """What the file at `url` lists.

    Raises:
        SitemapError: it is none. Broken XML is none only if nothing before the fault was a sitemap.
    """
    whole = _inflated(body) if body.startswith(b"\x1f\x8b") else body
    text = charset.decode(whole[:MAX_BYTES], "application/xml").text.lstrip()
    if not text:
        raise SitemapError("empty")
    made = _Builder(url)
    kind, unfinished = sitemapxml.read(text, made.add) if text.startswith("<") else _read_lines(text, made)
    if kind is None:
        raise SitemapError("not_sitemap")
    truncated = len(whole) > MAX_BYTES or unfinished
    entries = tuple(made.entries.values())
    if kind == "index":
        return Sitemap(kind, (), [entry.loc for entry in entries], dict(made.rejected), made.cut, truncated)
    return Sitemap(kind, entries, [], dict(made.rejected), made.cut, truncated)


def _inflated(body: bytes) -> bytes:
    """At most MAX_BYTES + 1 of the content, of all members; what is damaged ends it."""
    parts, room = [], MAX_BYTES + 1
    while body and room:
        inflater = zlib.decompressobj(31)
        try:
            parts.append(inflater.decompress(body, room))
        except zlib.error:
            break
        room -= len(parts[-1])
        body = inflater.unused_data
    if not parts:
        raise SitemapError("not_gzip")
    return b"".join(parts)


class _Builder:
    """Takes claims in, makes entries of them."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._folder = resolve(url).partition("?")[0].rpartition("/")[0] + "/"
        self.entries: dict[str, Entry] = {}
        self.rejected: Counter[str] = Counter()
        self.cut = 0

    def add(self, claims: Claims) -> None:
        claimed = claims["loc"].strip()
        try:
            if not _MAY_BE_URL.match(claimed):
                raise UrlRejected("not_absolute")
            loc = resolve(claimed, self._url)
            if not loc.startswith(("http://", "https://")):
                raise UrlRejected("scheme")
        except UrlRejected as error:
            self.rejected[error.reason] += 1
            return
        if loc in self.entries:
            self.rejected["duplicate"] += 1
        elif len(self.entries) >= MAX_URLS:
            self.cut += 1
        else:
            self.entries[loc] = self._entry(loc, claims)

    def _entry(self, loc: str, claims: Claims) -> Entry:
        frequency = claims.get("changefreq", "").strip().lower()
        return Entry(
            loc,
            normal_date(claims.get("lastmod")),
            frequency if frequency in _FREQUENCIES else None,
            _priority(claims.get("priority", "")),
            loc.startswith(self._folder),
        )


def _priority(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= 1 else None


def _read_lines(text: str, made: _Builder) -> Reading:
    """A text sitemap: one absolute URL a line, nothing else believed."""
    for line in text.splitlines():
        if line.strip().lower().startswith(("http://", "https://")):
            made.add({"loc": line})
        elif line.strip():
            made.rejected["not_absolute"] += 1
    if not made.entries:
        raise SitemapError("no_urls")
    return Reading("text", False)
