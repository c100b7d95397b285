"""Alarms: what rings and what does not, each on a few rows; and the command that asks. No JVM."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from spindle import checks, config, direct
from spindle.checks import QUESTIONS, Verdict
from spindle.cli import main
from spindle.config import CheckSettings
from spindle.defaults import default_layer
from spindle.schema import FORMAT_VERSION
from spindle.segments import Entry, State

NOW = datetime.datetime(2026, 12, 1, 12, tzinfo=datetime.UTC)
DAY = 86400.0
INSTANT = pa.timestamp("us", tz="UTC")
KINDS = {"ms": pa.float64(), "at": INSTANT, "s": pa.string(), "n": pa.int32(), "b": pa.bool_()}
COLUMNS = {
    table: pa.schema([(name, KINDS[kind]) for name, kind in (word.split(":") for word in columns.split())])
    for table, columns in {
        "fetches": "segment:s host:s outcome:s started_at:at gap_ms:ms crawl_delay_s:ms",
        "hosts": "host:s limit_delay_s:ms paused:b backoff_until:at",
        "urls": "host:s priority:n next_fetch:at discovered_at:at",
    }.items()
}
Row = dict[str, Any]


def ago(seconds: float) -> datetime.datetime:
    return NOW - datetime.timedelta(seconds=seconds)


def fetches(count: int, outcome: str, host: str = "h", seconds: float = 60, **more: Any) -> list[Row]:
    row = {"segment": "s.1of1", "host": host, "outcome": outcome, "started_at": ago(seconds), "gap_ms": None}
    return [row | {"crawl_delay_s": None} | more] * count


def host(name: str, **more: Any) -> Row:
    return {"host": name, "limit_delay_s": None, "paused": None, "backoff_until": None} | more


def url(waits_s: float, priority: int = 1, host: str = "h") -> Row:
    return {"host": host, "priority": priority, "next_fetch": ago(waits_s), "discovered_at": ago(99 * DAY)}


def entry(segment: str, state: State, age: float, span: tuple[int, int] = (0, 4), **more: Any) -> Entry:
    return Entry(
        more.pop("seq", 1), segment, state, NOW.timestamp() - age, *span, 1, NOW.timestamp() + DAY, "vm:1", **more
    )


PINNED = [
    entry("s.1of1", State.OPENED, 3600, pins=json.dumps({"settings": {"politeness": {"min_delay_s": 2.0}}})),
    entry("old.1of1", State.OPENED, 9 * DAY, pins=json.dumps({"settings": {"politeness": {"min_delay_s": 9.0}}})),
]


@pytest.fixture(scope="module")
def limits() -> CheckSettings:
    return config.build([default_layer()]).check


def rung(name: str, tables: dict[str, list[Row]], limits: CheckSettings, folder: Path) -> Verdict:
    for table, schema in COLUMNS.items():
        write_deltalake(str(folder / table), pa.Table.from_pylist(tables.get(table, []), schema=schema))
    question = next(question for question in QUESTIONS if question.name == name)
    named = checks.limits_of(limits, NOW, PINNED)
    rows = direct.query({table: str(folder / table) for table in question.tables}, question.query.format(**named))
    return checks.verdict_of(question, rows, named)


SEVEN = [row for n in range(7) for row in fetches(1, "ok", gap_ms=float(n), host=f"h{n}")]
BEFORE = 2 * DAY  # before the window
SEEN: list[tuple[str, dict[str, list[Row]], list[str], str]] = [
    ("throttled", {"fetches": fetches(90, "ok") + fetches(10, "throttled")}, ["10.0% of 100 requests"], "twice 5 %"),
    ("throttled", {"fetches": fetches(95, "ok") + fetches(5, "throttled")}, [], "the limit itself"),
    ("throttled", {"fetches": fetches(10, "throttled")}, [], "too few to say"),
    ("throttled", {"fetches": fetches(200, "throttled", seconds=BEFORE)}, [], "before the window"),
    ("throttled", {"fetches": fetches(50, "ok") + fetches(50, "denied", started_at=None)}, [], "denied is no request"),
    ("throttled", {}, [], "nothing was fetched"),
    ("forbidden", {"fetches": fetches(80, "ok") + fetches(20, "forbidden")}, ["20.0% of 100"], "twice 10 %"),
    ("blocked_by", {"fetches": fetches(1, "ok", seconds=BEFORE) + fetches(10, "forbidden")}, ["h forbids 100%"], ""),
    ("blocked_by", {"fetches": fetches(1, "forbidden", seconds=BEFORE) + fetches(10, "forbidden")}, [], "always did"),
    ("blocked_by", {"fetches": fetches(1, "ok", seconds=BEFORE) + fetches(9, "forbidden")}, [], "nine requests"),
    ("gaps", {"fetches": fetches(1, "ok", gap_ms=1999.0)}, ["h was asked 1 times too soon, after 1999 ms"], "2 s"),
    ("gaps", {"fetches": fetches(1, "ok", gap_ms=2000.0)}, [], "the delay itself"),
    ("gaps", {"fetches": fetches(1, "ok", gap_ms=4000.0, crawl_delay_s=5.0)}, ["after 4000 ms"], "Crawl-delay"),
    (
        "gaps",
        {"fetches": fetches(1, "ok", gap_ms=600.0), "hosts": [host("h", limit_delay_s=0.5)]},
        [],
        "its owner wants it faster",
    ),
    ("gaps", {"fetches": fetches(1, "ok", gap_ms=1.0, segment="old.1of1", seconds=BEFORE)}, [], "before the window"),
    ("gaps", {"fetches": SEVEN}, ["h0 was", "h1 was", "h2 was", "h3 was", "h4 was"], "five are named"),
    ("starved", {"urls": [url(8 * DAY, 3), url(9 * DAY, 3)]}, ["level 3: 2 URLs are overdue by more than 7 days"], ""),
    ("starved", {"urls": [url(6 * DAY)]}, [], "not that long"),
    ("starved", {"urls": [url(-DAY)]}, [], "not due"),
    ("starved", {"urls": [url(8 * DAY)], "hosts": [host("h", paused=True)]}, [], "its host is paused"),
    ("starved", {"urls": [url(8 * DAY)], "hosts": [host("h", backoff_until=ago(-60))]}, [], "its host backs off"),
    ("starved", {"urls": [url(8 * DAY)], "hosts": [host("h", backoff_until=ago(60))]}, ["level 1: 1 URLs"], "no more"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "tables", "words", "why"), SEEN)
def test_what_rings(
    name: str, tables: dict[str, list[Row]], words: Sequence[str], why: str, limits: CheckSettings, tmp_path: Path
) -> None:
    verdict = rung(name, tables, limits, tmp_path)
    assert len(verdict.alarms) == len(words), why
    for alarm, part in zip(verdict.alarms, words, strict=True):
        assert part in alarm
    assert verdict.more == (2 if why == "five are named" else 0)


def test_a_sheet_may_make_hosts_faster() -> None:
    sheets = [{"delay_s": None, "max_depth": 3}, {"delay_s": 0.5}]
    pins = json.dumps({"settings": {"politeness": {"min_delay_s": 2.0}, "scope": {"sheets": sheets}}})
    log = [entry("s.1of1", State.OPENED, 60, pins=pins)]
    assert checks.delay_of_segment(log, 0) == "CASE f.segment WHEN 's.1of1' THEN 0.5 ELSE 0.0 END"


def test_a_lease_that_ran_out_rings() -> None:
    log = [entry("a.1of2", State.FETCHED, 60, (0, 2)), entry("b.2of2", State.UPDATED, 60, (2, 4))]
    later = NOW.timestamp() + DAY + 7200
    assert checks.leaks(log, NOW.timestamp()).alarms == []
    assert checks.leaks(log, later).alarms == [
        "segment a.1of2 (fetched) holds buckets 0..1 with a lease that ran out 2.0 h ago; finish that turn, or "
        "`spindle expire a.1of2`"
    ]


def test_slices_that_no_turn_goes_through_ring(limits: CheckSettings) -> None:
    def turn(name: str, age: float, span: tuple[int, int], seq: int) -> list[Entry]:
        return [
            entry(name, State.FETCHED, age + 60, span, seq=seq),
            entry(name, State.UPDATED, age, span, seq=seq + 1),
        ]

    inject = entry("in.1of1", State.UPDATED, 60, seq=99)  # a lease of inject fetches nothing
    log = [*turn("a.1of2", 3 * DAY, (0, 2), 1), *turn("a.2of2", DAY, (2, 4), 3), inject]
    told = checks.stale_ranges(log, 4, NOW.timestamp(), limits).alarms
    assert len(told) == 1 and told[0].startswith("buckets 0..1: no turn has gone through them for 3.0 days (limit 2)")
    assert (
        checks.stale_ranges([*log, *turn("b.1of4", 0, (0, 1), 5)], 4, NOW.timestamp(), limits)
        .alarms[0]
        .startswith("buckets 1..1")
    )
    assert checks.stale_ranges([inject], 4, NOW.timestamp(), limits).alarms == [], "a warehouse of today"
    idle = entry("c.1of2", State.GENERATED, 60, (0, 2), seq=7, counts={"listed": 0})
    assert checks.stale_ranges([*log, idle], 4, NOW.timestamp(), limits).alarms == [], "nothing was due there"
    busy = entry("c.1of2", State.GENERATED, 60, (0, 2), seq=7, counts={"listed": 9})
    assert len(checks.stale_ranges([*log, busy], 4, NOW.timestamp(), limits).alarms) == 1, "it has only begun"


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    root = tmp_path / "w"
    for table, schema in COLUMNS.items():
        write_deltalake(str(root / table), pa.Table.from_pylist([], schema=schema))
    (root / "spindle.json").write_text(json.dumps({"format_version": FORMAT_VERSION, "buckets": 4}))
    return root


def test_the_command_rings_by_its_exit_code(warehouse: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["check", "--warehouse", str(warehouse), "--now", NOW.isoformat()]
    assert main(asked) == 0
    assert capsys.readouterr().out.count("ok  ") == len(QUESTIONS) + 2
    rows = pa.Table.from_pylist(fetches(100, "throttled"), schema=COLUMNS["fetches"])
    write_deltalake(str(warehouse / "fetches"), rows, mode="append")
    assert main(asked) == 1
    assert "ALARM throttled: 100.0% of 100 requests were answered with 429 (limit 5.0%)" in capsys.readouterr().out
    assert main([*asked, "gaps"]) == 0, "only what was asked"
    assert main([*asked, "throttled", "--set", "check.throttled_share=1"]) == 0
    capsys.readouterr()
    assert main([*asked, "throttled", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["name"] == "throttled"
    assert main([*asked, "nonsense"]) == 2
    assert "check nonsense: no such check; there are throttled, forbidden," in capsys.readouterr().err
