"""What a person reads after a crawl: one screen, from the tables the crawl wrote (and the demo web's own log)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from spindle.config import Settings
from spindle.tables import Warehouse

QUERIES = (
    "SELECT status, count(*) AS urls FROM urls GROUP BY status ORDER BY urls DESC",
    "SELECT host, count(*) AS requests, round(min(gap_ms)) AS min_gap_ms FROM fetches "
    "GROUP BY host ORDER BY requests DESC LIMIT 10",
    "SELECT u.url, title, inlinks FROM urls u JOIN pages p ON p.url_key = u.url_key AND p.segment = u.last_segment "
    "ORDER BY inlinks DESC, u.url LIMIT 10",
)

_SHOWN = {
    "generate": ("listed", "hosts", "tasks"),
    "fetch": ("fetches", "wire_bytes"),
    "parse": ("pages", "links", "unchanged", "errors"),
    "dedup": ("pages", "pairs", "duplicates"),
    "update": ("new_urls", "changed_urls"),
}


@dataclass(slots=True)
class Crawled:
    """A crawl as its driver saw it."""

    warehouse: Warehouse
    settings: Settings
    began: float
    segments: list[str] = field(default_factory=list)
    fetch_s: float = 0.0
    new_urls: int = 0
    log_path: Path | None = None

    def add(self, number: int, turns: int, segment: str, job: str, counts: Mapping[str, float]) -> None:
        """Notes and prints one job's result."""
        if segment not in self.segments:
            self.segments.append(segment)
        self.fetch_s += counts.get("wall_s", 0) if job == "fetch" else 0
        self.new_urls += int(counts.get("new_urls", 0))
        told = ", ".join(f"{name.replace('_', ' ')} {counts.get(name, 0):,.0f}" for name in _SHOWN[job])
        place = f"turn {number}/{turns}" if number else "rest of it"
        print(f"{place}  {job:8}  {told}  ({counts.get('wall_s', 0):.1f} s)", flush=True)


def show(crawled: Crawled) -> None:
    """Prints the summary."""
    warehouse = crawled.warehouse
    chosen = ", ".join(f"'{segment}'" for segment in crawled.segments)
    fetches = warehouse.read("fetches").filter(f"segment IN ({chosen}) AND outcome <> 'not_reached'").persist()
    outcomes = fetches.groupBy("outcome").count().orderBy("count", ascending=False).collect()
    facts = fetches.selectExpr("sum(wire_bytes) AS wire", "min(gap_ms) AS gap", "count(DISTINCT host) AS hosts").head()
    urls = warehouse.read("urls").selectExpr("count(*) AS n", "count_if(duplicate_of IS NOT NULL) AS copies").head()
    fetches.unpersist()
    console, total = Console(), sum(row["count"] for row in outcomes)
    table = Table(title="pages by outcome", show_header=False, box=None, title_justify="left")
    for row in outcomes:
        table.add_row(row.outcome, f"{row['count']:,}", "#" * max(1, round(40 * row["count"] / max(total, 1))))
    console.print()
    console.print(table)
    if facts is not None and urls is not None:
        _facts(console, crawled, total, facts.asDict(), urls.asDict())
    where = crawled.warehouse.store.root
    console.print(f"\nwarehouse  {where}\nask it:", highlight=False)
    for query in QUERIES:
        console.print(f'  spindle sql --warehouse {where} "{query}"', highlight=False, soft_wrap=True, markup=False)


def _facts(
    console: Console, crawled: Crawled, total: int, facts: Mapping[str, float | None], urls: Mapping[str, int]
) -> None:
    rate = total / crawled.fetch_s if crawled.fetch_s else 0.0
    gap, megabytes = facts["gap"], (facts["wire"] or 0) / 1e6
    lines = {
        "requests": f"{total:,} to {facts['hosts']:,} hosts, {megabytes:,.1f} MB, {rate:,.0f} a second",
        "URL table": f"{urls['n']:,} URLs, {crawled.new_urls:,} found by this crawl, {urls['copies']:,} duplicates",
        "smallest gap": "no host was asked twice"
        if gap is None
        else f"{gap / 1000:.3f} s between two requests to one host",
    }
    if crawled.log_path is not None:
        lines["server's log"] = _server_side(crawled.log_path)
    lines["time"] = f"{time.monotonic() - crawled.began:.0f} s"
    console.print()
    for name, text in lines.items():
        console.print(f"{name:13} {text}", highlight=False)


def _server_side(log_path: Path) -> str:
    """Politeness as the demo web saw it, robots.txt and redirects included."""
    from spindle.demo.log import gaps, overlaps, read_log

    log = read_log(log_path)
    smallest = min(gaps(log).values(), default=None)
    told = "" if smallest is None else f", smallest gap {smallest:.3f} s"
    return f"{len(log):,} requests{told}, {len(overlaps(log))} overlaps"
