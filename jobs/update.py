"""update: what a segment fetched, the links that lead into its range, and dedup's verdicts come home into `urls` and
`hosts`.

One MERGE a table, its condition carrying the range's literal bucket list, so that cost follows the batch. All events
of one URL are combined into one row first. Order: hosts, inbox, urls, events, then the state; each is idempotent alone,
since rows carry the segment that wrote them, so a rerun after a crash anywhere changes nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spindle import brakes, copies, facts, inlinks, maps, operators, priority, recrawl, runner, schema, tables
from spindle.config import RecrawlSettings, Settings, from_json
from spindle.runner import Turn
from spindle.segments import Entry, SegmentId, State, advance

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SAME = ["url_key", "bucket", "kind", "url", "host", "domain", "depth", "seed_priority", "discovered_at"]
_EVENT = ["outcome", "http_status", "started_at", "etag", "last_modified", "content_hash", "simhash", "warc_file"]
UNKNOWN = 2**62  # links of a segment whose parse did not count them
_EVENTS = [*_EVENT, "warc_offset", "warc_length", "redirect_to", "retry_after_s"]


def events_of(fetches: DataFrame, pages: DataFrame) -> DataFrame:
    """One event a URL: its fetch, with the SimHash that parse found. Of a URL that was both listed and reached by a
    redirect the later fetch counts (MERGE refuses two rows for one target)."""
    found = pages.selectExpr("url_key", "simhash").dropDuplicates(["url_key"])
    tried = fetches.filter("outcome <> 'not_reached'").join(found, "url_key", "left")
    order = "PARTITION BY url_key ORDER BY started_at DESC NULLS LAST, hop"
    return tried.selectExpr("*", f"row_number() OVER ({order}) AS n").filter("n = 1").drop("n")


def before_of(events: DataFrame, listed: DataFrame, urls: DataFrame, turn: Turn) -> DataFrame:
    """The rows as they stood: from the list, which is their pre-image, or from `urls` for targets of redirects."""
    names = [*_SAME, *facts.COLUMNS]
    from_list = listed.select(*names)
    if events.filter("hop > 0").isEmpty():
        return from_list
    hops = events.filter("hop > 0").select("url_key", "bucket", "url", "host", "kind", "depth")
    hops = hops.join(listed.select("url_key"), "url_key", "left_anti")
    known = urls.select(*names).join(hops.select("bucket", "url_key").hint("broadcast"), ["bucket", "url_key"])
    blank = {name: f"CAST(NULL AS {kind})" for name, kind in facts.TYPES.items()} | schema.NEW_URL
    at = turn.now_sql
    domain = "''"  # filled by `with_domains`: only Python knows the public suffix list
    told = {"url_key": "url_key", "bucket": "bucket", "url": "url", "host": "host", "depth": "coalesce(depth, 0)"}
    told["kind"] = "coalesce(kind, 'page')"
    values = blank | told | {"domain": domain, "discovered_at": at, "last_outcome": "CAST(NULL AS STRING)"}
    new = hops.join(known.select("url_key"), "url_key", "left_anti").selectExpr(*(f"{values[n]} AS {n}" for n in names))
    return from_list.unionByName(known.select(*names)).unionByName(new)


def advanced(before: DataFrame, events: DataFrame, turn: Turn, price: float | None) -> DataFrame:
    """The rows after their events, by `lifecycle.advance`."""
    both = before.join(events.selectExpr("url_key", *(f"{name} AS event_{name}" for name in _EVENTS)), "url_key")
    kinds = dict(zip(before.columns, (field.dataType.simpleString() for field in before.schema.fields), strict=True))
    ddl = ", ".join(f"{name} {kinds[name]}" for name in before.columns)
    return both.mapInArrow(_advancer(turn.settings.to_json(), turn.now, before.columns, price), ddl)


def _advancer(settings_json: str, now: datetime.datetime, names: list[str], price: float | None) -> Any:
    """The function that runs in Spark's Python worker; it closes over plain values only."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from spindle.sheets import Sheets
        from spindle.urls import registered_domain

        settings = from_json(settings_json)
        sheets = Sheets(settings.scope.sheets)
        for batch in batches:
            kept = batch.select(names).schema
            rows = []
            for row in batch.to_pylist():
                rules = sheets.recrawl(row["url"], row["host"], settings.recrawl)
                after = facts.advanced(row, rules, now, price)
                after["domain"] = row["domain"] or registered_domain(row["host"])
                rows.append({name: after[name] for name in names})
            yield pa.RecordBatch.from_pylist(rows, schema=kept)

    return work


