"""dedup: the job on tables, without a JVM: what becomes a copy, what is told, and that broken runs leave no trace."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from rows import NOW, Row, direct_warehouse, fetched_row, listed_row, put, settings_of, url_row
from spindle import config, demo, html, ledger, schema
from spindle.copies import Copies
from spindle.demo import render
from spindle.errors import LeaseHeld, WarehouseError
from spindle.fingerprint import to_signed
from spindle.jobs import dedup
from spindle.nearpairs import Layout
from spindle.segments import SegmentId, State
from spindle.tables import Warehouse

SETTINGS = settings_of()
Page = tuple[str, str | None, int | None]  # URL, content (None: 404), SimHash


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return direct_warehouse(tmp_path / "w")


def digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


def crawl(warehouse: Warehouse, segment: str, pages: Sequence[Page], **facts: Any) -> None:
    """A parsed segment in which these pages were fetched; `facts` go into all rows of `fetches`, but `canonical` into
    those of `pages`, and `known` into those of the list."""
    turn = SegmentId.parse(segment)
    segment = str(turn)
    warehouse.ledger.open(turn, {"now": NOW.isoformat()}, 1e9, lambda: 1.0)
    canonical, known = facts.pop("canonical", None), facts.pop("known", {})
    outcome = facts.pop("outcome", "ok")
    made: dict[str, list[Row]] = {"fetchlist": [], "fetches": [], "pages": []}
    for number, (url, content, simhash) in enumerate(pages):
        row = url_row(url, **known)
        made["fetchlist"].append(listed_row(row, segment, number))
        told = {"content_hash": digest(content)} if content else {"outcome": "not_found"}
        made["fetches"].append(fetched_row(row, segment, outcome) | told | facts)
        if content is not None and outcome == "ok":
            page = dict.fromkeys(schema.columns("pages")) | {"segment": segment, "month": f"{NOW:%Y-%m}"}
            same = {name: row[name] for name in ("url_key", "bucket", "url", "host", "kind")}
            page |= same | {"parse_version": 1, "canonical": canonical, "simhash": simhash and to_signed(simhash)}
            made["pages"].append(page)
    for table, rows in made.items():
        put(warehouse, table, rows)
    for state in (State.GENERATED, State.FETCHED, State.PARSED):
        warehouse.ledger.move(segment, state, 2.0, {"parse_version": 1, "fetches": len(pages)})
    warehouse.ledger.move(segment, State.UPDATED, 3.0)


def verdicts(warehouse: Warehouse) -> dict[str, tuple[str | None, bool]]:
    """URL -> the URL whose key names its cluster, and whether it is a duplicate; the last row of each."""
    rows: dict[int, Row] = {}
    for row in sorted(warehouse.values("copies", {}, schema.columns("copies")), key=lambda row: row["seq"]):
        rows[row["url_key"]] = row
    names = {key: row["url"] for key, row in rows.items()}
    return {row["url"]: (names.get(row["cluster"]), row["duplicate"]) for row in rows.values()}


def run(warehouse: Warehouse, settings: config.Settings = SETTINGS) -> dict[str, float]:
    return dedup.run(warehouse, settings)


A, B, C, D = (f"http://{name}.test/page" for name in "abcd")


def test_exact_and_near_copies_of_all_history(warehouse: Warehouse) -> None:
    crawl(warehouse, "t1", [(A, "one", 0xFF00), (B, "two", 0x1234 << 40)])
    assert run(warehouse)["duplicates"] == 0
    crawl(warehouse, "t2", [(C, "one", 0xFF00), (D, "one, nearly", 0xFF07)])
    counts = run(warehouse)
    assert (counts["pages"], counts["duplicates"], counts["clusters"]) == (2, 2, 1)
    assert verdicts(warehouse) == {A: (A, False), B: (None, False), C: (A, True), D: (A, True)}
    assert run(warehouse) == {"compacted": False}, "nothing is new"


def test_four_bits_are_too_many_and_short_pages_are_alike_only_to_the_byte(warehouse: Warehouse) -> None:
    """1e0ng/simhash#14: texts of no or few words have no SimHash, and are never grouped by one."""
    crawl(warehouse, "t1", [(A, "OK", None), (B, "!!!", None), (C, "x", 0xFF00), (D, "y", 0xFF0F)])
    run(warehouse)
    assert {cluster for cluster, _ in verdicts(warehouse).values()} == {None}
    crawl(warehouse, "t2", [("http://e.test/", "OK", None)])
    run(warehouse)
    assert verdicts(warehouse)[A] == (A, True) and verdicts(warehouse)["http://e.test/"] == (A, False), "shorter"


