"""The journal: what is sealed in which order, who may write, and what is left when a process dies at any moment."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from warcio.archiveiterator import ArchiveIterator

from fake_s3 import FakeS3
from loopback import Fetched, Site, listing_rows, run
from spindle import cli, store_s3, warc
from spindle.errors import WarehouseError
from spindle.fetcher import (
    Around,
    Listing,
    Superseded,
    epoch,
    fetch_task,
    read_parts,
    run_task,
    sealed_parts,
)
from spindle.fetcher.journal import Journal, manifest
from spindle.fetcher.listing import steady_clock
from spindle.ledger import Ledger
from spindle.schema import FORMAT_VERSION
from spindle.segments import SegmentId
from spindle.store import LocalStore, Store, open_store

DATE = "2026-11-30T12:00:00.000000Z"


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as one:
        yield one


# --- parts


def journal(store: Store, **more: Any) -> Journal:
    return Journal(store, "t.1of1", 7, 2, info={"software": "x"}, **more)


def test_names_and_contents_of_parts(tmp_path: Path) -> None:
    store = open_store(tmp_path)

    async def write() -> Journal:
        one = journal(store)
        place = one.store_exchange(DATE, b"request", b"answer")
        one.write({"type": "fetch", "url": "http://h.test/ü", "warc_file": place.file})
        await one.seal()
        await one.seal()  # nothing new: no part
        one.write({"type": "robots"})
        await one.seal()
        return one

    one = asyncio.run(write())
    assert one.parts == ["journal/00007-002-00000.jsonl", "journal/00007-002-00001.jsonl"]
    assert one.warc_files == ["warc/t.1of1-00007-002-00000.warc.gz"]
    assert store.list("") == [*one.parts, *one.warc_files]
    assert [row["type"] for row in read_parts(store, one.parts)] == ["fetch", "robots"]
    assert next(iter(read_parts(store, one.parts)))["url"] == "http://h.test/ü"
    assert sealed_parts(store, 7) == one.parts
    assert sealed_parts(store, 8) == []


def test_a_row_never_points_at_a_file_that_is_not_there(tmp_path: Path) -> None:
    """The WARC part has its name before the journal part has: whatever the moment, the pointers hold."""
    appeared: list[str] = []

    class Watched(LocalStore):
        def put(self, name: str, content: bytes, *, durable: bool = True) -> None:
            appeared.extend(path.name for path in tmp_path.glob("warc/t*"))
            super().put(name, content, durable=durable)

    async def write() -> None:
        one = journal(Watched(str(tmp_path)))
        one.write({"warc_file": one.store_exchange(DATE, b"q", b"a").file})
        await one.seal()

    asyncio.run(write())
    assert appeared == ["t.1of1-00007-002-00000.warc.gz"]


def test_what_is_not_sealed_leaves_nothing(tmp_path: Path) -> None:
    async def write() -> None:
        one = journal(open_store(tmp_path))
        one.write({"warc_file": one.store_exchange(DATE, b"q", b"a").file})
        await one.abandon()

    asyncio.run(write())
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_seal_whose_caller_was_cancelled_still_counts(tmp_path: Path) -> None:
    """The thread works on; the next seal waits for it, so the manifest names its part."""

    class Slow(LocalStore):
        def put(self, name: str, content: bytes, *, durable: bool = True) -> None:
            time.sleep(0.3)
            super().put(name, content, durable=durable)

    async def write() -> list[str]:
        one = journal(Slow(str(tmp_path)))
        one.write({"n": 1})
        first = asyncio.create_task(one.seal())
        await asyncio.sleep(0.1)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        one.write({"n": 2})
        await one.seal()
        return one.parts

    parts = asyncio.run(write())
    assert [row["n"] for row in read_parts(open_store(tmp_path), parts)] == [1, 2]


def test_a_superseded_attempt_seals_nothing(tmp_path: Path) -> None:
    def superseded() -> None:
        raise Superseded("a newer attempt")

    async def write() -> None:
        one = journal(open_store(tmp_path), may_write=superseded)
        one.write({"warc_file": one.store_exchange(DATE, b"q", b"a").file})
        with pytest.raises(Superseded):
            await one.seal()

    asyncio.run(write())
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_dates_in_a_segments_name_make_file_names_that_hadoop_can_hold(tmp_path: Path) -> None:
    async def write() -> list[str]:
        one = Journal(open_store(tmp_path), "manual__2026-11-30T00:00:00+00:00.1of1", 0, 1, info={})
        one.store_exchange(DATE, b"q", b"a")
        await one.seal()
        return one.warc_files

    (name,) = asyncio.run(write())
    assert ":" not in name
    assert "+" not in name


# --- epochs


def test_each_attempt_gets_a_number_of_its_own(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    taken = [epoch.take(store, 3, DATE) for _ in range(3)]
    assert [one.number for one in taken] == [1, 2, 3]
    assert taken[0].predecessor is None
    assert taken[2].predecessor is not None
    assert taken[2].predecessor["pid"] == os.getpid()
    taken[2].check()
    for older in taken[:2]:
        with pytest.raises(Superseded):
            older.check()
    assert epoch.take(store, 4, DATE).number == 1


def taken_by_child(folder: Path, linger_s: float = 0.0) -> subprocess.Popen[bytes]:
    """A process that takes an epoch of task 3 and then stays for a while."""
    code = (
        f"import time; from spindle.store import open_store; from spindle.fetcher import epoch\n"
        f"epoch.take(open_store({str(folder)!r}), 3, {DATE!r}); print(flush=True); time.sleep({linger_s})"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    return child


def test_a_predecessor_is_dead_when_that_is_proven(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    child = taken_by_child(tmp_path, linger_s=30)
    try:
        successor = epoch.take(store, 3, DATE)
        assert not successor.predecessor_is_dead, "its process runs"
    finally:
        child.kill()
        child.wait()
    assert successor.predecessor_is_dead, "its process is gone from this machine"


@pytest.mark.parametrize("change", ["machine", "began"])
def test_another_machine_proves_nothing_and_a_pid_given_again_is_another_process(tmp_path: Path, change: str) -> None:
    store = open_store(tmp_path)
    child = taken_by_child(tmp_path, linger_s=30)
    try:
        name = "journal/00003.epoch-001"
        store.put(name, json.dumps({**json.loads(store.get(name)), change: "other"}).encode())
        assert epoch.take(store, 3, DATE).predecessor_is_dead is (change == "began")
    finally:
        child.kill()
        child.wait()


def test_a_predecessor_that_said_so_is_dead(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    first = epoch.take(store, 3, DATE)
    assert not epoch.take(store, 3, DATE).predecessor_is_dead, "this very process, and it has not said that it ended"
    second = epoch.take(store, 3, DATE)
    epoch.Epoch(store, 3, 2, None).release()
    assert second.predecessor_is_dead
    assert first.number == 1


# --- take-over within a process


def attempt(site: Site, root: Path, pages: list[str], settings: Any, **around: Any) -> dict[str, Any]:
    listing = Listing(listing_rows(pages))
    return asyncio.run(
        fetch_task(listing, settings, open_store(root), segment="t.1of1", task=0, around=Around(**around))
    )


def test_a_finished_task_is_read_and_not_fetched_again(site: Site, tmp_path: Path) -> None:
    site.page("/a", "x")
    first = attempt(site, tmp_path, [site.url("/a")], site.settings())
    before = len(site.requests)
    assert attempt(site, tmp_path, [site.url("/a"), site.url("/b")], site.settings()) == first
    assert len(site.requests) == before


def test_a_successor_waits_while_its_predecessor_may_live(site: Site, tmp_path: Path) -> None:
    """One seal interval plus one deadline; then the predecessor has found out, or has no request open any more."""
    epoch.take(open_store(tmp_path), 0, DATE)
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    attempt(site, tmp_path, [site.url("/a")], site.settings(), sleep=sleep)
    limits = site.settings().fetch
    assert sum(slept) == limits.seal_interval_s + limits.total_timeout_s
    assert len(site.paths()) == 1


def test_a_successor_leaves_every_host_alone_for_its_delay(site: Site, tmp_path: Path) -> None:
    """The dead attempt may just have touched any host of the task."""
    store = open_store(tmp_path)
    epoch.take(store, 0, DATE).release()
    began = time.monotonic()
    pages = [site.url("/a", f"h{n}.test") for n in range(3)]
    attempt(site, tmp_path, pages, site.settings({"politeness": {"min_delay_s": 0.4}}))
    assert min(request.started for request in site.requests) - began >= 0.4


def test_what_the_journal_knows_is_taken_over(site: Site, tmp_path: Path) -> None:
    """Rows are not fetched again, robots.txt is not asked again, redirects are followed to their end, state holds."""
    site.robots("User-agent: *\nCrawl-delay: 0.3\nDisallow: /private\n")
    site.redirect("/r", "/target")
    site.page("/a", "x")
    site.page("/target", "x")
    first = run(site, [site.url(path) for path in ("/a", "/r")], root=tmp_path)
    store = open_store(tmp_path)
    kept = [row for row in first.rows if row.get("hop") != 1]  # as if it had died before the hop
    store.delete("journal/00000.done")
    (part,) = first.manifest["parts"]
    store.put(part, ("\n".join(json.dumps(row) for row in kept) + "\n").encode())
    site.requests.clear()
    pages = [site.url(path) for path in ("/a", "/r", "/b", "/private/x")]
    found = run(site, pages, root=tmp_path)
    assert site.paths() == ["/target", "/b"]
    assert site.seen("/robots.txt") == []
    assert found.outcomes == dict(zip(pages, ("ok", "redirect", "not_found", "denied"), strict=True))
    assert found.row(site.url("/target"))["hop"] == 1
    assert min(site.gaps("h.test")) >= 0.3
    assert found.manifest["epoch"] == 2
    assert found.manifest["counts"]["ok"] == 1


def test_a_zombie_finds_out_and_stops(site: Site, tmp_path: Path) -> None:
    """Executor declared lost, old driver still alive: the older attempt writes nothing more, the newer one all."""
    pages = [site.url(f"/{n}") for n in range(60)]
    layers = {"politeness": {"min_delay_s": 0.05}}, {"fetch": {"seal_interval_s": 0.2, "total_timeout_s": 1.0}}
    settings = site.settings(*layers)
    store = open_store(tmp_path)

    async def fetch() -> dict[str, Any]:
        return await fetch_task(Listing(listing_rows(pages)), settings, store, segment="t.1of1", task=0)

    async def both() -> list[Any]:
        old = asyncio.create_task(fetch())
        await asyncio.sleep(0.7)
        return await asyncio.gather(old, fetch(), return_exceptions=True)

    zombie, made = asyncio.run(both())
    assert isinstance(zombie, Superseded)
    assert zombie.exit_code == 3
    rows = list(read_parts(store, made["parts"]))
    assert Counter(row["url"] for row in rows if row["type"] == "fetch") == Counter(pages)
    assert {row["epoch"] for row in rows} == {1, 2}
    assert min(site.gaps("h.test")) >= 0.05


def test_a_task_that_was_stopped_asks_whose_it_is_before_it_sends_again(site: Site, tmp_path: Path) -> None:
    """A machine that slept: what came due meanwhile is not sent before the epoch is checked."""
    pages = [site.url(f"/{n}") for n in range(60)]
    layers = {"politeness": {"min_delay_s": 0.05}}, {"fetch": {"seal_interval_s": 1.0}}
    store = open_store(tmp_path)
    asleep = [0.0]
    clock = steady_clock()

    async def fetch() -> Any:
        around = Around(clock=lambda: clock() + asleep[0])
        work = fetch_task(
            Listing(listing_rows(pages)), site.settings(*layers), store, segment="t.1of1", task=0, around=around
        )
        task = asyncio.create_task(work)
        await asyncio.sleep(0.7)
        epoch.take(store, 0, DATE)
        asleep[0] = 1000.0
        before = len(site.requests)
        await asyncio.gather(task, return_exceptions=True)
        return task.exception(), len(site.requests) - before

    error, sent = asyncio.run(fetch())
    assert isinstance(error, Superseded)
    assert sent <= 1, "one may have been on its way"


def test_parts_that_a_zombie_seals_too_late_do_not_count(site: Site, tmp_path: Path) -> None:
    """It passed its check, slept, and wrote after the successor had looked: the manifest does not name that part."""
    site.page("/a", "x")
    made = attempt(site, tmp_path, [site.url("/a")], site.settings())
    store = open_store(tmp_path)
    store.put("journal/00000-001-00099.jsonl", b'{"type":"fetch","url":"late"}\n')
    assert "late" not in {row.get("url") for row in read_parts(store, made["parts"])}
    assert manifest(store, 0) == made


def test_a_store_that_fails_ends_the_task_with_a_clear_error(site: Site, tmp_path: Path) -> None:
    """Disk full at a seal: no manifest, no half part, and the next attempt goes on."""

    class Full(LocalStore):
        full = True

        def put(self, name: str, content: bytes, *, durable: bool = True) -> None:
            if self.full and name.endswith(".jsonl"):
                raise WarehouseError(f"{name}: the disk is full")
            super().put(name, content, durable=durable)

    site.page("/a", "x")
    store = Full(str(tmp_path))
    listing = Listing(listing_rows([site.url("/a")]))
    with pytest.raises(WarehouseError, match="disk is full"):
        asyncio.run(fetch_task(listing, site.settings(), store, segment="t.1of1", task=0))
    assert manifest(store, 0) is None
    store.full = False
    made = asyncio.run(fetch_task(listing, site.settings(), store, segment="t.1of1", task=0))
    assert made["counts"]["ok"] == 1


def test_a_task_in_s3(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same promises over the other store: parts, records by range, a finished task read back."""
    site.page("/a", "x" * 100)
    site.redirect("/r", "/a2")
    pages = [site.url(path) for path in ("/a", "/r", "/none")]
    with FakeS3("bucket") as s3:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
        for name, value in (("ACCESS_KEY_ID", "x"), ("SECRET_ACCESS_KEY", "y"), ("DEFAULT_REGION", "us-east-1")):
            monkeypatch.setenv(f"AWS_{name}", value)
        store_s3._clients.clear()
        made = run_task(Listing(listing_rows(pages)), site.settings(), "s3a://bucket/wh", "t.1of1", 0)
        store = open_store("s3://bucket/wh/segment-files/t.1of1")
        rows = [row for row in read_parts(store, made["parts"]) if row["type"] == "fetch"]
        assert sorted(row["outcome"] for row in rows) == ["not_found", "not_found", "ok", "redirect"]
        for row in rows:
            record = warc.read_record(store.get_range(row["warc_file"], row["warc_offset"], row["warc_length"]))
            assert record.fields["warc-target-uri"] == row["url"]
        before = len(site.requests)
        assert run_task(Listing(listing_rows(pages)), site.settings(), "s3a://bucket/wh", "t.1of1", 0) == made
        assert len(site.requests) == before
        store_s3._clients.clear()


