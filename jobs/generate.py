"""generate: the front tier. Of all due URLs of a range, a fair list of those worth fetching, packed into fetch tasks.

The rules by which a URL is listed or held back are `candidates`'; here it is planned, packed and written. Every due URL
that is not listed is counted under its reason. Given the pinned time and seed a rerun lists the same URLs.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from spindle import (
    brakes,
    candidates,
    config,
    inbox,
    operators,
    rounds,
    runner,
    schema,
    selector,
    sqltext,
    tables,
    urls,
)
from spindle.budgets import PACE, SHEET, host_seconds, sheet_values
from spindle.candidates import Census
from spindle.config import GenerateSettings, Settings
from spindle.errors import NothingDue, WarehouseError
from spindle.fetcher.addresses import AddressRule
from spindle.fetcher.lookups import addresses_of
from spindle.runner import Turn
from spindle.scope import Scope, refusal
from spindle.segments import Entry, SegmentId, State, live_overlaps
from spindle.session import open_session
from spindle.sheets import Sheets
from spindle.tables import Warehouse

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame

LITERAL_HOSTS = 2000  # hosts of a list that are named in the query itself; more go in as a broadcast frame
DEEP_ROWS = 1_000_000  # rows of a range, and times its list, from which on a histogram of all that is due pays
DEEP = 20
PLENTY = 4  # times what a class could list: what is ranked within hosts then
SHOWN_HOSTS = 20  # of a dry run


# --- rules that changed since a URL came in


def refused(turn: Turn) -> Column | None:
    """Why today's scope or traps refuse a URL, as a column over `urls`. All that is in the table passed the rules at
    its door; so they are asked again (in Python, row by row) only where some door had other rules than this turn."""
    from pyspark.sql.pandas.functions import arrow_udf

    if not rules_changed(turn.warehouse.ledger.entries(), turn.settings):
        return None
    settings_json, seeds = turn.settings.to_json(), seeds_of(turn)

    def why(url: pa.Array, host: pa.Array, domain: pa.Array, depth: pa.Array) -> pa.Array:
        told = reasoner(settings_json, *seeds)
        rows = zip(url.to_pylist(), host.to_pylist(), domain.to_pylist(), depth.to_pylist(), strict=True)
        return pa.array([told(*row) for row in rows], pa.string())

    made: Any = arrow_udf(why, "string")  # type: ignore[call-overload] # its stubs know built-in arrays only
    column: Column = made("url", "host", "domain", "depth")
    return column


def sheet_of_host(settings: Settings) -> Column | None:
    """What sheets set for the host of a row, as a column over host and domain; None where none sets a host's limits."""
    from pyspark.sql.pandas.functions import arrow_udf

    if not Sheets(settings.scope.sheets).limits_hosts():
        return None
    settings_json = settings.to_json()

    def limits(host: pa.Array, domain: pa.Array) -> pa.Array:
        told = sheets_of(settings_json)
        rows = [sheet_values(told.of_host(name)) for name in host.to_pylist()]
        for row, name in zip(rows, domain.to_pylist(), strict=True):
            row["domain_budget"] = sheet_values(told.of_host(name))["domain_budget"]
        kinds = {"DOUBLE": pa.float64(), "INT": pa.int32()}
        return pa.array(rows, pa.struct([(name, kinds[kind]) for name, kind in SHEET.items()]))

    ddl = ", ".join(f"{name}: {kind}" for name, kind in SHEET.items())
    made: Any = arrow_udf(limits, f"struct<{ddl}>")  # type: ignore[call-overload] # as above
    column: Column = made("host", "domain")
    return column


@lru_cache(maxsize=1)
def sheets_of(settings_json: str) -> Sheets:
    """The sheets, made once a worker."""
    return Sheets(config.from_json(settings_json).scope.sheets)


def without_denied(hosts: DataFrame, denied: Sequence[str]) -> DataFrame:
    """Hosts whose last address may not be connected to any more count as blocked."""
    from pyspark.sql.functions import expr
    from pyspark.sql.pandas.functions import arrow_udf

    if not denied:
        return hosts

    def refuses(ip: pa.Array) -> pa.Array:
        rule = AddressRule(["0.0.0.0/0", "::/0"], denied)
        return pa.array([text is not None and not rule.permits(text) for text in ip.to_pylist()], pa.bool_())

    made: Any = arrow_udf(refuses, "boolean")  # type: ignore[call-overload] # as above
    return hosts.withColumn("denied", made("ip")).withColumn("state", expr("IF(denied, 'blocked', state)"))


