"""What `spindle.robots` promises: RFC 9309 to the letter, bounded cost, and one table of verdicts."""

from __future__ import annotations

import base64
import itertools
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import jsonl
from spindle.config import RobotsSettings, Settings
from spindle.robots import (
    MAX_BYTES,
    MAX_CRAWL_DELAY_S,
    VERDICTS,
    Copy,
    State,
    Verdict,
    decide,
    expires_at,
    parse,
    product_token,
    robots_state,
)

HOST = "http://h.example"
DAY = 86_400.0


def allowed(text: str | bytes, path: str, agent: str = "spindle") -> bool:
    body = text.encode() if isinstance(text, str) else text
    return parse(body, agent).allows(HOST + path)


# --- the shared cases -------------------------------------------------------------------------------------------------

#: Disputed cases for which the file gives no reading of RFC 9309, and where we differ from the source: why.
EXCEPTIONS = {
    "rb-cc-testHtmlMarkupInRobotsTxt-02": "markup is not stripped: 'Crawl-Delay: 10<BR>' is no number",
    "rb-cc-testHeritrixCases-11": "'Mozilla delaybot 99.9' has the product token Mozilla, which no group names",
}


def _answer(case: dict[str, Any]) -> object:
    body = base64.b64decode(case["robots_b64"]) if "robots_b64" in case else case["robots_txt"].encode()
    rules = parse(body, case["user_agent"])
    return rules.crawl_delay_s if case["url"] is None else rules.allows(case["url"])


def _expected(case: dict[str, Any]) -> object:
    if case["url"] is None:
        return case.get("crawl_delay")
    return case.get("rfc9309_reading", case["allowed"])


def test_every_shared_case_reads_as_rfc_9309_has_it() -> None:
    cases = jsonl("robots.jsonl")
    differing = {case["id"]: _answer(case) for case in cases if _answer(case) != _expected(case)}
    assert len(cases) >= 810
    assert differing == dict.fromkeys(EXCEPTIONS)  # None: no delay in both
    assert all(case.get("disputed") for case in cases if case["id"] in EXCEPTIONS)


def test_every_shared_status_case_gives_its_verdict(settings: Settings) -> None:
    for case in jsonl("robots_status.jsonl"):
        verdict = decide(robots_state(case["status"]), None, 0.0, settings.robots)
        assert verdict is (Verdict.ALLOW_ALL if case["allowed"] else Verdict.UNREACHABLE), case["id"]


# --- groups -----------------------------------------------------------------------------------------------------------

GROUPS = [  # file, agent, allowed at /x, why
    ("User-agent: spindle\nDisallow: /", "Spindle", False, "letter case does not matter"),
    ("User-agent: spin\nDisallow: /", "spindle", True, "a prefix of our token is another robot"),
    ("User-agent: spindle-news\nDisallow: /", "spindle", True, "a longer token is another robot"),
    ("User-agent: *\nDisallow: /\nUser-agent: spindle\nAllow: /", "spindle", True, "our group alone, not '*' as well"),
    ("User-agent: *\nDisallow: /\nUser-agent: spindle\n", "spindle", True, "a group without rules still is ours"),
    ("User-agent: spindle\nAllow: /x\nUser-agent: b\nDisallow: /\nUser-agent: spindle\nDisallow: /x$", "spindle", False,
     "groups of one name are merged, in any place"),
    ("User-agent: a\nUser-agent: spindle\nDisallow: /", "spindle", False, "several names share a group"),
    ("User-agent: spindle\nFoo: bar\nUser-agent: b\nDisallow: /", "spindle", False, "an unknown line ends no group"),
    ("User-agent: spindle\nSitemap: http://h/s\nUser-agent: b\nDisallow: /", "spindle", False, "nor does Sitemap"),
    ("User-agent: spindle\nCrawl-delay: 2\nUser-agent: b\nDisallow: /", "spindle", False, "nor does Crawl-delay"),
    ("User-agent: spindle\n\n\nDisallow: /", "spindle", False, "nor does an empty line"),
    ("Disallow: /\nUser-agent: spindle\n", "spindle", True, "a rule before any group is nobody's"),
    ("User-agent: spindle/2.0\nDisallow: /", "spindle", False, "a version behind the token is left out"),
    ("user-AGENT :spindle # us\n disallow\t: / # all", "spindle", False, "blanks and comments"),
    ("User-agent: spindle\nDissalow: /", "spindle", True, "a misspelt line is an unknown line"),
    ("User-agent: bot\nDisallow: /\nUser-agent: *\nDisallow:", "MyCrawler/1.0 (+https://x.example/bot.html)", True,
     "a name inside our header is not our name (protego 0.7.0 picks group 'bot')"),
    ("User-agent: MYCRAWLER\nDisallow: /\nUser-agent: *\nDisallow:", "MyCrawler/1.0 (+https://x.example/bot.html)",
     False, "... and our token is"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "agent", "expected", "why"), GROUPS, ids=[row[3] for row in GROUPS])
