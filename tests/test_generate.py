"""generate: which due URLs are listed, and under which reason each of the others is counted."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rows import NOW, add, ago, contents, frame, host_row, new_warehouse, open_turn, settings_of, url_row, utc
from spindle import candidates, schema
from spindle.budgets import NO_LIMIT
from spindle.config import UNLIMITED
from spindle.errors import WarehouseError
from spindle.jobs import generate
from spindle.priority import (
    PriorityFacts,
    aged_level,
    aged_level_sql,
    aged_score,
    aged_score_sql,
    level,
    level_sql,
    score,
    score_sql,
)
from spindle.runner import Turn
from spindle.segments import Entry, SegmentId, State
from spindle.selector import cuts as cuts_of
from spindle.urls import bucket_of, policy_digest, psl_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)  # a busy machine is slow at Spark; nothing here asserts a time

DAY = 86400


def frame_turn(**sections: Any) -> Turn:
    """A turn for functions that take a frame and give one: no warehouse behind it."""
    warehouse: Any = None
    return Turn(warehouse, SegmentId("a"), settings_of(**sections), NOW, 7, None)


# --- the prioritiser's twins


def test_sql_twins_agree_to_the_last_bit(spark: SparkSession) -> None:
    rng, settings = random.Random(3), settings_of()
    shares = [None, 0.0, 1.0, -1.0, 2.0, float("nan")]
    rows = []
    for _ in range(3000):
        fetches = rng.choice([0, rng.randrange(50)])
        asked, quality = (rng.choice([*shares, rng.random(), rng.random()]) for _ in range(2))
        links = rng.choice([0, 1, 3, 7, 1023, 10**6, -4, rng.randrange(2000)])
        depth, changes = rng.choice([0, 1, 15, -2, rng.randrange(40)]), rng.choice([0, rng.randrange(fetches + 1)])
        stored, waited = rng.choice([0, 1, 5, 9, -3, 3]), rng.choice([-50, 0, 604799, 604800, rng.randrange(5443200)])
        rows.append((asked, links, depth, quality, changes, fetches, stored, waited))
    ddl = "seed_priority DOUBLE, inlinks INT, depth INT, quality DOUBLE, change_count INT, fetch_count INT"
    scored = spark.createDataFrame(rows, f"{ddl}, stored INT, waited LONG").selectExpr(
        "*", f"{score_sql(settings.priority)} AS score"
    )
    aging = ("waited", 604800, 5)
    found = scored.selectExpr(
        "*",
        f"{level_sql('score', 5)} AS level",
        f"{aged_level_sql('stored', *aging)} AS aged_level",
        f"{aged_score_sql('score', *aging)} AS aged_score",
    ).collect()
    assert len(found) == 3000
    for row in found:
        rate = row.change_count / row.fetch_count if row.fetch_count else 0.0
        facts = PriorityFacts(row.seed_priority, row.inlinks, row.depth, row.quality, rate, row.fetch_count == 0)
        assert row.score == score(facts, settings.priority), row
        assert row.level == level(row.score, 5), row
        assert row.aged_level == aged_level(row.stored, row.waited, 604800, 5), row
        assert row.aged_score == aged_score(row.score, row.waited, 604800, 5), row


# --- what a host lets through

TWELVE = 12
#: host -> (its row of `hosts`, or None for a host never met), URLs let through of twelve, reason of the others.
HOSTS: dict[str, tuple[dict[str, Any] | None, int, str, str]] = {
    "unknown.test": (None, 10, "window_budget", "20 s at 2 s each: as for any new host"),
    "known.test": ({}, 10, "window_budget", "the same"),
    "slow.test": ({"mean_fetch_ms": 500.0}, 3, "window_budget", "10 x 0.5 s + 0.5 s for each"),
    "slowest.test": ({"mean_fetch_ms": 60000.0}, 1, "window_budget", "at least one"),
    "asks.test": ({"crawl_delay_s": 5.0}, 4, "window_budget", "its crawl-delay"),
    "asks-much.test": ({"crawl_delay_s": 86400.0}, 1, "window_budget", "at least one"),
    "limited.test": ({"limit_delay_s": 0.5}, 12, "", "the operator's limit, shorter than ours"),
    "limited-asks.test": ({"limit_delay_s": 0.5, "crawl_delay_s": 4.0}, 5, "window_budget", "never below crawl-delay"),
    "spent.test": ({"day": NOW.date(), "fetched_today": 30}, 0, "day_budget", "the day's budget is used up"),
    "nearly.test": ({"day": NOW.date(), "fetched_today": 23}, 7, "day_budget", "seven are left of thirty"),
    "yesterday.test": ({"day": ago(DAY).date(), "fetched_today": 30}, 10, "window_budget", "a new day"),
    "backing-off.test": ({"state": "backing_off", "backoff_until": ago(-1)}, 0, "host_backing_off", "for a second"),
    "has-backed-off.test": ({"state": "backing_off", "backoff_until": ago(0)}, 10, "window_budget", "until now"),
    "dead.test": ({"state": "dead", "backoff_until": ago(-DAY)}, 0, "host_backing_off", "probed tomorrow"),
    "probe.test": ({"state": "dead", "backoff_until": ago(DAY)}, 1, "host_dead", "probed now, with one URL"),
    "paused.test": ({"paused": True}, 0, "host_paused", "by the operator"),
    "resumed.test": ({"paused": False}, 10, "window_budget", "no more"),
    "blocked.test": ({"state": "blocked"}, 0, "host_blocked", "by the operator"),
}


def test_what_a_host_lets_through(spark: SparkSession) -> None:
    turn = frame_turn(fetch={"window_s": 20.0}, generate={"host_day_budget": 30})
    urls = [url_row(f"http://{host}/{n}", score=n / 100) for host in HOSTS for n in range(TWELVE)]
    known = [host_row(host, **facts) for host, (facts, *_) in HOSTS.items() if facts is not None]
    waiting = candidates.due(frame(spark, "urls", urls), turn)
    ranked = candidates.best_of_each_host(waiting, NO_LIMIT)
    judged = candidates.with_host_reason(ranked, frame(spark, "hosts", known), turn)
    keys = spark.createDataFrame([(row["url_key"], row["url"]) for row in urls], "key LONG, url STRING")
    found: dict[str, dict[str | None, list[str]]] = defaultdict(lambda: defaultdict(list))
    for row in judged.join(keys, judged.url_key == keys.key).collect():
        found[row.host][row.reason].append(row.url)
    for host, (_, through, reason, why) in HOSTS.items():
        assert len(found[host][None]) == through, (host, why)
        assert len(found[host][reason]) == TWELVE - through or not reason, (host, why)
        best = {f"http://{host}/{n}" for n in range(TWELVE - through, TWELVE)}
        assert set(found[host][None]) == best, "the best of them"


def test_one_big_host_gets_what_its_delay_lets_through(spark: SparkSession) -> None:
    """commoncrawl/nutch#32, stormcrawler#582: a host with hundreds of due URLs at 5 s each would hold a window of ten
    minutes for an hour. It gets 120, and the hundred small hosts all of theirs; the rest stays due as it was."""
    turn = frame_turn(fetch={"window_s": 600.0}, generate={"list_size": 10_000})
    urls = [url_row(f"http://big.test/{n}", score=n / 1000) for n in range(400)]
    urls += [url_row(f"http://small{n}.test/{page}") for n in range(100) for page in range(3)]
    waiting = candidates.due(frame(spark, "urls", urls), turn)
    judged = candidates.judge(waiting, frame(spark, "hosts", [host_row("big.test", crawl_delay_s=5.0)]), turn)
    counted = candidates.census(waiting, judged)
    assert (sum(counted.candidates.values()), dict(counted.held_back)) == (
        420,
        {"window_budget": 280, "host_budget": 0},
    )
    chosen = candidates.selected(judged, cuts_of(counted.candidates, turn.settings.generate))
    loads, _ = generate.host_loads(chosen, turn.settings)
    [big] = [load for load in loads if load.host == "big.test"]
    assert (big.urls, big.seconds, len(loads)) == (120, 600.0, 101), "its end is the window's"


#: host -> URLs let through of twelve, the reason of the others, why (20 s window, 30 a day, 5 a segment)
SHEETED: dict[str, tuple[int, str, str]] = {
    "usual.test": (5, "host_budget", "no sheet: the usual budget"),
    "more.test": (10, "window_budget", "a larger budget: now it is the window at 2 s each that counts"),
    "quick.test": (12, "", "unlimited, at a tenth of a second each"),
    "patient.test": (2, "window_budget", "10 s each"),
    "none.test": (0, "host_budget", "0 is none"),
    "own.test": (12, "", "the operator's limit of the one host goes before the sheet's delay of 10 s"),
    "day.test": (3, "day_budget", "eight a day, five of them spent"),
    "a.farm.test": (4, "domain_budget", "the domain's own budget"),
}


def test_sheets_move_the_limits_of_hosts(spark: SparkSession) -> None:
    wide, slow = {"host_budget": UNLIMITED}, {"delay_s": 10.0}
    sheets: list[dict[str, Any]] = [{"match": ["host:more.test"], "host_budget": 11}]
    sheets += [{"match": ["host:quick.test"], "delay_s": 0.1, **wide}, {"match": ["host:patient.test"], **slow}]
    sheets += [{"match": ["host:none.test"], "host_budget": 0}, {"match": ["host:own.test"], **slow, **wide}]
    sheets += [{"match": ["host:day.test"], "host_day_budget": 8}, {"match": ["domain:farm.test"], "domain_budget": 4}]
    limits = {"host_budget": 5, "host_day_budget": 30}
    turn = frame_turn(fetch={"window_s": 20.0}, generate=limits, scope={"sheets": sheets})
    urls = [url_row(f"http://{host}/{n}", score=n / 100) for host in SHEETED for n in range(TWELVE)]
    known = [host_row("own.test", limit_delay_s=0.1), host_row("day.test", day=NOW.date(), fetched_today=5)]
    waiting = candidates.due(frame(spark, "urls", urls), turn)
    judged = candidates.judge(waiting, frame(spark, "hosts", known), turn, generate.sheet_of_host(turn.settings))
    counted = Counter((row.host, row.reason) for row in judged.collect())
    for host, (through, reason, why) in SHEETED.items():
        assert counted[host, None] == through, (host, why)
        assert sum(n for (name, _), n in counted.items() if name == host) == TWELVE, "the literal cut is the largest"
        assert counted[host, reason] > 0 or not reason, (host, why, counted)
    assert generate.sheet_of_host(settings_of()) is None, "no sheet costs nothing"
    assert generate.sheet_of_host(settings_of(scope={"sheets": [{"match": ["host:a.test"], "max_depth": 3}]})) is None


#: Host -> its current rows of `robots` (verdict, seconds until asked again) and a closed one, its own back-off, until
#: when it is left alone.
SILENT: dict[str, tuple[list[tuple[str, float, bool]], float | None, float | None, str]] = {
    "silent.test": ([("unreachable", 60, True)], None, 60, "unreachable, and not to be asked yet"),
    "worse.test": ([("unreachable", 60, True)], 90, 90, "its own back-off is longer"),
    "ask.test": ([("unreachable", -1, True)], None, None, "it is time to ask again"),
    "half.test": ([("unreachable", 60, True), ("rules", 60, True)], None, None, "https answers"),
    "was.test": ([("unreachable", 60, False), ("rules", 60, True)], None, None, "it was, and is no more"),
    "fine.test": ([], 5, 5, "never asked"),
}


def test_a_host_whose_robots_are_unreachable_is_left_alone(spark: SparkSession) -> None:
    robots, hosts = [], []
    for host, (rows, own, _, _) in SILENT.items():
        hosts.append(host_row(host, backoff_until=None if own is None else ago(-own)))
        for verdict, seconds, current in rows:
            row = dict.fromkeys(schema.columns("robots")) | {"host": host, "verdict": verdict, "bucket": 0}
            row |= {"until": None if current else ago(9), "expires_at": ago(-seconds), "attempted_at": ago(99)}
            robots.append(row | {"origin": f"http://{host}", "since": ago(99)})
    found = candidates.left_alone(frame(spark, "hosts", hosts), frame(spark, "robots", robots), frame_turn())
    until = {row.host: utc(row.backoff_until) for row in found.select("host", "backoff_until").collect()}
    assert until == {host: None if s is None else ago(-s) for host, (_, _, s, _) in SILENT.items()}


@pytest.mark.parametrize(
    ("cap", "expected"),
    [
        (5, {"a": 5, "b": 5, "c": 1}),
        (1, {"a": 1, "b": 1, "c": 1}),
        (0, {}),
        (UNLIMITED, {"a": 12, "b": 5, "c": 1}),
    ],
)
def test_caps_are_exact_and_0_is_none(cap: int, expected: dict[str, int], spark: SparkSession) -> None:
    """apache/nutch#344 (one too many), #249 (0 read as unlimited): per host and per domain alike."""
    counts = {"a": 12, "b": 5, "c": 1}
    urls = [url_row(f"http://{name}.test/{n}") for name, most in counts.items() for n in range(most)]
    waiting = candidates.due(frame(spark, "urls", urls), frame_turn())
    most = cap if cap != UNLIMITED else NO_LIMIT
    by_host = Counter(row.host for row in candidates.best_of_each_host(waiting, most).select("host").collect())
    assert by_host == {f"{name}.test": number for name, number in expected.items()}
    farm = [url_row(f"http://w{n}.{name}.test/") for name, most in counts.items() for n in range(most)]
    judged = candidates.due(frame(spark, "urls", farm), frame_turn()).selectExpr("*", "CAST(NULL AS STRING) AS reason")
    reasons = Counter((row.domain, row.reason) for row in candidates.with_domain_reason(judged, cap).collect())
    wanted = {(f"{name}.test", None): number for name, number in expected.items()}
    wanted |= {(f"{name}.test", "domain_budget"): most - expected.get(name, 0) for name, most in counts.items()}
    assert reasons == {key: number for key, number in wanted.items() if number}


