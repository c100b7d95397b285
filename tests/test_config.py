"""The configuration: every mistake names key, place and what would be right; the shipped file explains itself."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import tomllib
import typing
from typing import Any

import pytest

from spindle import config
from spindle.config import build, from_json, parse_set, parse_toml
from spindle.defaults import default_layer, shipped_text
from spindle.errors import ConfigError

SHIPPED = shipped_text("conf/spindle.toml")
SECTIONS = typing.get_type_hints(config.Settings)


def mine(text: str) -> config.Settings:
    """The defaults under a user's file."""
    return build([default_layer(), parse_toml(text, "my.toml")])


# --- layers ---


def test_later_layers_win_key_by_key() -> None:
    file = parse_toml("[politeness]\nmin_delay_s = 3\nduration_factor = 4.5", "my.toml")
    settings = build([default_layer(), file, parse_set("politeness.min_delay_s=5")])
    assert settings.politeness.min_delay_s == 5.0
    assert settings.politeness.duration_factor == 4.5
    assert settings.fetch == build([default_layer()]).fetch


@pytest.mark.parametrize(
    ("assignment", "section", "key", "expected"),
    [
        ("fetch.max_open=300", "fetch", "max_open", 300),
        ("fetch.verify_tls=false", "fetch", "verify_tls", False),
        ("agent.contact=https://example.test/bot?a=b", "agent", "contact", "https://example.test/bot?a=b"),
        ('agent.contact="quoted"', "agent", "contact", "quoted"),
        ("agent.contact=", "agent", "contact", ""),
        ('scope.allow=["host:a.test", "domain:b.test"]', "scope", "allow", ("host:a.test", "domain:b.test")),
        (" fetch.max_open = 7", "fetch", "max_open", 7),
        ("generate.host_budget=-1", "generate", "host_budget", config.UNLIMITED),
    ],
)
def test_set(assignment: str, section: str, key: str, expected: object) -> None:
    assert getattr(getattr(build([default_layer(), parse_set(assignment)]), section), key) == expected


@pytest.mark.parametrize("assignment", ["", "x", "fetch.max_open", "max_open=3", "=3", ".max_open=3", "fetch.=3"])
def test_set_of_another_form_is_refused_with_an_example(assignment: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"--set {assignment}: expected section.key=value, for example")):
        parse_set(assignment)


def test_whole_numbers_serve_as_numbers() -> None:
    value = mine("[politeness]\nmin_delay_s = 3").politeness.min_delay_s
    assert (value, type(value)) == (3.0, float)


# --- mistakes ---

