"""What operators may say, what stands after it, and how it lies in the warehouse."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spindle import inbox
from spindle.cli import main
from spindle.ledger import Ledger
from spindle.schema import FORMAT_VERSION, columns
from spindle.segments import SegmentId, State
from spindle.store import Store, open_store
from spindle.wishes import HostWord, What, Wish, Word, of_fields, standing

AT = "2026-12-01T10:00:00+00:00"

STANDS: list[tuple[list[tuple[str, str | None, str | None]], Word, str]] = [
    ([], Word(), "nobody has said anything"),
    ([("pause", None, None)], Word(pause=True), "everything is held"),
    ([("pause", None, None), ("resume", None, None)], Word(), "the later one counts"),
    ([("stop", None, "a.1of1"), ("stop", None, "b.1of1")], Word(stop=frozenset({"a.1of1", "b.1of1"})), "each turn"),
    ([("block", "h", None)], Word(hosts={"h": HostWord(block=True)}), "one host"),
    ([("block", "h", None), ("unblock", "h", None)], Word(hosts={"h": HostWord(block=False)}), "and back"),
    ([("pause", "h", None), ("limit", "h", "2.5")], Word(hosts={"h": HostWord(None, True, True, 2.5)}), "both"),
    ([("limit", "h", "9"), ("limit", "h", "0")], Word(hosts={"h": HostWord(None, None, True, 0.0)}), "faster, too"),
    ([("limit", "h", "9"), ("unlimit", "h", None)], Word(hosts={"h": HostWord(None, None, False)}), "says: none"),
    ([("pause", "h", None), ("resume", None, None)], Word(hosts={"h": HostWord(pause=True)}), "its own pause stays"),
]  # fmt: skip


@pytest.mark.parametrize(("wishes", "word", "why"), STANDS, ids=[row[2] for row in STANDS])
def test_what_stands(wishes: Sequence[tuple[str, str | None, str | None]], word: Word, why: str) -> None:
    made = [Wish(str(n), AT, "me", What(what), host, value) for n, (what, host, value) in enumerate(wishes)]
    assert standing(made) == word, why


@pytest.mark.parametrize(
    ("told", "complaint"),
    [
        ({"what": "explode", "host": "h"}, "explode"),
        ({"what": "block", "host": None}, "names no host"),
        ({"what": "stop", "value": None}, "names no segment"),
        ({"what": "limit", "host": "h", "value": "-1"}, "no delay"),
        ({"what": "limit", "host": "h", "value": "nan"}, "no delay"),
        ({"what": "limit", "host": "h", "value": None}, "could not convert"),
        ({"what": "block", "host": 7}, "host is 7"),
        ({"what": "block", "host": "h", "who": None}, "who is None"),
    ],
)
def test_what_is_no_wish(told: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        of_fields("1", {"at": AT, "who": "me", "host": None, "value": None, **told})


# --- how it lies in the warehouse


def test_wishes_of_many_writers_have_one_order(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: inbox.write(store, What.BLOCK, at=AT, who="me", host=f"h{n}"), range(24)))
    assert sorted(wish.id for wish in made) == [f"{n:09d}" for n in range(1, 25)]
    assert sorted(made, key=lambda wish: wish.id) == inbox.read(store)


def test_a_wish_has_the_columns_of_the_table(tmp_path: Path) -> None:
    inbox.write(open_store(tmp_path), What.LIMIT, at=AT, who="me", host="h", value="3")
    told = json.loads((tmp_path / "inbox-files/000000001.json").read_text())
    assert {"id", *told} == set(columns("inbox"))


def test_an_ear_hears_each_wish_once_and_leaves_out_what_is_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, ear = open_store(tmp_path), inbox.Ear(open_store(tmp_path))
    assert ear.listen() == Word()
    inbox.write(store, What.PAUSE, at=AT, who="me")
    store.put("inbox-files/000000002.json", b"no json")
    store.put("inbox-files/readme.json", b"{}")
    inbox.write(store, What.BLOCK, at=AT, who="me", host="h")
    with caplog.at_level(logging.WARNING):
        assert ear.listen() == ear.listen() == Word(pause=True, hosts={"h": HostWord(block=True)})
    assert [record.getMessage().split(" ")[0] for record in caplog.records] == ["inbox-files/000000002.json"]
    inbox.write(store, What.RESUME, at=AT, who="me")
    assert not ear.listen().pause
    assert inbox.Ear(None).listen() == Word()


# --- the commands


@pytest.fixture
def warehouse(tmp_path: Path) -> Store:
    """As much of one as these commands look at; nothing of it needs a JVM."""
    store = open_store(tmp_path)
    store.put("spindle.json", json.dumps({"format_version": FORMAT_VERSION, "buckets": 4}).encode())
    return store


def say(warehouse: Store, *words: str) -> int:
    return main([*words, "--warehouse", warehouse.root, "--who", "jo"])


def test_commands_leave_wishes(warehouse: Store, capsys: pytest.CaptureFixture[str]) -> None:
    said = [
        "hosts block WWW.B\u00fccher.example",
        "hosts limit slow.example 30",
        "hosts pause p.example",
        "pause",
        "resume",
    ]
    for line in said:
        assert say(warehouse, *line.split()) == 0
    wishes = inbox.read(warehouse)
    assert [(wish.what, wish.host, wish.value) for wish in wishes] == [
        ("block", "www.xn--bcher-kva.example", None),
        ("limit", "slow.example", "30.0"),
        ("pause", "p.example", None),
        ("pause", None, None),
        ("resume", None, None),
    ]
    assert {wish.who for wish in wishes} == {"jo"}
    assert all(wish.at.endswith("+00:00") for wish in wishes)
    capsys.readouterr()
    assert say(warehouse, "hosts") == 0
    shown = capsys.readouterr().out.split("\n")
    assert shown[0] == "no pause"
    assert [" ".join(line.split()) for line in shown[1:4]] == [
        "p.example paused", "slow.example limit 30 s", "www.xn--bcher-kva.example blocked",
    ]  # fmt: skip


def test_stop_names_the_turns_that_fetch(warehouse: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert say(warehouse, "stop") == 0
    assert inbox.read(warehouse) == []
    ledger = Ledger(warehouse, 4)
    for name in ("a.1of4", "b.2of4", "c.3of4"):
        ledger.open(SegmentId.parse(name), {}, 3600.0, lambda: 0.0)
    for state in (State.GENERATED, State.FETCHED):
        ledger.move("b.2of4", state, 1.0)
    assert say(warehouse, "stop") == 0
    assert standing(inbox.read(warehouse)).stop == {"a.1of4", "c.3of4"}
    assert say(warehouse, "stop", "z.1of1") == 2
    assert "open are a.1of4, b.2of4, c.3of4" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("hosts block", "name the host"),
        ("hosts block not_a/host:x", "not a host name"),
        ("hosts limit h.example", "add the seconds"),
        ("hosts limit h.example soon", "seconds from 0 to 86400"),
        ("hosts block h.example 5", "takes no seconds"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    warehouse: Store, line: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert say(warehouse, *line.split()) == 2
    assert complaint in capsys.readouterr().err
    assert inbox.read(warehouse) == []


def test_nothing_is_left_where_no_warehouse_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert say(open_store(tmp_path), "pause") == 4
    assert "not a warehouse" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
