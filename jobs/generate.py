"""generate: the front tier. Of all due URLs of a range, a fair list of those worth fetching, packed into fetch tasks.

Rules on top (each a frame in, a frame out); `run` reads and writes. Every due URL that is not listed is counted under
its reason. Given the pinned time and seed a rerun lists the same URLs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from spindle import politeness, priority, runner, schema, selector, tables
from spindle.config import UNLIMITED, Settings
from spindle.errors import NothingDue
from spindle.runner import Turn
from spindle.segments import SegmentId, State
from spindle.session import open_session
from spindle.tables import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NO_LIMIT = 2**31 - 1
BINS = 1000  # of each whole of the (aged) score; the cut then sorts one bin, not all that is due
MAX_BIN = 20 * BINS  # bounds the histogram; whoever waited that long is listed first anyway
_PACE = ("crawl_delay_s", "limit_delay_s", "mean_fetch_ms")  # what a host's delay follows from
LITERAL_HOSTS = 2000  # hosts of a list that are named in the query itself; more go in as a broadcast frame


def due(urls: DataFrame, turn: Turn) -> DataFrame:
    """URLs whose time has come, with their aged level: waiting raises a URL one level a step, so nothing starves."""
    now_s, settings = int(turn.now.timestamp()), turn.settings.generate
    waited = f"{now_s}L - unix_seconds(coalesce(next_fetch, discovered_at))"
    aged = (waited, settings.age_level_s, settings.levels)
    return urls.filter(f"next_fetch IS NULL OR next_fetch <= {turn.now_sql}").selectExpr(
        "url_key",
        "bucket",
        "host",
        "domain",
        f"{priority.aged_score_sql('coalesce(score, 0D)', *aged)} AS score",
        f"{priority.aged_level_sql('priority', *aged)} AS level",
        "fetch_count = 0 AND failure_count = 0 AS fresh",
        f"xxhash64(url_key, {turn.seed}L) AS tie",
    )


def best_of_each_host(frame: DataFrame, most: int) -> DataFrame:
    """Ranks within the host and keeps the first `most`; the literal lets Spark cut groups before the shuffle."""
    ranked = frame.selectExpr("*", "row_number() OVER (PARTITION BY host ORDER BY level, score DESC, tie) AS host_rank")
    return ranked if most == NO_LIMIT else ranked.filter(f"host_rank <= {most}")


def with_host_reason(frame: DataFrame, hosts: DataFrame, turn: Turn) -> DataFrame:
    """Adds `reason`: why the host lets a URL not through now, or null. An unknown host has the budgets of a new one.
    What packing asks of a host comes along, so that `hosts` is read once."""
    known = hosts.select("host", "state", "paused", "backoff_until", "day", "fetched_today", "ip", *_PACE)
    judged = frame.join(known, "host", "left").selectExpr(
        "*",
        f"""CASE WHEN state = 'blocked' THEN 'host_blocked'
                 WHEN paused THEN 'host_paused'
                 WHEN backoff_until > {turn.now_sql} THEN 'host_backing_off'
                 WHEN host_rank > {day_left_sql(turn)} THEN 'day_budget'
                 WHEN host_rank > {window_budget_sql(turn.settings)} THEN 'window_budget' END AS reason""",
    )
    return judged.drop("host_rank", "state", "paused", "backoff_until", "day", "fetched_today")


def day_left_sql(turn: Turn) -> str:
    """What is left of a host's day (UTC)."""
    limit = turn.settings.generate.host_day_budget
    if limit == UNLIMITED:
        return str(NO_LIMIT)
    return f"{limit} - CASE WHEN day = DATE '{turn.now:%Y-%m-%d}' THEN fetched_today ELSE 0 END"


def window_budget_sql(settings: Settings) -> str:
    """What the host's delay lets through in the fetch window, at least 1 (DESIGN section 3)."""
    rules = settings.politeness
    spent = f"least({rules.max_duration_delay_s}, {rules.duration_factor} * coalesce(mean_fetch_ms, 0) / 1000)"
    own = f"coalesce(limit_delay_s, greatest({rules.min_delay_s}, {spent}))"
    seconds = f"greatest({own}, coalesce(crawl_delay_s, 0)) + coalesce(mean_fetch_ms, 0) / 1000"
    return f"greatest(1, CAST(least({NO_LIMIT}, floor({settings.fetch.window_s} / greatest(1e-9, {seconds}))) AS INT))"


def with_domain_reason(frame: DataFrame, budget: int) -> DataFrame:
    """At most `budget` URLs of a registered domain: a farm of wildcard hosts is one site."""
    if budget == UNLIMITED:
        return frame
    order = "PARTITION BY domain, reason IS NULL ORDER BY level, score DESC, tie"
    ranked = frame.selectExpr("*", f"row_number() OVER ({order}) AS domain_rank")
    reason = f"coalesce(reason, IF(domain_rank > {budget}, 'domain_budget', NULL))"
    return ranked.selectExpr("* EXCEPT (reason, domain_rank)", f"{reason} AS reason")


