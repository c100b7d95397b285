"""The division of a round's list: what a log tells of what is due, and parts that add up."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rows import NOW, ago
from spindle.rounds import FileFacts, due_by_bucket, part_of

FILES = [
    # rows, deleted, never fetched, first, last; rows that count as due; why
    (100, 0, 0, ago(20), ago(10), 100, "all due"),
    (100, 0, 0, ago(-10), ago(-20), 0, "none yet"),
    (100, 0, 0, ago(30), ago(-10), 75, "spread evenly: three quarters"),
    (100, 0, 20, ago(10), ago(-10), 60, "who was never fetched is due"),
    (100, 50, 0, ago(30), ago(-10), 38, "half of them are deleted"),
    (100, 100, 0, ago(20), ago(10), 0, "all are"),
    (100, 0, 100, None, None, 100, "nobody has a time"),
    (100, 0, 0, ago(0), ago(0), 100, "due this very moment"),
    (0, 0, 0, None, None, 0, "an empty file"),
    (None, 0, None, None, None, 0, "no statistics"),
]


@pytest.mark.parametrize(("rows", "deleted", "unfetched", "first", "last", "due", "why"), FILES)
def test_due_of_a_file(
    rows: int | None,
    deleted: int,
    unfetched: int | None,
    first: datetime.datetime | None,
    last: datetime.datetime | None,
    due: int,
    why: str,
) -> None:
    facts = FileFacts(1, rows, deleted, unfetched, first, last)
    assert due_by_bucket([facts], 3, NOW) == [0, due, 0], why
    assert due_by_bucket([facts, facts, facts._replace(bucket=0)], 3, NOW)[1] in (2 * due, 2 * due - 1), "files add up"


PARTS = [
    (100, [1, 1, 1, 1], [range(4)], [100]),
    (100, [1, 1, 1, 1], [range(2), range(2, 4)], [50, 50]),
    (100, [0, 0, 10, 30], [range(2), range(2, 3), range(3, 4)], [0, 25, 75]),
    (10, [0, 0, 0], [range(1), range(1, 2), range(2, 3)], [3, 3, 4]),
    (0, [5, 5], [range(1), range(1, 2)], [0, 0]),
    (1, [5, 5], [range(1), range(1, 2)], [0, 1]),
]


@pytest.mark.parametrize(("size", "due", "spans", "parts"), PARTS)
def test_parts(size: int, due: list[int], spans: list[range], parts: list[int]) -> None:
    assert [part_of(size, due, span) for span in spans] == parts


@given(st.integers(0, 10**6), st.lists(st.integers(0, 10**9), min_size=1, max_size=40), st.data())
def test_parts_add_up_and_follow_the_work(size: int, due: list[int], data: st.DataObject) -> None:
    ends = sorted(data.draw(st.sets(st.integers(1, len(due)))) | {len(due)})
    spans = [range(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    parts = [part_of(size, due, span) for span in spans]
    assert sum(parts) == size and min(parts) >= 0
    if total := sum(due):
        for span, part in zip(spans, parts, strict=True):
            assert abs(part - size * sum(due[span.start : span.stop]) / total) <= 1
