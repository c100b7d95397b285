"""`spindle prune`: removes URLs from the table by pattern, or all that the rules of today refuse; counts them first.

What was fetched of them stays in the other tables. A pruned URL that is linked again comes back, unless `scope.deny`
names it too.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spindle import config, runner, tables
from spindle.config import Settings
from spindle.errors import ConfigError, InputError
from spindle.runner import Turn
from spindle.scope import Scope, refusal
from spindle.segments import SegmentId
from spindle.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LEASE_S = 3600.0
SHOWN = 10  # URLs shown of those that would go
_ASKED = ("bucket", "url_key", "url", "host", "domain", "depth")
_FOUND = pa.schema([("bucket", pa.int32()), ("url_key", pa.int64()), ("url", pa.string()), ("why", pa.string())])


def main(argv: Sequence[str] | None = None) -> int:
    parser = runner.arguments("prune", "Remove URLs from the table; without --yes only count them.", segment=False)
    parser.add_argument(
        "--pattern",
        action="append",
        default=[],
        metavar="RULE",
        help="host:, domain:, surt: or regex:, as in scope.deny",
    )
    parser.add_argument("--refused", action="store_true", help="all that today's scope and traps refuse")
    parser.add_argument("--yes", action="store_true", help="remove them")
    return runner.main("prune", parser, _body, argv)


def _body(options: argparse.Namespace) -> int:
    settings, now = runner.settings_of(options), runner.now_of(options)
    if not options.pattern and not options.refused:
        raise InputError("prune: say what goes, with --pattern RULE (such as host:example.org) or --refused")
    settings = matching(settings, options.pattern, options.refused)
    tables.read_marker(options.warehouse)
    spark = open_session("spindle prune", settings.spark, quick=True)
    warehouse = tables.open_warehouse(spark, options.warehouse)
    segment = SegmentId.parse(f"prune-{now:%Y%m%dT%H%M%S%f}")
    turn = Turn(warehouse, segment, settings, now, 0, None)
    counts = run(turn, runner.pins(now, runner.settings_of(options)), really=options.yes)
    if not options.yes:
        print(f"prune: {counts['found']:.0f} URLs would go; nothing was removed. Say --yes to remove them")
    print(runner.summary_line("prune", str(segment), counts))
    return 0


def matching(settings: Settings, patterns: Sequence[str], refused: bool) -> Settings:
    """Settings under which exactly what is to go is refused.

    Raises:
        InputError: a pattern that cannot be understood.
    """
    deny = [*(settings.scope.deny if refused else ()), *patterns]
    plain = json.loads(settings.to_json())
    plain["scope"] |= {"deny": deny}
    if not refused:
        plain["scope"] |= {"allow": [], "follow": "everywhere", "schemes": ["http", "https"]}
        plain["trap"] = dict.fromkeys(plain["trap"], config.UNLIMITED)
    try:
        made = config.build([("settings", plain)])
        Scope(made.scope)
    except ConfigError as error:
        raise InputError(str(error).replace("scope.deny", "--pattern")) from None
    return made


def found(urls: DataFrame, settings_json: str, hosts: Sequence[str], domains: Sequence[str]) -> DataFrame:
    """The rows that go: bucket, key, URL and why."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settings = config.from_json(settings_json)
        scope = Scope(settings.scope, hosts, domains)
        for batch in batches:
            rows: list[dict[str, Any]] = []
            for row in batch.to_pylist():
                if why := refusal(row["url"], row["host"], row["domain"], row["depth"], scope, settings.trap):
                    rows.append({"bucket": row["bucket"], "url_key": row["url_key"], "url": row["url"], "why": why})
            yield pa.RecordBatch.from_pylist(rows, schema=_FOUND)

    return urls.select(*_ASKED).mapInArrow(work, "bucket INT, url_key LONG, url STRING, why STRING")


def run(turn: Turn, pins: dict[str, Any], *, really: bool) -> dict[str, float]:
    """Counts what goes, under each rule; with `really` removes it, holding the lease of the whole range meanwhile.

    Raises:
        LeaseHeld: a turn is open.
    """
    from spindle.jobs import dedup
    from spindle.jobs.generate import seeds_of

    warehouse, segment = turn.warehouse, turn.segment
    if really:
        warehouse.ledger.open(segment, pins, LEASE_S, time.time)
    try:
        with runner.kept() as keep:
            going = keep(found(warehouse.read("urls"), turn.settings.to_json(), *seeds_of(turn)))
            rules = {row.why: row["count"] for row in going.groupBy("why").count().collect()}
            for why, count in sorted(rules.items(), key=lambda item: -item[1]):
                print(f"  {count} URLs: {why}")
            for row in going.limit(SHOWN).collect():
                print(f"    {row.url}")
            if really and rules:
                keys = [row.url_key for row in going.select("url_key").collect()]
                dedup.moved(warehouse, turn.settings, dict.fromkeys(keys), str(segment))
                builder = warehouse.merge("urls", going, "t.bucket = s.bucket AND t.url_key = s.url_key")
                tables.retry_conflicts(builder.whenMatchedDelete().execute)
    finally:
        if really:
            warehouse.ledger.release(str(segment), time.time())
            warehouse.sync_segments()
    counts: dict[str, float] = {"found": sum(rules.values()), "removed": sum(rules.values()) if really else 0}
    if really:
        runner.write_metrics(warehouse, str(segment), "prune", counts)
    return counts
