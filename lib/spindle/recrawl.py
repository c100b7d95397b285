"""When a page is worth another visit. Two policies, and how far a sitemap's `lastmod` is believed.

Halve and double looks at one page. The second policy spends a fixed number of visits where they buy most freshness: it
estimates how often each page changes and asks of every page the same gain for a visit more. This file alone decides
intervals; it knows nothing of rows, status or tables. Rates are changes per second, durations seconds.

Sources: Cho and Garcia-Molina, "Estimating frequency of change" (2003) for the estimator and "Effective page refresh
policies for Web crawlers" (2003) for the freshness of a page visited at even intervals; Azar et al., "Tractable near-
optimal policies for crawling" (PNAS 2018) and Kolobov et al., "Staying up to date with online content changes using
reinforcement learning for scheduling" (NeurIPS 2019) for one price for all pages, found by bisection.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from spindle.config import RecrawlSettings

HALF_A_VISIT = 0.5  # the weight of each of two invented visits, see `change_rate`
MEMORY = 50  # intervals that the statistics of a page look back on
NEWTON_STEPS = 80  # at worst each doubles the rate, then they are quadratic; usually six
BARS = 20  # of a histogram of rates, to a power of ten
FLAT = 8.0  # changes between two visits; from here on the gain of a visit lies within 0.3 % of its limit
FLAT_GAIN = 1 - math.exp(-FLAT) * (1 + FLAT)
BISECTIONS = 60  # of a range of 62 e-folds: beyond the precision of a double


def halve_and_double(interval_s: int | None, changed: bool | None, settings: RecrawlSettings) -> int:
    """The next interval: shrunk after a change, grown after none, within the bounds; `changed` is None at first sight.

    An interval that is missing or not positive (a foreign or damaged row) counts as the initial one.
    """
    known = interval_s if interval_s is not None and interval_s > 0 else settings.initial_interval_s
    factor = {None: 1.0, True: settings.shrink, False: settings.grow}[changed]
    return within_bounds(min(known, settings.max_interval_s) * factor, settings)


def within_bounds(interval_s: float, settings: RecrawlSettings) -> int:
    """Whole seconds between the shortest and the longest interval; infinity is the longest."""
    return int(max(settings.min_interval_s, min(settings.max_interval_s, interval_s)))


class Visit(NamedTuple):
    """One visit that told whether the page had changed since the visit before, `gap_s` seconds earlier."""

    gap_s: float
    changed: bool


def change_rate(visits: Iterable[Visit]) -> float:
    """Changes per second, most likely for visits at uneven gaps to a page that changes as a Poisson process.

    The root r of: sum over changed of t / (e^rt - 1) = sum over unchanged of t. It is infinite when every visit saw
    a change and is 0 when none did, so half a changed and half an unchanged visit of the mean gap are added: the repair
    that Cho and Garcia-Molina give for even gaps. The left side falls and is convex, and the start lies left of the
    root, so that Newton's steps climb to it without overshooting.

    Raises:
        ValueError: no visit, or a gap that is not positive and finite.
    """
    seen = [(gap_s, changed, 1.0) for gap_s, changed in visits]
    if not seen or not all(0 < gap_s < math.inf for gap_s, _, _ in seen):
        raise ValueError("change_rate needs at least one visit, and gaps above 0")
    mean_s = sum(gap_s for gap_s, _, _ in seen) / len(seen)
    seen += [(mean_s, True, HALF_A_VISIT), (mean_s, False, HALF_A_VISIT)]
    changed_gaps = [(gap_s, weight) for gap_s, changed, weight in seen if changed]
    unchanged_s = sum(gap_s * weight for gap_s, changed, weight in seen if not changed)
    rate = sum(w for _, w in changed_gaps) / (unchanged_s + sum(t * w for t, w in changed_gaps) / 2)
    for _ in range(NEWTON_STEPS):
        step = _newton_step(rate, changed_gaps, unchanged_s)
        rate += step
        if step <= 1e-12 * rate:
            break
    return rate


def _newton_step(rate: float, changed_gaps: Sequence[tuple[float, float]], unchanged_s: float) -> float:
    surplus, slope = -unchanged_s, 0.0
    for gap_s, weight in changed_gaps:
        x = min(rate * gap_s, 700.0)  # e^709 is the largest a double holds; the term is nothing long before
        grown = math.expm1(x)
        surplus += weight * gap_s / grown
        slope += weight * gap_s * gap_s * (1 + grown) / (grown * grown)
    return surplus / slope if slope > 0 else 0.0


class Seen(NamedTuple):
    """What three columns of a row keep of all its visits: how many saw a change, and the gaps of those and of the
    others added up. For even gaps nothing is lost by that (the gaps between visits to one page mostly are)."""

    changes: float
    changed_s: float
    unchanged_s: float


def remembered(seen: Seen, visit: Visit, interval_s: float) -> Seen:
    """With one visit more. Of what is older than MEMORY intervals or gaps so much is forgotten in proportion, so that
    a page that changes its ways is seen to."""
    most_s = MEMORY * max(visit.gap_s, interval_s)
    total_s = seen.changed_s + seen.unchanged_s
    kept = min(1.0, most_s / total_s) if total_s > 0 else 1.0
    changes, changed_s, unchanged_s = (number * kept for number in seen)
    if visit.changed:
        return Seen(changes + 1, changed_s + visit.gap_s, unchanged_s)
    return Seen(changes, changed_s, unchanged_s + visit.gap_s)


def rate_of(seen: Seen, gap_s: float) -> float:
    """Changes per second: `change_rate`, its root in closed form, since all gaps that saw a change count as their mean.
    `gap_s` is that of the two invented half visits."""
    half_s = HALF_A_VISIT * gap_s
    changes, changed_s, unchanged_s = seen.changes + HALF_A_VISIT, seen.changed_s + half_s, seen.unchanged_s + half_s
    return changes / changed_s * math.log1p(changed_s / unchanged_s)


def rate_sql(changes: str, changed_s: str, unchanged_s: str, gap_s: str) -> str:
    """SQL twin of `rate_of`."""
    half = f"{HALF_A_VISIT}D"
    with_changed, with_unchanged = (f"({name} + {half} * {gap_s})" for name in (changed_s, unchanged_s))
    return f"(({changes} + {half}) / {with_changed} * ln(1D + {with_changed} / {with_unchanged}))"


def planned(seen: Seen, interval_s: float, price: float, settings: RecrawlSettings) -> int:
    """The interval of the second policy: where a visit more gains `price`."""
    return best_interval(rate_of(seen, interval_s), 1.0, price, settings)


def freshness(rate: float, interval_s: float) -> float:
    """Share of the time that our copy equals the page, with x = rate * interval: (1 - e^-x) / x."""
    x = rate * interval_s
    return -math.expm1(-x) / x if x > 0 else 1.0


class PageClass(NamedTuple):
    """Pages of one change rate and weight; a histogram of rates is a handful of these, however many pages there are."""

    rate: float
    weight: float
    pages: float


def best_interval(rate: float, weight: float, price: float, settings: RecrawlSettings) -> int:
    """The interval at which one visit more would gain `price` of weighted freshness seconds, within the bounds.

    The gain is weight / rate x (1 - e^-x (1 + x)); it never reaches weight / rate, so a page that changes too fast for
    its weight is worth no visit and gets the longest interval.
    """
    if price <= 0:
        return settings.min_interval_s
    if rate <= 0 or weight <= 0:
        return settings.max_interval_s
    x = _inverse_gain(price * rate / weight)
    return within_bounds(x / rate, settings)


def _inverse_gain(share: float) -> float:
    """x with 1 - e^-x (1 + x) = share; infinity for a share of 1 or more.

    That is x - ln(1 + x) = c with c = -ln(1 - share), convex, so Newton's steps fall to x from the upper of the bounds
    sqrt(2c) + 2c/3 < x < sqrt(2c) + c (Chatzigeorgiou, "Bounds on the Lambert function", 2013). Below 1e-8 the left
    side cancels, and the lower bound is as good as a double. Above FLAT the gain hardly depends on x, so that no price
    could tell many visits from none and the budget would be missed: there visits fall in a line to none at 1.
    """
    if share >= 1:
        return math.inf
    if share > FLAT_GAIN:
        return FLAT * (1 - FLAT_GAIN) / (1 - share)
    c = -math.log1p(-share)
    if c < 1e-8:
        return math.sqrt(2 * c) + 2 * c / 3
    x = math.sqrt(2 * c) + c
    for _ in range(4):  # three suffice
        x -= (x - math.log1p(x) - c) * (1 + x) / x
    return x


def price_for(classes: Sequence[PageClass], visits_per_s: float, settings: RecrawlSettings) -> float:
    """The price at which `best_interval` for all pages spends the budget, and never more than it.

    0 when even the shortest intervals cost less. Infinity when the longest already cost more: no price mends that, and
    the list size decides.
    """
    if _spent(classes, 0.0, settings) <= visits_per_s:
        return 0.0
    if _spent(classes, math.inf, settings) > visits_per_s:
        return math.inf
    low, high = math.log(1e-12), math.log(1e15)  # freshness seconds; a century is 3e9, a weight at most some thousands
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if _spent(classes, math.exp(middle), settings) > visits_per_s:
            low = middle
        else:
            high = middle
    return math.exp(high)


def _spent(classes: Iterable[PageClass], price: float, settings: RecrawlSettings) -> float:
    return sum(pages / best_interval(rate, weight, price, settings) for rate, weight, pages in classes)


def hinted(
    next_fetch: datetime, last_fetch: datetime, lastmod: datetime | None, now: datetime, right: int, wrong: int
) -> datetime:
    """The next fetch, brought forward to now when a sitemap says that the page changed after our last visit.

    A hint has to earn its trust: `right` and `wrong` count the host's earlier hints that did and did not find a change,
    and a host that was wrong more often is not heard. A date in the future is no hint.
    """
    if lastmod is None or not last_fetch < lastmod <= now or wrong > right:
        return next_fetch
    return min(next_fetch, now)