def folded(links: DataFrame, verdicts: DataFrame | None) -> DataFrame:
    """The links into the range and what dedup says of its URLs, one row a URL: least depth, source hosts as a sketch,
    the seed's priority; the cluster that it is a copy in, and the content for which that holds."""
    bit = inlinks.bit_sql("xxhash64(src_host)")
    outside = f"IF(src_host <> dst_host AND rel NOT IN ('sitemap', 'feed'), {bit}, 0L)"
    told = "CAST(NULL AS STRING) AS verdict_hash", "CAST(NULL AS BIGINT) AS verdict_of"
    rows = links.selectExpr("*", *told)
    if verdicts is not None:
        rows = rows.unionByName(verdicts, allowMissingColumns=True)
    return rows.groupBy("dst_key", "dst_bucket").agg(
        *_aggregates(
            {
                "link_url": "min(dst_url)",
                "link_host": "min(dst_host)",
                "link_domain": "min(dst_domain)",
                "link_kind": "max(dst_kind)",
                "link_depth": "min(depth)",
                "link_bits": f"bit_or({outside})",
                "link_seed_priority": "max(seed_priority)",
                "link_lastmod": "max(try_cast(lastmod AS TIMESTAMP))",
                "verdict_hash": "max(verdict_hash)",
                "verdict_of": "max(verdict_of)",
            }
        )
    )


def judged(row: str, rules: RecrawlSettings) -> dict[str, str]:
    """Columns of a row (names prefixed by `row`) under dedup's verdict, which holds while its content is the one that
    was judged. A copy is recrawled rarely; one that is preferred now comes when its own interval says."""
    holds = f"coalesce(verdict_hash = {row}content_hash, false)"
    shown = f"{holds} AND {row}status IN ('fetched', 'duplicate')"
    turned = f"{shown} AND (verdict_of IS NULL) = ({row}status = 'duplicate')"
    rarely = f"{row}last_fetch + make_interval(0, 0, 0, 0, 0, 0, {rules.max_interval_s})"
    again = f"least({row}next_fetch, {row}last_fetch + make_interval(0, 0, 0, 0, 0, 0, {row}fetch_interval_s))"
    due = f"IF(verdict_of IS NULL, {again}, {rarely})"
    return {
        "duplicate_of": f"IF({holds}, verdict_of, {row}duplicate_of)",
        "status": f"IF({shown}, IF(verdict_of IS NULL, 'fetched', 'duplicate'), {row}status)",
        "next_fetch": f"IF({turned} AND coalesce({row}fixed_interval_s, 0) <= 0, {due}, {row}next_fetch)",
    }


def _aggregates(columns: Mapping[str, str]) -> list[Any]:
    from pyspark.sql.functions import expr

    return [expr(f"{sql} AS {name}") for name, sql in columns.items()]


