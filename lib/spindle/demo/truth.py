"""What is true of a demo web: what each URL answers, what it is a copy of, and what a right crawler finds.

Decides nothing about the world, only reads it. Pure, and without the crawler's own modules: tests compare the two.
What a crawler may do is a `Policy`; what is inside a trap is never expected, and never held against it either.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from spindle.demo.model import Host, Kind, Resource, World
from spindle.demo.traps import PATH_SESSION, trap_of

_PYTHON_CODECS = {"windows-1252": "cp1252", "shift_jis": "cp932", "utf-16le": "utf-16-le"}


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules of a crawler, as far as they change what it finds."""

    token: str = "spindle"
    robots: bool = True
    meta_robots: bool = True
    follow_nofollow: bool = False
    sitemaps: bool = True  # those that robots.txt names
    max_url_length: int = 2_000


class Fate(StrEnum):
    """What becomes of a URL that a crawler finds."""

    FETCH = "fetch"
    DENIED = "denied"  # by robots.txt
    ROBOTS_UNREACHABLE = "robots_unreachable"
    NO_DNS = "no_dns"
    REFUSED = "refused"  # nobody listens
    TOO_LONG = "too_long"
    TRAP = "trap"  # inside one: a crawler may fetch some, none are expected


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a URL answers to a first, plain GET at a tick, and what its page is.

    `status` is the lasting one; `first_status` differs where a page heals. `content` is equal for two URLs exactly if
    their bodies are. `near_group` names the page that near copies were made from, `edits` the words replaced here.
    `charset` is the WHATWG name that the declarations lead to ("" if there are none), `codec` what the bytes are in;
    `title` is what a browser shows that believes the declarations.
    """

    status: int
    first_status: int
    kind: str
    allowed: bool
    redirect_to: str | None
    content: str | None
    near_group: str | None
    edits: int
    period: int
    stamp_only: bool
    changed_at: int
    content_type: str
    charset: str
    codec: str
    title: str
    noindex: bool
    nofollow: bool
    trap: str


def expectation(world: World, url: str, tick: int = 0, policy: Policy | None = None) -> Expectation | None:
    """What is true of a URL in its plain form; None where there is no such host, or no such page (404) on it."""
    policy = policy or Policy()
    found = world.find(url)
    if found is None:
        return None
    host, resource = found
    source_host, source = world.resource(resource.copy_of) if resource.copy_of else (host, resource)
    status = 404 if resource.born > tick else resource.status if resource.alive(tick) else 410
    is_page = status == 200 and resource.kind is Kind.PAGE
    coding = source.coding or source_host.coding
    return Expectation(
        status=status,
        first_status=resource.failing_status if resource.failing else status,
        kind=str(resource.kind),
        allowed=host.robots.allows(resource.path, policy.token),
        redirect_to=resource.location.url if resource.location else None,
        content=_content(world, source_host, source, tick) if status == 200 else None,
        near_group=_near_group(world, source_host, source) if is_page else None,
        edits=source.edits,
        period=source.period,
        stamp_only=source.stamp_only,
        changed_at=world.changed_at(resource, tick),
        content_type=resource.content_type or {Kind.SITEMAP: "sitemap"}.get(resource.kind, "text/html"),
        charset=coding.effective if is_page else "",
        codec=coding.codec if is_page else "",
        title=_shown(source_host, source) if is_page and not source.empty else "",
        noindex=resource.noindex(policy.token),
        nofollow=resource.nofollow(policy.token),
        trap=resource.trap,
    )


def fates(world: World, seeds: Iterable[str], policy: Policy | None = None, tick: int = 0) -> dict[str, Fate]:
    """Every URL that a crawler of this policy comes to know from the seeds, in the order found, and what becomes of it.

    The world stands still at `tick`; pages that heal have healed. Traps are entered but not walked through.
    """
    policy = policy or Policy()
    found: dict[str, Fate] = {}
    queue = deque(seeds)
    while queue:
        url = queue.popleft()
        if url not in found:
            found[url] = _fate(world, url, policy)
            queue.extend(_next(world, url, found[url], policy, tick))
    return found


def reachable(world: World, seeds: Iterable[str], policy: Policy | None = None, tick: int = 0) -> set[str]:
    """The URLs that a complete crawl requests (robots.txt apart): each once, none missing. Insides of traps left out.

    404s are among them: a crawler cannot know before it asks.
    """
    return {url for url, fate in fates(world, seeds, policy, tick).items() if fate is Fate.FETCH}


def as_json(world: World, tick: int = 0) -> dict[str, Any]:
    """The whole truth at a tick, for readers that do not run Python."""
    known = fates(world, world.seeds, tick=tick)
    urls = [f"http://{host.name}{resource.path}" for host, resource in world.everything()]
    expected = {url: expectation(world, url, tick) for url in urls}
    return {
        "seed": world.seed,
        "tick": tick,
        "seeds": world.seeds,
        "hosts": {host.name: _host(host) for host in world.hosts.values()},
        "urls": {url: {"fate": known.get(url), **asdict(found)} for url, found in expected.items() if found},
        "not_there": {url: fate for url, fate in known.items() if url not in expected},
        "examples": world.examples,
    }


def _host(host: Host) -> dict[str, Any]:
    group = host.robots.group("spindle")
    facts = {
        name: getattr(host, name) for name in ("domain", "flavour", "lang", "slow_s", "gzip", "chunked", "validators")
    }
    own = {"robots_status": host.robots.status, "crawl_delay_s": group.crawl_delay_s if group else None}
    return {**facts, **own, "address_number": host.place, "traps": host.traps, "mirror_of": host.mirror_of}


def _fate(world: World, url: str, policy: Policy) -> Fate:
    name = urlsplit(url).netloc
    if len(url) > policy.max_url_length:
        return Fate.TOO_LONG
    if trap_of(world, url):
        return Fate.TRAP
    if name not in world.hosts:
        return Fate.REFUSED if name in world.silent else Fate.NO_DNS
    robots = world.hosts[name].robots
    if policy.robots and robots.unreachable:
        return Fate.ROBOTS_UNREACHABLE
    allowed = not policy.robots or robots.allows(url.partition(name)[2], policy.token)
    return Fate.FETCH if allowed else Fate.DENIED


def _next(world: World, url: str, fate: Fate, policy: Policy, tick: int) -> list[str]:
    """URLs that this one leads to: the sitemaps of its host, and what its own answer links to."""
    host = world.hosts.get(urlsplit(url).netloc)
    if host is None or fate not in (Fate.FETCH, Fate.DENIED):
        return []
    maps = [f"http://{host.name}{path}" for path in host.robots.sitemaps] if policy.sitemaps else []
    found = world.find(url) if fate is Fate.FETCH else None
    return [*maps, *(_leads_to(world, *found, policy, tick) if found else [])]


def _leads_to(world: World, host: Host, resource: Resource, policy: Policy, tick: int) -> list[str]:
    if resource.location:
        return [resource.location.url]
    if resource.status != 200 or not resource.alive(tick):
        return []
    if resource.kind is Kind.SITEMAP:
        return [f"http://{host.name}{path}" for path in resource.lists if host.resources[path].alive(tick)]
    if policy.meta_robots and resource.nofollow(policy.token):
        return []
    links = world.outlinks(host, resource, tick)
    links = host.nav if resource.trap == PATH_SESSION else links  # its own links carry a session: they lead inside
    return [link.url for link in links if policy.follow_nofollow or not link.nofollow]


def _content(world: World, host: Host, resource: Resource, tick: int) -> str:
    """A name that two resources share exactly if their bodies are the same."""
    if resource.empty:
        return "empty"
    if resource.kind is Kind.FILE:
        return f"{resource.content_type} of {resource.size} bytes"
    return f"{host.name}{resource.path}@{world.changed_at(resource, tick)}"


def _near_group(world: World, host: Host, resource: Resource) -> str | None:
    """The source of a near copy; of a source, itself."""
    if resource.near_of:
        return "".join(resource.near_of)
    own = (host.name, resource.path)
    return "".join(own) if any(other.near_of == own for other in host.resources.values()) else None


def _shown(host: Host, resource: Resource) -> str:
    coding = resource.coding or host.coding
    raw = resource.title.encode(coding.codec)
    return raw.decode(_PYTHON_CODECS.get(coding.effective, coding.effective or coding.codec), "replace")
