"""Pages without end: a calendar, two kinds of session ids, a relative-link loop, facets, a farm of host names.

Decides what a trap answers for any address inside it, and which addresses are inside. A trap costs a crawler as much as
it lets it; the world's truth never lists what is inside one, only the page through which it is entered.
"""

from __future__ import annotations

import random
import re
from urllib.parse import parse_qsl, urlencode, urlsplit

from spindle.demo import words
from spindle.demo.model import SESSION, UTF8, Host, Link, Resource, World
from spindle.demo.render import anchor, document, page

CALENDAR, SESSION_TRAP, PATH_SESSION, LOOP, FACETS, FARM = (
    "calendar",
    "session",
    "path_session",
    "loop",
    "facets",
    "farm",
)
#: Where each trap is entered; the entry is a page like any other.
ENTRIES = {
    CALENDAR: "/calendar/2024/01",
    SESSION_TRAP: "/account",
    PATH_SESSION: "/members/",
    LOOP: "/loop/",
    FACETS: "/browse",
}
_FACETS = ("brand", "colour", "material", "price", "size", "sort", "view")
_FACET_VALUES = ("1", "2", "3", "4")  # (4+1)^7 - 1 = 78,124 addresses, one page
_MONTH = re.compile(r"/calendar/(\d{4})/(\d\d)")
_SESSION_PATH = re.compile(r"/s/[0-9a-f]{16}(/.*)")
_LOOP = re.compile(r"/loop/(deeper/)+")


def trap_of(world: World, url: str) -> str:
    """The name of the trap that a URL is inside of, or "" for a page of the real world (entries included)."""
    parts = urlsplit(url)
    if world.farm and parts.netloc.endswith("." + world.farm):
        return FARM
    host = world.hosts.get(parts.netloc)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if host is None or path in host.resources:
        return ""
    return next((trap for trap in host.traps if _inside(trap, parts.path, parts.query)), "")


def _inside(trap: str, path: str, query: str) -> bool:
    if trap == CALENDAR:
        return _MONTH.fullmatch(path) is not None
    if trap == SESSION_TRAP:
        return SESSION in dict(parse_qsl(query))
    if trap == PATH_SESSION:
        return _SESSION_PATH.fullmatch(path) is not None
    if trap == LOOP:
        return _LOOP.fullmatch(path) is not None
    return trap == FACETS and path == "/browse" and bool(query)


def trap_page(world: World, host: Host, path: str, query: str, tick: int, visit: int) -> str | None:
    """The HTML of an address inside a trap of this host, or None."""
    trap = next((trap for trap in host.traps if _inside(trap, path, query)), "")
    if trap == CALENDAR:
        return _month(host, path)
    if trap == LOOP:
        return _simple(host, "Deeper", [Link(host.name, path + "deeper/", "Still deeper", "deeper/")])
    if trap == FACETS:
        return facets(host, query)
    inner = _SESSION_PATH.sub(r"\1", path) if trap == PATH_SESSION else path
    resource = host.resources.get(inner) if trap else None
    return page(world, host, resource, tick, visit) if resource else None


def entry_links(host: Host, trap: str) -> list[Link]:
    """What the entry page of a trap links to. Targets are named by the page they show, sessions left out."""
    if trap == CALENDAR:
        return _neighbours(host, 2024, 1)
    if trap == LOOP:
        return [Link(host.name, "/loop/deeper/", "Deeper", "deeper/")]
    if trap == FACETS:
        return _facet_links(host, {})
    return []


def facets(host: Host, query: str) -> str:
    """One page of the facet trap: every facet that is not set yet, with each of its values."""
    return _simple(host, "Browse", _facet_links(host, dict(parse_qsl(query))))


def farm_page(world: World, host: Host, name: str) -> str:
    """Any name below the farm: a page with links to three names never seen before."""
    rng = random.Random(f"{world.seed}/{name}")
    fresh = [f"{rng.getrandbits(40):010x}.{world.farm}" for _ in range(3)]
    return _simple(host, "Partner", [Link(name, "/", name) for name in fresh])


def _month(host: Host, path: str) -> str:
    year, month = (int(part) for part in path.split("/")[2:])
    return _simple(host, f"Events in {year}-{month:02d}", _neighbours(host, year, month))


def _neighbours(host: Host, year: int, month: int) -> list[Link]:
    """Last month and next month, which always exist."""
    months = [(divmod(year * 12 + month - 1 + step, 12), text) for step, text in ((-1, "Earlier"), (1, "Later"))]
    return [Link(host.name, f"/calendar/{year % 10000:04d}/{m + 1:02d}", text) for (year, m), text in months]


def _facet_links(host: Host, chosen: dict[str, str]) -> list[Link]:
    free = [(name, value) for name in _FACETS if name not in chosen for value in _FACET_VALUES]
    queries = [urlencode(sorted({**chosen, name: value}.items())) for name, value in free]
    return [Link(host.name, f"/browse?{query}", query.replace("&", ", ")) for query in queries]


def _simple(host: Host, title: str, links: list[Link]) -> str:
    text = words.paragraphs(random.Random(f"{host.name}/trap"), host.lang, 2)
    listed = "".join(f"<li>{anchor(host.name, link)}</li>\n" for link in links)
    prose = "".join(f"<p>{paragraph}</p>\n" for paragraph in text)
    return document(
        host, Resource("", title=title, coding=UTF8), f"<article><h1>{title}</h1>\n{prose}<ul>{listed}</ul></article>\n"
    )
