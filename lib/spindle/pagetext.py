"""The words that a reader would see, without those that every page of the site shares.

This file alone decides what is boilerplate. It takes the tree apart: nobody may need it afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable

from selectolax.lexbor import LexborHTMLParser, LexborNode

from spindle.htmltree import Element

MAX_CHARS = 2_000_000  # of text that are read; ten times what is kept, and memory stays bounded
_ANCESTORS = 12
MIN_MAIN_CHARS = 200  # a <main> with less is a shell, or the page is elsewhere

#: What `str.split` takes for white space, but the blank.
_ASCII_BLANKS = "\n\t\r\f\v\x1c\x1d\x1e\x1f"
_BLANKS = _ASCII_BLANKS + (
    "\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
#: Never text for a reader.
_UNSEEN = frozenset("script style noscript template svg iframe object select textarea".split())  # noqa: SIM905
#: What a site repeats on its pages.
_REPEATED = frozenset({"nav", "footer", "aside"})
_REPEATED_ROLES = frozenset({"navigation", "banner", "contentinfo", "search", "complementary", "menu", "menubar"})
_MARKED = "[role],[hidden],[aria-hidden=true]"


def fold(text: str) -> str:
    """White space of all kinds folded to single blanks, of the first MAX_CHARS.

    The same as split and join, at a third of their cost for text that has little of it.
    """
    text = text[:MAX_CHARS]
    for blank in _ASCII_BLANKS if text.isascii() else _BLANKS:
        if blank in text:
            text = text.replace(blank, " ")
    while "  " in text:
        text = text.replace("  ", " ")
    return text.strip()


def visible(tree: LexborHTMLParser, elements: Iterable[Element]) -> str:
    """All that a reader sees, white space folded. The tree is without scripts and the like afterwards."""
    _remove(node for name, node in elements if name in _UNSEEN)
    return _text(tree.body)


def content(tree: LexborHTMLParser, elements: list[Element], source: str) -> str:
    """The page's own text, white space folded; nothing may be left. Takes the tree apart.

    `source`: the page's markup, asked first whether a search for roles pays.
    """
    body = tree.body
    if body is None:
        return ""
    _remove(node for name, node in elements if name in _UNSEEN)
    marked = body.css(_MARKED) if "role=" in source or "hidden" in source else []
    mains = [node for name, node in elements if name == "main"] + [node for node in marked if _role(node) == "main"]
    _remove(node for name, node in elements if name in _REPEATED or (name == "header" and not is_of_article(node)))
    _remove(node for node in marked if _repeats(node))
    if len(mains) == 1 and len(text := _text(mains[0])) >= MIN_MAIN_CHARS:
        return text
    return _text(body)


def _remove(nodes: Iterable[LexborNode]) -> None:
    for node in nodes:
        node.decompose()


def is_of_article(header: LexborNode) -> bool:
    """Whether a <header> stands in the main part or an article, whose own it is; of its next ancestors only, since a
    page may have a hundred thousand headers two thousand elements deep."""
    node = header.parent
    for _ in range(_ANCESTORS):
        if node is None:
            return False
        if node.tag in ("main", "article"):
            return True
        node = node.parent
    return False


def _repeats(node: LexborNode) -> bool:
    """Whether an element that is marked by an attribute is boilerplate or hidden; of roles only some say so."""
    if node.tag in ("main", "body", "html"):
        return False
    role = _role(node)
    attributes = node.attributes
    return role in _REPEATED_ROLES or "hidden" in attributes or attributes.get("aria-hidden") == "true"


def _role(node: LexborNode) -> str:
    return (node.attributes.get("role") or "").strip().lower()


def _text(node: LexborNode | None) -> str:
    return "" if node is None else fold(node.text(separator=" ", strip=True, skip_empty=True))
