"""inject: seeds become rows of `urls`. A known row is never reset unless --overwrite asks for it.

Decides what a seed's row looks like and what is said of bad lines; how lines are read is `seeds`' business.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from spindle import priority, runner, schema, sitemap, sqltext, tables, urls
from spindle.config import Settings
from spindle.errors import InputError
from spindle.scope import Scope, refusal
from spindle.seeds import Fault, Seed, parse
from spindle.segments import SegmentId
from spindle.session import open_session
from spindle.store import open_store
from spindle.tables import Warehouse

LEASE_S = 3600.0
NOWHERE = "http://sitemap.invalid/"  # where a sitemap in a file lies: what is relative there leads nowhere (RFC 2606)
SHOWN_FAULTS = 20  # a list with a million bad lines must not bury its own summary

_SEEDS = pa.schema(
    [
        ("url_key", pa.int64()),
        ("bucket", pa.int32()),
        ("kind", pa.string()),
        ("url", pa.string()),
        ("host", pa.string()),
        ("domain", pa.string()),
        ("seed_priority", pa.float64()),
        ("fixed_interval_s", pa.int64()),
        ("metadata", pa.map_(pa.string(), pa.string())),
    ]
)


def seed_table(seeds: Iterable[Seed], buckets: int) -> pa.Table:
    """One row a URL (of doubles in a list the last wins), keyed and bucketed."""
    by_url = {seed.url: seed for seed in seeds}
    rows = []
    for url, seed in by_url.items():
        host = urls.host_of(url)
        domain = urls.registered_domain(host)
        known = {"url_key": urls.url_key(url), "bucket": urls.bucket_of(domain, buckets), "url": url, "host": host}
        wish = {"kind": seed.kind, "seed_priority": seed.priority, "fixed_interval_s": seed.interval_s}
        rows.append({**known, "domain": domain, **wish, "metadata": list(seed.metadata.items()) or None})
    return pa.Table.from_pylist(rows, schema=_SEEDS)


def merge(warehouse: Warehouse, seeds: pa.Table, settings: Settings, now: datetime.datetime, overwrite: bool) -> int:
    """Inserts the seeds that are not known; with `overwrite` also renews priority, interval, metadata and due time of
    the known ones. Returns how many rows were new."""
    frame = warehouse.spark.createDataFrame(seeds).coalesce(2)
    defaults = {name: sql for name, sql in schema.NEW_URL.items() if name not in seeds.column_names}
    at = sqltext.instant(now)
    source = frame.selectExpr(
        "*", *(f"{sql} AS {name}" for name, sql in defaults.items()), "CAST(NULL AS DOUBLE) quality"
    )
    source = source.selectExpr("*", f"{priority.score_sql(settings.priority)} AS score")
    source = source.selectExpr("*", f"{priority.level_sql('score', settings.generate.levels)} AS priority")
    source = source.selectExpr("*", f"{at} AS discovered_at", f"{at} AS next_fetch")
    touched = sorted(set(seeds.column("bucket").to_pylist()))
    condition = f"t.bucket IN ({', '.join(map(str, touched))}) AND t.bucket = s.bucket AND t.url_key = s.url_key"
    builder = warehouse.merge("urls", source, condition)
    if overwrite:
        renewed = ("seed_priority", "fixed_interval_s", "metadata", "priority", "score", "next_fetch")
        builder = builder.whenMatchedUpdate(set={**{name: f"s.{name}" for name in renewed}, "depth": "0"})
    given = set(source.columns)
    values: dict[str, Any] = {name: f"s.{name}" for name in schema.columns("urls") if name in given}
    # not from the table's history: a MERGE that changes nothing leaves no commit there
    done = tables.retry_conflicts(builder.whenNotMatchedInsert(values=values).execute).head()
    return int(done.num_inserted_rows)


def sift(lines: Iterable[str], settings: Settings) -> tuple[list[Seed], list[Fault]]:
    """Seeds, and the lines that are none: not understood, of a trap's shape, or refused by the scope (whose `follow`
    cannot hold here: seeds are what it is measured by)."""
    scope = Scope(replace(settings.scope, follow="everywhere"))
    seeds: list[Seed] = []
    faults: list[Fault] = []
    for item in parse(lines, urls.Normalizer(settings.url)):
        if isinstance(item, Fault):
            faults.append(item)
        elif reason := _refusal(item.url, scope, settings):
            faults.append(Fault(item.line, item.url[:200], reason))
        else:
            seeds.append(item)
    return seeds, faults


def _refusal(url: str, scope: Scope, settings: Settings) -> str | None:
    host = urls.host_of(url)
    return refusal(url, host, urls.registered_domain(host), 0, scope, settings.trap)


def run(
    warehouse: Warehouse,
    lines: Iterable[str],
    settings: Settings,
    now: datetime.datetime,
    segment: SegmentId,
    *,
    overwrite: bool = False,
) -> tuple[dict[str, float], list[Fault]]:
    """Injects lines; counts and the faulty lines come back. Holds the range's lease meanwhile."""
    seeds, faults = sift(lines, settings)
    table = seed_table(seeds, warehouse.buckets)
    counts: dict[str, float] = {"lines": len(seeds) + len(faults), "seeds": table.num_rows, "bad_lines": len(faults)}
    for fault in faults:
        name = f"rejected.{re.split('[ :]', fault.reason)[0]}"
        counts[name] = counts.get(name, 0) + 1
    warehouse.ledger.open(segment, runner.pins(now, settings), LEASE_S, time.time)
    try:
        counts["inserted"] = merge(warehouse, table, settings, now, overwrite) if table.num_rows else 0
    finally:
        warehouse.ledger.release(str(segment), time.time())
    warehouse.sync_segments()
    runner.write_metrics(warehouse, str(segment), "inject", counts)
    return counts, faults


