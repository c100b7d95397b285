"""parse: stored bodies become rows of `pages` and `links`. Reads records in file order, keeps no body in the JVM.

A page that was not modified, or came back with the content that we had parsed, is counted and not parsed again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spindle import html, parsetask, runner, schema
from spindle.errors import SegmentStateError
from spindle.runner import Turn
from spindle.segments import State, advance

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

FEW_LINKS = 50_000  # written as one file without asking Spark for the bounds of several
DIRECT_CHARS = 32 << 20  # of pages and links; up to this the driver takes the rows and writes them without Spark's help

_FETCH = ["url_key", "bucket", "url", "host", "kind", "depth", "redirect_to", "x_robots_tag", "warc_file"]
_NEEDED = [*_FETCH, "warc_offset", "warc_length"]

#: What is to be done with a fetch, by its outcome and what the list knew (see `parsetask`); null is nothing.
_WHAT = f"""CASE
    WHEN outcome = 'redirect' AND redirect_to IS NOT NULL THEN '{parsetask.REDIRECT}'
    WHEN outcome = 'not_modified' OR outcome = 'ok' AND held_hash = content_hash THEN '{parsetask.UNCHANGED}'
    WHEN outcome = 'ok' AND warc_file IS NULL THEN '{parsetask.NO_RECORD}'
    WHEN outcome = 'ok' THEN '{parsetask.RECORD}' END"""


def work_of(fetches: DataFrame, listed: DataFrame, robots: DataFrame | None) -> DataFrame:
    """What is to be parsed, with what the list knew: bodies that are new to us, redirects, and the sitemaps that the
    robots.txt files of this segment named. Of what is only counted nothing but its kind."""
    before = listed.selectExpr("url_key AS listed_key", "content_hash AS held_hash", "seed_priority")
    rows = fetches.join(before, fetches.url_key == before.listed_key, "left").selectExpr("*", f"{_WHAT} AS what")
    counted = f"what IN ('{parsetask.UNCHANGED}', '{parsetask.NO_RECORD}')"
    told = (f"IF({counted}, NULL, {name}) AS {name}" for name in (*_NEEDED, "seed_priority"))
    found = rows.filter("what IS NOT NULL").selectExpr("what", *told, "CAST(NULL AS ARRAY<STRING>) AS sitemaps")
    if robots is None:
        return found
    asked = robots.selectExpr(f"'{parsetask.ROBOTS}' AS what", "origin AS url", "sitemaps")
    return found.unionByName(asked, allowMissingColumns=True)


def parsed(work: DataFrame, rules: dict[str, Any], root: str, partitions: int) -> DataFrame:
    """One row a URL, and one a task: see `parsetask.COLUMNS`."""
    order = ("warc_file", "warc_offset")
    placed = work.repartitionByRange(partitions, *order).sortWithinPartitions(*order)
    return placed.mapInArrow(
        _worker(rules, root), ", ".join(f"{name} {kind}" for name, kind in parsetask.COLUMNS.items())
    )


def _worker(plain: dict[str, Any], root: str) -> Any:
    """The function that runs in Spark's Python worker; it closes over plain values only."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from spindle import parsetask

        return parsetask.run(batches, plain, root)

    return work


def pages_of(results: DataFrame) -> DataFrame:
    """The rows of `pages` among what the tasks yielded."""
    kinds = schema.kinds("pages")
    ddl = ", ".join(f"{name}: {kind}" for name, kind in kinds.items() if name != "text")
    rows = results.filter("page IS NOT NULL").selectExpr(f"from_json(page, 'STRUCT<{ddl}>') AS row", "text")
    return rows.select("row.*", "text").select(*kinds)


def links_of(results: DataFrame, turn: Turn) -> DataFrame:
    """The rows of `links` among what the tasks yielded."""
    here = (f"'{turn.segment}' AS segment", f"{html.PARSE_RULES} AS parse_version")
    return results.selectExpr(*here, "src_key", "src_url", "src_host", "inline(links)")


def counted(results: DataFrame) -> Counter[str]:
    """What the tasks counted: pages, links, errors, unchanged, and every link that got no row under its reason; and
    `chars`, the size of the JSON."""
    counts = Counter(pages=0, links=0, errors=0, unchanged=0, chars=0)
    for row in results.filter("counts IS NOT NULL").select("counts").collect():
        counts.update(json.loads(row.counts))
    return counts


def seeds_of(turn: Turn) -> dict[str, list[str]]:
    """Hosts and domains of seeds, where the scope asks for them; whole-table, so only then."""
    if turn.settings.scope.follow == "everywhere":
        return {"seed_hosts": [], "seed_domains": []}
    seeds = (
        turn.warehouse.read("urls").filter("depth = 0 AND kind = 'page'").select("host", "domain").distinct().collect()
    )
    return {"seed_hosts": sorted({r.host for r in seeds}), "seed_domains": sorted({r.domain for r in seeds})}


