"""The job fetch: what a task is handed, and what its second step makes of journals. The fetching itself is tested in
test_fetcher_*.py, the whole in test_wheel.py."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from loopback import Site, listing_rows, run
from rows import add, listed_row, new_warehouse, open_turn, settings_of, url_row, utc
from spindle import progress, warc
from spindle.fetcher import Listing, run_task
from spindle.fetcher.tally import Tally
from spindle.jobs import fetch
from spindle.reader import SegmentReader
from spindle.segments import State
from spindle.store import open_store
from spindle.tables import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as one:
        yield one


# --- what a task is handed


def told(*rows: tuple[int, str, dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    for task, what, payload in rows:  # a batch each
        yield pa.RecordBatch.from_pylist([{"task": task, "what": what, "payload": json.dumps(payload)}])


def test_urls_come_one_by_one_after_hosts_and_robots() -> None:
    facts = [(4, "host", {"host": "a"}), (4, "left", {"host": "b"}), (4, "robots", {"origin": "o"})]
    batches, known = told(*facts, (4, "url", {"n": 1}), (4, "url", {"n": 2})), fetch.Known()
    found = fetch._sorted_out(fetch._told(batches), 4, known)
    assert next(found) == {"n": 1}
    assert known == fetch.Known({"a": {"host": "a"}}, {"o": {"origin": "o"}}, {"b": {"host": "b"}})
    assert next(batches).to_pylist()[0]["payload"] == '{"n": 2}'  # it had not been read yet: memory stays small


def test_two_tasks_in_one_partition_are_an_error_and_not_one_task() -> None:
    rows = fetch._sorted_out(fetch._told(told((0, "url", {}), (2, "url", {}))), 0, fetch.Known())
    with pytest.raises(ValueError, match="tasks 0 and 2"):
        list(rows)


def test_adaptive_execution_leaves_tasks_and_hosts_whole(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """apache/spark#28900, #30432, frontera#291: with its defaults Spark would run so small a list in one task. Asked
    for 16 there are 16, each partition has the URLs of one task, and each host is in one of them."""

    def watched(*_: Any) -> Any:
        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            rows = [row for batch in batches for row in batch.to_pylist()]
            hosts = sorted({json.loads(row["payload"])["host"] for row in rows})
            seen = {"tasks": sorted({row["task"] for row in rows}), "hosts": hosts, "rows": len(rows)}
            yield pa.RecordBatch.from_pylist([{"task": rows[0]["task"], "manifest": json.dumps(seen)}], schema=kinds)

        return work

    kinds = pa.schema([("task", pa.int32()), ("manifest", pa.string())])
    monkeypatch.setattr(fetch, "_worker", watched)
    turn = open_turn(new_warehouse(spark, tmp_path / "w"), "a", settings_of())
    rows = [
        (n % 200 % 16, "url", n, json.dumps({"host": f"h{n % 200}.test", "url": f"http://h{n % 200}.test/{n}"}))
        for n in range(3000)
    ]
    adaptive = spark.conf.get("spark.sql.adaptive.enabled")
    listed = spark.createDataFrame(rows, "task INT, what STRING, place INT, payload STRING")
    made = fetch.manifests(listed, turn, 16, 2e9)
    assert sorted(one["tasks"] for one in made) == [[task] for task in range(16)]
    held = [host for one in made for host in one["hosts"]]
    assert len(held) == len(set(held)) == 200 and sum(one["rows"] for one in made) == 3000
    assert spark.conf.get("spark.sql.adaptive.enabled") == adaptive, "for others it is as it was"


def test_what_is_known_of_a_host_outlives_the_batches_its_urls_come_in(site: Site, tmp_path: Path) -> None:
    """apache/nutch#729: a queue that is empty between two batches must not forget its host. One URL of it a batch."""
    site.page("/2", "no", status=429, host="h.test")
    pages = [site.url(f"/{n}", host) for n in range(6) for host in ("h.test", f"other{n}.test")]
    rows = [(0, "url", row) for row in listing_rows(pages)]
    work = fetch._worker(
        site.settings({"politeness": {"min_delay_s": 0.15}}).to_json(), str(tmp_path), "t.1of1", "2026-12", 2e9, False
    )
    (batch,) = work(told(*rows))
    made = json.loads(batch.to_pylist()[0]["manifest"])
    assert made["counts"]["not_found"] == len(pages) - 1
    gaps = site.gaps("h.test")
    assert len(gaps) == 6, "robots.txt and six pages"
    assert min(gaps) >= 0.15
    assert gaps[3] >= 2 * 0.15, "after the 429"