def read_bytes(source: str) -> bytes:
    """A file, `-` (standard input), or an s3:// object.

    Raises:
        InputError: it cannot be read.
    """
    try:
        if source == "-":
            return sys.stdin.buffer.read()
        if "://" in source:
            root, _, name = source.rpartition("/")
            return open_store(root).get(name)
        return Path(source).read_bytes()
    except OSError as error:
        raise InputError(f"seed list {source}: {error.strerror or error}") from None


def read_lines(source: str) -> list[str]:
    """Lines of a seed list; bytes that are not UTF-8 are replaced. Raises as `read_bytes`."""
    return read_bytes(source).decode("utf-8", errors="replace").split("\n")


def read_sitemap(source: str) -> list[str]:
    """A sitemap as lines of a seed list. One on the web is itself a seed, fetched by the next turn as politely as
    anything; of a file or object all that it lists is, nested sitemaps to be read as such.

    Raises:
        InputError: it cannot be read, or is no sitemap.
    """
    if source.startswith(("http://", "https://")):
        return [json.dumps({"url": source, "kind": "sitemap"})]
    try:
        found = sitemap.parse(read_bytes(source), NOWHERE)
    except sitemap.SitemapError as error:
        raise InputError(f"sitemap {source}: {error.reason}; expected XML, RSS, Atom or one URL a line") from None
    left_out = {**found.rejected, "past_the_limit": found.cut, "cut_off": int(found.truncated)}
    if told := ", ".join(f"{reason} {count}" for reason, count in left_out.items() if count):
        print(f"  sitemap {source}: left out or unsure: {told}", file=sys.stderr)
    listed = [(entry.loc, "page") for entry in found.urls] + [(loc, "sitemap") for loc in found.sitemaps]
    return [json.dumps({"url": loc.removeprefix(NOWHERE), "kind": kind}) for loc, kind in listed]


def read_lists(sources: Sequence[str], sitemaps: Sequence[str] = ()) -> tuple[list[str], list[tuple[str, int]]]:
    """The lines of all lists one after the other, and each list's name and number of lines, for `tell`."""
    lists = [(source, read_lines(source)) for source in sources]
    lists += [(source, read_sitemap(source)) for source in sitemaps]
    return [line for _, lines in lists for line in lines], [(source, len(lines)) for source, lines in lists]


def ensure_warehouse(options: argparse.Namespace, settings: Settings) -> Warehouse:
    """Opens the warehouse, or makes it on the first inject."""
    known = tables.exists(options.warehouse)
    (tables.read_marker if known else tables.check_free)(options.warehouse)  # before a JVM is started for nothing
    spark = open_session("spindle inject", settings.spark)
    if known:
        return tables.open_warehouse(spark, options.warehouse)
    facts = {
        "normalization_version": urls.NORMALIZATION_VERSION,
        "policy_digest": urls.policy_digest(settings.url),
        "public_suffix_version": urls.psl_version(),
    }
    return tables.create(spark, options.warehouse, settings.warehouse.buckets, facts)


def tell(faults: Sequence[Fault], lists: Sequence[tuple[str, int]] = ()) -> None:
    """Bad lines on standard error, by number; by list and number where there are several (`read_lists`)."""
    for fault in faults[:SHOWN_FAULTS]:
        print(f"  {_place(fault.line, lists)}: {fault.reason}: {fault.text!r}", file=sys.stderr)
    if len(faults) > SHOWN_FAULTS:
        print(f"  ... and {len(faults) - SHOWN_FAULTS} more", file=sys.stderr)


def _place(line: int, lists: Sequence[tuple[str, int]]) -> str:
    for source, size in lists if len(lists) > 1 else ():
        if line <= size:
            return f"{source} line {line}"
        line -= size
    return f"line {line}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = runner.arguments("inject", "Add seed URLs to the URL table.", segment=False)
    parser.add_argument("seeds", nargs="*", metavar="FILE", help="seed lists; - is standard input")
    parser.add_argument(
        "--sitemap", action="append", default=[], metavar="FILE|URL", help="what a sitemap lists; repeatable"
    )
    parser.add_argument("--segment", metavar="ID", help="name of the lease (default: inject-<time>)")
    parser.add_argument("--overwrite", action="store_true", help="renew priority, interval and due time of known rows")
    parser.add_argument("--strict", action="store_true", help="a bad line is an error (exit 2) and nothing goes in")
    return runner.main("inject", parser, _body, argv)


def _body(options: argparse.Namespace) -> int:
    settings, now = runner.settings_of(options), runner.now_of(options)
    if not options.seeds and not options.sitemap:
        raise InputError("nothing to inject: name a seed list (- is standard input), or --sitemap FILE")
    lines, lists = read_lists(options.seeds, options.sitemap)
    if options.strict and (faults := sift(lines, settings)[1]):
        tell(faults, lists)
        raise InputError(f"{len(faults)} bad lines, nothing injected (--strict)")
    warehouse = ensure_warehouse(options, settings)
    segment = SegmentId.parse(options.segment or f"inject-{now:%Y%m%dT%H%M%S%f}")
    counts, faults = run(warehouse, lines, settings, now, segment, overwrite=options.overwrite)
    tell(faults, lists)
    print(runner.summary_line("inject", str(segment), counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
