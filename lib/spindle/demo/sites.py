"""The ordinary pages of a host: front, sections, articles, how they are named, linked and how often they change.

Decides what a shop, a blog, a newspaper and a manual look like. What is out of the ordinary comes later (`roles`,
`oddities`), links to other hosts too (`world`).
"""

from __future__ import annotations

import posixpath
import random
import re

from spindle.demo import words
from spindle.demo.model import Host, Link, Resource

FLAVOURS = ("shop", "blog", "news", "docs")
_SECTION_PAGES = 9  # articles a section, about
_FRESH_SHARE = 0.1  # of a newspaper's articles are published after the start
_LAST_BIRTH = 5  # ... and the last of them at this tick
_CHANGING = {"shop": 0.35, "blog": 0.1, "news": 0.25, "docs": 0.1}  # share of articles that ever change
_PERIODS = {"shop": (2, 4), "blog": (4, 8), "news": (1, 2, 4), "docs": (8,)}  # ticks
_SPELLED_SHARE = 0.12  # of links are written in another way than the plain one


def fill(host: Host, rng: random.Random, count: int) -> list[Resource]:
    """Give the host about `count` pages; the articles are returned, in the order of their sections."""
    host.resources["/"] = Resource("/", title=host.title, paragraphs=2, description=words.sentence(rng, host.lang))
    host.resources["/about"] = Resource(
        "/about", title=words.title(rng, host.lang), description=words.sentence(rng, host.lang)
    )
    host.resources["/"].period = {"news": 1, "blog": 4, "shop": 2, "docs": 0}[host.flavour]
    sections = [_section(host, rng, number) for number in range(max(1, (count - 2) // (_SECTION_PAGES + 1)))]
    share = max(2, (count - 2 - len(sections)) // len(sections))
    groups = [[_article(host, rng, section, number) for number in range(share)] for section in sections]
    host.nav = [_to(host, host.resources[path]) for path in ("/", *(s.path for s in sections[:5]), "/about")]
    for section, group in zip(sections, groups, strict=True):
        section.links += [_to(host, article) for article in group]
        _interlink(host, rng, section, group)
    articles = [article for group in groups for article in group]
    host.resources["/"].links += [_to(host, s) for s in sections[5:]]
    host.resources["/"].links += [_to(host, a) for a in rng.sample(articles, min(8, len(articles)))]
    return articles


def spell(host: Host, page: Resource, rng: random.Random) -> None:
    """Write some of a page's links as real pages do: relative, with fragments, tracking, odd case, dots, spaces."""
    relative = host.flavour == "docs" and rng.random() < 0.5
    for i, link in enumerate(page.links):
        if link.href is None and link.host == host.name and (relative or rng.random() < _SPELLED_SHARE):
            href = _relative(page.path, link.path) if relative else rng.choice(_spellings(link))
            page.links[i] = Link(link.host, link.path, link.anchor, href, link.nofollow)


def slug(rng: random.Random) -> str:
    """A readable path segment."""
    return "-".join(words.word(rng, slot) for slot in ("adj", "thing", "place")).lower()


def _section(host: Host, rng: random.Random, number: int) -> Resource:
    name = words.word(rng)
    form = {"shop": "/c/{}-{}", "blog": "/tag/{}-{}", "news": "/{}-{}", "docs": "/guide/{1}-{0}/"}[host.flavour]
    path = form.format(name, number + 1)
    period = {"news": 2, "shop": 4, "blog": 0, "docs": 0}[host.flavour]
    host.resources[path] = Resource(
        path, title=words.title(rng, host.lang), paragraphs=1, period=period, description=words.sentence(rng, host.lang)
    )
    return host.resources[path]


def _article(host: Host, rng: random.Random, section: Resource, number: int) -> Resource:
    path = _article_path(host, rng, section, number)
    page = Resource(
        path,
        title=words.title(rng, host.lang),
        paragraphs=rng.randint(4, 8),
        description=words.sentence(rng, host.lang),
    )
    host.resources[path] = page
    if number == 0:
        return page  # every section has one that lasts
    if rng.random() < _CHANGING[host.flavour]:
        page.period = rng.choice(_PERIODS[host.flavour])
        page.phase = rng.randrange(page.period)
        page.stamp_only = rng.random() < 0.4
    elif host.flavour == "news" and rng.random() < _FRESH_SHARE:
        page.born = rng.randint(1, _LAST_BIRTH)
    return page


def _article_path(host: Host, rng: random.Random, section: Resource, number: int) -> str:
    unique = len(host.resources)
    if host.flavour == "shop":
        colour = rng.choice(["blue", "green", "red"])
        return f"/item?colour={colour}&id={unique}" if number % 3 == 2 else f"/item/{slug(rng)}-{unique}"
    if host.flavour == "blog":
        return f"/2023/{rng.randint(1, 12):02d}/{slug(rng)}-{unique}"
    if host.flavour == "news":
        return f"{section.path}/{slug(rng)}-{unique}"
    return f"{section.path}{slug(rng)}-{unique}.html"


def _interlink(host: Host, rng: random.Random, section: Resource, group: list[Resource]) -> None:
    """Each article to its neighbours, to two more of the host, and to its section."""
    for i, article in enumerate(group):
        near = [group[i - 1]] * (i > 0) + group[i + 1 : i + 2]
        others = rng.sample(group, min(2, len(group)))
        found = {other.path: other for other in [*near, *others, section] if other is not article}
        article.links += [_to(host, other) for other in found.values()]


def _to(host: Host, page: Resource) -> Link:
    return Link(host.name, page.path, page.title)


def _relative(page: str, target: str) -> str:
    """`target` as seen from `page`, both paths of one host: `../b/c.html`, `./` for the own folder."""
    folder = page.partition("?")[0].rpartition("/")[0] or "/"
    path, mark, query = target.partition("?")
    name = posixpath.relpath(path, folder) + ("/" if path.endswith("/") and path != "/" else "")
    return re.sub(r"^\.$", "./", name) + mark + query


def _spellings(link: Link) -> list[str]:
    """Other ways to write the same URL; each comes back to it under the rules that DESIGN and issue 3 name."""
    path, mark, query = link.path.partition("?")
    more = "&" if mark else "?"
    backwards = "&".join(reversed(query.split("&")))
    return [
        f"{link.path}#part-2",
        f"{link.path}{more}utm_source=feed&utm_medium=rss",
        f"HTTP://{link.host.upper()}:80{link.path}",
        f"//{link.host}{link.path}",
        f"/./else/..{path}{mark}{backwards}",
        f" {link.path}\n ",
    ]
