"""The try-out tools: what they tell of a page and of a robots.txt."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import Iterator

import pytest

from loopback import Site
from spindle.fetcher.task import hop_scope
from spindle.fetcher.tryout import fetch_one, fetch_robots


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as one:
        yield one


def test_a_page_is_told_with_its_body(site: Site) -> None:
    site.page("/a", gzip.compress(b"<p>hello"), headers={"Content-Encoding": "gzip"})
    told = asyncio.run(fetch_one(site.url("/a"), site.settings()))
    assert (told["outcome"], told["http_status"], told["body"]) == ("ok", 200, b"<p>hello")
    assert told["content_hash"] == hashlib.sha256(b"<p>hello").hexdigest()
    assert [request.path for request in site.seen()] == ["/robots.txt", "/a"]


def test_what_robots_forbid_is_not_fetched(site: Site) -> None:
    site.robots("User-agent: *\nDisallow: /a\nCrawl-delay: 7\nSitemap: http://h.test/map.xml\n")
    told = asyncio.run(fetch_one(site.url("/a"), site.settings()))
    assert told["outcome"] == "denied"
    assert site.paths() == []
    rules = asyncio.run(fetch_robots(site.url("/a"), site.settings()))
    assert (rules["allowed"], rules["crawl_delay_s"], rules["sitemaps"]) == (False, 7.0, ["http://h.test/map.xml"])
    assert asyncio.run(fetch_robots(site.url("/b"), site.settings()))["allowed"] is True


def test_the_gap_is_kept_and_a_redirect_told(site: Site) -> None:
    site.redirect("/a", "/b")
    settings = site.settings({"politeness": {"min_delay_s": 0.3}})
    told = asyncio.run(fetch_one(site.url("/a"), settings))
    assert (told["outcome"], told["redirect_to"]) == ("redirect", site.url("/b"))
    assert min(site.gaps("h.test")) >= 0.3


def test_failures_are_told(site: Site) -> None:
    site.robots("", status=503)
    assert asyncio.run(fetch_one(site.url("/a"), site.settings()))["outcome"] == "robots_unreachable"
    nowhere = asyncio.run(fetch_robots("http://nowhere.example/", site.settings()))
    assert (nowhere["allowed"], nowhere["verdict"]) == (False, "unreachable")
    assert "hosts file" in nowhere["error"]


def test_redirect_hops_are_held_to_scope_and_traps(site: Site) -> None:
    settings = site.settings({"scope": {"deny": ["regex:/private"], "follow": "host"}})
    wanted = hop_scope(settings)
    assert wanted(site.url("/a"))
    assert not wanted(site.url("/private/a"))
    assert not wanted(site.url("/a/b" * 40))