def braked_forms(turn: Turn) -> Mapping[str, Sequence[brakes.Form]]:
    """Host -> its forms of URLs that were learned to show one content again and again. Asked without Spark, so that a
    range without any costs nothing: the URLs themselves need not be read then."""
    span = turn.segment.buckets(turn.warehouse.buckets)
    rows = turn.warehouse.values("traps", {"bucket": list(span)}, schema.columns("traps"))
    return brakes.braked(map(brakes.of_row, rows), turn.settings.brake, turn.now)


def brakes_of(turn: Turn) -> DataFrame | None:
    """Hosts with the patterns of such URLs; None where there are none."""
    if not (found := braked_forms(turn)):
        return None
    patterns = [[brakes.pattern_of(form.form) for form in forms] for forms in found.values()]
    kinds = [("host", pa.string()), ("patterns", pa.list_(pa.string()))]
    return tables.frame_of(turn.warehouse.spark, pa.table([list(found), patterns], pa.schema(kinds)))


@lru_cache(maxsize=1)
def reasoner(
    settings_json: str, seed_hosts: tuple[str, ...], seed_domains: tuple[str, ...]
) -> Callable[[str, str, str, int], str | None]:
    """Of a URL, its host, domain and depth the reason alone, made once a worker."""
    settings = config.from_json(settings_json)
    scope = Scope(settings.scope, seed_hosts, seed_domains)

    def told(url: str, host: str, domain: str, depth: int) -> str | None:
        why = refusal(url, host, domain, depth, scope, settings.trap)
        return why and why.partition(":")[0]

    return told


def rules_changed(entries: Iterable[Entry], settings: Settings) -> bool:
    """Whether a turn or inject of this warehouse was pinned under another scope or other traps."""
    now, digest = _rules_in(json.loads(settings.to_json())), settings.digest()
    for entry in entries:
        pinned = json.loads(entry.pins or "{}")
        if pinned.get("digest", digest) != digest and _rules_in(pinned.get("settings", {})) != now:
            return True
    return False


def _rules_in(settings: Mapping[str, Any]) -> tuple[Any, ...]:
    """What decides about a URL alone: the scope, the traps, and of the sheets those that set a trap's limits."""
    scope, trap = dict(settings.get("scope", {})), settings.get("trap", {})
    sheets = [sheet for sheet in scope.pop("sheets", []) if any(sheet.get(key) is not None for key in trap)]
    return scope, trap, [{key: sheet[key] for key in ("match", *trap)} for sheet in sheets]


def seeds_of(turn: Turn) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Hosts and domains of seeds, where the scope asks for them; whole-table, so only then."""
    if turn.settings.scope.follow == "everywhere":
        return (), ()
    seeds = turn.warehouse.read("urls").filter("depth = 0 AND kind = 'page'").select("host", "domain").distinct()
    rows = seeds.collect()
    return tuple(sorted({row.host for row in rows})), tuple(sorted({row.domain for row in rows}))


# --- the plan


class Plan(NamedTuple):
    """What would be listed: what is due and how it was judged, the counts, the cuts, the chosen rows, and each host's
    part and task."""

    waiting: DataFrame
    judged: DataFrame
    counted: Census
    cuts: Mapping[selector.Class, selector.Cut]
    chosen: DataFrame
    loads: Sequence[selector.HostLoad]
    tasks: Mapping[str, int]
    repeated: int
    found: Mapping[str, str]  # host -> address, where it was looked up for this list
    floors: Mapping[selector.Class, int]  # class -> bin under which nobody was looked at

    def counts(self, settings: Settings) -> dict[str, float]:
        """For `metrics`; the seconds are those that tasks were balanced by, and when the last may end."""
        counts = candidates.counts_of(self.counted, self.cuts, self.repeated)
        counts |= {"hosts_looked_up": len(self.found), "hosts_unresolved": sum(not load.address for load in self.loads)}
        counts |= {"hosts": len(self.tasks), "tasks": 1 + max(self.tasks.values(), default=-1)}
        if seconds := self.seconds():
            counts |= {"task_s.longest": round(max(seconds), 1), "task_s.mean": round(sum(seconds) / len(seconds), 1)}
            ends = self.ends(settings)
            counts |= {f"ends_s.task_{task:05d}": round(end, 1) for task, end in ends.items()}
            counts["ends_s.latest"] = round(max(ends.values()), 1)
            counts["addresses_divided"] = sum(held > 1 for held in self.holders().values())
        return counts

    def ends(self, settings: Settings) -> dict[int, float]:
        """When each task may end, in seconds from its start."""
        queues = settings.fetch.max_open * settings.fetch.queues_factor
        return selector.predicted_ends(self.loads, self.tasks, queues, settings.politeness.address_gap_s)

    def holders(self) -> dict[str, int]:
        """By how many tasks each known address is held."""
        return selector.holders(self.loads, self.tasks)

    def seconds(self) -> list[float]:
        """Expected seconds of hosts' queues, task by task."""
        of_task: dict[int, float] = defaultdict(float)
        for load in self.loads:
            of_task[self.tasks[load.host]] += load.seconds
        return [of_task[task] for task in sorted(of_task)]