# --- killed for good

CHILD = """
import json, os, sys
from spindle import config
from spindle.fetcher import Listing, run_task, visit
told = json.load(sys.stdin)
real = visit.judge
def judge(answer, page, limits):
    if page.url == told.get("poison"):
        {poison}
    return real(answer, page, limits)
visit.judge = judge
settings = config.from_json(told["settings"])
made = run_task(Listing(told["rows"]), settings, told["root"], "t.1of1", 0)
"""


def start(site: Site, root: Path, pages: list[str], settings: Any, poison: str = "", how: str = "pass") -> Any:
    told = {"settings": settings.to_json(), "rows": listing_rows(pages), "root": str(root), "poison": poison}
    child = subprocess.Popen([sys.executable, "-c", CHILD.replace("{poison}", how)], stdin=subprocess.PIPE, text=True)
    assert child.stdin is not None
    with child.stdin:
        json.dump(told, child.stdin)
    return child


def result(root: Path) -> Fetched:
    folder = root / "segment-files" / "t.1of1"
    store = open_store(folder)
    made = manifest(store, 0)
    assert made is not None
    return Fetched(made, list(read_parts(store, made["parts"])), folder)


def busy_site(site: Site) -> list[str]:
    """Pages, redirects, denials and errors on several hosts; what one clean run makes of them is known."""
    site.robots("User-agent: *\nDisallow: /private\n")
    for n in range(12):
        site.page(f"/{n}", f"page {n}")
    site.redirect("/r", "/target")
    site.page("/target", "here")
    site.page("/gone", "x", status=410)
    paths = [*(f"/{n}" for n in range(12)), "/r", "/gone", "/none", "/private/x"]
    return [site.url(path, host) for path in paths for host in ("h.test", "g.test", "f.test")]


