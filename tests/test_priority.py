"""The prioritiser: each fact moves the score as it should, levels are equal bands, waiting raises both."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle import config
from spindle.defaults import default_layer
from spindle.priority import (
    SCORE_COLUMNS,
    PriorityFacts,
    aged_level,
    aged_level_sql,
    aged_score,
    aged_score_sql,
    level,
    level_sql,
    score,
    score_sql,
)

SETTINGS = config.build([default_layer()]).priority
DAY = 86400
WEEK = 7 * DAY


# --- score ---


@pytest.mark.parametrize(
    ("facts", "expected", "why"),
    [
        (PriorityFacts(1.0, 1023, 0, 1.0, 0.0, True), 1.0, "nothing could be better"),
        (PriorityFacts(1.0, 1023, 0, 1.0, 1.0, False), 1.0, "nor this: changes at each visit"),
        (PriorityFacts(depth=10**9, host_quality=0.0, never_fetched=False), 0.0, "nothing could be worse"),
        (PriorityFacts(), 0.2 + 0.05 + 0.1, "a new URL at depth 0 of an unknown host: depth, half of quality, new"),
        (PriorityFacts(seed_priority=0.5), 0.35 + 0.175, "a person's word"),
        (PriorityFacts(depth=1), 0.25, "half of depth's weight"),
        (PriorityFacts(depth=3), 0.2, "a quarter of it"),
        (PriorityFacts(inlinks=1), 0.35 + 0.025, "one doubling of ten"),
        (PriorityFacts(inlinks=7), 0.35 + 0.075, "three doublings"),
        (PriorityFacts(inlinks=10**9), 0.35 + 0.25, "more than 1023 linking hosts count no more"),
        (PriorityFacts(change_rate=1.0), 0.35, "a URL never fetched has no change rate"),
        (PriorityFacts(change_rate=0.5, never_fetched=False), 0.25 + 0.05, "a change every second visit"),
    ],
)
def test_score(facts: PriorityFacts, expected: float, why: str) -> None:
    assert score(facts, SETTINGS) == pytest.approx(expected, abs=1e-8), why


@pytest.mark.parametrize(
    ("odd", "same_as", "why"),
    [
        (PriorityFacts(seed_priority=math.nan), PriorityFacts(), "NaN is unknown"),
        (PriorityFacts(host_quality=math.nan), PriorityFacts(host_quality=0.5), "unknown is neither good nor bad"),
        (PriorityFacts(seed_priority=7.0), PriorityFacts(seed_priority=1.0), "cut to 1"),
        (PriorityFacts(seed_priority=-7.0), PriorityFacts(seed_priority=0.0), "cut to 0"),
        (PriorityFacts(host_quality=math.inf), PriorityFacts(host_quality=1.0), "cut to 1"),
        (PriorityFacts(inlinks=-5), PriorityFacts(inlinks=0), "cut to 0"),
        (PriorityFacts(depth=-5), PriorityFacts(depth=0), "cut to 0"),
    ],
)
def test_odd_facts(odd: PriorityFacts, same_as: PriorityFacts, why: str) -> None:
    assert score(odd, SETTINGS) == score(same_as, SETTINGS), why


BETTER = [
    ("seed_priority", st.floats(0, 1), 1),
    ("inlinks", st.integers(0, 5000), 1),
    ("depth", st.integers(0, 40), -1),
    ("host_quality", st.floats(0, 1), 1),
    ("change_rate", st.floats(0, 1), 1),
]
FACTS = st.builds(
    PriorityFacts,
    seed_priority=st.none() | st.floats(),
    inlinks=st.integers(-(2**31), 2**31 - 1),
    depth=st.integers(-(2**31), 2**31 - 1),
    host_quality=st.none() | st.floats(),
    change_rate=st.floats(),
    never_fetched=st.booleans(),
)
WEIGHT = st.floats(0, 1)
WEIGHTS = st.builds(config.PrioritySettings, WEIGHT, WEIGHT, WEIGHT, WEIGHT, WEIGHT, WEIGHT)


@pytest.mark.parametrize(("name", "values", "sign"), BETTER)
def test_a_better_fact_never_lowers_the_score(name: str, values: st.SearchStrategy[float], sign: int) -> None:
    @given(FACTS, WEIGHTS, values, values)
    def check(facts: PriorityFacts, weights: config.PrioritySettings, one: float, other: float) -> None:
        low, high = sorted((one, other), key=lambda value: sign * value)
        low_score = score(replace(facts, **{name: low}), weights)  # type: ignore[arg-type]
        assert low_score <= score(replace(facts, **{name: high}), weights)  # type: ignore[arg-type]

    check()


@given(FACTS, WEIGHTS)
def test_score_is_a_share_whatever_the_facts_and_weights(
    facts: PriorityFacts, weights: config.PrioritySettings
) -> None:
    assert 0.0 <= score(facts, weights) <= 1.0
    assert 1 <= level(score(facts, weights), 5) <= 5


def test_no_weights_at_all_make_all_equal() -> None:
    assert score(PriorityFacts(1.0, 99, 0, 1.0), config.PrioritySettings(0, 0, 0, 0, 0, 0)) == 0.0


# --- level ---


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1.0, 1), (0.8, 1), (0.799999, 2), (0.6, 2), (0.4, 3), (0.2, 4), (0.199999, 5), (0.0, 5)],
)
def test_levels_are_equal_bands_with_1_the_highest(value: float, expected: int) -> None:
    assert level(value, 5) == expected


@pytest.mark.parametrize(("value", "expected"), [(-0.1, 5), (1.1, 1), (math.inf, 1), (-math.inf, 5)])
def test_a_score_out_of_range_has_the_nearest_level(value: float, expected: int) -> None:
    assert level(value, 5) == expected


def test_one_level_takes_all() -> None:
    assert {level(n / 10, 1) for n in range(11)} == {1}


# --- waiting ---


@pytest.mark.parametrize(
    ("before", "waiting_s", "after", "why"),
    [
        (5, 0, 5, "just due"),
        (5, WEEK - 1, 5, "not yet a week"),
        (5, WEEK, 4, "a week: one level"),
        (5, 4 * WEEK, 1, "four weeks: the highest"),
        (5, 10**12, 1, "no higher than that, whatever the stored time says"),
        (1, WEEK, 1, "already there"),
        (3, -WEEK, 3, "due in the future (a foreign row): as if just due"),
        (9, 0, 5, "a level beyond the last (written with more levels): the last"),
        (0, 0, 1, "below the first: the first"),
        (-7, 0, 1, "below the first: the first"),
    ],
)
def test_waiting_raises_the_level(before: int, waiting_s: int, after: int, why: str) -> None:
    assert aged_level(before, waiting_s, WEEK, 5) == after, why


def test_a_week_is_worth_one_level_of_score() -> None:
    assert aged_score(0.1, WEEK, WEEK, 5) == pytest.approx(0.3)
    assert aged_score(0.1, 10 * WEEK, WEEK, 5) == pytest.approx(2.1)
    assert aged_score(0.1, -WEEK, WEEK, 5) == 0.1


@given(st.floats(0, 1), st.floats(0, 1), st.integers(0, 10**9))
def test_after_five_weeks_no_newcomer_is_better(old: float, new: float, waiting_s: int) -> None:
    waited = waiting_s + 5 * WEEK
    assert aged_level(5, waited, WEEK, 5) == 1
    assert aged_score(old, waited, WEEK, 5) >= aged_score(new, 0, WEEK, 5)


# --- SQL text (its equality with the functions is tested in Spark, test_generate) ---


def test_sql_reads_the_columns_it_says_or_what_is_put_in_their_place() -> None:
    assert all(name in score_sql(SETTINGS) for name in SCORE_COLUMNS)
    put = {name: f"t.x{n}" for n, name in enumerate(SCORE_COLUMNS)}
    text = score_sql(SETTINGS, put)
    assert all(f"({name})" in text for name in put.values())
    assert not any(name in text for name in SCORE_COLUMNS)


@pytest.mark.parametrize(
    "text",
    [
        score_sql(SETTINGS),
        score_sql(config.PrioritySettings(1e-7, 0, 0, 0, 0, 1)),
        level_sql("score", 5),
        aged_level_sql("priority", "waited", WEEK, 5),
        aged_score_sql("score", "waited", WEEK, 5),
    ],
)
def test_sql_is_one_balanced_expression_without_nan_or_inf(text: str) -> None:
    depth = 0
    for char in text:
        depth += {"(": 1, ")": -1}.get(char, 0)
        assert depth >= 0
    assert depth == 0
    assert "infD" not in text and "nanD" not in text and ";" not in text
