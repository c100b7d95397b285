"""From records to rows: pages, their links, and every link that got no row under its reason."""

from __future__ import annotations

import gzip
import re
from typing import Any

import pytest

from spindle import config, urls, warc
from spindle.defaults import default_layer
from spindle.errors import WarehouseError
from spindle.extract import Extract, Rules, of_record, of_redirect, of_robots
from spindle.schema import columns
from spindle.scope import Scope

DATE = "2026-11-30T12:00:00.000000Z"
PAGE = "http://h.test/dir/page"
PROSE = " ".join(f"word{number}" for number in range(40))


def rules(**sections: dict[str, Any]) -> Rules:
    settings = config.build([default_layer(), ("test", sections)])
    scope = Scope(settings.scope, seed_hosts=["h.test"], seed_domains=["h.test"])
    return Rules(settings, scope, urls.Normalizer(settings.url), 8, "a.1of1", "2026-11", 1)


def capture(body: bytes, headers: dict[str, str], url: str = PAGE, status: bytes = b"HTTP/1.1 200 OK") -> warc.Capture:
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    pairs.append((b"Content-Length", b"%d" % len(body)))
    request = b"GET /dir/page HTTP/1.1\r\n\r\n"
    return warc.Capture(url, DATE, "127.0.0.1", request, status, pairs, body, warc.payload_digest(body))


