"""undo and revive: the tables are as they were before an update, or before an outage of ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rows import NOW, add, ago, contents, host_row, new_warehouse, open_turn, settings_of, url_row, utc
from spindle import cli, runner, schema
from spindle.cli import undo
from spindle.errors import SegmentStateError
from spindle.jobs import update
from spindle.segments import Entry, SegmentId, State, check_last, folded_before
from test_update import SEGMENT, laid_out

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)
TABLES = ("urls", "hosts", "events", "links")
PINS = runner.pins(NOW, settings_of())


@pytest.mark.heavy  # a minute
def test_after_an_undo_the_tables_are_as_before_the_update(spark: SparkSession, tmp_path: Path) -> None:
    warehouse, turn = laid_out(spark, tmp_path / "w")
    before = {table: contents(warehouse, table) for table in TABLES}
    update.run(turn)
    once = contents(warehouse, "urls")
    counts = undo.run(warehouse, turn.segment, PINS)
    assert {table: contents(warehouse, table) for table in TABLES} == before
    assert counts["urls"] > 5 and counts["hosts"] == 3
    entry = warehouse.ledger.current(SEGMENT)
    assert entry is not None and entry.state is State.EXPIRED
    marks = warehouse.values("seen", {}, ["links_version", "copies_version"])
    assert {tuple(row.values()) for row in marks} == {(0, 0)}, "links are folded again, by the next turn"
    with pytest.raises(SegmentStateError, match="is expired"):
        undo.run(warehouse, turn.segment, PINS)
    again = open_turn(warehouse, "b.1of1", settings_of())
    for state in (State.GENERATED, State.FETCHED, State.PARSED):
        again.entry = warehouse.ledger.move("b.1of1", state, 1.0)
    update.run(again)
    assert contents(warehouse, "urls") != once, "what an undone segment fetched and linked does not come home"
    hosts = {row.host: row.outcomes for row in warehouse.read("hosts").collect()}
    assert hosts["left.test"] == {"ok": 1}, "what an expired one learned of hosts counts once"


def entry(seq: int, segment: str, state: State, lo: int = 0, hi: int = 4) -> Entry:
    return Entry(seq, segment, state, 1.0, lo, hi, seq, 9.0, "h:1")


TURN = [entry(1, "a.1of1", State.FETCHED), entry(2, "a.1of1", State.UPDATED)]


@pytest.mark.parametrize(
    ("log", "refused", "why"),
    [
        (TURN, "", "the last of its range"),
        (TURN[:1], "is fetched", "not updated"),
        (TURN[1:], "no turn", "a lease of inject"),
        ([], "unknown", "never heard of"),
        ([*TURN, entry(3, "b.1of1", State.UPDATED)], "b.1of1 came after", "a later turn"),
        ([*TURN, entry(3, "inject-1.1of1", State.UPDATED)], "inject-1.1of1 came after", "a later inject"),
        ([*TURN, entry(3, "undo-1.1of1", State.UPDATED)], "", "an undo that broke off"),
        ([*TURN, entry(3, "b.1of1", State.EXPIRED)], "", "a later turn that changed nothing"),
        ([*TURN, entry(3, "b.2of2", State.UPDATED, 4, 8)], "", "a later turn of another range"),
        ([*TURN, entry(3, "a.1of1", State.EXPIRED)], "is expired", "undone before"),
    ],
)
def test_only_the_last_turn_of_a_range_can_be_undone(log: list[Entry], refused: str, why: str) -> None:
    if not refused:
        assert check_last(log, "a.1of1") == TURN[1], why
        return
    with pytest.raises(SegmentStateError, match=refused):
        check_last(log, "a.1of1")


def test_links_are_folded_again_from_the_turn_before() -> None:
    log = [entry(1, "z.1of1", State.PARSED), entry(2, "z.1of1", State.UPDATED)]
    log += [entry(3, "half.1of2", State.PARSED, 0, 2), entry(4, "half.1of2", State.UPDATED, 0, 2)]
    log += [entry(5, "gone.1of1", State.PARSED), entry(6, "gone.1of1", State.UPDATED)]
    log += [entry(7, "gone.1of1", State.EXPIRED)]
    log += [entry(8, "a.1of1", State.PARSED), (last := entry(9, "a.1of1", State.UPDATED))]
    assert folded_before(log, last) == 1, "half a range, and what was undone, say nothing of the whole"
    assert folded_before(log[2:], last) == 0


#: URL -> its row, and status and whether it is due after revive (None: untouched).
OUTAGE: dict[str, tuple[dict[str, Any], str | None]] = {
    "http://a.test/page": ({"status": "dead", "content_hash": "h", "last_outcome": "dns_error"}, "fetched"),
    "http://a.test/copy": ({"status": "retry", "content_hash": "h", "duplicate_of": 1,
                            "last_outcome": "dns_error"}, "duplicate"),
    "http://a.test/moved": ({"status": "dead", "redirect_to": "http://x.test/", "last_outcome": "dns_error"},
                            "redirected"),
    "http://a.test/new": ({"status": "retry", "last_outcome": "dns_error"}, "new"),
    "http://a.test/gone": ({"status": "gone", "last_outcome": "dns_error"}, "gone"),
    "http://b.test/earlier": ({"status": "dead", "last_outcome": "dns_error", "last_fetch": ago(99999)}, None),
    "http://b.test/other": ({"status": "dead", "last_outcome": "server_error"}, None),
    "http://b.test/fine": ({"status": "fetched", "last_outcome": "ok", "failure_streak": 0}, None),
}  # fmt: skip


def test_revive_undoes_an_outage(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    warehouse = new_warehouse(spark, tmp_path / "w")
    same = {"failure_streak": 3, "failure_count": 3, "last_fetch": ago(600), "next_fetch": ago(-9999)}
    rows = {url: url_row(url, **same | facts) for url, (facts, _) in OUTAGE.items()}
    add(warehouse, "urls", list(rows.values()))
    dead = {"state": "dead", "failure_streak": 3, "backoff_until": ago(-9999)}
    add(warehouse, "hosts", [host_row("a.test", **dead), host_row("b.test", **dead), host_row("c.test")])
    command = ["revive", "--warehouse", warehouse.store.root, "--now", NOW.isoformat(), "--outcome", "dns_error"]
    command += ["--since", ago(3600).isoformat()]
    held = contents(warehouse, "urls")
    assert cli.main(command) == 0 and "5 URLs and 1 hosts" in capsys.readouterr().out
    assert contents(warehouse, "urls") == held
    assert cli.main([*command, "--yes"]) == 0
    after = {row.url: row.asDict(recursive=True) for row in warehouse.read("urls").collect()}
    for url, (_, status) in OUTAGE.items():
        changed = {} if status is None else {"status": status, "failure_streak": 0, "next_fetch": NOW}
        wanted = rows[url] | changed
        assert {name: utc(after[url][name]) for name in schema.columns("urls")} == wanted, url
    states = {row.host: (row.state, row.failure_streak, row.backoff_until) for row in warehouse.read("hosts").collect()}
    assert states["a.test"] == ("up", 0, None)
    assert states["b.test"][:2] == ("dead", 3)


def test_revive_wants_a_time() -> None:
    assert cli.main(["revive", "--warehouse", "w", "--since", "monday", "--outcome", "timeout"]) == 2
    assert SegmentId.parse("a").n == 1