def test_a_page_with_other_content_leaves_and_one_that_is_gone(warehouse: Warehouse) -> None:
    crawl(warehouse, "t1", [(A, "one", 0xFF00), (B, "one", 0xFF00), (C, "one", 0xFF00)])
    run(warehouse)
    assert [name for name, (_, duplicate) in verdicts(warehouse).items() if not duplicate] == [A]
    crawl(warehouse, "t2", [(A, None, None), (B, "other", 0x1234 << 40)])
    run(warehouse)
    assert verdicts(warehouse) == {A: (None, False), B: (None, False), C: (A, False)}
    crawl(warehouse, "t3", [(A, "other", 0x1234 << 40)])
    run(warehouse)
    assert verdicts(warehouse) == {A: (B, False), B: (B, True), C: (A, False)}, "the name of A is taken"


def test_a_page_seen_again_as_it_was_is_no_news(warehouse: Warehouse) -> None:
    crawl(warehouse, "t1", [(A, "one", 0xFF00), (B, "one", 0xFF00)])
    run(warehouse)
    known = {"content_hash": digest("one"), "simhash": 0xFF00}
    crawl(warehouse, "t2", [(A, "one", None)], outcome="not_modified", known=known)
    crawl(warehouse, "t3", [(B, "one", 0xFF00)], known=known)
    assert run(warehouse)["pages"] == 0
    crawl(warehouse, "t4", [(A, "one", 0xFF00)], canonical=B)
    counts = run(warehouse)
    assert counts["pages"] == 1 and verdicts(warehouse) == {A: (A, True), B: (A, False)}, "but its canonical link is"


@pytest.mark.parametrize(
    ("outcome", "known", "stays", "why"),
    [
        ("timeout", {"failure_streak": 0}, True, "a failure says nothing"),
        ("timeout", {"failure_streak": 2}, False, "the third makes it dead"),
        ("throttled", {}, True, "the host's mood"),
        ("not_reached", {}, True, "nobody was asked"),
        ("robots_unreachable", {}, True, "nobody was asked"),
        ("denied", {}, False, "not ours to show"),
        ("gone", {}, False, "gone"),
        ("bad_type", {}, False, "no page any more"),
        ("not_modified", {"content_hash": digest("one"), "simhash": 0xFF00}, True, "as it was"),
    ],
)
def test_what_a_fetch_says(warehouse: Warehouse, outcome: str, known: dict[str, Any], stays: bool, why: str) -> None:
    crawl(warehouse, "t1", [(A, "one", 0xFF00), (B, "one", 0xFF00)])
    run(warehouse)
    crawl(warehouse, "t2", [(A, "ignored", None)], outcome=outcome, known=known, content_hash=None)
    run(warehouse)
    assert (verdicts(warehouse)[A][0] is not None) == stays, why


def test_sitemaps_and_bodies_cut_short_are_no_copies(warehouse: Warehouse) -> None:
    crawl(warehouse, "t1", [(A, "one", 0xFF00), (B, "one", 0xFF00)], truncated="disconnect")
    crawl(warehouse, "t2", [(C, "map", None), (D, "map", None)], kind="sitemap")
    assert run(warehouse)["pages"] == 0


def test_an_expired_segment_is_not_looked_at(warehouse: Warehouse) -> None:
    entry = warehouse.ledger.open(SegmentId("t0"), {"now": NOW.isoformat()}, 1e9, lambda: 1.0)
    for state in (State.GENERATED, State.FETCHED, State.PARSED, State.EXPIRED):
        entry = warehouse.ledger.move(str(SegmentId("t0")), state, 2.0)
    assert list(dedup.batches(warehouse.ledger.entries(), 0, 10)) == []
    assert entry.state is State.EXPIRED


def test_segments_are_worked_on_some_at_a_time(warehouse: Warehouse) -> None:
    for name in "abc":
        crawl(warehouse, f"t{name}", [(f"http://{name}.test/", "one", None)])
    entries = [replace(entry, counts={"fetches": 10}) for entry in warehouse.ledger.entries()]
    assert [len(batch) for batch in dedup.batches(entries, 0, 20)] == [2, 1]
    assert [len(batch) for batch in dedup.batches(entries, 0, 5)] == [1, 1, 1], "one larger than that by itself"
    one = settings_of(dedup={"batch_rows": 1})
    run(warehouse, one)
    assert {name for name, _ in verdicts(warehouse).values()} == {"http://a.test/"}


