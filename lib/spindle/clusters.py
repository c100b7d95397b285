"""Copies that belong together: which cluster a page is in, and which of its copies stands for all. Pure.

A cluster is named by the key of its first copy, for good: its members may come and go, two clusters that turn out to be
one keep both names (the younger's `root` is the elder), and the preferred copy is one row, looked up when read, so that
no member is rewritten when it changes. Pairs come from `nearpairs`; where rows lie is not known here.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class Copy:
    """A page as the search for copies knows it: a row of `copies`. `live`: it has content that can be a copy."""

    url_key: int
    bucket: int
    url: str
    canonical_key: int | None
    discovered_at: datetime
    content_hash: str | None
    simhash: int | None
    live: bool
    cluster: int | None = None
    duplicate: bool = False
    judged: bool = False


@dataclass(frozen=True, slots=True)
class Cluster:
    """A row of `clusters`. `root` is itself, or the elder cluster that it turned out to be one with; `seq` is when it
    was formed."""

    cluster: int
    root: int
    preferred_key: int
    preferred_url: str
    size: int
    seq: int


def preferred(members: Iterable[Copy]) -> Copy:
    """The copy that stands for all: one that another copy names as canonical, then well-formed (NUTCH-2935), https,
    fewest parameters, shortest, oldest; the URL decides a draw. A canonical link to what is no copy is not heard, so
    that no page can speak for a page that says something else."""
    copies = list(members)
    named = {copy.canonical_key for copy in copies if copy.canonical_key not in (None, copy.url_key)}
    return min(copies, key=lambda copy: (copy.url_key not in named, *_rank(copy)))


def _rank(copy: Copy) -> tuple[Any, ...]:
    url = copy.url
    parameters = url.partition("?")[2].count("&") + ("?" in url)
    broken, plain = bool(_BROKEN_ESCAPE.search(url)), not url.startswith("https:")
    return broken, plain, parameters, len(url), copy.discovered_at, url


class _Union:
    """Union-find with path halving; the representative means nothing."""

    def __init__(self) -> None:
        self.parent: dict[Any, Any] = {}

    def find(self, node: Any) -> Any:
        parent = self.parent
        parent.setdefault(node, node)
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    def join(self, one: Any, other: Any) -> None:
        self.parent[self.find(one)] = self.find(other)


def settle(
    fresh: Mapping[int, Copy],
    known: Mapping[int, Copy],
    clusters: Mapping[int, Cluster],
    pairs: Iterable[tuple[int, int]],
    seq: int,
) -> tuple[list[Copy], list[Cluster]]:
    """The rows of `copies` and `clusters` that change.

    `fresh` are pages whose content came, changed or went, with the cluster they were in until now; `known` the other
    live pages that pairs name, and the members of all clusters that either is in (of a cluster too large to be loaded
    its preferred copy at least, which it then keeps). `clusters` has all names of those clusters, and of those that
    bear the key of a page in a pair.
    """
    left = Counter(_root(clusters, page.cluster) for page in fresh.values() if page.cluster is not None)
    copies = [replace(page, cluster=None, duplicate=False, judged=False) for page in fresh.values() if not page.live]
    rows, taken = [], set(clusters)
    for roots, members in _groups(fresh, known, clusters, pairs):
        if not roots and len(members) < 2:
            copies += [_alone(page) for page in members if page.url_key in fresh]
            continue
        name = min(roots, key=lambda root: (clusters[root].seq, root)) if roots else _first(members, fresh, taken)
        taken.add(name)
        joined = sum(page.url_key in fresh or page.cluster is None for page in members)
        size = joined + sum(clusters[root].size - left[root] for root in roots)
        best = _best(members, clusters, roots, size)
        copies += _told(members, fresh, clusters, roots, name, best)
        rows += _rows(clusters, roots, name, best, size, seq)
    return copies, [row for row in rows if clusters.get(row.cluster) != row]


def _alone(page: Copy) -> Copy:
    """Who has left a cluster is told so."""
    if page.cluster is None and not page.duplicate and not page.judged:
        return page  # nearly all pages of a crawl
    return replace(page, cluster=None, duplicate=False, judged=page.cluster is not None)


def _root(clusters: Mapping[int, Cluster], name: int) -> int:
    return clusters[name].root if name in clusters else name


def _groups(
    fresh: Mapping[int, Copy],
    known: Mapping[int, Copy],
    clusters: Mapping[int, Cluster],
    pairs: Iterable[tuple[int, int]],
) -> list[tuple[list[int], list[Copy]]]:
    """Pages and roots of clusters that hang together, in an order that depends on the values alone."""
    union, pages = _Union(), {**known, **fresh}
    live = {key: page for key, page in pages.items() if page.live}
    for row in clusters.values():
        union.find(("cluster", row.root))
    for key, page in live.items():
        union.find(key)
        if key not in fresh and page.cluster is not None:
            union.join(key, ("cluster", _root(clusters, page.cluster)))
    for one, other in pairs:
        if one in live and other in live:
            union.join(one, other)
    found: dict[Any, tuple[list[int], list[Copy]]] = defaultdict(lambda: ([], []))
    for root in sorted({row.root for row in clusters.values()}):
        found[union.find(("cluster", root))][0].append(root)
    for key in sorted(live):
        found[union.find(key)][1].append(live[key])
    return list(found.values())


def _first(members: list[Copy], fresh: Mapping[int, Copy], taken: set[int]) -> int:
    """The key of the first copy: of those known before, if any, the one discovered first. Where that key names another
    cluster, which the page has left, the next copy's; where all do, a key made of the first one's."""
    order = sorted(members, key=lambda page: (page.url_key in fresh, page.discovered_at, page.url_key))
    free = (page.url_key for page in order if page.url_key not in taken)
    name = next(free, order[0].url_key)
    while name in taken:
        name = (name * 6364136223846793005 + 1442695040888963407 + 2**63) % 2**64 - 2**63  # Knuth's MMIX
    return name


def _best(members: list[Copy], clusters: Mapping[int, Cluster], roots: list[int], size: int) -> Copy | None:
    """None where nobody is left. A cluster that is not loaded as a whole keeps its preferred copy."""
    if not members:
        return None
    if len(members) < size:
        kept = {clusters[root].preferred_key for root in roots}
        return preferred([page for page in members if page.url_key in kept] or members)
    return preferred(members)


def _told(
    members: list[Copy],
    fresh: Mapping[int, Copy],
    clusters: Mapping[int, Cluster],
    roots: list[int],
    name: int,
    best: Copy | None,
) -> list[Copy]:
    """The members that came, or are preferred now, or no longer; who was in one of these clusters keeps the name that
    it knows."""
    told = []
    for page in members:
        came = page.url_key in fresh
        stays = page.cluster is not None and (not came or _root(clusters, page.cluster) in roots)
        row = replace(page, cluster=page.cluster if stays else name, duplicate=page is not best, judged=True)
        if came or (row.cluster, row.duplicate) != (page.cluster, page.duplicate):
            told.append(row)
    return told


def _rows(
    clusters: Mapping[int, Cluster], roots: list[int], name: int, best: Copy | None, size: int, seq: int
) -> list[Cluster]:
    names = [row for row in clusters.values() if row.root in roots]
    if not names and best is not None:
        return [Cluster(name, name, best.url_key, best.url, size, seq)]
    told: dict[str, Any] = {} if best is None else {"preferred_key": best.url_key, "preferred_url": best.url}
    return [replace(row, root=name, size=max(0, size), **told) for row in names]
