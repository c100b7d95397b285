"""Scope: which rule decides, in the words of the configuration. Traps: which shapes are endless, and which are not."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle import config, scope, urls
from spindle.config import UNLIMITED, ScopeSettings, TrapSettings
from spindle.errors import ConfigError
from spindle.scope import Scope, Verdict, explain_trap, trap_reason


def verdict(url: str, *, seeds: tuple[str, ...] = (), **rules: object) -> Verdict:
    plain: dict[str, object] = {
        "follow": "everywhere",
        "allow": (),
        "deny": (),
        "schemes": ("http", "https"),
        "sheets": (),
    }
    domains = [urls.registered_domain(host) for host in seeds]
    host = urls.host_of(url)
    return Scope(ScopeSettings(**{**plain, **rules}), seeds, domains).verdict(url, host, urls.registered_domain(host))  # type: ignore[arg-type]


SEEDS = ("www.example.org",)

#: rules, URL, allowed, the rule that decided
VERDICTS = [
    # follow
    ({}, "https://anywhere.net/", True, "follow everywhere"),
    ({"follow": "host", "seeds": SEEDS}, "https://www.example.org/a", True, "follow host"),
    ({"follow": "host", "seeds": SEEDS}, "https://docs.example.org/", False, "follow host: not a seed host"),
    ({"follow": "domain", "seeds": SEEDS}, "https://docs.example.org/", True, "follow domain"),
    ({"follow": "domain", "seeds": SEEDS}, "https://example.net/", False, "follow domain: not a seed domain"),
    (
        {"follow": "domain", "seeds": ("a.github.io",)},
        "https://b.github.io/",
        False,
        "follow domain: not a seed domain",
    ),
    # schemes
    ({"schemes": ("https",)}, "http://example.org/", False, "schemes: http is not among them"),
    # deny, one of each kind
    ({"deny": ("host:example.com",)}, "https://example.com/", False, "deny host:example.com"),
    ({"deny": ("host:example.com",)}, "https://www.example.com/", True, "follow everywhere"),
    ({"deny": ("domain:example.com",)}, "https://a.b.example.com/", False, "deny domain:example.com"),
    ({"deny": ("domain:example.com",)}, "https://notexample.com/", True, "follow everywhere"),
    ({"deny": ("domain:b.example.com",)}, "https://a.b.example.com/", False, "deny domain:b.example.com"),
    ({"deny": ("surt:(com,example,",)}, "https://www.example.com/", False, "deny surt:(com,example,"),
    ({"deny": ("surt:(com,example,)/shop",)}, "https://example.com/shop/1", False, "deny surt:(com,example,)/shop"),
    ({"deny": ("surt:(com,example,)/shop",)}, "https://www.example.com/shop/1", True, "follow everywhere"),
    ({"deny": ("surt:http://(com,example,",)}, "http://example.com/", False, "deny surt:http://(com,example,"),
    ({"deny": ("surt:http://(com,example,",)}, "https://example.com/", True, "follow everywhere"),
    ({"deny": (r"regex:\.pdf$",)}, "https://example.com/a.pdf", False, r"deny regex:\.pdf$"),
    ({"deny": (r"regex:\.pdf$",)}, "https://example.com/a.pdf?x=1", True, "follow everywhere"),
    # what a person writes is brought to normal form first
    ({"deny": ("host:Bücher.Example.",)}, "https://xn--bcher-kva.example/", False, "deny host:xn--bcher-kva.example"),
    ({"deny": ("host:[::1]",)}, "http://[::1]:8080/", False, "deny host:[::1]"),
    # allow narrows, deny wins, follow still holds
    ({"allow": ("domain:example.org",)}, "https://example.net/", False, "allow: no rule matches"),
    ({"allow": ("domain:example.org",)}, "https://a.example.org/", True, "allow domain:example.org"),
    ({"allow": ("domain:a.org",), "deny": ("host:x.a.org",)}, "https://x.a.org/", False, "deny host:x.a.org"),
    (
        {"allow": ("domain:example.net",), "follow": "host", "seeds": SEEDS},
        "https://example.net/",
        False,
        "follow host: not a seed host",
    ),
]


@pytest.mark.parametrize(("rules", "url", "allowed", "rule"), VERDICTS)
def test_the_verdict_names_its_rule(rules: dict[str, object], url: str, allowed: bool, rule: str) -> None:
    assert verdict(url, **rules) == Verdict(allowed, rule)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rule", "hint"),
    [
        ("example.com", "expected host:"),
        ("host:", "expected host:"),
        ("hosts:example.com", "expected host:"),
        ("host:*.example.com", "not a host name"),
        ("host:example.com/path", "not a host name"),
        ("host:example.com:8080", "not a host name"),
        ("surt:org,example", "a SURT starts with"),
        ("regex:(", "unterminated subpattern"),
    ],
)
def test_a_bad_rule_is_named(rule: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        verdict("https://example.com/", deny=("host:fine.example", rule))
    assert repr(rule) in str(caught.value)
    assert hint in str(caught.value)
    assert str(caught.value).startswith("scope.deny: ")


@pytest.fixture(scope="module")
def traps(settings: config.Settings) -> TrapSettings:
    return settings.trap


#: path and query, depth, reason
TRAPS = [
    ("/", 16, "depth"),
    ("".join(f"/s{i}" for i in range(31)), 0, "path_segments"),
    ("/a/b/a/b/a/b", 0, "repeated_segments"),  # a relative link without its slash
    ("/loop/deeper/deeper/deeper/", 0, "repeated_segments"),
    ("/x/a/b/c/a/b/c/a/b/c/y", 0, "repeated_segments"),  # blocks of any size
    ("/page/2/page/2/page/2", 0, "repeated_segments"),  # numbers alone are innocent, not with a name
    ("/a/1/a/2/a/3/a/4/a/5", 0, "repeated_segments"),  # the loop that changes as it goes
    ("/a////b", 0, "repeated_segments"),  # slashes that grow
    ("/?" + "&".join(f"f{i}=1" for i in range(21)), 0, "query_params"),
    ("/" + "7" * 41, 0, "digits"),
    ("/?id=" + "7" * 41, 0, "digits"),
]

INNOCENT = [
    ("/", 15, "as deep as is allowed"),
    ("/2026/11/30/", 3, "a date"),
    ("/2011/11/11/11/", 3, "a date that repeats itself"),
    ("/tiles/0/0/0/0.png", 3, "a map tile"),
    ("/calendar/2031/05", 3, "a calendar, which only its depth can end"),
    ("/file/d41d8cd98f00b204e9800998ecf8427e", 3, "a hash"),
    ("/blob/" + "0123456789abcdef" * 4, 3, "a SHA-256"),
    ("/a/a/b", 3, "a name twice in a row"),
    ("/core/src/test/java/org/x/test/util/test/TestX.java", 3, "names that recur in a source tree"),
    ("/a//b", 3, "an empty segment"),
    ("/wiki/" + "x" * 500, 3, "one long segment"),
    ("/?" + "&".join(f"f{i}=1" for i in range(20)), 3, "as many parameters as are allowed"),
    ("/" + "/".join(f"s{i}" for i in range(30)), 3, "as many segments as are allowed"),
    ("/" + "7" * 40, 3, "as many digits as are allowed"),
    ("/1/2/1/2/1/2", 3, "numbers that repeat are shards"),
]


@pytest.mark.parametrize(("tail", "depth", "reason"), TRAPS)
def test_traps_have_a_reason(tail: str, depth: int, reason: str, traps: TrapSettings) -> None:
    url = f"https://example.org{tail}"
    assert trap_reason(url, depth, traps) == reason
    assert reason in scope.TRAP_REASONS
    sentence = explain_trap(url, depth, traps)
    assert sentence is not None
    assert sentence.startswith(f"{reason}: ")
    assert "trap.max_" in sentence


@pytest.mark.parametrize(("tail", "depth", "why"), INNOCENT)
def test_pages_are_no_traps(tail: str, depth: int, why: str, traps: TrapSettings) -> None:
    assert explain_trap(f"https://example.org{tail}", depth, traps) is None, why


def test_explanations_are_for_people(traps: TrapSettings) -> None:
    assert explain_trap("https://h.example/a/b/a/b/a/b", 0, traps) == (
        "repeated_segments: /a/b stands 3 times in a row (trap.max_repeated_segments = 2)"
    )
    assert explain_trap("https://h.example/", 99, traps) == "depth: 99 links from a seed, more than trap.max_depth = 15"


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(TrapSettings)])
def test_each_limit_can_be_switched_off(name: str, traps: TrapSettings) -> None:
    reason = {"max_depth": "depth", "max_url_digits_run": "digits"}.get(name, name.removeprefix("max_"))
    tail, depth = next((tail, depth) for tail, depth, why in TRAPS if why == reason)
    assert trap_reason(f"https://h.example{tail}", depth, dataclasses.replace(traps, **{name: UNLIMITED})) is None


TAIL = st.text(st.sampled_from("ab1//?&="), max_size=16)


@given(TAIL, st.integers(0, 3), st.lists(st.sampled_from([UNLIMITED, 0, 1, 2, 3, 5]), min_size=5, max_size=5))
def test_the_quick_look_says_what_the_long_one_says(tail: str, depth: int, limits: list[int]) -> None:
    url, settings = f"https://h.example/{tail}", TrapSettings(*limits)
    sentence = explain_trap(url, depth, settings)
    assert trap_reason(url, depth, settings) == (sentence and sentence.partition(":")[0])


@given(st.lists(st.sampled_from(["a", "b", "1", "", "c"]), max_size=14), st.integers(1, 4))
def test_blocks_in_a_row_are_found_as_by_comparing_them_all(segments: list[str], limit: int) -> None:
    def in_a_row() -> bool:
        for size in range(1, len(segments) + 1):
            for start in range(len(segments)):
                block = segments[start : start + size]
                whole = segments[start : start + size * (limit + 1)]
                if whole == block * (limit + 1) and not all(name.isdecimal() for name in block):
                    return True
        return False

    often = any(segments.count(name) > 2 * limit for name in "abc")
    only_repeats = TrapSettings(UNLIMITED, UNLIMITED, limit, UNLIMITED, UNLIMITED)
    found = trap_reason("https://h.example/" + "/".join(segments), 0, only_repeats)
    assert found == ("repeated_segments" if in_a_row() or often else None)
