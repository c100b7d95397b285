"""What an operator asks of the frontier: explain, prune, rekey, on one small warehouse, through the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rows import NOW, add, ago, frame, host_row, link_row, new_warehouse, open_turn, settings_of, url_row
from spindle import cli, inbox, runner, tables, urls
from spindle.cli.explain import standing
from spindle.jobs import generate, update
from spindle.runner import Turn
from spindle.segments import SegmentId, State
from spindle.tables import Warehouse
from spindle.wishes import What

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)

DAY = 86400
SETTINGS = [
    "--set",
    "network.hosts_file_only=true",
    "--set",
    "generate.host_budget=2",
    "--set",
    "generate.list_size=4",
    "--set",
    "scope.deny=['host:no.test']",
]
ROWS = [
    url_row("http://a.test/best", score=0.99, priority=1),
    url_row("http://a.test/second", score=0.98, priority=1),
    url_row("http://a.test/third", score=0.97, priority=1),
    url_row("http://b.test/later", next_fetch=ago(-3600)),
    url_row("http://off.test/"),
    url_row("http://no.test/", score=1.0, priority=1),
    url_row("http://c.test/x?utm_new=1&id=2", score=0.9, priority=1, last_fetch=ago(999), status="fetched"),
    url_row("http://c.test/x?id=2&utm_new=2", score=0.01, priority=5),
    url_row("http://d.test/low", score=0.0, priority=5),
    url_row("http://e.test/low", score=0.001, priority=5),
    url_row("http://blocked.test/", score=1.0, priority=1),
]


@pytest.fixture(scope="module")
def warehouse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    made = new_warehouse(spark, tmp_path_factory.mktemp("frontier") / "w")
    add(made, "urls", ROWS)
    add(made, "hosts", [host_row("off.test", state="backing_off", backoff_until=ago(-60))])
    add(made, "links", [link_row("http://a.test/best", "http://c.test/x?id=2&utm_new=2", "old.1of1", 1)])
    inbox.write(made.store, What.BLOCK, at=NOW.isoformat(), who="jo", host="blocked.test")
    return made


@pytest.fixture
def spindle(warehouse: Warehouse, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(command: str, *words: str) -> tuple[int, str, str]:
        code = cli.main([command, "--warehouse", warehouse.store.root, "--now", NOW.isoformat(), *words])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


#: URL -> the reason for which the next list has it not ("": it has it).
STANDING = {
    "http://a.test/best": "",
    "http://a.test/third": "host_budget",
    "http://off.test/": "host_backing_off",
    "http://d.test/low": "cut",
    "http://blocked.test/": "host_blocked",
}


def test_the_reason_of_each_url(warehouse: Warehouse) -> None:
    settings = settings_of(generate={"host_budget": 2, "list_size": 4}, scope={"deny": ["host:no.test"]})
    turn = Turn(warehouse, SegmentId("explain"), settings, NOW, 0, None)
    with runner.kept(few=True) as keep:
        plan = generate.planned(turn, keep)
        found = {row["url"]: standing(plan, row["url_key"], row["bucket"]) for row in ROWS if row["url"] in STANDING}
    assert {url: reason for url, (reason, _) in found.items()} == STANDING
    assert found["http://a.test/best"][1].startswith(", in task ")


def test_explain_without_a_row_or_out_of_scope(spindle: Any) -> None:
    code, out, _ = spindle("explain", "HTTP://A.test:80/x/x/x/", *SETTINGS)
    assert code == 1 and "rules: refused, trap_repeated_segments: " in out and "table: not there" in out
    code, out, _ = spindle("explain", "http://no.test", *SETTINGS)
    assert code == 1 and "list: no, out_of_scope: deny host:no.test" in out
    code, out, _ = spindle("explain", "http://b.test/later", *SETTINGS)
    assert code == 1 and "rules: wanted, by follow everywhere" in out and "list: no, it is not due yet" in out


def test_explain_names_the_operator(spindle: Any) -> None:
    code, out, _ = spindle("explain", "http://blocked.test/", *SETTINGS)
    assert code == 1 and f"operators: block, by jo at {NOW.isoformat()}, wish 000000001" in out
    assert "list: no, host_blocked: its host is blocked (`spindle hosts`)" in out


def test_explain_names_the_sheets(spindle: Any) -> None:
    sheets = "scope.sheets=[{name='slow ones', match=['domain:b.test'], delay_s=5, domain_budget=9, max_depth=4}]"
    code, out, _ = spindle("explain", "http://b.test/later", *SETTINGS, "--set", sheets)
    assert code == 1
    for what in ("max_depth 4 for the URL", "delay_s 5 for the host", "domain_budget 9 for the domain"):
        assert f"sheets: {what}, by slow ones" in out


def test_forms_that_show_one_content_are_learned_held_back_and_explained(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What update notes of a turn's new pages, however large the turn, generate obeys: new URLs of that form wait, in
    Java's regular expressions as in Python's; known ones are visited again, and the rest of the host is listed."""
    made = new_warehouse(spark, tmp_path / "w")
    trap = "http://trap.odd.test/calendar"
    months = [url_row(f"{trap}/{n}/1?a.b", simhash=5 + n % 3, fetch_count=1) for n in range(30)]
    months += [url_row(f"http://trap.odd.test/page-{n}", simhash=-1 << n, fetch_count=1) for n in (9, 20, 40)]
    for row in months:
        row["status"] = "fetched"
    turn = Turn(made, SegmentId("a"), settings_of(), ago(DAY), 0, None)
    done = frame(spark, "urls", months).selectExpr("*", "true AS fetched")
    assert update.learn_forms(turn, done) == 2
    assert update.learn_forms(turn, done) == 0, "a rerun notes nothing"
    small = Turn(made, SegmentId("b"), settings_of(), ago(DAY), 0, None, {"fetches": 3})
    again = frame(spark, "urls", [url_row(f"{trap}/40/1?a.b", simhash=5, fetch_count=1, status="fetched")])
    assert update.learn_forms(small, again.selectExpr("*", "true AS fetched")) == 2
    noted = made.values("traps", {}, ["form", "pages", "copies", "bucket"])
    bucket = months[0]["bucket"]
    assert {tuple(row.values()) for row in noted} == {(f, 31, 30, bucket) for f in ("/calendar/#/#?", "/calendar/*")}

    known = {"fetch_count": 1, "status": "fetched", "last_fetch": ago(DAY)}
    rows = [url_row(f"{trap}/50/1?a.b"), url_row(f"{trap}/x")]
    rows += [url_row(f"{trap}/1/1?a.b", **known), url_row("http://trap.odd.test/about")]
    rows += [url_row("http://other.test/calendar/50/1?a.b")]
    add(made, "urls", rows)
    listed = generate.run(open_turn(made, "c", settings_of()))
    assert (listed["listed"], listed["not_listed.trap_copies"]) == (3, 2)
    made.ledger.move("c.1of1", State.EXPIRED, 0.0)
    words = ["--warehouse", made.store.root, "--now", NOW.isoformat(), "--set", "network.hosts_file_only=true"]
    assert cli.main(["explain", rows[0]["url"], *words]) == 1
    told = capsys.readouterr().out
    assert "list: no, trap_copies: new URLs of its form have shown one content again and again" in told
    assert "30 of 31 new pages of trap.odd.test/calendar/#/#? showed what another of them had shown" in told
    assert generate.run(open_turn(made, "d", settings_of(brake={"pages": 0})))["listed"] == 5, "no brake"


