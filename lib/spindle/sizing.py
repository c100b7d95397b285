"""How large a crawl has to be built: from pages a month to requests, hosts, cores, buckets, slices and disk. Pure.

Each line of the answer carries its arithmetic, so that whoever doubts a figure can put in a measurement of his own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MONTH_S, DAY_S = 30 * 86400, 86400


@dataclass(frozen=True, slots=True)
class Wish:
    """What is wanted, and what one page costs. Sizes in bytes, times in seconds unless the name says otherwise."""

    pages_per_month: float
    delay_s: float  # between two requests to one host
    request_s: float = 1.0  # a request's time on the real web, its connection included
    requests_per_page: float = 1.2  # robots.txt, redirects, errors and 304s beside the pages
    cpu_ms_per_page: float = 3.0  # fetch, parse and rows; `make bench` measures it
    busy_share: float = 0.5  # of the cores' time that may be used
    urls_per_page: float = 10.0  # rows of `urls` for each page fetched in a month
    row_bytes: float = 200.0  # of `urls` on disk
    record_bytes: float = 35_000.0  # of a page's WARC records
    rows_per_bucket: float = 10_000_000.0  # DESIGN: 5 to 20 million
    rows_per_slice: float = 20_000_000.0  # what one turn reads
    turns_per_day: float = 4.0  # of each slice
    turn_cpu_s: float = 100.0  # of a turn's generate and update, in the driver and Spark's tasks


@dataclass(frozen=True, slots=True)
class Line:
    """`unit` follows the value; `how` is its arithmetic."""

    what: str
    value: float
    unit: str
    how: str


def plan(wish: Wish) -> list[Line]:
    """The sizes that follow, in the order in which they follow from each other."""
    pages = wish.pages_per_month / MONTH_S
    requests = pages * wish.requests_per_page
    open_requests = requests * wish.request_s
    hosts = requests * (wish.delay_s + wish.request_s)
    rows = wish.pages_per_month * wish.urls_per_page
    buckets = power_of_two(rows / wish.rows_per_bucket)
    slices = min(buckets, power_of_two(rows / wish.rows_per_slice))
    turns = slices * wish.turns_per_day
    listed = pages * DAY_S / turns
    cores = math.ceil((pages * wish.cpu_ms_per_page / 1000 + turns * wish.turn_cpu_s / DAY_S) / wish.busy_share)
    warc, table = wish.pages_per_month * wish.record_bytes / 1e12, rows * wish.row_bytes / 1e12
    whole = f"rows / {wish.rows_per_bucket:,.0f}, a power of two (`warehouse.buckets`, for good)"
    part = f"rows / {wish.rows_per_slice:,.0f} a turn, a power of two (`<run>.1of{slices}` ...)"
    work = f"pages x {wish.cpu_ms_per_page:g} ms + turns x {wish.turn_cpu_s:g} s a day, {wish.busy_share:.0%} busy"
    return [
        Line("pages", pages, "a second", f"{wish.pages_per_month:,.0f} a month / {MONTH_S:,} s"),
        Line("requests", requests, "a second", f"pages x {wish.requests_per_page:g}, with robots.txt and redirects"),
        Line("open requests", open_requests, "at once", f"requests x {wish.request_s:g} s (`fetch.max_open` x tasks)"),
        Line("hosts", hosts, "at work at once", f"requests x ({wish.delay_s:g} s delay + {wish.request_s:g} s)"),
        Line("URLs", rows, "rows", f"pages a month x {wish.urls_per_page:g} known for each (`urls`)"),
        Line("buckets", buckets, "", whole),
        Line("slices", slices, "", part),
        Line("turns", turns, "a day", f"slices x {wish.turns_per_day:g}"),
        Line("list", listed, "URLs a turn", f"pages x {DAY_S:,} s / turns (`generate.list_size`)"),
        Line("cores", cores, "", work),
        Line("WARC files", warc, "TB a month", f"pages x {wish.record_bytes:,.0f} bytes"),
        Line("URL table", table, "TB", f"rows x {wish.row_bytes:,.0f} bytes"),
    ]


def power_of_two(value: float) -> int:
    """The smallest power of two that is not below the value; 1 at least."""
    return int(2 ** max(0, math.ceil(math.log2(value)))) if value > 0 else 1
