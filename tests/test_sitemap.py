"""Sitemaps and feeds: other projects' files, the faults that are forgiven, and what must not be believed."""

from __future__ import annotations

import gzip
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import jsonl, shared_file
from spindle import sitemap
from spindle.sitemap import SitemapError
from spindle.webdate import normal_date

URL = "http://e.example/shop/sitemap.xml"
IMAGES = "http://www.google.com/schemas/sitemap-image/1.1"


def locs(body: str | bytes, url: str = URL) -> list[str]:
    made = sitemap.parse(body.encode() if isinstance(body, str) else body, url)
    return [entry.loc for entry in made.urls]


@pytest.mark.parametrize("case", jsonl("sitemaps/expected.jsonl"), ids=lambda case: case["id"])
def test_case(case):
    body = shared_file(f"sitemaps/{case['file']}").read_bytes()
    if case["kind"] == "reject":
        with pytest.raises(SitemapError):
            sitemap.parse(body, case["sitemap_url"])
        return
    made = sitemap.parse(body, case["sitemap_url"])
    assert made.kind == case["kind"]
    assert (made.sitemaps if made.kind == "index" else [entry.loc for entry in made.urls]) == case["urls"]
    if "lastmod_epoch_ms" in case:
        times = [entry.lastmod and datetime.fromisoformat(entry.lastmod).timestamp() * 1000 for entry in made.urls]
        assert times == case["lastmod_epoch_ms"]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ("<url><loc> http://e.example/\n</loc></url>", ["http://e.example/"]),
        ("<url><loc>http://e.example/?a=1&b=2</loc></url>", ["http://e.example/?a=1&b=2"]),  # the commonest fault
        ("<url><loc>http://e.example/?a=1&amp;b=2</loc></url>", ["http://e.example/?a=1&b=2"]),
        ("<url><loc><![CDATA[http://e.example/?a=1&b=2]]></loc></url>", ["http://e.example/?a=1&b=2"]),
        ("<URL><LOC>http://e.example/</LOC></URL>", ["http://e.example/"]),
        ("<url><loc>/root</loc></url><url><loc>no url</loc></url>", ["http://e.example/root"]),
        ("<url><loc>http://e.example/1</loc></url><url><loc>http://e.example/1</loc></url>", ["http://e.example/1"]),
        # another vocabulary's <loc> is no page, whether its prefix is declared or not
        ("<url><loc>http://e.example/1</loc><image:image><image:loc>/i.png</image:loc></image:image></url>", ["http://e.example/1"]),
        (f"<url><loc>http://e.example/1</loc><i:loc xmlns:i='{IMAGES}'>/i</i:loc></url>", ["http://e.example/1"]),
        ("<url><lastmod>2024-01-01</lastmod></url>", []),
        ("<url><loc>http://e.example/&#233;</loc></url>", ["http://e.example/%C3%A9"]),
        ("<url><loc>http://e.example/1</loc></url><url><loc>http://e.example/hal", ["http://e.example/1"]),  # half
        ("<url><loc>http://e.example/1</loc></url><url><loc>http://e.example/2</", ["http://e.example/1", "http://e.example/2"]),
        ("<url><loc>http://e.example/1</loc><", ["http://e.example/1"]),
    ],
)  # fmt: skip
def test_urlset(items, expected):
    assert locs(f"<urlset>{items}</urlset>" if items.endswith(">") else f"<urlset>{items}") == expected


def test_claims_are_handed_on_in_one_spelling_or_not_at_all():
    made = sitemap.parse(
        b"<urlset><url><loc>http://e.example/shop/1</loc><lastmod>2024-03-05T10:00:00+02:00</lastmod>"
        b"<changefreq> Daily</changefreq><priority>0</priority></url>"
        b"<url><loc>http://e.example/2</loc><lastmod>soon</lastmod><changefreq>often</changefreq>"
        b"<priority>7</priority></url></urlset>",
        URL,
    )
    assert made.urls == (
        ("http://e.example/shop/1", "2024-03-05T08:00:00+00:00", "daily", 0.0, True),
        ("http://e.example/2", None, None, None, False),  # not below /shop/: the location rule
    )


@pytest.mark.parametrize(
    ("loc", "located"),
    [
        ("http://e.example/shop/a", True),
        ("http://e.example/shop/sub/a", True),
        ("http://e.example/shopping", False),
        ("https://e.example/shop/a", False),  # another scheme is another place
        ("http://www.e.example/shop/a", False),
        ("http://e.example:8080/shop/a", False),
    ],
)
def test_location_rule(loc, located):
    assert sitemap.parse(f"<urlset><url><loc>{loc}</loc></url></urlset>".encode(), URL).urls[0].located is located


def test_what_is_left_out_is_counted(monkeypatch):
    monkeypatch.setattr(sitemap, "MAX_URLS", 2)
    body = "".join(f"<url><loc>{loc}</loc></url>" for loc in ("http://e.example/1", "javascript:1", "x", "http://[/"))
    body += "".join(f"<url><loc>http://e.example/{i}</loc></url>" for i in (1, 2, 3, 4))
    made = sitemap.parse(f"<urlset>{body}</urlset>".encode(), URL)
    assert [entry.loc for entry in made.urls] == ["http://e.example/1", "http://e.example/2"]
    assert made.cut == 2
    assert made.rejected == {"scheme": 1, "not_absolute": 1, "bad_host": 1, "duplicate": 1}


