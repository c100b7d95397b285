"""The demo web as a value: the same from the same seed, true to its truth, endless only where it says so.

No sockets here (test_demo_server.py has them): requests go straight to `respond`, the function behind the server.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections import Counter, defaultdict
from html.parser import HTMLParser
from urllib.parse import quote, urljoin, urlsplit

import pytest
from protego import Protego

from spindle.demo import Entry, Fate, Policy, World, build_world, expectation, fates, gaps, overlaps, reachable
from spindle.demo.model import Group, Host, Kind, Link, Resource, Robots, address
from spindle.demo.respond import Answer, Request, plain, respond
from spindle.demo.roles import CODINGS
from spindle.demo.traps import ENTRIES, trap_of
from spindle.demo.world import MIN_HOSTS


@pytest.fixture(scope="module")
def world() -> World:
    """The smallest world: every role and every oddity once at least."""
    return build_world(seed=7, hosts=MIN_HOSTS, pages=(8, 20), farm=True)


def get(
    world: World, url: str, tick: int = 0, visits: Counter[tuple[str, str]] | None = None, **headers: str
) -> Answer:
    """A GET of a URL, by a client of its own or (with `visits`) as one more of many."""
    parts = urlsplit(url)
    asked = {name.replace("_", "-"): value for name, value in headers.items()}
    request = Request("GET", parts.netloc, url.partition(parts.netloc)[2] or "/", asked)
    return respond(world, Counter() if visits is None else visits, request, tick)


def pages(world: World) -> list[tuple[Host, Resource]]:
    return [(host, page) for host, page in world.everything() if page.kind is Kind.PAGE and page.status == 200]


def url_of(host: Host, resource: Resource) -> str:
    return f"http://{host.name}{resource.path}"


# --- the world -------------------------------------------------------------------------------------------------------


def digest(world: World) -> str:
    found = hashlib.sha256()
    for host, resource in world.everything():
        answer = get(world, url_of(host, resource), tick=3)
        found.update(repr((answer.status, answer.headers)).encode() + answer.body)
    return found.hexdigest()


def test_same_seed_same_bytes_other_seed_other_bytes(world: World) -> None:
    again = build_world(seed=7, hosts=MIN_HOSTS, pages=(8, 20), farm=True)
    assert digest(again) == digest(world)
    assert build_world(seed=8, hosts=MIN_HOSTS, pages=(8, 20)).hosts.keys() != world.hosts.keys()


def test_default_world_is_as_large_as_promised() -> None:
    world = build_world()
    assert len(world.hosts) == 200
    assert len(world.seeds) == 12
    assert 5_000 < sum(len(host.resources) for host in world.hosts.values()) < 8_000
    assert len({host.domain for host in world.hosts.values()}) > 50  # registered domains: buckets are spread by them
    known = fates(world, world.seeds)
    assert [host.front for host in world.hosts.values() if host.front not in known] == []


@pytest.mark.parametrize(("hosts", "span"), [(MIN_HOSTS - 1, (10, 60)), (200, (2, 60)), (200, (30, 20))])
def test_impossible_worlds_are_refused(hosts: int, span: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="at least"):
        build_world(1, hosts, span)


@pytest.mark.parametrize(
    ("base", "place", "expected"),
    [("127.1.0.0", 0, "127.1.0.1"), ("127.1.0.0", 6, "127.1.0.7"), ("127.1.0.0", 299, "127.1.1.44")],
)
def test_addresses_count_up(base: str, place: int, expected: str) -> None:
    assert address(base, place) == expected


def test_only_loopback_addresses_are_used() -> None:
    with pytest.raises(ValueError, match="loopback"):
        address("10.0.0.0", 0)


# --- truth and pages agree -------------------------------------------------------------------------------------------


class Anchors(HTMLParser):
    """The links and robots metas of a page, read by another parser than the crawler's."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: list[tuple[str, bool]] = []
        self.robots: list[str] = []
        self.title = ""
        self._in_title = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self._in_title = tag == "title"
        if tag == "a" and not found["href"].startswith(("mailto:", "javascript:", "#")):
            self.links.append((found["href"], "nofollow" in found.get("rel", "")))
        if tag == "meta" and found.get("name") in ("robots", "spindle"):
            self.robots.append(found["content"])

    def handle_data(self, data: str) -> None:
        self.title += data if self._in_title else ""
        self._in_title = False


