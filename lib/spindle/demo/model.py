"""The records that the demo web is made of: World, Host, Resource, Link, Robots, Coding.

Decides their shape and the few questions that each answers about itself (what does robots.txt allow, when did a page
change, which resource does a URL name). It makes no world (`world`), no bytes (`render`), and opens no socket.
Nothing here asks the crawler's own modules anything, so that a test may compare the two. Built once, then only read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Address
from urllib.parse import urlsplit

#: Parameters that the demo web puts on some links and ignores when asked: they name the same page without them.
TRACKING = ("utm_source", "utm_medium", "utm_campaign", "gclid", "fbclid")
#: The parameter of the session trap: a new value on every link of every answer.
SESSION = "sid"


class Kind(StrEnum):
    PAGE = "page"  # HTML
    FILE = "file"  # anything else that has fixed bytes
    REDIRECT = "redirect"
    SITEMAP = "sitemap"


@dataclass(frozen=True, slots=True)
class Link:
    """A link to a resource. `href` is how the page spells it, where that is not the plain way."""

    host: str
    path: str
    anchor: str
    href: str | None = None
    nofollow: bool = False

    @property
    def url(self) -> str:
        return f"http://{self.host}{self.path}"


@dataclass(frozen=True, slots=True)
class Coding:
    """How pages are coded (`codec`, a Python name) and what header, meta and BOM say of it.

    `effective` is the answer of the WHATWG rules (BOM, then header, then meta); empty where nothing is declared, so
    that only detection can tell.
    """

    codec: str = "utf-8"
    effective: str = "utf-8"
    header: str | None = "utf-8"
    meta: str | None = "utf-8"
    http_equiv: bool = False
    bom: bytes = b""

    def encode(self, text: str) -> bytes:
        return self.bom + text.encode(self.codec, "xmlcharrefreplace")


UTF8 = Coding()


@dataclass(slots=True)
class Resource:
    """What one path (with its sorted query) answers. Times are ticks of the world's clock; 0 in `period` means never.

    Exactly one of these gives the text: its own path, `copy_of` (the same bytes as another resource) or `near_of` (the
    article of another resource with `edits` words replaced).
    """

    path: str
    kind: Kind = Kind.PAGE
    status: int = 200
    title: str = ""
    description: str = ""
    links: list[Link] = field(default_factory=list)
    paragraphs: int = 5
    coding: Coding | None = None  # None: the host's
    period: int = 0
    phase: int = 0
    stamp_only: bool = False  # a change touches one line ("updated at"), not the article
    born: int = 0  # 404 before this tick, and no page links to it
    dies: int | None = None  # 410 from this tick
    copy_of: tuple[str, str] | None = None
    near_of: tuple[str, str] | None = None
    edits: int = 0
    location: Link | None = None  # of a redirect
    relative_location: bool = False
    failing: int = 0  # the first so many requests get `failing_status`
    failing_status: int = 500
    retry_after: str = ""
    content_type: str = ""
    size: int = 0  # bytes of a FILE
    cut: bool = False  # the connection closes in the middle of the body
    empty: bool = False
    meta_robots: tuple[tuple[str, str], ...] = ()  # (meta name, content)
    x_robots_tag: str = ""
    canonical: str = ""
    trap: str = ""  # the page through which a trap is entered
    lists: list[str] = field(default_factory=list)  # paths of a SITEMAP; of sitemaps when it is an index
    sitemap_index: bool = False

    def changed_at(self, tick: int, births: tuple[int, ...] = ()) -> int:
        """The last tick, not after `tick`, at which the content became what it is; `births` of pages it links to."""
        own = tick - (tick + self.phase) % self.period if self.period else 0
        return max(0, own, *(born for born in births if born <= tick))

    def alive(self, tick: int) -> bool:
        return self.born <= tick and (self.dies is None or tick < self.dies)

    def noindex(self, token: str) -> bool:
        return "noindex" in self._page_rules(token)

    def nofollow(self, token: str) -> bool:
        return bool({"nofollow", "none"} & self._page_rules(token))

    def _page_rules(self, token: str) -> set[str]:
        said = [content for name, content in self.meta_robots if name in ("robots", token)]
        return {word.strip() for text in [*said, self.x_robots_tag] for word in text.split(",")}


@dataclass(frozen=True, slots=True)
class Group:
    agents: tuple[str, ...]
    rules: tuple[tuple[bool, str], ...]  # (allow, pattern)
    crawl_delay_s: float | None = None


@dataclass(frozen=True, slots=True)
class Robots:
    """A host's robots.txt. 4xx allows everything, 5xx nothing (RFC 9309 2.3.1.3 and 2.3.1.4)."""

    status: int = 200
    groups: tuple[Group, ...] = ()
    sitemaps: tuple[str, ...] = ()
    moved_to: str = ""  # path: /robots.txt redirects there

    @property
    def unreachable(self) -> bool:
        return self.status >= 500

    def group(self, token: str) -> Group | None:
        """The group of the token, else that of `*` (RFC 9309 2.2.1)."""
        by_agent = {agent: group for group in self.groups for agent in group.agents}
        return by_agent.get(token, by_agent.get("*")) if self.status == 200 else None

    def allows(self, path: str, token: str) -> bool:
        """The longest matching pattern decides, allow on a tie (RFC 9309 2.2.2)."""
        if self.unreachable:
            return False
        group = self.group(token)
        matching = [(len(rule), allow) for allow, rule in (group.rules if group else ()) if _matches(rule, path)]
        return max(matching)[1] if matching else True