def test_what_a_host_holds_back_does_not_use_up_its_domain(spark: SparkSession) -> None:
    urls = [url_row(f"http://{name}.farm.test/{n}", score=0.9 if name == "off" else 0.1) for name in ("off", "on")
            for n in range(3)]  # fmt: skip
    waiting = candidates.due(frame(spark, "urls", urls), frame_turn())
    judged = waiting.selectExpr("*", "IF(host = 'off.farm.test', 'host_backing_off', NULL) AS reason")
    found = Counter((row.host, row.reason) for row in candidates.with_domain_reason(judged, 2).collect())
    assert found == {
        ("off.farm.test", "host_backing_off"): 3,
        ("on.farm.test", None): 2,
        ("on.farm.test", "domain_budget"): 1,
    }


def test_farms_of_hosts_and_full_servers_are_bounded(spark: SparkSession) -> None:
    """Wildcard DNS gives a domain as many hosts as one likes: those never met enter few at a time, known ones freely.
    Hosts that share an address share its budget; a host without a known address is nobody's neighbour."""
    facts = [("farm.test", f"n{n}.farm.test", True, None) for n in range(6) for _ in range(2)]
    facts += [("farm.test", "known.farm.test", False, "192.0.2.1")] * 3
    facts += [("other.test", "known.other.test", False, "192.0.2.1")] * 3
    rows = [(n, *fact, 1, n / 100, n, None) for n, fact in enumerate(facts)]
    ddl = "url_key LONG, domain STRING, host STRING, new_host BOOLEAN, ip STRING, level INT, score DOUBLE, tie LONG"
    judged = spark.createDataFrame(rows, f"{ddl}, reason STRING")
    held = candidates.with_address_reason(candidates.with_new_hosts_reason(judged, 4, 7), 5)
    found = held.collect()
    kept = {row.host for row in found if row.reason is None and row.new_host}
    assert len(kept) == 4, "four new hosts, whole"
    assert Counter(row.reason for row in found if row.new_host) == {None: 8, "domain_new_hosts": 4}
    assert Counter(row.reason for row in found if row.ip) == {None: 5, "address_budget": 1}
    assert [row.url_key for row in found if row.reason == "address_budget"] == [12], "the worst of the address"
    again = candidates.with_new_hosts_reason(judged, 4, 7).filter("reason IS NULL AND new_host").collect()
    assert {row.host for row in again} == kept, "a rerun lets the same ones in"


