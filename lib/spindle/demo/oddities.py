"""What sets single pages apart: redirects, errors, copies, robots metas, files, odd links. One function for each.

Decides what each oddity is made of. `scatter` deals them out so that every kind occurs and every open host has some;
each is linked from an ordinary page and named in the world's examples. None touches a page that another needs.
Long because it is a list.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from spindle.demo import words
from spindle.demo.model import Host, Kind, Link, Resource
from spindle.demo.sites import slug

#: A name that pages link to and that nobody resolves; one that resolves to an address where nobody listens.
NOWHERE, SILENT = "gone-dark.test", "silent.test"


@dataclass(slots=True)
class Spot:
    """Where an oddity is put: a host, its articles, another host's front, and the examples it adds itself to."""

    host: Host
    articles: list[Resource]
    elsewhere: Host
    rng: random.Random
    examples: dict[str, list[str]]

    def add(self, resource: Resource) -> Link:
        """The resource on this host, and the link to it."""
        resource.title = resource.title or words.title(self.rng, self.host.lang)
        resource.description = resource.description or words.sentence(self.rng, self.host.lang)
        self.host.resources[resource.path] = resource
        return self.to(resource)

    def to(self, resource: Resource) -> Link:
        return Link(self.host.name, resource.path, resource.title)

    def show(self, label: str, *links: Link) -> None:
        """Link to these from an ordinary page of the host that never changes its links, and name them."""
        hook = self.host.resources[self.rng.choice(["/", "/about", *(link.path for link in self.host.nav)])]
        hook.links += links
        self.examples[label] += [link.url for link in links]

    def page(self, path: str = "") -> Resource:
        return Resource(path or f"/notes/{slug(self.rng)}-{len(self.host.resources)}")

    def lasting(self) -> Resource:
        """An article that is there at every tick and never changes."""
        steady = [article for article in self.articles if not article.born and not article.period]
        return self.rng.choice(steady)


Oddity = Callable[[Spot], None]
_MENU: dict[str, Oddity] = {}


def _oddity(make: Oddity) -> Oddity:
    _MENU[make.__name__] = make
    return make


def names() -> tuple[str, ...]:
    return tuple(_MENU)


def scatter(spots: list[Spot], per_host: int = 2) -> None:
    """Deal the menu out over the hosts, round and round, at least once through and at least `per_host` to each."""
    menu = list(_MENU.values())
    for i in range(max(len(menu), per_host * len(spots))):
        menu[i % len(menu)](spots[i % len(spots)])


def _hop(spot: Spot, name: str, to: Link, status: int = 301, relative: bool = False) -> Link:
    path = f"/go/{name}-{len(spot.host.resources)}"
    return spot.add(Resource(path, Kind.REDIRECT, status, "Moved: " + name, location=to, relative_location=relative))


@_oddity
def redirect_one(spot: Spot) -> None:
    spot.show("redirect_one", _hop(spot, "one", spot.to(spot.lasting())))


@_oddity
def redirect_relative(spot: Spot) -> None:
    spot.show("redirect_relative", _hop(spot, "relative", spot.to(spot.lasting()), 302, relative=True))


@_oddity
def redirect_chain(spot: Spot) -> None:
    third = _hop(spot, "third", spot.to(spot.lasting()), 303)
    second = _hop(spot, "second", third, 307)
    spot.show("redirect_chain", _hop(spot, "first", second, 308))


@_oddity
def redirect_loop(spot: Spot) -> None:
    first = _hop(spot, "round", spot.to(spot.lasting()))
    second = _hop(spot, "and-round", first)
    spot.host.resources[first.path].location = second
    spot.show("redirect_loop", first)


@_oddity
def redirect_to_itself(spot: Spot) -> None:
    link = _hop(spot, "itself", spot.to(spot.lasting()), 302)
    spot.host.resources[link.path].location = link
    spot.show("redirect_to_itself", link)


