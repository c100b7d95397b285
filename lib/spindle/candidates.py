"""From all that is due to the URLs of a list: each rule a frame in, a frame out.

Alone decides which due URLs are candidates, under which reason each of the others is held back, and which candidates
the cuts of `selector` let through. Reads and writes nothing; what a host lets through is `budgets`' business.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from spindle import priority, selector
from spindle.budgets import ASKED, NO_LIMIT, PACE, host_reason_sql, limit_sql
from spindle.config import UNLIMITED
from spindle.runner import Turn
from spindle.sheets import Sheets

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BINS = 1000  # of each whole of the (aged) score; the cut then sorts one bin, not all that is due
MAX_BIN = 20 * BINS  # bounds the histogram; whoever waited that long is listed first anyway
_BIN = f"CAST(least({MAX_BIN}, floor(score * {BINS})) AS INT)"


def due(urls: DataFrame, turn: Turn, refusal: Column | None = None, braked: DataFrame | None = None) -> DataFrame:
    """URLs whose time has come, with their aged level: waiting raises a URL one level a step, so nothing starves.
    `refused` is why the rules of today do not want one that earlier rules let in, or null. `braked` has hosts with the
    patterns of URLs that are held back while they are new."""
    now_s, settings = int(turn.now.timestamp()), turn.settings.generate
    waited = f"{now_s}L - unix_seconds(coalesce(next_fetch, discovered_at))"
    aged = (waited, settings.age_level_s, settings.levels)
    worth = "least(1D, nanvl(coalesce(score, 0D), 0D))"  # an odd score in the table must not stop the turn
    timely = urls.filter(f"next_fetch IS NULL OR next_fetch <= {turn.now_sql}")
    nobody = "CAST(NULL AS STRING) AS refused"
    asked = timely.selectExpr("*", nobody) if refusal is None else timely.withColumn("refused", refusal)
    asked = asked if braked is None else with_brakes(asked, braked)
    return asked.selectExpr(
        "url_key",
        "bucket",
        "host",
        "domain",
        f"{priority.aged_score_sql(worth, *aged)} AS score",
        f"{priority.aged_level_sql('priority', *aged)} AS level",
        "fetch_count = 0 AND failure_count = 0 AS fresh",
        f"xxhash64(url_key, {turn.seed}L) AS tie",
        "refused",
    )


def with_brakes(frame: DataFrame, braked: DataFrame) -> DataFrame:
    """Refuses what is new and has a form that was learned to show one content again and again."""
    known = frame.join(braked.hint("broadcast"), "host", "left")
    held = "fetch_count = 0 AND failure_count = 0 AND exists(patterns, pattern -> url RLIKE pattern)"
    reason = f"coalesce(refused, IF({held}, 'trap_copies', NULL)) AS refused"
    return known.selectExpr("* EXCEPT (refused, patterns)", reason)


def judge(waiting: DataFrame, hosts: DataFrame, turn: Turn, sheet: Column | None = None) -> DataFrame:
    """The due URLs within the literal host budget, each with the reason that holds it back, or with its bin. `sheet` is
    what sheets set for the host (`budgets.SHEET`), a column over host and domain."""
    settings = turn.settings.generate
    most = Sheets(turn.settings.scope.sheets).most("host_budget", settings.host_budget, UNLIMITED)
    ranked = best_of_each_host(wanted(waiting), NO_LIMIT if most == UNLIMITED else most)
    ranked = ranked if sheet is None else ranked.withColumn("sheet", sheet)
    judged = with_host_reason(ranked, hosts, turn)
    judged = with_new_hosts_reason(judged, settings.domain_new_hosts, turn.seed).drop("new_host")
    judged = with_domain_reason(judged, settings.domain_budget).drop("sheet")
    return with_bin(with_address_reason(judged, settings.address_budget))


def wanted(waiting: DataFrame) -> DataFrame:
    """Without those that today's rules refuse: they must not use up anybody's budget."""
    return waiting.filter("refused IS NULL").drop("refused")


def best_of_each_host(frame: DataFrame, most: int) -> DataFrame:
    """Ranks within the host and keeps the first `most`; the literal lets Spark cut groups before the shuffle."""
    ranked = frame.selectExpr("*", "row_number() OVER (PARTITION BY host ORDER BY level, score DESC, tie) AS host_rank")
    return ranked if most == NO_LIMIT else ranked.filter(f"host_rank <= {most}")


def left_alone(hosts: DataFrame, robots: DataFrame, turn: Turn) -> DataFrame:
    """Hosts all of whose robots.txt are unreachable back off until they are asked again: until then nothing of them
    may be fetched (RFC 9309 2.3.1.4), and every place in a list would be lost."""
    silent = f"verdict = 'unreachable' AND expires_at > {turn.now_sql}"
    current = robots.filter("until IS NULL").selectExpr("host", f"{silent} AS silent", "expires_at")
    grouped = current.groupBy("host").agg({"silent": "min", "expires_at": "min"})
    asked_again = grouped.filter("`min(silent)`").selectExpr("host", "`min(expires_at)` AS asked_again")
    known = hosts.join(asked_again, "host", "left")
    return known.selectExpr(
        "* EXCEPT (backoff_until, asked_again)", "greatest(backoff_until, asked_again) AS backoff_until"
    )


def with_host_reason(frame: DataFrame, hosts: DataFrame, turn: Turn) -> DataFrame:
    """Adds `reason`: why the host lets a URL not through now, or null. An unknown host has the budgets of a new one.
    What packing asks of a host comes along, so that `hosts` is read once."""
    judged, sheets = frame.join(hosts.select("host", "ip", *ASKED, *PACE), "host", "left"), "sheet" in frame.columns
    if sheets:  # what an operator said of the one host goes before what a sheet says of many
        limit = "coalesce(limit_delay_s, sheet.delay_s) AS limit_delay_s"
        judged = judged.selectExpr("* EXCEPT (limit_delay_s)", limit)
    reason = host_reason_sql(turn.settings, turn.now, sheets=sheets)
    return judged.selectExpr("*", f"{reason} AS reason", "state IS NULL AS new_host").drop("host_rank", *ASKED)


def with_new_hosts_reason(frame: DataFrame, most: int, seed: int) -> DataFrame:
    """At most `most` hosts of a registered domain that were never met; chance, the same in a rerun, chooses which."""
    if most == UNLIMITED:
        return frame
    order = f"PARTITION BY domain ORDER BY NOT new_host, xxhash64(host, {seed}L), host"
    ranked = frame.selectExpr("*", f"dense_rank() OVER ({order}) AS group_rank")
    return _held_back(ranked, f"new_host AND group_rank > {most}", "domain_new_hosts")


def with_domain_reason(frame: DataFrame, budget: int) -> DataFrame:
    """At most `budget` URLs of a registered domain: a farm of wildcard hosts is one site."""
    sheets = "sheet" in frame.columns
    if budget == UNLIMITED and not sheets:
        return frame
    return _best_of_each(frame, "domain", limit_sql("domain_budget", budget, sheets=sheets), "domain_budget")


def with_address_reason(frame: DataFrame, budget: int) -> DataFrame:
    """At most `budget` URLs of hosts that shared an address when they were last fetched."""
    return frame if budget == UNLIMITED else _best_of_each(frame, "ip", str(budget), "address_budget")


def _best_of_each(frame: DataFrame, column: str, budget: str, reason: str) -> DataFrame:
    order = f"PARTITION BY {column}, reason IS NULL ORDER BY level, score DESC, tie"
    ranked = frame.selectExpr("*", f"row_number() OVER ({order}) AS group_rank")
    return _held_back(ranked, f"{column} IS NOT NULL AND group_rank > {budget}", reason)


def _held_back(ranked: DataFrame, condition: str, reason: str) -> DataFrame:
    """Gives those of the condition their reason, unless they have one."""
    return ranked.selectExpr(
        "* EXCEPT (reason, group_rank)", f"coalesce(reason, IF({condition}, '{reason}', NULL)) AS reason"
    )


def with_bin(frame: DataFrame) -> DataFrame:
    """Adds `bin`, the bar of the histogram that a candidate stands in; what is held back stands in none."""
    return frame.selectExpr("*", f"IF(reason IS NULL, {_BIN}, NULL) AS bin")


class Census(NamedTuple):
    """How many are due: a level, candidates by (level, new, bin), and those held back by reason; `below`: those under a
    floor, which were not judged one by one."""

    due: dict[int, int]
    candidates: dict[tuple[int, bool, int], int]
    held_back: dict[str, int]
    below: int = 0


class Depth(NamedTuple):
    """All that is due, as a histogram: a level, by (level, new, bin), and what the rules of today refuse."""

    due: dict[int, int]
    bars: dict[tuple[int, bool, int], int]
    refused: dict[str, int]


def depth(waiting: DataFrame) -> Depth:
    """One pass over few columns, without a shuffle of rows."""
    rows = waiting.selectExpr("level", "fresh", "refused", f"{_BIN} AS bin")
    found = Depth(defaultdict(int), defaultdict(int), defaultdict(int))
    for level, fresh, refused, score_bin, count in rows.groupBy("level", "fresh", "refused", "bin").count().collect():
        found.due[level] += count
        if refused is None:
            found.bars[level, fresh, score_bin] += count
        else:
            found.refused[refused] += count
    return found


def above(waiting: DataFrame, floors: Mapping[selector.Class, int]) -> DataFrame:
    """The due URLs that lie on or above the floor of their class."""
    return waiting.filter(_above_sql(floors)) if floors else waiting


def below(waiting: DataFrame, floors: Mapping[selector.Class, int]) -> DataFrame:
    """Those that lie under it."""
    return wanted(waiting).filter(f"NOT {_above_sql(floors)}")


def _above_sql(floors: Mapping[selector.Class, int]) -> str:
    cases = " ".join(
        f"WHEN level = {level} AND {'' if fresh else 'NOT '}fresh THEN {floor}"
        for (level, fresh), floor in sorted(floors.items())
    )
    return f"({_BIN} >= CASE {cases} ELSE 0 END)"


def census_above(judged: DataFrame, deep: Depth, floors: Mapping[selector.Class, int]) -> Census:
    """As `census`, where only URLs above the floors were judged."""
    found = Census(deep.due, {}, defaultdict(int, deep.refused), _below(deep, floors))
    for level, fresh, score_bin, reason, count in judged.groupBy("level", "fresh", "bin", "reason").count().collect():
        if reason is None:
            found.candidates[level, fresh, score_bin] = count
        else:
            found.held_back[reason] += count
    told = sum(found.candidates.values()) + sum(found.held_back.values()) + found.below
    found.held_back["host_budget"] += sum(found.due.values()) - told
    return found


def _below(deep: Depth, floors: Mapping[selector.Class, int]) -> int:
    return sum(n for (level, fresh, score_bin), n in deep.bars.items() if score_bin < floors.get((level, fresh), 0))


def census(waiting: DataFrame, judged: DataFrame) -> Census:
    """All counts in one query. What `best_of_each_host` cut is the difference: the literal that lets Spark drop rows
    before the shuffle also keeps them from being judged one by one."""
    bars = judged.groupBy("level", "fresh", "bin", "reason").count().selectExpr("false AS is_total", "*")
    levels = waiting.groupBy("level", "refused").count()
    totals = levels.selectExpr(
        "true AS is_total", "level", "NULL AS fresh", "NULL AS bin", "refused AS reason", "count"
    )
    found = Census(defaultdict(int), {}, defaultdict(int))
    for is_total, level, fresh, score_bin, reason, count in bars.unionAll(totals).collect():
        if is_total:
            found.due[level] += count
        elif reason is None:
            found.candidates[level, fresh, score_bin] = count
        if reason is not None:
            found.held_back[reason] += count
    told = sum(found.candidates.values()) + sum(found.held_back.values())
    found.held_back["host_budget"] += sum(found.due.values()) - told
    return found


def selected(judged: DataFrame, cuts: Mapping[selector.Class, selector.Cut]) -> DataFrame:
    """The candidates that the cuts let through, best first within a class. Bins below the edge are never sorted. A key
    that the table holds twice is numbered in `copy`."""
    if not cuts:
        return judged.drop("bin", "reason").selectExpr("*", "1 AS copy").limit(0)
    of_class = [(f"level = {level} AND {'' if fresh else 'NOT '}fresh", cut) for (level, fresh), cut in cuts.items()]
    edge = " ".join(f"WHEN {which} THEN {cut.edge_bin}" for which, cut in of_class)
    quota = " ".join(f"WHEN {which} THEN {cut.total}" for which, cut in of_class)
    kept = judged.filter(f"reason IS NULL AND bin >= CASE {edge} END")
    ranked = kept.selectExpr("*", "row_number() OVER (PARTITION BY level, fresh ORDER BY score DESC, tie) AS place")
    most = max(cut.total for cut in cuts.values())  # a literal, so that Spark can cut before the shuffle
    chosen = ranked.filter(f"place <= {most} AND place <= CASE {quota} END").drop("bin", "reason", "place")
    return chosen.selectExpr("*", "row_number() OVER (PARTITION BY url_key ORDER BY level, score DESC) AS copy")


def counts_of(counted: Census, cuts: Mapping[selector.Class, selector.Cut], repeated: int = 0) -> dict[str, float]:
    """For `metrics`: due and listed a level, and each due URL that is not listed under its reason. `repeated` rows
    share a key with another row, a fault of the table: one of them is listed, all are counted."""
    taken: dict[int, int] = defaultdict(int)
    for (level, _), cut in cuts.items():
        taken[level] += cut.total
    total = sum(taken.values())
    counts: dict[str, float] = {"listed": total - repeated, "due": sum(counted.due.values())}
    counts |= {f"not_listed.{reason}": count for reason, count in sorted(counted.held_back.items())}
    counts["not_listed.cut"] = sum(counted.candidates.values()) - total + counted.below
    counts |= {"not_listed.repeated_key": repeated} if repeated else {}
    counts |= {f"due.level_{level}": count for level, count in sorted(counted.due.items())}
    return counts | {f"listed.level_{level}": count for level, count in sorted(taken.items())}
