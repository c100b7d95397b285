"""Turns as an operator sees them: listed from the ledger, and ended, without a JVM."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from spindle import inbox
from spindle.cli import main
from spindle.cli.turns import turns
from spindle.ledger import Ledger
from spindle.schema import FORMAT_VERSION
from spindle.segments import SegmentId, State
from spindle.store import open_store
from spindle.wishes import What

INSTANT = pa.timestamp("us", tz="UTC")
KINDS = {"n": pa.int64(), "i": pa.int32(), "s": pa.string(), "at": INSTANT, "m": pa.map_(pa.string(), pa.int64())}
NAMED = """seq:n segment:s state:s at:at slice_i:i slice_n:i bucket_lo:i bucket_hi:i turn:n lease_until:at holder:s
    pins:s counts:m"""
SEGMENTS = pa.schema([(name, KINDS[kind]) for name, kind in (word.split(":") for word in NAMED.split())])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two turns: `a` is at its end, `b` is fetching."""
    store = open_store(tmp_path)
    store.put("spindle.json", json.dumps({"format_version": FORMAT_VERSION, "buckets": 4}).encode())
    DeltaTable.create(str(tmp_path / "segments"), SEGMENTS)
    ledger = Ledger(store, 4)
    ledger.open(SegmentId.parse("a.1of2"), {"now": "x"}, 3600, time.time)
    ledger.move("a.1of2", State.GENERATED, time.time(), {"listed": 7, "tasks": 2})
    ledger.move("a.1of2", State.FETCHED, time.time(), {"fetches": 8})
    ledger.release("a.1of2", time.time())
    ledger.open(SegmentId.parse("b.2of2"), {"now": "x"}, 3600, time.time)
    ledger.move("b.2of2", State.GENERATED, time.time(), {"listed": 0})
    return tmp_path


def test_turns_stand_with_all_that_their_states_counted(root: Path) -> None:
    b, a = turns(Ledger(open_store(root), 4).entries())
    assert (a["segment"], a["state"], a["open"], a["buckets"]) == ("a.1of2", "updated", False, [0, 2])
    assert a["counts"] == {"listed": 7, "tasks": 2, "fetches": 8}
    assert (b["segment"], b["state"], b["open"], b["counts"]) == ("b.2of2", "generated", True, {"listed": 0})


def test_the_command_lists_them(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["segments", "--warehouse", str(root)]) == 0
    first, second = capsys.readouterr().out.splitlines()[1:]
    assert first.startswith("b.2of2   generated") and "s left" in first
    assert second.startswith("a.1of2   updated") and second.endswith("  fetches 8, listed 7, tasks 2")
    assert main(["segments", "--warehouse", str(root), "--open", "--json"]) == 0
    assert [json.loads(line)["segment"] for line in capsys.readouterr().out.splitlines()] == ["b.2of2"]
    assert main(["segments", "--warehouse", str(root), "a.1of2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["listed"] == 7
    assert main(["segments", "--warehouse", str(root), "nobody"]) == 1


def test_a_turn_is_ended_and_its_fetch_hears_of_it(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):  # twice is as good as once
        assert main(["expire", "b.2of2", "--warehouse", str(root)]) == 0
        assert "expire b.2of2: it is expired" in capsys.readouterr().out
    store = open_store(root)
    assert Ledger(store, 4).current("b.2of2").state is State.EXPIRED
    assert {(wish.what, wish.value) for wish in inbox.read(store)} == {(What.STOP, "b.2of2")}
    rows = DeltaTable(str(root / "segments")).to_pyarrow_table().to_pylist()
    assert sorted((row["seq"], row["state"]) for row in rows)[-1] == (7, "expired")
    assert main(["expire", "nobody", "--warehouse", str(root)]) == 3
    assert "segment nobody.1of1 does not exist" in capsys.readouterr().err
    assert main(["expire", "a.1of2", "--warehouse", str(root)]) == 0, "it is over: nothing to end"
    assert "it is updated" in capsys.readouterr().out
