"""Sheets: which of them apply to a URL, to a host and to a domain, and which limit is then in force at each door."""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa
import pytest

from loopback import Site, run
from rows import NOW, fetched_row, settings_of, url_row
from spindle import budgets, extract, facts, urls
from spindle.config import UNLIMITED, SheetSettings
from spindle.errors import ConfigError
from spindle.jobs import generate, inject, update
from spindle.runner import check_rules
from spindle.scope import Scope, refusal
from spindle.sheets import OF_HOST, Sheets, limits_of

SHEETS = [
    {"name": "all of example", "match": ["domain:example.org"], "delay_s": 9, "max_depth": 3, "domain_budget": 70},
    {"name": "archive", "match": ["surt:(org,example,archive,)"], "delay_s": 1, "host_budget": UNLIMITED},
    {"match": ["regex:/calendar/", "surt:(net,"], "max_depth": 1, "min_interval_s": 9_999_999},
    {"name": "secure", "match": ["surt:https://(org,example,archive,)"], "host_day_budget": 8},
    {"name": "papers", "match": ["surt:(org,example,archive,)/papers/"], "max_depth": UNLIMITED},
]


def sheets_of(*given: dict[str, Any]) -> Sheets:
    return Sheets(settings_of(scope={"sheets": given or SHEETS}).scope.sheets)


#: URL -> the sheets and limits of the URL, and those of its host
APPLYING = [
    ("http://example.com/", "", {}, "", {}),
    (
        "http://www.example.org/a",
        "all of example",
        {"delay_s": 9.0, "max_depth": 3, "domain_budget": 70},
        "all of example",
        {"delay_s": 9.0, "max_depth": 3, "domain_budget": 70},
    ),
    (
        "http://archive.example.org/papers/1",
        "all of example, archive, papers",
        {"delay_s": 1.0, "host_budget": UNLIMITED, "max_depth": UNLIMITED, "domain_budget": 70},
        "all of example, archive, secure",  # the host's front page by https as well, and no page below /papers/
        {"delay_s": 1.0, "host_budget": UNLIMITED, "max_depth": 3, "host_day_budget": 8, "domain_budget": 70},
    ),
    (
        "http://a.test/calendar/2024",
        "sheet 3",
        {"max_depth": 1, "min_interval_s": 9_999_999},
        "",
        {},
    ),
    ("https://b.net/x", "sheet 3", {"max_depth": 1, "min_interval_s": 9_999_999}, "sheet 3", None),
]


@pytest.mark.parametrize(("url", "names", "limits", "host_names", "host_limits"), APPLYING)
def test_the_last_sheet_that_matches_and_sets_a_limit_wins(
    url: str, names: str, limits: dict[str, float], host_names: str, host_limits: dict[str, float] | None
) -> None:
    sheets, host = sheets_of(), urls.host_of(url)
    of_url, of_host = sheets.of_url(url, host), sheets.of_host(host)
    assert ((of_url.name or "", limits_of(of_url)), of_host.name or "") == ((names, limits), host_names)
    assert limits_of(of_host) == (limits if host_limits is None else host_limits)
    assert sheets.of_host(host) is of_host, "remembered"


def test_without_sheets_nothing_is_asked() -> None:
    sheets, settings = Sheets(()), settings_of()
    assert not sheets and not sheets.limits_hosts()
    assert sheets.traps("http://a.test/", "a.test", settings.trap) is settings.trap
    assert sheets.recrawl("http://a.test/", "a.test", settings.recrawl) is settings.recrawl
    assert limits_of(sheets.of_host("a.test")) == limits_of(sheets.of_url("http://a.test/", "a.test")) == {}


@pytest.mark.parametrize(
    ("limits", "usual", "most"),
    [([], 5, 5), ([3], 5, 5), ([9, 7], 5, 9), ([UNLIMITED, 7], 5, UNLIMITED), ([7], UNLIMITED, UNLIMITED), ([0], 0, 0)],
)
def test_the_literal_cut_lets_the_largest_budget_through(limits: list[int], usual: int, most: int) -> None:
    sheets = Sheets([SheetSettings(match=("host:a.test",), host_budget=limit) for limit in limits])
    assert sheets.most("host_budget", usual, UNLIMITED) == most
    assert sheets.limits_hosts() == bool(limits)


def test_every_limit_stands_in_for_a_setting_of_the_same_name_or_is_a_hosts() -> None:
    names = {field.name for field in dataclasses.fields(SheetSettings)} - {"match", "name"}
    settings = settings_of()
    sections = (settings.trap, settings.recrawl, settings.generate)
    known = {field.name for section in sections for field in dataclasses.fields(section)}
    assert names - known == {"delay_s"} and set(OF_HOST) <= names
    assert set(budgets.SHEET) == set(OF_HOST)


BOUNDS = [
    # sheet, shortest and longest interval in force (3600 and 5184000 elsewhere)
    ({"min_interval_s": 60}, (60, 5_184_000)),
    ({"max_interval_s": 7200}, (3600, 7200)),
    ({"max_interval_s": 60}, (60, 60)),
    ({"min_interval_s": 9_000_000}, (9_000_000, 9_000_000)),
    ({"min_interval_s": 60, "max_interval_s": 60}, (60, 60)),
]