class Killed(RuntimeError):
    """Stands for the end of the process."""


@pytest.mark.parametrize("step", ["note", "tell", "finish"])
@pytest.mark.parametrize("late", [False, True])
def test_killed_at_any_step_and_run_again_it_says_what_one_run_says(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, late: bool
) -> None:
    """Killed before and after each write; meanwhile another segment is parsed, which the run that goes on finds too."""
    clean = direct_warehouse(tmp_path / "clean")
    first = [(A, "one", 0xFF00), (B, "one", 0xFF00)]
    second, third = [(A, "new", 0xAB), (C, "one", 0xFF01), (D, "x", 7 << 30)], [(D, "one", 0xFF00), (B, None, None)]
    for one in (warehouse, clean):
        crawl(one, "t1", first)
        run(one)
        crawl(one, "t2", second)
    kill(monkeypatch, step, late, warehouse)
    if (step, late) == ("finish", True):  # that was the end of the run
        run(clean)
    for one in (warehouse, clean):
        crawl(one, "t3", third)
        run(one)
    for table in ("fingerprints", "copies", "clusters"):
        assert stored(warehouse, table) == stored(clean, table), table


def kill(monkeypatch: pytest.MonkeyPatch, step: str, late: bool, warehouse: Warehouse) -> None:
    real = getattr(Copies, step)

    def dying(*arguments: Any) -> None:
        if late:
            real(*arguments)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Copies, step, dying)
        with pytest.raises(Killed):
            run(warehouse)


def stored(warehouse: Warehouse, table: str) -> list[Row]:
    """Rows, but not the number of the run: a run that was killed may have been two."""
    rows = warehouse.values(table, {}, [name for name in schema.columns(table) if name != "seq"])
    return sorted(rows, key=lambda row: tuple(map(str, row.values())))