def test_explain_refuses_what_is_no_url(spindle: Any) -> None:
    assert spindle("explain", "mailto:x@a.test")[0] == 2


def all_urls(warehouse: Warehouse) -> set[str]:
    return {row.url for row in warehouse.read("urls").select("url").collect()}


def test_prune_counts_first_and_removes_when_told(warehouse: Warehouse, spindle: Any) -> None:
    before, entries = all_urls(warehouse), len(warehouse.ledger.entries())
    assert spindle("prune")[0] == 2
    code, _, err = spindle("prune", "--pattern", "regex:(")
    assert code == 2 and "--pattern: 'regex:('" in err
    code, out, _ = spindle("prune", "--pattern", "host:d.test", "--pattern", "regex:/low$")
    assert code == 0 and "2 URLs would go; nothing was removed" in out and "http://e.test/low" in out
    assert (all_urls(warehouse), len(warehouse.ledger.entries())) == (before, entries)

    turn = open_turn(warehouse, "busy", settings_of())
    assert spindle("prune", "--pattern", "host:d.test", "--yes")[0] == 3, "a turn owns the range"
    warehouse.ledger.move(str(turn.segment), State.EXPIRED, 0.0)
    code, out, _ = spindle("prune", "--refused", "--yes", "--set", "scope.deny=['host:d.test', 'host:no.test']")
    assert code == 0 and "removed 2" in out
    assert all_urls(warehouse) == before - {"http://d.test/low", "http://no.test/"}


@pytest.mark.heavy  # half a minute
def test_rekey_says_what_would_change_and_then_does_it(warehouse: Warehouse, spindle: Any) -> None:
    rules = ["--set", "url.tracking_params=['utm_*']"]
    before = all_urls(warehouse)
    old = settings_of(url={"tracking_params": []})
    marker = {**warehouse.marker, "policy_digest": urls.policy_digest(old.url)}
    warehouse.store.put(tables.MARKER, json.dumps(marker).encode())
    quiet = ["--segment", "g", "--set", "agent.contact=a@b.test", "--set", "network.hosts_file_only=true", *rules]
    code, _, err = spindle("generate", *quiet)
    assert code == 4 and "`spindle rekey --dry-run`" in err

    code, out, _ = spindle("rekey", "--dry-run", *rules)
    assert code == 0 and "respelled 2" in out and "falling_together 1" in out
    assert "http://c.test/x?utm_new=1&id=2 -> http://c.test/x?id=2" in out
    assert all_urls(warehouse) == before

    assert spindle("rekey", *rules)[0] == 0
    kept = {url for url in before if "c.test" not in url}
    assert all_urls(warehouse) == kept | {"http://c.test/x?id=2"}
    [row] = warehouse.read("urls").filter("host = 'c.test'").collect()
    assert (row.url_key, row.bucket, row.status) == (urls.url_key(row.url), ROWS[6]["bucket"], "fetched")
    [link] = warehouse.read("links").collect()
    assert (link.dst_url, link.dst_key) == (row.url, row.url_key)
    code, out, _ = spindle("rekey", "--dry-run", *rules)
    assert code == 0 and "respelled" not in out, "nothing is left to do"
    assert tables.read_marker(warehouse.store.root)["policy_digest"] == urls.policy_digest(
        settings_of(url={"tracking_params": ["utm_*"]}).url
    )
    assert spindle("generate", "--dry-run", *quiet)[0] == 0


def test_a_path_to_the_warehouse_is_needed(tmp_path: Path) -> None:
    for command in (["explain", "http://a.test/"], ["prune", "--refused"], ["rekey"]):
        assert cli.main([*command, "--warehouse", str(tmp_path / "none")]) == 4
