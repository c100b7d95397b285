"""The parse job: what a task makes of its rows, with hostile pages and without Spark; then a segment with it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import rows
from hostile_page import hostile
from spindle import html, parsetask, urls, warc
from spindle.errors import SegmentStateError, WarehouseError
from spindle.extract import Extract
from spindle.jobs import parse, update
from spindle.ledger import Ledger
from spindle.runner import Turn
from spindle.segments import State
from test_extract import PROSE, Files, capture

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEGMENT = "a.1of1"
FILE = f"segment-files/{SEGMENT}/warc/x.warc.gz"
Row = dict[str, Any]


class Site:
    """Records in a WARC file below a warehouse's folder, and the rows that point at them."""

    def __init__(self, root: Path) -> None:
        self.root, self.files, self.known, self.fetches = root, Files(), list[Row](), list[Row]()

    def page(self, url: str, body: str, content_type: str = "text/html", **facts: Any) -> None:
        record = warc.response(capture(body.encode(), {"Content-Type": content_type}, url))
        self.fetch(url, "ok", self.files.add(record, FILE), **{"content_hash": f"of {body}"} | facts)

    def fetch(self, url: str, outcome: str, place: tuple[str, int, int] | None = None, **facts: Any) -> None:
        known = rows.url_row(url, content_hash=facts.pop("held", None), seed_priority=2.0)
        file, offset, length = place or (None, None, None)
        where = {"warc_file": file, "warc_offset": offset, "warc_length": length}
        self.known.append(known)
        self.fetches.append(rows.fetched_row(known, SEGMENT, outcome, **where | facts))

    def write(self) -> None:
        for name, content in self.files.content.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


# --- one task, without Spark


def task(site: Site, *, kinds: dict[str, str] | None = None, **parse_settings: Any) -> list[Row]:
    """What a task yields for the fetches of a site, in their order."""
    settings = rows.settings_of(parse=parse_settings)
    plain = {"settings": settings.to_json(), "seed_hosts": [], "seed_domains": [], "buckets": 4, "segment": SEGMENT}
    plain |= {"month": "2026-11", "parse_version": 1}
    work = [row | {"what": (kinds or {}).get(row["url"], parsetask.RECORD), "sitemaps": None} for row in site.fetches]
    return [
        row
        for batch in parsetask.run([pa.RecordBatch.from_pylist(work)], plain, str(site.root))
        for row in _read(batch)
    ]


def _read(batch: pa.RecordBatch) -> Iterator[Row]:
    pages, by_page = parsetask.pages_in(pa.Table.from_batches([batch])), Counter[str]()
    for place, row in enumerate(batch.to_pylist()):
        made = parsetask.links_in(pa.Table.from_batches([batch.slice(place, 1)]), SEGMENT, 1)
        page = None if row["page"] is None else pages[by_page["pages"]]
        by_page["pages"] += page is not None
        yield {"page": page, "links": made, "counts": None if row["counts"] is None else json.loads(row["counts"])}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("hangs", "parse_timeout"), ("crashes", "parse_crash"), ("eats", "parse_crash"), ("raises", "parse_crash")],
)
def test_a_hostile_page_costs_itself(site: Site, kind: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsetask, "FACTORY", "hostile_page:factory")
    for name in ("one", "two", hostile(kind), "three"):
        site.page(f"http://h.test/{name}", f"<title>{name}</title><a href='/x'>x</a>")
    site.write()
    *made, last = task(site, timeout_s=2.0, memory_bytes=512 << 20)
    assert [row["page"]["url"].rpartition("/")[2] for row in made] == ["one", "two", hostile(kind), "three"]
    assert [(row["page"]["title"], len(row["links"])) for row in made if row["page"]["error"] is None] == [
        ("one", 1),
        ("two", 1),
        ("three", 1),
    ]
    bad = made[2]["page"]
    assert bad["error"].startswith(f"{reason}: ") and bad["url_key"] == urls.url_key(bad["url"])
    assert (bad["segment"], bad["parse_version"], bad["text"], made[2]["links"]) == (SEGMENT, 1, None, [])
    assert _counts(last) == {"pages": 4, "links": 3, "errors": 1, reason: 1}


def test_monsters_among_ordinary_pages(site: Site) -> None:
    """apache/nutch#358, stormcrawler#758: each costs itself, is capped and counted."""
    site.page("http://h.test/before", "<a href='/x'>x</a>")
    site.page("http://h.test/word", f"<p>{'w' * 1_200_000} end</p><a href='/x'>x</a>")
    site.page("http://h.test/links", "".join(f"<a href={n}>x</a>" for n in range(500_000)))
    site.page("http://h.test/after", "<a href='/x'>x</a>")
    site.write()
    made = task(site)
    assert [row["page"]["error"] for row in made[:-1]] == [None] * 4
    assert [row["page"]["links"] for row in made[:-1]] == [1, 1, 2000, 1]
    cut = made[2]["page"]["links_cut"]
    assert _counts(made[-1]) == {"pages": 4, "links": 2003, "rejected.links_cut": cut} and cut == 498_000
    assert len(made[1]["page"]["text"]) == 200_000 and made[1]["page"]["word_count"] == 3