MISTAKES = [
    # text, what the message must say: place, key, what would be right
    ("[fetchh]\nmax_open = 1", ["my.toml", "unknown section fetchh", "did you mean fetch?"]),
    ("[zzzzzz]\nx = 1", ["my.toml", "unknown section zzzzzz", "known are", "politeness"]),
    ("[fetch]\nmaxopen = 1", ["my.toml", "unknown key fetch.maxopen", "did you mean fetch.max_open?"]),
    ("[spark]\nzzzz = 1", ["my.toml", "unknown key spark.zzzz", "known are", "driver_memory"]),
    ("fetch = 3", ["my.toml", "fetch is a section", "write [fetch]"]),
    ("[fetch]\nmax_open = '9'", ["my.toml", "fetch.max_open", "'9'", "a whole number"]),
    ("[fetch]\nmax_open = 9.0", ["my.toml", "fetch.max_open", "9.0", "a whole number"]),
    ("[fetch]\nmax_open = true", ["my.toml", "fetch.max_open", "True", "a whole number"]),
    ("[fetch]\nverify_tls = 1", ["my.toml", "fetch.verify_tls", "1", "true or false"]),
    ("[politeness]\nmin_delay_s = 'fast'", ["my.toml", "politeness.min_delay_s", "'fast'", "a finite number"]),
    ("[politeness]\nmin_delay_s = nan", ["my.toml", "politeness.min_delay_s", "nan", "a finite number"]),
    ("[politeness]\nmin_delay_s = true", ["my.toml", "politeness.min_delay_s", "True", "a finite number"]),
    ("[agent]\ncontact = 3", ["my.toml", "agent.contact", "3", "a text in quotes"]),
    ("[scope]\nallow = 'host:a'", ["my.toml", "scope.allow", "'host:a'", "a list"]),
    ("[scope]\nallow = [3]", ["my.toml", "scope.allow", "3", "a text in quotes"]),
    ("[scope]\nfollow = 'all'", ["my.toml", "scope.follow", "'all'", "everywhere, domain, host"]),
    ("[fetch]\nmax_open = 0", ["my.toml", "fetch.max_open = 0", "at least 1 and at most 10000"]),
    ("[fetch]\nmax_open = 10001", ["my.toml", "fetch.max_open = 10001", "at least 1 and at most 10000"]),
    ("[politeness]\nmin_delay_s = -0.1", ["my.toml", "politeness.min_delay_s = -0.1", "at least 0"]),
    ("[generate]\nhost_budget = -2", ["my.toml", "generate.host_budget = -2", "at least 0", "or -1 for unlimited"]),
    ("[generate]\nlist_size = -1", ["my.toml", "generate.list_size = -1", "at least 0"]),
    ("[recrawl]\nmax_interval_s = 9999999999", ["my.toml", "recrawl.max_interval_s", "at most 3155760000"]),
    ("[agent]\ntoken = 'my bot'", ["my.toml", "agent.token", "'my bot'", "letters", "RFC 9309 2.2.1"]),
    ("[agent]\ntoken = ''", ["my.toml", "agent.token", "letters"]),
    ('[agent]\ncontact = "a\\r\\nX-Evil: 1"', ["my.toml", "agent.contact", "one line"]),
    ("[generate]\nlevel_shares = [1, 2]", ["my.toml", "generate.level_shares", "one number a level, 5"]),
    ("[generate]\nlevel_shares = [1, 2, 3, 4, -5]", ["my.toml", "generate.level_shares", "not be negative"]),
    ("[generate]\nlevel_shares = [0, 0, 0, 0, 0]", ["my.toml", "generate.level_shares", "not all 0"]),
    (
        "[recrawl]\nmin_interval_s = 9999999",
        ["my.toml", "recrawl.min_interval_s", "larger than recrawl.max_interval_s"],
    ),
    ("[robots]\nttl_s = 1e9", ["my.toml: robots.ttl_s", "robots.stale_s", "smaller than robots.ttl_s"]),
    ("[generate]\nlevels = 3", ["my.toml: generate.levels", "generate.level_shares", "one number a level, 3 in all"]),
    ("[fetch]\nwindow_s = inf", ["my.toml", "fetch.window_s", "inf", "a finite number"]),
    ("[politeness]\nmin_delay_s = -inf", ["my.toml", "politeness.min_delay_s", "a finite number"]),
    ("[generate]\nage_level_s = 99999999999", ["my.toml", "generate.age_level_s", "at most 3155760000"]),
    ("[fetch\nmax_open = 1", ["my.toml", "not valid TOML", "line 1"]),
    ("[fetch]\nmax_open = 1\nmax_open = 2", ["my.toml", "not valid TOML"]),
]