def rules_of(turn: Turn, parse_version: int) -> dict[str, Any]:
    """See `parsetask.rules_of`."""
    rules = {"settings": turn.settings.to_json(), "buckets": turn.warehouse.buckets, "parse_version": parse_version}
    return rules | {"segment": str(turn.segment), "month": turn.month, **seeds_of(turn)}


def ordered(links: DataFrame, number: float) -> DataFrame:
    """In few files sorted by target bucket, for the owners' turns."""
    placed = links.coalesce(1) if number <= FEW_LINKS else links.repartitionByRange(2, "dst_bucket")
    return placed.sortWithinPartitions("dst_bucket", "dst_key")


def run(turn: Turn) -> dict[str, float]:
    """Parses what the segment fetched. The ledger notes by which version of the rules, for update."""
    if not advance(turn.entry, str(turn.segment), State.PARSED):
        return {}
    counts = parse(turn, turn.where)
    told = {name: counts[name] for name in ("pages", "links")} | {"parse_version": html.PARSE_RULES}
    turn.warehouse.ledger.move(str(turn.segment), State.PARSED, time.time(), told)
    turn.warehouse.sync_segments()
    return {name: float(number) for name, number in counts.items()}


def reparse(turn: Turn) -> dict[str, float]:
    """Parses an updated segment again, by today's rules and under its own pins, as rows of another `parse_version`. The
    crawl's state stays as it is: update uses the version that the ledger named when the segment was parsed.

    Raises:
        SegmentStateError: the segment is not updated, so that its own turn still needs the rows that are there.
    """
    if turn.entry is None or turn.entry.state is not State.UPDATED:
        state = "unknown" if turn.entry is None else turn.entry.state
        raise SegmentStateError(f"segment {turn.segment} is {state}: parse it again once it is updated")
    if turn.sizes.get("parse_version", 1) == html.PARSE_RULES:
        return {}
    counts = parse(turn, f"{turn.where} AND parse_version = {html.PARSE_RULES}")
    return {name: float(number) for name, number in counts.items()}


def parse(turn: Turn, where: str) -> Counter[str]:
    """One execution of the parse, whose cached result is counted and written in the place of the rows that `where`
    names."""
    work = work_of(turn.rows("fetches"), turn.rows("fetchlist"), robots_of(turn))
    cores = turn.warehouse.spark.sparkContext.defaultParallelism
    with runner.kept() as keep:
        results = keep(parsed(work, rules_of(turn, html.PARSE_RULES), turn.warehouse.store.root, cores))
        counts = counted(results)
        write(turn, results, counts, where)
    del counts["chars"]
    return counts


def robots_of(turn: Turn) -> DataFrame | None:
    """Sitemaps by origin, of the robots.txt files that this segment looked at; None where none names any."""
    here, columns = {"last_segment": str(turn.segment)}, ["origin", "until", "sitemaps"]
    if not turn.is_small():
        return turn.warehouse.read("robots").filter(f"last_{turn.where} AND until IS NULL AND size(sitemaps) > 0")
    found = turn.warehouse.values("robots", here, columns)
    named = [(row["origin"], row["sitemaps"]) for row in found if row["sitemaps"] and row["until"] is None]
    return turn.warehouse.spark.createDataFrame(named, "origin STRING, sitemaps ARRAY<STRING>") if named else None


def write(turn: Turn, results: DataFrame, counts: Mapping[str, int], where: str) -> None:
    """Pages and links; those of a small segment without Spark's help."""
    warehouse, of_month = turn.warehouse, f"month = '{turn.month}' AND {where}"
    if turn.is_small() and counts["chars"] <= DIRECT_CHARS:
        made = results.toArrow()
        links = parsetask.links_in(made, str(turn.segment), html.PARSE_RULES)
        links.sort(key=lambda link: (link["dst_bucket"], link["dst_key"]))
        warehouse.rewrite("pages", of_month, parsetask.pages_in(made))
        warehouse.rewrite("links", where, links)
    else:
        warehouse.replace("pages", of_month, pages_of(results).coalesce(2))
        warehouse.replace("links", where, ordered(links_of(results, turn), counts["links"]))


def main(argv: Sequence[str] | None = None) -> int:
    parser = runner.arguments("parse", "Parse what was fetched into pages and links.")
    again = "parse an updated segment again, by the rules of this Spindle; the crawl goes on as it was"
    parser.add_argument("--reparse", action="store_true", help=again)
    return runner.main("parse", parser, _body, argv)


def _body(options: argparse.Namespace) -> int:
    job, body = ("reparse", reparse) if options.reparse else ("parse", run)
    return runner.run_job(options, job, body)


if __name__ == "__main__":
    sys.exit(main())
