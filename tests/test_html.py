"""What a page says: other projects' pages with their expected links, and rows of small pages with a reason each."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import jsonl, shared_file
from spindle import html, htmltree, pagetext
from spindle.refresh import Refresh, parse_refresh, parse_srcset

URL = "http://e.example/d/page.html"
FOLLOWED = ("a", "area", "frame", "iframe", "refresh")  # what the cases list as links; <link> stands in `link_rel`
WORDS = "every page needs some words of its own so that there is a text to talk about here "

#: Cases that we answer otherwise, each with its reason.
EXCEPTIONS = {
    "hl-scrapy-latin1-wrong-decl": '"latin-1" is no WHATWG label, so nothing is declared and the bytes are UTF-8: the '
    "case's links_alt, with the query in our order",
}


def parse(markup: str | bytes, url: str = URL, content_type: str | None = "text/html", **settings) -> html.Page:
    body = markup.encode() if isinstance(markup, str) else markup
    token = settings.pop("agent_token", "spindle")
    header = settings.pop("x_robots_tag_header", None)
    rules = dataclasses.replace(html.default_settings(), **settings)
    return html.parse_page(body, url, content_type, rules, token, header)


def urls(page: html.Page) -> list[str]:
    return [link.url for link in page.links]


def case_page(case: dict, **settings) -> html.Page:
    body = shared_file(f"html_links/{case['file']}").read_bytes()
    return parse(body, case["base_url"], case["content_type"], **settings)


@pytest.mark.parametrize("case", jsonl("html_links/expected.jsonl"), ids=lambda case: case["id"])
def test_links_of_other_projects_pages(case):
    page = case_page(case)
    followed = [link.url for link in page.links if link.rel in FOLLOWED and link.url not in case.get("optional", [])]
    if case["id"] in EXCEPTIONS:
        assert sorted(followed) == sorted(
            url.replace("?price=%C2%A332&%C2%B5=unit", "?%C2%B5=unit&price=%C2%A332") for url in case["links_alt"]
        )
    else:
        assert followed == case["links"]
    assert [link.url for link in page.links if link.rel not in FOLLOWED] == case.get("link_rel", [])
    assert [link.url for link in page.links if link.nofollow] == case.get("nofollow", [])
    assert page.canonical == case.get("canonical")
    if "meta_robots" in case:
        assert (page.noindex, page.nofollow) == (case["meta_robots_noindex"], case["meta_robots_nofollow"])
    if "form_get" in case:
        assert urls(case_page(case, follow_forms=True)) == case["form_get"]


@pytest.mark.parametrize("case", jsonl("meta_refresh.jsonl"), ids=lambda case: case["id"])
def test_meta_refresh(case):
    assert parse_refresh(case["content"]) == (Refresh(case["delay"], case["url"]) if case["valid"] else None)


@pytest.mark.parametrize("case", jsonl("srcset.jsonl"), ids=lambda case: case["id"])
def test_srcset(case):
    assert next(iter(parse_srcset(case["srcset"])), None) == case["first_valid"]


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        # scrapy#838: white space round and in an href
        ('<a href=" \n http://t.example/">', ["http://t.example/"]),
        ('<a href="/a\n b">', ["http://e.example/a%20b"]),
        ('<a href="ht\ttp://t.example/">', ["http://t.example/"]),
        ('<a href="/?a&#61;1&amp;b=2&copy=3">', ["http://e.example/?a=1&b=2&copy=3"]),  # entities as browsers do
        # scrapy#1564: base elements
        ('<a href=x></a><base href="/b/"><base href="http://other.example/">', ["http://e.example/b/x"]),
        ('<base href="javascript:1"><base href="/b/"><a href=x>', ["http://e.example/b/x"]),
        ('<base target=_top><base href="sub/"><a href=x>', ["http://e.example/d/sub/x"]),
        ('<base href="ftp://f.example/"><a href=x>', ["http://e.example/d/x"]),
        ('<base href="http://["><a href=x>', ["http://e.example/d/x"]),
        # what links, and in which order
        (
            "<map><area href=1></map><a href=2></a><iframe src=3></iframe><svg><a xlink:href=4></a></svg>",
            [f"http://e.example/d/{i}" for i in (1, 2, 3, 4)],
        ),
        ("<frameset><frame src=f1><frame src=f2></frameset>", ["http://e.example/d/f1", "http://e.example/d/f2"]),
        ('<meta http-equiv=Refresh content="5; url=next">', ["http://e.example/d/next"]),
        ('<meta http-equiv=refresh content="5">', []),  # a reload of itself
        ("<img src=i.png><link rel=stylesheet href=s.css><script src=x.js></script>", []),
        ("<link rel='alternate stylesheet' href=s.css>", []),
        ("<link rel='NEXT nofollow' href=n><link rel=icon href=i>", ["http://e.example/d/n"]),
        ("<link rel=amphtml href=amp><link rel=prev href=p>", ["http://e.example/d/amp", "http://e.example/d/p"]),
        # folding: fragments, duplicates, the page itself
        (
            "<a href=x#1></a><a href=x#2></a><a href='#top'></a><a href=page.html></a><a href=''></a>",
            ["http://e.example/d/x"],
        ),
        # parsel#123: NUL bytes hide nothing
        ('<p>a</p>\0<a href="/after"></a>', ["http://e.example/after"]),
        ('<link href="x\0y"><a href="/z"></a>', ["http://e.example/z"]),
        ("<!-- <a href=c> --><template><a href=t></template><textarea><a href=t2></textarea>", []),
        ("<noscript><a href=n></a></noscript>", ["http://e.example/d/n"]),  # we run no scripts
        (
            '<?xml version="1.0" encoding="UTF-8"?><!DOCTYPE html><a href=x>',
            ["http://e.example/d/x"],
        ),  # requests-html#145
    ],
)
def test_links(markup, expected):
    assert urls(parse(markup)) == expected


def test_the_charset_reaches_the_query_but_not_the_path():
    """As browsers do (WHATWG URL 4.4): the query in the page's charset, the path in UTF-8."""
    page = parse("<meta charset=windows-1252><a href='/é?é=€&x=я'>é</a>".encode("cp1252", "xmlcharrefreplace"))
    assert urls(page) == ["http://e.example/%C3%A9?%E9=%80&x=%26%231103%3B"]
    assert page.links[0].anchor == "é"


