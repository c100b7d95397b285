"""maps: the cap of sitemaps and feeds a host."""

from __future__ import annotations

import pytest

from spindle.maps import Named, over_cap


@pytest.mark.parametrize(
    ("named", "known", "cap", "refused", "why"),
    [
        ([("a", 1, 1), ("a", 1, 2), ("b", 1, 3)], [], 2, set(), "as many as it may have"),
        ([("a", 1, 1), ("a", 1, 2), ("a", 1, 3)], [], 2, {3}, "one too many"),
        ([("a", 3, 1), ("a", 0, 2), ("a", 1, 3)], [], 2, {1}, "the nearest come first"),
        ([("a", 9, 1), ("a", 0, 1), ("a", 1, 2)], [], 1, {2}, "by the shortest of its ways"),
        ([("a", 0, 1), ("a", 0, 2)], [("a", 8), ("a", 9)], 3, {2}, "those known count"),
        ([("a", 0, 8), ("a", 0, 9)], [("a", 8), ("a", 9)], 1, set(), "... and stay"),
        ([("a", 0, 1), ("b", 0, 2)], [("a", 8)], 1, {1}, "of each host"),
        ([("a", 0, 1)], [], 0, {1}, "none at all"),
        ([("a", 0, n) for n in range(99)], [], -1, set(), "no limit"),
    ],
)
def test_over_cap(named: list[Named], known: list[tuple[str, int]], cap: int, refused: set[int], why: str) -> None:
    assert over_cap(named, known, cap) == refused, why
    assert over_cap(reversed(named), reversed(known), cap) == refused, "in any order"
