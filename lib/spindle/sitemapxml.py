"""The XML of sitemaps and feeds, well-formed or not: which items it lists and what each claims.

This file alone knows the formats' elements, their namespaces and the faults that are forgiven: a bare "&", undeclared
prefixes, several <loc> in one item, <url> inside <loc>, a missing end. No entity is looked up, nothing fetched.
What a claim is worth is `sitemap`'s.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from lxml import etree

Claims = dict[str, str]  # loc, lastmod, changefreq, priority: texts as they stand

_KINDS = {"urlset": "urlset", "sitemapindex": "index", "rss": "rss", "rdf": "rss", "feed": "atom"}
_ITEMS = {"urlset": "url", "index": "sitemap", "rss": "item", "atom": "entry"}
_CLAIMS = {"pubdate": "lastmod", "date": "lastmod", "updated": "lastmod", "published": "lastmod", "id": "guid"}
#: Namespaces whose elements count; others (images, videos, news, XInclude) are somebody else's.
_OURS = re.compile(
    r"sitemaps\.org/|google\.com/schemas/sitemap/\d|rdf-syntax-ns|purl\.org/(rss|dc|atom)/|netscape\.com/rdf/|w3\.org/2005/atom",
    re.IGNORECASE,
)
_FOREIGN_PREFIXES = ("image", "video", "news", "mobile", "xhtml", "xi", "media", "geo", "pagemap", "content")
_BARE_AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#\d{1,7}|#x[0-9A-Fa-f]{1,6});)")


class Reading(NamedTuple):
    """`kind`: urlset, index, rss, atom, or None for another document. `unfinished`: it ended before its root did."""

    kind: str | None
    unfinished: bool


def read(text: str, take: Callable[[Claims], None]) -> Reading:
    """Hands the claims of each item that has a `loc` to `take`, in order; never raises for any text."""
    text = _with_whole_ampersands(_with_marked_prefixes(text))
    target = _Reader(take)
    parser = etree.XMLParser(
        target=target,  # type: ignore[arg-type]  # the stubs also ask for what a reader need not have
        recover=True,
        resolve_entities=False,
        no_network=True,
        huge_tree=True,
        encoding="utf-8",
    )
    try:
        etree.fromstring(
            text.encode("utf-8", "replace"), parser
        )  # `feed` looks for each tag's ">" to the end: quadratic
    except etree.XMLSyntaxError:
        target.unfinished = True
    target.end_of_file(whole_word="</" in text[max(text.rfind(">"), text.rfind("<")) :])
    return Reading(target.kind, target.unfinished)


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

    def __init__(self, take: Callable[[Claims], None]) -> None:
        self.kind: str | None = None
        self.unfinished = False
        self._take_item = take
        self._open: list[str] = []  # local names in lower case; "" for elements that are not ours
        self._claims: Claims = {}
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
            self._note()
        name = self._open.pop()
        if self.kind and name == _ITEMS[self.kind] and "loc" not in self._open:
            self._flush()

    def close(self) -> None:
        """Nothing to hand over; lxml asks for it."""

    def end_of_file(self, whole_word: bool) -> None:
        """The file may have ended in the middle; a text that did not see its end tag begin may be half a URL."""
        if self._open:
            self.unfinished = True
            if whole_word:
                self._note()
        self._flush()

    def _is_claim(self) -> bool:
        """Whether the innermost element is a child of an item."""
        return self.kind is not None and self._open[-2:-1] == [_ITEMS[self.kind]]

    def _note(self) -> None:
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
            self._take_item(claims)


def _local(tag: str) -> str:
    """The local name in lower case, or "" when the namespace is somebody else's."""
    if tag.startswith("{"):
        space, _, name = tag[1:].partition("}")
        return name.lower() if not space or _OURS.search(space) else ""
    return tag.lower()