class Files:
    """Segment files in memory: records one after the other, as a task lays them."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}

    def add(self, record: bytes, file: str = "segment-files/a.1of1/warc/x.warc.gz") -> tuple[str, int, int]:
        before, member = self.content.get(file, b""), warc.member(record)
        self.content[file] = before + member
        return file, len(before), len(member)

    def read(self, file: str, offset: int, length: int) -> bytes:
        if file not in self.content:
            raise FileNotFoundError(file)
        return self.content[file][offset : offset + length]


def fetch(place: tuple[str, int, int] | None = None, **changes: Any) -> dict[str, Any]:
    """A row as parse hands it over."""
    file, offset, length = place or (None, None, None)
    row: dict[str, Any] = {"url": PAGE, "url_key": urls.url_key(PAGE), "bucket": 3, "host": "h.test", "kind": "page"}
    row |= {"depth": 1, "outcome": "ok", "redirect_to": None, "x_robots_tag": None, "seed_priority": 0.5}
    row |= {"warc_file": file, "warc_offset": offset, "warc_length": length}
    return row | changes


def parsed(body: str | bytes, content_type: str = "text/html", by: Rules | None = None, **changes: Any) -> Extract:
    """What a page of this body gives."""
    files, content = Files(), body if isinstance(body, bytes) else body.encode()
    headers = {"Content-Type": content_type} | changes.pop("headers", {})
    place = files.add(warc.response(capture(content, headers)))
    return of_record(fetch(place, **changes), files.read, by or rules())


def targets(made: Extract) -> list[str]:
    return [link["dst_url"] for link in made.links]


# --- pages


def test_a_page_gives_a_row_with_every_column_and_its_links_theirs() -> None:
    made = parsed(
        f'<html lang="en"><head><title> A  title </title><meta name="description" content="d"></head>'
        f'<body><p>{PROSE}</p><a href="/x?b=2&a=1#f"> to  x </a> <a href="https://www.other.co.uk/">away</a></body>'
    )
    assert made.page is not None
    assert list(made.page) == columns("pages")
    wanted = {"segment": "a.1of1", "month": "2026-11", "parse_version": 1, "url": PAGE, "bucket": 3, "kind": "page"}
    wanted |= {"title": "A title", "description": "d", "language": "en", "links": 2, "links_cut": 0, "error": None}
    assert {name: made.page[name] for name in wanted} == wanted
    assert made.page["word_count"] >= 40 and PROSE in made.page["text"]
    assert -(2**63) <= made.page["simhash"] < 2**63, "a BIGINT is signed"
    assert made.links[1] == {
        "segment": "a.1of1",
        "parse_version": 1,
        "src_key": urls.url_key(PAGE),
        "src_url": PAGE,
        "src_host": "h.test",
        "rel": made.links[1]["rel"],
        "dst_key": urls.url_key("https://www.other.co.uk/"),
        "dst_bucket": urls.bucket_of("other.co.uk", 8),
        "dst_url": "https://www.other.co.uk/",
        "dst_host": "www.other.co.uk",
        "dst_domain": "other.co.uk",
        "dst_kind": "page",
        "anchor": "away",
        "position": "content",
        "nofollow": False,
        "depth": 2,
        "seed_priority": None,
        "lastmod": None,
    }
    assert list(made.links[1]) == columns("links")
    assert targets(made)[0] == "http://h.test/x?a=1&b=2", "normalised, resolved against the page"
    assert made.links[0]["anchor"] == "to x"


@pytest.mark.parametrize(
    ("head", "tag", "keeps_text", "links", "why"),
    [
        ("", None, True, 1, "a plain page"),
        ('<meta name="robots" content="noindex">', None, False, 1, "its words are not kept, its links are followed"),
        ('<meta name="robots" content="noarchive">', None, False, 1, "no copy of its words"),
        ('<meta name="robots" content="nofollow">', None, True, 0, "its links are not followed"),
        ("", "none", False, 0, "the header says both"),
        ('<meta name="spindle" content="noindex">', None, False, 1, "to us by name"),
        ('<meta name="otherbot" content="noindex">', None, True, 1, "to somebody else"),
    ],
)
def test_what_a_page_says_to_robots(head: str, tag: str | None, keeps_text: bool, links: int, why: str) -> None:
    made = parsed(f'<head>{head}</head><body><p>{PROSE}</p><a href="/x">x</a>', x_robots_tag=tag)
    assert made.page is not None
    assert (made.page["text"] is not None) == keeps_text, why
    assert len(made.links) == made.page["links"] == links, why
    assert made.rejected.get("page_nofollow", 0) == 1 - links, "what is not followed is counted"
    decided = (
        ["header:none"] if tag else [f"meta:{word}" for word in re.findall('(?<!otherbot)" content="(\\w+)', head)]
    )
    assert made.page["robots"] == decided, "the directive that decided"
    assert made.page["simhash"] is not None and made.page["text_hash"] is not None, "a change is seen all the same"


@pytest.mark.parametrize("said", ["noindex", "nofollow", "noarchive", "none"])
@pytest.mark.parametrize("source", ["meta_robots", "x_robots_tag"])
def test_each_source_of_page_robots_is_obeyed_or_switched_off(source: str, said: str) -> None:
    head, tag = (f'<meta name="robots" content="{said}">', None) if source == "meta_robots" else ("", said)
    body = f'<head>{head}</head><body><p>{PROSE}</p><a href="/x">x</a>'
    obeyed = parsed(body, x_robots_tag=tag)
    other = {"meta_robots": "x_robots_tag", "x_robots_tag": "meta_robots"}[source]
    same = parsed(body, x_robots_tag=tag, by=rules(parse={other: False}))
    free = parsed(body, x_robots_tag=tag, by=rules(parse={source: False}))
    assert obeyed.page is not None and free.page is not None
    assert obeyed.page["noindex"] == (said in ("noindex", "none"))
    assert targets(obeyed) == ([] if said in ("nofollow", "none") else ["http://h.test/x"])
    assert (obeyed.page["text"] is None) == (said != "nofollow")
    assert (same.page, same.links) == (obeyed.page, obeyed.links), "the other switch is for the other source"
    assert not (free.page["noindex"] or free.page["nofollow"] or free.page["noarchive"] or free.page["robots"])
    assert targets(free) == ["http://h.test/x"] and PROSE in free.page["text"]


@pytest.mark.parametrize(
    ("href", "sections", "reason", "why"),
    [
        ("mailto:a@h.test", {}, None, "html counts it under its scheme"),
        ("http://ho st/", {}, None, "html counts it under its fault"),
        ("/a/b/a/b/a/b/x", {}, "trap_repeated_segments", "a loop of relative links"),
        ("/deep", {"trap": {"max_depth": 1}}, "trap_depth", "two links from a seed"),
        ("/q?" + "&".join(f"p{n}=1" for n in range(25)), {}, "trap_query_params", "a facet explosion"),
        ("http://o.test/", {"scope": {"follow": "host"}}, "scope_follow host: not a seed host", "another host"),
        ("http://h.test/secret/1", {"scope": {"deny": ["regex:/secret/"]}}, "scope_deny regex:/secret/", "denied"),
    ],
)
def test_a_link_without_a_row_is_counted(href: str, sections: dict[str, Any], reason: str | None, why: str) -> None:
    made = parsed(f'<a href="{href}">x</a> <a href="/kept">y</a>', by=rules(**sections) if sections else None, depth=0)
    if "trap" in sections:
        made = parsed(f'<a href="{href}">x</a>', by=rules(**sections))
        assert targets(made) == []
    else:
        assert targets(made) == ["http://h.test/kept"], why
    assert sum(made.rejected.values()) == 1, why
    if reason:
        assert made.rejected == {reason: 1}, why


def test_what_a_page_tells_of_itself_is_bounded() -> None:
    many = "".join(f'<meta property="og:p{n}" content="v">' for n in range(1000))
    said = '<meta name="robots" content="noarchive, noarchive">'
    made = parsed(f'{said}<meta property="og:type" content="article">{many}')
    assert made.page is not None and made.page["open_graph"]["type"] == "article"
    assert (len(made.page["open_graph"]), made.page["robots"]) == (50, ["meta:noarchive"])
    shop = parsed('<script type="application/ld+json">{"@type": "Product", "headline": "A"}</script>')
    assert shop.page is not None and (shop.page["schema_type"], shop.page["title"]) == ("Product", "A")


def test_nofollow_links_are_counted_or_followed_as_told() -> None:
    body = '<a href="/x" rel="nofollow">x</a> <a href="/y" rel="ugc nofollow">y</a> <a href="/z">z</a>'
    made = parsed(body)
    assert targets(made) == ["http://h.test/z"] and made.rejected == {"nofollow": 2}
    bold = parsed(body, by=rules(parse={"follow_nofollow": True}))
    assert targets(bold) == ["http://h.test/x", "http://h.test/y", "http://h.test/z"] and not bold.rejected
    assert [link["nofollow"] for link in bold.links] == [True, True, False]


def test_links_are_normalised_by_the_users_own_rules() -> None:
    body = '<a href="/x?mine=1&b=2">x</a>'
    assert targets(parsed(body)) == ["http://h.test/x?b=2&mine=1"]
    own = rules(url={"tracking_params": ["mine"]})
    assert targets(parsed(body, by=own)) == ["http://h.test/x?b=2"]


def test_links_past_the_limit_are_cut_and_counted() -> None:
    body = "".join(f'<a href="/{number}">x</a>' for number in range(7))
    made = parsed(body, by=rules(parse={"max_links": 5}))
    assert made.page is not None
    assert (len(made.links), made.page["links_cut"], made.rejected) == (5, 2, {"links_cut": 2})


def test_a_feed_is_a_link_of_its_kind() -> None:
    made = parsed('<link rel="alternate" type="application/rss+xml" href="/feed.xml"><a href="/x">x</a>')
    assert [(link["dst_url"], link["dst_kind"], link["rel"]) for link in made.links if link["rel"] == "feed"] == [
        ("http://h.test/feed.xml", "feed", "feed")
    ]


def test_a_coded_body_is_decoded_and_a_revisit_leads_to_it() -> None:
    files, body = Files(), gzip.compress(b"<title>caf\xe9</title>", mtime=0)
    headers = {"content-type": "text/html; charset=windows-1252", "Content-Encoding": "gzip"}
    first = files.add(warc.response(capture(body, headers)), "segment-files/old.1of1/warc/o.warc.gz")
    again = warc.revisit(capture(body, headers), warc.IDENTICAL_PAYLOAD, warc.Original(PAGE, DATE, first))
    for place in (first, files.add(again)):
        made = of_record(fetch(place), files.read, rules())
        assert made.page is not None
        assert (made.page["title"], made.page["charset"], made.page["error"]) == ("café", "windows-1252", None)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("missing", "record: "),
        ("cut", "record: the gzip member is cut off"),
        ("damaged", "record: "),
        ("lost original", "record: "),
        ("no head", "record: no HTTP head in the block"),
    ],
)
def test_a_record_that_cannot_be_read_is_a_row_with_an_error(fault: str, told: str) -> None:
    files = Files()
    file, offset, length = files.add(warc.response(capture(b"<a href='/x'>x</a>", {"Content-Type": "text/html"})))
    if fault == "missing":
        files.content.clear()
    if fault == "cut":
        length -= 9
    if fault == "damaged":
        files.content[file] = b"\x1f\x8b" + b"\0" * 50
    if fault == "lost original":
        gone = warc.Original(PAGE, DATE, ("segment-files/gone/warc/g.warc.gz", 0, 99))
        file, offset, length = files.add(warc.revisit(capture(b"x", {}), warc.IDENTICAL_PAYLOAD, gone))
    if fault == "no head":
        file, offset, length = files.add(warc.warcinfo("f", DATE, {"a": "b"}))
    made = of_record(fetch((file, offset, length)), files.read, rules())
    assert made.page is not None and made.links == []
    assert made.page["error"].startswith(told)
    assert (made.page["url"], made.page["segment"], made.page["title"]) == (PAGE, "a.1of1", None)


def test_a_store_that_fails_is_no_fault_of_the_page() -> None:
    def read(file: str, offset: int, length: int) -> bytes:
        raise WarehouseError("disk")

    with pytest.raises(WarehouseError):
        of_record(fetch(("f", 0, 9)), read, rules())


# --- sitemaps, redirects, robots.txt

URLSET = """<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
<url><loc>http://h.test/one</loc><lastmod>2026-11-29</lastmod></url><url><loc>ftp://h.test/two</loc></url>
<url><loc>http://h.test/one</loc></url><url><loc>http://h.test/a/b/a/b/a/b/x</loc></url></urlset>"""
INDEX = """<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
<sitemap><loc>http://h.test/part.xml.gz</loc></sitemap></sitemapindex>"""


