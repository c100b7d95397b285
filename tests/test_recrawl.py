"""Both recrawl policies: the simple rule as a table, the estimator and the allocation against brute force."""

from __future__ import annotations

import itertools
import math
import random
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle import config
from spindle.defaults import default_layer
from spindle.recrawl import (
    MEMORY,
    PageClass,
    Seen,
    Visit,
    best_interval,
    change_rate,
    freshness,
    halve_and_double,
    hinted,
    planned,
    price_for,
    rate_of,
    rate_sql,
    remembered,
)

SETTINGS = config.build([default_layer()]).recrawl
WIDE = replace(SETTINGS, min_interval_s=1, max_interval_s=config.CENTURY_S)  # bounds that never bind
HOUR, DAY = 3600, 86400


# --- halve and double ---


@pytest.mark.parametrize(
    ("interval_s", "changed", "expected", "why"),
    [
        (None, None, DAY, "first sight: the initial interval"),
        (DAY, True, DAY // 2, "changed: half"),
        (DAY, False, 2 * DAY, "unchanged: double"),
        (DAY, None, DAY, "first content under a known interval"),
        (HOUR, True, HOUR, "never below one hour"),
        (HOUR + 1, True, HOUR, "never below one hour"),
        (40 * DAY, False, 60 * DAY, "never above sixty days"),
        (60 * DAY, False, 60 * DAY, "never above sixty days"),
        (600 * DAY, True, 30 * DAY, "one that bounds have since cut is cut before it is halved"),
        (7, False, HOUR, "below the bounds"),
        (0, False, 2 * DAY, "damaged: as if initial"),
        (-DAY, True, DAY // 2, "damaged: as if initial"),
        (2**63 - 1, False, 60 * DAY, "damaged, without overflow"),
    ],
)
def test_halve_and_double(interval_s: int | None, changed: bool | None, expected: int, why: str) -> None:
    assert halve_and_double(interval_s, changed, SETTINGS) == expected, why


def test_steps_are_configurable() -> None:
    gentle = replace(SETTINGS, shrink=0.8, grow=1.4)
    assert halve_and_double(10 * DAY, True, gentle) == 8 * DAY
    assert halve_and_double(10 * DAY, False, gentle) == 14 * DAY


# --- how often does it change ---


def log_likelihood(rate: float, visits: list[Visit]) -> float:
    """Of the visits and of half a changed and half an unchanged one at the mean gap."""
    mean_s = sum(v.gap_s for v in visits) / len(visits)
    weighted = [(v, 1.0) for v in visits] + [(Visit(mean_s, True), 0.5), (Visit(mean_s, False), 0.5)]
    return sum(w * (math.log(-math.expm1(-rate * v.gap_s)) if v.changed else -rate * v.gap_s) for v, w in weighted)


VISITS = st.lists(st.builds(Visit, st.floats(60, 1e7), st.booleans()), min_size=1, max_size=12)


@given(VISITS)
def test_no_other_rate_is_more_likely(visits: list[Visit]) -> None:
    best = change_rate(visits)
    top = log_likelihood(best, visits)
    for factor in (1e-3, 0.1, 0.5, 0.9, 0.99, 1.01, 1.1, 2.0, 10.0):
        assert log_likelihood(best * factor, visits) < top


@pytest.mark.parametrize(("changes", "visits"), [(0, 1), (1, 1), (0, 10), (5, 10), (10, 10), (1, 100)])
def test_even_gaps_give_the_closed_form(changes: int, visits: int) -> None:
    """Cho and Garcia-Molina 2003: -ln((n - X + 0.5) / (n + 1)) / t: half a visit of each kind added to n."""
    history = [Visit(DAY, n < changes) for n in range(visits)]
    assert change_rate(history) == pytest.approx(-math.log((visits - changes + 0.5) / (visits + 1)) / DAY, rel=1e-9)


def test_many_uneven_visits_find_the_true_rate() -> None:
    """Visits that see at most one change each, as a crawler does: the count of changes alone would be 40 % short."""
    rng, true_rate = random.Random(1), 1 / (3 * DAY)
    gaps = [rng.choice([HOUR, DAY, 3 * DAY, 10 * DAY]) for _ in range(4000)]
    visits = [Visit(gap, rng.expovariate(true_rate) < gap) for gap in gaps]
    assert change_rate(visits) == pytest.approx(true_rate, rel=0.06)
    assert sum(v.changed for v in visits) / sum(gaps) < 0.65 * true_rate


@given(VISITS)
def test_units_do_not_matter(visits: list[Visit]) -> None:
    in_hours = [Visit(v.gap_s / HOUR, v.changed) for v in visits]
    assert change_rate(in_hours) == pytest.approx(change_rate(visits) * HOUR, rel=1e-9)


def test_gaps_ten_powers_of_ten_apart_still_converge() -> None:
    visits = [Visit(1.0, True)] * 5 + [Visit(1e10, True)]
    mean_s = (5 + 1e10) / 6
    # all terms but the five short ones vanish: 5 / (e^r - 1) = half the mean gap
    assert change_rate(visits) == pytest.approx(math.log1p(5 / (mean_s / 2)), rel=1e-6)


@pytest.mark.parametrize("visits", [[], [Visit(0, True)], [Visit(-1, True)], [Visit(math.inf, False)]])
def test_no_usable_visit_is_an_error(visits: list[Visit]) -> None:
    with pytest.raises(ValueError, match="change_rate needs"):
        change_rate(visits)


# --- where visits buy most freshness ---


@pytest.mark.parametrize(("rate", "interval_s"), [(1 / DAY, DAY), (1 / DAY, 10 * DAY), (5 / DAY, HOUR), (1e-12, DAY)])
def test_freshness_is_the_mean_of_what_is_still_equal(rate: float, interval_s: float) -> None:
    steps = 20_000  # of the integral of e^-rate t over one interval
    mean = sum(math.exp(-rate * interval_s * (n + 0.5) / steps) for n in range(steps)) / steps
    assert freshness(rate, interval_s) == pytest.approx(mean, rel=1e-6)


def test_freshness_of_what_never_changes() -> None:
    assert freshness(0.0, DAY) == 1.0


def plan(pages: list[tuple[float, float]], visits_per_s: float, settings: config.RecrawlSettings) -> list[int]:
    price = price_for([PageClass(rate, weight, 1) for rate, weight in pages], visits_per_s, settings)
    return [best_interval(rate, weight, price, settings) for rate, weight in pages]


def value(pages: list[tuple[float, float]], intervals: tuple[float, ...] | list[int]) -> float:
    return sum(w * freshness(rate, interval) for (rate, w), interval in zip(pages, intervals, strict=True))


THREE_PAGES = [
    # (changes a day, weight) of each, visits a day for all three
    ([(0.1, 1.0), (0.1, 1.0), (0.1, 1.0)], 0.5),
    ([(0.02, 1.0), (0.3, 1.0), (1.0, 1.0)], 0.7),
    ([(0.02, 1.0), (0.3, 1.0), (30.0, 1.0)], 0.7),  # the third changes too fast to be worth a visit
    ([(0.02, 1.0), (0.3, 1.0), (30.0, 99.0)], 0.7),  # unless it weighs enough
    ([(0.5, 0.2), (0.5, 1.0), (0.5, 5.0)], 1.5),
    ([(1e-4, 1.0), (0.01, 1.0), (2.0, 1.0)], 0.1),
]


@pytest.mark.parametrize(("daily", "visits_a_day"), THREE_PAGES)
def test_plan_equals_the_brute_force_optimum(daily: list[tuple[float, float]], visits_a_day: float) -> None:
    pages, budget = [(rate / DAY, weight) for rate, weight in daily], visits_a_day / DAY
    ours = plan(pages, budget, WIDE)
    assert sum(1 / interval for interval in ours) <= budget * (1 + 1e-9)
    shares = [n / 150 for n in range(151)]
    best = max(
        value(pages, [1 / max(budget * share, 1e-12) for share in (a, b, 1 - a - b)])  # type: ignore[misc]
        for a, b in itertools.product(shares, shares)
        if a + b <= 1
    )
    assert value(pages, ours) >= best - 1e-4
    assert value(pages, ours) <= best + 2e-3  # the grid is near enough to be a test from above as well


def test_too_fast_for_its_weight_gets_no_visits() -> None:
    ours = plan([(0.02 / DAY, 1.0), (0.3 / DAY, 1.0), (30 / DAY, 1.0)], 0.7 / DAY, SETTINGS)
    assert ours[2] == SETTINGS.max_interval_s
    assert ours[1] < ours[0] < ours[2]


@given(
    st.lists(st.tuples(st.floats(1e-9, 1e-2), st.floats(0.01, 10)), min_size=1, max_size=8),
    st.floats(1e-8, 1e-2),
)
def test_budget_is_kept_and_used(pages: list[tuple[float, float]], budget: float) -> None:
    ours = plan(pages, budget, SETTINGS)
    spent = sum(1 / interval for interval in ours)
    if budget < len(pages) / SETTINGS.max_interval_s:
        assert ours == [SETTINGS.max_interval_s] * len(pages)  # even the longest intervals cost more
    elif budget >= len(pages) / SETTINGS.min_interval_s:
        assert ours == [SETTINGS.min_interval_s] * len(pages)  # even the shortest cost less
    else:
        assert 0.998 * budget < spent <= budget * (1 + 1e-9)  # whole seconds take the rest


@given(st.floats(1e-9, 1e-2), st.floats(0.01, 10), st.floats(1, 1e9))
def test_best_interval_is_where_the_next_visit_gains_the_price(rate: float, weight: float, price: float) -> None:
    interval = best_interval(rate, weight, price, WIDE)
    if 100 < interval < WIDE.max_interval_s:  # below, whole seconds are too coarse
        h = 1e-4 / interval
        gain = weight * (freshness(rate, 1 / (1 / interval + h)) - freshness(rate, 1 / (1 / interval - h))) / (2 * h)
        assert gain == pytest.approx(price, rel=0.05, abs=weight / rate * 1e-6)


@given(st.floats(1e-9, 1e-2), st.floats(0.01, 10), st.floats(1e-3, 1e9))
def test_a_higher_price_or_a_lower_weight_never_means_more_visits(rate: float, weight: float, price: float) -> None:
    interval = best_interval(rate, weight, price, SETTINGS)
    assert best_interval(rate, weight, price * 2, SETTINGS) >= interval
    assert best_interval(rate, weight / 2, price, SETTINGS) >= interval


@pytest.mark.parametrize(
    ("rate", "weight", "price", "expected", "why"),
    [
        (1 / DAY, 1.0, 0.0, HOUR, "visits cost nothing"),
        (1 / DAY, 1.0, math.inf, 60 * DAY, "nothing is worth it"),
        (0.0, 1.0, 1.0, 60 * DAY, "never changes"),
        (1 / DAY, 0.0, 1.0, 60 * DAY, "nobody cares"),
        (1e-300, 1.0, 1.0, 60 * DAY, "hardly ever changes"),
    ],
)
def test_corners(rate: float, weight: float, price: float, expected: int, why: str) -> None:
    assert best_interval(rate, weight, price, SETTINGS) == expected, why


def test_price_when_the_budget_binds_nowhere() -> None:
    pages = [PageClass(1 / DAY, 1.0, 1000)]
    assert price_for(pages, 1000 / HOUR, SETTINGS) == 0.0
    assert price_for(pages, 999 / (60 * DAY), SETTINGS) == math.inf
    assert price_for([], 1.0, SETTINGS) == 0.0


# --- what a row remembers ---


@given(st.integers(0, 40), st.integers(0, 40), st.floats(60, 1e7))
def test_three_numbers_say_what_all_visits_at_even_gaps_do(changed: int, unchanged: int, gap_s: float) -> None:
    visits = [Visit(gap_s, n < changed) for n in range(changed + unchanged)]
    seen = Seen(changed, changed * gap_s, unchanged * gap_s)
    if visits:
        assert rate_of(seen, gap_s) == pytest.approx(change_rate(visits), rel=1e-6)
    else:
        assert rate_of(seen, gap_s) == pytest.approx(math.log(2) / gap_s), "nothing known: as likely changed as not"


def test_at_uneven_gaps_three_numbers_come_close() -> None:
    """Gaps over a factor of four, as bounds and waiting spread them."""
    rng, rate = random.Random(5), 1 / DAY
    for trial in range(20):
        gaps = rng.choices([DAY / 2, DAY, 2 * DAY], k=60)
        visits = [Visit(gap, rng.random() < -math.expm1(-rate * gap)) for gap in gaps]
        seen = Seen(0, 0, 0)
        for visit in visits:
            seen = remembered(seen, visit, 2 * DAY)
        assert rate_of(seen, DAY) == pytest.approx(change_rate(visits), rel=0.2), trial


def test_what_is_old_is_forgotten() -> None:
    """A page that changed at each of many visits and then never again is seen to be quiet in due time."""
    seen = Seen(0, 0, 0)
    for _ in range(500):
        seen = remembered(seen, Visit(DAY, True), DAY)
    assert rate_of(seen, DAY) > 3 / DAY
    assert seen.changed_s <= (MEMORY + 1) * DAY
    for _ in range(150):
        seen = remembered(seen, Visit(DAY, False), DAY)
    assert rate_of(seen, DAY) < 0.1 / DAY
    short = remembered(seen, Visit(60, True), DAY)
    assert short.unchanged_s > 0.9 * seen.unchanged_s, "one visit out of turn forgets nothing"


@given(st.floats(0, 60), st.floats(0, 1e9), st.floats(0, 1e9), st.floats(60, 1e7))
def test_rate_in_sql_is_the_same(changes: float, changed_s: float, unchanged_s: float, gap_s: float) -> None:
    sql = rate_sql(*(f"{number!r}" for number in (changes, changed_s, unchanged_s, gap_s)))
    told = eval(re.sub(r"(\d)D", r"\1", sql), {"ln": math.log})
    assert told == pytest.approx(rate_of(Seen(changes, changed_s, unchanged_s), gap_s), rel=1e-6)


@given(st.floats(0, 60), st.floats(0, 1e9), st.floats(0, 1e9), st.floats(0, 1e9))
def test_a_planned_interval_keeps_the_bounds(
    changes: float, changed_s: float, unchanged_s: float, price: float
) -> None:
    interval_s = planned(Seen(changes, changed_s, unchanged_s), DAY, price, SETTINGS)
    assert SETTINGS.min_interval_s <= interval_s <= SETTINGS.max_interval_s


# --- hints of sitemaps ---

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def days(n: float) -> timedelta:
    return timedelta(days=n)


@pytest.mark.parametrize(
    ("lastmod", "right", "wrong", "due_in_days", "why"),
    [
        (NOW - days(1), 0, 0, 0, "changed since our visit, and nobody has lied yet"),
        (NOW - days(1), 5, 5, 0, "right as often as wrong"),
        (NOW - days(1), 5, 6, 9, "wrong more often: not heard"),
        (NOW - days(3), 9, 0, 9, "before our last visit: known"),
        (NOW + days(1), 9, 0, 9, "in the future: no hint"),
        (datetime(2099, 1, 1, tzinfo=UTC), 9, 0, 9, "in the future: no hint"),
        (None, 9, 0, 9, "none given"),
    ],
)
def test_hints_earn_their_trust(lastmod: datetime | None, right: int, wrong: int, due_in_days: int, why: str) -> None:
    assert hinted(NOW + days(9), NOW - days(2), lastmod, NOW, right, wrong) == NOW + days(due_in_days), why


def test_a_hint_never_postpones() -> None:
    assert hinted(NOW - days(1), NOW - days(2), NOW, NOW, 9, 0) == NOW - days(1)