XHTML = '<html xmlns="http://www.w3.org/1999/xhtml">'
XML = "application/xhtml+xml"
LINK = '<a href="l">t</a>'


@pytest.mark.parametrize(
    ("content_type", "markup"),
    [
        # <title/> and <a/> end themselves in XML; in HTML they would swallow what follows
        (XML, f'<?xml version="1.0"?>{XHTML}<head><title/></head><body><a name="x"/>{LINK}</body></html>'),
        (f"{XML}; charset=utf-8", f'<?xml version="1.0" encoding="UTF-16"?>{XHTML}<body>{LINK}</body></html>'),
        (XML, f"{XHTML}<body><p>not well-formed<br>{LINK}"),
        ("text/html", f'<?xml version="1.0" encoding="UTF-16"?><!DOCTYPE html><html><body>{LINK}'),
    ],
    ids=["xml", "wrong-declaration", "broken", "html"],
)
def test_xhtml_is_xml_where_it_can_be(content_type, markup):
    page = parse(markup, content_type=content_type)
    assert [(link.url, link.anchor) for link in page.links] == [("http://e.example/d/l", "t")]


def test_no_entity_is_expanded_and_no_file_read():
    page = parse(
        '<!DOCTYPE html [<!ENTITY f SYSTEM "file:///etc/hostname"><!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>'
        f"{XHTML}<head><title>t &f;</title></head><body><p>&b; {WORDS}</p></body></html>",
        content_type="application/xhtml+xml",
    )
    assert (page.title, page.text) == ("t &f;", f"&b; {WORDS.strip()}")


@pytest.mark.parametrize(
    ("markup", "anchor"),
    [
        ("<a href=x> a \n <b>b</b>\u00a0c </a>", "a b c"),
        (f"<a href=x>{'word ' * 100}</a>", ("word " * 40).strip()),  # cut at 200 characters, one of them a blank
        ("<a href=x><img src=i alt=' a picture '></a>", "a picture"),
        ("<a href=x></a><a href=x>second</a><a href=x>third</a>", "second"),  # the first that says something
        ("<map><area href=x alt=area></map>", "area"),
        ("<iframe src=x>no frames</iframe>", ""),
    ],
)
def test_anchor(markup, anchor):
    assert [link.anchor.strip() for link in parse(markup).links] == [anchor]


