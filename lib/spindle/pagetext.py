"""The words that a reader would see, without those that every page of the site shares.

This file alone decides what is boilerplate. It takes the tree apart: nobody may need it afterwards.
"""

from __future__ import annotations

from typing import NamedTuple

from selectolax.lexbor import LexborHTMLParser, LexborNode

MAX_CHARS = 2_000_000  # of text that are read; ten times what is kept, and memory stays bounded
MIN_MAIN_CHARS = 200  # a <main> with less is a shell, or the page is elsewhere

#: Never text for a reader.
_UNSEEN = ["script", "style", "noscript", "template", "svg", "iframe", "object", "select", "textarea"]
#: What a site repeats on its pages. A header inside an article is the article's own.
_REPEATED = "nav,footer,aside,header:not(main header):not(article header),[role],[hidden],[aria-hidden=true]"
_REPEATED_ROLES = frozenset({"navigation", "banner", "contentinfo", "search", "complementary", "menu", "menubar"})
_MAIN = "main,[role=main]"


class PageText(NamedTuple):
    """`content`: the page's own text, white space folded. `visible`: all that a reader sees, as it stands."""

    content: str
    visible: str


def fold(text: str) -> str:
    """White space of all kinds folded to single blanks, of the first MAX_CHARS."""
    return " ".join(text[:MAX_CHARS].split())


def extract(tree: LexborHTMLParser) -> PageText:
    """Takes what repeats out of the tree and returns what is left; all that is visible if nothing is."""
    body = tree.body
    if body is None:
        return PageText("", "")
    body.strip_tags(_UNSEEN, recursive=True)
    visible = _text(body)
    mains = body.css(_MAIN)
    if len(mains) == 1 and len(_text(mains[0])) >= MIN_MAIN_CHARS:
        body = mains[0]
    for node in body.css(_REPEATED):
        if _repeats(node):
            node.decompose()
    return PageText(fold(_text(body)) or fold(visible), visible)


def _repeats(node: LexborNode) -> bool:
    """Whether a match is boilerplate; of those with a role only some are."""
    if node.tag in ("main", "body"):
        return False
    attributes = node.attributes
    role = (attributes.get("role") or "").strip().lower()
    return not role or role in _REPEATED_ROLES or "hidden" in attributes or attributes.get("aria-hidden") == "true"


def _text(node: LexborNode) -> str:
    return node.text(separator=" ")