def combined(after: DataFrame, links: DataFrame, hosts: DataFrame, turn: Turn) -> DataFrame:
    """One source row a URL: its fetch, its links, or both. `fetched` tells whether there was an event."""
    at = turn.now_sql
    known = after.withColumnsRenamed({name: f"f_{name}" for name in after.columns})
    both = known.join(links, (known.f_url_key == links.dst_key) & (known.f_bucket == links.dst_bucket), "full")
    names = {"url_key": "dst_key", "bucket": "dst_bucket", "url": "link_url", "host": "link_host"}
    names |= {"domain": "link_domain", "kind": "link_kind"}
    first = {name: f"coalesce(f_{name}, {other})" for name, other in names.items()}
    first["depth"] = "least(coalesce(f_depth, link_depth), coalesce(link_depth, f_depth))"
    first["seed_priority"] = "coalesce(f_seed_priority, link_seed_priority)"
    first["discovered_at"] = f"coalesce(f_discovered_at, {at})"
    rules = turn.settings.recrawl
    own = f"CASE link_kind WHEN 'sitemap' THEN {rules.sitemap_interval_s} WHEN 'feed' THEN {rules.feed_interval_s} END"
    defaults = schema.NEW_URL | {"next_fetch": at, "fixed_interval_s": f"nullif(CAST({own} AS BIGINT), 0L)"}
    verdict = judged("f_", rules)
    for name in facts.COLUMNS:
        blank = defaults.get(name, f"CAST(NULL AS {facts.TYPES[name]})")
        first[name] = f"IF(f_url_key IS NULL, {blank}, {verdict.get(name, f'f_{name}')})"
    columns = [f"{sql} AS {name}" for name, sql in first.items()]
    more = ("coalesce(link_bits, 0L) AS link_bits", "link_depth", "verdict_hash", "verdict_of", "link_lastmod")
    rows = both.selectExpr(*columns, *more, "f_url_key IS NOT NULL AS fetched")
    heard = "coalesce(hints_wrong, 0) <= coalesce(hints_right, 0) AS heard"
    return rows.join(hosts.selectExpr("host", "quality", heard), "host", "left")


def merge_urls(turn: Turn, source: DataFrame) -> tuple[int, int]:
    """The one MERGE into `urls`; returns how many rows were new, and how many changed. Rows of this segment are left
    alone, so a second run changes nothing; an event older than the row's is never laid over it."""
    span = tables.in_buckets(turn.segment.buckets(turn.warehouse.buckets))
    builder = turn.warehouse.merge("urls", source, f"t.{span} AND t.bucket = s.bucket AND t.url_key = s.url_key")
    bits = "t.inlink_bits | s.link_bits"
    linked: dict[str, Any] = {
        "depth": "least(t.depth, coalesce(s.link_depth, t.depth))",
        "inlink_bits": bits,
        "inlinks": inlinks.estimate_sql(f"({bits})"),
    }
    here = f"'{turn.segment}'"
    fetched: dict[str, Any] = {name: f"s.{name}" for name in facts.COLUMNS}
    rank = {
        "seed_priority": "t.seed_priority",
        "inlinks": linked["inlinks"],
        "depth": linked["depth"],
        "quality": "s.quality",
    }
    newer = f"s.fetched AND NOT (t.last_segment <=> {here}) AND NOT coalesce(t.last_fetch > s.last_fetch, false)"
    scores = scored(turn.settings, rank | {"change_count": "s.change_count", "fetch_count": "s.fetch_count"})
    builder = builder.whenMatchedUpdate(newer, {**fetched, **linked, **scores, "last_segment": here})
    moved = "s.link_depth < t.depth OR (s.link_bits & ~t.inlink_bits) <> 0"
    now = turn.now_sql  # see `recrawl.hinted`
    hinted = f"coalesce(s.heard AND s.link_lastmod > t.last_fetch AND s.link_lastmod <= {now}"
    hinted += f" AND t.next_fetch > {now} AND t.status = 'fetched' AND coalesce(t.fixed_interval_s, 0) <= 0, false)"
    turned = "s.verdict_hash = t.content_hash AND NOT (s.verdict_of <=> t.duplicate_of)"
    verdict: dict[str, Any] = judged("t.", turn.settings.recrawl)
    scores = scored(turn.settings, rank | {"change_count": "t.change_count", "fetch_count": "t.fetch_count"})
    verdict["next_fetch"] = f"IF({hinted}, {now}, {verdict['next_fetch']})"
    verdict["hinted_at"] = f"IF({hinted}, {now}, t.hinted_at)"
    builder = builder.whenMatchedUpdate(f"{moved} OR {turned} OR {hinted}", {**linked, **scores, **verdict})
    count = inlinks.estimate_sql("s.link_bits")
    names = ("seed_priority", "depth", "quality", "change_count", "fetch_count")
    scores = scored(turn.settings, {name: f"s.{name}" for name in names} | {"inlinks": count})
    own: dict[str, Any] = {name: f"s.{name}" for name in (*_SAME, *facts.COLUMNS)}
    new = {
        **own,
        **scores,
        "inlink_bits": "s.link_bits",
        "inlinks": count,
        "last_segment": f"IF(s.fetched, {here}, NULL)",
    }
    known = "s.fetched OR s.link_depth IS NOT NULL"  # not where there is a verdict alone
    done = committed(turn, "urls", builder.whenNotMatchedInsert(known, values=new).execute)
    return (0, 0) if done is None else (int(done.num_inserted_rows), int(done.num_updated_rows))