def with_bin(frame: DataFrame) -> DataFrame:
    """Adds `bin`, the bar of the histogram that a candidate stands in; what is held back stands in none."""
    score_bin = f"CAST(least({MAX_BIN}, floor(score * {BINS})) AS INT)"
    return frame.selectExpr("*", f"IF(reason IS NULL, {score_bin}, NULL) AS bin")


class Census(NamedTuple):
    """How many are due: a level, candidates by (level, new, bin), and those held back by reason."""

    due: dict[int, int]
    candidates: dict[tuple[int, bool, int], int]
    held_back: dict[str, int]


def census(waiting: DataFrame, judged: DataFrame) -> Census:
    """All counts in one query. What `best_of_each_host` cut is the difference: the literal that lets Spark drop rows
    before the shuffle also keeps them from being judged one by one."""
    bars = judged.groupBy("level", "fresh", "bin", "reason").count()
    levels = (
        waiting.groupBy("level").count().selectExpr("level", "NULL AS fresh", "NULL AS bin", "'due' AS reason", "count")
    )
    found = Census({}, {}, defaultdict(int))
    for level, fresh, score_bin, reason, count in bars.unionAll(levels).collect():
        if reason == "due":
            found.due[level] = count
        elif reason is None:
            found.candidates[level, fresh, score_bin] = count
        else:
            found.held_back[reason] += count
    found.held_back["host_budget"] += (
        sum(found.due.values()) - sum(found.candidates.values()) - sum(found.held_back.values())
    )
    return found


def selected(judged: DataFrame, cuts: Mapping[selector.Class, selector.Cut]) -> DataFrame:
    """The candidates that the cuts let through, best first within a class. Bins below the edge are never sorted."""
    if not cuts:
        return judged.limit(0)
    of_class = [(f"level = {level} AND {'' if fresh else 'NOT '}fresh", cut) for (level, fresh), cut in cuts.items()]
    edge = " ".join(f"WHEN {which} THEN {cut.edge_bin}" for which, cut in of_class)
    quota = " ".join(f"WHEN {which} THEN {cut.total}" for which, cut in of_class)
    kept = judged.filter(f"reason IS NULL AND bin >= CASE {edge} END")
    ranked = kept.selectExpr("*", "row_number() OVER (PARTITION BY level, fresh ORDER BY score DESC, tie) AS place")
    most = max(cut.total for cut in cuts.values())  # a literal, so that Spark can cut before the shuffle
    return ranked.filter(f"place <= {most} AND place <= CASE {quota} END").drop("bin", "reason", "place")


def host_loads(chosen: DataFrame, settings: Settings) -> list[selector.HostLoad]:
    """What each host's part of the list will take."""
    rules, loads = settings.politeness, []
    for row in chosen.groupBy("host", "ip", *_PACE).count().collect():
        mean_s = (row.mean_fetch_ms or 0.0) / 1000
        own = min(rules.max_duration_delay_s, rules.duration_factor * mean_s)
        delay = row.limit_delay_s if row.limit_delay_s is not None else max(rules.min_delay_s, own)
        seconds = politeness.expected_seconds(row["count"], max(delay, row.crawl_delay_s or 0.0), mean_s)
        loads.append(selector.HostLoad(row.host, row.ip, row["count"], seconds))
    return loads


def fetchlist(chosen: DataFrame, urls: DataFrame, tasks: Mapping[str, int], turn: Turn) -> DataFrame:
    """The rows of the list: what fetch needs to know, and the row as it stands, which update changes."""
    keys = with_task(chosen, tasks).select("bucket", "url_key", "level", "tie", "task").hint("broadcast")
    order = "PARTITION BY task ORDER BY level, score DESC, tie"
    rows = urls.join(keys, ["bucket", "url_key"]).selectExpr(
        "*", f"CAST(row_number() OVER ({order}) - 1 AS INT) AS position", f"'{turn.segment}' AS segment"
    )
    return rows.drop("priority").withColumnRenamed("level", "priority").select(*schema.columns("fetchlist"))


def with_task(chosen: DataFrame, tasks: Mapping[str, int]) -> DataFrame:
    """Adds each host's task: from the query itself where hosts are few (a frame costs more), else by broadcast."""
    if not tasks:
        return chosen.selectExpr("*", "0 AS task")
    if len(tasks) > LITERAL_HOSTS:
        table = pa.table({"host": list(tasks), "task": pa.array(tasks.values(), pa.int32())})
        return chosen.join(chosen.sparkSession.createDataFrame(table).hint("broadcast"), "host")
    hosts_of: dict[int, list[str]] = defaultdict(list)
    for host, task in tasks.items():
        hosts_of[task].append(_sql_text(host))
    cases = " ".join(f"WHEN host IN ({', '.join(hosts)}) THEN {task}" for task, hosts in sorted(hosts_of.items()))
    return chosen.selectExpr("*", f"CASE {cases} END AS task")


