"""The links of a page: which elements link, with what base, how they are folded, counted and cut.

This file alone decides that. What a URL is belongs to `urls`, which of them are worth a row to the parse job. Every
link that is not kept is counted under a reason: those of `urls.REJECT_REASONS`, and `self`, `duplicate`,
`page_nofollow`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from selectolax.lexbor import LexborNode

from spindle.errors import UrlRejected
from spindle.htmltree import Element
from spindle.pagetext import is_of_article
from spindle.refresh import parse_refresh
from spindle.urls import Normalizer, Target, resolve

_FEED_TYPES = frozenset({"application/rss+xml", "application/atom+xml", "application/rdf+xml"})
_LINK_RELS = {
    "canonical": "canonical",
    "next": "next",
    "prev": "prev",
    "previous": "prev",
    "amphtml": "amphtml",
    "alternate": "alternate",
}
_SOURCES = {"a": "href", "area": "href", "iframe": "src", "frame": "src"}
_FRAMES = frozenset({"iframe", "frame"})  # what stands in them is no anchor
CONTENT = "content"
_POSITIONS = {"nav": "navigation", "header": "navigation", "aside": "navigation", "footer": "footer"}
_PLACED = ",".join(("a", *_POSITIONS))
_ANCHOR_SCAN = 10  # times the anchor's length is read for it: the rest is white space, or too much
_new = tuple.__new__  # a third cheaper than the constructor, for each link of each page
_BATCH = 2000  # links normalised at a time, so that a page of a million costs what its first thousands cost


class Link(NamedTuple):
    """`rel` says how the page links: a, area, frame, iframe, refresh, form, or next, prev, alternate, canonical,
    amphtml of a <link>. `nofollow`: every one of the page's links to this URL says so. `anchor`: the first that is
    not empty. `position`: navigation, footer or content, the last if any of them stands there; None for what has no
    place on the page.
    """

    url: str
    anchor: str
    nofollow: bool
    rel: str
    key: int
    host: str
    position: str | None = None


class Candidate(NamedTuple):
    """An href as it stands in the page."""

    href: str
    rel: str
    nofollow: bool
    node: LexborNode | None  # whose text is the anchor
    feed: bool = False
    position: str | None = None


@dataclass(slots=True)
class Found:
    """The links of a page in its order, each URL once."""

    links: dict[str, Link] = field(default_factory=dict)
    rejected: Counter[str] = field(default_factory=Counter)
    cut: int = 0  # links that were not looked at: the page had its full number
    canonical: str | None = None
    feeds: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LinkRules:
    """What holds for the links of any page."""

    normalizer: Normalizer
    max_links: int
    anchor_chars: int
    forms: bool


def base_of(elements: Iterable[Element], url: str) -> str:
    """The page's base URL: the first <base> with an http(s) href, itself resolved against the page (HTML 4.2.3)."""
    for name, node in elements:
        href = node.attributes.get("href") if name == "base" else None
        if href is not None:
            try:
                base = resolve(href.strip(), url)
            except UrlRejected:
                continue
            if base.startswith(("http://", "https://")):
                return base
    return url


def candidates(elements: Iterable[Element], forms: bool) -> Iterator[Candidate]:
    """Every href that counts, in page order."""
    elements = list(elements)
    position, source_of = _places(elements).get, _SOURCES.get
    for name, node in elements:
        if (source := source_of(name)) is not None:
            attributes = node.attributes
            href = attributes.get(source)
            if href is None and source not in attributes and not (href := attributes.get("xlink:href")):  # SVG
                continue
            nofollow = "rel" in attributes and "nofollow" in (attributes["rel"] or "").lower().split()
            href = href or ""
            text_of = None if name in _FRAMES else node
            yield _new(Candidate, (href, name, nofollow, text_of, False, position(node.mem_id, CONTENT)))
        elif name == "link":
            yield from _of_link(node.attributes)
        elif name == "meta":
            yield from _of_meta(node.attributes)
        elif name == "form" and forms:
            yield from _of_form(node.attributes)