def test_a_sitemap_gives_links_and_counts_the_others() -> None:
    made = parsed(URLSET, "application/xml", kind="sitemap", depth=0)
    [link] = made.links
    assert (link["dst_url"], link["dst_kind"], link["rel"], link["depth"]) == (
        "http://h.test/one",
        "page",
        "sitemap",
        1,
    )
    assert link["lastmod"] is None, "outside the sitemap's folder"
    assert made.rejected == {"sitemap_scheme": 1, "sitemap_duplicate": 1, "trap_repeated_segments": 1}
    assert made.page is not None and (made.page["kind"], made.page["links"]) == ("sitemap", 1)


def test_a_sitemap_claims_nothing_of_other_places() -> None:
    """The location rule (sitemaps.org): below its own folder."""
    entry = "<url><loc>{}</loc><lastmod>2026-11-29</lastmod></url>"
    listed = "".join(map(entry.format, ("http://h.test/dir/in", "http://h.test/out", "http://o.test/dir/x")))
    made = parsed(f"<urlset>{listed}</urlset>", "application/xml", kind="sitemap")
    assert [(link["dst_url"], link["lastmod"]) for link in made.links] == [
        ("http://h.test/dir/in", "2026-11-29"),
        ("http://h.test/out", None),
        ("http://o.test/dir/x", None),
    ]