def committed(turn: Turn, table: str, execute: Callable[[], DataFrame]) -> Any:
    """Runs a MERGE as the one commit of this turn into its range of a table; None when it was made before."""
    span = turn.segment.buckets(turn.warehouse.buckets)
    application, number = f"update {span.start}-{span.stop}", turn.entry.turn if turn.entry else 0
    with tables.applied_once(turn.warehouse, table, application, number, str(turn.segment)) as is_new:
        return tables.retry_conflicts(execute).head() if is_new else None


def scored(settings: Settings, columns: Mapping[str, str]) -> dict[str, Any]:
    """score and priority (level) as SQL, the prioritiser's columns read from the given expressions."""
    score = priority.score_sql(settings.priority, columns)
    return {"score": score, "priority": priority.level_sql(score, settings.generate.levels)}


def host_rows(fetches: DataFrame, listed: DataFrame) -> DataFrame:
    """What was learned of each host that was spoken to, one row a host."""
    domains = listed.select("host", "domain").distinct()
    hints = hints_of(fetches, listed)
    tried = fetches.filter("outcome <> 'not_reached'").join(domains, "host", "left")
    network = "outcome IN ('timeout', 'dns_error', 'tls_error', 'connect_error')"
    columns = {
        "bucket": "min(bucket)",
        "domain": "coalesce(min(domain), host)",
        "ip": "max_by(ip, started_at) FILTER (WHERE ip IS NOT NULL)",
        "crawl_delay_s": "max_by(crawl_delay_s, started_at) FILTER (WHERE crawl_delay_s IS NOT NULL)",
        "next_ok_at": "max(next_ok_at)",
        "backoff_level": "coalesce(max_by(backoff_level, started_at) FILTER (WHERE backoff_level IS NOT NULL), 0)",
        "answers": f"count_if(NOT ({network}) AND http_status IS NOT NULL)",
        "failures": f"count_if({network})",
        "requests": "count_if(started_at IS NOT NULL)",
        "useful": "count_if(outcome = 'ok')",
        "mean_fetch_ms": "avg(duration_ms) FILTER (WHERE http_status IS NOT NULL)",
    }
    by_host = tried.groupBy("host").agg(*_aggregates(columns))
    tally = (
        tried.groupBy("host", "outcome")
        .count()
        .groupBy("host")
        .agg(*_aggregates({"outcomes": "map_from_entries(array_sort(collect_list(struct(outcome, count))))"}))
    )
    return by_host.join(tally, "host").join(hints, "host", "left")


def hints_of(fetches: DataFrame, listed: DataFrame) -> DataFrame:
    """Of each host, how often a sitemap's hint that a page had changed was right, and how often wrong."""
    hinted = listed.filter("hinted_at IS NOT NULL").selectExpr("segment", "url_key", "content_hash AS held_hash")
    told = fetches.filter("hop = 0 AND outcome IN ('ok', 'not_modified')").join(hinted, ["segment", "url_key"])
    right = "outcome = 'ok' AND NOT (content_hash <=> held_hash)"
    counts = {"hints_right": f"CAST(count_if({right}) AS INT)", "hints_wrong": f"CAST(count_if(NOT ({right})) AS INT)"}
    return told.groupBy("host").agg(*_aggregates(counts))


