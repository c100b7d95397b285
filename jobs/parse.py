"""parse: stored bodies become rows of `pages` and `links`. Reads records in file order, keeps no body in the JVM.

A page that was not modified, or came back with the content that we had parsed, is counted and not parsed again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spindle import runner, schema
from spindle.config import from_json
from spindle.runner import Turn
from spindle.segments import State, advance

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

READ_AHEAD_BYTES = 4 << 20  # sequential reads; S3 charges and waits by request
BATCH = 200  # pages a batch to the JVM

_FETCH = ["url_key", "bucket", "url", "host", "kind", "depth", "outcome", "redirect_to", "x_robots_tag", "warc_file"]
_NEEDED = [*_FETCH, "warc_offset", "warc_length", "content_hash", "truncated"]


def work_of(fetches: DataFrame, listed: DataFrame) -> DataFrame:
    """What is to be parsed, with what the list knew: bodies that are new to us, and redirects."""
    before = listed.selectExpr("url_key AS listed_key", "content_hash AS held_hash", "seed_priority")
    rows = fetches.select(*_NEEDED, "hop").join(before, fetches.url_key == before.listed_key, "left")
    return rows.selectExpr(
        *_NEEDED,
        "seed_priority",
        "outcome = 'ok' AND warc_file IS NOT NULL AND NOT (held_hash <=> content_hash) AS is_page",
        "outcome = 'redirect' AND redirect_to IS NOT NULL AS is_redirect",
    )


def parsed(work: DataFrame, rules: dict[str, Any], root: str, partitions: int) -> DataFrame:
    """One row a URL: (page JSON, links JSON, rejected JSON)."""
    todo = work.filter("is_page OR is_redirect")
    placed = todo.repartitionByRange(partitions, "warc_file", "warc_offset").sortWithinPartitions(
        "warc_file", "warc_offset"
    )
    return placed.mapInArrow(_worker(rules, root), "page STRING, links STRING, rejected STRING")


def _worker(plain: dict[str, Any], root: str) -> Any:
    """The function that runs in Spark's Python worker; it closes over plain values only."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from spindle import extract
        from spindle.reader import SegmentReader

        rules = rules_of(plain)
        reader = SegmentReader(root, READ_AHEAD_BYTES)
        out: list[dict[str, Any]] = []
        for batch in batches:
            for fetch in batch.to_pylist():
                if fetch["is_redirect"]:
                    made = extract.of_redirect(fetch, rules)
                else:
                    made = extract.of_record(fetch, reader.read, rules)
                page = None if made.page is None else json.dumps(made.page)
                out.append({"page": page, "links": json.dumps(made.links), "rejected": json.dumps(made.rejected)})
                if len(out) >= BATCH:
                    yield _batch(out)
                    out = []
        if out:
            yield _batch(out)

    return work


def _batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    kinds = pa.schema([("page", pa.string()), ("links", pa.string()), ("rejected", pa.string())])
    return pa.RecordBatch.from_pylist(rows, schema=kinds)


def rules_of(plain: dict[str, Any]) -> Any:
    from spindle.extract import Rules
    from spindle.scope import Scope
    from spindle.urls import Normalizer

    settings = from_json(plain["settings"])
    scope = Scope(settings.scope, seed_hosts=plain["seed_hosts"], seed_domains=plain["seed_domains"])
    return Rules(
        settings,
        scope,
        Normalizer(settings.url),
        plain["buckets"],
        plain["segment"],
        plain["month"],
        plain["parse_version"],
    )


def rows_of(results: DataFrame, column: str, table: str) -> DataFrame:
    """The JSON of a column as a frame with a table's columns; `links` holds an array of rows."""
    ddl = f"STRUCT<{', '.join(_as_field(name) for name in schema.field_ddl(table))}>"
    if column == "links":
        rows = results.selectExpr(f"explode(from_json(links, 'ARRAY<{ddl}>')) AS row")
    else:
        rows = results.filter(f"{column} IS NOT NULL").selectExpr(f"from_json({column}, '{ddl}') AS row")
    return rows.select("row.*")


def _as_field(ddl: str) -> str:
    name, _, kind = ddl.replace(" NOT NULL", "").partition(" ")
    return f"{name}: {kind}"


