"""update: one row a URL and a host, what a fetch or a link may change in it, and that a second run changes nothing."""

from __future__ import annotations

import datetime
import hashlib
import json
import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rows import (
    NOW,
    RATES,
    Row,
    add,
    ago,
    contents,
    fetched_row,
    host_row,
    link_row,
    listed_row,
    new_warehouse,
    open_turn,
    settings_of,
    url_row,
    utc,
)
from spindle import recrawl, runner
from spindle.clusters import Copy
from spindle.copies import Copies
from spindle.inlinks import estimate
from spindle.jobs import dedup, fetch, generate, parse, update
from spindle.ledger import Ledger
from spindle.nearpairs import Layout
from spindle.segments import SegmentId, State
from spindle.tables import Warehouse
from spindle.urls import url_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)  # a busy machine is slow at Spark; nothing here asserts a time

SEGMENT = "a.1of1"
DAY = 86400
TWICE, OWNED, NEW, TARGET, CHANGED, SHOWN = (f"{n}" * 64 for n in range(1, 7))
HELD = {"content_hash": "old", "warc_file": "segment-files/z/warc/z.warc.gz", "warc_offset": 7, "warc_length": 9}
PLACE = {"warc_file": "segment-files/a.1of1/warc/a.warc.gz", "warc_offset": 1, "warc_length": 2}
VISITED = {"status": "fetched", "fetch_count": 4, "change_count": 1, "last_fetch": ago(DAY), "last_segment": "z.1of1"}


def held(url: str) -> str:
    """The hash of what a URL had before."""
    return hashlib.sha256(url.encode()).hexdigest()