def learn_forms(turn: Turn, source: DataFrame) -> int:
    """Notes the forms of URLs whose new pages show one content (`brakes`); how many rows of `traps` that changed."""
    warehouse, span = turn.warehouse, turn.segment.buckets(turn.warehouse.buckets)
    new = source.filter("fetched AND fetch_count = 1 AND status IN ('fetched', 'duplicate')")
    new = new.select("host", "bucket", "url", "simhash", "content_hash")
    known = warehouse.values("traps", {"bucket": list(span)}, schema.columns("traps"))
    work = _learner(known, turn.settings.to_json(), str(turn.segment), turn.now)
    if turn.is_small():
        changed = [row for batch in work(iter(new.toArrow().to_batches())) for row in batch.to_pylist()]
    else:
        ddl = schema.TABLES["traps"].replace(" NOT NULL", "")
        changed = new.repartition("host").mapInArrow(work, ddl).toArrow().to_pylist()
    if changed:
        keys = {(row["host"], row["form"]) for row in changed}
        hosts = sorted({host for host, _ in keys})
        rest = [row for row in known if row["host"] in hosts and (row["host"], row["form"]) not in keys]
        names = ", ".join("'" + host.replace("'", "''") + "'" for host in hosts)
        warehouse.rewrite("traps", f"{tables.in_buckets(span)} AND host IN ({names})", rest + changed)
    return len(changed)


