"""The one spelling of a URL: against browsers, against other crawlers, against itself; keys, domains and buckets."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from typing import Any

import mmh3
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import jsonl
from spindle import config, urls
from spindle.defaults import default_layer
from spindle.errors import ConfigError, UrlRejected
from spindle.urls import Normalizer, Target
from url_cases import EXCEPTIONS, MATCHED, UNMATCHED, UNMATCHED_TAGS

DEFAULTS = config.build([default_layer()]).url


def outcome(url: str, base: str | None = None, normalizer: Normalizer | None = None, encoding: str = "utf-8") -> str:
    """The normalised URL, or the reason for which there is none."""
    try:
        return (normalizer or Normalizer(DEFAULTS)).normalize(url, base, encoding)
    except UrlRejected as rejected:
        return rejected.reason


def adapted(**changes: Any) -> Normalizer:
    return Normalizer(dataclasses.replace(DEFAULTS, **changes))


# --- what browsers do: web-platform-tests

WHATWG = jsonl("url_whatwg.jsonl")

#: What browsers take for a host and DNS cannot hold.
NO_HOST_FOR_DNS = {
    "wu-0200": "the root of DNS",
    "wu-0312": "punctuation",
    "wu-0412": "an empty label",
    "wu-toascii-015": "punctuation",
    "wu-toascii-031": "a label of more than 63",
    "wu-toascii-032": "a label of more than 63",
    "wu-toascii-033": "more than 253",
    "wu-toascii-035": "more than 253",
}


@pytest.mark.parametrize("case", WHATWG, ids=lambda case: case["id"])
def test_resolve_is_what_browsers_do(case: dict[str, Any]) -> None:
    try:
        href = urls.resolve(case["input"], case["base"])
    except UrlRejected as rejected:
        assert case["href"] is None
        assert rejected.reason in urls.REJECT_REASONS
    else:
        assert href == case["href"]


@pytest.mark.parametrize("case", WHATWG, ids=lambda case: case["id"])
def test_the_policy_refuses_what_browsers_refuse_and_hosts_that_dns_cannot_hold(case: dict[str, Any]) -> None:
    result = outcome(case["input"], case["base"])
    if case["href"] is None or case["id"] in NO_HOST_FOR_DNS:
        assert result in urls.REJECT_REASONS
    else:
        assert result == outcome(case["href"])
        assert urls.host_of(result) == urls.host_of(_without_password(case["href"])).removesuffix(".")


def _without_password(href: str) -> str:
    scheme, _, rest = href.partition("://")
    authority, slash, tail = rest.partition("/")
    return f"{scheme}://{authority.rpartition('@')[2]}{slash}{tail}"


# --- what other crawlers do

NORMALIZE = jsonl("url_normalize.jsonl")
WHY_NOT = {f"un-{name}": reason for reason, names in EXCEPTIONS.items() for name in names.split()}
BINDING = [c for c in NORMALIZE if c["profile"] in MATCHED and not UNMATCHED_TAGS.keys() & set(c["policy"])]


def test_every_profile_is_matched_or_has_a_reason_not_to_be() -> None:
    assert {case["profile"] for case in NORMALIZE} == MATCHED.keys() | UNMATCHED.keys()
    assert not MATCHED.keys() & UNMATCHED.keys()
    assert WHY_NOT.keys() <= {case["id"] for case in BINDING}
    assert len(BINDING) - len(WHY_NOT) > 290


@pytest.mark.parametrize("case", BINDING, ids=lambda case: case["id"])
def test_as_other_crawlers_do(case: dict[str, Any]) -> None:
    encoding = next((tag.partition(":")[2] for tag in case["policy"] if tag.startswith("page_encoding:")), "utf-8")
    result = outcome(case["input"], case.get("base"), encoding=encoding)
    agrees = result in urls.REJECT_REASONS if case["expected"] is None else result == case["expected"]
    assert agrees == (case["id"] not in WHY_NOT), f"{result}; {WHY_NOT.get(case['id'], 'no exception is known')}"


# --- the policy, rule by rule

RULES = [
    ("HTTP://Example.ORG", "http://example.org/", "case of scheme and host; the empty path is /"),
    ("http://example.org./", "http://example.org/", "the trailing dot of the host"),
    ("http://example.org:80/", "http://example.org/", "default port"),
    ("https://example.org:80/", "https://example.org:80/", "not the default port"),
    ("http://EXAMPLE.org:08080/a", "http://example.org:8080/a", "port without zeros"),
    ("http://a/b#c", "http://a/b", "fragment"),
    ("http://a/b?c#d?e", "http://a/b?c", "fragment after a query"),
    ("http://user:pass@a/b", "http://a/b", "name and password"),
    ("http://a/./b/../c/%2e%2E/d", "http://a/d", "dot segments, escaped ones too"),
    ("http://a//b//c", "http://a//b//c", "slashes are kept"),
    ("http://a/B/index.html/", "http://a/B/index.html/", "case, index page and last slash are kept"),
    ("http://www.a/", "http://www.a/", "www. is kept"),
    ("http:\\\\a\\b", "http://a/b", "backslashes"),
    ("  http://a/b\n", "http://a/b", "white space around"),
    ("ht\ntp://a/\tb\r\nc", "http://a/bc", "tab and line ends inside vanish"),
    ("http://a/b c", "http://a/b%20c", "space"),
    ("http://a/é?ü", "http://a/%C3%A9?%C3%BC", "not ASCII"),
    ("http://a/\ud800", "http://a/%EF%BF%BD", "half a surrogate pair is U+FFFD"),
    ("http://a/%7euser/%2d%2E%5f", "http://a/~user/-._", "unreserved characters are bare"),
    ("http://a/%c3%a9%2f%3F", "http://a/%C3%A9%2F%3F", "upper-case hex; reserved characters stay escaped"),
    ("http://a/!$&'()*+,;=:@", "http://a/!$&'()*+,;=:@", "reserved characters stay bare"),
    ("http://a/%21%26%27", "http://a/%21%26%27", "or escaped"),
    (
        "http://a/[]|^{}`?[]|^{}`\\",
        "http://a/%5B%5D%7C%5E%7B%7D%60?%5B%5D%7C%5E%7B%7D%60%5C",
        "what RFC 3986 forbids bare",
    ),
    ("http://a/%", "http://a/%25", "a stray %"),
    ("http://a/%zz%4", "http://a/%25zz%254", "stray % before what is no hex"),
    ("http://a/%2%35", "http://a/%2525", "a stray % never makes an escape of what follows"),
    ("http://a/%2541", "http://a/%2541", "unescaped once"),
    ("http://a/?", "http://a/", "empty query"),
    ("http://a/b?&&", "http://a/b", "query of separators"),
    ("http://a/?b&&a=&", "http://a/?a=&b", "empty pieces; a= is not a"),
    ("http://a/?b=2&a=1&b=1", "http://a/?a=1&b=2&b=1", "sorted by name, values of one name keep their order"),
    ("http://a/?q=1+2&p=1%202", "http://a/?p=1%202&q=1+2", "+ and %20 are kept apart"),
    ("http://a/?x?y=/z", "http://a/?x?y=/z", "? and / in a query"),
    ("http://a/?b;a", "http://a/?b;a", "; separates nothing"),
    ("http://a/?utm_source=x&UTM_Medium=y&id=1", "http://a/?id=1", "tracking, without case"),
    ("http://a/?gclid=1&fbclid=2", "http://a/", "nothing but tracking"),
    ("http://a/?%75tm_source=x&id=1", "http://a/?id=1", "tracking, escaped"),
    ("http://a/?gclidx=1&xgclid=2", "http://a/?gclidx=1&xgclid=2", "whole names only"),
    ("http://a/?PHPSESSID=abc&id=1", "http://a/?id=1", "session"),
    ("http://a/?ASPSESSIONIDQQ=abc", "http://a/", "session, any ending"),
    ("http://a/?sid=0123456789abcdef", "http://a/", "sid that looks like a session"),
    ("http://a/?sid=06/01/02/1234567", "http://a/?sid=06/01/02/1234567", "sid that is a story"),
    ("http://a/?sid=1234", "http://a/?sid=1234", "sid that is a number"),
    ("http://a/?sid=internationalization", "http://a/?sid=internationalization", "sid that is a word"),
    ("http://a/b;jsessionid=1F;v=2?c", "http://a/b;v=2?c", "session in the path"),
    ("http://a/b;JSESSIONID=1F!2:3", "http://a/b", "session in the path, WebLogic's"),
    ("http://a/b/..;jsessionid=1/c", "http://a/c", "a dot segment that was hidden by a session"),
    ("http://a/b;v=2;w", "http://a/b;v=2;w", "other path parameters are kept"),
    ("http://0x7f.1/", "http://127.0.0.1/", "IPv4 in any form"),
    ("http://[2001:DB8:0::1]:80/", "http://[2001:db8::1]/", "IPv6"),
    ("http://faß.example/", "http://xn--fa-hia.example/", "IDNA 2008, not transitional"),
    ("http://ＷＷＷ．example。org/", "http://www.example.org/", "full-width letters and dots"),
    ("http://my_host.example/", "http://my_host.example/", "underscores exist"),
    ("http:a/b", "http://a/b", "no slashes"),
]


@pytest.mark.parametrize(("url", "expected", "rule"), RULES)
def test_the_policy(url: str, expected: str, rule: str) -> None:
    assert outcome(url) == expected, rule
    assert outcome(expected) == expected, "idempotent"
    assert urls.normalize(url) == expected, "the module's function has the shipped defaults"


REJECTED = [
    ("", "empty"),
    (" \n ", "empty"),
    ("www.example.org", "not_absolute"),
    ("/path", "not_absolute"),
    ("//host/path", "not_absolute"),
    ("mailto:a@example.org", "scheme"),
    ("JavaScript:void(0)", "scheme"),
    ("java\nscript:void(0)", "scheme"),
    ("data:text/html," + "x" * 1_000_000, "scheme"),
    ("ftp://example.org/", "scheme"),
    ("localhost:8080/x", "scheme"),
    ("http://", "bad_host"),
    ("http:///", "bad_host"),
    ("http://./", "bad_host"),
    ("http://a..b/", "bad_host"),
    ("http://.a/", "bad_host"),
    ("http://a b/", "bad_host"),
    ("http://a%00b/", "bad_host"),
    ("http://example%2Xcom/", "bad_host"),
    ("http://1.2.3.256/", "bad_host"),
    ("http://[::1/", "bad_host"),
    ("http://[::1]x/", "bad_host"),
    ('http://www.example.org"/', "bad_host"),
    ("http://a*b/", "bad_host"),
    ("http://" + "a" * 64 + "/", "bad_host"),
    ("http://" + "a." * 126 + "ab/", "bad_host"),
    ("http://a:b/", "bad_port"),
    ("http://a:65536/", "bad_port"),
    ("http://a:99999999999999999999/", "bad_port"),
    ("http://[::1]:x/", "bad_port"),
    ("http://u:p@a:x/", "bad_port"),
    ("http://a/" + "b" * 2000, "too_long"),
    ("http://a/" + "é" * 400, "too_long"),
]


@pytest.mark.parametrize(("url", "reason"), REJECTED)
def test_refused_with_a_reason(url: str, reason: str) -> None:
    assert outcome(url) == reason
    assert reason in urls.REJECT_REASONS


def test_lengths_at_the_limit() -> None:
    longest = "http://a/" + "b" * 1991
    assert outcome(longest) == longest
    assert outcome(longest + "b") == "too_long"
    assert outcome(longest + "?utm_source=" + "x" * 5000) == longest, "the length of the normalised URL counts"
    assert outcome("http://" + "a." * 126 + "a/") == "http://" + "a." * 126 + "a/", "253 characters of host"
    assert outcome("http://" + "a" * 63 + "/") == "http://" + "a" * 63 + "/"


@pytest.mark.parametrize(
    ("href", "base", "expected"),
    [
        ("../c?x", "http://a/b/d/e", "http://a/b/c?x"),
        ("", "http://a/b?c=1#d", "http://a/b?c=1"),
        ("?e", "http://a/b?c", "http://a/b?e"),
        ("//other/x", "https://a/b", "https://other/x"),
        ("https:c", "https://a/b/", "https://a/b/c"),  # a relic that browsers keep
        ("http:c", "https://a/b/", "http://c/"),
        ("c", "http://u:p@a.:80/b", "http://a/c"),
        ("c", "not a base", "bad_base"),
        ("c", "", "bad_base"),
        ("http://b/c", "not a base", "http://b/c"),  # a broken <base> costs the relative links only
        ("c", "ftp://a/b", "scheme"),
        ("c", "mailto:a@b", "bad_host"),
    ],
)
def test_relative(href: str, base: str, expected: str) -> None:
    assert outcome(href, base) == expected


# --- known faults, group A

FAULTS = [
    ("http://h.example/a/50%+off", "http://h.example/a/50%25+off"),  # crawler-commons#263: a stray percent sign
    ("http://h.example/a/50%25+off", "http://h.example/a/50%25+off"),
    ("http://h.example/d/YQ%3d%3d", "http://h.example/d/YQ%3D%3D"),  # stormcrawler#118, #1448: escaped twice
    ("http://h.example/shoe%E2%84%A2", "http://h.example/shoe%E2%84%A2"),
    ("http://%65xample.test/", "http://example.test/"),  # crawler-commons#303, nutch#552: escapes in the host
    ("http://EXAMPLE.test./", "http://example.test/"),
    ("http://ex%2Eample.test/", "http://ex.ample.test/"),
    ("http://bücher.example:80/", "http://xn--bcher-kva.example/"),  # w3lib#98: the port went into the IDNA encoder
    ("https://bücher.example:443/x", "https://xn--bcher-kva.example/x"),
    ("http://bücher.example:8080/", "http://xn--bcher-kva.example:8080/"),
    ("http://User:PassW0rd@H.example/a", "http://h.example/a"),  # w3lib#229: password in the key
    ("https://h.example/p%2d1/%7Euser/?q=f", "https://h.example/p-1/~user/?q=f"),  # crawler-commons#559: index error
]


@pytest.mark.parametrize(("url", "expected"), FAULTS)
def test_known_faults_over_three_cycles(url: str, expected: str) -> None:
    for _cycle in range(3):
        url = urls.normalize(url)
        assert url == expected


@pytest.mark.parametrize(
    "url",
    [
        "http://user:PassW0rd@",
        "http://user:PassW0rd@a:x/",
        "http://user:PassW0rd@a b/",
        "user:PassW0rd@example.org/",
        "http://user:PassW0rd/@example.org",
        "http://user:PassW0rd@example.org/" + "a" * 3000,
    ],
)
def test_a_refusal_never_tells_the_password(url: str) -> None:
    with pytest.raises(UrlRejected) as caught:
        urls.normalize(url)
    assert "PassW0rd" not in f"{caught.value!s}{caught.value!r}{caught.value.detail}"


def test_one_rare_link_costs_only_itself() -> None:
    hrefs = [f"/p/{i}" for i in range(500)] + ["/p%2d1/%7Euser/?q=f", "http://a b/"] + [f"/q/{i}" for i in range(498)]
    targets = urls.normalize_links(hrefs, "https://h.example/")
    assert targets[500] == Target(
        "https://h.example/p-1/~user/?q=f", urls.url_key("https://h.example/p-1/~user/?q=f"), "h.example"
    )
    assert isinstance(targets[501], UrlRejected)
    assert sum(isinstance(target, Target) for target in targets) == 999


# --- settings


def test_per_host_exceptions() -> None:
    normalizer = adapted(sort_query_except=("Shop.Example",), keep_params=("news.example:sid", "[::1]:utm_*"))
    cases = [
        ("http://shop.example/?b&a", "http://shop.example/?b&a"),
        ("http://www.shop.example/?b&utm_x=1&a", "http://www.shop.example/?b&a"),  # subdomains; still cleaned
        ("http://notshop.example/?b&a", "http://notshop.example/?a&b"),
        ("http://news.example/?sid=0123456789abcdef", "http://news.example/?sid=0123456789abcdef"),
        ("http://news.example/b;sid=0123456789abcdef", "http://news.example/b;sid=0123456789abcdef"),
        ("http://other.example/?sid=0123456789abcdef", "http://other.example/"),
        ("http://[::1]/?utm_x=1&gclid=2", "http://[::1]/?utm_x=1"),
    ]
    for _warm in range(2):
        for url, expected in cases:
            assert outcome(url, normalizer=normalizer) == expected


def test_sorting_can_be_switched_off() -> None:
    assert outcome("http://a/?b&gclid=1&a", normalizer=adapted(sort_query=False)) == "http://a/?b&a"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"tracking_params": ("a*b",)}, "url.tracking_params: 'a*b'"),
        ({"session_params": ("sid:x",)}, "url.session_params: 'sid:x'"),
        ({"tracking_params": ("",)}, "url.tracking_params: ''"),
        ({"keep_params": ("example.org",)}, "url.keep_params: 'example.org'"),
        ({"keep_params": ("http://a/:x",)}, "url.keep_params: 'http://a/'"),
        ({"sort_query_except": ("a b",)}, "url.sort_query_except: 'a b'"),
    ],
)
def test_bad_settings_are_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        adapted(**changes)
    assert named in str(caught.value)


def test_the_digest_follows_every_setting() -> None:
    digests = {urls.policy_digest(DEFAULTS)}
    for field in dataclasses.fields(DEFAULTS):
        value = getattr(DEFAULTS, field.name)
        other = not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else (*value, "x:y")
        digests.add(urls.policy_digest(dataclasses.replace(DEFAULTS, **{field.name: other})))
    assert len(digests) == 1 + len(dataclasses.fields(DEFAULTS))
    assert urls.policy_digest(DEFAULTS) == urls.policy_digest(dataclasses.replace(DEFAULTS))
    assert all(len(bytes.fromhex(digest)) == hashlib.sha256().digest_size for digest in digests)


# --- the page's charset

CHARSETS = [
    ("utf-8", "/é?é", "/%C3%A9?%C3%A9", "the default"),
    ("iso-8859-1", "/é?é", "/%C3%A9?%E9", "the query only"),
    ("latin1", "/?€", "/?%80", "latin1 is windows-1252 on the web"),
    ("windows-1252", "/?Я", "/?%26%231071%3B", "what the charset lacks"),
    ("windows-1252", "/?q=é&x=Я#é", "/?q=%E9&x=%26%231071%3B", "the fragment is not the query"),
    ("windows-1251", "/?Привет", "/?%CF%F0%E8%E2%E5%F2", "Cyrillic"),
    ("koi8-r", "/?Я", "/?%F1", "Cyrillic"),
    ("shift_jis", "/?あ", "/?%82%A0", "Japanese"),
    ("euc-jp", "/?あ", "/?%A4%A2", "Japanese"),
    ("gbk", "/?中", "/?%D6%D0", "Chinese"),
    ("utf-16le", "/?é", "/?%C3%A9", "UTF-16 pages send UTF-8 (Encoding Standard, output encoding)"),
    ("no-such-charset", "/?é", "/?%C3%A9", "an unknown label is UTF-8"),
    ("windows-1251", "/?q=%CF", "/?q=%CF", "escapes stay"),
    ("windows-1251", "/?\ud800", "/?%26%2365533%3B", "half a surrogate pair"),
]


@pytest.mark.parametrize(("label", "href", "expected", "why"), CHARSETS)
def test_the_query_is_escaped_in_the_charset_of_the_page(label: str, href: str, expected: str, why: str) -> None:
    assert outcome(href, "http://a/", encoding=label) == f"http://a{expected}", why
    (target,) = urls.normalize_links([href], "http://a/", label)
    assert isinstance(target, Target)
    assert target.url == f"http://a{expected}", why


def test_bytes_of_a_location_are_escaped_as_they_stand() -> None:
    assert urls.escape_bytes(b"/caf\xe9/?a%20") == "/caf%E9/?a%20"
    assert outcome(urls.escape_bytes(b"/caf\xe9/"), "http://a/b") == "http://a/caf%E9/"


# --- the short cut is the law

PIECES = st.sampled_from(
    [
        *("/", "//", "..", ".", "../", "./", "a", "b", "B", "page.html", "?", "&", "=", "#", ";", ":", "@", "%", "%41"),
        *("%2e", "%2E", "%c3%a9", "%C3%A9", "%2F", "%zz", "%7E", "é", "Я", " ", "\t", "\n", "\\", "'", '"', "[", "]"),
        *("|", "^", "`", "{", "<", "+", "~", "!", "a=1", "b=2", "utm_source=x", "sid=1", "sid=0123456789abcdef", "\0"),
        *(
            ";jsessionid=1",
            "http:",
            "https:",
            "http://",
            "https://",
            "h.example",
            "H.example",
            "h.example.",
            "g.example",
        ),
        *("h.example:80", "h.example:8080", "u:p@", "1", "0", "x" * 30, "\ud800", "\x7f", "\xa0", "mailto:", "*", "_"),
    ]
)
HREFS = st.lists(PIECES, max_size=9).map("".join) | st.text(max_size=20)
BASES = st.sampled_from(
    [
        *("https://h.example/", "http://h.example/a/b/c.html?q=1#f", "https://u:p@h.example.:8080/a/../b;sid=1/%7e/x"),
        *("http://g.example//a//b", "https://h.example/?utm_source=x&b&a", "http://xn--bcher-kva.example/é/"),
        *("http://[::1]:80/a/", "ftp://h.example/a", "not a base", "", "mailto:x", "http://a..b/c"),
    ]
)
ENCODINGS = st.sampled_from(["utf-8", "windows-1251", "shift_jis"])
NORMALIZERS = [
    Normalizer(DEFAULTS),
    adapted(max_length=40, sort_query_except=("h.example",), keep_params=("g.example:sid", "h.example:utm_*")),
]
POSSIBLE = st.sampled_from(NORMALIZERS)


def by_the_law(normalizer: Normalizer, href: str, base: str, encoding: str) -> Target | str:
    try:
        url = normalizer.by_the_law(href, base, encoding)
    except UrlRejected as rejected:
        return rejected.reason
    return Target(url, urls.url_key(url), urls.host_of(url))


def plain(target: Target | UrlRejected) -> Target | str:
    return target.reason if isinstance(target, UrlRejected) else target


@settings(max_examples=1500, deadline=None)
@given(st.lists(HREFS, min_size=1, max_size=6), BASES, ENCODINGS, POSSIBLE)
def test_the_short_cut_is_the_law(hrefs: list[str], base: str, encoding: str, normalizer: Normalizer) -> None:
    expected = [by_the_law(normalizer, href, base, encoding) for href in hrefs]
    for _warm in range(2):
        assert [plain(target) for target in normalizer.links(hrefs, base, encoding)] == expected


@settings(max_examples=1000, deadline=None)
@given(HREFS, BASES, POSSIBLE)
def test_normal_is_normal(href: str, base: str, normalizer: Normalizer) -> None:
    try:
        url = normalizer.by_the_law(href, base)
    except UrlRejected as rejected:
        assert rejected.reason in urls.REJECT_REASONS
        return
    assert normalizer.by_the_law(url) == url
    assert normalizer.normalize(url) == url
    assert url.isascii()
    assert url.startswith(("http://", "https://"))
    assert not set(url) & set(" #\\\"<>[]^`{|}'\t\n\r") - set("[]'"), "nothing that breaks a request line"
    assert urls.origin_of(url) + "/" == normalizer.normalize(urls.origin_of(url) + "/")


def all_cases() -> Iterator[tuple[str, str]]:
    for case in (*WHATWG, *NORMALIZE):
        yield case["input"], case.get("base") or "https://www.example.org/a/b"


def test_the_short_cut_is_the_law_for_all_shared_cases() -> None:
    normalizer = Normalizer(DEFAULTS)
    for _warm in range(2):
        for href, base in all_cases():
            (target,) = normalizer.links([href], base)
            assert plain(target) == by_the_law(normalizer, href, base, "utf-8"), (href, base)


@pytest.mark.parametrize(
    "href",
    [
        "b #c",
        " b",
        "b ",
        "/b\x00#c",
        "\\\\g.example/x",
        "b\\c",
        "..;sid=0123456789abcdef",
        "b/../..//c",
        "../../../..",
        ".",
        "?b&a&gclid=1#x",
        "b:c",
        "./b:c",
        "https:b",
        "http:/b",
        "HTTPS://H.example/b",
        "https://h.example?b",
        "//h.example:443",
    ],
)
def test_the_short_cut_is_the_law_where_joining_misleads(href: str) -> None:
    normalizer = Normalizer(DEFAULTS)
    base = "https://h.example/a/b/c"
    assert plain(normalizer.links([href], base)[0]) == by_the_law(normalizer, href, base, "utf-8")
    (target,) = normalizer.links([href], base)  # now the host is known
    assert plain(target) == by_the_law(normalizer, href, base, "utf-8")


def test_links_answer_in_order_and_fold_nothing() -> None:
    targets = urls.normalize_links(["/b", "#x", "mailto:a", "/b"], "http://a/")
    assert [plain(target) if isinstance(target, UrlRejected) else target.url for target in targets] == [
        "http://a/b",
        "http://a/",
        "scheme",
        "http://a/b",
    ]


# --- keys, hosts, domains, buckets


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("foo", -2129773440516405919),  # the vector in mmh3's own documentation
        ("http://example.com/", -6875015816531586568),
        ("https://example.com/", -5401334212302457697),
        ("https://www.example.org/a/b?x=1&y=2", 3765068348168869367),
        ("http://xn--bcher-kva.example/caf%C3%A9", -6160928429566276609),
    ],
)
def test_golden_keys(url: str, key: int) -> None:
    assert urls.url_key(url) == key
    digest = mmh3.mmh3_x64_128_digest(url.encode(), 0)
    assert int.from_bytes(digest[:8], "little", signed=True) == key


@pytest.mark.parametrize(
    ("url", "host", "origin", "turned"),
    [
        ("http://a.b/", "a.b", "http://a.b", "(b,a,)/"),
        (
            "https://www.example.org:8080/p/q?x=/:@",
            "www.example.org",
            "https://www.example.org:8080",
            "(org,example,www,:8080)/p/q?x=/:@",
        ),
        ("http://[::1]/", "[::1]", "http://[::1]", "([::1])/"),
        ("http://[2001:db8::1]:81/a", "[2001:db8::1]", "http://[2001:db8::1]:81", "([2001:db8::1]:81)/a"),
        ("http://127.0.0.1:81/", "127.0.0.1", "http://127.0.0.1:81", "(127.0.0.1:81)/"),
        ("http://localhost/", "localhost", "http://localhost", "(localhost,)/"),
    ],
)
def test_names_of_a_url(url: str, host: str, origin: str, turned: str) -> None:
    assert urls.host_of(url) == host
    assert urls.origin_of(url) == origin
    assert urls.surt(url) == turned


@pytest.mark.parametrize(
    ("host", "domain", "why"),
    [
        ("www.example.com", "example.com", "plain"),
        ("a.b.bbc.co.uk", "bbc.co.uk", "a suffix of two labels"),
        ("a.b.github.io", "b.github.io", "the private part of the list"),
        ("github.io", "github.io", "a suffix is its own domain"),
        ("co.uk", "co.uk", "a suffix is its own domain"),
        ("a.b.ck", "a.b.ck", "a rule with *"),
        ("x.www.ck", "www.ck", "an exception to it"),
        ("x.y.demo.test", "demo.test", "an unknown suffix is one label"),
        ("shop.xn--bcher-kva.example", "xn--bcher-kva.example", "punycode"),
        ("a.b.xn--p1ai", "b.xn--p1ai", "a suffix in punycode"),
        ("localhost", "localhost", "one label"),
        ("127.0.0.1", "127.0.0.1", "IPv4"),
        ("[2001:db8::1]", "[2001:db8::1]", "IPv6"),
        ("_x.my_host.example.com", "example.com", "underscores"),
    ],
)
def test_registered_domain(host: str, domain: str, why: str) -> None:
    assert urls.registered_domain(host) == domain, why


@pytest.mark.parametrize(
    ("domain", "of_1", "of_32", "of_64", "of_65536"),
    [
        ("foo", 0, 30, 61, 63141),  # mmh3's documentation: hash("foo") is -156908512
        ("example.com", 0, 13, 26, 26993),
        ("example.org", 0, 11, 23, 24376),
        ("bbc.co.uk", 0, 13, 27, 27908),
        ("a.github.io", 0, 21, 42, 43748),
        ("127.0.0.1", 0, 1, 2, 2847),
    ],
)
def test_golden_buckets(domain: str, of_1: int, of_32: int, of_64: int, of_65536: int) -> None:
    assert [urls.bucket_of(domain, count) for count in (1, 32, 64, 65536)] == [of_1, of_32, of_64, of_65536]


@given(st.text(max_size=30).filter(str.isprintable), st.integers(1, 32768))
def test_doubling_splits_each_bucket_in_two(domain: str, buckets: int) -> None:
    bucket = urls.bucket_of(domain, buckets)
    assert 0 <= bucket < buckets
    assert urls.bucket_of(domain, 2 * buckets) // 2 == bucket


def test_buckets_are_even() -> None:
    counts = [0] * 32
    for number in range(32_000):
        counts[urls.bucket_of(f"site{number}.example", 32)] += 1
    assert min(counts) > 850
    assert max(counts) < 1150


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("Example.ORG.", "example.org"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("[2001:DB8::1]", "[2001:db8::1]"),
        ("0x7f.1", "127.0.0.1"),
        ("", None),
        ("a b", None),
        ("a/b", None),
        ("a:80", None),
        ("a:443", None),
        ("u@a", None),
        ("*.a", None),
        ("http://a", None),
        ("a?", None),
    ],
)
def test_normalize_host(text: str, host: str | None) -> None:
    if host is None:
        with pytest.raises(UrlRejected) as caught:
            urls.normalize_host(text)
        assert caught.value.reason == "bad_host"
    else:
        assert urls.normalize_host(text) == host


def test_the_version_of_the_suffix_list_is_a_date() -> None:
    assert urls.psl_version() >= "2026-10-22"
    assert urls.psl_version()[4] == urls.psl_version()[7] == "-"