def planned(turn: Turn, keep: Callable[[DataFrame], DataFrame]) -> Plan:
    """The list that the range would have now. Two queries: the census, and the hosts of the list."""
    warehouse, settings = turn.warehouse, turn.settings
    why = refused(turn)
    waiting = candidates.due(warehouse.read_range("urls", turn.segment), turn, why, brakes_of(turn))
    waiting = waiting if why is None else keep(waiting)  # asked in Python, so once
    hosts = operators.heard(warehouse.read_range("hosts", turn.segment), turn)
    hosts = without_denied(hosts, settings.network.deny_addresses)
    hosts = candidates.left_alone(hosts, warehouse.read_range("robots", turn.segment), turn)
    limits = replace(settings.generate, list_size=list_size(turn))
    judged, counted, floors = judged_of(waiting, hosts, turn, limits, keep)
    cuts = selector.cuts(counted.candidates, limits)
    chosen = keep(candidates.selected(judged, cuts))
    loads, repeated = host_loads(chosen, settings) if cuts else ([], 0)
    found = looked_up(loads, settings)
    loads = [load._replace(address=load.address or found.get(load.host)) for load in loads]
    wished = settings.generate.fetch_tasks or warehouse.spark.sparkContext.defaultParallelism
    tasks = selector.pack_tasks(loads, wished, settings.politeness.address_max_open)
    return Plan(waiting, judged, counted, cuts, chosen, loads, tasks, repeated, found, floors)


def judged_of(
    waiting: DataFrame, hosts: DataFrame, turn: Turn, limits: GenerateSettings, keep: Callable[[DataFrame], DataFrame]
) -> tuple[DataFrame, Census, Mapping[selector.Class, int]]:
    """The due URLs with their reasons or bins, their counts, and the floors under which they were not looked at.

    Where a range holds many times what is listed, ranking all of it within hosts is nearly all of the cost. So its
    histogram comes first, and only `PLENTY` times what each class could list is ranked, the best of it. Budgets may
    hold back so much of that that the list would not be full: then all is ranked after all.
    """
    sheet = sheet_of_host(turn.settings)
    span = turn.segment.buckets(turn.warehouse.buckets)
    if limits.list_size and turn.warehouse.rows_in(span) >= max(DEEP_ROWS, DEEP * limits.list_size):
        deep = candidates.depth(waiting)
        floors = selector.floors(deep.bars, limits, PLENTY)
        judged = keep(candidates.judge(candidates.above(waiting, floors), hosts, turn, sheet))
        counted = candidates.census_above(judged, deep, floors)
        if selector.suffices(counted.candidates, deep.bars, floors, limits):
            return judged, counted, floors
    judged = keep(candidates.judge(waiting, hosts, turn, sheet))
    return judged, candidates.census(waiting, judged), {}


def host_loads(chosen: DataFrame, settings: Settings) -> tuple[list[selector.HostLoad], int]:
    """What each host's part of the list will take; and how many rows repeat the key of another, a fault."""
    from pyspark.sql.functions import expr

    counted = chosen.groupBy("host", "ip", *PACE).agg(
        expr("count_if(copy = 1)").alias("urls"), expr("count_if(copy > 1)").alias("repeated")
    )
    loads, repeated = [], 0
    for row in counted.collect():
        repeated += row.repeated
        if row.urls:
            seconds = host_seconds(row.urls, settings.politeness, **{name: row[name] for name in PACE})
            loads.append(selector.HostLoad(row.host, row.ip, row.urls, seconds))
    return loads, repeated


def list_size(turn: Turn) -> int:
    """How many URLs the segment may list: of `generate.list_size` the part of its slice."""
    wished, segment = turn.settings.generate.list_size, turn.segment
    if segment.n == 1:
        return wished
    pinned = turn.warehouse.ledger.pins(str(segment)) if turn.entry else {}
    due = pinned.get("due") or due_of_round(turn.warehouse, segment, turn.now)
    return rounds.part_of(wished, due, segment.buckets(turn.warehouse.buckets))


