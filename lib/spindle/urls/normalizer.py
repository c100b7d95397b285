"""Normalising by the million: the policy, with a short cut for links that are in normal form as they stand.

Decides nothing: every answer is the one that `whatwg.resolve` and `policy.Policy` give, and a property test holds the
short cut to it. Measured in bench/urls.py.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import can_ada
import mmh3

from spindle.config import UrlSettings
from spindle.errors import UrlRejected
from spindle.urls.identity import host_of, parts
from spindle.urls.policy import UNRESERVED, Policy
from spindle.urls.whatwg import foreign_scheme, has_scheme, resolve

# What neither WHATWG nor the policy would touch in a path or query, but for dot segments, "%" and "?";
# "'" and ";" are left out, whose treatment depends on the place.
_PLAIN = (string.ascii_letters + string.digits + "_!$&()*+,=:@/.~-").encode()
_ESCAPES = frozenset(f"{byte:02X}" for byte in range(256) if byte not in UNRESERVED)
# Joined text is not what a browser would join if white space was to go first, or "\\" stood for "/".
_TOUCHED_BEFORE_PARSING = re.compile(r"[\\\t\n\r]|[\0- ]\Z")
_AS_IT_IS: list[int] = []  # a plan, known by its identity: all pieces, in their order
_MEMORY = 100_000  # what a Normalizer may remember of hosts, and of queries' names, before it starts afresh
K = TypeVar("K")
V = TypeVar("V")


class Target(NamedTuple):
    """A link that was understood: normalised URL, its key, its host."""

    url: str
    key: int
    host: str


class _Page(NamedTuple):
    """A base URL in its pieces. Without a host, no relative link takes the short cut."""

    base: str | None
    scheme: str
    origin: str
    host: str
    folder: str
    path: str
    tail: str


_new = tuple.__new__  # a third cheaper than the constructor, on the path of every link
_FOREIGN = UrlRejected("scheme", "only http and https are fetched")  # for mailto:, javascript:, ... on every page
_NOWHERE = _Page(None, "", "", "", "", "", "")


class Normalizer:
    """The policy under given settings, fast. Make it once: it remembers which hosts and names need no work.

    Raises:
        ConfigError: a parameter pattern or a host of the settings cannot be understood.
    """

    def __init__(self, settings: UrlSettings) -> None:
        self._policy = Policy(settings)
        self._max_length = settings.max_length
        self._hosts: dict[str, str] = {}  # origins in normal form that were met -> host
        self._plans: dict[object, list[int] | None] = {}  # names of a query (with the host) -> pieces kept, in order

    def normalize(self, url: str, base: str | None = None, encoding: str = "utf-8") -> str:
        """The one spelling of a URL; `normalize(normalize(u)) == normalize(u)`. `encoding` as in `resolve`.

        Raises:
            UrlRejected: with one of REJECT_REASONS.
        """
        normal = self._of_absolute(url) if base is None else None
        return normal or self._remember(self.by_the_law(url, base, encoding))

    def by_the_law(self, url: str, base: str | None = None, encoding: str = "utf-8") -> str:
        """As `normalize`, always the long way round: the measure of the short cut."""
        if foreign_scheme(url):
            raise UrlRejected(_FOREIGN.reason, _FOREIGN.detail)
        return self._policy.apply(resolve(url, base, encoding))

    def links(self, hrefs: Sequence[str], base: str, encoding: str = "utf-8") -> list[Target | UrlRejected]:
        """What each href of a page points to, in order; a refused one stands there as its UrlRejected.

        The same as `normalize(href, base, encoding)` and `url_key` one by one, at a fraction of the cost.
        """
        page, known, quick = self._page(base), dict[str, Target | UrlRejected](), dict[str, Target]()
        place, short_cut, key = self._placed, self._short_cut, mmh3.hash64
        for href in hrefs:
            if href in known:
                continue
            cut = href[: href.index("#")] if "#" in href else href
            if (target := quick.get(cut)) is not None:  # a page leads to many places of another, and of itself
                known[href] = target
                continue
            origin, host, tail = place(cut, page)
            url = short_cut(origin, host, tail) if host else None
            if url is None:
                known[href] = self._link(href, page, encoding, origin + tail if host and tail else "")
            else:
                known[href] = quick[cut] = _new(Target, (url, key(url)[0], host))
        return [known[href] for href in hrefs]

    def _link(self, href: str, page: _Page, encoding: str, joined: str) -> Target | UrlRejected:
        """A link for which there is no short cut."""
        if ":" in href and foreign_scheme(href):
            return _FOREIGN
        try:
            url = self._longer_way(href, page, encoding, joined)
        except UrlRejected as rejected:
            return rejected
        return _new(Target, (url, mmh3.hash64(url)[0], host_of(url)))

    def _longer_way(self, href: str, page: _Page, encoding: str, joined: str) -> str:
        """Joined text on a host in normal form needs no IDNA, so the faster build of ada may read it."""
        untouched = href[:1] > " " and not _TOUCHED_BEFORE_PARSING.search(joined)
        if not (joined and untouched and (encoding == "utf-8" or href.isascii())):
            return self._remember(self.by_the_law(href, page.base, encoding))
        try:
            href = can_ada.parse(joined).href
        except (ValueError, TypeError):  # TypeError: surrogates
            return self.by_the_law(href, page.base, encoding)
        return self._of_absolute(href) or self._policy.apply(href)

    def _of_absolute(self, url: str) -> str | None:
        return self._short_cut(*self._placed(url, _NOWHERE))

    def _short_cut(self, origin: str, host: str, tail: str) -> str | None:
        """The normal form where it can be told without parsing; None says nothing about the URL."""
        if not (host and tail and tail.isascii()) or "/." in tail:
            return None
        if unusual := tail.encode().translate(None, _PLAIN):
            if unusual.translate(None, b"?%"):
                return None
            if b"%" in unusual and not _ESCAPES.issuperset([after[:2] for after in tail.split("%")[1:]]):
                return None
            if b"?" in unusual:
                path, _, query = tail.partition("?")
                settled = self._settled(host, query)
                if settled is None:
                    return None
                tail = f"{path}?{settled}" if settled else path
        url = origin + tail
        return url if len(url) <= self._max_length else None

    def _placed(self, href: str, page: _Page) -> tuple[str, str, str]:
        """Origin, host, path with query, joined but not parsed. No host: it cannot be told without parsing."""
        if "#" in href:
            href = href[: href.index("#")]
        if href[:1] == "/":
            if href[1:2] != "/":
                return page.origin, page.host, href
            href = page.scheme + href
        if href[:4] == "http" and href.startswith(("http://", "https://")):
            slash = href.find("/", 8)
            if slash < 0:
                return href, self._hosts.get(href, ""), "/"
            origin = href[:slash]
            return origin, self._hosts.get(origin, ""), href[slash:]
        return page.origin, page.host, _joined(href, page)

    def _settled(self, host: str, query: str) -> str | None:
        """The clean query as the policy leaves it; None if names alone do not tell."""
        pieces = query.split("&") if "&" in query else [query]
        names = tuple([piece.partition("=")[0] for piece in pieces]) if len(pieces) > 1 else query.partition("=")[0]
        key = (host, names) if self._policy.knows_hosts else names
        try:
            plan = self._plans[key]
        except KeyError:
            plan = self._keep(self._plans, key, self._plan(host, (names,) if isinstance(names, str) else names))
        if plan is _AS_IT_IS:
            return query
        return None if plan is None else "&".join([pieces[place] for place in plan])

    def _plan(self, host: str, names: Sequence[str]) -> list[int] | None:
        """Which pieces the policy keeps and in which order, found by asking it once."""
        if "" in names or any(map(self._policy.asks_value, names)):
            return None
        marked = "&".join([f"{name}={place}" for place, name in enumerate(names)])
        kept = self._policy.query(host, marked)
        if kept == marked:
            return _AS_IT_IS
        return [int(piece.rpartition("=")[2]) for piece in kept.split("&")] if kept else []

    def _remember(self, url: str) -> str:
        origin, host, _ = parts(url)
        self._keep(self._hosts, origin, host)
        return url

    @staticmethod
    def _keep(memory: dict[K, V], key: K, value: V) -> V:
        if len(memory) >= _MEMORY:
            memory.clear()
        memory[key] = value
        return value

    def _page(self, base: str) -> _Page:
        try:
            normal = self._of_absolute(base)
            href = normal or resolve(base)
            origin, host, _ = parts(normal or self._remember(self._policy.apply(href)))
        except UrlRejected:
            return _NOWHERE._replace(base=base)
        tail = href.partition("#")[0][href.index("/", 8) :]
        path = tail.partition("?")[0]
        return _Page(href, origin[: origin.index("/")], origin, host, path[: path.rindex("/") + 1], path, tail)


def _joined(href: str, page: _Page) -> str:
    """Path and query of a relative href (WHATWG URL 4.4, relative state); "" where that takes more than joining."""
    if not href:
        return page.tail
    if ":" in href and has_scheme(href):
        return ""
    first, folder = href[0], page.folder
    if first == "?":
        return page.path + href
    while first == "." and href.startswith("../"):
        folder = folder[: folder.rfind("/", 0, -1) + 1] or "/"
        href = href[3:]
    return folder + href
