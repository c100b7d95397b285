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

from lxml import etree

from spindle import charset
from spindle.errors import UrlRejected
from spindle.urls import resolve
from spindle.webdate import normal_date

MAX_URLS = 50_000  # sitemaps.org protocol
MAX_BYTES = 52_428_800  # the same, uncompressed

_FREQUENCIES = frozenset({"always", "hourly", "daily", "weekly", "monthly", "yearly", "never"})
_KINDS = {"urlset": "urlset", "sitemapindex": "index", "rss": "rss", "rdf": "rss", "feed": "atom"}
_ITEMS = {"urlset": "url", "index": "sitemap", "rss": "item", "atom": "entry"}
_CLAIMS = {"pubdate": "lastmod", "date": "lastmod", "updated": "lastmod", "published": "lastmod", "id": "guid"}
#: Namespaces whose elements count; others (images, videos, news, XInclude) are somebody else's.
_OURS = re.compile(
    r"sitemaps\.org/|google\.com/schemas/sitemap/\d|rdf-syntax-ns|purl\.org/(rss|dc|atom)/|netscape\.com/rdf/|w3\.org/2005/atom",
    re.IGNORECASE,
)
_FOREIGN_PREFIXES = ("image", "video", "news", "mobile", "xhtml", "xi", "media", "geo", "pagemap", "content")
_MAY_BE_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|/")  # absolute, as the protocol asks, or nearly
_BARE_AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#\d{1,7}|#x[0-9A-Fa-f]{1,6});)")
_PIECE = 1 << 20  # characters given to the parser at a time


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
    kind = _read_xml(text, made) if text.startswith("<") else _read_lines(text, made)
    truncated = len(whole) > MAX_BYTES or made.unfinished
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
        self.unfinished = False

    def add(self, claims: dict[str, str]) -> None:
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

    def _entry(self, loc: str, claims: dict[str, str]) -> Entry:
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


def _read_lines(text: str, made: _Builder) -> str:
    """A text sitemap: one absolute URL a line, nothing else believed."""
    for line in text.splitlines():
        if line.strip().lower().startswith(("http://", "https://")):
            made.add({"loc": line})
        elif line.strip():
            made.rejected["not_absolute"] += 1
    if not made.entries:
        raise SitemapError("no_urls")
    return "text"


def _read_xml(text: str, made: _Builder) -> str:
    text = _with_whole_ampersands(_with_marked_prefixes(text))
    target = _Reader(made)
    parser = etree.XMLParser(
        target=target,  # type: ignore[arg-type]  # the stubs also ask for what a reader need not have
        recover=True,
        resolve_entities=False,
        no_network=True,
        huge_tree=True,
        encoding="utf-8",
    )
    try:
        for place in range(0, len(text), _PIECE):
            parser.feed(text[place : place + _PIECE].encode("utf-8", "replace"))
        parser.close()
    except etree.XMLSyntaxError:
        made.unfinished = True
    target.end_of_file(whole_word="<" in text[text.rfind(">") :])
    if target.kind is None:
        raise SitemapError("not_sitemap")
    return target.kind


def _with_whole_ampersands(text: str) -> str:
    """A bare "&" as the "&amp;" that was meant: `?a=1&b=2` is the commonest fault, and the XML parser would drop "&b".

    Entities that XML does not define end up as text as well, so that none is ever looked up.
    """
    first, *rest = text.split("<![CDATA[")
    parts = [_BARE_AMPERSAND.sub("&amp;", first)]
    for part in rest:
        inside, end, after = part.partition("]]>")
        parts.append(inside + end + _BARE_AMPERSAND.sub("&amp;", after))
    return "<![CDATA[".join(parts)


def _with_marked_prefixes(text: str) -> str:
    """<image:loc> without its xmlns as <image-loc>: the parser would take it for <loc>."""
    for prefix in _FOREIGN_PREFIXES:
        if f"<{prefix}:" in text and f"xmlns:{prefix}" not in text:
            text = text.replace(f"<{prefix}:", f"<{prefix}-").replace(f"</{prefix}:", f"</{prefix}-")
    return text


class _Reader:
    """Told of each tag and text by the XML parser; knows where it is by the names of the open elements."""

    def __init__(self, made: _Builder) -> None:
        self.kind: str | None = None
        self._made = made
        self._open: list[str] = []  # local names in lower case; "" for elements that are not ours
        self._claims: dict[str, str] = {}
        self._text: list[str] = []

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        name = _local(tag)
        if not self._open:
            self.kind = _KINDS.get(name)
        self._open.append(name)
        self._text = []
        if name == "link" and self.kind == "atom" and self._is_claim():
            self._atom_link(attributes)

    def data(self, text: str) -> None:
        self._text.append(text)

    def end(self, tag: str) -> None:
        if self._open[-2:-1] != ["loc"]:  # <loc><url>...</url></loc>: the text is the loc's
            self._take()
        name = self._open.pop()
        if self.kind and name == _ITEMS[self.kind] and "loc" not in self._open:
            self._flush()

    def close(self) -> None:
        """Nothing to hand over; lxml asks for it."""

    def end_of_file(self, whole_word: bool) -> None:
        """The file may have ended in the middle; a text that did not see its end tag begin may be half a URL."""
        if self._open:
            self._made.unfinished = True
            if whole_word:
                self._take()
        self._flush()

    def _is_claim(self) -> bool:
        """Whether the innermost element is a child of an item."""
        return self.kind is not None and self._open[-2:-1] == [_ITEMS[self.kind]]

    def _take(self) -> None:
        """The text of the innermost element, if it claims something."""
        text, self._text = "".join(self._text).strip(), []
        if not text or not self._is_claim():
            return
        name = self._open[-1]
        if name == "loc" or (name == "link" and self.kind == "rss"):
            if "loc" in self._claims:  # several <loc> in one item
                self._flush()
            self._claims["loc"] = text
        else:
            self._claims.setdefault(_CLAIMS.get(name, name), text)

    def _atom_link(self, attributes: dict[str, str]) -> None:
        if attributes.get("rel", "alternate") == "alternate" and "loc" not in self._claims and "href" in attributes:
            self._claims["loc"] = attributes["href"]

    def _flush(self) -> None:
        claims, self._claims = self._claims, {}
        if "loc" not in claims and claims.get("guid", "").lower().startswith(("http://", "https://")):
            claims["loc"] = claims["guid"]
        if "loc" in claims:
            self._made.add(claims)


def _local(tag: str) -> str:
    """The local name in lower case, or "" when the namespace is somebody else's."""
    if tag.startswith("{"):
        space, _, name = tag[1:].partition("}")
        return name.lower() if not space or _OURS.search(space) else ""
    return tag.lower()
