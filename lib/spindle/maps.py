"""How many sitemaps and feeds a host may have in `urls`. Pure: what links name, what is known, and what is too much.

Each is read on its own interval for good, so that a host which names a new one on every page would buy itself visits
without end. The nearest to a seed come first; those known stay.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from spindle.config import UNLIMITED

Named = tuple[str, int, int]  # host, depth, key of a sitemap or feed that a link names


def over_cap(named: Iterable[Named], known: Iterable[tuple[str, int]], cap: int) -> set[int]:
    """Keys of those that get no row, so that no host has more than `cap`; `known` are hosts and keys of those with."""
    if cap == UNLIMITED:
        return set()
    have = set(known)
    count = Counter(host for host, _ in have)
    keys = {key for _, key in have}
    new: dict[str, dict[int, int]] = defaultdict(dict)
    for host, depth, key in named:
        if key not in keys:
            new[host][key] = min(depth, new[host].get(key, depth))
    return {
        key
        for host, found in new.items()
        for _, key in sorted((depth, key) for key, depth in found.items())[max(0, cap - count[host]) :]
    }