def essence(found: Fetched) -> set[tuple[Any, ...]]:
    return {
        (row["url"], row["hop"], row["via_key"], row["outcome"], row["http_status"], row["content_hash"])
        for row in found.pages
    }


def test_killed_at_any_moment_and_run_again_it_yields_what_one_clean_run_yields(site: Site, tmp_path: Path) -> None:
    """Ten kills at random moments, one run to the end: one row per URL, no gap violated, every record opens."""
    pages = busy_site(site)
    layers = {"politeness": {"min_delay_s": 0.1}}, {"fetch": {"seal_interval_s": 0.2, "total_timeout_s": 2.0}}
    settings = site.settings(*layers)
    clean = start(site, tmp_path / "clean", pages, settings)
    assert clean.wait(60) == 0
    site.requests.clear()
    chance = random.Random(5)
    for _ in range(10):
        child = start(site, tmp_path / "killed", pages, settings)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(chance.uniform(0.5, 1.6))
        child.send_signal(signal.SIGKILL)
        child.wait()
    last = start(site, tmp_path / "killed", pages, settings)
    assert last.wait(60) == 0
    found, expected = result(tmp_path / "killed"), result(tmp_path / "clean")
    assert essence(found) == essence(expected)
    assert Counter(row["url"] for row in found.pages if row["hop"] == 0) == Counter(pages)
    for host in ("h.test", "g.test", "f.test"):
        assert min(site.gaps(host)) >= 0.1
    for row in found.pages:
        if row["warc_file"]:
            assert found.record(row).fields["warc-target-uri"] == row["url"]
    assert [path.name for path in found.folder.rglob(".*")] == [], "what the killed left unfinished is cleared away"