def plain_url(base: str, href: str, codec: str) -> str:
    """The URL that a browser asks for, in its plain form and without session id."""
    parts = urlsplit(urljoin(base, href.strip()))
    query_codec = "utf-8" if codec.startswith("utf-16") else codec  # WHATWG Encoding 4.3, "get an output encoding"
    query = re.sub(r"sid=[0-9a-f]+", "", quote(parts.query.encode(query_codec), safe="%=&+"))
    host = (parts.hostname or "").lower()
    return f"http://{host}{plain(quote(parts.path or '/', safe='%/(),') + ('?' + query if query else ''))}"


def codec_of(world: World, url: str) -> str:
    found = expectation(world, url)
    return found.codec if found and found.codec else "utf-8"


def follow(world: World, url: str, answer: Answer) -> list[str]:
    """What a page, a redirect or a sitemap leads to."""
    headers = dict(answer.headers)
    if "Location" in headers:
        return [urljoin(url, headers["Location"])]
    if answer.status != 200:
        return []
    if headers["Content-Type"] in ("application/xml", "application/gzip"):
        xml = gzip.decompress(answer.body) if headers["Content-Type"].endswith("gzip") else answer.body
        return re.findall(r"<loc>(.*?)</loc>", xml.decode().replace("&amp;", "&"))
    if not headers["Content-Type"].startswith("text/html"):
        return []
    codec = codec_of(world, url)
    page = Anchors(answer.body.decode(codec, "replace"))
    if "nofollow" in " ".join([*page.robots, headers.get("X-Robots-Tag", "")]):
        return []
    return [plain_url(url, href, codec) for href, nofollow in page.links if not nofollow]


def crawl(world: World, tick: int) -> dict[str, Fate]:
    """A crawler of twenty lines that knows nothing of the truth, apart from what a trap is."""
    found: dict[str, Fate] = {}
    robots: dict[str, Protego] = {}
    visits: Counter[tuple[str, str]] = Counter()
    queue = list(world.seeds)
    for url in queue:
        host = urlsplit(url).netloc
        if url in found:
            continue
        if trap_of(world, url) or host not in world.hosts or len(url) > 2_000:
            found[url] = Fate.TRAP
            continue
        if host not in robots:
            answer = get(world, f"http://{host}/robots.txt")
            answer = get(world, urljoin(url, dict(answer.headers).get("Location", "/robots.txt")))
            text = "User-agent: *\nDisallow: /" if answer.status == 500 else answer.body.decode()
            robots[host] = Protego.parse(text if answer.status in (200, 500) else "")
            queue += list(robots[host].sitemaps)
        found[url] = Fate.FETCH if robots[host].can_fetch(url, "spindle") else Fate.DENIED
        if found[url] is Fate.FETCH:
            answer = get(world, url, tick, visits)
            while answer.status in (429, 500) and visits[host, urlsplit(url).path] < 3:  # by then what can heal has
                answer = get(world, url, tick, visits)
            queue += follow(world, url, answer)
    return found


@pytest.mark.parametrize("tick", [0, 3, 6])
def test_an_independent_crawler_finds_exactly_what_the_truth_says(world: World, tick: int) -> None:
    found = {url for url, fate in crawl(world, tick).items() if fate is Fate.FETCH}
    expected = reachable(world, world.seeds, tick=tick)
    assert found - expected == set()
    assert expected - found == set()
    assert len(expected) > 300


def test_every_answer_has_the_expected_status(world: World) -> None:
    for host, resource in world.everything():
        expected = expectation(world, url_of(host, resource), tick=1)
        assert expected is not None
        answer = get(world, url_of(host, resource), tick=1)
        assert answer.status == expected.first_status, url_of(host, resource)
        location = dict(answer.headers).get("Location")
        assert (urljoin(url_of(host, resource), location) if location else None) == expected.redirect_to


def test_robots_truth_agrees_with_another_implementation(world: World) -> None:
    for host, resource in world.everything():
        if host.robots.status == 200 and not host.robots.moved_to:
            rules = Protego.parse(get(world, f"http://{host.name}/robots.txt").body.decode())
            url = url_of(host, resource)
            assert rules.can_fetch(url, "spindle") == host.robots.allows(resource.path, "spindle"), url
            group = host.robots.group("spindle")
            assert rules.crawl_delay("spindle") == (group.crawl_delay_s if group else None)


RULES = Robots(
    200, (Group(("*",), ((False, "/a"), (True, "/a/b"), (False, "/*.x$"))), Group(("spindle",), ((False, "/s"),)))
)


