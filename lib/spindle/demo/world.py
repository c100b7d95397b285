"""`build_world`: a whole web from a seed. The same arguments give the same world, down to the last byte of each page.

Decides names, domains, addresses, the links between hosts, sitemaps, and in which order the parts are made; `sites`,
`roles` and `oddities` decide what the parts are.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field, replace

from spindle.demo import oddities, roles, sites, words
from spindle.demo.model import Host, Kind, Link, Resource, World

MIN_HOSTS = roles.MIN_HOSTS
SEEDS = 12  # fronts to start from, of the most linked hosts that are open to crawlers
_IN_DEMO_DOMAIN = 0.15  # share of hosts below demo.test; the others are spread over many registered domains
_GROUP_SIZES = (1, 1, 1, 2, 2, 3, 4, 6)  # hosts of one registered domain
_CROSS_LINK_SHARE = 0.5  # of articles link to other hosts
_FARM = "farm.test"
_SMALL = 10  # pages of a host that is slow or asks for a long delay


@dataclass(slots=True)
class _Draft:
    """A world in the making."""

    seed: int
    rng: random.Random
    hosts: list[Host]  # by rank: the first are linked most
    role_of: dict[str, str] = field(default_factory=dict)
    articles: dict[str, list[Resource]] = field(default_factory=dict)
    examples: defaultdict[str, list[str]] = field(default_factory=oddities.examples)


def build_world(seed: int = 1, hosts: int = 200, pages: tuple[int, int] = (10, 60), farm: bool = False) -> World:
    """A web of `hosts` hosts with about `pages[0]` to `pages[1]` ordinary pages each.

    farm: also a wildcard domain where every name is a host that links to three more. Raises ValueError for fewer than
    `MIN_HOSTS` hosts (every role needs one) or fewer than 8 pages a host.
    """
    if hosts < MIN_HOSTS or pages[0] < 8 or pages[1] < pages[0]:
        raise ValueError(f"a demo web has at least {MIN_HOSTS} hosts of at least 8 pages, not {hosts} of {pages}")
    rng = random.Random(f"{seed}/world")
    draft = _Draft(seed, rng, _name_hosts(rng, hosts))
    _assign_roles(draft)
    _fill(draft, pages)
    _weave(draft)
    oddities.scatter([_spot(draft, host) for host in draft.hosts if host.open and not host.mirror_of])
    _finish_roles(draft)
    if farm:
        draft.hosts[0].resources["/"].links.append(Link(f"partners.{_FARM}", "/", "Partners"))
    seeds = [host.front for host in draft.hosts if host.open and not host.mirror_of][:SEEDS]
    return World(
        seed=seed,
        hosts={host.name: host for host in draft.hosts},
        seeds=tuple(seeds),
        examples={label: tuple(dict.fromkeys(urls)) for label, urls in draft.examples.items()},
        nowhere=(oddities.NOWHERE,),
        silent=(oddities.SILENT,),
        farm=_FARM if farm else "",
    )


def _name_hosts(rng: random.Random, count: int) -> list[Host]:
    names: dict[str, tuple[str, str]] = {}  # name -> domain, flavour
    for number in range(int(count * _IN_DEMO_DOMAIN)):
        flavour = sites.FLAVOURS[number % len(sites.FLAVOURS)]
        names[f"{flavour}-{number:03d}.demo.test"] = ("demo.test", flavour)
    taken: set[str] = set()
    while len(names) < count:
        domain = f"{words.word(rng, 'place')}-{words.word(rng)}".lower()
        domain += f"{len(taken)}.test" if domain in taken else ".test"
        taken.add(domain.removesuffix(".test"))
        labels = rng.sample(["www", "blog", "news", "shop", "docs", "help"], rng.choice(_GROUP_SIZES))
        names.update({f"{label}.{domain}": (domain, _flavour(label, rng)) for label in labels})
    ranked = list(names.items())[:count]
    rng.shuffle(ranked)
    return [
        Host(name, domain, flavour, place, f"{words.word(rng, 'place')} {flavour.capitalize()}")
        for place, (name, (domain, flavour)) in enumerate(ranked)
    ]


def _flavour(label: str, rng: random.Random) -> str:
    return label if label in sites.FLAVOURS else rng.choice(sites.FLAVOURS)


def _assign_roles(draft: _Draft) -> None:
    by_rank = {rank: role for role, rank in roles.ranks(len(draft.hosts)).items()}
    for rank, host in enumerate(draft.hosts):
        role = draft.role_of[host.name] = by_rank.get(rank, "")
        roles.assign(host, role, rank, draft.hosts[rank - 1])
        if host.lang != "en":
            host.title = words.title(draft.rng, host.lang)  # a name that only its own charset can show
        if role:
            draft.examples[role].append(host.front)


def _fill(draft: _Draft, pages: tuple[int, int]) -> None:
    """Popular hosts tend to be larger; the mirror copies the smallest of the first ones."""
    low, high = pages
    for rank, host in enumerate(draft.hosts):
        role = draft.role_of[host.name]
        share = 0.5 * (1 - rank / len(draft.hosts)) + 0.5 * draft.rng.random()
        count = min(low, _SMALL) if roles.is_small(role) else low + int((high - low) * 0.8 * share)
        if role == "mirror":
            host.mirror_of = min(draft.hosts[: roles.FIRST_RANK], key=lambda other: len(other.resources)).name
        else:
            draft.articles[host.name] = sites.fill(host, draft.rng, count)


def _weave(draft: _Draft) -> None:
    """Links between hosts: a tree by which every front is found, and more from articles, mostly to popular hosts."""
    parents = [host for host in draft.hosts if host.open and not host.mirror_of]
    for rank, host in enumerate(draft.hosts[1:], start=1):
        reach = max(1, min(rank, SEEDS + rank // 8, len(parents)))
        candidates = [parent for parent in parents[:reach] if parent is not host]
        draft.rng.choice(candidates).resources["/"].links.append(_front(host))
    popularity = [1 / (rank + 3) for rank in range(len(draft.hosts))]
    for host in draft.hosts:
        for article in draft.articles.get(host.name, []):
            if draft.rng.random() < _CROSS_LINK_SHARE:
                others = draft.rng.choices(draft.hosts, popularity, k=draft.rng.randint(1, 2))
                article.links += [_into(draft, other) for other in others if other is not host]
            sites.spell(host, article, draft.rng)


def _front(host: Host) -> Link:
    return Link(host.name, "/", host.title)


def _into(draft: _Draft, host: Host) -> Link:
    """A link to a host's front or, less often, to one of its articles."""
    articles = draft.articles.get(host.name)
    if not articles or draft.rng.random() < 0.6:
        return _front(host)
    article = draft.rng.choice(articles)
    return Link(host.name, article.path, article.title)


