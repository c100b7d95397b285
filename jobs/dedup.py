"""dedup: which pages are copies of each other, over all that was ever crawled; its verdicts go to the owners of URLs.

It looks at segments once they are parsed, and needs no JVM: a batch is small beside the history, of which it reads one
span of keys at a time. Verdicts are rows of `copies`, which update folds into `urls`. A run that broke off is simply
repeated: nothing of it counts until its last commit.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from spindle import clusters, nearpairs, runner, tables, urls
from spindle.clusters import Cluster, Copy
from spindle.config import Settings
from spindle.copies import Copies
from spindle.lifecycle import FAILURES, POSTPONING
from spindle.nearpairs import Layout
from spindle.outcome import Outcome
from spindle.segments import Entry, State
from spindle.tables import Warehouse

LEASE_S = 6 * 3600.0  # of a run over one batch; longer than any
_FETCH = ["segment", "url_key", "hop", "bucket", "url", "kind", "outcome", "redirect_to", "started_at", "truncated"]
_FETCH += ["content_hash"]
_PAGE = ["segment", "url_key", "parse_version", "simhash", "canonical"]
_LISTED = ["segment", "url_key", "content_hash", "simhash", "failure_streak", "discovered_at"]
Row = Mapping[str, Any]


def batches(entries: Sequence[Entry], done: int, most_rows: int) -> Iterator[list[Entry]]:
    """Segments that were parsed after the place `done` of the ledger and have not expired, some at a time."""
    expired = {entry.segment for entry in entries if entry.state is State.EXPIRED}
    batch, rows = list[Entry](), 0
    for entry in entries:
        if entry.state is State.PARSED and entry.seq > done and entry.segment not in expired:
            size = _size(entries, entry.segment)
            if batch and rows + size > most_rows:
                yield batch
                batch, rows = [], 0
            batch.append(entry)
            rows += size
    if batch:
        yield batch


def _size(entries: Iterable[Entry], segment: str) -> int:
    return max((entry.counts.get("fetches", 0) for entry in entries if entry.segment == segment), default=0)


def sighted(fetch: Row, page: Row | None, listed: Row | None, known: Copy | None, settings: Settings) -> Copy | None:
    """A page as a fetch leaves it; None where the fetch says nothing of it. `page` is what parse made of the body,
    `listed` the row before the turn, `known` what we knew."""
    outcome = Outcome(fetch["outcome"])
    if outcome in POSTPONING or outcome is Outcome.NOT_REACHED:
        return None
    failed = outcome in FAILURES or (outcome is Outcome.REDIRECT and not fetch["redirect_to"])
    if failed and (listed is None or listed["failure_streak"] + 1 < settings.recrawl.max_failures):
        return None  # not dead yet
    content, held = fetch["content_hash"], listed["content_hash"] if listed else None
    if outcome is Outcome.NOT_MODIFIED:
        content = held
    live = outcome in (Outcome.OK, Outcome.NOT_MODIFIED) and content is not None
    live = live and fetch["truncated"] is None and fetch["kind"] in (None, "page")
    simhash = page["simhash"] if page else listed["simhash"] if listed and held == content else None
    canonical = known.canonical_key if known else None
    if page:
        canonical = urls.url_key(page["canonical"]) if page["canonical"] else None
    since = known.discovered_at if known else (listed or fetch).get("discovered_at")
    return Copy(
        *(fetch["url_key"], fetch["bucket"], fetch["url"], canonical, since or fetch["at"]),
        *(content if live else None, simhash if live else None, live),
        cluster=known.cluster if known else None,
    )


def is_news(page: Copy, known: Copy | None) -> bool:
    """Whether a sighting differs from what we knew."""
    if known is None:
        return page.live
    names = ("live", "content_hash", "simhash", "canonical_key") if page.live else ("live",)
    return any(getattr(page, name) != getattr(known, name) for name in names)


def sightings(warehouse: Warehouse, batch: Sequence[Entry]) -> dict[int, tuple[Row, Row | None, Row | None]]:
    """Of each URL its last fetch, with the page and the row of the list that belong to it."""
    at = {e.segment: datetime.datetime.fromisoformat(warehouse.ledger.pins(e.segment)["now"]) for e in batch}
    here = {"segment": list(at)}
    by_month = here | {"month": sorted({f"{now:%Y-%m}" for now in at.values()})}
    versions = {entry.segment: entry.counts.get("parse_version", 1) for entry in batch}
    pages = {
        (row["segment"], row["url_key"]): row
        for row in warehouse.values("pages", by_month, _PAGE)
        if row["parse_version"] == versions[row["segment"]]
    }
    listed = {(row["segment"], row["url_key"]): row for row in warehouse.values("fetchlist", here, _LISTED)}
    place = {entry.segment: entry.seq for entry in batch}
    found: dict[int, Row] = {}
    rows = (
        {**row, "at": row["started_at"] or at[row["segment"]]} for row in warehouse.values("fetches", by_month, _FETCH)
    )
    for row in sorted(rows, key=lambda row: (place[row["segment"]], row["at"], -row["hop"])):
        if row["outcome"] != Outcome.NOT_REACHED:
            found[row["url_key"]] = row
    return {
        key: (row, pages.get((row["segment"], key)), listed.get((row["segment"], key))) for key, row in found.items()
    }


def paired(copies: Copies, settings: Settings) -> tuple[set[tuple[int, int]], dict[str, int]]:
    """The pairs that the new rows make, one span of keys at a time."""
    found, counts = set[tuple[int, int]](), dict.fromkeys(("compared", "hot_keys", "skipped_pairs"), 0)
    for span in copies.spans(settings.dedup.range_rows):
        told = nearpairs.pairs(copies.standing(span), copies.done, copies.layout, settings.dedup.hot_pairs)
        found.update(told.pairs)
        for name, number in zip(counts, (told.compared, told.hot_keys, told.skipped), strict=True):
            counts[name] += number
    return found, counts


def company(
    copies: Copies, fresh: Mapping[int, Copy], pairs: Iterable[tuple[int, int]], most: int
) -> tuple[dict[int, Copy], dict[int, Cluster]]:
    """What `clusters.settle` wants to know beside the fresh pages: those they are paired with, their clusters, and the
    members of these. Of a cluster of more than `most` only the preferred copy, unless it is that which changes."""
    keys = {key for pair in pairs for key in pair}
    known = copies.records(keys - fresh.keys())
    names = {page.cluster for page in (*fresh.values(), *known.values()) if page.cluster is not None}
    found = copies.clusters(names | keys)
    touched = {found[name].root for name in names if name in found}
    whole = [row.cluster for row in found.values()
             if row.root in touched and (row.size <= most or row.preferred_key in fresh)]  # fmt: skip
    large = [row.preferred_key for row in found.values() if row.root in touched and row.size > most]
    known |= copies.members(whole) | copies.records(large)
    return {key: page for key, page in known.items() if key not in fresh and page.live}, found


def run(warehouse: Warehouse, settings: Settings) -> dict[str, float]:
    """Looks at all segments that were parsed since the last run."""
    layout, total = Layout(settings.dedup.near_bits, settings.dedup.blocks), dict[str, float]()
    copies = Copies.open(warehouse.uri, layout)
    for batch in batches(warehouse.ledger.entries(), copies.done, settings.dedup.batch_rows):
        copies.claim(warehouse.store, time.time(), LEASE_S)
        for name, number in search(warehouse, copies, batch, settings).items():
            total[name] = total.get(name, 0) + number
        copies = replace(copies, done=batch[-1].seq)
    total["compacted"] = copies.compact(settings.dedup.compact_files, settings.dedup.range_rows)
    return total


def search(warehouse: Warehouse, copies: Copies, batch: Sequence[Entry], settings: Settings) -> dict[str, int]:
    """One run: the pages of some segments against all of history, and what follows."""
    seen, seq = sightings(warehouse, batch), batch[-1].seq
    before = copies.records(seen)
    pages = (sighted(*rows, before.get(key), settings) for key, rows in seen.items())
    fresh = {page.url_key: page for page in pages if page and is_news(page, before.get(page.url_key))}
    copies.note(fresh.values(), before, seq)
    pairs, counts = paired(copies, settings) if fresh else (set(), {})
    known, groups = company(copies, fresh, pairs, settings.dedup.cluster_members)
    told, rows = clusters.settle(fresh, known, groups, pairs, seq)
    copies.tell(told, seq)
    copies.finish(rows, seq)
    found = {"segments": len(batch), "pages": len(fresh), "pairs": len(pairs)}
    return found | {"duplicates": sum(page.duplicate for page in told), "clusters": len(rows)} | counts


def main(argv: Sequence[str] | None = None) -> int:
    parser = runner.arguments("dedup", "Find copies among all pages, exact and near.", segment=False)
    return runner.main("dedup", parser, _body, argv)


def _body(options: argparse.Namespace) -> int:
    settings = runner.settings_of(options)
    warehouse = tables.open_direct(options.warehouse)
    print(runner.summary_line("dedup", options.warehouse, measured(warehouse, settings)))
    return 0


def measured(warehouse: Warehouse, settings: Settings) -> dict[str, float]:
    """Runs it and writes its metrics, under the name of the last segment that was looked at."""
    wall, cpu = time.monotonic(), time.process_time()
    counts = run(warehouse, settings)
    counts |= {"wall_s": round(time.monotonic() - wall, 3), "driver_cpu_s": round(time.process_time() - cpu, 3)}
    parsed = [entry.segment for entry in warehouse.ledger.entries() if entry.state is State.PARSED]
    runner.write_metrics(warehouse, parsed[-1] if parsed else "none", "dedup", counts)
    return counts


if __name__ == "__main__":
    sys.exit(main())