@pytest.mark.parametrize(
    ("path", "token", "allowed", "why"),
    [
        ("/", "other", True, "no rule matches"),
        ("/abc", "other", False, "rules are prefixes"),
        ("/a/bc", "other", True, "the longer rule wins"),
        ("/q/f.x", "other", False, "a star matches anything"),
        ("/q/f.xy", "other", True, "a dollar ends the pattern"),
        ("/a", "spindle", True, "the own group replaces the one of *"),
        ("/s", "spindle", False, "the own group"),
    ],
)
def test_robots_rules(path: str, token: str, allowed: bool, why: str) -> None:
    assert RULES.allows(path, token) is allowed, why


@pytest.mark.parametrize(("status", "allowed"), [(404, True), (403, True), (500, False), (503, False)])
def test_robots_status(status: int, allowed: bool) -> None:
    assert Robots(status).allows("/x", "spindle") is allowed


def test_policy_changes_what_is_reachable(world: World) -> None:
    usual = reachable(world, world.seeds)
    hidden = set(world.examples["hidden"])
    assert not hidden & usual
    assert hidden < reachable(world, world.seeds, Policy(follow_nofollow=True, meta_robots=False))
    orphans = set(world.examples["only_in_sitemap"])
    assert orphans < usual
    assert not orphans & reachable(world, world.seeds, Policy(sitemaps=False))
    denied = {url for url, fate in fates(world, world.seeds).items() if fate is Fate.DENIED}
    assert denied
    assert denied < reachable(world, world.seeds, Policy(robots=False))
    assert set(fates(world, world.seeds).values()) == set(Fate)  # each fate happens to some URL


# --- copies ----------------------------------------------------------------------------------------------------------


def test_two_bodies_are_equal_exactly_where_the_truth_says_so(world: World) -> None:
    by_content, by_body = defaultdict(set), defaultdict(set)
    for host, resource in world.everything():
        expected = expectation(world, url_of(host, resource), tick=2)
        if expected and expected.content and expected.first_status == 200 and not resource.trap:
            body = get(world, url_of(host, resource), tick=2).body
            by_content[expected.content].add(body)
            by_body[body].add(expected.content)
    assert [content for content, bodies in by_content.items() if len(bodies) > 1] == []
    assert [contents for contents in by_body.values() if len(contents) > 1] == []


def test_copies_are_served_from_two_addresses(world: World) -> None:
    for url in world.examples["exact_copy"]:
        _, copy = world.find(url) or pytest.fail(url)
        assert copy.copy_of is not None
        assert get(world, url).body == get(world, "http://{}{}".format(*copy.copy_of)).body
    mirror = world.hosts[urlsplit(world.examples["mirror"][0]).netloc]
    assert get(world, mirror.front).body == get(world, f"http://{mirror.mirror_of}/").body


def words_of(world: World, url: str) -> list[str]:
    html = get(world, url).body.decode()
    return re.findall(r"\w+", " ".join(re.findall(r"<p>(.*?)</p>", re.sub(r" \(<a.*?</a>\)", "", html))))


@pytest.mark.parametrize("edits", [1, 5])
def test_near_copies_differ_in_so_many_words(world: World, edits: int) -> None:
    copies = [
        url for url in world.examples["near_copy"] if (expectation(world, url) or pytest.fail(url)).edits == edits
    ]
    assert copies
    for url in copies:
        host, _ = world.find(url) or pytest.fail(url)
        if host.lang != "en":
            continue  # a language without spaces has other words
        expected = expectation(world, url) or pytest.fail(url)
        source = f"http://{expected.near_group}"
        assert (expectation(world, source) or pytest.fail(source)).near_group == expected.near_group
        own, other = words_of(world, url), words_of(world, source)
        assert len(own) == len(other) > 100
        assert sum(a != b for a, b in zip(own, other, strict=True)) == edits
        assert get(world, url).body != get(world, source).body


# --- charsets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", list(CODINGS))
def test_bytes_are_in_the_charset_that_the_truth_names(world: World, role: str) -> None:
    front = world.examples[role][0]
    host, page = world.find(front) or pytest.fail(front)
    expected = expectation(world, front) or pytest.fail(front)
    answer = get(world, front)
    coding = host.coding
    text = answer.body.removeprefix(coding.bom).decode(expected.codec)
    assert Anchors(text).title == page.title
    assert (f"charset={coding.header}" in dict(answer.headers)["Content-Type"]) is bool(coding.header)
    assert (f'charset="{coding.meta}"' in text or f"charset={coding.meta}" in text) is bool(coding.meta)
    assert (expected.charset == "") is (role == "undeclared")
    assert not page.title.isascii()
    assert (expected.title == page.title) is (role != "wrong_header")