def test_a_session_s_zone_moves_no_time(spark: SparkSession) -> None:
    """apache/stormcrawler#777: due is an instant, whatever zone driver and session have; the hour that summer time
    skips in New York (02:30 on 8 March 2026) is an hour like others."""
    moments = {"past": ago(3600), "future": ago(-3600), "skipped": NOW.replace(month=3, day=8, hour=7, minute=30)}
    urls = frame(spark, "urls", [url_row(f"http://{name}.test/", next_fetch=at) for name, at in moments.items()])
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        found = {row.host for row in candidates.due(urls, frame_turn()).collect()}
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert found == {"past.test", "skipped.test"}


# --- a whole list

LONG = ".".join(["x" * 61, "y" * 61, "z" * 61, "w" * 62, "test"])  # 253 characters, as many as DNS allows
ODD = {
    f"http://{LONG}/": ({"priority": 1, "score": 0.99}, True, "a host of 253 characters"),
    "http://o'dd.test/": ({"priority": 1, "score": 0.94}, True, "an apostrophe is lawful in a host"),
    "http://odd.test/null": ({"next_fetch": None, "priority": 1, "score": 0.98}, True, "no next fetch: due at once"),
    "http://odd.test/now": ({"next_fetch": NOW, "priority": 1, "score": 0.97}, True, "due this very moment"),
    "http://odd.test/soon": ({"next_fetch": ago(-0.001), "priority": 1, "score": 1.0}, False, "a millisecond early"),
    "http://odd.test/future": ({"next_fetch": ago(-DAY), "priority": 1, "score": 1.0}, False, "tomorrow"),
    "http://odd.test/level0": ({"priority": 0, "score": 0.96}, True, "a level of another configuration: the nearest"),
    "http://odd.test/level9": ({"priority": 9, "score": 0.95}, True, "the same at the other end"),
    "http://odd.test/waits": ({"priority": 5, "score": 0.01, "next_fetch": ago(40 * DAY)}, True, "waited for weeks"),
}