@pytest.mark.parametrize(
    ("how", "runs"),
    [
        ("os._exit(9)", 3),
        ("raise SystemExit(3)", 1),
        ("raise MemoryError", 1),
        ("import ctypes; ctypes.string_at(1)", 3),
    ],
    ids=["exit", "SystemExit", "MemoryError", "segmentation fault"],
)
def test_one_poison_url_costs_one_row(site: Site, tmp_path: Path, how: str, runs: int) -> None:
    """spark#33273: what kills its worker twice is set aside, and the other 99 rows arrive; the rest costs one row."""
    for n in range(100):
        site.page(f"/{n}", f"page {n}")
    pages = [site.url(f"/{n}", f"h{n % 10}.test") for n in range(100)]
    settings = site.settings({"fetch": {"seal_interval_s": 0.2}, "politeness": {"min_delay_s": 0.05}})
    codes = [start(site, tmp_path, pages, settings, pages[60], how).wait(60) for _ in range(runs)]
    assert [code == 0 for code in codes] == [False] * (runs - 1) + [True]
    found = result(tmp_path)
    assert Counter(found.outcomes.values()) == {"ok": 99, "protocol_error": 1}
    assert found.outcomes[pages[60]] == "protocol_error"
    assert len(site.seen("/60")) == min(runs, 2)