def test_group(text: str, agent: str, expected: bool, why: str) -> None:
    assert allowed(text, "/x", agent) is expected


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("spindle", "spindle"),
        ("Spindle/0.1", "spindle"),
        ("Mozilla/5.0 (compatible; Spindle/0.1; +https://c.example/)", "spindle"),  # RFC 9309 2.2.1, figure 1
        ("Mozilla/5.0 spindle", "mozilla"),
        ("", ""),
        ("(odd)", ""),
    ],
)
def test_product_token(header: str, token: str) -> None:
    assert product_token(header) == token


def test_our_own_header_names_our_own_token(settings: Settings) -> None:
    agent = replace(settings.agent, contact="https://c.example/bot")
    assert product_token(agent.user_agent) == agent.token


# --- which rule decides -----------------------------------------------------------------------------------------------

MATCHES = [  # rule of a Disallow, path, matched, why
    ("/fish", "/fish.html", True, "a rule is a prefix"),
    ("/fish/", "/fish", False, "all of the rule must be found"),
    ("/fish", "/Fish", False, "paths know letter case"),
    ("/fish*.php", "/fishheads/catfish.php?id=1", True, "* is any run of octets"),
    ("/*.php$", "/a.php?x", False, "$ is the end of path and query"),
    ("/*.php$", "/a.php/b.php", True, "* may skip a false end"),
    ("/a$b", "/a$b", True, "$ in the middle is itself"),
    ("/a-%2A.html", "/a-*.html", True, "RFC 9309 2.2.3: %2A is the star itself"),
    ("/a-%2A.html", "/a-b.html", False, "... and nothing else"),
    ("/foo-%24", "/foo-$", True, "RFC 9309 2.2.3: %24 is the dollar itself"),
    ("/foo/bar?baz=quz", "/foo/bar?baz=quz", True, "2.2.2 table, row 1"),
    ("/foo/bar?baz=https://foo.bar", "/foo/bar?baz=https%3A%2F%2Ffoo.bar", True, "2.2.2 table, row 2"),
    ("/foo/bar?baz=https%3A%2F%2Ffoo.bar", "/foo/bar?baz=https://foo.bar", True, "2.2.2 table, row 2 turned round"),
    ("/*baz=https://", "/foo/bar?baz=https://foo.bar", True, "a rule without '?' matches as written"),
    ("/foo/bar/ツ", "/foo/bar/%E3%83%84", True, "2.2.2 table, row 3"),
    ("/foo/bar/%e3%83%84", "/foo/bar/ツ", True, "2.2.2 table, row 4, and hex digits have no case"),
    ("/foo/bar/%62%61%7A", "/foo/bar/baz", True, "2.2.2 table, row 5"),
    ("/a%2Fb", "/a/b", False, "an escaped reserved octet of the path is another octet"),
    ("/50%+off", "/50%25+off", True, "a stray percent sign is the percent sign"),
    ("/a b", "/a%20b", True, "what a URL cannot hold is compared escaped"),
    ("/*s=", "/?s=1", True, "stars reach into the query"),
    ("*.gif$", "/x.gif", True, "a leading star"),
    ("fish", "/fish", False, "a rule that starts with neither / nor * matches nothing"),
    ("http://h.example/x", "/x", False, "an absolute URL is no rule"),
    ("/x/index.html", "/x/", False, "index.html is a page like any other"),
    ("/", "", True, "no path is the path /"),
    ("/?", "?q", True, "... before a query too"),
    ("/x", "/x#frag", True, "a fragment is no part of it"),
    ("/x#frag", "/x", True, "... and starts a comment in the file"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "path", "matched", "why"), MATCHES, ids=[f"{r[0]} {r[1]}" for r in MATCHES])