#: Rows of `urls` before the turn.
BEFORE: dict[str, dict[str, Any]] = {
    "http://a.test/": {"depth": 3, "seed_priority": 0.5, "metadata": {"k": "v"}},
    "http://a.test/late": VISITED | HELD | {"last_fetch": ago(5), "last_segment": "y.1of1", "depth": 9},
    "http://a.test/left": {"depth": 2},
    "http://a.test/throttled": VISITED | HELD,
    "http://a.test/denied": {},
    "http://a.test/same": VISITED | HELD | {"etag": '"1"', "hinted_at": ago(500)},
    "http://a.test/moved": {"depth": 2},
    "http://a.test/moved-too": {"depth": 2},
    "http://a.test/known-target": VISITED | HELD | {"depth": 6},
    "http://a.test/copy1": {"discovered_at": ago(100)},
    "http://a.test/copy2": {"discovered_at": ago(200)},
    "http://a.test/copy-of-old": {"discovered_at": ago(999999)},
    "http://a.test/owner": VISITED | HELD | {"content_hash": OWNED, "discovered_at": ago(50)},
    "http://a.test/was-preferred": VISITED | HELD | {"content_hash": SHOWN},
    "http://a.test/it": {},
    "http://a.test/all-at-once": VISITED | HELD | {"depth": 9},
    "http://down.test/": {},
    "http://known.test/far": VISITED | HELD | {"depth": 5},
    "http://known.test/claimed": VISITED | HELD | {"depth": 1, "next_fetch": ago(-9 * DAY)},
    "http://known.test/claimed-older": VISITED | HELD | {"depth": 1, "next_fetch": ago(-9 * DAY)},
    "http://liar.test/claimed": VISITED | HELD | {"depth": 1, "next_fetch": ago(-9 * DAY)},
    "http://known.test/near": VISITED | HELD | {"depth": 1},
}
UNTOUCHED = (
    *("http://a.test/left", "http://a.test/owner", "http://known.test/near"),
    *("http://known.test/claimed-older", "http://liar.test/claimed"),
)
TOUCHED_ONLY = ("known.test/far", "known.test/claimed", "a.test/known-target", "a.test/was-preferred")
LISTED = [url for url in BEFORE if url not in UNTOUCHED[1:] and url.removeprefix("http://") not in TOUCHED_ONLY]
#: outcome -> what else the fetch found, of each listed URL.
FETCHES: dict[str, tuple[str, dict[str, Any]]] = {
    "http://a.test/": ("ok", {"http_status": 200, "content_hash": NEW, "etag": '"2"', **PLACE, "ip": "192.0.2.1"}),
    "http://a.test/late": ("ok", {"http_status": 200, "content_hash": "7" * 64, **PLACE}),
    "http://a.test/left": ("not_reached", {"started_at": None, "ended_at": None, "duration_ms": None}),
    "http://a.test/throttled": ("throttled", {"http_status": 429, "retry_after_s": 7200.0, "backoff_level": 1,
                                              "next_ok_at": ago(-100), "started_at": ago(30)}),
    "http://a.test/denied": ("denied", {"started_at": None, "ended_at": None, "duration_ms": None}),
    "http://a.test/same": ("not_modified", {"http_status": 304, "content_hash": held("http://a.test/same"),
                                                   "etag": '"3"'}),
    "http://a.test/moved": ("redirect", {"http_status": 301, "redirect_to": "http://a.test/target"}),
    "http://a.test/moved-too": ("redirect", {"http_status": 302, "redirect_to": "http://a.test/known-target"}),
    "http://a.test/copy1": ("ok", {"http_status": 200, "content_hash": TWICE, **PLACE}),
    "http://a.test/copy2": ("ok", {"http_status": 200, "content_hash": TWICE, **PLACE}),
    "http://a.test/copy-of-old": ("ok", {"http_status": 200, "content_hash": OWNED, **PLACE}),
    "http://a.test/it": ("ok", {"http_status": 200, "content_hash": SHOWN, **PLACE}),
    "http://a.test/all-at-once": ("ok", {"http_status": 200, "content_hash": "8" * 64, **PLACE}),
    "http://down.test/": ("timeout", {"http_status": None}),
}  # fmt: skip
HOPS = {
    "http://a.test/target": ("http://a.test/moved", {"content_hash": TARGET}),
    "http://a.test/known-target": ("http://a.test/moved-too", {"content_hash": CHANGED}),
    "http://a.test/all-at-once": ("http://a.test/moved", {"content_hash": "9" * 64}),
}
#: source, target, depth, further facts.
LINKS: list[tuple[str, str, int, dict[str, Any]]] = [
    ("http://b.test/", "http://known.test/far", 3, {}),
    ("http://b.test/again", "http://known.test/far", 2, {}),
    ("http://c.test/", "http://known.test/far", 4, {}),
    ("http://known.test/far", "http://known.test/near", 6, {}),
    ("http://b.test/", "http://a.test/", 1, {}),
    ("http://b.test/", "http://a.test/late", 4, {}),
    ("http://a.test/", "http://a.test/all-at-once", 7, {}),
    ("http://b.test/", "http://a.test/all-at-once", 5, {}),
    ("http://c.test/", "http://a.test/all-at-once", 6, {}),
    ("http://a.test/", "http://www.new.co.uk/page", 4, {}),
    ("http://b.test/", "http://www.new.co.uk/page", 2, {}),
    ("http://known.test/map.xml", "http://known.test/claimed", 1, {"rel": "sitemap", "lastmod": ago(60).isoformat()}),
    ("http://known.test/map.xml", "http://known.test/claimed-older", 1, {"rel": "sitemap", "lastmod": "2026-10"}),
    ("http://liar.test/map.xml", "http://liar.test/claimed", 1, {"rel": "sitemap", "lastmod": ago(60).isoformat()}),
    ("http://b.test/robots.txt", "http://b.test/map.xml", 0, {"rel": "sitemap", "dst_kind": "sitemap"}),
    ("http://a.test/go", "http://away.test/", 1, {"rel": "redirect", "seed_priority": 0.75}),
]