def _sql_text(value: str) -> str:
    """A SQL literal; an apostrophe is lawful in a host name."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def run(turn: Turn) -> dict[str, float]:
    """Writes the fetch list of a segment and counts what was left out, by reason. Three queries: the census, the hosts
    of the list, the list."""
    warehouse, settings = turn.warehouse, turn.settings
    urls = warehouse.read_range("urls", turn.segment)
    hosts = warehouse.read_range("hosts", turn.segment)
    waiting = due(urls, turn)
    with runner.kept() as keep:
        judged = keep(judge(waiting, hosts, turn))
        counted = census(waiting, judged)
        cuts = selector.cuts(counted.candidates, settings.generate)
        few = sum(cut.total for cut in cuts.values()) <= settings.spark.direct_rows
        chosen = keep(selected(judged, cuts))
        loads = host_loads(chosen, settings) if cuts else []
        tasks = selector.pack_tasks(loads, settings.generate.fetch_tasks or _cores(warehouse))
        turn.put("fetchlist", fetchlist(chosen, urls, tasks, turn).coalesce(2), few=few)
    counts = {**reasons(counted, cuts), "hosts": len(tasks), "tasks": 1 + max(tasks.values(), default=-1)}
    noted = {name: int(counts[name]) for name in ("listed", "tasks")}
    warehouse.ledger.move(str(turn.segment), State.GENERATED, time.time(), noted)
    warehouse.sync_segments()
    return counts


def judge(waiting: DataFrame, hosts: DataFrame, turn: Turn) -> DataFrame:
    """The due URLs within the literal host budget, each with the reason that holds it back, or with its bin."""
    budget = turn.settings.generate.host_budget
    ranked = best_of_each_host(waiting, NO_LIMIT if budget == UNLIMITED else budget)
    judged = with_host_reason(ranked, hosts, turn)
    return with_bin(with_domain_reason(judged, turn.settings.generate.domain_budget))


def reasons(counted: Census, cuts: Mapping[selector.Class, selector.Cut]) -> dict[str, float]:
    """Due and listed a level, and each due URL that was not listed under its reason."""
    listed: dict[int, int] = defaultdict(int)
    for (level, _), cut in cuts.items():
        listed[level] += cut.total
    total, due_now = sum(listed.values()), sum(counted.due.values())
    counts: dict[str, float] = {"listed": total, "due": due_now}
    counts |= {f"not_listed.{reason}": count for reason, count in sorted(counted.held_back.items())}
    counts["not_listed.cut"] = sum(counted.candidates.values()) - total
    counts |= {f"due.level_{level}": count for level, count in sorted(counted.due.items())}
    return counts | {f"listed.level_{level}": count for level, count in sorted(listed.items())}


def _cores(warehouse: Warehouse) -> int:
    return warehouse.spark.sparkContext.defaultParallelism


def open_turn(warehouse: Warehouse, segment: SegmentId, settings: Settings, options: argparse.Namespace) -> Turn:
    """Opens the segment (takes its range), or finds it opened, with the pins of that time.

    Raises:
        LeaseHeld: another live segment owns part of the range; names it.
    """
    pins = runner.pins(runner.now_of(options), settings)
    entry = warehouse.ledger.open(segment, pins, settings.generate.lease_s, time.time)
    return runner.pinned_turn(warehouse, segment, warehouse.ledger.pins(str(segment)), entry)


def main(argv: Sequence[str] | None = None) -> int:
    parser = runner.arguments("generate", "List the URLs that are worth fetching now.")
    parser.add_argument("--fail-if-empty", action="store_true", help="exit code 5 when nothing is due")
    return runner.main("generate", parser, _body, argv)


def _body(options: argparse.Namespace) -> int:
    settings, segment = runner.settings_of(options), SegmentId.parse(options.segment)
    runner.now_of(options)
    tables.read_marker(options.warehouse)  # before a JVM is started for nothing
    runner.check_rules(settings)
    spark = open_session(f"spindle generate {options.segment}", settings.spark)
    warehouse = tables.open_warehouse(spark, options.warehouse)
    turn = open_turn(warehouse, segment, settings, options)
    if turn.entry is not None and turn.entry.state is not State.OPENED:
        print(f"generate {segment}: already {turn.entry.state}; nothing to do")
        return 0
    counts = runner.measured(turn, "generate", run)
    print(runner.summary_line("generate", str(segment), counts))
    if options.fail_if_empty and not counts["listed"]:
        raise NothingDue(f"segment {segment} is empty: nothing was due")
    return 0


if __name__ == "__main__":
    sys.exit(main())