def test_two_at_once_are_refused(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    crawl(warehouse, "t1", [(A, "one", None), (B, "one", None)])
    real, inner = Copies.finish, []

    def finish(self: Copies, rows: Any, seq: int) -> None:
        if not inner:
            inner.append(True)
            run(warehouse)
        real(self, rows, seq)

    monkeypatch.setattr(Copies, "finish", finish)
    with pytest.raises(WarehouseError, match="another dedup"):
        run(warehouse)


@pytest.mark.parametrize(
    ("holder", "until", "refused", "why"),
    [
        ("elsewhere:1", 100.0, True, "another machine is at work"),
        ("elsewhere:1", 9.0, False, "its time is over"),
        (ledger.holder(), 100.0, False, "a run of this process that broke off"),
    ],
)
def test_a_run_in_progress_is_left_alone(
    warehouse: Warehouse, holder: str, until: float, refused: bool, why: str
) -> None:
    copies, claim = Copies.open(warehouse.uri, Layout(3, 4)), {"holder": holder, "until": until}
    warehouse.store.create_exclusive(f"dedup-files/{0:012d}-000001.json", json.dumps(claim).encode())
    if refused:
        with pytest.raises(LeaseHeld, match="elsewhere:1, for another 90 s"):
            copies.claim(warehouse.store, 10.0, 60.0)
        return
    copies.claim(warehouse.store, 10.0, 60.0)
    assert len(warehouse.store.list("dedup-files/")) == 2, why


def test_mixed_generations_of_fingerprints_are_refused(warehouse: Warehouse) -> None:
    """1e0ng/simhash#26: keys of another layout, or values of another algorithm, would be compared without a sign."""
    crawl(warehouse, "t1", [(A, "one", 0xFF00)])
    run(warehouse)
    with pytest.raises(WarehouseError, match=r"3of4.*not .*3of5"):
        run(warehouse, settings_of(dedup={"blocks": 5}))


def test_compaction_keeps_what_holds(warehouse: Warehouse, tmp_path: Path) -> None:
    other = direct_warehouse(tmp_path / "other")
    for number, pages in enumerate(histories(8, random.Random(3))):
        for one, most in ((warehouse, 1000), (other, 2)):
            crawl(one, f"t{number}", pages)
            run(one, settings_of(dedup={"compact_files": most, "range_rows": 1000}))
    assert verdicts(warehouse) == verdicts(other)
    copies = [Copies.open(one.uri, Layout(3, 4)) for one in (warehouse, other)]
    left, right = (one.standing(range(1024)) for one in copies)
    assert sorted(zip(left.table, left.value, left.page, strict=True)) == sorted(
        zip(right.table, right.value, right.page, strict=True)
    )
    assert not right.gone.any() and len(other.values("copies", {}, ["url_key"])) < len(
        warehouse.values("copies", {}, ["url_key"])
    )


def histories(turns: int, rng: random.Random) -> Iterator[list[Page]]:
    """Pages whose contents come near to each other, go and come back."""
    centres = [rng.getrandbits(64) for _ in range(4)]
    for _ in range(turns):
        pages = list[Page]()
        for number in rng.sample(range(12), 4):
            value = rng.choice(centres)
            for bit in rng.sample(range(64), rng.randrange(4)):
                value ^= 1 << bit
            pages.append((f"http://h.test/{number}", None if rng.random() < 0.15 else f"{value}", value))
        yield pages


@pytest.mark.parametrize("seed", range(3))
def test_over_any_history_pages_hang_together_as_brute_force_says(warehouse: Warehouse, seed: int) -> None:
    held, groups = dict[str, int](), list[set[str]]()
    for number, pages in enumerate(histories(8, random.Random(seed))):
        crawl(warehouse, f"t{number}", pages)
        changed = {url for url, content, value in pages if held.get(url) != (value if content else None)}
        groups = [group - changed for group in groups]
        for url, content, value in pages:
            held.pop(url, None)
            held |= {} if content is None or value is None else {url: value}
        for one, other in combinations(sorted(held), 2):
            if {one, other} & changed and (held[one] ^ held[other]).bit_count() <= 3:
                touched = [group for group in groups if group & {one, other}]
                groups = [group for group in groups if group not in touched]
                groups.append({one, other}.union(*touched))
        run(warehouse)
    roots = {row["cluster"]: row["root"] for row in warehouse.values("clusters", {}, ["cluster", "root"])}
    found: dict[int, set[str]] = {}
    for page in Copies.open(warehouse.uri, Layout(3, 4)).members(roots).values():
        assert page.cluster is not None
        found.setdefault(roots[page.cluster], set()).add(page.url)
    assert {frozenset(group) for group in found.values()} == {frozenset(group) for group in groups if group}


def test_on_the_demo_web_copies_are_found_and_other_pages_are_not(warehouse: Warehouse) -> None:
    """Every page of 60 hosts in two turns, judged by the web's own truth: all exact copies, most of the copies with one
    word replaced (docs/fingerprints.md: three of four); never two pages that are not copies."""
    world = demo.build_world(1, 60)
    truth, pages = dict[str, demo.Expectation](), list[Page]()
    for host in world.hosts.values():
        for path, resource in host.resources.items():
            url = f"http://{host.name}{path}"
            told = demo.expectation(world, url)
            if told and told.kind == "page" and told.status == 200 and told.content and not told.trap:
                body = render.body(world, host, resource, 0)
                pages.append((url, "body " + body.hex(), html.parse_page(body, url, None).simhash))
                truth[url] = told
    random.Random(7).shuffle(pages)
    for number, some in enumerate((pages[::2], pages[1::2])):
        crawl(warehouse, f"t{number}", some)
        run(warehouse)
    cluster = {url: row["cluster"] for url, row in last_rows(warehouse).items()}
    assert set(cluster) == set(truth)
    origins: dict[int, set[str | None]] = {}
    contents: dict[str | None, set[int | None]] = {}
    for url, name in cluster.items():
        contents.setdefault(truth[url].content, set()).add(name)
        if name is not None:
            origins.setdefault(name, set()).add(truth[url].near_group or truth[url].content)
    assert all(len(found) == 1 for found in origins.values()), "no page is called a copy that is none"
    assert all(len(found) == 1 for found in contents.values()), "all exact copies are found"
    near = [url for url, told in truth.items() if told.edits == 1 and told.near_group in sources(truth)]
    found = [url for url in near if cluster[url] is not None]
    assert len(near) > 3 and len(found) >= len(near) / 2, (len(found), len(near))


def last_rows(warehouse: Warehouse) -> dict[str, Row]:
    rows = sorted(warehouse.values("copies", {}, schema.columns("copies")), key=lambda row: row["seq"])
    return {row["url"]: row for row in rows}


def sources(truth: dict[str, demo.Expectation]) -> set[str | None]:
    return {told.near_group for url, told in truth.items() if not told.edits}