def seeds_of(turn: Turn) -> dict[str, list[str]]:
    """Hosts and domains of seeds, where the scope asks for them; whole-table, so only then."""
    if turn.settings.scope.follow == "everywhere":
        return {"seed_hosts": [], "seed_domains": []}
    seeds = (
        turn.warehouse.read("urls").filter("depth = 0 AND kind = 'page'").select("host", "domain").distinct().collect()
    )
    return {"seed_hosts": sorted({r.host for r in seeds}), "seed_domains": sorted({r.domain for r in seeds})}


def sitemap_links(turn: Turn, rules: dict[str, Any]) -> tuple[DataFrame, Counter[str]]:
    """Links to the sitemaps that the robots.txt files named in this segment, and what was wrong with others."""
    from spindle.extract import of_robots

    named = turn.warehouse.read("robots").filter(f"last_{turn.where} AND until IS NULL AND size(sitemaps) > 0")
    found = named.select("origin", "sitemaps").collect()
    made = [of_robots(row.origin, row.sitemaps, rules_of(rules)) for row in found]
    ddl = schema.TABLES["links"].replace(" NOT NULL", "")
    rows = [tuple(link[name] for name in schema.columns("links")) for each in made for link in each.links]
    rejected = sum((each.rejected for each in made), Counter[str]())
    return turn.warehouse.spark.createDataFrame(rows, ddl), rejected


def run(turn: Turn) -> dict[str, float]:
    """Parses what the segment fetched. `links` lies in few files sorted by target bucket, for the owners' turns."""
    if not advance(turn.entry, str(turn.segment), State.PARSED):
        return {}
    warehouse, spark = turn.warehouse, turn.warehouse.spark
    fetches, listed = turn.rows("fetches"), turn.rows("fetchlist")
    rules: dict[str, Any] = {"settings": turn.settings.to_json(), "buckets": warehouse.buckets, "parse_version": 1}
    rules |= {"segment": str(turn.segment), "month": turn.month, **seeds_of(turn)}
    results = parsed(
        work_of(fetches, listed), rules, warehouse.store.root, spark.sparkContext.defaultParallelism
    ).persist()
    try:
        pages = rows_of(results, "page", "pages")
        turn.put("pages", pages.coalesce(2))
        named, rejected = sitemap_links(turn, rules)
        links = rows_of(results, "links", "links").unionByName(named)
        ordered = links.repartitionByRange(2, "dst_bucket").sortWithinPartitions("dst_bucket", "dst_key")
        counts = count(results, fetches, listed)
        turn.put("links", ordered, few=counts["links"] + len(rejected) <= turn.settings.spark.direct_rows)
        for reason, number in rejected.items():
            counts[f"rejected.{reason}"] = counts.get(f"rejected.{reason}", 0) + number
    finally:
        results.unpersist()
    told = {name: int(counts[name]) for name in ("pages", "links")}
    warehouse.ledger.move(str(turn.segment), State.PARSED, time.time(), told)
    warehouse.sync_segments()
    return counts


def count(results: DataFrame, fetches: DataFrame, listed: DataFrame) -> dict[str, float]:
    """Pages, links, faults, and every link that got no row under its reason."""
    row = results.selectExpr(
        "count(page) AS pages",
        "count_if(get_json_object(page, '$.error') IS NOT NULL) AS faults",
        "coalesce(sum(size(from_json(links, 'ARRAY<STRING>'))), 0) AS links",
    ).head()
    reasons = (
        results.selectExpr("explode(from_json(rejected, 'MAP<STRING, BIGINT>')) AS (reason, n)")
        .groupBy("reason")
        .sum("n")
    )
    known = listed.selectExpr("url_key", "content_hash AS held")
    again = fetches.filter("hop = 0").join(known, "url_key").filter("outcome = 'ok' AND held <=> content_hash")
    unmodified = fetches.filter("outcome = 'not_modified'")
    left = {f"rejected.{r.reason}": r["sum(n)"] for r in reasons.collect()}
    found = {"pages": row.pages, "links": row.links, "errors": row.faults} if row else {}
    return {**found, "unchanged": again.count() + unmodified.count(), **left}


def main(argv: Sequence[str] | None = None) -> int:
    parser = runner.arguments("parse", "Parse what was fetched into pages and links.")
    return runner.main("parse", parser, _body, argv)


def _body(options: argparse.Namespace) -> int:
    return runner.run_job(options, "parse", run)


if __name__ == "__main__":
    sys.exit(main())
