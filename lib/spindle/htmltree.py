"""From a page's text to a tree, whatever the page is.

This file alone knows how hostile markup is brought within bounds before the parser sees it, and that XHTML is XML.
The parser (lexbor, WHATWG tree rules) is linear but for two things, each quadratic: elements nested very deep (every
block start tag looks through all open elements for a <p>) and very many attributes on one tag. It knows nothing of
what the elements that it finds are for.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

import numpy as np
from lxml import etree
from selectolax.lexbor import LexborHTMLParser, LexborNode

#: What links, says something of the page, or is no text for a reader.
ELEMENTS = tuple(
    "a area iframe frame link meta base form title main nav footer aside header"  # noqa: SIM905 a list of words reads better
    " script style noscript template svg object select textarea".split()
)
MAX_DEPTH = 2000  # open elements; browsers stop at 512. 2,000 cost the parser 10 ms
MAX_ATTRIBUTES = 1000  # of one tag; 1,000 cost 3 ms
_SUSPECT_CHARS = 65_536  # nothing shorter can cost more than half a second, whatever it is
_STRIDE = 8192  # characters without a ">" that make a tag suspect of too many attributes

_new = tuple.__new__  # a third cheaper than the constructor, for each element of each page
_WITHOUT_EVENTS = 1  # LexborDocumentOptions.WO_EVENTS: nobody watches this tree
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9-]*)")
_WHOLE_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9-]*)[^<>]*>?")
_START = re.compile(r"<[a-zA-Z]")
_ATTRIBUTE = re.compile(r"[\s/]*[^\s/>][^\s/>=]*(?:\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s\"'>][^\s>]*)?)?")
_XHTML = re.compile(r"<html[^>]{0,1000}http://www\.w3\.org/1999/xhtml|<!DOCTYPE\s+html", re.IGNORECASE)

#: By the character after "<": a start tag, an end tag, or neither.
_STEP_OF = np.array([chr(code).isalpha() and code < 0x80 for code in range(256)], dtype=np.int8)
_STEP_OF[ord("/")] = -1

#: Elements that end themselves, or that the next of their kind ends, so that they do not nest.
_NOT_NESTING = frozenset(
    "area base br col embed hr img input link meta param source track wbr p li dt dd option optgroup tr td th thead"  # noqa: SIM905 a list of words reads better
    " tbody tfoot a button nobr rp rt body html head".split()
)
#: What is left of a page that nests too deep: enough to find its links, its head and what is not text.
_KEPT = frozenset(
    "a area base link meta iframe frame frameset form title script style noscript template textarea".split()  # noqa: SIM905
)


def parse(text: str, xml: bool = False) -> LexborHTMLParser:
    """The tree of a page; never raises. `xml`: it came as an XML media type."""
    if xml:
        text = _as_html(text) or text
    return LexborHTMLParser(tame(text), options=_WITHOUT_EVENTS)


class Element(NamedTuple):
    """An element that somebody looks at, and its name."""

    name: str
    node: LexborNode


def elements(tree: LexborHTMLParser) -> list[Element]:
    """The elements of ELEMENTS in page order, found in one walk; a selector would pay for each name by itself."""
    root = tree.root
    if root is None:
        return []
    known = _names().get
    return [_new(Element, (name, node)) for node in root.traverse() if (name := known(node.tag_id)) is not None]


@cache
def _names() -> dict[int, str]:
    """The parser's numbers of the names, as it gives them itself."""
    numbers = {}
    for name in ELEMENTS:
        markup = f"<frameset><{name}>" if name == "frame" else f"<{name}>"
        numbers[LexborHTMLParser(markup).css(name)[0].tag_id] = name
    return numbers


def tame(text: str) -> str:
    """The same text unless parsing it would take quadratic time: then flat, or with its endless tags cut."""
    if len(text) <= _SUSPECT_CHARS:
        return text
    if _balance(text) > MAX_DEPTH and _nests_too_deep(text):
        text = _WHOLE_TAG.sub(lambda tag: tag[0] if tag[2].lower() in _KEPT else " ", text)
    return _with_short_tags(text)


def _balance(text: str) -> int:
    """The most start tags ever ahead of end tags: at least the depth where tags match, far more where <p> and <br> stay
    open. A look at all tags costs ten times as much, so this one goes first.
    """
    codes = np.frombuffer(text.encode("latin-1", "replace") + b" ", dtype=np.uint8)
    after = codes[np.flatnonzero(codes[:-1] == ord("<")) + 1]
    steps = _STEP_OF[after]
    height = np.cumsum(steps[steps != 0], dtype=np.int32)
    return int((height - np.minimum.accumulate(height)).max(initial=0))


def _nests_too_deep(text: str) -> bool:
    """Counted for each kind of element, so that wrong end tags hide nothing."""
    open_now: dict[str, int] = {}
    depth = 0
    for tag in _TAG.finditer(text):
        end, name = tag.groups()
        name = name.lower()
        if name in _NOT_NESTING:
            continue
        count = open_now.get(name, 0)
        if not end:
            open_now[name] = count + 1
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif count:
            open_now[name] = count - 1
            depth -= 1
    return False


def _with_short_tags(text: str) -> str:
    """Attributes after the thousandth are cut out of their tag."""
    kept, done, looked = [], 0, 0
    for place in range(0, len(text) - _STRIDE, _STRIDE):
        if place < looked or text.find(">", place, place + _STRIDE) >= 0:
            continue
        tag = _START.search(text, max(looked, text.rfind(">", looked, place) + 1), place + _STRIDE)
        looked = place + _STRIDE - 1
        if tag:
            cut = _attributes_end(text, tag.start(), MAX_ATTRIBUTES)
            kept.append(text[done:cut])
            done = looked = _attributes_end(text, cut, len(text))
    return "".join(kept) + text[done:] if kept else text


def _attributes_end(text: str, place: int, count: int) -> int:
    while count and (attribute := _ATTRIBUTE.match(text, place)):
        place, count = attribute.end(), count - 1
    return place


def _as_html(text: str) -> str | None:
    """XHTML as HTML markup, so that <script/> and <a/> end where XML ends them; None if it is not well-formed XHTML.

    No entity is expanded, no DTD read, nothing fetched.
    """
    if not _XHTML.search(text[:4096]):
        return None
    try:
        parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, encoding="utf-8")
        root = etree.fromstring(text.encode("utf-8", "replace"), parser)
        return etree.tostring(root, method="html", encoding="unicode")
    except (etree.XMLSyntaxError, ValueError):
        return None
