"""How a round's list is divided among its slices: by the work that is due in each, as Delta's log lets one estimate it.

A round is the slices of one run. Its list size is divided once, when its first slice opens, and pinned, so that the
parts of its slices add up to it whatever happens in between. Alone decides the estimate and the division; it reads
nothing. Within a slice the list is exact and in order; between slices only their sizes are balanced.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple


class FileFacts(NamedTuple):
    """What the log says of one file of `urls`: rows, how many of them are deleted, how many were never fetched, and
    between which times its rows are due. None: the file has no statistics."""

    bucket: int
    rows: int | None
    deleted: int
    unfetched: int | None
    first: datetime | None
    last: datetime | None


def due_by_bucket(files: Iterable[FileFacts], buckets: int, now: datetime) -> list[int]:
    """Rows due at `now`, bucket by bucket. What was never fetched is due; the times of the rest count as spread evenly
    between the file's first and last, and deleted rows as spread evenly over both; a file without times is due, one
    without statistics holds nothing.
    """
    due = [0.0] * buckets
    for file in files:
        rows = file.rows or 0
        alive = max(0.0, 1 - file.deleted / rows) if rows else 0.0
        new = rows if file.first is None else min(file.unfetched or 0, rows)
        due[file.bucket] += alive * (new + (rows - new) * _share_before(now, file.first, file.last))
    return [round(number) for number in due]


def _share_before(now: datetime, first: datetime | None, last: datetime | None) -> float:
    if first is None or last is None or now < first:
        return 0.0
    if now >= last:
        return 1.0
    return (now - first) / (last - first)


def part_of(list_size: int, due: Sequence[int], span: range) -> int:
    """The part of a round's list that the buckets of `span` get. Spans that follow each other without a gap have parts
    that add up to `list_size`; where nothing is due anywhere, buckets share alike."""
    work = list(due) if any(due) else [1] * len(due)
    total = sum(work)
    upto = [list_size * sum(work[:end]) // total for end in (span.start, span.stop)]
    return upto[1] - upto[0]