def test_match(rule: str, path: str, matched: bool, why: str) -> None:
    assert allowed(f"User-agent: *\nDisallow: {rule}", path) is not matched


PRECEDENCE = [  # rules, path, allowed, why
    ("Disallow: /a\nAllow: /a/b", "/a/b", True, "the longer rule"),
    ("Allow: /a\nDisallow: /a/b", "/a/b", False, "... whichever kind"),
    ("Disallow: /a\nAllow: /a", "/a", True, "Allow wins between equals"),
    ("Allow: /a*\nDisallow: /a/", "/a/", True, "octets of the rule count, the star included"),
    ("Allow: /page\nDisallow: /*.htm", "/page.htm", False, "octets of the rule, not of the match"),
    ("Allow: /$\nDisallow: /", "/", True, "the dollar counts"),
    ("Allow: /$\nDisallow: /", "/x", False, "... and holds at the end only"),
    ("Disallow: /a***b\nAllow: /a*bc", "/axbc", True, "a run of stars is one star"),
    ("Disallow:", "/x", True, "an empty rule matches nothing"),
    ("Disallow: /\nAllow: /*/f/p=*/$", "/a/f/p=1/", True, "stars before a last anchor"),
    ("Disallow: /", "/robots.txt", True, "robots.txt itself is always allowed"),
    ("Disallow: /", "/robots.txt?x", False, "... and nothing that looks like it"),
]


@pytest.mark.parametrize(("rules", "path", "expected", "why"), PRECEDENCE, ids=[row[3] for row in PRECEDENCE])
def test_precedence(rules: str, path: str, expected: bool, why: str) -> None:
    assert allowed(f"User-agent: *\n{rules}", path) is expected


def _model(rules: list[tuple[bool, str]], path: str) -> bool:
    """The same question asked of the `re` module, rule by rule."""
    best = (0, True)
    for allow, rule in rules:
        collapsed = re.sub(r"\*+", "*", rule)
        body = collapsed.removesuffix("$")
        pattern = ".*".join(re.escape(piece) for piece in body.split("*")) + ("$" if collapsed != body else "")
        if re.match(pattern, path):
            best = max(best, (len(collapsed), allow))
    return best[1]


_RULE = st.tuples(st.booleans(), st.text("ab/*", max_size=7).map(lambda t: "/" + t), st.sampled_from(["", "$"]))


_FEW_OR_MANY = st.one_of(st.lists(_RULE, max_size=8), st.lists(_RULE, min_size=60, max_size=90))  # by try, by index


@given(_FEW_OR_MANY, st.lists(st.text("ab/", max_size=9).map(lambda t: "/" + t), min_size=1))
def test_the_matcher_agrees_with_regular_expressions_on_few_and_many_rules(
    rules: list[tuple[bool, str, str]], paths: list[str]
) -> None:
    plain = [(allow, text + end) for allow, text, end in rules]
    body = "User-agent: *\n" + "".join(f"{'Allow' if allow else 'Disallow'}: {rule}\n" for allow, rule in plain)
    parsed = parse(body.encode(), "spindle")
    assert [parsed.allows(HOST + path) for path in paths] == [_model(plain, path) for path in paths]


# --- what files look like in the wild ---------------------------------------------------------------------------------

FORBIDDEN = "User-agent: *\nDisallow: /x"
ENCODINGS = [
    (b"\xef\xbb\xbf" + FORBIDDEN.encode(), "UTF-8 with a BOM (protego 0.7.0 allows everything)"),
    (b"\xff\xfe" + FORBIDDEN.encode("utf-16-le"), "UTF-16, little endian"),
    (b"\xfe\xff" + FORBIDDEN.encode("utf-16-be"), "UTF-16, big endian"),
    (FORBIDDEN.replace("\n", "\r").encode(), "CR only"),
    (FORBIDDEN.replace("\n", "\r\n").encode(), "CR LF"),
    (b"\x00\n" + FORBIDDEN.encode() + b"\n\x00\xff\xfe", "NUL and broken UTF-8 elsewhere"),
]