def test_an_index_gives_sitemaps_of_its_own_depth() -> None:
    made = parsed(gzip.compress(INDEX.encode()), "application/gzip", kind="sitemap", depth=0)
    assert [(link["dst_url"], link["dst_kind"], link["depth"]) for link in made.links] == [
        ("http://h.test/part.xml.gz", "sitemap", 0)
    ]


def test_what_is_no_sitemap_is_a_row_with_an_error() -> None:
    made = parsed("<html><a href='/x'>x</a></html>", kind="sitemap")
    assert made.page is not None and made.links == []
    assert made.page["error"] == "sitemap: not_sitemap"


@pytest.mark.parametrize("kind", ["page", "sitemap", None])
def test_a_redirect_is_a_link_that_inherits(kind: str | None) -> None:
    made = of_redirect(fetch(outcome="redirect", redirect_to="http://o.test/new", kind=kind), rules())
    assert made.page is None
    [link] = made.links
    wanted = {"dst_url": "http://o.test/new", "rel": "redirect", "depth": 1, "seed_priority": 0.5}
    wanted |= {"dst_kind": kind or "page", "src_url": PAGE, "nofollow": False}
    assert {name: link[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("target", "sections", "reason"),
    [
        ("http://o.test/", {"scope": {"follow": "host"}}, "scope_follow host: not a seed host"),
        ("http://h.test/a/b/a/b/a/b/", {}, "trap_repeated_segments"),
    ],
)
def test_a_redirect_out_of_bounds_is_counted(target: str, sections: dict[str, Any], reason: str) -> None:
    made = of_redirect(fetch(outcome="redirect", redirect_to=target), rules(**sections))
    assert made.links == [] and made.rejected == {reason: 1}


def test_the_sitemaps_of_a_robots_txt() -> None:
    made = of_robots("https://h.test", ["https://h.test/s.xml", "not a url", "https://cdn.test/s.xml.gz"], rules())
    assert [(link["dst_url"], link["dst_kind"], link["depth"], link["src_url"]) for link in made.links] == [
        ("https://h.test/s.xml", "sitemap", 0, "https://h.test/robots.txt"),
        ("https://cdn.test/s.xml.gz", "sitemap", 0, "https://h.test/robots.txt"),
    ]
    assert sum(made.rejected.values()) == 1, "what is no URL is counted"