def laid_out(spark: SparkSession, root: Path, **sections: Any) -> tuple[Warehouse, runner.Turn]:
    """A warehouse in which the segment is parsed."""
    warehouse = new_warehouse(spark, root)
    rows = {url: before(url) for url in BEFORE}
    add(warehouse, "urls", list(rows.values()))
    known = {"outcomes": {"ok": 3, "gone": 1}, "day": NOW.date(), "fetched_today": 5, "quality": 1.0}
    hosts = [host_row("a.test", mean_fetch_ms=300.0, crawl_delay_s=4.0, limit_delay_s=9.0, **known)]
    hosts += [host_row("down.test", failure_streak=2, outcomes={"timeout": 2}), host_row("known.test", quality=0.5)]
    hosts += [host_row("liar.test", hints_right=1, hints_wrong=2)]
    add(warehouse, "hosts", hosts)
    listed = {url: listed_row(rows[url], SEGMENT, number) for number, url in enumerate(LISTED)}
    listed["http://a.test/late"]["last_fetch"] = ago(DAY)  # somebody else has fetched it since it was listed
    add(warehouse, "fetchlist", list(listed.values()))
    fetches = [fetched_row(rows[url], SEGMENT, outcome, **facts) for url, (outcome, facts) in FETCHES.items()]
    for url, (via, facts) in HOPS.items():
        hop = {"hop": 1, "via_key": url_key(via), "depth": 2, "http_status": 200, "started_at": ago(50), **PLACE}
        fetches.append(fetched_row(rows.get(url) or url_row(url), SEGMENT, "ok", **hop | facts))
    add(warehouse, "fetches", fetches)
    add(warehouse, "links", [link_row(src, dst, SEGMENT, depth, **more) for src, dst, depth, more in LINKS])
    expire(warehouse, fetched_row(rows["http://a.test/left"], "x.1of1", "ok", next_ok_at=ago(-50), ip="192.0.2.9"))
    turn = open_turn(warehouse, SEGMENT, settings_of(**sections))
    for state in (State.GENERATED, State.FETCHED, State.PARSED):
        turn.entry = warehouse.ledger.move(SEGMENT, state, 1.0)
    known_to_dedup(warehouse, [rows["http://a.test/owner"], rows["http://a.test/was-preferred"]])
    dedup.run(warehouse, settings_of())
    return warehouse, turn


def known_to_dedup(warehouse: Warehouse, rows: list[Row]) -> None:
    """A run of dedup that has seen the content of some rows of `urls`."""
    copies = Copies.open(warehouse.uri, Layout(3, 4))
    names = ("url_key", "bucket", "url", "discovered_at", "content_hash", "simhash")
    pages = [Copy(**{name: row[name] for name in names}, canonical_key=None, live=True) for row in rows]
    copies.note(pages, {}, 1)
    copies.tell(pages, 1)
    copies.finish([], 1)


def expire(warehouse: Warehouse, fetch: Row) -> None:
    """A segment whose fetch was under way when its lease ran out: there is a journal, and nothing else."""
    turn = open_turn(warehouse, fetch["segment"], settings_of())
    record = {name: value for name, value in fetch.items() if value is not None} | {
        "type": "fetch",
        "host": "left.test",
    }
    line = json.dumps(record, default=lambda at: at.isoformat())
    warehouse.store.put(f"{turn.segment.folder}/journal/00000-0001-00001.jsonl", line.encode())
    warehouse.ledger.move(fetch["segment"], State.EXPIRED, 1.0)


