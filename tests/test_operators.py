"""What operators wished, as generate sees it in `hosts` and as update leaves it in `hosts` and `inbox`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rows import NOW, add, ago, contents, host_row, new_warehouse, settings_of, utc
from spindle import inbox, operators
from spindle.runner import Turn
from spindle.segments import SegmentId
from spindle.tables import Warehouse
from spindle.wishes import What

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)  # a busy machine is slow at Spark; nothing here asserts a time

Seen = tuple[str | None, bool | None, float | None]  # state, paused, limit_delay_s

#: host -> its row of `hosts` (None: never met), what is wished of it, how generate sees it, how update leaves it.
HOSTS: dict[str, tuple[dict[str, Any] | None, list[tuple[str, str | None]], Seen, Seen | None, str]] = {
    "plain.test": ({}, [], ("up", None, None), ("up", None, None), "nobody spoke of it"),
    "block.test": ({}, [("block", None)], ("blocked", None, None), ("blocked", None, None), "a known host"),
    "new.test": (None, [("block", None)], ("blocked", None, None), ("blocked", None, None), "one never met"),
    "free.test": ({"state": "blocked"}, [("unblock", None)], ("up", None, None), ("up", None, None), "free again"),
    "tired.test": (
        {"state": "blocked", "backoff_until": ago(-9)}, [("unblock", None)],
        ("backing_off", None, None), ("backing_off", None, None), "free, but it had asked us to wait",
    ),
    "dead.test": ({"state": "dead"}, [("unblock", None)], ("dead", None, None), ("dead", None, None), "not blocked"),
    "pause.test": ({"limit_delay_s": 9.0}, [("pause", None)], ("up", True, 9.0), ("up", True, 9.0), "its limit stays"),
    "go-on.test": ({"paused": True}, [("resume", None)], ("up", False, None), ("up", False, None), "no more"),
    "slow.test": ({"limit_delay_s": 9.0}, [("limit", "30")], ("up", None, 30.0), ("up", None, 30.0), "the later one"),
    "newly.test": (None, [("limit", "0.5")], (None, None, 0.5), ("up", None, 0.5), "still never met, at generate"),
    "as-ever.test": ({"limit_delay_s": 9.0}, [("unlimit", None)], ("up", None, None), ("up", None, None), "none"),
    "nothing.test": (None, [("block", None), ("unblock", None)], (None, None, None), None, "nothing stands: no row"),
}  # fmt: skip
LATER = "plain.test"  # blocked after the turn had opened


@pytest.fixture(scope="module")
def warehouse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    made = new_warehouse(spark, tmp_path_factory.mktemp("operators") / "w", buckets=1)
    add(made, "hosts", [host_row(host, 1, **row) for host, (row, *_) in HOSTS.items() if row is not None])
    for host, (_, wishes, *_) in HOSTS.items():
        for what, value in wishes:
            inbox.write(made.store, What(what), at=NOW.isoformat(), who="jo", host=host, value=value)
    return made


def turn_of(warehouse: Warehouse, segment: str = "a.1of1", wishes: str | None = None) -> Turn:
    return Turn(warehouse, SegmentId.parse(segment), settings_of(), NOW, 7, None, wishes=wishes)


def seen(rows: list[Any]) -> dict[str, Seen]:
    found = {row.host: (row.state, row.paused, row.limit_delay_s) for row in rows}
    assert len(found) == len(rows), "one row a host"
    return found


def test_what_generate_sees_and_update_leaves(warehouse: Warehouse) -> None:
    upto = inbox.last(warehouse.store)
    inbox.write(warehouse.store, What.BLOCK, at=NOW.isoformat(), who="al", host=LATER)
    turn = turn_of(warehouse, wishes=upto)
    hosts = warehouse.read_range("hosts", turn.segment)
    found = seen(operators.heard(hosts, turn).collect())
    assert found == {host: at_generate for host, (_, _, at_generate, _, _) in HOSTS.items()}
    assert operators.heard(hosts, turn_of(warehouse, wishes="")) is hosts, "opened before anybody spoke"

    changed = operators.fold(turn)
    found = seen(warehouse.read("hosts").collect())
    expected = {host: left for host, (_, _, _, left, _) in HOSTS.items() if left is not None}
    assert found == expected | {LATER: ("blocked", None, None)}, "update hears what was said meanwhile, too"
    assert changed == 10  # those that were as wished already, and those of whom nothing stands, were left alone
    log = [(row.id, row.who, row.what, row.host, row.value, utc(row.at)) for row in warehouse.read("inbox").collect()]
    wished = [("jo", what, host, value) for host, (_, said, *_) in HOSTS.items() for what, value in said]
    wished.append(("al", "block", LATER, None))
    assert sorted(log) == [(f"{n:09d}", *row, NOW) for n, row in enumerate(wished, 1)]

    before = contents(warehouse, "hosts"), contents(warehouse, "inbox")
    assert operators.fold(turn) == 0
    assert (contents(warehouse, "hosts"), contents(warehouse, "inbox")) == before, "twice is once"