def test_a_stuck_worker_is_ended_by_its_watchdog(site: Site, tmp_path: Path) -> None:
    """spark#49843: a thread that blocks for ever held the job for ever. The rows sealed before survive."""
    for n in range(20):
        site.page(f"/{n}", f"page {n}")
    pages = [site.url(f"/{n}") for n in range(20)]
    settings = site.settings({"fetch": {"seal_interval_s": 0.1, "stall_s": 2.0}, "politeness": {"min_delay_s": 0.05}})
    child = start(site, tmp_path, pages, settings, pages[15], "import time; time.sleep(3600)")
    assert child.wait(60) == 75
    store = open_store(tmp_path / "segment-files" / "t.1of1")
    assert manifest(store, 0) is None
    sealed = [row["url"] for row in read_parts(store, sealed_parts(store, 0)) if row["type"] == "fetch"]
    assert len(sealed) >= 5
    assert start(site, tmp_path, pages, settings).wait(60) == 0
    assert set(result(tmp_path).outcomes.values()) == {"ok"}


def test_an_old_process_that_lives_on_stops_when_a_new_one_takes_over(site: Site, tmp_path: Path) -> None:
    """Two processes: the first is stopped (SIGSTOP), superseded, and wakes up again."""
    pages = [site.url(f"/{n}") for n in range(40)]
    layers = {"politeness": {"min_delay_s": 0.1}}, {"fetch": {"seal_interval_s": 0.2, "total_timeout_s": 0.5}}
    settings = site.settings(*layers)
    old = start(site, tmp_path, pages, settings)
    until = time.monotonic() + 20
    while len(site.requests) < 6 and time.monotonic() < until:
        time.sleep(0.02)
    old.send_signal(signal.SIGSTOP)
    try:
        new = start(site, tmp_path, pages, settings)
        assert new.wait(60) == 0
    finally:
        old.send_signal(signal.SIGCONT)
    before = len(site.requests)
    assert old.wait(30) != 0
    assert len(site.requests) <= before + 4, "it may send until its next seal, and no longer"
    found = result(tmp_path)
    assert Counter(row["url"] for row in found.pages) == Counter(pages)