def test_a_parsed_segment_comes_home(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse, turn = laid_out(spark, tmp_path / "w")
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "move", killed)  # all is written, but not that it is
        with pytest.raises(Killed):
            update.run(turn)
    tables = ("urls", "hosts", "events", "seen")
    once = {table: contents(warehouse, table) for table in tables}
    found = [row.asDict(recursive=True) for row in warehouse.read("urls").collect()]
    after = {row["url"]: {name: utc(value) for name, value in row.items()} for row in found}
    assert len(found) == len(after), "one row a URL"
    check_urls(after)
    check_hosts({row.host: row.asDict() for row in warehouse.read("hosts").collect()})
    check_events([row.asDict() for row in warehouse.read("events").orderBy("sequence").collect()])
    last = warehouse.delta("urls").history(1).head()
    assert last is not None and "IN(0,1,2,3)" in "".join(last.operationParameters["predicate"].split()), (
        "the buckets stand in the condition, so that other partitions are not read (delta-io/delta#668)"
    )
    assert last.userMetadata == SEGMENT

    counts = update.run(turn)
    assert {table: contents(warehouse, table) for table in tables} == once, "a second run changes nothing"
    assert set(counts.values()) == {0} and {"new_urls", "changed_urls"} <= set(counts)
    entry = warehouse.ledger.current(SEGMENT)
    assert entry is not None and entry.state is State.UPDATED
    turn.entry = entry
    assert update.run(turn) == {}, "nor does a third, which has nothing to do"


@pytest.mark.heavy  # half a minute
def test_a_budget_of_visits_sets_the_intervals(spark: SparkSession, tmp_path: Path) -> None:
    """What a visit has to gain is reckoned from all pages of the range, and noted with them."""
    rules = {"policy": "budget", "visits_per_day": 3.0}
    warehouse, turn = laid_out(spark, tmp_path / "w", recrawl=rules)
    update.run(turn)
    noted = warehouse.values("seen", {}, ["price", "priced_at"])
    [price] = {row["price"] for row in noted}
    assert price > 0 and {row["priced_at"] for row in noted} == {NOW}
    known = [row for row in BEFORE.values() if row.get("status") == "fetched"]
    unknown = recrawl.PageClass(math.log(2) / DAY, 1.0, len(known))
    assert price == pytest.approx(recrawl.price_for([unknown], 3 / DAY, turn.settings.recrawl), rel=0.1), "one bar"
    after = {row.url: row.asDict() for row in warehouse.read("urls").collect()}
    same = after["http://a.test/same"]
    seen = recrawl.Seen(0, 0, DAY - 60)
    assert recrawl.Seen(*(same[name] for name in RATES)) == seen
    assert same["fetch_interval_s"] == recrawl.planned(seen, DAY, price, turn.settings.recrawl)
    assert utc(same["next_fetch"]) == ago(60) + datetime.timedelta(seconds=same["fetch_interval_s"])


def test_a_turn_with_nothing_due_goes_round(spark: SparkSession, tmp_path: Path) -> None:
    warehouse, segment = new_warehouse(spark, tmp_path / "w"), SegmentId.parse("e.1of1")
    turn = open_turn(warehouse, str(segment), settings_of())
    assert runner.measured(turn, "generate", generate.run)["listed"] == 0
    for name, job in {"fetch": fetch.run, "parse": parse.run, "update": update.run}.items():
        runner.turn_of(warehouse, segment, name, job)
    entry = warehouse.ledger.current(str(segment))
    assert entry is not None and entry.state is State.UPDATED
    assert [row["type"] for row in warehouse.values("events", {}, ["type"])] == ["segment.closed"]
    assert all(warehouse.values(table, {}, ["segment"]) == [] for table in ("fetchlist", "fetches", "pages", "links"))


class Killed(RuntimeError):
    """Stands for the end of the process."""


def killed(*_: Any, **__: Any) -> None:
    raise Killed


def before(url: str) -> Row:
    """The row of a URL before the turn; content that was held is different for each."""
    row = url_row(url, **BEFORE[url])
    return row | {"content_hash": held(url)} if row["content_hash"] == "old" else row


def changed(after: dict[str, Row], url: str) -> Row:
    """The columns of a row that differ from what was there before."""
    known = before(url)
    return {name: value for name, value in after[url].items() if value != known[name]}