# --- what a manifest says, and the bar


def row(outcome: str, wire: int | None = None, gap: float | None = None) -> dict[str, Any]:
    return {"type": "fetch", "outcome": outcome, "wire_bytes": wire, "gap_ms": gap}


def test_sums_of_tasks_add_up() -> None:
    first, second = Tally({"http://a"}), Tally()
    for one in (row("ok", 10), row("ok", 5, 300.0), row("timeout"), {"type": "robots", "origin": "http://a"}):
        first.add(one)
    assert list(second.over([row("timeout", None, 250.5), row("timeout"), {"type": "robots", "origin": "http://b"}]))
    assert (first.sums()["robots_known"], second.sums()["robots"], second.sums()["robots_known"]) == (1, 1, 0)
    counts = fetch.totals([first.sums(), second.sums()])
    expected = {"fetches": 5, "outcome.timeout": 3, "outcome.ok": 2, "wire_bytes": 15, "min_gap_ms": 250.5}
    assert list(counts.items()) == list(expected.items())  # the most frequent outcome first
    assert fetch.totals([]) == {"fetches": 0, "wire_bytes": 0}


def test_the_manifest_sums_up_the_whole_journal(site: Site) -> None:
    site.page("/a", b"<p>a")
    site.page("/b", b"moved", status=301, headers=[("Location", "/a2")])
    polite = site.settings({"politeness": {"min_delay_s": 0.05, "duration_factor": 0.0}})
    found = run(site, [site.url("/a"), site.url("/b"), site.url("/none")], polite)
    told = found.manifest["sums"]
    assert told["outcomes"] == {"ok": 1, "redirect": 1, "not_found": 2}
    assert told["wire_bytes"] == sum(one["wire_bytes"] for one in found.pages)
    assert told["min_gap_ms"] == min(one["gap_ms"] for one in found.pages if one["gap_ms"] is not None)
    assert (told["robots"], told["robots_known"]) == (len(found.robots), 0)


def test_the_bar_reads_what_tasks_report(site: Site, tmp_path: Path) -> None:
    """The names that a task writes are those the bar looks for: they live in two files."""
    site.page("/a", b"<p>a")
    assert progress._note(progress.snapshot(open_store(tmp_path), "s")) == "no task has begun yet"
    run(site, [site.url("/a"), site.url("/none")], root=tmp_path / "s")
    seen = progress.snapshot(open_store(tmp_path), "s")
    assert (seen["pages"], seen["errors"], seen["hosts_left"]) == (2, 1, 0)
    assert progress._note(seen) == "0 hosts left, 1 errors"


# --- the second step