@pytest.mark.parametrize(
    ("markup", "position"),
    [
        ("<a href=x>", "content"),
        ("<nav><ul><li><a href=x></ul></nav>", "navigation"),
        ("<header><a href=x></header>", "navigation"),
        ("<article><header><a href=x></header></article>", "content"),  # the article's own head
        ("<aside><a href=x></aside>", "navigation"),
        ("<footer><a href=x></footer>", "footer"),
        ("<footer><nav><a href=x></nav></footer>", "footer"),  # the outer one
        ("<nav><a href=x></a></nav><p><a href=x>again</a></p>", "content"),  # the page itself speaks of it
        ("<p><a href=x>first</a></p><footer><a href=x>again</a></footer>", "content"),
        ("<footer><iframe src=x></iframe></footer>", "content"),  # only of <a>: the rest is no menu
        ("<link rel=next href=x>", None),
        ("<link rel=next href=x><nav><a href=x></nav>", "navigation"),
    ],
)
def test_where_a_link_stands(markup, position):
    assert [link.position for link in parse(markup).links] == [position]


def test_nofollow_of_a_link_is_kept_and_flagged():
    page = parse("<a rel='ugc NoFollow' href=1>1</a><a href=2>2</a><a rel=nofollow href=3>3</a><a href=3>3</a>")
    assert [(link.url[-1], link.nofollow) for link in page.links] == [("1", True), ("2", False), ("3", False)]


def test_every_link_not_kept_is_counted():
    page = parse(
        "<a href=mailto:a@b></a><a href='http://[/'></a><a href='http://h:99999/'></a><a href=x></a><a href=x></a>"
        "<a href='#f'></a><a href=y></a><a href=z></a><a href=y></a><a href=w></a>",
        max_links=2,
    )
    assert urls(page) == ["http://e.example/d/x", "http://e.example/d/y"]
    assert page.rejected == {"scheme": 1, "bad_host": 1, "bad_port": 1, "duplicate": 1, "self": 1}
    assert page.links_cut == 3  # z and all after it
    assert parse("<a href=x></a>", max_links=0).links_cut == 1
    assert len(parse("".join(f"<a href={i}></a>" for i in range(3000)), max_links=-1).links) == 3000


@pytest.mark.parametrize(
    ("meta", "header", "noindex", "nofollow", "noarchive", "robots"),
    [
        ("noindex,follow", None, True, False, False, ("meta:noindex",)),
        ("NONE", None, True, True, False, ("meta:none",)),
        ("all", None, False, False, False, ()),
        (" NoArchive ; nofollow", None, False, True, True, ("meta:noarchive", "meta:nofollow")),
        (None, "noindex", True, False, False, ("header:noindex",)),
        (None, "otherbot: nofollow", False, False, False, ()),  # for another robot
        (None, "otherbot: noindex, nofollow", False, False, False, ()),  # both words are that robot's
        (None, "otherbot: noindex\nnofollow", False, True, False, ("header:nofollow",)),  # two headers
        (None, "Spindle: nofollow, noarchive", False, True, True, ("header:nofollow", "header:noarchive")),
        (None, "unavailable_after: 25 Jun 2010 15:00:00 PST, noindex", True, False, False, ("header:noindex",)),
        ("noindex", "nofollow", True, True, False, ("meta:noindex", "header:nofollow")),  # the stricter wins
    ],
)
def test_robots_flags(meta, header, noindex, nofollow, noarchive, robots):
    markup = f"<meta name=ROBOTS content='{meta}'>" if meta else ""
    markup += "<link rel=alternate type=application/atom+xml href=x>"
    page = parse(f"{markup}<a href=x>x</a><p>{WORDS}", x_robots_tag_header=header)
    assert (page.noindex, page.nofollow, page.noarchive, page.robots) == (noindex, nofollow, noarchive, robots)
    assert (page.links == ()) == (page.feeds == ()) == nofollow
    assert page.rejected == {"duplicate": 1} | ({"page_nofollow": 1} if nofollow else {})
    assert (page.text == "") == (noindex or noarchive)
    assert page.text_hash is not None  # the fingerprints stay: they give nothing away


