"""Which pages are copies of each other: keys by which no pair within k bits is missed, and the pairs that they find.

Pure: arrays in, arrays out. Blocking after Manku, Jain and Das Sarma, "Detecting near-duplicates for web crawling" (WWW
2007): a SimHash is cut into b blocks; two that differ in at most k bits agree in at least b - k whole blocks, so that
one table for each choice of b - k blocks, keyed by those, holds every such pair under one key. Exact copies are one
table more, keyed by the first 64 bits of the content's hash. Nothing here knows pages, clusters or where rows lie.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spindle.fingerprint import SIMHASH_SCHEME

BITS = 64
RANGE_BITS = 10  # of a key: rows are sorted by these, and worked on one range, or some, at a time
RANGES = 1 << RANGE_BITS
EXACT = 0  # number of the table of exact copies; near ones begin at 1
_TABLE_BITS = 20  # keys up to this are looked up in an array, longer ones searched
_AT_ONCE = 4 << 20  # comparisons; bounds memory to some 150 MB

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Layout(NamedTuple):
    """Near copies differ in at most `near_bits`; keys are all blocks of `blocks` but `near_bits`."""

    near_bits: int
    blocks: int

    @property
    def scheme(self) -> str:
        """The name of what is comparable: fingerprints of one algorithm, keyed in one way."""
        return f"{SIMHASH_SCHEME}/{self.near_bits}of{self.blocks}"

    @property
    def tables(self) -> list[tuple[int, ...]]:
        """The blocks that make the key of each near table, in order; table 1 is the first."""
        return list(combinations(range(self.blocks), self.blocks - self.near_bits))

    @property
    def key_bits(self) -> int:
        """The shortest key. A look-up meets 2^(log2 pages - key_bits) fingerprints: it should reach log2 of them."""
        return min(sum(_width(block, self.blocks) for block in chosen) for chosen in self.tables)

    def candidates(self, pages: float) -> float:
        """Fingerprints compared with one new page among so many random ones, all tables together."""
        return sum(pages / 2.0 ** sum(_width(b, self.blocks) for b in chosen) for chosen in self.tables)


def smallest(near_bits: int, pages: float) -> Layout:
    """The layout with the fewest tables whose keys are at most 8 bits shorter than log2 of the pages, so that a page
    is compared with some hundred others a table."""
    for blocks in range(near_bits + 1, near_bits + 5):
        if Layout(near_bits, blocks).key_bits >= math.log2(max(2.0, pages)) - 8:
            break
    return Layout(near_bits, blocks)


def _width(block: int, blocks: int) -> int:
    return (block + 1) * BITS // blocks - block * BITS // blocks


def keys(values: U64, layout: Layout, table: int) -> tuple[U64, int]:
    """The key of each value in a table, and how many bits it has."""
    if table == EXACT:
        return values, BITS
    key, bits = np.zeros(len(values), np.uint64), 0
    for block in layout.tables[table - 1]:
        low, width = block * BITS // layout.blocks, _width(block, layout.blocks)
        part = (values >> np.uint64(low)) & np.uint64((1 << width) - 1)
        key, bits = (key << np.uint64(width % BITS)) | part if width < BITS else part, bits + width
    return key, bits


def ranges(values: U64, layout: Layout, table: int) -> npt.NDArray[np.int32]:
    """The range of each value's key: its highest bits."""
    key, bits = keys(values, layout, table)
    return (key >> np.uint64(bits - RANGE_BITS)).astype(np.int32)


class Rows(NamedTuple):
    """Rows of `fingerprints`, parallel arrays. Of one table, value and page the row of the highest `seq` holds; of one
    `seq` that which is not gone."""

    table: npt.NDArray[np.int32]
    value: U64
    page: I64
    seq: I64
    gone: Mask

    def where(self, chosen: Mask | I64) -> Rows:
        return Rows(*(column[chosen] for column in self))  # type: ignore[arg-type] # each of its own kind

    def joined_to(self, other: Rows) -> Rows:
        return Rows(
            np.concatenate((self.table, other.table)),
            np.concatenate((self.value, other.value)),
            np.concatenate((self.page, other.page)),
            np.concatenate((self.seq, other.seq)),
            np.concatenate((self.gone, other.gone)),
        )