@_oddity
def redirect_cross_host(spot: Spot) -> None:
    away = Link(spot.elsewhere.name, "/", spot.elsewhere.title)
    spot.show("redirect_cross_host", _hop(spot, "away", away, 302))


@_oddity
def redirect_to_denied(spot: Spot) -> None:
    secret = spot.add(spot.page("/private/vault"))
    spot.show("redirect_to_denied", _hop(spot, "vault", secret, 302))


@_oddity
def missing(spot: Spot) -> None:
    spot.show("missing", Link(spot.host.name, f"/lost/{slug(spot.rng)}", "A page that is not there"))


@_oddity
def gone(spot: Spot) -> None:
    spot.show("gone", spot.add(Resource(f"/old/{slug(spot.rng)}", status=410)))


@_oddity
def forbidden(spot: Spot) -> None:
    spot.show("forbidden", spot.add(Resource("/staff", status=403)))


@_oddity
def heals(spot: Spot) -> None:
    """500 for the first two requests, then the page."""
    page = spot.page()
    page.failing, page.failing_status = 2, 500
    spot.show("heals", spot.add(page))


@_oddity
def throttled(spot: Spot) -> None:
    """429 for the first request, with the seconds to wait."""
    page = spot.page()
    page.failing, page.failing_status, page.retry_after = 1, 429, "2"
    spot.show("throttled", spot.add(page))


@_oddity
def unavailable(spot: Spot) -> None:
    spot.show("unavailable", spot.add(Resource("/counter", status=503, retry_after="1")))


@_oddity
def broken(spot: Spot) -> None:
    spot.show("broken", spot.add(Resource("/report.cgi", status=500)))


@_oddity
def denied(spot: Spot) -> None:
    """Three pages that robots.txt forbids to all, where it is given, and one that a longer rule allows again."""
    closed = [spot.add(spot.page(path)) for path in ("/private/ledger", "/search?q=loom", "/drafts/index.bak")]
    spot.show("denied", *closed)
    spot.show("allowed_within", spot.add(spot.page("/private/open/notes")))


@_oddity
def denied_to_spindle(spot: Spot) -> None:
    """Forbidden where the host has a group for the token `spindle`."""
    spot.show("denied_to_spindle", spot.add(spot.page("/not-for-spindle/essay")))


@_oddity
def exact_copy(spot: Spot) -> None:
    """The same bytes on another address of the host."""
    source = _plainly_linked(spot)
    copy = spot.page(f"/print{source.path.partition('?')[0]}")
    copy.copy_of, copy.title, copy.links = (spot.host.name, source.path), source.title, source.links
    spot.show("exact_copy", spot.add(copy))


def _plainly_linked(spot: Spot) -> Resource:
    """A lasting article whose links do not depend on its own address: made for the purpose where there is none."""
    page = spot.page()
    page.links = [spot.to(article) for article in spot.articles[:3]]
    page.paragraphs = 6
    spot.show("copied", spot.add(page))
    return page


@_oddity
def near_copy(spot: Spot) -> None:
    """Two pages with the article of a third, one and five words of it replaced."""
    source = _plainly_linked(spot)
    for edits in (1, 5):
        copy = spot.page()
        copy.near_of, copy.edits, copy.title, copy.links = (
            (spot.host.name, source.path),
            edits,
            source.title,
            source.links,
        )
        spot.show("near_copy", spot.add(copy))


@_oddity
def pdf(spot: Spot) -> None:
    file = Resource("/files/report.pdf", Kind.FILE, content_type="application/pdf", size=60_000)
    spot.show("pdf", spot.add(file))


@_oddity
def image(spot: Spot) -> None:
    spot.show("image", spot.add(Resource("/files/plan.png", Kind.FILE, content_type="image/png", size=20_000)))


@_oddity
def plain_text(spot: Spot) -> None:
    spot.show("plain_text", spot.add(Resource("/notes.txt", Kind.FILE, content_type="text/plain", size=2_000)))