def _matches(rule: str, path: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in rule.removesuffix("$").split("*"))
    return re.match(pattern + ("$" if rule.endswith("$") else ""), path) is not None


@dataclass(slots=True)
class Host:
    """One site. `place` counts addresses: two hosts with one place share an address."""

    name: str
    domain: str
    flavour: str
    place: int
    title: str
    lang: str = "en"
    coding: Coding = UTF8
    robots: Robots = Robots()
    slow_s: float = 0.0  # before every answer
    gzip: bool = False
    chunked: bool = False
    validators: str = "both"  # both, etag, modified, none
    traps: tuple[str, ...] = ()
    mirror_of: str = ""
    nav: list[Link] = field(default_factory=list)
    resources: dict[str, Resource] = field(default_factory=dict)

    @property
    def front(self) -> str:
        return f"http://{self.name}/"

    @property
    def open(self) -> bool:
        """True if an ordinary crawler may see its front page."""
        return self.robots.allows("/", "spindle")


@dataclass(frozen=True, slots=True)
class World:
    """A whole demo web. `examples` names URLs by what they show (say `redirect_loop`); the rest is `hosts`."""

    seed: int
    hosts: dict[str, Host]
    seeds: tuple[str, ...]
    examples: dict[str, tuple[str, ...]]
    nowhere: tuple[str, ...] = ()  # names that pages link to and that do not resolve
    silent: tuple[str, ...] = ()  # names with an address where nobody listens
    farm: str = ""  # `*.farm`: every name below it is a host (wildcard DNS), empty unless asked for

    def find(self, url: str) -> tuple[Host, Resource] | None:
        """The resource of a URL in its plain form (lower case, no fragment, sorted query)."""
        parts = urlsplit(url)
        host = self.hosts.get(parts.netloc)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        resource = host.resources.get(path) if host else None
        return (host, resource) if host and resource else None

    def resource(self, where: tuple[str, str]) -> tuple[Host, Resource]:
        host = self.hosts[where[0]]
        return host, host.resources[where[1]]

    def everything(self) -> Iterator[tuple[Host, Resource]]:
        for host in self.hosts.values():
            for resource in host.resources.values():
                yield host, resource

    def outlinks(self, host: Host, resource: Resource, tick: int) -> list[Link]:
        """Links that the page shows at `tick`: those to pages not yet born are left out. A copy shows its source's."""
        if resource.kind is not Kind.PAGE or resource.empty:
            return []
        return [link for link in [*host.nav, *resource.links] if self._born(link) <= tick]

    def changed_at(self, resource: Resource, tick: int) -> int:
        source = self.resource(resource.copy_of)[1] if resource.copy_of else resource
        births = tuple(self._born(link) for link in source.links) if source.kind is Kind.PAGE else ()
        return source.changed_at(tick, births)

    def _born(self, link: Link) -> int:
        host = self.hosts.get(link.host)
        target = host.resources.get(link.path) if host else None
        return target.born if target else 0

    def lines_of_hosts(self, base_address: str, port: int) -> list[str]:
        """Lines `address:port name`, the form that the setting `network.hosts_file` reads."""
        names = [(host.name, host.place) for host in self.hosts.values()]
        last = max(place for _, place in names)
        names += [(name, last + 1 + i) for i, name in enumerate(self.silent)]
        names += [(f"*.{self.farm}", 0)] if self.farm else []
        return [f"{address(base_address, place)}:{port} {name}" for name, place in names]


def address(base: str, place: int) -> str:
    """The loopback address of a place: `base` + 1 + place. ValueError outside 127.0.0.0/8, where nothing may listen."""
    found = IPv4Address(base) + 1 + place
    if not found.is_loopback:
        raise ValueError(f"the demo web listens on loopback addresses only, not on {found}")
    return str(found)