@pytest.mark.parametrize(
    ("name", "token", "nofollow"),
    [
        ("spindle", "spindle", True),
        ("Spindle", "spindle", True),
        ("googlebot", "spindle", False),
        ("mybot", "MyBot", True),
    ],
)
def test_meta_robots_for_our_token_only(name, token, nofollow):
    assert parse(f"<meta name={name} content=nofollow>", agent_token=token).nofollow == nofollow


def test_robots_in_a_comment_are_not_obeyed_and_sources_can_be_switched_off():
    live = "<!-- <meta name=robots content=noindex> --><meta name=robots content=index>"
    assert not parse(live).noindex
    assert not parse("<meta name=robots content=none>", meta_robots=False).nofollow
    assert not parse("x", x_robots_tag=False, x_robots_tag_header="none").nofollow


@pytest.mark.parametrize("body", [b"", b"  \n", b"<!-- x -->", b"<!DOCTYPE html>", b"\xef\xbb\xbf", b"\xff\xfe"])
def test_empty_documents_are_pages_without_anything(body):
    """extruct#112: no error, no text, no links, no fingerprint."""
    page = parse(body)
    assert (page.text, page.links, page.simhash, page.text_hash, page.title) == ("", (), None, None, None)
    assert page.rejected == {}


def test_text_is_the_pages_own():
    page = parse(
        "<html><head><title>T</title><style>p{}</style></head><body><header>Logo<nav>menu</nav></header>"
        "<div role=navigation>more menu</div><p>First\n line<br>second</p><script>var x</script>"
        "<noscript>on</noscript><ul hidden><li>hidden</ul><article><header>Headline</header>body</article>"
        "<select><option>o</select><footer>imprint</footer><aside>ads</aside></body>"
    )
    assert page.text == "First line second Headline body"
    assert page.word_count == 5


@settings(deadline=None)
@given(st.text() | st.lists(st.sampled_from(["a", " ", "\n", "\t", "\xa0", "\u2003", "\x1f"])).map("".join))
def test_folding_is_split_and_join(text):
    assert pagetext.fold(text) == " ".join(text.split())


def test_every_kind_of_white_space_is_folded():
    blanks = [chr(code) for code in range(0x3001) if chr(code).isspace()]
    assert pagetext.fold("a" + "".join(blanks) + "b") == "a b"


def test_the_main_element_is_the_page_if_it_says_enough():
    around = "<div>sidebar</div><main>{}</main><div>teasers</div>"
    assert parse(around.format(WORDS * 4)).text == (WORDS * 4).strip()
    assert parse(around.format("shell")).text == "sidebar shell teasers"


def test_a_page_of_nothing_but_navigation_keeps_its_words():
    assert parse("<nav>all there is</nav>").text == "all there is"


def test_pages_of_one_site_do_not_look_alike_for_their_menus():
    from spindle.fingerprint import distance

    frame = "<nav>" + "".join(f"<a href=/{i}>section {i} of the site</a>" for i in range(80)) + "</nav><p>{}</p>"
    one, two = (" ".join(f"{topic}{i * i % 97}" for i in range(60)) for topic in ("fish", "tax"))
    first, second = parse(frame.format(one)).simhash, parse(frame.format(two)).simhash
    assert distance(first or 0, second or 0) > 10


PUBLISHED = "<meta property=article:published_time content="
JSON_LD = '<script type="application/ld+json">'