def _learner(known: Sequence[Mapping[str, Any]], settings_json: str, segment: str, now: datetime.datetime) -> Any:
    """The function that runs in Spark's Python worker, hosts whole; it closes over plain values only."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pages = [brakes.NewPage(**row) for batch in batches for row in batch.to_pylist()]
        forms = brakes.learned(map(brakes.of_row, known), pages, from_json(settings_json).brake, segment, now)
        yield pa.RecordBatch.from_pylist([dataclasses.asdict(form) for form in forms], schema=brakes_schema())

    return work


def brakes_schema() -> pa.Schema:
    """Rows of `traps` as Arrow has them."""
    moment = pa.timestamp("us", "UTC")
    kinds = {"STRING": pa.string(), "INT": pa.int32(), "ARRAY<BIGINT>": pa.list_(pa.int64()), "TIMESTAMP": moment}
    fields = (ddl.replace(" NOT NULL", "").split(" ", 1) for ddl in schema.field_ddl("traps"))
    return pa.schema([(name, kinds[kind]) for name, kind in fields])


def merge_hosts(turn: Turn, learned: DataFrame) -> None:
    """Lays what was learned over `hosts`; a row that this segment has written stays as it is."""
    rules, now = turn.settings.recrawl, turn.now_sql
    today, here = f"DATE '{turn.now:%Y-%m-%d}'", f"'{turn.segment}'"
    span = tables.in_buckets(turn.segment.buckets(turn.warehouse.buckets))

    def values(streak: str, quality: str, mean: str, day: str, counts: str) -> dict[str, Any]:
        down = f"s.answers = 0 AND s.failures > 0 AND {streak} >= {rules.max_failures}"
        seconds = f"least({rules.dead_probe_s}, {rules.retry_s} * pow(2, {streak} - 1))"
        wait = f"{now} + make_interval(0, 0, 0, 0, 0, 0, {seconds})"
        waits = f"s.backoff_level > 0 OR {streak} > 0"
        return {
            "state": f"CASE WHEN {down} THEN 'dead' WHEN {waits} THEN 'backing_off' ELSE 'up' END",
            "next_ok_at": "s.next_ok_at",
            "backoff_level": "s.backoff_level",
            "backoff_until": f"CASE WHEN {streak} > 0 THEN {wait} WHEN s.backoff_level > 0 THEN s.next_ok_at END",
            "failure_streak": streak,
            "day": today,
            "fetched_today": day,
            "quality": quality,
            "mean_fetch_ms": mean,
            "outcomes": counts,
            "last_segment": here,
        }

    was = "t.failure_streak + 1"
    streak = f"IF(s.answers = 0 AND s.failures > 0, {was}, 0)"
    share = "IF(s.requests > 0, s.useful / s.requests, NULL)"
    old = values(
        streak,
        f"coalesce(0.5 * t.quality + 0.5 * {share}, {share}, t.quality)",
        "coalesce(0.5 * t.mean_fetch_ms + 0.5 * s.mean_fetch_ms, s.mean_fetch_ms, t.mean_fetch_ms)",
        f"CAST(s.requests + IF(t.day = {today}, t.fetched_today, 0) AS INT)",
        "map_zip_with(t.outcomes, s.outcomes, (k, a, b) -> coalesce(a, 0L) + coalesce(b, 0L))",
    )
    hints = ("hints_right", "hints_wrong")
    added = {name: f"coalesce(t.{name}, 0) + coalesce(s.{name}, 0)" for name in hints}
    seen: dict[str, Any] = {
        **added,
        "ip": "coalesce(s.ip, t.ip)",
        "crawl_delay_s": "coalesce(s.crawl_delay_s, t.crawl_delay_s)",
    }
    new = values(
        "IF(s.answers = 0 AND s.failures > 0, 1, 0)", share, "s.mean_fetch_ms", "CAST(s.requests AS INT)", "s.outcomes"
    )
    given: dict[str, Any] = {name: f"s.{name}" for name in ("host", "bucket", "domain", "ip", "crawl_delay_s", *hints)}
    builder = turn.warehouse.merge("hosts", learned, f"t.{span} AND t.bucket = s.bucket AND t.host = s.host")
    builder = builder.whenMatchedUpdate(f"NOT (t.last_segment <=> {here})", {**old, **seen})
    committed(turn, "hosts", builder.whenNotMatchedInsert(values={**given, **new}).execute)


def event_rows(fetches: DataFrame, turn: Turn) -> DataFrame:
    """page.fetched for each page with a body, by rank of its key; then segment.closed."""
    blob = "concat(warc_file, '#', warc_offset, '+', warc_length)"
    pages = fetches.filter("outcome = 'ok'").selectExpr(
        "row_number() OVER (ORDER BY url_key, hop) AS sequence", "'page.fetched' AS type", "started_at AS at", "url",
        "url_key", "http_status AS status", "content_hash", f"{blob} AS blob_key",
    )  # fmt: skip
    at = turn.now_sql
    empty = "CAST(NULL AS STRING)"
    closed = pages.agg(*_aggregates({"sequence": "coalesce(max(sequence), 0) + 1"})).selectExpr(
        "sequence", "'segment.closed' AS type", f"{at} AS at", f"{empty} AS url", "CAST(NULL AS BIGINT) AS url_key",
        "CAST(NULL AS INT) AS status", f"{empty} AS content_hash", f"{empty} AS blob_key",
    )  # fmt: skip
    return pages.unionByName(closed).selectExpr(f"'{turn.segment}' AS segment", "*")


def links_into(turn: Turn) -> tuple[DataFrame, int]:
    """The links that lead into the range and were not folded yet, and the ledger's place up to which they reach.

    The watermark saves work only: folding a link twice changes nothing.
    """
    warehouse, span = turn.warehouse, turn.segment.buckets(turn.warehouse.buckets)
    mark, entries = watermark(turn, "links_version"), warehouse.ledger.entries()
    expired = {e.segment for e in entries if e.state is State.EXPIRED}  # they change no URL (DESIGN invariant 5)
    unread = [e for e in entries if e.state is State.PARSED and e.seq > mark and e.segment not in expired]
    upto = max((e.seq for e in entries), default=0)
    chosen = sorted({*(e.segment for e in unread), str(turn.segment)})
    used = of_version(entries, chosen)
    if sum(e.counts.get("links", UNKNOWN) for e in unread) <= turn.settings.spark.direct_rows:
        return warehouse.local("links", {"segment": chosen, "dst_bucket": list(span)}).filter(used), upto
    names = ", ".join(f"'{name}'" for name in chosen)
    return warehouse.read("links").filter(f"segment IN ({names}) AND dst_{tables.in_buckets(span)} AND {used}"), upto


def within_cap(links: DataFrame, urls: DataFrame, turn: Turn) -> tuple[DataFrame, int]:
    """The links without those to sitemaps and feeds that a host has too many of, and how many such URLs there are."""
    rows = links.filter("dst_kind <> 'page'").groupBy("dst_host", "dst_key").agg(*_aggregates({"depth": "min(depth)"}))
    named = [(row.dst_host, row.depth, row.dst_key) for row in rows.collect()]
    if not named:
        return links, 0
    hosts = turn.warehouse.spark.createDataFrame([(host,) for host in {row[0] for row in named}], "host STRING")
    found = urls.filter("kind <> 'page'").select("host", "url_key").join(hosts.hint("broadcast"), "host").collect()
    known = [(row.host, row.url_key) for row in found]
    refused = maps.over_cap(named, known, turn.settings.recrawl.maps_per_host)
    if refused:
        links = links.filter(f"dst_key NOT IN ({', '.join(map(str, sorted(refused)))})")
    return links, len(refused)


def of_version(entries: Sequence[Entry], chosen: Sequence[str]) -> str:
    """A predicate for the links that a segment was parsed into when its turn came, not by `parse --reparse` later."""
    versions = {e.segment: e.counts.get("parse_version", 1) for e in entries if e.state is State.PARSED}
    by_version: dict[int, list[str]] = {}
    for name in chosen:
        by_version.setdefault(versions.get(name, 1), []).append(f"'{name}'")
    parts = (f"parse_version = {v} AND segment IN ({', '.join(names)})" for v, names in sorted(by_version.items()))
    return f"({' OR '.join(parts)})"


def also_spoken_to(turn: Turn, fetches: DataFrame, listed: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The fetches and the list of this segment, with those of segments of the range that expired since the last turn:
    they change no URL, but what their journals say of hosts still counts (DESIGN invariant 5)."""
    warehouse, span = turn.warehouse, turn.segment.buckets(turn.warehouse.buckets)
    mark, entries = watermark(turn, "links_version"), warehouse.ledger.entries()
    lapsed = [e for e in entries if e.state is State.EXPIRED and e.seq > mark]
    here = [e.segment for e in lapsed if e.bucket_lo < span.stop and span.start < e.bucket_hi]
    folders = [f"{SegmentId.parse(name).folder}/journal/" for name in here]
    parts = [name for folder in folders for name in warehouse.store.list(folder) if name.endswith(".jsonl")]
    if not parts:
        return fetches, listed
    ddl = "type STRING, " + schema.TABLES["fetches"].replace(" NOT NULL", "")
    records = warehouse.spark.read.schema(ddl).json([f"{warehouse.uri}/{part}" for part in parts])
    spoken = records.filter("type = 'fetch'").filter(tables.in_buckets(span)).select(*schema.columns("fetches"))
    names = ", ".join(f"'{name}'" for name in here)
    old = warehouse.read("fetchlist").filter(f"segment IN ({names})")
    asked = ("segment", "url_key", "host", "domain", "content_hash", "hinted_at")
    return fetches.unionByName(spoken), listed.select(*asked).unionByName(old.select(*asked))


