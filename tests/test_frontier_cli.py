"""What an operator asks of the frontier: explain, prune, rekey, on one small warehouse, through the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rows import NOW, add, ago, host_row, link_row, new_warehouse, open_turn, settings_of, url_row
from spindle import cli, tables, urls
from spindle.segments import State
from spindle.tables import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)

SETTINGS = ["--set", "generate.host_budget=2", "--set", "generate.list_size=4", "--set", "scope.deny=['host:no.test']"]
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
]


@pytest.fixture(scope="module")
def warehouse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    made = new_warehouse(spark, tmp_path_factory.mktemp("frontier") / "w")
    add(made, "urls", ROWS)
    add(made, "hosts", [host_row("off.test", state="backing_off", backoff_until=ago(-60))])
    add(made, "links", [link_row("http://a.test/best", "http://c.test/x?id=2&utm_new=2", "old.1of1", 1)])
    return made


@pytest.fixture
def spindle(warehouse: Warehouse, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(command: str, *words: str) -> tuple[int, str, str]:
        code = cli.main([command, "--warehouse", warehouse.store.root, "--now", NOW.isoformat(), *words])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


#: URL as typed -> exit code, what is told of it.
EXPLAINED = [
    ("HTTP://A.test:80/best", 0, ["rules: wanted, by follow everywhere", "list: yes, in task "]),
    ("http://a.test/third", 1, ["list: no, host_budget: better URLs of its host"]),
    ("http://b.test/later", 1, ["list: no, it is not due yet"]),
    ("http://off.test/", 1, ["list: no, host_backing_off: "]),
    ("http://no.test/", 1, ["rules: refused, out_of_scope: deny host:no.test"]),
    ("http://d.test/low", 1, ["list: no, cut: the list is full"]),
    ("http://a.test/x/x/x/", 1, ["rules: refused, trap_repeated_segments: ", "table: not there"]),
]


@pytest.mark.parametrize(("url", "code", "words"), EXPLAINED, ids=[row[0] for row in EXPLAINED])
def test_explain(url: str, code: int, words: list[str], spindle: Any) -> None:
    found, out, err = spindle("explain", url, *SETTINGS)
    assert (found, err) == (code, "")
    assert [word for word in words if word not in out] == [], out


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


def test_rekey_says_what_would_change_and_then_does_it(warehouse: Warehouse, spindle: Any) -> None:
    rules = ["--set", "url.tracking_params=['utm_*']"]
    before = all_urls(warehouse)
    old = settings_of(url={"tracking_params": []})
    marker = {**warehouse.marker, "policy_digest": urls.policy_digest(old.url)}
    warehouse.store.put(tables.MARKER, json.dumps(marker).encode())
    code, _, err = spindle("generate", "--segment", "g", "--set", "agent.contact=a@b.test", *rules)
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
    assert spindle("generate", "--dry-run", "--segment", "g", "--set", "agent.contact=a@b.test", *rules)[0] == 0


def test_a_path_to_the_warehouse_is_needed(tmp_path: Path) -> None:
    for command in (["explain", "http://a.test/"], ["prune", "--refused"], ["rekey"]):
        assert cli.main([*command, "--warehouse", str(tmp_path / "none")]) == 4
