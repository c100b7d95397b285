"""generate: the front tier. Of all due URLs of a range, a fair list of those worth fetching, packed into fetch tasks.

Rules on top (each a frame in, a frame out); `run` reads and writes. Every due URL that is not listed is counted under
its reason. Given the pinned time and seed a rerun lists the same URLs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

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
_KEYS = ["url_key", "bucket", "host", "domain", "level", "score", "fresh", "tie"]
_PACE = ("crawl_delay_s", "limit_delay_s", "mean_fetch_ms")  # what a host's delay follows from


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
    return ranked.filter(f"host_rank <= {most}")


def with_host_reason(frame: DataFrame, hosts: DataFrame, turn: Turn) -> DataFrame:
    """Adds `reason`: why the host lets a URL not through now, or null. An unknown host has the budgets of a new one."""
    known = ("state", "paused", "backoff_until", "day", "fetched_today", *_PACE)
    return frame.join(hosts.select("host", *known), "host", "left").selectExpr(
        *_KEYS,
        f"""CASE WHEN state = 'blocked' THEN 'host_blocked'
                 WHEN paused THEN 'host_paused'
                 WHEN backoff_until > {turn.now_sql} THEN 'host_backing_off'
                 WHEN host_rank > {day_left_sql(turn)} THEN 'day_budget'
                 WHEN host_rank > {window_budget_sql(turn.settings)} THEN 'window_budget' END AS reason""",
    )


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
    return ranked.selectExpr(*_KEYS, f"coalesce(reason, IF(domain_rank > {budget}, 'domain_budget', NULL)) AS reason")


def selected(candidates: DataFrame, settings: Settings) -> DataFrame:
    """Exactly min(list size, candidates) URLs, by the shares of levels and of new URLs; best first within a level.

    A histogram over class and score bin decides; only the bin at the edge is sorted.
    """
    binned = candidates.selectExpr("*", f"CAST(least({MAX_BIN}, floor(score * {BINS})) AS INT) AS bin")
    histogram = {
        (r.level, r.fresh, r.bin): r["count"] for r in binned.groupBy("level", "fresh", "bin").count().collect()
    }
    cuts = selector.cuts(histogram, settings.generate)
    if not cuts:
        return candidates.limit(0)
    edges = [(level, fresh, cut.edge_bin, cut.total) for (level, fresh), cut in cuts.items()]
    ddl = "level INT, fresh BOOLEAN, edge_bin INT, quota LONG"
    edge = candidates.sparkSession.createDataFrame(edges, ddl)
    kept = binned.join(edge.hint("broadcast"), ["level", "fresh"]).filter("bin >= edge_bin")
    order = "PARTITION BY level, fresh ORDER BY bin DESC, score DESC, tie"
    return kept.selectExpr("*", f"row_number() OVER ({order}) AS place").filter("place <= quota").select(*_KEYS)


def packed(chosen: DataFrame, hosts: DataFrame, turn: Turn, tasks: int) -> dict[str, int]:
    """Host -> fetch task: hosts whole, balanced by expected seconds, shared addresses together."""
    counts = chosen.groupBy("host").count()
    facts = ["host", "ip", "crawl_delay_s", "limit_delay_s", "mean_fetch_ms"]
    rows = counts.join(hosts.select(*facts), "host", "left").collect()
    rules = turn.settings.politeness
    loads = []
    for row in rows:
        mean_s = (row.mean_fetch_ms or 0.0) / 1000
        own = min(rules.max_duration_delay_s, rules.duration_factor * mean_s)
        delay = row.limit_delay_s if row.limit_delay_s is not None else max(rules.min_delay_s, own)
        seconds = politeness.expected_seconds(row["count"], max(delay, row.crawl_delay_s or 0.0), mean_s)
        loads.append(selector.HostLoad(row.host, row.ip, row["count"], seconds))
    return selector.pack_tasks(loads, tasks)


def fetchlist(chosen: DataFrame, urls: DataFrame, tasks: dict[str, int], turn: Turn) -> DataFrame:
    """The rows of the list: what fetch needs to know, and the row as it stands, which update changes."""
    spark = chosen.sparkSession
    of_host = spark.createDataFrame(list(tasks.items()), "host STRING, task INT").hint("broadcast")
    keys = chosen.select("bucket", "url_key", "level", "tie").hint("broadcast")
    order = "PARTITION BY task ORDER BY level, score DESC, tie"
    rows = urls.join(keys, ["bucket", "url_key"]).join(of_host, "host")
    rows = rows.selectExpr(
        "*", f"CAST(row_number() OVER ({order}) - 1 AS INT) AS position", f"'{turn.segment}' AS segment"
    )
    return rows.drop("priority").withColumnRenamed("level", "priority").select(*schema.columns("fetchlist"))


def run(turn: Turn) -> dict[str, float]:
    """Writes the fetch list of a segment and counts what was left out, by reason."""
    warehouse, settings = turn.warehouse, turn.settings
    urls = warehouse.read_range("urls", turn.segment)
    hosts = warehouse.read_range("hosts", turn.segment)
    waiting = due(urls, turn)
    most = settings.generate.host_budget if settings.generate.host_budget != UNLIMITED else NO_LIMIT
    judged = with_host_reason(best_of_each_host(waiting, most), hosts, turn)
    judged = with_domain_reason(judged, settings.generate.domain_budget).persist()
    try:
        chosen = selected(judged.filter("reason IS NULL").drop("reason"), settings).persist()
        spark = warehouse.spark
        tasks = packed(chosen, hosts, turn, settings.generate.fetch_tasks or spark.sparkContext.defaultParallelism)
        counts = reasons(waiting, judged, chosen)
        few = counts["listed"] <= settings.spark.direct_rows
        turn.put("fetchlist", fetchlist(chosen, urls, tasks, turn).coalesce(2), few=few)
    finally:
        judged.unpersist()
    turn.warehouse.ledger.move(str(turn.segment), State.GENERATED, time.time(), {"listed": int(counts["listed"])})
    warehouse.sync_segments()
    return {**counts, "hosts": len(tasks), "tasks": len(set(tasks.values()))}


def reasons(waiting: DataFrame, judged: DataFrame, chosen: DataFrame) -> dict[str, float]:
    """Due and listed a level, and each due URL that was not listed under its reason."""
    due_levels = {f"due.level_{r.level}": r["count"] for r in waiting.groupBy("level").count().collect()}
    listed_levels = {f"listed.level_{r.level}": r["count"] for r in chosen.groupBy("level").count().collect()}
    by_reason = {r.reason: r["count"] for r in judged.groupBy("reason").count().collect()}
    total, listed = sum(due_levels.values()), sum(listed_levels.values())
    left = {f"not_listed.{reason}": count for reason, count in by_reason.items() if reason}
    left["not_listed.host_budget"] = total - sum(by_reason.values())
    left["not_listed.cut"] = by_reason.get(None, 0) - listed
    return {"listed": listed, "due": total, **left, **due_levels, **listed_levels}


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
