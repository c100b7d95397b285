"""Seed lists as people write them."""

from __future__ import annotations

import pytest

from spindle.seeds import Fault, Seed, parse
from spindle.urls import Normalizer

GOOD = [
    ("http://a.test/x", Seed("http://a.test/x"), "a plain line"),
    ("  HTTP://A.test:80/x  \r\n", Seed("http://a.test/x"), "Windows line end, blanks, another spelling"),
    ("\ufeffhttp://a.test/x", Seed("http://a.test/x"), "a byte order mark"),
    ("http://a.test/x\tpriority=0.5", Seed("http://a.test/x", 0.5), "Nutch's form"),
    ("http://a.test/x\tnutch.score=1.0\tnutch.fetchInterval=3600", Seed("http://a.test/x", 1.0, 3600), "Nutch's names"),
    ("http://a.test/x\tteam=docs", Seed("http://a.test/x", metadata={"team": "docs"}), "metadata is kept"),
    ("http://a.test/m.xml\tkind=sitemap", Seed("http://a.test/m.xml", kind="sitemap"), "what it is read as"),
    ('{"url": "http://a.test/x", "priority": 0, "n": 3}', Seed("http://a.test/x", 0.0, None, {"n": "3"}), "JSON"),
]
BAD = [
    ("not a url", "not_absolute", "junk"),
    ("ftp://a.test/x", "scheme", "a scheme that is not fetched"),
    ("http://a.test/x\tpriority=2", "priority 2 is not within 0..1", "out of range"),
    ("http://a.test/x\tpriority=nan", "priority 'nan' is not a number", "not finite"),
    ("http://a.test/x\tinterval=-5", "interval -5 s is not within 1..3155760000", "negative interval"),
    ("http://a.test/x\tkind=robots", "kind 'robots' is not one of page, sitemap, feed", "no such kind"),
    ('{"url": "http://a.test/x", "kind": []}', "kind [] is not one of page, sitemap, feed", "no text"),
    ("http://a.test/x\tjunk", "expected key=value after the URL, found 'junk'", "no key=value"),
    ('{"url": 3}', 'a JSON seed needs "url", a text', "wrong type"),
    ('{"url": "http://a.test/', "not valid JSON", "cut off"),
    ("[" * 5000, "not_absolute", "not JSON at all"),
    ('{"a":' * 5000, "not valid JSON", "nested beyond reason"),
]


@pytest.fixture(scope="module")
def normalizer(settings):
    return Normalizer(settings.url)


@pytest.mark.parametrize(("line", "seed", "why"), GOOD, ids=[why for *_, why in GOOD])
def test_good(line, seed, why, normalizer):
    assert list(parse([line], normalizer)) == [seed]


@pytest.mark.parametrize(("line", "reason", "why"), BAD, ids=[why for *_, why in BAD])
def test_bad(line, reason, why, normalizer):
    assert list(parse(["", "# a comment", line], normalizer)) == [Fault(3, line.strip()[:200], reason)]


def test_silent_lines_count_for_line_numbers(normalizer):
    assert list(parse(["", "#x", "  \r\n", "junk"], normalizer)) == [Fault(4, "junk", "not_absolute")]