def verdicts_into(turn: Turn) -> tuple[DataFrame | None, int]:
    """What dedup says of URLs of the range and was not folded yet, None where it says nothing; and up to which of its
    runs. To fold a verdict twice changes nothing."""
    warehouse, span = turn.warehouse, turn.segment.buckets(turn.warehouse.buckets)
    upto = copies.done(warehouse.uri)
    rows = copies.verdicts(warehouse.uri, watermark(turn, "copies_version"), upto, span)
    return (tables.frame_of(warehouse.spark, rows) if rows.num_rows else None), upto


def price_of(turn: Turn, urls: DataFrame) -> tuple[float | None, datetime.datetime | None]:
    """What a visit has to gain under the policy `budget`, and since when that holds; None under halve and double. It is
    reckoned from all pages of the range, and kept for `recrawl.replan_s`: one scan of a few columns."""
    rules, warehouse = turn.settings.recrawl, turn.warehouse
    if rules.policy != "budget":
        return None, None
    span = turn.segment.buckets(warehouse.buckets)
    kept = warehouse.values("seen", {"bucket": list(span)}, ["price", "priced_at"])
    if len(kept) == len(span) and all(same == kept[0] for same in kept) and kept[0]["priced_at"] is not None:
        since: datetime.datetime = kept[0]["priced_at"]
        if turn.now - since < datetime.timedelta(seconds=rules.replan_s):
            return kept[0]["price"], since
    interval = f"coalesce(nullif(fetch_interval_s, 0), {rules.initial_interval_s})"
    rate = recrawl.rate_sql("rate_changes", "rate_changed_s", "rate_unchanged_s", interval)
    shown = urls.filter("status IN ('fetched', 'redirected') AND coalesce(fixed_interval_s, 0) <= 0")
    rates = shown.selectExpr(f"CAST(round({recrawl.BARS} * log10({rate})) AS INT) AS bar").groupBy("bar").count()
    bars = [(10 ** (row.bar / recrawl.BARS), row["count"]) for row in rates.collect()]
    per_s = rules.visits_per_day / 86400 * len(span) / warehouse.buckets
    return recrawl.price_for([recrawl.PageClass(bar, 1.0, pages) for bar, pages in bars], per_s, rules), turn.now