@pytest.mark.parametrize(
    ("markup", "name", "expected"),
    [
        ("<title> A \n title </title>", "title", "A title"),
        ("<svg><title>no</title></svg><title>yes</title>", "title", "yes"),
        ("<meta property=og:title content='from og'>", "title", "from og"),
        ("<title>a\0b</title>", "title", "a\ufffdb"),
        ("<meta name=Description content=' a  b '>", "description", "a b"),
        ("<html lang=de-AT>", "language", "de"),
        ("<html lang='' xml:lang=fr>", "language", "fr"),
        ("<meta http-equiv=content-language content='pt-BR, en'>", "language", "pt"),
        ("<html lang='not a tag'>", "language", None),
        ("<p>Dieser Text ist auf Deutsch geschrieben, und keiner hat es der Seite angesagt.", "language", "de"),
        ("<link rel=canonical href='/c?b=1&a=2'>", "canonical", "http://e.example/c?a=2&b=1"),
        ("<link rel=canonical href='page.html'>", "canonical", URL),  # itself: no link, but the canonical
        ("<link rel=canonical href='mailto:x'>", "canonical", None),
        (f"{PUBLISHED}2024-03-05T10:00:00+02:00>", "published_at", "2024-03-05T08:00:00+00:00"),
        ("<meta itemprop=dateModified content=2024-03-05>", "modified_at", "2024-03-05"),
        ("<meta name=date content=yesterday>", "published_at", None),
        ("<meta name=date content=0001-01-01T00:00:00Z>", "published_at", None),
        (JSON_LD + '{"@graph":[{"@type":"Article","datePublished":"2023-01-02"}]}', "published_at", "2023-01-02"),
        (JSON_LD + '{"@type":"Article","headline":"\\ud800\\u0000h"}', "title", "\ufffdh"),
        (JSON_LD + '{"@type":"Article"}', "schema_type", "Article"),
        (JSON_LD + "[" * 100_000, "schema_type", None),
        ("<meta property=og:type content=video><meta property=og:type content=x>", "open_graph", {"type": "video"}),
        ("<link rel=alternate type='application/rss+xml' href=f>", "feeds", ("http://e.example/d/f",)),
        ("<link rel=alternate type=text/html href=f>", "feeds", ()),
    ],
)  # fmt: skip
def test_facts(markup, name, expected):
    assert getattr(parse(markup), name) == expected


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        ("<div id=root></div><script src=app.js></script>", True),
        ("<body><noscript>You need to enable JavaScript to run this app.</noscript><script src=app.js></script>", True),
        ("<div id=root></div>", False),  # nobody to fill it
        (f"<div id=root></div><script></script><p>{WORDS * 3}", False),  # it says enough
        ("<div id=root>served</div><script></script>", False),
    ],
)
def test_needs_js(markup, expected):
    assert parse(markup).needs_js is expected


def test_plain_text_has_words_and_nothing_else():
    page = parse("<a href=x>1 < 2</a>", content_type="text/plain")
    assert (page.text, page.links, page.title) == ("<a href=x>1 < 2</a>", (), None)


def test_a_large_script_does_not_end_the_page():
    """scrapy#3077: parsers with a text limit lose all that follows."""
    assert urls(parse("<script>" + "x" * 20_000_000 + "</script><a href=/after>")) == ["http://e.example/after"]


@pytest.mark.parametrize(
    ("markup", "links"),
    [
        ("<div>" * 1_000_000 + "<a href=/x>z</a>", 1),
        ("<ul><li>" * 50_000 + "<a href=/x>z</a>", 1),
        ("<div " + " ".join(f"a{i}=1" for i in range(1_000_000)) + "><a href=/x>z</a>", 1),
        ("<p>" + "x" * 1_200_000 + "</p><a href=/x>z</a>", 1),
        ("<a href=/x>z</a>" * 100_000, 1),
        ("".join(f"<a href=/{i}>z</a>" for i in range(100_000)), 2000),
        ("&CounterClockwiseContourIntegral;" * 100_000 + "<a href=/x>z</a>", 1),
        ("<div>" * 1900 + "<header></header>" * 100_000 + "<a href=/x>z</a>", 1),
        ("<nav>" * 1900 + "<a href=/x>z</a>" * 50_000, 1),
        ("<" * 1_000_000, 0),
        ('<a href="' + "x " * 200_000, 0),
        ("<p>some words of a page</p>\n" * 2_000_000 + "<a href=/x>z</a>", 1),
        (f"{WORDS}<a href=/x>z</a>".replace("", "\0").replace("<\0a\0 \0h\0r\0e\0f\0=\0/\0x\0>", "<a href=/x>"), 1),
    ],
    ids=[
        "divs",
        "lists",
        "attributes",
        "word",
        "same-link",
        "links",
        "entities",
        "headers",
        "navs",
        "less-than",
        "open-quote",
        "50 MB",
        "NULs",
    ],
)
def test_hostile_pages_cost_what_they_weigh(markup, links):
    """Quadratic in the parser where not tamed: hours instead of a second (nutch#358)."""
    assert len(parse(markup).links) == links