def test_commands_reach_a_running_fetch_within_a_minute_and_stop_drains_it(site: Site, tmp_path: Path) -> None:
    """Another process fetches, with the shipped intervals; what counts is the server's log. Unheard, the blocked host
    would be asked for two minutes."""
    pages = [site.url(f"/{n}", host) for n in range(600) for host in ("h.test", "g.test")]
    store = open_store(tmp_path)
    store.put("spindle.json", json.dumps({"format_version": FORMAT_VERSION, "buckets": 4}).encode())
    Ledger(store, 4).open(SegmentId.parse("t.1of1"), {}, 3600.0, time.time)
    child = start(site, tmp_path, pages, site.settings({"politeness": {"min_delay_s": 0.2}}))
    wait_until(lambda: len(site.paths("h.test")) > 3)
    assert cli.main(["hosts", "block", "h.test", "--warehouse", str(tmp_path)]) == 0
    blocked_at, since = time.monotonic(), len(site.paths("g.test"))
    wait_until(lambda: time.monotonic() > site.seen(host="h.test")[-1].started + 3)
    assert site.seen(host="h.test")[-1].started < blocked_at + 60
    assert len(site.paths("g.test")) > since, "the other host goes on"
    assert cli.main(["stop", "--warehouse", str(tmp_path)]) == 0
    stopped_at = time.monotonic()
    assert child.wait(60) == 0
    assert site.seen(host="g.test")[-1].started < stopped_at + 60
    found = result(tmp_path)
    assert found.manifest["stopped"] == "stop"
    assert Counter(row["url"] for row in found.pages) == Counter(pages)
    assert Counter(row["outcome"] for row in found.pages)["not_found"] == len(site.paths())
    assert {row["error"] for row in found.pages if row["outcome"] == "not_reached"} == {"blocked", "stop"}


def wait_until(done: Callable[[], bool], seconds: float = 90.0) -> None:
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until, "it never came to that"
        time.sleep(0.05)


def test_records_of_a_killed_attempt_are_whole_or_absent(site: Site, tmp_path: Path) -> None:
    """warcio#138: a WARC file has its name only when it is complete, so any reader reads every named file."""
    pages = busy_site(site)
    settings = site.settings({"politeness": {"min_delay_s": 0.1}}, {"fetch": {"seal_interval_s": 0.2}})
    child = start(site, tmp_path, pages, settings)
    files, until = [], time.monotonic() + 30
    while len(files) < 2 and time.monotonic() < until:
        time.sleep(0.05)
        files = list((tmp_path / "segment-files/t.1of1/warc").glob("t.*"))
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert len(files) >= 2
    for file in files:
        kinds = [record.rec_type for record in ArchiveIterator(io.BytesIO(file.read_bytes()), check_digests="raise")]
        assert kinds[0] == "warcinfo"
        assert kinds.count("response") == kinds.count("request") > 0
