"""`spindle rekey`: spells, keys and spreads all URLs by the rules of today, once those differ from the warehouse's.

`urls`, `hosts`, `robots` and the targets of `links` move; what was fetched keeps the key of its time. Of rows that come
to one spelling the one that has it already stays, else the one fetched last. The marker names the new rules at the very
end, so a run that broke off is simply repeated: what is done already changes no more.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spindle import config, runner, schema, tables, urls
from spindle.errors import UrlRejected
from spindle.runner import Turn
from spindle.segments import SegmentId
from spindle.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LEASE_S = 6 * 3600.0
SHOWN = 10
_CHANGE = "old_bucket INT, old_key LONG, old_url STRING, new_bucket INT, new_key LONG, new_url STRING, new_host STRING"
_CHANGE += ", new_domain STRING, why STRING"


def main(argv: Sequence[str] | None = None) -> int:
    parser = runner.arguments("rekey", "Spell, key and spread all URLs by today's rules.", segment=False)
    parser.add_argument("--dry-run", action="store_true", help="only say what would change")
    return runner.main("rekey", parser, _body, argv)


def _body(options: argparse.Namespace) -> int:
    settings, now = runner.settings_of(options), runner.now_of(options)
    urls.Normalizer(settings.url)  # a pattern that nobody can read is told before a JVM is started
    tables.read_marker(options.warehouse)
    warehouse = tables.open_warehouse(open_session("spindle rekey", settings.spark), options.warehouse)
    turn = Turn(warehouse, SegmentId(f"rekey-{now:%Y%m%dT%H%M%S%f}"), settings, now, 0, None)
    counts = run(turn, really=not options.dry_run)
    print(runner.summary_line("rekey", str(turn.segment), counts))
    return 0


def changes(named: DataFrame, settings_json: str, buckets: int) -> DataFrame:
    """Of rows (bucket, key, URL) those whose spelling, key or bucket is another today; `why` one is refused."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        normalizer = urls.Normalizer(config.from_json(settings_json).url)
        for batch in batches:
            rows = [change(normalizer, buckets, *row.values()) for row in batch.to_pylist()]
            yield pa.RecordBatch.from_pylist([row for row in rows if row], schema=_ARROW)

    return named.mapInArrow(work, _CHANGE)


_ARROW = pa.schema(
    [
        *((f"old_{name}", kind) for name, kind in (("bucket", pa.int32()), ("key", pa.int64()), ("url", pa.string()))),
        *((f"new_{name}", kind) for name, kind in (("bucket", pa.int32()), ("key", pa.int64()), ("url", pa.string()))),
        *((name, pa.string()) for name in ("new_host", "new_domain", "why")),
    ]
)


def change(normalizer: urls.Normalizer, buckets: int, bucket: int, key: int, url: str) -> dict[str, Any] | None:
    """What becomes of one URL, or None where it stays as it is."""
    old = {"old_bucket": bucket, "old_key": key, "old_url": url}
    try:
        spelled = normalizer.normalize(url)
    except UrlRejected as error:
        return {**old, "why": error.reason}
    host = urls.host_of(spelled)
    domain = urls.registered_domain(host)
    new = {"new_bucket": urls.bucket_of(domain, buckets), "new_key": urls.url_key(spelled), "new_url": spelled}
    if tuple(new.values()) == (bucket, key, url):
        return None
    return {**old, **new, "new_host": host, "new_domain": domain}


def run(turn: Turn, *, really: bool) -> dict[str, float]:
    """Counts what changes and, with `really`, changes it, holding the lease of the whole range meanwhile.

    Raises:
        LeaseHeld: a turn is open.
    """
    warehouse, segment = turn.warehouse, str(turn.segment)
    if really:
        warehouse.ledger.open(turn.segment, runner.pins(turn.now, turn.settings), LEASE_S, time.time)
    try:
        with runner.kept() as keep:
            named = warehouse.read("urls").select("bucket", "url_key", "url")
            changed = keep(changes(named, turn.settings.to_json(), warehouse.buckets))
            counts = told(changed)
            if really:
                _apply(turn, changed)
    finally:
        if really:
            warehouse.ledger.release(segment, time.time())
            warehouse.sync_segments()
    if really:
        runner.write_metrics(warehouse, segment, "rekey", counts)
    return counts


def told(changed: DataFrame) -> dict[str, float]:
    """Counts by kind, and some examples on the screen."""
    kinds = changed.selectExpr(
        "count(*) AS changed",
        "count_if(new_url <> old_url) AS respelled",
        "count_if(new_bucket <> old_bucket) AS moved",
        "count_if(why IS NOT NULL) AS refused",
        "count(new_key) - count(DISTINCT new_key) AS falling_together",
    ).head()
    for row in changed.limit(SHOWN).collect():
        print(f"  {row.old_url} -> {row.new_url or 'refused: ' + row.why}")
    return {name: float(value) for name, value in kinds.asDict().items()} if kinds else {}