def standing(rows: Rows) -> Rows:
    """The rows that hold: the last of each table, value and page, unless that one says that the page is gone."""
    if not rows.gone.any():
        return rows
    doubtful = _is_in(rows.page, np.unique(rows.page[rows.gone]))
    some = rows.where(doubtful)
    order = np.lexsort((~some.gone, some.seq, some.value, some.page, some.table))
    some = some.where(order)
    last = np.ones(len(order), bool)
    same = [column[1:] == column[:-1] for column in (some.table, some.value, some.page)]
    last[:-1] = ~np.logical_and.reduce(same)
    kept = some.where(last & ~some.gone)
    return rows.where(~doubtful).joined_to(kept)


class Found(NamedTuple):
    """Pairs of pages, one of them new; and what hot keys made it leave out."""

    pairs: list[tuple[int, int]]
    compared: int = 0
    hot_keys: int = 0
    skipped: int = 0


def pairs(rows: Rows, after: int, layout: Layout, hot_pairs: int) -> Found:
    """All pairs of copies in standing rows of which one came with a `seq` beyond `after`. Pages of equal fingerprints
    are collapsed first: each new one is paired with the oldest, which alone is compared with others."""
    found, compared, hot, skipped = set[tuple[int, int]](), 0, 0, 0
    for table in range(len(layout.tables) + 1):
        part = rows.where(rows.table == table)
        is_new = part.seq > after
        if not is_new.any():
            continue
        new, first_new = np.unique(part.value[is_new], return_index=True)
        if table <= 1:  # each page with a SimHash is in all near tables: once is enough
            found |= _equal(part, new, is_new)
        if table == EXACT:
            continue
        pages = part.page[is_new][first_new]
        hits, told = _near(new, pages, part.where(~is_new), layout, table, hot_pairs)
        found |= hits
        compared, hot, skipped = compared + told[0], hot + told[1], skipped + told[2]
    return Found(sorted(found), compared, hot, skipped)


def _equal(part: Rows, new: U64, is_new: Mask) -> set[tuple[int, int]]:
    """Each new page with the oldest page of its value."""
    same = _is_in(part.value.view(np.int64), new.view(np.int64))
    some, fresh = part.where(same), is_new[same]
    order = np.lexsort((some.page, some.seq, some.value))
    some, fresh = some.where(order), fresh[order]
    starts = np.ones(len(order), bool)
    starts[1:] = some.value[1:] != some.value[:-1]
    oldest = some.page[np.maximum.accumulate(np.where(starts, np.arange(len(order)), 0))]
    chosen = fresh & (some.page != oldest)
    return _pairs_of(some.page[chosen], oldest[chosen])


def _near(
    new: U64, pages: I64, old: Rows, layout: Layout, table: int, hot_pairs: int
) -> tuple[set[tuple[int, int]], tuple[int, int, int]]:
    """New values against each other and against old ones under the same key."""
    new_keys, bits = keys(new, layout, table)
    order = np.argsort(new_keys, kind="stable")
    new, pages, new_keys = new[order], pages[order], new_keys[order]
    found, own = _among(new, pages, new_keys, layout.near_bits, hot_pairs)
    old_keys, _ = keys(old.value, layout, table)
    low, high = _slices(new_keys, old_keys, bits)
    meets = high > low
    value, page, low, high = old.value[meets], old.page[meets], low[meets], high[meets]
    (value, page, low, high), hot, skipped = _cooled(value, page, low, high, hot_pairs)
    hits, compared = _compared(new, pages, value, page, low, high, layout.near_bits)
    return found | hits, (own[0] + compared, own[1] + hot, own[2] + skipped)


