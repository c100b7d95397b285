"""What the rows of a task's journal add up to, so that the second step of fetch need not ask the tables. Pure.

This file alone decides which sums a manifest carries; they are those of its parts, earlier attempts included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from typing import Any

from spindle.fetcher.journal import Row


class Tally:
    """`known_origins`: those whose robots.txt the table `robots` has a current row of."""

    def __init__(self, known_origins: Container[str] = ()) -> None:
        self._known_origins = known_origins
        self._outcomes: Counter[str] = Counter()
        self._wire_bytes = 0
        self._min_gap_ms: float | None = None
        self._robots = self._robots_known = 0

    def add(self, row: Row) -> None:
        if row["type"] == "robots":
            self._robots += 1
            self._robots_known += row["origin"] in self._known_origins
            return
        self._outcomes[row["outcome"]] += 1
        self._wire_bytes += row["wire_bytes"] or 0
        if (gap := row["gap_ms"]) is not None and (self._min_gap_ms is None or gap < self._min_gap_ms):
            self._min_gap_ms = gap

    def over(self, rows: Iterable[Row]) -> Iterator[Row]:
        """The rows as they come, each added."""
        for row in rows:
            self.add(row)
            yield row

    def sums(self) -> dict[str, Any]:
        """For the manifest: rows by outcome (hops included), bytes, the smallest gap, records of robots.txt."""
        return {
            "outcomes": {str(outcome): count for outcome, count in self._outcomes.items()},
            "wire_bytes": self._wire_bytes,
            "min_gap_ms": self._min_gap_ms,
            "robots": self._robots,
            "robots_known": self._robots_known,
        }