@pytest.mark.parametrize(("text", "words"), MISTAKES)
def test_a_mistake_names_place_key_and_what_would_be_right(text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        mine(text)
    for word in words:
        assert word in str(error.value)


def test_a_mistake_on_the_command_line_names_it() -> None:
    with pytest.raises(
        ConfigError, match=r"^--set fetch\.max_open=many: fetch\.max_open = 'many': must be a whole number"
    ):
        build([default_layer(), parse_set("fetch.max_open=many")])


def test_without_the_defaults_the_missing_key_is_named() -> None:
    with pytest.raises(ConfigError, match=r"agent\.token: no value; the defaults of conf/spindle.toml"):
        build([parse_toml("[agent]\ncontact = 'x'", "my.toml")])


# --- limits ---


def annotated() -> list[tuple[str, str, Any, Any]]:
    """Section, key, type and rule of every setting that has a rule."""
    found = []
    for section, cls in SECTIONS.items():
        for key, kind in typing.get_type_hints(cls, include_extras=True).items():
            if typing.get_origin(kind) is typing.Annotated:
                found.append((section, key, *typing.get_args(kind)))
    return found


RANGES = [(section, key, kind, rule) for section, key, kind, rule in annotated() if isinstance(rule, config.Range)]


@pytest.mark.parametrize(("section", "key", "kind", "rule"), RANGES, ids=[f"{s}.{k}" for s, k, _, _ in RANGES])
def test_every_range_is_enforced_on_both_sides(section: str, key: str, kind: type, rule: config.Range) -> None:
    below = kind(rule.low) - 1
    if rule.unlimited and below == config.UNLIMITED:
        below -= 1
    with pytest.raises(ConfigError, match=f"{section}.{key}"):
        build([default_layer(), ("my.toml", {section: {key: below}})])
    if rule.high != math.inf:
        with pytest.raises(ConfigError, match=f"{section}.{key}"):
            build([default_layer(), ("my.toml", {section: {key: kind(rule.high) + 1}})])
    if rule.unlimited:
        settings = build([default_layer(), ("my.toml", {section: {key: config.UNLIMITED}})])
        assert getattr(getattr(settings, section), key) == config.UNLIMITED


def test_every_number_has_a_range() -> None:
    bare = [
        f"{section}.{key}"
        for section, cls in SECTIONS.items()
        for key, kind in typing.get_type_hints(cls, include_extras=True).items()
        if kind in (int, float)
    ]
    assert bare == []


# --- the shipped file ---


def shipped_keys() -> list[tuple[str, str]]:
    return [(section, key) for section, values in tomllib.loads(SHIPPED).items() for key in values]


def test_shipped_file_has_exactly_the_known_keys() -> None:
    fields = [(section, field.name) for section, cls in SECTIONS.items() for field in dataclasses.fields(cls)]
    assert sorted(shipped_keys()) == sorted(fields)


def has_comment(toml: str, section: str, key: str) -> bool:
    """A comment behind the key, or on the line above it."""
    lines = toml.splitlines()
    start = next(n for n, line in enumerate(lines) if line.split("#")[0].strip() == f"[{section}]")
    place = next(n for n in range(start, len(lines)) if re.match(rf"{key}\s*=", lines[n]))
    outside_quotes = re.sub(r'"[^"]*"', "", lines[place])
    return "#" in outside_quotes or lines[place - 1].startswith("#")


@pytest.mark.parametrize(("section", "key"), shipped_keys())
def test_every_key_has_its_reason_beside_it(section: str, key: str) -> None:
    assert has_comment(SHIPPED, section, key)


def test_a_key_without_a_comment_would_be_seen() -> None:
    assert has_comment("[a]\nx = 1  # why", "a", "x")
    assert has_comment("[a]\n# why\nx = 1", "a", "x")
    assert not has_comment('[a]\nw = 1\nx = "#"', "a", "x")


DURATION_OR_SIZE = re.compile(r"(^|_)(timeout|delay|interval|ttl|age|gap|lease|bytes|recheck|probe)(_|$)")
UNITS = re.compile(r"_(s|ms|bytes|bytes_s)$")


@pytest.mark.parametrize(("section", "key"), [pair for pair in shipped_keys() if DURATION_OR_SIZE.search(pair[1])])
def test_durations_and_sizes_say_their_unit(section: str, key: str) -> None:
    assert UNITS.search(key), f"{section}.{key}"


# --- the pinned configuration ---


def test_digest_is_the_same_for_equal_settings_and_another_for_others() -> None:
    one, two = build([default_layer()]), build([default_layer(), parse_toml("", "empty.toml")])
    assert one == two and one.digest() == two.digest()
    assert re.fullmatch(r"[0-9a-f]{64}", one.digest())
    assert mine("[fetch]\nmax_open = 99").digest() != one.digest()
    # whole number or not, order of layers and keys: no matter
    assert mine("[politeness]\nmin_delay_s = 2").digest() == one.digest()
    assert (
        mine("[fetch]\nmax_open = 9\nwindow_s = 5").digest() == mine("[fetch]\nwindow_s = 5.0\nmax_open = 9").digest()
    )


def test_json_has_one_form() -> None:
    """Sorted keys: the digest does not depend on the order in which fields are declared."""
    text = build([default_layer()]).to_json()
    assert json.dumps(json.loads(text), sort_keys=True) == text


def test_pins_bring_back_the_same_settings() -> None:
    settings = mine("[scope]\nallow = ['host:ä.test']\n[politeness]\nbackoff_max_s = 1e300")
    assert from_json(settings.to_json()) == settings


def test_settings_cannot_be_changed() -> None:
    settings = build([default_layer()])
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.fetch.max_open = 3  # type: ignore[misc]


def test_user_agent_contains_token_and_contact() -> None:
    """RFC 9309 2.2.1: the product token is a substring of the identification string."""
    agent = mine("[agent]\ntoken = 'MyBot'\ncontact = 'https://example.test/bot'").agent
    assert agent.user_agent == "Mozilla/5.0 (compatible; MyBot/0.1; +https://example.test/bot)"
