"""The law of politeness: how long to leave a host alone, and how many URLs of it a window lets through.

Sums over values; who asks and when is not known here. All spans are seconds, all counts URLs.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum

from spindle.config import UNLIMITED, PolitenessSettings

#: What a 429 doubles where a host has no delay of its own: nothing doubled would be nothing.
BACKOFF_FLOOR_S = 1.0
_MAX_DOUBLINGS = 60  # keeps a level of any size a finite number


class Signal(StrEnum):
    """What an answer says about the host, whatever it said about the URL."""

    OK = "ok"
    THROTTLED = "throttled"  # 429, 503
    FAILED = "failed"  # no answer: DNS, connect, TLS, time-out


@dataclass(frozen=True, slots=True)
class HostState:
    """What is known of a host between turns; the columns of `hosts` under the same names."""

    next_ok_at: float = 0.0
    crawl_delay_s: float | None = None  # of its robots.txt
    limit_delay_s: float | None = None  # of the operator
    backoff_level: int = 0
    backoff_until: float = 0.0
    address: str | None = None
    failure_streak: int = 0


def gap_s(
    settings: PolitenessSettings,
    *,
    crawl_delay_s: float | None = None,
    limit_delay_s: float | None = None,
    duration_s: float = 0.0,
    backoff_level: int = 0,
) -> float:
    """Seconds from the end of one request to a host to the start of the next.

    The largest of minimum, `duration_factor` times the last request (the rule of Mercator; capped) and crawl-delay. An
    operator's limit stands in for the first two, in either direction, but a crawl-delay is never shortened. Each level
    of back-off doubles the result, up to `backoff_max_s`.
    """
    if limit_delay_s is None:
        slow = min(settings.duration_factor * duration_s, settings.max_duration_delay_s)
        base = max(settings.min_delay_s, slow, crawl_delay_s or 0.0)
    else:
        base = max(limit_delay_s, crawl_delay_s or 0.0)
    if backoff_level <= 0:
        return base
    doubled = max(base, BACKOFF_FLOOR_S) * 2.0 ** min(backoff_level, _MAX_DOUBLINGS)
    return max(base, min(doubled, settings.backoff_max_s))


def retry_after_s(value: str | None, now: float) -> float | None:
    """Seconds that a Retry-After header asks for (RFC 9110 10.2.3: seconds, or a date); `now` is Unix time.

    None where it says nothing to be kept: absent, negative, in the past, no number and no date.
    """
    text = (value or "").strip()
    if re.fullmatch(r"[0-9]{1,15}", text):
        return float(text)
    if text.isdigit():
        return math.inf if text.isascii() else None
    try:
        seconds = parsedate_to_datetime(text).timestamp() - now
    except (ValueError, OverflowError, TypeError):
        return None
    return seconds if seconds > 0 else None


def budget(window_s: float, delay_s: float, operator_limit: int = UNLIMITED, rest_of_day: int = UNLIMITED) -> int:
    """URLs of a host for one window: the smallest of what the delay lets through, the operator's limit and the day's.

    The delay always lets one through: a crawl-delay longer than the window slows a host down, it does not shut it out.
    0 is none, UNLIMITED (-1) no bound; a day overspent is 0, so the caller cuts `rest_of_day` there.
    """
    by_delay = UNLIMITED if delay_s <= 0 else max(1, int(window_s / delay_s))
    bounds = [bound for bound in (by_delay, operator_limit, rest_of_day) if bound != UNLIMITED]
    return min(bounds, default=UNLIMITED)


def expected_seconds(urls: int, delay_s: float, mean_fetch_s: float) -> float:
    """Seconds that a host's queue takes from first request to last gap; what hosts are packed into tasks by."""
    return urls * (delay_s + mean_fetch_s)