def test_a_list_is_exact_fair_and_the_same_again(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(5)
    rows = [url_row(url, **facts) for url, (facts, _, _) in ODD.items()]
    for number in range(1000):
        stands, visits = 1 + number % 5, number // 5 % 2
        facts = {"priority": stands, "score": rng.random() * 0.9, "fetch_count": visits, "discovered_at": ago(60)}
        rows.append(url_row(f"http://h{number % 20}.test/{number}", **facts))
    rows += [url_row(f"http://off.test/{number}", priority=1, score=1.0) for number in range(7)]
    rows += [url_row(f"http://big.test/{number}", priority=5, score=0.0) for number in range(60)]
    for row in rows:
        row["bucket"] = bucket_of(row["domain"], 32)
    by_url = {row["url"]: row for row in rows}
    warehouse = new_warehouse(spark, tmp_path / "w", 32)
    add(warehouse, "urls", rows)
    known = [host_row("off.test", 32, state="backing_off", backoff_until=ago(-60))]
    add(warehouse, "hosts", known + [host_row(f"h{n}.test", 32, ip="127.0.0.9") for n in range(9)])
    new = {f"h{n}.test": "127.0.0.9" for n in range(9, 12)} | {"h12.test": "127.0.0.12"}
    monkeypatch.setattr(generate, "addresses_of", lambda hosts, _: {h: new[h] for h in hosts if h in new})
    settings = settings_of(generate={"list_size": 210, "host_budget": 50, "fetch_tasks": 3})
    turn = open_turn(warehouse, "a", settings)
    counts = generate.run(turn)
    listed = [row.asDict() for row in warehouse.read("fetchlist").collect()]
    first = contents(warehouse, "fetchlist")

    assert counts["listed"] == len(listed) == len({row["url_key"] for row in listed}) == 210, "exactly the top N"
    for url, (_, wanted, why) in ODD.items():
        assert (url in {row["url"] for row in listed}) == wanted, why
    assert {row["host"] for row in listed}.isdisjoint({"off.test"})
    for kind in (True, False):
        of_kind = Counter(row["priority"] for row in listed if (row["fetch_count"] == 0) == kind)
        assert of_kind == {1: 53, 2: 26, 3: 14, 4: 8, 5: 4}, "half each for new and known, by level 50:25:13:8:4"
    chosen = {row["url"] for row in listed}
    classes: dict[tuple[int, int], dict[bool, list[float]]] = defaultdict(lambda: {True: [], False: []})
    for row in rows:
        if row["host"].startswith("h"):
            classes[row["priority"], row["fetch_count"]][row["url"] in chosen].append(row["score"])
    assert len(classes) == 10 and all(min(found[True]) >= max(found[False]) for found in classes.values()), "the best"

    due = [row for row in rows if row["next_fetch"] is None or row["next_fetch"] <= NOW]
    assert counts["due"] == len(due)
    assert counts["not_listed.host_backing_off"] == 7 and counts["not_listed.host_budget"] == 10
    not_listed = sum(number for name, number in counts.items() if name.startswith("not_listed."))
    assert counts["listed"] + not_listed == counts["due"], "every due URL is listed or counted under a reason"
    for name in ("due", "listed"):
        assert sum(number for key, number in counts.items() if key.startswith(f"{name}.level_")) == counts[name]

    tasks: dict[str, set[int]] = defaultdict(set)
    places: dict[int, list[int]] = defaultdict(list)
    for row in listed:
        tasks[row["host"]].add(row["task"])
        places[row["task"]].append(row["position"])
        before = by_url[row["url"]]
        assert {name: utc(value) for name, value in row.items() if name in before and name != "priority"} == {
            name: before[name] for name in row if name in before and name != "priority"
        }, "the row as it stands, for update"
    assert all(len(held) == 1 for held in tasks.values()), "hosts whole"
    assert set(places) == {0, 1, 2} and counts["tasks"] == 3 and counts["hosts"] == len(tasks)
    assert all(sorted(found) == list(range(len(found))) for found in places.values())
    assert max(map(len, places.values())) <= 1.2 * min(map(len, places.values())), "balanced"
    at = {"127.0.0.9": {f"h{n}.test" for n in range(12)}, "127.0.0.12": {"h12.test"}}
    for address, there in at.items():
        of_address = [row for row in listed if row["ip"] == address]
        assert {row["host"] for row in of_address} == there, "known by `hosts`, or looked up"
        assert {row["ip_tasks"] for row in of_address} == {len({row["task"] for row in of_address})}
    assert counts["addresses_divided"] == 1 and counts["hosts_looked_up"] == 4, "twelve of 21 hosts, on three tasks"
    assert counts["hosts_unresolved"] == counts["hosts"] - 13
    ends = [counts[f"ends_s.task_{task:05d}"] for task in range(3)]
    assert max(ends) == counts["ends_s.latest"] and min(ends) > 0, "the predicted finish of each task"
    assert [entry.state for entry in warehouse.ledger.entries()] == [State.OPENED, State.GENERATED]
    assert warehouse.ledger.entries()[-1].counts == {"listed": 210, "tasks": 3}, "what fetch need not count again"

    monkeypatch.setattr(generate, "LITERAL_HOSTS", 0)  # as for a list of very many hosts
    assert generate.run(turn) == counts
    assert contents(warehouse, "fetchlist") == first, "a rerun lists the same"
    assert len(warehouse.ledger.entries()) == 2

    empty = next(f"b.{b + 1}of32" for b in range(32) if b not in {row["bucket"] for row in rows})
    warehouse.ledger.move(str(turn.segment), State.EXPIRED, 0.0)
    told = ["--warehouse", str(tmp_path / "w"), "--segment", empty, "--now", NOW.isoformat()]
    contact = ["--set", "agent.contact=https://example.org/crawler", "--set", "network.hosts_file_only=true"]
    told += contact
    assert generate.main([*told, "--fail-if-empty"]) == 5
    assert f"segment {empty} is empty: nothing was due" in capsys.readouterr().err
    assert [entry.state for entry in warehouse.ledger.entries()][-2:] == [State.OPENED, State.GENERATED]
    assert contents(warehouse, "fetchlist") == first, "no other segment's list is touched"
    assert generate.main(told) == 0
    assert "already generated; nothing to do" in capsys.readouterr().out
    assert generate.main(["--warehouse", str(tmp_path / "w"), "--segment", "c", *contact]) == 3
    assert f"belong to segment {empty}" in capsys.readouterr().err


def test_a_list_of_size_0_is_empty(spark: SparkSession) -> None:
    urls = frame(spark, "urls", [url_row(f"http://h.test/{n}") for n in range(9)])
    judged = candidates.with_bin(candidates.due(urls, frame_turn()).selectExpr("*", "CAST(NULL AS STRING) AS reason"))
    counted = candidates.census(judged, judged)
    for size, listed in ((0, 0), (1, 1), (9, 9), (10, 9)):
        cuts = cuts_of(counted.candidates, settings_of(generate={"list_size": size}).generate)
        assert candidates.selected(judged, cuts).count() == listed


@pytest.mark.parametrize(("budget", "ranks_all"), [(UNLIMITED, False), (3, True)])
def test_a_deep_range_is_listed_as_a_shallow_one(
    budget: int, ranks_all: bool, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a range holds many times the list, what lies far below any cut is counted and not ranked. The list and all
    counts are those of the long way; where budgets hold too much back, the long way is gone."""
    rng = random.Random(9)
    rows = [
        url_row(f"http://h{n % 8}.test/{n}", score=rng.random(), priority=1 + n % 5, fetch_count=n // 5 % 2)
        for n in range(400)
    ]
    turn = frame_turn(generate={"list_size": 20, "host_budget": budget})
    turn.warehouse = type("Range", (), {"buckets": 4, "rows_in": lambda self, span: 400})()
    frames = frame(spark, "urls", rows).cache(), frame(spark, "hosts", [])
    found = []
    for deep in (10**9, 1):
        monkeypatch.setattr(generate, "DEEP_ROWS", deep)
        waiting = candidates.due(frames[0], turn)
        limits = turn.settings.generate
        judged, counted, floors = generate.judged_of(waiting, frames[1], turn, limits, lambda kept: kept)
        cuts = cuts_of(counted.candidates, limits)
        chosen = sorted(row.url_key for row in candidates.selected(judged, cuts).collect())
        found.append((chosen, candidates.counts_of(counted, cuts)))
        assert bool(floors) == (deep == 1 and not ranks_all)
        if floors:
            assert judged.count() + candidates.below(waiting, floors).count() == 400
            assert judged.count() < 200, "the half and more was spared"
    assert len(found[0][0]) == 20 and found[0] == found[1]


def test_slices_divide_the_list_of_a_round_by_what_is_due(spark: SparkSession, tmp_path: Path) -> None:
    """Bucket by bucket 8, 4, 0 and 36 due, and as many that are not: of a list of 24 the slices get 6 and 18. What is
    pinned by the first slice holds for the others, whatever the table says by then."""
    rows, wanted = [], {0: 8, 1: 4, 2: 0, 3: 36}
    for number in range(2000):
        row = url_row(f"http://h{number}.test/")
        if wanted[row["bucket"]] > 0:
            wanted[row["bucket"]] -= 1
            rows += [row, url_row(f"http://h{number}.test/later", last_fetch=ago(DAY), next_fetch=ago(-DAY))]
    warehouse = new_warehouse(spark, tmp_path / "w")
    add(warehouse, "urls", rows)
    settings = settings_of(generate={"list_size": 24})
    assert Counter(row["bucket"] for row in rows if row["next_fetch"] < NOW) == {0: 8, 1: 4, 3: 36}
    assert generate.due_of_round(warehouse, SegmentId("r", 1, 2), NOW) == [8, 4, 0, 36]
    merge = warehouse.merge("urls", frame(spark, "urls", rows[:1]), "t.bucket = s.bucket AND t.url_key = s.url_key")
    merge.whenMatchedUpdate(set={"score": "0.9"}).execute()
    facts = warehouse.file_facts()
    assert sum(file.deleted for file in facts) == 1 and sum(file.rows or 0 for file in facts) == len(rows) + 1
    due = generate.due_of_round(warehouse, SegmentId("r", 1, 2), NOW)
    assert due == [9, 4, 0, 36], "an estimate: nobody knows which of the sixteen rows is deleted"

    first = open_turn(warehouse, "r.1of2", settings)
    add(warehouse, "urls", [url_row(f"http://h{number}.test/more") for number in range(200)])
    second = open_turn(warehouse, "r.2of2", settings)
    assert (generate.list_size(first), generate.list_size(second)) == (6, 18)
    assert generate.run(second)["listed"] == 18
    dry = Turn(warehouse, SegmentId("other", 1, 2), settings, NOW, 0, None)
    assert generate.list_size(dry) > 6, "another round sees what has come in"
    assert generate.list_size(Turn(warehouse, SegmentId("whole"), settings, NOW, 0, None)) == 24


# --- what a range may hold that it should not, and rules that change


def test_rules_are_asked_again_only_where_they_changed(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under the rules of its door a URL is not asked twice; under others it is, before it uses up a budget. On the way:
    keys that stand twice (frontera#87), odd numbers, and a dry run that writes nothing."""
    odd = {"score": float("nan"), "priority": 9, "discovered_at": ago(-DAY), "fetch_interval_s": -5}
    rows = [url_row(f"http://h.test/{n}", score=0.9) for n in range(3)] + [url_row("http://h.test/odd", **odd)]
    rows += [url_row("http://h.test/private/1", score=1.0), url_row("http://deep.test/", depth=99)]
    rows += [url_row("http://twice.test/"), url_row("http://twice.test/", score=0.7), url_row("https://twice.test/")]
    warehouse = new_warehouse(spark, tmp_path / "w")
    add(warehouse, "urls", rows)
    limits = {"host_budget": 4, "fetch_tasks": 2}
    first = open_turn(warehouse, "a", settings_of(generate=limits, trap={"max_depth": UNLIMITED}))
    counts = generate.run(first)
    everything = {row["url"] for row in rows}
    assert listed_in(warehouse, "a.1of1") == sorted(everything - {"http://h.test/odd"}), "the odd one is the worst"
    assert (counts["listed"], counts["due"]) == (7, 9)
    assert (counts["not_listed.host_budget"], counts["not_listed.repeated_key"]) == (1, 1)

    warehouse.ledger.move("a.1of1", State.EXPIRED, 0.0)
    changed = settings_of(generate=limits, scope={"deny": ["regex:/private/"]}, trap={"max_depth": 15})
    dry = Turn(warehouse, SegmentId("b"), changed, NOW, 0, None)
    before = len(warehouse.ledger.entries()), contents(warehouse, "fetchlist")
    told = generate.preview(dry)
    assert (told["not_listed.out_of_scope"], told["not_listed.trap_depth"], told["not_listed.host_budget"]) == (1, 1, 0)
    assert told["listed"] == 6 and told["listed"] + sum_of(told, "not_listed.") == told["due"] == 9
    shown = capsys.readouterr().out
    assert "host h.test: 4 URLs, 8 s, task 0\n" in shown and "task 1: 2 URLs of 1 hosts, 4 host-s" in shown
    assert (len(warehouse.ledger.entries()), contents(warehouse, "fetchlist")) == before
    generate.run(open_turn(warehouse, "b", changed))
    assert listed_in(warehouse, "b.1of1") == sorted(everything - {"http://h.test/private/1", "http://deep.test/"})


def sum_of(counts: dict[str, float], beginning: str) -> float:
    return sum(number for name, number in counts.items() if name.startswith(beginning))


def listed_in(warehouse: Any, segment: str) -> list[str]:
    return sorted(r.url for r in warehouse.read("fetchlist").filter(f"segment = '{segment}'").select("url").collect())


@pytest.mark.parametrize(
    ("then", "changed", "why"),
    [
        ({}, False, "the same rules"),
        ({"generate": {"list_size": 3}}, False, "another setting"),
        ({"scope": {"deny": ["host:a.test"]}}, True, "another scope"),
        ({"trap": {"max_depth": 3}}, True, "other traps"),
        ({"scope": {"sheets": [{"match": ["host:a.test"], "max_depth": 3}]}}, True, "other traps of one scope"),
        ({"scope": {"sheets": [{"match": ["host:a.test"], "delay_s": 3}]}}, False, "a sheet that refuses no URL"),
    ],
)
def test_only_scope_and_traps_count_as_rules(then: dict[str, Any], changed: bool, why: str) -> None:
    pinned = settings_of(**then)
    pins = json.dumps({"settings": json.loads(pinned.to_json()), "digest": pinned.digest()})
    entry = Entry(1, "a.1of1", State.OPENED, 0.0, 0, 4, 1, 0.0, "vm:1", pins)
    assert generate.rules_changed([entry, replace(entry, pins="")], settings_of()) == changed, why


@pytest.mark.parametrize("key", ["policy_digest", "public_suffix_version"])
def test_a_warehouse_keyed_under_other_rules_is_refused(key: str) -> None:
    settings = settings_of()
    marker = {"policy_digest": policy_digest(settings.url), "public_suffix_version": psl_version()}
    generate.check_policy(marker, settings)
    generate.check_policy({}, settings)
    with pytest.raises(WarehouseError, match=r"keyed under other rules.*spindle rekey --dry-run"):
        generate.check_policy({**marker, key: "another"}, settings)
