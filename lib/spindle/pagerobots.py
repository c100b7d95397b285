"""What a page says to robots about itself: <meta name=robots> and X-Robots-Tag, for everybody and for us.

This file alone reads those directives. Both sources count, and the stricter wins (Google's documented rule; there is
no standard). It decides nothing about single links.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

#: Directives with a value of their own behind a colon: no names of robots.
_VALUED = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})
_AGENT = re.compile(r"\s*([a-z0-9_.*-]+)\s*:(.*)", re.IGNORECASE | re.DOTALL)


class RobotsFlags(NamedTuple):
    """`said`: the directives that were obeyed, as `meta:noindex` or `header:nofollow`, in their order."""

    noindex: bool = False
    nofollow: bool = False
    noarchive: bool = False
    said: tuple[str, ...] = ()


def flags(metas: Iterable[tuple[str, str]], header: str | None, token: str) -> RobotsFlags:
    """The flags of a page. `metas`: (name, content) of its metas; `header`: X-Robots-Tag, several joined by "," or
    line ends; None or nothing for a source that is switched off.
    """
    ours = ("robots", token.lower())
    said = [f"meta:{word}" for name, content in metas if name.strip().lower() in ours for word in _words(content)]
    said += [f"header:{word}" for word in _of_header(header or "", token.lower())]
    words = {directive.partition(":")[2] for directive in said}
    none = "none" in words
    return RobotsFlags(
        none or "noindex" in words,
        none or "nofollow" in words,
        "noarchive" in words,
        tuple(dict.fromkeys(directive for directive in said if directive.partition(":")[2] in _OBEYED)),
    )


_OBEYED = frozenset({"none", "noindex", "nofollow", "noarchive"})


def _words(content: str) -> list[str]:
    return [word for word in re.split(r"[\s,;]+", content.lower()) if word]


def _of_header(header: str, token: str) -> list[str]:
    """Directives for everybody and for us; after `name:` they are that robot's until another name or the line's end."""
    found = []
    for line in header.splitlines():
        agent = "*"
        for piece in line.split(","):
            if (match := _AGENT.match(piece)) and match[1].lower() not in _VALUED:
                agent, piece = match[1].lower(), match[2]
            if agent in ("*", "robots", token):
                found += _words(piece)
    return found