@pytest.mark.parametrize(("limits", "bounds"), BOUNDS)
def test_a_bound_of_a_sheet_moves_the_other_where_they_would_cross(
    limits: dict[str, int], bounds: tuple[int, int]
) -> None:
    rules = sheets_of({"match": ["host:a.test"], **limits}).recrawl("http://a.test/", "a.test", settings_of().recrawl)
    assert (rules.min_interval_s, rules.max_interval_s) == bounds


MISTAKES = [
    ({"match": [], "delay_s": 1}, "scope.sheets[1]: match is empty"),
    ({"match": ["host:a.test"]}, "scope.sheets[1]: sets no limit"),
    ({"match": ["host:a.test"], "name": "a"}, "scope.sheets[1]: sets no limit"),
    ({"match": ["hots:a.test"], "delay_s": 1}, "scope.sheets[1]: match: 'hots:a.test': expected host:"),
    ({"match": ["regex:("], "max_depth": 1}, "scope.sheets[1]: match: 'regex:('"),
    ({"match": ["surt:(org,example,)/a/"], "delay_s": 1}, "delay_s is a limit of whole hosts, and 'surt:(org,"),
    ({"match": ["host:a.test"], "min_interval_s": 9, "max_interval_s": 8}, "min_interval_s is larger"),
]  # fmt: skip


@pytest.mark.parametrize(("sheet", "told"), MISTAKES)
def test_a_sheet_that_cannot_be_meant_so_is_refused(sheet: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_rules(settings_of(scope={"sheets": [sheet]}))
    assert told in str(error.value)


# --- at each door


def test_depth_at_inject_link_time_and_generate() -> None:
    """One function decides at all doors; here it is asked as each of them does."""
    settings = settings_of(scope={"sheets": SHEETS}, trap={"max_depth": 2})
    scope = Scope(settings.scope)
    asked = [("http://www.example.org/a", 3), ("http://www.example.org/a", 4), ("http://a.test/a", 3)]
    asked += [("http://archive.example.org/papers/1", 99)]
    found = [refusal(url, urls.host_of(url), "", depth, scope, settings.trap) for url, depth in asked]
    assert [why and why.partition(":")[0] for why in found] == [None, "trap_depth", "trap_depth", None]
    told = generate.reasoner(settings.to_json(), (), ())
    assert told("http://a.test/calendar/1", "a.test", "a.test", 2) == "trap_depth"
    none = settings_of(scope={"sheets": [{"match": ["host:deep.test"], "max_path_segments": 1}]})
    _, faults = inject.sift(["http://deep.test/a/b", "http://flat.test/a/b"], none)
    assert [(fault.line, fault.reason.partition(":")[0]) for fault in faults] == [(1, "trap_path_segments")]


def test_depth_of_links() -> None:
    settings = settings_of(scope={"sheets": [{"match": ["host:deep.test"], "max_depth": 1}]})
    normalizer = urls.Normalizer(settings.url)
    rules = extract.Rules(settings, Scope(settings.scope), normalizer, 4, "s.1of1", "2026-11", 1)
    fetch = {"url_key": 1, "url": "http://a.test/", "host": "a.test", "depth": 1}
    made = extract.Extract(None)
    for target in ("http://deep.test/", "http://other.test/"):
        extract._add(made, fetch, rules, target, "a")
    assert [link["dst_host"] for link in made.links] == ["other.test"]
    assert made.rejected == {"trap_depth": 1}


def test_intervals_at_update() -> None:
    settings = settings_of(scope={"sheets": [{"match": ["regex:/news/"], "initial_interval_s": 7200}]})
    rows = []
    for url in ("http://a.test/news/1", "http://a.test/1"):
        known = url_row(url)
        event = fetched_row(known, "s", "ok", content_hash="c")
        rows.append(known | {f"event_{name}": event.get(name) for name in update._EVENTS})
    names = [*update._SAME, *facts.COLUMNS]
    of = {"STRING": pa.string(), "TIMESTAMP": pa.timestamp("us", "UTC"), "INT": pa.int32(), "BIGINT": pa.int64()}
    of["DOUBLE"] = pa.float64()
    kinds = {name: of[kind] for name, kind in facts.TYPES.items()}
    table = pa.table({n: pa.array([r[n] for r in rows], kinds.get(n)) for n in rows[0] if n in names or "event_" in n})
    [after] = update._advancer(settings.to_json(), NOW, names, None)(iter(table.to_batches()))
    assert after.column("fetch_interval_s").to_pylist() == [7200, 86400]


def test_a_delay_at_fetch() -> None:
    """A sheet's delay stands in for the usual one; what the operator said of the one host goes before it."""
    with Site() as site:
        for path in ("/1", "/2"):
            site.page(path, "x")
        pages = [site.url(path, host) for host in ("slow.test", "usual.test", "own.test") for path in ("/1", "/2")]
        sheets = [{"match": ["host:slow.test", "host:own.test"], "delay_s": 0.6}]
        known = {"own.test": {"limit_delay_s": 0.1}}
        settings = site.settings({"scope": {"sheets": sheets}, "politeness": {"min_delay_s": 0.05}})
        run(site, pages, settings, hosts=known)
        gaps = {host: min(site.gaps(host)) for host in ("slow.test", "usual.test", "own.test")}
    assert gaps["slow.test"] >= 0.6 > gaps["usual.test"]
    assert 0.1 <= gaps["own.test"] < 0.6