@_oddity
def noindex(spot: Spot) -> None:
    page = spot.page()
    page.meta_robots = (("robots", "noindex"),)
    spot.show("noindex", spot.add(page))


@_oddity
def noindex_for_spindle(spot: Spot) -> None:
    page = spot.page()
    page.meta_robots = (("spindle", "noindex, follow"),)
    spot.show("noindex_for_spindle", spot.add(page))


@_oddity
def nofollow_page(spot: Spot) -> None:
    """The one way to the hidden page is a page that says nofollow."""
    _behind(spot, "nofollow_page", meta_robots=(("robots", "nofollow"),))


@_oddity
def nofollow_header(spot: Spot) -> None:
    _behind(spot, "nofollow_header", x_robots_tag="noindex, nofollow")


def _behind(spot: Spot, label: str, meta_robots: tuple[tuple[str, str], ...] = (), x_robots_tag: str = "") -> None:
    hidden = spot.add(spot.page())
    spot.examples["hidden"].append(hidden.url)
    page = spot.page()
    page.meta_robots, page.x_robots_tag, page.links = meta_robots, x_robots_tag, [hidden]
    spot.show(label, spot.add(page))


@_oddity
def nofollow_link(spot: Spot) -> None:
    """A page whose links say rel=nofollow; nothing else leads to their target."""
    hidden = spot.add(spot.page())
    spot.examples["hidden"].append(hidden.url)
    page = spot.page()
    page.links = [Link(hidden.host, hidden.path, hidden.anchor, nofollow=True)]
    spot.show("nofollow_link", spot.add(page))


@_oddity
def cut_short(spot: Spot) -> None:
    page = spot.page()
    page.cut = True
    spot.show("cut_short", spot.add(page))


@_oddity
def empty(spot: Spot) -> None:
    page = spot.page()
    page.empty = True
    spot.show("empty", spot.add(page))


@_oddity
def long_url(spot: Spot) -> None:
    """A real page with an address of 2,300 characters."""
    path = "/long/" + "-".join(slug(spot.rng) for _ in range(200))[:2_300]
    spot.show("long_url", spot.add(spot.page(path)))


@_oddity
def tracked(spot: Spot) -> None:
    """One page, three links that differ in tracking parameters only."""
    page = spot.add(spot.page())
    tails = ("?utm_source=letter&utm_medium=mail", "?gclid=Cj0KCQ", "?fbclid=IwAR0&utm_campaign=spring")
    spot.show("tracked", *(Link(page.host, page.path, page.anchor, page.path + tail) for tail in tails))


@_oddity
def expires(spot: Spot) -> None:
    """A page that is gone (410) from tick 2 on."""
    page = spot.page()
    page.dies = 2
    spot.show("expires", spot.add(page))


@_oddity
def canonical(spot: Spot) -> None:
    """A near copy that names another page of the host as the canonical one."""
    source = spot.lasting()
    page = spot.page()
    page.near_of, page.title, page.edits = (spot.host.name, source.path), source.title, 1
    page.canonical = spot.to(source).url
    spot.show("canonical", spot.add(page))


@_oddity
def unicode_path(spot: Spot) -> None:
    page = spot.add(spot.page("/caf%C3%A9"))
    spot.show("unicode_path", Link(page.host, page.path, page.anchor, "/caf\u00e9"))


@_oddity
def no_such_host(spot: Spot) -> None:
    spot.show("no_such_host", Link(NOWHERE, "/", "A site that is no more"))


@_oddity
def nobody_listens(spot: Spot) -> None:
    spot.show("nobody_listens", Link(SILENT, "/", "A site that is down"))


def coded_query(spot: Spot) -> None:
    """A query with an umlaut: coded in the page's own charset, as browsers do (WHATWG URL 4.4, query state)."""
    target = spot.add(spot.page("/suche?q=gr%FCn"))
    spot.show("coded_query", Link(target.host, target.path, target.anchor, "/suche?q=gr\u00fcn"))


def examples() -> defaultdict[str, list[str]]:
    return defaultdict(list)