def due_of_round(warehouse: Warehouse, segment: SegmentId, now: datetime.datetime) -> list[int]:
    """Due rows a bucket, by which the slices of a round divide its list: as its first slice has pinned it, or now."""
    for entry in warehouse.ledger.entries():
        if entry.pins and SegmentId.parse(entry.segment).run == segment.run:
            due: list[int] | None = json.loads(entry.pins).get("due")
            if due:
                return due
    return rounds.due_by_bucket(warehouse.file_facts(), warehouse.buckets, now)


def looked_up(loads: Sequence[selector.HostLoad], settings: Settings) -> Mapping[str, str]:
    """Addresses of the hosts that `hosts` knows none of, so far as the limits allow; those with most to do are asked
    first."""
    unknown = sorted((load for load in loads if not load.address), key=lambda load: (-load.seconds, load.host))
    names = [load.host for load in unknown[: settings.generate.resolve_hosts]]
    return addresses_of(names, settings) if names else {}


# --- the list


def fetchlist(plan: Plan, known: DataFrame, turn: Turn) -> DataFrame:
    """The rows of the list: what fetch needs to know, and the row as it stands, which update changes."""
    keys = with_task(plan.chosen.filter("copy = 1"), plan)
    keys = keys.select("bucket", "url_key", "level", "tie", "task", "ip", "ip_tasks").hint("broadcast")
    order = "PARTITION BY task ORDER BY level, score DESC, tie"
    rows = known.join(keys, ["bucket", "url_key"])
    if plan.repeated:
        newest = "PARTITION BY url_key ORDER BY last_fetch DESC NULLS LAST, discovered_at, url"
        rows = rows.selectExpr("*", f"row_number() OVER ({newest}) AS copy").filter("copy = 1").drop("copy")
    rows = rows.selectExpr(
        "*", f"CAST(row_number() OVER ({order}) - 1 AS INT) AS position", f"'{turn.segment}' AS segment"
    )
    return rows.drop("priority").withColumnRenamed("level", "priority").select(*schema.columns("fetchlist"))


def with_task(chosen: DataFrame, plan: Plan) -> DataFrame:
    """Adds each host's task, address, and by how many tasks that is held: from the query itself where hosts are few (a
    frame costs more), else by broadcast."""
    if not plan.tasks:
        return chosen.selectExpr("*", "0 AS task", "1 AS ip_tasks")
    held = plan.holders()
    if len(plan.tasks) > LITERAL_HOSTS:
        rows = [
            (load.host, load.address, plan.tasks[load.host], held.get(load.address or "", 1)) for load in plan.loads
        ]
        kinds = {"host": pa.string(), "ip": pa.string(), "task": pa.int32(), "ip_tasks": pa.int32()}
        columns = zip(kinds.items(), zip(*rows, strict=True), strict=True)
        table = pa.table({name: pa.array(values, kind) for (name, kind), values in columns})
        return chosen.drop("ip").join(chosen.sparkSession.createDataFrame(table).hint("broadcast"), "host")
    divided = {address: number for address, number in held.items() if number > 1}
    ip = f"coalesce(ip, {_case('host', plan.found, 'STRING')}) AS ip"
    placed = chosen.selectExpr("* EXCEPT (ip)", f"{_case('host', plan.tasks)} AS task", ip)
    return placed.selectExpr("*", f"coalesce({_case('ip', divided)}, 1) AS ip_tasks")


def _case(column: str, values: Mapping[str, object], kind: str = "INT") -> str:
    """A look-up as SQL; null where the column has none of the names."""
    names_of: dict[object, list[str]] = defaultdict(list)
    for name, value in values.items():
        names_of[value].append(sqltext.text(name))
    cases = [
        f"WHEN {column} IN ({', '.join(names)}) THEN {value if isinstance(value, int) else sqltext.text(str(value))}"
        for value, names in names_of.items()
    ]
    return f"CAST(CASE {' '.join(cases)} END AS {kind})" if cases else f"CAST(NULL AS {kind})"


def run(turn: Turn) -> dict[str, float]:
    """Writes the fetch list of a segment and counts what was left out, by reason."""
    warehouse = turn.warehouse
    with runner.kept() as keep:
        plan = planned(turn, keep)
        counts = plan.counts(turn.settings)
        listed = fetchlist(plan, warehouse.read_range("urls", turn.segment), turn)
        few = counts["listed"] <= turn.settings.spark.direct_rows
        turn.put("fetchlist", listed.coalesce(2), few=few)
    noted = {name: int(counts[name]) for name in ("listed", "tasks")}
    warehouse.ledger.move(str(turn.segment), State.GENERATED, time.time(), noted)
    warehouse.sync_segments()
    return counts


