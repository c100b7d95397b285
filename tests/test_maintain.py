"""Maintain: fewer files, the same rows; only what belongs to its range; never beside a turn that may read what goes."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rows import NOW, add, contents, host_row, new_warehouse, open_turn, settings_of, url_row
from spindle import direct, runner, tables
from spindle.errors import InputError, LeaseHeld
from spindle.jobs import maintain
from spindle.segments import SegmentId

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spindle.tables import Warehouse

PINS = runner.pins(NOW, settings_of())
WHOLE = SegmentId.parse("m.1of1")


@pytest.mark.parametrize(
    ("slice_", "retain_h", "compacted", "refused"),
    [
        ("1of1", 168.0, "hosts", ""),  # owns everything
        ("1of4", 168.0, "urls", ""),  # of the tables that all share, nothing
        ("1of1", 2000.0, "hosts", ""),  # longer than a week is a matter of disk
        ("1of1", 167.0, "", "a week .168 hours. at least"),  # somebody may be reading yesterday's version
        ("1of4", 0.0, "", "a week"),
    ],
)
def test_what_a_slice_may_do(slice_: str, retain_h: float, compacted: str, refused: str) -> None:
    segment = SegmentId.parse(f"m.{slice_}")
    if refused:
        with pytest.raises(InputError, match=refused):
            maintain.work_of(segment, retain_h)
        return
    work = maintain.work_of(segment, retain_h)
    assert compacted in work.compact and ("hosts" in work.compact) == (segment.n == 1)
    assert "links" not in work.compact, "it lies sorted"
    assert set(work.vacuum) >= set(work.compact) and work.retain_h == retain_h


def files_by_bucket(warehouse: Warehouse) -> dict[int, int]:
    found: dict[int, int] = {}
    for facts in warehouse.file_facts():
        found[facts.bucket] = found.get(facts.bucket, 0) + 1
    return found


@pytest.mark.heavy  # half a minute
@pytest.mark.timeout(600)
def test_rows_stay_and_files_go(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = new_warehouse(spark, tmp_path / "w")
    hosts = [f"h{number}.test" for number in range(12)]
    for turn in range(4):
        add(warehouse, "urls", [url_row(f"http://{host}/{turn}") for host in hosts])
        add(warehouse, "hosts", [host_row(f"{turn}.{host}") for host in hosts])
    gone = warehouse.delta("urls")
    gone.delete("url = 'http://h1.test/2'")
    before = {name: contents(warehouse, name) for name in ("urls", "hosts")}
    many = files_by_bucket(warehouse)
    assert min(many.values()) >= 4 and len(many) == 4

    half = SegmentId.parse("m0.1of2")
    maintain.run(warehouse, half, maintain.work_of(half, maintain.WEEK_H), PINS, dry=False)
    after = files_by_bucket(warehouse)
    assert [after[bucket] for bucket in (0, 1)] == [1, 1]
    assert [after[bucket] for bucket in (2, 3)] == [many[2], many[3]], "another range's files were touched"

    for name, age_s in (("left-behind", 8 * 86400), ("being-written", 60)):  # neither is named by any version
        orphan = tmp_path / "w" / "hosts" / f"part-{name}.parquet"
        orphan.write_bytes(b"x")
        os.utime(orphan, (time.time() - age_s,) * 2)
    work = maintain.work_of(WHOLE, maintain.WEEK_H)
    told = maintain.run(warehouse, WHOLE, work, PINS, dry=True)
    assert (told["files.hosts"], told["old.hosts"], told["old.urls"]) == (4, 1, 0)
    made = maintain.run(warehouse, WHOLE, work, PINS, dry=False)
    assert set(files_by_bucket(warehouse).values()) == {1} and direct.count(warehouse.location("hosts"))[1] == 1
    assert made["old_files"] == 1 and not (tmp_path / "w" / "hosts" / "part-left-behind.parquet").exists()
    assert (tmp_path / "w" / "hosts" / "part-being-written.parquet").exists()
    assert {name: contents(warehouse, name) for name in before} == before
    assert warehouse.read_as_of("urls", 2).count() == 24, "a version of this week is still there"
    entry = warehouse.ledger.current("m.1of1")
    assert entry is not None and str(entry.state) == "updated", "the range is free again"

    open_turn(warehouse, "t.1of1", settings_of())
    with pytest.raises(LeaseHeld):
        maintain.run(warehouse, SegmentId.parse("m2.2of2"), maintain.work_of(half, maintain.WEEK_H), PINS, dry=False)
    assert tables.in_buckets(half.buckets(4)) == "bucket IN (0, 1)"