@pytest.mark.parametrize(("body", "why"), ENCODINGS, ids=[row[1] for row in ENCODINGS])
def test_the_first_group_is_found_in_any_encoding(body: bytes, why: str) -> None:
    assert not allowed(body, "/x")
    assert allowed(body, "/y")


def test_a_latin_1_octet_in_a_rule_is_that_octet_of_the_path() -> None:
    assert not allowed(b"User-agent: *\nDisallow: /b\xfccher/", "/b%FCcher/1")


def test_an_html_page_holds_no_rules() -> None:
    page = b"<html><head><title>Not found</title></head>\n<body style='color: red'>Disallow: /</body></html>"
    rules = parse(page, "spindle")
    assert (rules.allows(HOST + "/x"), rules.crawl_delay_s, rules.sitemaps) == (True, None, [])


@given(st.binary(max_size=300), st.text(max_size=20), st.text(max_size=40))
def test_no_octets_no_agent_and_no_url_raise(body: bytes, agent: str, url: str) -> None:
    assert parse(b"User-agent: *\n" + body, agent).allows(url) in (True, False)


def test_sitemaps_are_kept_in_order_once_from_any_place() -> None:
    body = b"Sitemap: http://h/1\nUser-agent: other\nsitemap : /2 # rel\nDisallow: /\nSITEMAP: http://h/1\nSitemap:\n"
    assert parse(body, "spindle").sitemaps == ["http://h/1", "/2"]


# --- Crawl-delay ------------------------------------------------------------------------------------------------------

DELAYS = [  # value, seconds, why
    ("5", 5.0, "seconds"),
    ("0.5", 0.5, "a fraction"),
    ("0", 0.0, "nothing asked for"),
    ("86400", 86_400.0, "a day is meant"),
    ("1e9", MAX_CRAWL_DELAY_S, "longer than any turn: a year"),
    ("1e300", MAX_CRAWL_DELAY_S, "... and no overflow"),
    ("9" * 400, MAX_CRAWL_DELAY_S, "... nor infinity"),
    ("inf", None, "not a number"),
    ("nan", None, "not a number"),
    ("-5", None, "negative"),
    ("abc", None, "not a number"),
    ("10s", None, "not a number"),
    ("1.2.1", None, "not a number"),
    ("", None, "empty"),
]


@pytest.mark.parametrize(("value", "seconds", "why"), DELAYS, ids=[row[0][:9] or "empty" for row in DELAYS])
def test_crawl_delay_value(value: str, seconds: float | None, why: str) -> None:
    assert parse(f"User-agent: *\nCrawl-delay: {value}".encode(), "spindle").crawl_delay_s == seconds


DELAY_GROUPS = [  # file, delay of spindle, why
    ("User-agent: *\nDisallow: /p\n\nUser-agent: other\nCrawl-delay: 60", None, "another robot's delay"),
    ("Crawl-delay: 9\nUser-agent: *\nDisallow: /p", None, "a delay before any group is nobody's"),
    ("User-agent: other\nCrawl-delay: 9\nUser-agent: *\nDisallow: /p", None, "names below a delay do not share it"),
    ("User-agent: *\nUser-agent: other\nCrawl-delay: 9", 9.0, "names above it do"),
    ("User-agent: *\nDisallow: /p\nCrawl-delay: 9", 9.0, "after the rules as well"),
    ("User-agent: *\nCrawl-delay: 3\nUser-agent: other\nDisallow: /\nCrawl-delay: 9", 9.0, "the group's own"),
    ("User-agent: *\nCrawl-delay: 3\n\nUser-agent: *\nCrawl-delay: 9\n\nUser-agent: *\nCrawl-delay: 5", 9.0,
     "the longest of several: never shortened"),
    ("User-agent: *\nCrawl-delay: 9\n\nUser-agent: spindle\nDisallow: /p", None, "our group alone counts"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "seconds", "why"), DELAY_GROUPS, ids=[row[2] for row in DELAY_GROUPS])
def test_crawl_delay_group(text: str, seconds: float | None, why: str) -> None:
    assert parse(text.encode(), "spindle").crawl_delay_s == seconds