# --- the command


def open_turn(warehouse: Warehouse, segment: SegmentId, settings: Settings, options: argparse.Namespace) -> Turn:
    """Opens the segment (takes its range), or finds it opened, with the pins of that time.

    Raises:
        LeaseHeld: another live segment owns part of the range; names it.
        WarehouseError: the URLs of the warehouse are spelled by another policy.
    """
    check_policy(warehouse.marker, settings)
    now = runner.now_of(options)
    pins = runner.pins(now, settings) | {"wishes": inbox.last(warehouse.store)}
    if segment.n > 1:
        pins["due"] = due_of_round(warehouse, segment, now)
    entry = warehouse.ledger.open(segment, pins, settings.generate.lease_s, time.time)
    return runner.pinned_turn(warehouse, segment, warehouse.ledger.pins(str(segment)), entry)


def check_policy(marker: Mapping[str, object], settings: Settings) -> None:
    """Whether URLs are spelled and spread here as the warehouse's rows are: otherwise one page would have two keys.

    Raises:
        WarehouseError: they are not; names what differs and the way out.
    """
    ours = {"policy_digest": urls.policy_digest(settings.url), "public_suffix_version": urls.psl_version()}
    names = {"policy_digest": "the settings of [url]", "public_suffix_version": "the public suffix list"}
    for key, what in names.items():
        if marker.get(key, ours[key]) != ours[key]:
            raise WarehouseError(
                f"the URLs of this warehouse were keyed under other rules: {what} changed since (spindle.json has "
                f"{key} {str(marker[key])[:24]}, now it is {ours[key][:24]}). Go back, or see what would become of "
                f"them with `spindle rekey --dry-run`, then `spindle rekey`"
            )


def preview(turn: Turn) -> dict[str, float]:
    """Prints what would be listed now, by host and task; writes nothing."""
    with runner.kept() as keep:
        plan = planned(turn, keep)
        of_host = sorted(plan.loads, key=lambda load: (-load.urls, load.host))
    ends = plan.ends(turn.settings)
    for task, seconds in enumerate(plan.seconds()):
        part = [load for load in plan.loads if plan.tasks[load.host] == task]
        listed = sum(load.urls for load in part)
        print(f"  task {task}: {listed} URLs of {len(part)} hosts, {seconds:.0f} host-s, ends after {ends[task]:.0f} s")
    for load in of_host[:SHOWN_HOSTS]:
        print(f"  host {load.host}: {load.urls} URLs, {load.seconds:.0f} s, task {plan.tasks[load.host]}")
    if len(of_host) > SHOWN_HOSTS:
        print(f"  ... and {len(of_host) - SHOWN_HOSTS} hosts more")
    span = turn.segment.buckets(turn.warehouse.buckets)
    for entry in live_overlaps(turn.warehouse.ledger.entries(), span.start, span.stop):
        print(
            f"  not now: segment {entry.segment} ({entry.state}) owns buckets {entry.bucket_lo}..{entry.bucket_hi - 1}"
        )
    return plan.counts(turn.settings)


def main(argv: Sequence[str] | None = None) -> int:
    parser = runner.arguments("generate", "List the URLs that are worth fetching now.")
    parser.add_argument("--fail-if-empty", action="store_true", help="exit code 5 when nothing is due")
    parser.add_argument("--dry-run", action="store_true", help="show what would be listed, by task and host; no writes")
    return runner.main("generate", parser, _body, argv)


def _body(options: argparse.Namespace) -> int:
    settings, segment = runner.settings_of(options), SegmentId.parse(options.segment)
    now = runner.now_of(options)
    check_policy(tables.read_marker(options.warehouse), settings)  # before a JVM is started for nothing
    runner.check_rules(settings)
    spark = open_session(f"spindle generate {options.segment}", settings.spark)
    warehouse = tables.open_warehouse(spark, options.warehouse)
    if options.dry_run:
        counts = preview(Turn(warehouse, segment, settings, now, 0, None))
    else:
        turn = open_turn(warehouse, segment, settings, options)
        if turn.entry is not None and turn.entry.state is not State.OPENED:
            print(f"generate {segment}: already {turn.entry.state}; nothing to do")
            return 0
        counts = dict(runner.measured(turn, "generate", run))
    print(runner.summary_line("generate", str(segment), counts))
    if options.fail_if_empty and not counts["listed"]:
        raise NothingDue(f"segment {segment} is empty: nothing was due")
    return 0


if __name__ == "__main__":
    sys.exit(main())