@pytest.mark.parametrize(
    "body",
    [
        bytes(range(256)) * 4000,
        b"\x89PNG\r\n\x1a\n" + bytes(range(255, -1, -1)) * 4000,
        b"\x1f\x8b\x08" + b"\xff" * 100_000,
    ],
    ids=["all bytes", "PNG", "gzip"],
)
@pytest.mark.parametrize("content_type", ["text/html", "text/html; charset=utf-8", "application/xhtml+xml", None])
def test_binary_called_html_is_a_page_without_links(body, content_type):
    page = parse(body, content_type=content_type)
    assert page.links == ()
    check_storable(page)


@pytest.mark.parametrize("content_type", ["text/html", "application/xhtml+xml"])
def test_entities_by_the_billion_are_text(content_type):
    laughs = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10 if i else "lol"}">' for i in range(12))
    page = parse(f"<!DOCTYPE html [{laughs}]>{XHTML}<body><p>{WORDS}&l11;</p></body></html>", content_type=content_type)
    assert page.text.endswith("&l11;") and len(page.text) < 2000


def test_nothing_is_included(tmp_path):
    """XXE by parameter entity and external DTD, and XInclude."""
    secret = tmp_path / "secret"
    secret.write_text("<p>secret</p>")
    uri = secret.as_uri()
    page = parse(
        f'<!DOCTYPE html SYSTEM "{uri}" [<!ENTITY % p SYSTEM "{uri}">%p;<!ENTITY s SYSTEM "{uri}">]>{XHTML}<body>'
        f'<p>{WORDS}&s;</p><xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="{uri}" parse="text"/>'
        "</body></html>",
        content_type="application/xhtml+xml",
    )
    assert "secret" not in page.text and page.text.startswith("every page")


def test_taming_leaves_ordinary_pages_alone():
    data = '<div data-x="' + "{&quot;a&quot;: 1} " * 10_000 + '"><p>' + "<br>word" * 10_000 + "</p></div>"
    assert htmltree.tame(data) == data
    deep = "<div>" * 1500 + "x" * 70_000 + "</div>" * 1500
    assert htmltree.tame(deep) == deep


REAL = shared_file("html_links/scrapy-no-href.html").read_bytes()[:1500]


@pytest.mark.parametrize(("charset", "step"), [("utf-8", 1), ("utf-16le", 3), ("windows-1252", 3), ("shift_jis", 3)])
def test_every_truncation_is_a_page(charset, step):
    for length in range(0, len(REAL), step):
        page = parse(REAL[:length], content_type=f"text/html; charset={charset}")
        assert page.charset == charset


@settings(deadline=None)
@given(st.binary(max_size=400), st.sampled_from([None, "text/html", "application/xhtml+xml", "text/plain", "\0;"]))
def test_no_bytes_raise(body, content_type):
    check_storable(parse(body, content_type=content_type))


TOKENS = ["<a href=", "<base href=", "<meta http-equiv=refresh content=", "<link rel=next href=", "<form action=x>"]
TOKENS += ["'", '"', ">", "</a>", "<table>", "<svg>", "<template>", "<noscript>", "<script>", "</script>", "<!--"]
TOKENS += ["-->", "&#0;", "&amp", "\0", "/x", "http://[", "//", "?é", "é", " "]


@settings(deadline=None)
@given(st.lists(st.sampled_from(TOKENS), max_size=40))
def test_no_markup_raises(tokens):
    check_storable(parse("".join(tokens), follow_forms=True))


def check_storable(page: html.Page) -> None:
    """Nothing in it that a table cannot hold, and no URL that is not normal."""
    from spindle.urls import normalize

    stored = json.dumps(dataclasses.asdict(page))
    assert "\\u0000" not in stored
    json.loads(stored)
    for text in (page.text, page.title or "", page.description or "", *(link.anchor for link in page.links)):
        text.encode()
    for link in page.links:
        assert normalize(link.url) == link.url