def _places(elements: Iterable[Element]) -> dict[int, str]:
    """Position of the <a>s below the elements that a site repeats, of such in such the outermost, so that each <a> is
    looked at once. What stands in a <header> of an article is the article's own."""
    places: dict[int, str] = {}
    for name, node in elements:
        place = _POSITIONS.get(name)
        if place and node.mem_id not in places and not (name == "header" and is_of_article(node)):
            places |= {inner.mem_id: place for inner in node.css(_PLACED)}
    return places


def _of_link(attributes: dict[str, str | None]) -> Iterator[Candidate]:
    href = attributes.get("href")
    rels = (attributes.get("rel") or "").lower().split()
    kind = next((_LINK_RELS[rel] for rel in rels if rel in _LINK_RELS), None)
    if href and kind and "stylesheet" not in rels:
        essence = (attributes.get("type") or "").split(";")[0].strip().lower()
        yield Candidate(href, kind, "nofollow" in rels, None, "alternate" in rels and essence in _FEED_TYPES)


def _of_meta(attributes: dict[str, str | None]) -> Iterator[Candidate]:
    if (attributes.get("http-equiv") or "").strip().lower() == "refresh":
        refresh = parse_refresh(attributes.get("content") or "")
        if refresh and refresh.url:
            yield Candidate(refresh.url, "refresh", False, None)


def _of_form(attributes: dict[str, str | None]) -> Iterator[Candidate]:
    if (attributes.get("method") or "get").strip().lower() == "get" and attributes.get("action"):
        yield Candidate(attributes["action"] or "", "form", False, None)


def collect(found: Sequence[Candidate], base: str, url: str, encoding: str, rules: LinkRules) -> Found:
    """The page's links: normalised, folded, without those to itself (`url`, normalised), at most `max_links`.

    `encoding`: the label in which browsers escape the queries of this page's links (WHATWG URL 4.4).
    """
    made = Found()
    for start in range(0, len(found), _BATCH):
        part = found[start : start + _BATCH]
        targets = rules.normalizer.links([candidate[0] for candidate in part], base, encoding)
        left = _take(made, zip(part, targets, strict=True), url, rules)
        if left is not None:
            made.cut = len(found) - start - len(part) + left
            break
    return made


def _take(
    made: Found, pairs: Iterable[tuple[Candidate, Target | UrlRejected]], url: str, rules: LinkRules
) -> int | None:
    """Takes links in; the number of those left when the page has its full number and there is a new one. One loop
    without calls for the ordinary link, since it is the path of all of them."""
    known, rejected, waiting, chars = made.links, made.rejected, iter(pairs), rules.anchor_chars
    scan = _ANCHOR_SCAN * chars
    for candidate, target in waiting:
        if isinstance(target, UrlRejected):
            rejected[target.reason] += 1
            continue
        goal, key, host = target
        _, rel, nofollow, node, feed, position = candidate
        if rel == "canonical" and made.canonical is None:
            made.canonical = goal
        if goal == url:
            rejected["self"] += 1
            continue
        if feed and goal not in made.feeds:
            made.feeds.append(goal)
        if goal in known:
            rejected["duplicate"] += 1
            known[goal] = _both(known[goal], candidate, rules)
            continue
        if len(known) == rules.max_links:
            return 1 + sum(1 for _ in waiting)
        anchor = "" if node is None else " ".join(node.text()[:scan].split())[:chars] or _anchor(candidate, chars)
        known[goal] = _new(Link, (goal, anchor, nofollow, rel, key, host, position))
    return None


def _both(known: Link, other: Candidate, rules: LinkRules) -> Link:
    """One link for two to the same URL."""
    position = other.position if known.position is None or other.position == CONTENT else known.position
    nofollow = known.nofollow and other.nofollow
    if known.anchor and (nofollow, position) == (known.nofollow, known.position):
        return known
    anchor = known.anchor or _anchor(other, rules.anchor_chars)
    return known._replace(anchor=anchor, nofollow=nofollow, position=position)


def _anchor(candidate: Candidate, chars: int) -> str:
    """The link's text, white space folded; that of its picture where it has none."""
    node = candidate.node
    if node is None:
        return ""
    text = " ".join(node.text()[: _ANCHOR_SCAN * chars].split())[:chars]
    if not text:
        picture = node if candidate.rel == "area" else node.css_first("img[alt]")
        text = " ".join((picture.attributes.get("alt") or "").split())[:chars] if picture is not None else ""
    return text
