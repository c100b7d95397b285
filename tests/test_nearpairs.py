"""nearpairs: the pairs are those of brute force, whatever the keys; hot keys are bounded and counted."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.fingerprint import distance
from spindle.nearpairs import EXACT, RANGES, Layout, Rows, keys, pairs, ranges, smallest, standing

MANY = 1 << 40  # comparisons: no key is hot
LAYOUTS = [Layout(3, 4), Layout(3, 5), Layout(3, 6), Layout(0, 1), Layout(1, 2), Layout(2, 4)]


def rows_of(pages: list[tuple[int, int, int]], layout: Layout) -> Rows:
    """Rows of all near tables, of (page, value, seq)."""
    made = [(table, value, page, seq) for page, value, seq in pages for table in range(1, len(layout.tables) + 1)]
    columns = list(zip(*made, strict=True)) if made else [[], [], [], []]
    kinds = (np.int32, np.uint64, np.int64, np.int64)
    table, value, page, seq = (np.array(column, kind) for column, kind in zip(columns, kinds, strict=True))
    return Rows(table, value, page, seq, np.zeros(len(made), bool))


def groups_of(found: list[tuple[int, int]], pages: list[int]) -> set[frozenset[int]]:
    """What hangs together by pairs."""
    group = {page: {page} for page in pages}
    for one, other in found:
        both = group[one] | group[other]
        group |= dict.fromkeys(both, both)
    return {frozenset(members) for members in group.values()}


@st.composite
def crowds(draw: st.DrawFn) -> list[int]:
    """Fingerprints round a few centres, up to six bits away: near pairs, pairs just beyond, equal ones."""
    centres = draw(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=4))
    flips = st.lists(st.integers(0, 63), max_size=6)
    found = []
    for centre, bits in draw(st.lists(st.tuples(st.sampled_from(centres), flips), max_size=24)):
        for bit in bits:
            centre ^= 1 << bit
        found.append(centre)
    return found


@given(crowds(), st.sampled_from(LAYOUTS), st.integers(0, 24))
def test_pairs_of_different_fingerprints_are_those_of_brute_force(values: list[int], layout: Layout, old: int) -> None:
    """Manku et al. 2007: none within k bits is missed; none beyond is named; old ones are not paired again."""
    values = list(dict.fromkeys(values))
    pages = [(n, value, 1 if n < old else 2) for n, value in enumerate(values)]
    wanted = {
        (a, b)
        for (a, one, _), (b, other, seq) in combinations(pages, 2)
        if distance(one, other) <= layout.near_bits and seq == 2
    }
    assert set(pairs(rows_of(pages, layout), 1, layout, MANY).pairs) == wanted


@given(crowds(), st.integers(0, 24))
def test_with_equal_fingerprints_the_same_pages_hang_together(values: list[int], old: int) -> None:
    layout = Layout(3, 4)
    pages = [(n, value, 1 if n < old else 2) for n, value in enumerate(values)]
    every = [(a, b) for (a, x, _), (b, y, _) in combinations(pages, 2) if distance(x, y) <= 3]
    first = pairs(rows_of(pages[:old], layout), 0, layout, MANY).pairs
    second = pairs(rows_of(pages, layout), 1, layout, MANY).pairs
    numbers = list(range(len(pages)))
    assert groups_of(first + second, numbers) == groups_of(every, numbers)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.sampled_from(LAYOUTS))
def test_rows_of_one_key_lie_in_one_range(one: int, other: int, layout: Layout) -> None:
    both = np.array([one, other], np.uint64)
    for table in range(len(layout.tables) + 1):
        (a, b), bits = keys(both, layout, table)
        x, y = ranges(both, layout, table)
        assert a < 2**bits and 0 <= x < RANGES
        assert a != b or x == y


@pytest.mark.parametrize("layout", LAYOUTS)
def test_number_of_tables_and_length_of_keys(layout: Layout) -> None:
    assert len(layout.tables) == comb(layout.blocks, layout.near_bits)
    assert layout.key_bits >= 64 * (layout.blocks - layout.near_bits) // layout.blocks - layout.near_bits
    assert len(set(layout.tables)) == len(layout.tables)


@pytest.mark.parametrize(
    ("pages", "blocks", "why"),
    [
        (1e3, 4, "4 tables, 16 bits"),
        (5e6, 4, "2^22 pages, 2^16 keys: 80 a look-up"),
        (5e8, 5, "10 tables, 25 bits"),
        (1e11, 6, "20 tables, 31 bits"),
    ],
)
def test_more_pages_want_longer_keys(pages: float, blocks: int, why: str) -> None:
    layout = smallest(3, pages)
    assert layout.blocks == blocks, why
    assert layout.candidates(pages) / len(layout.tables) < 1000


def test_exact_copies_are_paired_with_the_oldest() -> None:
    rows = Rows(
        np.zeros(5, np.int32),
        np.array([7, 7, 7, 8, 9], np.uint64),
        np.array([30, 10, 20, 40, 50]),
        np.array([2, 2, 1, 2, 1]),
        np.zeros(5, bool),
    )
    assert pairs(rows, 1, Layout(3, 4), MANY).pairs == [(10, 20), (20, 30)]
    assert pairs(rows, 2, Layout(3, 4), MANY).pairs == [], "nothing is new"


@pytest.mark.parametrize(
    ("history", "holds", "why"),
    [
        ([(1, False)], True, "came"),
        ([(1, False), (2, True)], False, "came and went"),
        ([(1, False), (2, True), (3, False)], True, "came back"),
        ([(2, True), (3, False), (1, False)], True, "in any order of rows"),
        ([(1, False), (2, True), (2, False)], True, "taken back and written anew in one run"),
        ([(1, True)], False, "went without having come: no matter"),
    ],
)
def test_the_last_row_of_a_page_holds(history: list[tuple[int, bool]], holds: bool, why: str) -> None:
    seqs, gone = zip(*history, strict=True)
    n = len(history)
    rows = Rows(np.zeros(n, np.int32), np.full(n, 5, np.uint64), np.full(n, 3), np.array(seqs), np.array(gone))
    other = Rows(np.zeros(1, np.int32), np.full(1, 5, np.uint64), np.full(1, 4), np.ones(1, int), np.zeros(1, bool))
    both = standing(Rows(*(np.concatenate(pair) for pair in zip(rows, other, strict=True))))
    assert sorted(both.page.tolist()) == ([3, 4] if holds else [4]), why


def test_a_hot_key_is_bounded_and_counted() -> None:
    """5,000 pages of one template under one key: without a bound 12 million comparisons and more with each batch."""
    rng = np.random.default_rng(1)
    low = rng.integers(0, 1 << 48, 5000, dtype=np.uint64)  # the highest block is 0 for all
    layout = Layout(3, 4)
    new = rows_of([(n, int(value), 2) for n, value in enumerate(low)], layout)
    told = pairs(new, 1, layout, 100_000)
    assert told.compared < 1_000_000 and told.hot_keys == 1 and told.skipped > 10_000_000
    mixed = rows_of([(n, int(value), 1 + (n >= 2500)) for n, value in enumerate(low)], layout)
    told = pairs(mixed, 1, layout, 100_000)
    assert told.compared < 1_000_000 and told.hot_keys == 2 and told.skipped > 5_000_000


def test_equal_fingerprints_are_collapsed_before_anything_is_compared() -> None:
    """100,000 pages that say the same, half of them new, are one comparison, and no hot key."""
    layout = Layout(3, 4)
    n = 100_000
    columns = {table: np.full(n, table, np.int32) for table in range(1, 5)}
    page, seq = np.arange(n), np.repeat([1, 2], n // 2)
    value = np.full(n, 0xABCDEF, np.uint64)
    parts = [Rows(table, value, page, seq, np.zeros(n, bool)) for table in columns.values()]
    told = pairs(Rows(*(np.concatenate(column) for column in zip(*parts, strict=True))), 1, layout, 1000)
    assert (len(told.pairs), told.hot_keys, told.skipped) == (n // 2, 0, 0)
    assert told.pairs[0] == (0, n // 2), "with the oldest"


def test_exact_is_table_zero() -> None:
    assert EXACT == 0