def test_a_stray_delay_does_not_spoil_the_rules_below_it() -> None:
    text = "Crawl-delay: 9\nUser-agent: *\nDisallow: /p"
    assert (allowed(text, "/p"), allowed(text, "/q")) == (False, True)


# --- size and cost ----------------------------------------------------------------------------------------------------


def test_500_kib_count_and_the_cut_falls_on_a_line_end() -> None:
    filler = b"# " + b"x" * 1021 + b"\n"  # 1 KiB
    head = b"User-agent: *\n" + filler * 400 + b"Disallow: /near\n" + filler * 99
    body = head + filler * 100 + b"Disallow: /far\n"
    assert 499 * 1024 < len(head) < MAX_BYTES < len(body)
    rules = parse(body, "spindle")
    assert (rules.allows(HOST + "/near"), rules.allows(HOST + "/far"), rules.truncated) == (False, True, True)


def test_a_line_that_the_cap_breaks_is_left_out() -> None:
    body = b"User-agent: *\nAllow: /\nDisallow: /private"
    rules = parse(body, "spindle", max_bytes=len(body) - len("private"))  # what is left would read "Disallow: /"
    assert (rules.allows(HOST + "/x"), rules.truncated) == (True, True)


def test_a_whole_file_is_not_called_truncated() -> None:
    assert not parse(b"User-agent: *\nDisallow: /x", "spindle").truncated


LONG_PATH = "/" + "a" * 2_000
HOSTILE = [  # rules, path, allowed, why
    ("Disallow: /" + "a*" * 40 + "b", LONG_PATH, True, "40 stars against 2,000 letters"),
    ("Disallow: /" + "*a" * 200_000, LONG_PATH, True, "one rule of 400 kB"),
    ("".join(f"Disallow: /*{i}*z\n" for i in range(20_000)), "/x/19999/z", False, "20,000 wildcard rules, one matches"),
    ("".join(f"Disallow: /*{i}*z\n" for i in range(20_000)), LONG_PATH, True, "... and none"),
    ("Disallow: /*a*a*b\n" * 25_000, LONG_PATH, True, "25,000 rules that nearly match"),
    ("".join(f"Disallow: /{'a' * n}b\n" for n in range(950)), LONG_PATH, True, "950 lengths of literal rules"),
    ("User-agent: *\n" * 15_000 + "Disallow: /x\n" * 20_000, "/x", False, "a name said 15,000 times"),
]


@pytest.mark.timeout(20)  # seconds are taken where a back-tracking matcher takes ages
@pytest.mark.parametrize(("rules", "path", "expected", "why"), HOSTILE, ids=[row[3] for row in HOSTILE])
def test_a_hostile_file_ends_with_the_right_answer(rules: str, path: str, expected: bool, why: str) -> None:
    assert allowed(f"User-agent: *\n{rules}", path) is expected


# --- verdicts ---------------------------------------------------------------------------------------------------------

STATES = [  # status of the last hop, too many redirects, state, source
    (200, False, State.OK, "2.3.1.1"),
    (204, False, State.OK, "2.3.1.1: an empty file"),
    (404, False, State.ABSENT, "2.3.1.3"),
    (401, False, State.ABSENT, "2.3.1.3: 400-499"),
    (403, False, State.ABSENT, "2.3.1.3: 400-499"),
    (451, False, State.ABSENT, "2.3.1.3: 400-499"),
    (429, False, State.UNREACHABLE, "a site that asks for less must not get more"),
    (500, False, State.UNREACHABLE, "2.3.1.4"),
    (503, False, State.UNREACHABLE, "2.3.1.4"),
    (None, False, State.UNREACHABLE, "2.3.1.4: network errors"),
    (301, True, State.ABSENT, "2.3.1.2: more than five redirects"),
    (301, False, State.UNREACHABLE, "a redirect that leads nowhere says nothing"),
    (304, False, State.UNREACHABLE, "we sent no validators"),
    (999, False, State.UNREACHABLE, "no meaning"),
    (100, False, State.UNREACHABLE, "no meaning"),
]


@pytest.mark.parametrize(("status", "exceeded", "state", "source"), STATES)
def test_state(status: int | None, exceeded: bool, state: State, source: str) -> None:
    assert robots_state(status, exceeded) is state