def watermark(turn: Turn, name: str) -> int:
    """The place up to which all buckets of the range have folded their links, or verdicts; 0 where one never did."""
    span = turn.segment.buckets(turn.warehouse.buckets)
    marks = turn.warehouse.values("seen", {"bucket": list(span)}, ["bucket", name])
    found = [row[name] or 0 for row in marks]
    return min(found) if len(found) == len(span) else 0


def mark_seen(turn: Turn, marks: Mapping[str, Any]) -> None:
    """Moves the watermarks of the range's buckets, and notes the price."""
    span = turn.segment.buckets(turn.warehouse.buckets)
    rows = [{"bucket": bucket, "filter": None, "rows": 0, **marks} for bucket in span]
    turn.warehouse.rewrite("seen", tables.in_buckets(span), rows)


def run(turn: Turn) -> dict[str, float]:
    """Applies a parsed segment."""
    if not advance(turn.entry, str(turn.segment), State.UPDATED):
        return {}
    warehouse = turn.warehouse
    fetches, listed = turn.rows("fetches"), turn.rows("fetchlist")
    pages, few = turn.rows("pages").select("url_key", "simhash"), turn.is_small()
    with runner.kept(few=few) as keep:  # each of these is used several times, and a batch is small beside the table
        events = keep(events_of(fetches, pages))
        merge_hosts(turn, keep(host_rows(*also_spoken_to(turn, fetches, listed))))
        operators.fold(turn)  # after it: a host blocked meanwhile is blocked, whatever it answered
        links, links_upto = links_into(turn)
        verdicts, copies_upto = verdicts_into(turn)
        urls = warehouse.read_range("urls", turn.segment)
        links, refused = within_cap(links, urls, turn)
        price, priced_at = price_of(turn, urls)
        after = keep(advanced(before_of(events, listed, urls, turn), events, turn, price))
        hosts = warehouse.read_range("hosts", turn.segment)
        source = keep(combined(after, folded(links, verdicts), hosts, turn))
        inserted, changed = merge_urls(turn, source)
        noted = learn_forms(turn, source)
    turn.put("events", event_rows(fetches, turn).coalesce(1))
    here = {"links_version": links_upto, "copies_version": copies_upto, "price": price, "priced_at": priced_at}
    mark_seen(turn, here)
    warehouse.ledger.move(str(turn.segment), State.UPDATED, time.time())
    warehouse.sync_segments()
    return {"new_urls": inserted, "changed_urls": changed, "forms_noted": noted, "rejected.maps_per_host": refused}


def main(argv: Sequence[str] | None = None) -> int:
    parser = runner.arguments("update", "Merge a parsed segment into the URL and host tables.")
    return runner.main("update", parser, _body, argv)


def _body(options: argparse.Namespace) -> int:
    return runner.run_job(options, "update", run)


if __name__ == "__main__":
    sys.exit(main())