def test_a_wrong_header_shows_another_text() -> None:
    assert "é".encode("cp1252").decode("utf-8", "replace") == "\ufffd"
    host = Host("a.test", "a.test", "blog", 0, "A", "fr", CODINGS["wrong_header"][1])
    host.resources["/"] = Resource("/", title="Été")
    world = World(1, {"a.test": host}, (), {})
    assert (expectation(world, "http://a.test/") or pytest.fail()).title == "\ufffdt\ufffd"


def test_a_query_is_coded_in_the_charset_of_the_page(world: World) -> None:
    [url] = world.examples["coded_query"]
    assert url.endswith("/suche?q=gr%FCn")
    assert get(world, url).status == 200


# --- time ------------------------------------------------------------------------------------------------------------


def test_validators_are_honest(world: World) -> None:
    """Over five ticks a page's validators stay if and only if its body stays, and 304 is given if and only if so."""
    names = {"both": ["ETag", "Last-Modified"], "etag": ["ETag"], "modified": ["Last-Modified"], "none": []}
    compared = Counter[bool]()
    for host, page in pages(world):
        url = url_of(host, page)
        new = get(world, url, 0)
        for tick in range(5):
            old, new = new, get(world, url, tick + 1)
            if page.trap or (old.status, new.status) != (200, 200):
                continue
            before, after = dict(old.headers), dict(new.headers)
            same = old.body == new.body
            compared[same] += 1
            for name, asks in (("ETag", "if_none_match"), ("Last-Modified", "if_modified_since")):
                assert (name in before) is (name in names[host.validators]), url
                if name in before:
                    assert (before[name] == after[name]) is same, url
                    assert (get(world, url, tick + 1, **{asks: before[name]}).status == 304) is same, url
    assert min(compared[True], compared[False]) > 100


@pytest.mark.parametrize(
    ("asked", "status", "why"),
    [
        ({}, 200, "not conditional"),
        ({"if_none_match": "{etag}"}, 304, "the same"),
        ({"if_none_match": "W/{etag}"}, 304, "weak comparison: RFC 9110 13.1.2"),
        ({"if_none_match": '"x", {etag}'}, 304, "one of a list"),
        ({"if_none_match": "*"}, 304, "any"),
        ({"if_none_match": '"x"'}, 200, "another"),
        ({"if_modified_since": "{date}"}, 304, "not newer"),
        ({"if_modified_since": "Mon, 01 Jan 2001 00:00:00 GMT"}, 200, "newer"),
        ({"if_modified_since": "yesterday"}, 200, "not a date: ignored, RFC 9110 13.1.3"),
        ({"if_none_match": '"x"', "if_modified_since": "{date}"}, 200, "If-None-Match decides alone: RFC 9110 13.2.2"),
    ],
)
def test_conditional_requests(world: World, asked: dict[str, str], status: int, why: str) -> None:
    headers = dict(get(world, world.seeds[0]).headers)
    filled = {
        name: value.replace("{etag}", headers["ETag"]).replace("{date}", headers["Last-Modified"])
        for name, value in asked.items()
    }
    answer = get(world, world.seeds[0], 0, **filled)
    assert (answer.status, answer.body == b"") == (status, status == 304), why


@pytest.mark.parametrize(
    ("period", "phase", "changes"),
    [(0, 0, [0]), (1, 0, [0, 1, 2, 3, 4, 5]), (2, 0, [0, 2, 4]), (4, 1, [0, 3])],
)
def test_pages_change_at_known_ticks(period: int, phase: int, changes: list[int]) -> None:
    page = Resource("/", period=period, phase=phase)
    assert sorted({page.changed_at(tick) for tick in range(6)}) == changes


def test_pages_are_born_and_die(world: World) -> None:
    fresh = next((host, page) for host, page in world.everything() if page.born == 2)
    assert [get(world, url_of(*fresh), tick).status for tick in (0, 1, 2, 9)] == [404, 404, 200, 200]
    url = world.examples["expires"][0]
    assert [get(world, url, tick).status for tick in (0, 1, 2, 9)] == [200, 200, 410, 410]