def test_atom():
    body = (
        b'<feed xmlns="http://www.w3.org/2005/Atom"><link rel="self" href="/feed"/><id>http://e.example/</id><entry>'
        b'<link rel="enclosure" href="/mp3"/><link href="/a"/><updated>2024-02-03T04:05:06Z</updated></entry>'
        b"<entry><id>http://e.example/b</id><source><link href='/other'/></source></entry></feed>"
    )
    made = sitemap.parse(body, URL)
    assert made.kind == "atom"
    assert [(entry.loc, entry.lastmod) for entry in made.urls] == [
        ("http://e.example/a", "2024-02-03T04:05:06+00:00"),
        ("http://e.example/b", None),
    ]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"\x1f\x8bjunk", "not_gzip"),
        (b"<!DOCTYPE html><html><body><a href=/>x</a></body></html>", "not_sitemap"),  # a soft 404
        (b"<html><urlset><url><loc>http://e.example/</loc></url></urlset></html>", "not_sitemap"),
        (b"hello\nworld", "no_urls"),
        (b"\0" * 100, "no_urls"),
    ],
)
def test_no_sitemap(body, reason):
    with pytest.raises(SitemapError) as error:
        sitemap.parse(body, URL)
    assert error.value.reason == reason


def test_an_empty_urlset_is_a_sitemap():
    assert sitemap.parse(b"<urlset/>", URL).urls == ()


def test_gzip_of_several_members_and_cut_off():
    parts = [b"<urlset><url><loc>http://e.example/1</loc></url>", b"<url><loc>http://e.example/2</loc></url></urlset>"]
    whole = b"".join(map(gzip.compress, parts))
    assert locs(whole) == ["http://e.example/1", "http://e.example/2"]
    made = sitemap.parse(whole[:-30], URL)
    assert made.truncated
    assert made.urls[0].loc == "http://e.example/1"


def test_a_compression_bomb_is_inflated_to_the_limit_only(monkeypatch):
    monkeypatch.setattr(sitemap, "MAX_BYTES", 1000)
    body = b"<urlset><url><loc>http://e.example/1</loc></url>" + b" " * 10_000_000
    made = sitemap.parse(gzip.compress(body), URL)
    assert (made.truncated, [entry.loc for entry in made.urls]) == (True, ["http://e.example/1"])


def test_entities_are_text():
    laughs = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10 if i else "lol"}">' for i in range(12))
    body = f"<!DOCTYPE x [{laughs}]><urlset><url><loc>http://e.example/&l11;</loc></url></urlset>"
    assert locs(body) == ["http://e.example/&l11;"]


def test_external_things_are_not_fetched(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("http://secret.example/")
    body = f"""<!DOCTYPE x SYSTEM "{secret.as_uri()}" [<!ENTITY s SYSTEM "{secret.as_uri()}">
        <!ENTITY % p SYSTEM "{secret.as_uri()}">%p;]><urlset xmlns:xi="http://www.w3.org/2001/XInclude">
        <url><loc>&s;</loc></url><url><loc><xi:include href="{secret.as_uri()}" parse="text"/></loc></url>
        <url><loc>http://e.example/ok</loc></url></urlset>"""
    assert locs(body) == ["http://e.example/ok"]


@pytest.mark.parametrize(
    "body",
    [
        "<rss>" + "  <descr" * 50_000,
        "<urlset>" + "<url>" * 500_000,
        "<urlset>" + "<![CDATA[" * 200_000,
        "<urlset>" + "<!--" * 50_000,
    ],
    ids=["open tags", "depth", "cdata", "comments"],
)
def test_hostile_files_cost_what_they_weigh(body):
    """The first was found by tools/fuzz_parse.py: minutes, in a parser that is fed piece by piece."""
    assert sitemap.parse(body.encode(), URL).urls == ()


@pytest.mark.parametrize("kind", ["feed.rss", "sitemap-news.xml", "rss10-rdf.xml"])
def test_every_truncation_is_read_or_refused(kind):
    body = shared_file(f"sitemaps/{kind}").read_bytes()
    whole = set(locs(body))
    for length in range(len(body)):
        try:
            assert set(locs(body[:length])) <= whole  # never a URL that the whole file does not have
        except SitemapError:
            assert length < 300  # the root element had not begun


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_else(body):
    for prefix in (b"", b"<urlset>", b"<rss><channel><item><link>"):
        try:
            sitemap.parse(prefix + body, URL)
        except SitemapError:
            assert not prefix


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("2004-10-01T18:23:17+00:00", "2004-10-01T18:23:17+00:00"),
        ("2004-10-01T18:23:17Z", "2004-10-01T18:23:17+00:00"),
        ("2004-10-01T18:23:17.5-08:00", "2004-10-02T02:23:17+00:00"),
        ("2004-10-01 18:23", "2004-10-01T18:23:00+00:00"),  # no zone: UTC
        ("2004-10-01", "2004-10-01"),
        ("2004-10", "2004-10"),
        ("2004", "2004"),
        ("20041001", "2004-10-01"),
        ("Thu, 05 Jan 2017 13:34:51 +0100", "2017-01-05T12:34:51+00:00"),
        ("05 Jan 17 13:34:51 GMT", "2017-01-05T13:34:51+00:00"),
        ("05 Jan 17 13:34:51", None),  # RFC 5322 wants a zone; a day off is worse than nothing
        ("2004-02-30", None),
        ("0001-01-01T00:00:00+14:00", None),
        ("9999-12-31T23:59:59-14:00", None),
        ("1969-12-31", None),
        ("2999-01-01", None),
        ("yesterday", None),
        ("", None),
        (None, None),
        ("1" * 10_000, None),
    ],
)
def test_dates(text, normal):
    assert normal_date(text) == normal


@settings(deadline=None)
@given(st.text(max_size=70))
def test_no_date_raises(text):
    normal_date(text)