def _apply(turn: Turn, changed: DataFrame) -> None:
    warehouse = turn.warehouse
    if not changed.isEmpty():
        _rekey_copies(turn, changed)
        _rekey_urls(turn, changed)
    links = warehouse.read("links").select("dst_bucket", "dst_key", "dst_url").distinct()
    _rekey_links(turn, changes(links, turn.settings.to_json(), warehouse.buckets))
    for table in ("hosts", "robots"):
        _move_hosts(turn, table)
    warehouse.delta("seen").delete()  # a link may lead to another bucket now; to fold one twice changes nothing
    facts = {"policy_digest": urls.policy_digest(turn.settings.url), "public_suffix_version": urls.psl_version()}
    marker = {**warehouse.marker, "normalization_version": urls.NORMALIZATION_VERSION, **facts}
    warehouse.store.put(tables.MARKER, json.dumps(marker, indent=1, sort_keys=True).encode())


def _rekey_copies(turn: Turn, changed: DataFrame) -> None:
    """Pages that dedup knows under the old keys; one that falls together with another goes."""
    from spindle.jobs import dedup

    moves: dict[int, dedup.Move | None] = {}
    taken = set[int]()
    for row in changed.select("old_key", "new_bucket", "new_key", "new_url", "why").collect():
        stays = row.why is None and row.new_key not in taken
        taken.add(row.new_key)
        moves[row.old_key] = (row.new_bucket, row.new_key, row.new_url) if stays else None
    dedup.moved(turn.warehouse, turn.settings, moves, str(turn.segment))


def _rekey_urls(turn: Turn, changed: DataFrame) -> None:
    """One MERGE: the old rows go, their new forms come, unless a row of that key is there."""
    known = turn.warehouse.read("urls")
    old = changed.selectExpr("old_bucket AS bucket", "old_key AS url_key")
    staying = known.join(old, ["bucket", "url_key"], "left_anti").select("bucket", "url_key")
    new = ("bucket", "url", "host", "domain")
    moved = known.withColumnsRenamed({"bucket": "old_bucket", "url_key": "old_key"}).drop("url", "host", "domain")
    moved = moved.join(changed.filter("why IS NULL").drop("old_url", "why"), ["old_bucket", "old_key"])
    moved = moved.withColumnsRenamed({"new_key": "url_key", **{f"new_{name}": name for name in new}})
    best = "row_number() OVER (PARTITION BY url_key ORDER BY last_fetch DESC NULLS LAST, depth, old_key) AS copy"
    moved = moved.selectExpr("*", best).filter("copy = 1").join(staying, ["bucket", "url_key"], "left_anti")
    columns = schema.columns("urls")
    source = moved.selectExpr(*columns, "true AS comes").unionByName(
        old.selectExpr("*", "false AS comes"), allowMissingColumns=True
    )
    builder = turn.warehouse.merge("urls", source, "NOT s.comes AND t.bucket = s.bucket AND t.url_key = s.url_key")
    values: dict[str, Any] = {name: f"s.{name}" for name in columns}
    tables.retry_conflicts(builder.whenMatchedDelete().whenNotMatchedInsert("s.comes", values).execute)


def _rekey_links(turn: Turn, changed: DataFrame) -> None:
    builder = turn.warehouse.merge("links", changed, "t.dst_bucket = s.old_bucket AND t.dst_key = s.old_key")
    values: dict[str, Any] = {f"dst_{name}": f"s.new_{name}" for name in ("bucket", "key", "url", "host", "domain")}
    tables.retry_conflicts(builder.whenMatchedDelete("s.why IS NOT NULL").whenMatchedUpdate(set=values).execute)


def _move_hosts(turn: Turn, table: str) -> None:
    """Hosts whose registered domain, and so bucket, is another by today's public suffix list."""
    buckets = turn.warehouse.buckets
    rows = turn.warehouse.read(table).select("host", "bucket").distinct().collect()
    moved = []
    for row in rows:
        domain = urls.registered_domain(row.host)
        if (bucket := urls.bucket_of(domain, buckets)) != row.bucket:
            moved.append({"host": row.host, "domain": domain, "bucket": bucket})
    if not moved:
        return
    kinds = pa.schema([("host", pa.string()), ("domain", pa.string()), ("bucket", pa.int32())])
    source = pa.Table.from_pylist(moved, schema=kinds)
    builder = turn.warehouse.merge(table, turn.warehouse.spark.createDataFrame(source), "t.host = s.host")
    values: dict[str, Any] = {name: f"s.{name}" for name in ("bucket", "domain") if name in schema.columns(table)}
    tables.retry_conflicts(builder.whenMatchedUpdate(set=values).execute)