def test_a_page_larger_than_the_memory_of_a_task_costs_itself(site: Site) -> None:
    """50 MB of links, of which the limit on decoded bodies leaves 32; nobody else's row is missing."""
    for name, body in (("before", "<a href='/x'>x</a>"), ("huge", "<a href=x>a</a>" * 3_500_000), ("after", "<p>b")):
        site.page(f"http://h.test/{name}", body)
    site.write()
    before, huge, after, last = task(site, memory_bytes=512 << 20)
    assert (before["page"]["error"], after["page"]["error"]) == (None, None)
    assert huge["page"]["error"].startswith("parse_crash: ")
    assert _counts(last) == {"pages": 3, "links": 1, "errors": 1, "parse_crash": 1}


def test_a_task_counts_what_it_was_given(site: Site) -> None:
    site.page("http://h.test/a", "<a href='/x'>x</a> <a href='mailto:me@h.test'>m</a> <a href='/y' rel=nofollow>y</a>")
    site.page("http://h.test/broken", "no sitemap", kind="sitemap")
    site.fetch("http://h.test/gone", "ok", (f"{FILE}.lost", 0, 9))
    for name in ("same", "also"):
        site.fetch(f"http://h.test/{name}", "not_modified")
    site.fetch("http://h.test/nowhere", "ok")
    site.write()
    same = {f"http://h.test/{name}": parsetask.UNCHANGED for name in ("same", "also")}
    *made, last = task(site, kinds=same | {"http://h.test/nowhere": parsetask.NO_RECORD})
    errors = [row["page"]["error"] for row in made]
    assert errors == [None, "sitemap: no_urls", f"record: {FILE}.lost"]
    wanted = {"pages": 3, "links": 1, "errors": 2, "unchanged": 2, "no_record": 1}
    assert _counts(last) == wanted | {"rejected.scheme": 1, "rejected.nofollow": 1}
    assert (last["page"], last["links"]) == (None, [])


def test_a_task_without_work_starts_no_child(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsetask, "FACTORY", "no_such_module:factory")
    site.fetch("http://h.test/same", "not_modified")
    assert task(site, kinds={"http://h.test/same": parsetask.UNCHANGED}) == [
        {"page": None, "links": [], "counts": {"unchanged": 1}}
    ]


@pytest.mark.parametrize("place", ["text", "anchor"])
def test_what_arrow_cannot_hold_costs_its_page(place: str) -> None:
    """The parser lets no half of a character through; if one came, it must not end the task."""
    page: Row = {"text": "\ud800" if place == "text" else "t", "error": None}
    link = ("a", 1, 1, "http://h.test/", "h.test", "h.test", "page", "\ud800", "content", False, 1, None, None)
    source = {"src_key": 1, "src_url": "http://h.test/", "src_host": "h.test"}
    with pytest.raises(UnicodeEncodeError):
        parsetask._told(Extract(page, source, [link] if place == "anchor" else []))


def test_a_batch_is_bounded_by_its_size(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsetask, "BATCH_CHARS", 3000)
    for number in range(5):
        site.page(f"http://h.test/{number}", f"<p>{PROSE * 10}</p>")
    site.write()
    settings = rows.settings_of()
    plain = {"settings": settings.to_json(), "seed_hosts": [], "seed_domains": [], "buckets": 4, "segment": SEGMENT}
    plain |= {"month": "2026-11", "parse_version": 1}
    work = pa.RecordBatch.from_pylist([row | {"what": parsetask.RECORD, "sitemaps": None} for row in site.fetches])
    assert [len(batch) for batch in parsetask.run([work], plain, str(site.root))] == [1, 1, 1, 1, 1, 1]


def test_a_store_that_fails_ends_the_task(site: Site) -> None:
    site.page("http://h.test/a", "x")
    (site.root / FILE).mkdir(parents=True)  # a folder where the file should be
    with pytest.raises(WarehouseError, match=r"x\.warc\.gz"):
        task(site)


# --- the job, with Spark