VERDICT_CASES = [  # state, age of the good copy, outage, verdict, source
    (State.OK, 0.0, 0.0, Verdict.RULES, "just read"),
    (State.OK, None, 0.0, Verdict.RULES, "just read, the first time"),
    (State.OK, DAY + 1, 0.0, Verdict.UNREACHABLE, "2.4: not beyond 24 hours; read it again"),
    (State.OK, 31 * DAY, 0.0, Verdict.UNREACHABLE, "2.4"),
    (State.ABSENT, 0.0, 0.0, Verdict.ALLOW_ALL, "2.3.1.3"),
    (State.ABSENT, None, 0.0, Verdict.ALLOW_ALL, "2.3.1.3"),
    (State.ABSENT, 2 * DAY, 0.0, Verdict.ALLOW_ALL, "the owner took the file away"),
    (State.ABSENT, 31 * DAY, 0.0, Verdict.ALLOW_ALL, "the owner took the file away"),
    (State.UNREACHABLE, DAY, 60.0, Verdict.RULES, "2.4: a fresh copy serves, to the last second"),
    (State.UNREACHABLE, DAY + 1, DAY, Verdict.RULES, "2.4: longer while unreachable"),
    (State.UNREACHABLE, 30 * DAY, 29 * DAY, Verdict.RULES, "2.4: up to stale_s"),
    (State.UNREACHABLE, 30 * DAY + 1, 29 * DAY, Verdict.UNREACHABLE, "too old to be trusted"),
    (State.UNREACHABLE, 40 * DAY, 31 * DAY, Verdict.RULES, "2.3.1.4: after 30 days, continue with the copy"),
    (State.UNREACHABLE, None, 0.0, Verdict.UNREACHABLE, "2.3.1.4: complete disallow"),
    (State.UNREACHABLE, None, 30 * DAY, Verdict.UNREACHABLE, "2.3.1.4: to the last second"),
    (State.UNREACHABLE, None, 30 * DAY + 1, Verdict.ALLOW_ALL, "2.3.1.4: after 30 days, as unavailable"),
]


@pytest.mark.parametrize(("state", "age", "outage", "verdict", "source"), VERDICT_CASES)
def test_verdict(
    state: State, age: float | None, outage: float, verdict: Verdict, source: str, settings: Settings
) -> None:
    assert decide(state, age, outage, settings.robots) is verdict


def test_the_table_knows_every_pair() -> None:
    assert set(VERDICTS) == set(itertools.product(State, Copy))


def test_an_unreachable_file_is_never_permission_within_30_days(settings: Settings) -> None:
    ages = (None, 0.0, DAY, 2 * DAY, 30 * DAY, 300 * DAY)
    verdicts = {decide(State.UNREACHABLE, age, outage, settings.robots) for age in ages for outage in (0.0, 30 * DAY)}
    assert verdicts == {Verdict.RULES, Verdict.UNREACHABLE}


EXPIRIES = [  # state, Retry-After, seconds until the next attempt, why
    (State.OK, None, DAY, "2.4: 24 hours"),
    (State.ABSENT, None, DAY, "an answer like any other"),
    (State.UNREACHABLE, None, 3_600.0, "a failure has a short life"),
    (State.UNREACHABLE, 60.0, 3_600.0, "Retry-After where it is longer"),
    (State.UNREACHABLE, 7_200.0, 7_200.0, "Retry-After where it is longer"),
    (State.UNREACHABLE, 1e11, DAY, "... but not remembered longer than an answer"),
]


@pytest.mark.parametrize(("state", "retry_after_s", "seconds", "why"), EXPIRIES)
def test_expiry(state: State, retry_after_s: float | None, seconds: float, why: str, settings: Settings) -> None:
    assert expires_at(state, 1_000.0, settings.robots, retry_after_s) == 1_000.0 + seconds


def test_the_shipped_settings_keep_what_the_rfc_asks(settings: Settings) -> None:
    robots: RobotsSettings = settings.robots
    assert robots.max_bytes == MAX_BYTES >= 500 * 1024
    assert (robots.max_redirects, robots.ttl_s, robots.stale_s) == (5, DAY, 30 * DAY)