def check_urls(after: dict[str, Row]) -> None:
    new = {"http://a.test/target", "http://www.new.co.uk/page", "http://b.test/map.xml", "http://away.test/"}
    assert set(after) == set(BEFORE) | new
    for url in UNTOUCHED:
        assert changed(after, url) == {}, url

    far = changed(after, "http://known.test/far")
    assert set(far) == {"depth", "inlink_bits", "inlinks", "score", "priority"}, "a link changes nothing else"
    assert (far["depth"], far["inlinks"], far["inlink_bits"].bit_count()) == (2, 2, 2), "two hosts, nearest two links"

    claimed = changed(after, "http://known.test/claimed")
    assert (claimed["next_fetch"], claimed["hinted_at"]) == (NOW, NOW), "a sitemap says that it changed after our visit"
    assert set(claimed) <= {"next_fetch", "hinted_at", "score", "priority"}

    first = after["http://a.test/"]
    wanted = {"status": "fetched", "content_hash": NEW, "etag": '"2"', "fetch_count": 1, "depth": 1, "inlinks": 1}
    wanted |= {"last_fetch": ago(60), "next_fetch": ago(60 - DAY), "last_segment": SEGMENT, "record_date": ago(60)}
    wanted |= {**PLACE, "metadata": {"k": "v"}, "seed_priority": 0.5, "discovered_at": ago(3600)}
    assert {name: first[name] for name in wanted} == wanted
    assert set(changed(after, "http://a.test/late")) == {"depth", "inlink_bits", "inlinks", "score", "priority"}, (
        "an older event is not laid over a newer, the link is"
    )
    throttled = changed(after, "http://a.test/throttled")
    assert {name: throttled[name] for name in ("next_fetch", "last_segment")} == {
        "next_fetch": ago(30 - 7200),
        "last_segment": SEGMENT,
    }
    assert not set(throttled) & {"status", "failure_count", "failure_streak", "content_hash", "last_fetch"}
    assert after["http://a.test/denied"]["status"] == "denied" and after["http://a.test/denied"]["last_fetch"] == NOW
    same = changed(after, "http://a.test/same")
    assert (
        same["unchanged_streak"] == 1
        and same["etag"] == '"3"'
        and same["hinted_at"] is None
        and "content_hash" not in same
    )
    assert (after["http://down.test/"]["status"], after["http://down.test/"]["failure_streak"]) == ("retry", 1)

    moved = after["http://a.test/moved"]
    assert (moved["status"], moved["redirect_to"]) == ("redirected", "http://a.test/target")
    target = after["http://a.test/target"]
    wanted = {"status": "fetched", "depth": 2, "domain": "a.test", "content_hash": TARGET, "fetch_count": 1}
    assert {name: target[name] for name in wanted} == wanted, "the hop's page has its own row"
    assert after["http://a.test/known-target"]["content_hash"] == CHANGED
    assert after["http://a.test/known-target"]["change_count"] == 2
    assert after["http://a.test/known-target"]["depth"] == 6, "a hop is no link"

    once = after["http://a.test/all-at-once"]
    wanted = {"fetch_count": 5, "change_count": 2, "content_hash": "9" * 64, "depth": 5, "inlinks": 2}
    assert {name: once[name] for name in wanted} == wanted, (
        "fetched, a redirect's target and linked three times in one turn: one row, its later fetch (delta-io/delta#218)"
    )

    page = after["http://www.new.co.uk/page"]
    wanted = {"status": "new", "depth": 2, "domain": "new.co.uk", "fetch_count": 0, "inlinks": 2, "last_segment": None}
    wanted |= {"discovered_at": NOW, "next_fetch": NOW, "kind": "page", "host": "www.new.co.uk"}
    assert {name: page[name] for name in wanted} == wanted
    assert after["http://b.test/map.xml"]["kind"] == "sitemap" and after["http://b.test/map.xml"]["inlinks"] == 0
    assert after["http://b.test/map.xml"]["fixed_interval_s"] == DAY, "a sitemap has an interval of its own"
    assert page["fixed_interval_s"] is None
    assert after["http://away.test/"]["seed_priority"] == 0.75
    assert all(row["inlinks"] == estimate(row["inlink_bits"]) for row in after.values())

    first, second = (after[f"http://a.test/copy{n}"] for n in (1, 2))
    assert (second["status"], second["duplicate_of"]) == ("fetched", None), "known longest: the preferred copy"
    assert (first["status"], first["duplicate_of"]) == ("duplicate", second["url_key"])
    assert second["next_fetch"] == ago(60 - DAY)
    assert first["next_fetch"] == ago(60 - 60 * DAY), "a copy is recrawled rarely"
    copy = after["http://a.test/copy-of-old"]
    assert (copy["status"], copy["duplicate_of"]) == ("duplicate", url_key("http://a.test/owner")), (
        "content that we held before has its original, however long the copy is known"
    )
    assert (after["http://a.test/it"]["status"], after["http://a.test/it"]["duplicate_of"]) == ("fetched", None)
    shown = changed(after, "http://a.test/was-preferred")
    assert shown.pop("next_fetch") == ago(DAY) + 60 * datetime.timedelta(days=1)
    assert {name: shown[name] for name in set(shown) - {"score", "priority"}} == {
        "status": "duplicate",
        "duplicate_of": url_key("http://a.test/was-preferred"),
    }, "the first copy names the cluster for good, but a shorter URL stands for it now"


