"""What a host lets through now, and what its part of a list will take: the SQL of the first, the sum of the second.

Alone decides why a host holds a URL back. Works on the columns of `hosts` and the rank of a URL within its host; it
does not know what the URL is worth (`priority`) or how a list is shared out (`selector`).
"""

from __future__ import annotations

import datetime
import math

from spindle import politeness, sqltext
from spindle.config import UNLIMITED, PolitenessSettings, Settings, SheetSettings

NO_LIMIT = 2**31 - 1
#: Columns of `hosts` that the reason follows from, and those that the expected seconds do.
ASKED = ("state", "paused", "backoff_until", "day", "fetched_today")
PACE = ("crawl_delay_s", "limit_delay_s", "mean_fetch_ms")


#: What sheets set for a host, as the struct `sheet` (null where none applies): fields and SQL types.
SHEET = {"delay_s": "DOUBLE", "host_budget": "INT", "host_day_budget": "INT", "domain_budget": "INT"}


def host_reason_sql(settings: Settings, now: datetime.datetime, *, sheets: bool = False) -> str:
    """Why the host lets a URL of `host_rank` not through at `now`, or null; over `ASKED` and `PACE`, which are null
    for a host never met, and over `SHEET` where there are sheets."""
    limits = settings.generate
    own = f"WHEN host_rank > {limit_sql('host_budget', limits.host_budget, sheets=True)} THEN 'host_budget'"
    day = limit_sql("host_day_budget", limits.host_day_budget, sheets=sheets)
    at = sqltext.instant(now)
    return f"""CASE WHEN state = 'blocked' THEN 'host_blocked'
                    WHEN paused THEN 'host_paused'
                    WHEN backoff_until > {at} THEN 'host_backing_off'
                    WHEN state = 'dead' AND host_rank > 1 THEN 'host_dead'
                    {own if sheets else ""}
                    WHEN host_rank > {day_left_sql(day, now)} THEN 'day_budget'
                    WHEN host_rank > {window_budget_sql(settings)} THEN 'window_budget' END"""


def limit_sql(name: str, usual: int, *, sheets: bool) -> str:
    """A limit in force, unlimited being a number that nothing reaches."""
    number = NO_LIMIT if usual == UNLIMITED else usual
    return f"coalesce(sheet.{name}, {number})" if sheets else str(number)


def sheet_values(limits: SheetSettings) -> dict[str, float | None]:
    """A sheet's limits of a host as `SHEET` wants them."""
    values = {name: getattr(limits, name) for name in SHEET}
    return {name: NO_LIMIT if value == UNLIMITED else value for name, value in values.items()}


def day_left_sql(limit: str, now: datetime.datetime) -> str:
    """What is left of a host's day (UTC)."""
    if limit == str(NO_LIMIT):
        return limit
    return f"{limit} - CASE WHEN day = DATE '{now:%Y-%m-%d}' THEN fetched_today ELSE 0 END"


def window_budget_sql(settings: Settings) -> str:
    """What the host's delay lets through in the fetch window, at least 1 (DESIGN section 3)."""
    rules = settings.politeness
    spent = f"least({rules.max_duration_delay_s}, {rules.duration_factor} * coalesce(mean_fetch_ms, 0) / 1000)"
    own = f"coalesce(limit_delay_s, greatest({rules.min_delay_s}, {spent}))"
    seconds = f"greatest({own}, coalesce(crawl_delay_s, 0)) + coalesce(mean_fetch_ms, 0) / 1000"
    return f"greatest(1, CAST(least({NO_LIMIT}, floor({settings.fetch.window_s} / greatest(1e-9, {seconds}))) AS INT))"


def host_seconds(
    urls: int,
    rules: PolitenessSettings,
    *,
    crawl_delay_s: float | None,
    limit_delay_s: float | None,
    mean_fetch_ms: float | None,
) -> float:
    """Seconds that so many URLs of a host take; a mean that is no duration counts as unknown."""
    mean_s = (mean_fetch_ms or 0.0) / 1000
    mean_s = mean_s if 0 <= mean_s < math.inf else 0.0
    delay = politeness.gap_s(rules, crawl_delay_s=crawl_delay_s, limit_delay_s=limit_delay_s, duration_s=mean_s)
    return politeness.expected_seconds(urls, delay, mean_s)
