"""The whole wheel on the demo web, judged by the web's own truth and log; and the wheel killed and turned again.

One crawl of three turns serves all tests: two as they should go, one in which the fetch dies by SIGKILL, and parse and
update are broken off before each of their last steps. What a test looks at was collected once.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from warcio.archiveiterator import ArchiveIterator

from rows import contents, settings_of
from spindle import demo, runner, schema, tables, warc
from spindle.demo.model import Kind
from spindle.demo.traps import PATH_SESSION, trap_of
from spindle.fingerprint import distance
from spindle.jobs import dedup, fetch, generate, inject, parse, update
from spindle.ledger import Ledger
from spindle.segments import SegmentId, State
from spindle.tables import Warehouse
from spindle.urls import url_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1800)  # a busy machine is slow at Spark; nothing here asserts a time

HOSTS = 40
MIN_DELAY_S = 0.2
TABLES = [name for name in schema.TABLES if name != "metrics"]
Row = dict[str, Any]

SETTINGS: dict[str, dict[str, Any]] = {
    "generate": {"list_size": 250, "host_budget": 20, "fetch_tasks": 2},
    "politeness": {"min_delay_s": MIN_DELAY_S, "duration_factor": 1.0},
    "fetch": {"window_s": 15.0, "seal_interval_s": 1.0, "total_timeout_s": 6.0, "read_timeout_s": 4.0},
    "recrawl": {"initial_interval_s": 1, "min_interval_s": 1},
    "trap": {"max_depth": 3},
}


@dataclass
class Crawl:
    """A warehouse, the web it was crawled from, and what both say."""

    warehouse: Warehouse
    web: demo.DemoProcess
    world: demo.World
    counts: dict[tuple[str, str], Mapping[str, float]] = field(default_factory=dict)
    known: dict[str, set[str]] = field(default_factory=dict)  # segment -> URLs in the table after it
    first_asked: dict[str, set[str]] = field(default_factory=dict)  # segment -> URLs the server had answered before it

    def rows(self, table: str, segment: str | None = None) -> list[Row]:
        found = self.warehouse.read(table)
        if segment is not None:
            found = found.filter(f"segment = '{segment}'")
        return [row.asDict(recursive=True) for row in found.collect()]

    def run(self, segment: str, name: str) -> None:
        job = {"fetch": fetch.run, "parse": parse.run, "update": update.run}[name]
        self.counts[segment, name] = runner.turn_of(self.warehouse, SegmentId.parse(segment), name, job)
        if name == "parse":
            self.counts[segment, "dedup"] = dedup.measured(self.warehouse, settings_of())

    def open(self, segment: str) -> None:
        options = runner.arguments("generate", "").parse_args(["--warehouse", "w", "--segment", segment])
        self.first_asked[segment] = {f"http://{entry.host}{entry.path}" for entry in self.log()}
        settings = settings_of(
            **SETTINGS, network={"hosts_file": str(self.web.hosts_file), "hosts_file_only": True,
                                 "allow_addresses": ["127.0.0.0/8"]}, spark={"shuffle_partitions": 2},
        )  # fmt: skip
        turn = generate.open_turn(self.warehouse, SegmentId.parse(segment), settings, options)
        self.counts[segment, "generate"] = runner.measured(turn, "generate", generate.run)

    def remember(self, segment: str) -> None:
        self.known[segment] = {row.url for row in self.warehouse.read("urls").select("url").collect()}

    def log(self) -> list[demo.Entry]:
        return demo.read_log(self.web.log_path)


FIRST, SECOND, THIRD = "t1.1of1", "t2.1of1", "t3.1of1"


@pytest.fixture(scope="module")
def crawl(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crawl]:
    """Two turns: the seeds; then what they lead to, and the seeds again."""
    folder = tmp_path_factory.mktemp("wheel")
    with demo.start_in_process(folder / "web", hosts=HOSTS, tick_s=0) as web:
        made = Crawl(tables.create(spark, str(folder / "w"), 4, {}), web, demo.build_world(1, HOSTS))
        inject.run(made.warehouse, web.seeds, settings_of(), runner.now_of(_clock()), SegmentId("seeds"))
        for segment in (FIRST, SECOND):
            made.open(segment)
            for name in ("fetch", "parse", "update"):
                made.run(segment, name)
            made.remember(segment)
        yield made


def _clock() -> Any:
    return runner.arguments("x", "").parse_args(["--warehouse", "w", "--segment", "s"])


@pytest.fixture(scope="module")
def fetches(crawl: Crawl) -> list[Row]:
    return [row for segment in (FIRST, SECOND) for row in crawl.rows("fetches", segment)]


# --- rows


def test_every_listed_url_has_exactly_one_row(crawl: Crawl, fetches: list[Row]) -> None:
    for segment in (FIRST, SECOND):
        listed = Counter(row["url"] for row in crawl.rows("fetchlist", segment))
        here = [row for row in fetches if row["segment"] == segment]
        assert listed == Counter(row["url"] for row in here if row["hop"] == 0)
        assert set(listed.values()) == {1}
        assert max(Counter(row["url_key"] for row in here).values()) == 1, "hops included"
    assert {row["url"] for row in crawl.rows("fetchlist", FIRST)} == set(crawl.web.seeds)
    assert len(crawl.rows("fetchlist", SECOND)) > 150


OUTCOMES = {200: "ok", 404: "not_found", 410: "gone", 403: "forbidden", 429: "throttled", 503: "throttled"}
OUTCOMES |= {500: "server_error", 301: "redirect", 302: "redirect", 303: "redirect", 307: "redirect", 308: "redirect"}
UNUSABLE = ("application/pdf", "image/png")


def expected_outcome(crawl: Crawl, row: Row) -> str | None:
    """What the truth says of this request; None where it says nothing (the inside of a trap)."""
    world, url, name = crawl.world, row["url"], urlsplit(row["url"]).netloc
    if trap_of(world, url):
        return None
    if name not in world.hosts:
        return "connect_error" if name in world.silent else "dns_error"
    if world.hosts[name].robots.unreachable:
        return "robots_unreachable"
    if not world.hosts[name].robots.allows(url.partition(name)[2], "spindle"):
        return "denied"
    told = demo.expectation(world, url)
    if told is None:
        return "not_found"
    asked_before = url in crawl.first_asked[row["segment"]]
    status = told.status if asked_before else told.first_status
    if status == 200 and told.content_type in UNUSABLE:
        return "bad_type"
    if status == 200 and asked_before and world.hosts[name].validators != "none" and told.kind == "page":
        return "not_modified"
    return OUTCOMES[status]


def test_what_was_fetched_is_what_the_web_says(crawl: Crawl, fetches: list[Row]) -> None:
    judged: Counter[str] = Counter()
    for row in fetches:
        wanted = expected_outcome(crawl, row)
        if row["outcome"] == "not_reached" or wanted is None:
            continue
        assert row["outcome"] == wanted, row
        judged[wanted] += 1
        told = demo.expectation(crawl.world, row["url"])
        if told is None or row["http_status"] is None:
            continue
        if wanted == "redirect":
            assert (row["http_status"], row["redirect_to"]) == (told.status, told.redirect_to)
        elif wanted in ("ok", "bad_type") and told.content_type != "sitemap":
            assert row["content_type"].partition(";")[0] == told.content_type, row
    assert {"ok", "not_modified", "redirect", "denied", "not_found"} <= set(judged), judged
    assert sum(judged.values()) > 120, judged


def test_equal_content_has_an_equal_hash_and_one_original(crawl: Crawl, fetches: list[Row]) -> None:
    content: dict[str, str] = {}
    for row in fetches:
        told = demo.expectation(crawl.world, row["url"])
        if row["outcome"] == "ok" and told and told.content and told.trap == "" and told.kind == "page":
            content[row["url"]] = told.content
            if row["truncated"] is not None:
                del content[row["url"]]
    rows = {row["url"]: row for row in crawl.rows("urls")}
    hashes, groups = defaultdict(set), defaultdict(list)
    for url, name in content.items():
        hashes[name].add(rows[url]["content_hash"])
        groups[name].append(rows[url])
    assert all(len(found) == 1 for found in hashes.values()), "one content, one hash"
    assert len(set.union(*hashes.values())) == len(hashes), "and the other way round"
    clusters = {row["cluster"]: row for row in crawl.rows("clusters")}
    for group in groups.values():
        shown = {row["url_key"] for row in group if row["duplicate_of"] is None}
        shown |= {clusters[row["duplicate_of"]]["preferred_key"] for row in group if row["duplicate_of"] is not None}
        assert len(shown) == 1, group
        assert all((row["status"] == "duplicate") == (row["duplicate_of"] is not None) for row in group)


def test_copies_are_those_of_brute_force_and_of_one_article(crawl: Crawl) -> None:
    """All pages that are equal or within three bits hang together, and nothing else does; what hangs together was made
    of one article."""
    rows = {row["url_key"]: row for row in crawl.rows("urls") if row["status"] in ("fetched", "duplicate")}
    pages = {key: row for key, row in rows.items() if row["kind"] == "page" and row["content_hash"]}
    union = {key: {key} for key in pages}
    for one, other in combinations(pages, 2):
        if are_copies(pages[one], pages[other]):
            both = union[one] | union[other]
            union |= dict.fromkeys(both, both)
    clusters = {row["cluster"]: row for row in crawl.rows("clusters")}
    found = defaultdict(set)
    for key, row in pages.items():
        preferred = [c for c in clusters.values() if c["preferred_key"] == key and c["cluster"] == c["root"]]
        name = row["duplicate_of"] if row["duplicate_of"] is not None else preferred[0]["root"] if preferred else key
        found[clusters[name]["root"] if name in clusters else name].add(key)
    assert {frozenset(group) for group in found.values()} == {frozenset(group) for group in union.values()}
    for group in found.values():
        assert len({origin(crawl, pages[key]["url"]) for key in group}) == 1, [pages[key]["url"] for key in group]


def are_copies(one: Row, other: Row) -> bool:
    if one["content_hash"] == other["content_hash"]:
        return True
    if one["simhash"] is None or other["simhash"] is None:
        return False
    return distance(one["simhash"], other["simhash"]) <= 3


def origin(crawl: Crawl, url: str) -> str:
    """The article that a page was made of."""
    told = demo.expectation(crawl.world, url)
    return url if told is None else told.near_group or told.content or url


# --- politeness, from the server's side


def check_politeness(crawl: Crawl) -> None:
    """No two requests to a host at once, nor closer than its delay, nor one that its robots.txt denies."""
    log, world = crawl.log(), crawl.world
    assert demo.overlaps(log) == []
    for host, gap in demo.gaps(log).items():
        site = world.hosts[host]
        group = site.robots.group("spindle")
        asked = group.crawl_delay_s if group and group.crawl_delay_s else 0.0
        assert gap >= max(MIN_DELAY_S, asked, site.slow_s), (host, gap)
    for entry in log:
        if entry.path not in ("/robots.txt", world.hosts[entry.host].robots.moved_to):
            assert world.hosts[entry.host].robots.allows(entry.path, "spindle"), entry
            assert not world.hosts[entry.host].robots.unreachable, entry
        assert "spindle" in entry.agent and "a@b.test" in entry.agent


def test_the_server_saw_a_polite_crawler(crawl: Crawl, fetches: list[Row]) -> None:
    check_politeness(crawl)
    asked = Counter(f"http://{entry.host}{entry.path}" for entry in crawl.log())
    told = Counter(row["url"] for row in fetches if row["http_status"] is not None)
    robots = {url for url in asked if url.endswith(("/robots.txt", "/robots-moved.txt"))}
    assert {url: n for url, n in asked.items() if url not in robots} == told, "each request has its row"
    assert max(asked[url] for url in robots) == 1, "a copy of robots.txt serves a day"


# --- what was understood


def test_pages_have_the_titles_that_a_browser_shows(crawl: Crawl, fetches: list[Row]) -> None:
    seen = 0
    pages = [row for segment in (FIRST, SECOND) for row in crawl.rows("pages", segment)]
    for page in pages:
        told = demo.expectation(crawl.world, page["url"])
        assert page["error"] is None
        if told and told.kind == "page" and told.charset and told.title:
            assert (page["title"], page["charset"]) == (told.title, told.charset), page["url"]
            assert (page["noindex"], page["nofollow"]) == (told.noindex, told.nofollow)
            seen += 1
    assert seen > 80
    parsed = Counter((row["segment"], row["url"]) for row in pages)
    assert set(parsed.values()) == {1}
    assert set(parsed) == {(row["segment"], row["url"]) for row in fetches if row["outcome"] == "ok" and is_new(row)}


def is_new(row: Row) -> bool:
    """Whether the body was new to us: a page that came back as it was is not parsed again."""
    return row["segment"] == FIRST or row["url"] not in SEEDS_SEEN


SEEDS_SEEN: set[str] = set(demo.build_world(1, HOSTS).seeds)


def leads_to(crawl: Crawl, url: str) -> set[str]:
    """The URLs that a right crawler finds on a page: the truth of `demo.fates`, one step of it."""
    found = crawl.world.find(url)
    if found is None:
        return set()
    host, resource = found
    if resource.location:
        return {resource.location.url}
    if resource.kind is Kind.SITEMAP:
        return {f"http://{host.name}{path}" for path in resource.lists if host.resources[path].alive(0)}
    if resource.status != 200 or resource.nofollow("spindle"):
        return set()
    links = host.nav if resource.trap == PATH_SESSION else crawl.world.outlinks(host, resource, 0)
    return {link.url for link in links if not link.nofollow and len(link.url) <= 2000}


@pytest.mark.parametrize("segment", [FIRST, SECOND])
def test_exactly_the_urls_that_the_pages_lead_to_are_found(crawl: Crawl, fetches: list[Row], segment: str) -> None:
    wanted = set(crawl.web.seeds)
    upto = [FIRST, SECOND][: 1 if segment == FIRST else 2]
    for row in fetches:
        if row["segment"] in upto and row["outcome"] in ("ok", "redirect", "not_modified"):
            wanted |= leads_to(crawl, row["url"])
        if row["segment"] in upto and row["outcome"] not in ("not_reached", "robots_unreachable", "dns_error"):
            host = crawl.world.hosts[row["host"]]
            wanted |= {f"http://{host.name}{path}" for path in host.robots.sitemaps}
    real = {url for url in crawl.known[segment] if not trap_of(crawl.world, url)}
    assert real == {url for url in wanted if not trap_of(crawl.world, url)}
    assert real <= set(demo.fates(crawl.world, crawl.web.seeds)), "no URL that a complete crawl would not come to know"


def test_depth_is_the_number_of_links_from_a_seed(crawl: Crawl) -> None:
    depths = {row["url"]: row["depth"] for row in crawl.rows("urls")}
    assert {url for url, depth in depths.items() if depth == 0 and "sitemap" not in url} == set(crawl.web.seeds)
    for seed in crawl.web.seeds:
        for url in leads_to(crawl, seed) - set(crawl.web.seeds):
            assert depths[url] == 1, url


# --- records


def test_every_pointer_opens_to_the_record_of_its_url(crawl: Crawl, fetches: list[Row]) -> None:
    root, dates = Path(crawl.warehouse.store.root), {}
    for row in fetches:
        if row["warc_file"] is None:
            assert row["http_status"] is None
            continue
        member = (root / row["warc_file"]).read_bytes()[row["warc_offset"] :][: row["warc_length"]]
        [record] = ArchiveIterator(io.BytesIO(member), check_digests=True)
        record.content_stream().read()
        assert record.rec_headers["WARC-Target-URI"] == row["url"]
        assert record.digest_checker.passed is not False, record.digest_checker.problems
        dates[row["segment"], row["url"]] = record.rec_headers["WARC-Date"]
        if row["outcome"] == "not_modified":
            assert record.rec_type == "revisit"
            assert record.rec_headers["WARC-Refers-To-Date"] == dates[FIRST, row["url"]], "to the very instant"
    for row in crawl.rows("urls"):
        if row["warc_file"] is not None:
            read = crawl.warehouse.store.get_range(row["warc_file"], row["warc_offset"], row["warc_length"])
            assert warc.read_record(read).fields["warc-target-uri"] == row["url"]


# --- numbers


def test_metrics_add_up(crawl: Crawl, fetches: list[Row]) -> None:
    told: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for row in crawl.rows("metrics"):
        told[row["segment"], row["job"]][row["name"]] = row["value"]
    before = len(crawl.web.seeds)
    assert told["seeds.1of1", "inject"]["inserted"] == before
    for segment in (FIRST, SECOND):
        here = [row for row in fetches if row["segment"] == segment]
        found = told[segment, "fetch"]
        assert found["fetches"] == len(here)
        assert {name.partition(".")[2]: n for name, n in found.items() if name.startswith("outcome.")} == Counter(
            row["outcome"] for row in here
        )
        assert found["wire_bytes"] == sum(row["wire_bytes"] or 0 for row in here)
        assert found["min_gap_ms"] >= 1000 * MIN_DELAY_S
        assert told[segment, "parse"]["pages"] == len(crawl.rows("pages", segment))
        assert told[segment, "parse"]["links"] <= len(crawl.rows("links", segment))
        assert told[segment, "update"]["new_urls"] == len(crawl.known[segment]) - before
        before = len(crawl.known[segment])
        listed = told[segment, "generate"]
        left = sum(n for name, n in listed.items() if name.startswith("not_listed."))
        assert listed["listed"] + left == listed["due"]
        for job in ("generate", "fetch", "parse", "update"):
            assert told[segment, job]["wall_s"] > 0


def test_events_name_each_page_that_came(crawl: Crawl, fetches: list[Row]) -> None:
    for segment in (FIRST, SECOND):
        events = sorted(crawl.rows("events", segment), key=lambda row: row["sequence"])
        wanted = sorted((row for row in fetches if row["segment"] == segment and row["outcome"] == "ok"),
                        key=lambda row: row["url_key"])  # fmt: skip
        assert [row["url"] for row in events] == [*(row["url"] for row in wanted), None]
        assert [row["sequence"] for row in events] == list(range(1, len(wanted) + 2))
        assert all(row["url_key"] == url_key(row["url"]) for row in events[:-1])


# --- killed, and run again


class Killed(RuntimeError):
    """Stands for the end of the process."""


def killed(*_: Any, **__: Any) -> Any:
    raise Killed


def broken_off(crawl: Crawl, name: str, patched: pytest.MonkeyPatch, target: Any, attribute: str) -> None:
    """Runs a job of the third turn that dies when it comes to a certain step."""
    with patched.context() as here:
        here.setattr(target, attribute, killed)
        with pytest.raises(Killed):
            crawl.run(THIRD, name)


@pytest.mark.heavy
def test_a_turn_that_dies_at_every_step_ends_as_a_clean_one(
    crawl: Crawl, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {table: contents(crawl.warehouse, table) for table in ("urls", "hosts")}
    crawl.open(THIRD)
    root = Path(crawl.warehouse.store.root)
    kill_in_the_middle(root)
    journal = root / SegmentId.parse(THIRD).folder / "journal"
    parts = {path.name for path in journal.glob("*.jsonl")}
    assert parts and not list(journal.glob("*.done")), "it died with some of the journal sealed and no task at its end"
    broken_off(crawl, "fetch", monkeypatch, Ledger, "move")
    first = contents(crawl.warehouse, "fetches")
    asked = len(crawl.log())
    crawl.run(THIRD, "fetch")
    assert len(crawl.log()) == asked, "what is in the journal is not fetched again"
    assert contents(crawl.warehouse, "fetches") == first
    rows = crawl.rows("fetches", THIRD)
    listed = Counter(row["url"] for row in crawl.rows("fetchlist", THIRD))
    assert Counter(row["url"] for row in rows if row["hop"] == 0) == listed, "one row for each listed URL"
    assert max(row["epoch"] for row in rows) > 1 and min(row["epoch"] for row in rows) == 1, "rows of both attempts"
    check_politeness(crawl)
    assert {table: contents(crawl.warehouse, table) for table in before} == before, "a fetch changes no URL, no host"

    broken_off(crawl, "parse", monkeypatch, Ledger, "move")
    first = contents(crawl.warehouse, "pages") + contents(crawl.warehouse, "links")
    crawl.run(THIRD, "parse")
    assert contents(crawl.warehouse, "pages") + contents(crawl.warehouse, "links") == first

    shutil.copytree(root, tmp_path / "clean")
    clean = Crawl(tables.open_warehouse(spark, str(tmp_path / "clean")), crawl.web, crawl.world)
    clean.run(THIRD, "update")
    for target, attribute in (
        (update, "merge_urls"),
        (update, "event_rows"),
        (update, "mark_seen"),
        (Ledger, "move"),
    ):
        broken_off(crawl, "update", monkeypatch, target, attribute)
    crawl.run(THIRD, "update")
    for table in TABLES:
        if table != "segments":  # it tells when each state was reached
            assert contents(crawl.warehouse, table) == contents(clean.warehouse, table), table
    steps = [(row["seq"], row["segment"], row["state"], row["counts"]) for row in crawl.rows("segments")]
    assert sorted(steps) == sorted(
        (row["seq"], row["segment"], row["state"], row["counts"]) for row in clean.rows("segments")
    )

    after = {table: contents(crawl.warehouse, table) for table in TABLES}
    for name in ("fetch", "parse", "update"):
        crawl.run(THIRD, name)
    assert {table: contents(crawl.warehouse, table) for table in TABLES} == after, "there is nothing left to do"
    entry = crawl.warehouse.ledger.current(THIRD)
    assert entry is not None and entry.state is State.UPDATED


def kill_in_the_middle(root: Path) -> None:
    """Runs the fetch job in a process of its own, as a user would, and ends all of it without a warning."""
    program = [
        sys.executable,
        "-c",
        "import sys; from spindle.cli import main; sys.exit(main())",
        "fetch",
        "--warehouse",
        str(root),
        "--segment",
        THIRD,
    ]
    environment = {**os.environ, "SPINDLE_MASTER": "local[2]", "SPINDLE_QUICK": "1"}
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        environment.pop(name, None)
    journal = root / SegmentId.parse(THIRD).folder / "journal"
    with (root.parent / "fetch.err").open("wb") as errors:
        job = subprocess.Popen(program, env=environment, start_new_session=True, stdout=errors, stderr=errors)
        try:
            deadline = time.monotonic() + 200
            while len({path.name[:5] for path in journal.glob("*.jsonl")}) < 2:  # a sealed part of each task
                assert job.poll() is None and time.monotonic() < deadline, (root.parent / "fetch.err").read_text()
                time.sleep(0.05)
        finally:
            family = [job.pid, *descendants(job.pid)]
            for pid in family:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            job.wait(30)
    for pid in family:  # a worker that is being torn down may still write
        while (stat := Path(f"/proc/{pid}/stat")).exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.05)


def descendants(pid: int) -> list[int]:
    """All processes that a process of ours has started, and they in turn."""
    parents: dict[int, list[int]] = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.read_text().rpartition(")")[2].split()[1])].append(int(stat.parent.name))
        except OSError:
            continue
    found, queue = [], [pid]
    while queue:
        queue = [child for one in queue for child in parents[one]]
        found += queue
    return found