def check_hosts(after: dict[str, Row]) -> None:
    assert set(after) == {"a.test", "down.test", "known.test", "left.test", "liar.test"}, (
        "hosts that nobody asked get no row"
    )
    left = after["left.test"]
    assert (left["outcomes"], left["fetched_today"], left["ip"]) == ({"ok": 1}, 1, "192.0.2.9"), "of an expired journal"
    assert utc(left["next_ok_at"]) == ago(-50)
    asked = Counter(outcome for outcome, _ in FETCHES.values() if outcome not in ("timeout", "not_reached"))
    asked["ok"] += len(HOPS)
    host = after["a.test"]
    assert host["outcomes"] == Counter({"ok": 3, "gone": 1}) + asked, "each fetch counts once, hops too"
    requests = sum(asked.values()) - asked["denied"]
    assert (host["day"], host["fetched_today"]) == (NOW.date(), 5 + requests), "no request was made for what is denied"
    assert host["quality"] == pytest.approx(0.5 + 0.5 * asked["ok"] / requests)
    assert host["mean_fetch_ms"] == pytest.approx(200.0)
    assert (host["state"], host["backoff_level"]) == ("backing_off", 1), "its last word was 429"
    assert utc(host["backoff_until"]) == utc(host["next_ok_at"]) == ago(-100)
    assert (host["ip"], host["crawl_delay_s"], host["limit_delay_s"]) == ("192.0.2.1", 4.0, 9.0)
    assert (host["hints_right"], host["hints_wrong"]) == (0, 1), "the page of which it said so had not changed"
    assert host["last_segment"] == SEGMENT
    down = after["down.test"]
    assert (down["state"], down["failure_streak"], down["outcomes"]) == ("dead", 3, {"timeout": 3})
    assert utc(down["backoff_until"]) > NOW
    assert after["known.test"]["last_segment"] is None


def check_events(found: list[Row]) -> None:
    pages = [url for url, (outcome, _) in FETCHES.items() if outcome == "ok"] + list(HOPS)
    pages.sort(key=url_key)
    assert [row["sequence"] for row in found] == list(range(1, len(pages) + 2))
    assert [row["url"] for row in found] == [*pages, None], "by key, then the close"
    assert [row["type"] for row in found] == ["page.fetched"] * len(pages) + ["segment.closed"]
    assert {row["segment"] for row in found} == {SEGMENT}
    assert {row["blob_key"] for row in found[:-1]} == {"segment-files/a.1of1/warc/a.warc.gz#1+2"}
    by_url = {row["url"]: row for row in found}
    assert by_url["http://a.test/"]["content_hash"] == NEW and by_url["http://a.test/"]["status"] == 200
