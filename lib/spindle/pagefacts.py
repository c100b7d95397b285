"""What a page says about itself besides text and links: title, description, language, dates, Open Graph, JSON-LD.

This file alone decides which of several statements is believed. It fetches nothing and checks nothing against others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from selectolax.lexbor import LexborHTMLParser

from spindle.htmltree import Element
from spindle.webdate import normal_date

MAX_CHARS = 2000  # of a title or description
_JSON_CHARS = 262_144  # of one JSON-LD script; longer ones are product catalogues
_JSON_SCRIPTS = 8
_JSON_NODES = 1000
_PROPERTIES, _NAME_CHARS = 50, 100  # of Open Graph; a page may make up as many as it likes
_DETECT_CHARS = 600  # of text for language detection; more changes the verdict rarely and costs linearly
_DETECT_MIN_CHARS = 60

_LANGUAGE = re.compile(r"([A-Za-z]{2,3})(?:[-_][A-Za-z0-9]{1,8})*")
#: Metas in the order in which they are believed; names and properties alike.
_PUBLISHED = ("article:published_time", "og:article:published_time", "datepublished", "date", "dc.date", "pubdate")
_MODIFIED = ("article:modified_time", "og:updated_time", "datemodified", "last-modified", "dcterms.modified")
_APP_ROOTS = (
    "#root:empty,#app:empty,#__next:empty,#__nuxt:empty,#___gatsby:empty,app-root:empty,[ng-app],[data-reactroot]:empty"
)
_SVG = frozenset({"svg", "g", "symbol", "a", "path", "use", "defs"})  # parents of titles of pictures
MIN_WORDS_WITHOUT_JS = 25  # a page with as many words has something to say to everybody


Metas = dict[str, list[str]]


def metas_of(elements: Iterable[Element]) -> list[tuple[str, str]]:
    """(name, property, itemprop or http-equiv; content) of the metas among the elements, in page order."""
    found = []
    for element, node in elements:
        if element == "meta":
            attributes = node.attributes
            content = attributes.get("content")
            if content is not None:
                names = (attributes.get(key) for key in ("name", "property", "itemprop", "http-equiv"))
                found += [(name.strip().lower(), content) for name in names if name]
    return found


def by_name(metas: Iterable[tuple[str, str]]) -> Metas:
    """The contents of each name, in page order."""
    known: Metas = {}
    for name, content in metas:
        known.setdefault(name, []).append(content)
    return known


def first(metas: Metas, *names: str) -> str | None:
    """The first content that is not blank under the first of the names that has one; white space folded."""
    for name in names:
        if name in metas and (text := next(filter(None, map(_short, metas[name])), None)):
            return text
    return None


def title_of(elements: Iterable[Element], metas: Metas) -> str | None:
    """The document's title (HTML 3.1.3: the first <title>, but not an SVG's), else Open Graph's."""
    for name, node in elements:
        if name == "title" and (node.parent is None or node.parent.tag not in _SVG) and (text := _short(node.text())):
            return text
    return first(metas, "og:title")


def declared_language(tree: LexborHTMLParser, metas: Metas) -> str | None:
    """The primary subtag (RFC 5646 2.2.1) of what the page declares, in lower case."""
    attributes = tree.root.attributes if tree.root else {}
    told = (attributes.get("lang"), attributes.get("xml:lang"), first(metas, "content-language", "og:locale"))
    for text in told:
        if text and (match := _LANGUAGE.fullmatch(text.split(",")[0].strip())):
            return match[1].lower()
    return None


def detected_language(text: str) -> str | None:
    """The likeliest language (ISO 639-1) of enough text, or None."""
    sample = text[:_DETECT_CHARS]
    if len(sample) < _DETECT_MIN_CHARS:
        return None
    language = str(_identifier()(sample)[0])
    return None if language in ("zxx", "und", "mul") else language  # no language, unknown, several: ISO 639-2


@cache
def _identifier() -> Any:
    from py3langid import classify  # type: ignore[import-untyped]  # its model takes half a second to load

    return classify


def published(metas: Metas, linked: Mapping[str, str]) -> str | None:
    return _date(metas, _PUBLISHED, linked.get("datePublished"))


def modified(metas: Metas, linked: Mapping[str, str]) -> str | None:
    return _date(metas, _MODIFIED, linked.get("dateModified"))


def _date(metas: Metas, names: tuple[str, ...], linked: str | None) -> str | None:
    told = [linked, *(content for name in names if name in metas for content in metas[name])]
    return next((date for text in told if (date := normal_date(text))), None)


def open_graph(metas: Metas) -> dict[str, str]:
    """The first value of each og: property, of the first _PROPERTIES."""
    graph: dict[str, str] = {}
    for name in metas:
        if name.startswith("og:") and len(graph) < _PROPERTIES and (text := first(metas, name)):
            graph.setdefault(_short(name[3:])[:_NAME_CHARS], text)
    return graph


def linked_data(tree: LexborHTMLParser) -> dict[str, str]:
    """Of the page's JSON-LD the first @type, headline and dates; what is no JSON gives nothing."""
    found: dict[str, str] = {}
    for script in tree.css('script[type="application/ld+json" i]')[:_JSON_SCRIPTS]:
        text = script.text()
        if len(text) <= _JSON_CHARS:
            for thing in _things(text):
                for key in ("@type", "headline", "datePublished", "dateModified"):
                    if isinstance(value := thing.get(key), str) and (value := _short(value)):
                        found.setdefault(key, value)
    return found


def _things(text: str) -> Iterator[dict[str, Any]]:
    """The objects of a JSON text, outer ones first."""
    try:
        waiting = [json.loads(text)]
    except (ValueError, RecursionError):
        return
    for _ in range(_JSON_NODES):
        if not waiting:
            return
        thing = waiting.pop(0)
        if isinstance(thing, dict):
            yield thing
            waiting += [value for value in thing.values() if isinstance(value, dict | list)]
        elif isinstance(thing, list):
            waiting += thing[:_JSON_NODES]


def needs_js(tree: LexborHTMLParser) -> bool:
    """Whether scripts write a page that has hardly a word: an empty element where the common frameworks mount, or a
    <noscript> that talks of JavaScript. The tree must be whole.
    """
    if not tree.css("script"):
        return False
    told = " ".join(node.text() for node in tree.css("noscript")[:8]).lower()
    return "javascript" in told or bool(tree.css(_APP_ROOTS))


def _short(text: str) -> str:
    """White space folded, cut, and without what cannot be stored but JSON can spell: NUL and halves of characters."""
    text = " ".join(text[: 10 * MAX_CHARS].split())[:MAX_CHARS]
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