@pytest.fixture(scope="module")
def turn(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Turn:
    """A small segment, fetched."""
    root = tmp_path_factory.mktemp("parse") / "w"
    warehouse = rows.new_warehouse(spark, root)
    turn = rows.open_turn(warehouse, SEGMENT, rows.settings_of())
    site = Site(root)
    said = "<meta property='og:type' content='article'><meta name='robots' content='noarchive'>"
    for number in range(6):
        link = f"<a href='http://h{5 - number}.test/x'>to</a>"
        site.page(f"http://h{number}.test/", f"<title>{number}</title>{said}{link}")
    site.page("http://h1.test/same", "as it was", held="of as it was")
    site.fetch("http://h1.test/304", "not_modified", content_hash="h", held="h")
    site.fetch("http://h1.test/moved", "redirect", redirect_to="http://h2.test/there")
    site.fetch("http://h1.test/none", "not_found")
    site.write()
    warehouse.record("fetches", site.fetches)
    warehouse.record("fetchlist", [rows.listed_row(row, SEGMENT, n) for n, row in enumerate(site.known)])
    robots = dict.fromkeys(_columns("robots")) | {"host": "h1.test", "bucket": 0, "verdict": "rules"}
    robots |= {
        "origin": "http://h1.test",
        "since": rows.ago(9),
        "attempted_at": rows.ago(9),
        "expires_at": rows.ago(-9),
    }
    told = {"sitemaps": ["http://h1.test/map.xml", "ftp://h1.test/"], "last_segment": SEGMENT}
    warehouse.record(
        "robots", [robots | told, robots | {"origin": "http://old.test", "sitemaps": ["http://old.test/s"]}]
    )
    for state in (State.GENERATED, State.FETCHED):
        warehouse.ledger.move(SEGMENT, state, 0.0, {})
    turn.entry, turn.sizes = warehouse.ledger.current(SEGMENT), {"fetches": len(site.fetches)}
    return turn


def _counts(last: Row) -> Row:
    assert last["counts"].pop("chars") > 0
    return dict(last["counts"])


def _columns(table: str) -> list[str]:
    from spindle import schema

    return schema.columns(table)


def test_a_segment_is_parsed(turn: Turn) -> None:
    counts = parse.run(turn)
    assert counts == {"pages": 6, "links": 8, "errors": 0, "unchanged": 2, "rejected.scheme": 1}
    pages = turn.warehouse.read("pages").orderBy("url").collect()
    assert [(row.url, row.title, row.parse_version) for row in pages] == [
        (f"http://h{number}.test/", str(number), html.PARSE_RULES) for number in range(6)
    ]
    assert {(*row.robots, row.open_graph["type"], row.text) for row in pages} == {("meta:noarchive", "article", None)}
    links = turn.warehouse.read("links")
    found = {(row.rel, row.src_url, row.dst_url, row.dst_kind, row.seed_priority) for row in links.collect()}
    assert found == {
        *(("a", f"http://h{n}.test/", f"http://h{5 - n}.test/x", "page", None) for n in range(6)),
        ("redirect", "http://h1.test/moved", "http://h2.test/there", "page", 2.0),
        ("sitemap", "http://h1.test/robots.txt", "http://h1.test/map.xml", "sitemap", None),
    }


def test_a_large_segment_is_written_by_spark_with_the_same_rows(turn: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {table: rows.contents(turn.warehouse, table) for table in ("pages", "links")}
    files = set(Path(turn.warehouse.uri, "links").glob("*.parquet"))
    monkeypatch.setattr(turn, "sizes", {})  # nobody counted: it may be large
    monkeypatch.setattr(parse, "DIRECT_CHARS", 0)
    monkeypatch.setattr(Ledger, "move", lambda *_: None)  # the state stands already
    assert parse.run(turn)["links"] == 8
    assert {table: rows.contents(turn.warehouse, table) for table in before} == before, "in the place of the others"
    written = set(Path(turn.warehouse.uri, "links").glob("*.parquet")) - files
    [buckets] = [found for file in written if (found := pyarrow.parquet.read_table(file)["dst_bucket"].to_pylist())]
    assert buckets == sorted(buckets) and len(set(buckets)) > 1, "the owner of a bucket finds its rows together"


def test_an_old_segment_is_parsed_again_beside_what_the_crawl_uses(turn: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SegmentStateError, match="parse it again once it is updated"):
        parse.reparse(turn)
    ledger = turn.warehouse.ledger
    ledger.move(SEGMENT, State.UPDATED, 0.0, {})
    turn.entry, turn.sizes = ledger.current(SEGMENT), ledger.sizes(SEGMENT) | {"fetches": 10}
    assert parse.reparse(turn) == {}, "by the same rules there is nothing to do"
    monkeypatch.setattr(html, "PARSE_RULES", html.PARSE_RULES + 1)
    for _ in range(2):
        assert parse.reparse(turn)["pages"] == 6
    versions = [html.PARSE_RULES - 1, html.PARSE_RULES]
    for table, number in (("pages", 6), ("links", 8)):
        found = turn.warehouse.read(table).select("parse_version").collect()
        assert Counter(row.parse_version for row in found) == dict.fromkeys(versions, number)
    links, _ = update.links_into(turn)
    assert {row.parse_version for row in links.collect()} == {html.PARSE_RULES - 1}