@pytest.mark.timeout(900)  # a busy machine is slow at Spark; nothing here asserts a time
def test_tables_follow_from_journals_and_again(spark: SparkSession, site: Site, tmp_path: Path) -> None:
    """Two origins over two turns; one's robots.txt changes. A second step that is repeated changes nothing, whether
    rows only came in or others were renewed and closed."""
    warehouse, known, sums = new_warehouse(spark, tmp_path / "w"), dict[str, Any](), []
    sealing = site.settings({"politeness": {"min_delay_s": 0.1}, "fetch": {"seal_interval_s": 0.05}})
    site.page("/a", b"<p>a")
    for body in (b"Disallow: /x", b"Disallow: /y"):
        site.page("/robots.txt", b"User-agent: *\n" + body, host="h.test")
    site.page("/robots.txt", b"User-agent: *\nDisallow: /same", host="i.test")
    for number in range(2):
        turn = open_turn(warehouse, f"t{number}", settings_of())
        listing = Listing(listing_rows([site.url("/a"), site.url("/none"), site.url("/a", "i.test")]), {}, known)
        made = run_task(listing, sealing, warehouse.store.root, str(turn.segment), 0, month=turn.month)
        sums.append(fetch.derive(turn, [made]))
        assert fetch.derive(turn, [made]) == sums[-1]
        assert made["joined"], "several WARC parts have become one file"
        robots = read(warehouse, "robots")
        known = {row["origin"]: row | {"expires_at": row["attempted_at"]} for row in robots if row["until"] is None}
        warehouse.ledger.release(str(turn.segment), 0)
    assert [(one["fetches"], one["outcome.ok"], one["outcome.not_found"]) for one in sums] == [(3, 2, 1)] * 2
    rows = read(warehouse, "fetches")
    assert len(rows) == 6
    reader = SegmentReader(warehouse.store.root, 1)
    for row in rows + robots:
        assert (tmp_path / "w" / row["warc_file"]).exists(), "any reader opens it, by the row alone"
        record = warc.read_record(reader.read(row["warc_file"], row["warc_offset"], row["warc_length"]))
        assert record.fields["warc-target-uri"] == row.get("url", row.get("origin", "") + "/robots.txt")
    old, new, same = sorted(robots, key=lambda row: (row["origin"], row["since"]))
    assert [row["body"].rpartition("/")[2] for row in (old, new, same)] == ["x", "y", "same"]
    assert [row["last_segment"] for row in (old, new, same)] == ["t0.1of1", "t1.1of1", "t1.1of1"]
    assert old["until"] == new["since"] == new["attempted_at"]
    assert new["until"] is same["until"] is None
    assert same["attempted_at"] > same["since"]  # renewed, not opened anew


@pytest.mark.timeout(900)  # a busy machine is slow at Spark; nothing here asserts a time
def test_what_an_expired_segment_learned_still_counts(spark: SparkSession, site: Site, tmp_path: Path) -> None:
    """Its robots.txt are known in the next turn, and the host that asked for a wait gets it."""
    warehouse = new_warehouse(spark, tmp_path / "w")
    site.robots("User-agent: *\nDisallow: /x")
    site.page("/a", b"busy", status=429, headers=[("Retry-After", "40000")])
    here = site.settings({"fetch": {"window_s": 20.0}})
    told = {name: dataclasses.asdict(getattr(here, name)) for name in ("network", "politeness", "fetch")}
    first = open_turn(warehouse, "t0", settings_of(**told))
    run_task(Listing(listing_rows([site.url("/a")])), here, warehouse.store.root, str(first.segment), 0)
    warehouse.ledger.move(str(first.segment), State.EXPIRED, 1.0)
    second = open_turn(warehouse, "t1", settings_of(**told))
    row = url_row(site.url("/a"))
    add(warehouse, "fetchlist", [listed_row(row, str(second.segment), 0)])
    second.entry = warehouse.ledger.move(str(second.segment), State.GENERATED, 2.0, {"tasks": 1, "listed": 1})
    counts = fetch.run(second)
    assert counts["outcome.not_reached"] == counts["fetches"] == 1
    assert site.paths() == ["/a"]  # in the first turn, not in the second
    (robots,) = read(warehouse, "robots")
    assert (robots["body"], robots["last_segment"]) == ("User-agent: *\nDisallow: /x", str(first.segment))
    assert robots["warc_file"].startswith(first.segment.folder)
    assert [row["segment"] for row in read(warehouse, "fetches")] == [str(second.segment)]


def read(warehouse: Warehouse, table: str) -> list[dict[str, Any]]:
    return [{name: utc(value) for name, value in row.asDict().items()} for row in warehouse.read(table).collect()]