def _spot(draft: _Draft, host: Host) -> oddities.Spot:
    elsewhere = draft.rng.choice([other for other in draft.hosts[:SEEDS] if other is not host])
    return oddities.Spot(host, draft.articles[host.name], elsewhere, draft.rng, draft.examples)


def _finish_roles(draft: _Draft) -> None:
    """What needs the finished pages: traps, sitemaps, the mirror, a query in another charset."""
    for rank, host in enumerate(draft.hosts):
        for trap in host.traps:
            draft.examples[f"{trap}_entry"].append(roles.lay_trap(host, trap))
        if draft.role_of[host.name] == "windows_1252":
            oddities.coded_query(_spot(draft, host))
        if rank % 4 in (1, 2) and host.robots.status == 200 and host.open and not host.mirror_of:
            _map(draft, host, with_index=rank % 4 == 2)
    for host in draft.hosts:
        if host.mirror_of:
            _mirror(host, next(other for other in draft.hosts if other.name == host.mirror_of))


def _map(draft: _Draft, host: Host, with_index: bool) -> None:
    """Sitemaps that list the articles, and two pages that only they name."""
    spot = _spot(draft, host)
    orphans = [spot.add(spot.page(f"/unlinked/{sites.slug(draft.rng)}")) for _ in range(2)]
    draft.examples["only_in_sitemap"] += [orphan.url for orphan in orphans]
    listed = [*(article.path for article in draft.articles[host.name]), *(orphan.path for orphan in orphans)]
    half = len(listed) // 2
    parts = (
        {"/sitemap-1.xml": listed[:half], "/sitemap-2.xml.gz": listed[half:]}
        if with_index
        else {"/sitemap.xml": listed}
    )
    for path, lists in parts.items():
        host.resources[path] = Resource(path, Kind.SITEMAP, lists=lists)
    top = "/sitemap_index.xml" if with_index else "/sitemap.xml"
    if with_index:
        host.resources[top] = Resource(top, Kind.SITEMAP, lists=list(parts), sitemap_index=True)
    draft.examples["sitemap"].append(f"http://{host.name}{top}")
    host.robots = replace(host.robots, sitemaps=(top,))


def _mirror(host: Host, source: Host) -> None:
    """The pages of the source, byte for byte; links that do not name its host stay on the mirror."""
    host.title, host.lang, host.coding = source.title, source.lang, source.coding
    host.nav = [_moved(link, host, source) for link in source.nav]
    for path, page in source.resources.items():
        if page.kind is Kind.PAGE and page.status == 200 and not page.failing and not page.trap:
            links = [_moved(link, host, source) for link in page.links]
            host.resources[path] = replace(page, copy_of=page.copy_of or (source.name, path), near_of=None, links=links)


def _moved(link: Link, host: Host, source: Host) -> Link:
    names_its_host = link.href is not None and link.href.lower().startswith(("http:", "//"))
    return link if link.host != source.name or names_its_host else replace(link, host=host.name)