def test_a_page_that_gains_a_link_changes(world: World) -> None:
    born = {page.path for _, page in world.everything() if page.born == 2}
    host, listing, link = next(
        (host, page, link)
        for host, page in pages(world)
        for link in page.links
        if link.path in born and link.href is None and not page.period
    )
    before, after = (get(world, url_of(host, listing), tick) for tick in (1, 2))
    assert link.path.encode() not in before.body
    assert link.path.encode() in after.body
    assert before.headers != after.headers


# --- traps -----------------------------------------------------------------------------------------------------------


def entry(world: World, trap: str) -> str:
    return world.examples[f"{trap}_entry"][0]


def links_inside(world: World, url: str, visits: Counter[tuple[str, str]]) -> list[str]:
    html = get(world, url, visits=visits).body.decode()
    joined = [urljoin(url, href) for href, _ in Anchors(html).links]
    return [link for link in joined if trap_of(world, link)]


@pytest.mark.parametrize("trap", list(ENTRIES))
def test_traps_go_on(world: World, trap: str) -> None:
    """From the entry every answer leads to an address never seen before, fifty times (facets end after seven)."""
    assert trap_of(world, entry(world, trap)) == ""
    visits: Counter[tuple[str, str]] = Counter()
    seen, url = set(), entry(world, trap)
    for _ in range(7 if trap == "facets" else 50):
        fresh = [link for link in links_inside(world, url, visits) if link not in seen]
        assert fresh, url
        url = fresh[-1]
        seen.add(url)
        assert get(world, url).status == 200
        assert trap_of(world, url) == trap


def test_session_pages_show_the_same_text_at_each_visit(world: World) -> None:
    visits: Counter[tuple[str, str]] = Counter()
    for trap in ("session", "path_session"):
        one, two = (get(world, entry(world, trap), visits=visits) for _ in range(2))
        assert one.body != two.body
        assert re.sub(rb"[0-9a-f]{16}", b"", one.body) == re.sub(rb"[0-9a-f]{16}", b"", two.body)
        assert "ETag" not in dict(one.headers)


def test_farm_names_lead_to_more_names(world: World) -> None:
    answer = get(world, "http://any.farm.test/")
    names = [urlsplit(href).netloc for href, _ in Anchors(answer.body.decode()).links if "farm" in href]
    assert len(set(names)) == 3
    assert fates(world, world.seeds)["http://partners.farm.test/"] is Fate.TRAP
    assert [get(world, f"http://{name}/").status for name in names] == [200] * 3
    assert get(build_world(1, MIN_HOSTS, (8, 12)), "http://any.farm.test/").status == 421


# --- the witness -----------------------------------------------------------------------------------------------------


def visit(start: float, end: float, host: str = "a.test", where: str = "127.1.0.1") -> Entry:
    return Entry(start, end, host, "GET", "/", 200, "x", "", "", where, 1, 0)


@pytest.mark.parametrize(
    ("entries", "gap", "pairs", "why"),
    [
        ([visit(0, 1)], {}, 0, "one request has no gap"),
        ([visit(0, 1), visit(3, 4), visit(5.5, 6)], {"a.test": 1.5}, 0, "the smallest, from end to start"),
        ([visit(3, 4), visit(0, 1)], {"a.test": 2}, 0, "the order of the log does not matter"),
        ([visit(0, 2), visit(1, 3)], {"a.test": -1}, 1, "overlap"),
        ([visit(0, 9), visit(1, 2), visit(3, 4)], {"a.test": -8}, 2, "a long one overlaps all that come in it"),
        ([visit(0, 1), visit(0.5, 2, "b.test")], {}, 0, "hosts are apart"),
    ],
)
def test_gaps_and_overlaps(entries: list[Entry], gap: dict[str, float], pairs: int, why: str) -> None:
    assert gaps(entries) == pytest.approx(gap), why
    assert len(overlaps(entries)) == pairs, why


def test_gaps_of_an_address() -> None:
    entries = [visit(0, 1), visit(1.5, 2, "b.test")]
    assert gaps(entries, by="address") == {"127.1.0.1": 0.5}


def test_plain_form_of_a_target() -> None:
    assert plain("/a?z=1&utm_source=x&b=2#top") == "/a?b=2&z=1"
    assert plain("/a?utm_source=x") == "/a"
    assert Link("a.test", "/b?c=1", "x").url == "http://a.test/b?c=1"