def _among(
    new: U64, pages: I64, new_keys: U64, near_bits: int, hot_pairs: int
) -> tuple[set[tuple[int, int]], tuple[int, int, int]]:
    """New values against those behind them under the same key, of a hot key against the next few only."""
    place = np.arange(len(new))
    high = np.searchsorted(new_keys, new_keys, "right")
    size = high - np.searchsorted(new_keys, new_keys, "left")
    reach = np.maximum(1, hot_pairs // np.maximum(size, 1))
    cut = np.minimum(high, place + 1 + reach)
    hits, compared = _compared(new, pages, new, pages, place + 1, cut, near_bits)
    is_hot = cut < high
    return hits, (compared, len(np.unique(new_keys[is_hot])), int((high - cut).sum()))


def _slices(new_keys: U64, old_keys: U64, bits: int) -> tuple[I64, I64]:
    """For each old key the slice of equal keys among the sorted new ones."""
    if bits > _TABLE_BITS:
        low = np.searchsorted(new_keys, old_keys, "left")
        return low.astype(np.int64), np.searchsorted(new_keys, old_keys, "right").astype(np.int64)
    counts = np.bincount(new_keys.astype(np.int64), minlength=1 << bits)
    ends = np.cumsum(counts)
    at = old_keys.astype(np.int64)
    return (ends - counts)[at], ends[at]


def _cooled(value: U64, page: I64, low: I64, high: I64, hot_pairs: int) -> tuple[tuple[U64, I64, I64, I64], int, int]:
    """Under keys that ask for too many comparisons the old values are collapsed, and cut if that is not enough."""
    if not len(low):
        return (value, page, low, high), 0, 0
    load = np.bincount(low, weights=(high - low).astype(float))  # a key is known by the start of its slice
    hot_starts = np.flatnonzero(load > hot_pairs)
    if not len(hot_starts):
        return (value, page, low, high), 0, 0
    is_hot = _is_in(low, hot_starts.astype(np.int64))
    kept, cut, skipped = [np.flatnonzero(~is_hot)], 0, 0
    for start in hot_starts:
        here = np.flatnonzero(low == start)
        here = here[np.unique(value[here], return_index=True)[1]]
        room = max(1, hot_pairs // int(high[here[0]] - start))
        cut, skipped = cut + (len(here) > room), skipped + max(0, len(here) - room) * int(high[here[0]] - start)
        kept.append(here[:room])
    chosen = np.concatenate(kept)
    return (value[chosen], page[chosen], low[chosen], high[chosen]), cut, skipped


def _compared(
    new: U64, pages: I64, value: U64, page: I64, low: I64, high: I64, near_bits: int
) -> tuple[set[tuple[int, int]], int]:
    """Pairs within `near_bits` of each value with the new ones of its slice; of equal values one pair."""
    found, counts = set[tuple[int, int]](), high - low
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    start = 0
    while start < len(counts):
        done = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, done + _AT_ONCE, "right")))
        here = counts[start:stop]
        left = np.repeat(np.arange(start, stop), here)
        steps = np.arange(int(here.sum())) - np.repeat(np.cumsum(here) - here, here)
        right = low[left] + steps
        near = np.bitwise_count(value[left] ^ new[right]) <= near_bits
        left, right = left[near], right[near]
        _, once = np.unique(np.stack((right.astype(np.uint64), value[left])), axis=1, return_index=True)
        found |= _pairs_of(pages[right[once]], page[left[once]])
        start = stop
    return found, total


def _pairs_of(one: I64, other: I64) -> set[tuple[int, int]]:
    """Without pairs of a page with itself; the smaller key first."""
    apart = one != other
    low, high = np.minimum(one, other)[apart], np.maximum(one, other)[apart]
    return set(zip(low.tolist(), high.tolist(), strict=True))


def _is_in(values: I64, wanted: I64) -> Mask:
    """By hashing: numpy would sort all of them."""
    found: Mask = pc.is_in(pa.array(values), value_set=pa.array(wanted)).to_numpy(zero_copy_only=False)
    return found
