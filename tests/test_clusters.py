"""clusters: names that last, one preferred copy, and the same as a naive model through any history."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.clusters import Cluster, Copy, preferred, settle
from spindle.urls import url_key

START = datetime(2026, 1, 1, tzinfo=UTC)


def copy(url: str, content: int = 1, *, age_days: float = 0, canonical: str | None = None, live: bool = True) -> Copy:
    named = None if canonical is None else url_key(canonical)
    return Copy(url_key(url), 0, url, named, START - timedelta(days=age_days), f"{content}", content, live)


@pytest.mark.parametrize(
    ("copies", "wanted", "why"),
    [
        ([copy("http://a.test/x"), copy("https://a.test/x")], "https://a.test/x", "https (NUTCH-2683)"),
        ([copy("http://a.test/?p=1"), copy("http://a.test/a-long-name")], "http://a.test/a-long-name", "parameters"),
        ([copy("http://a.test/?p=1&q=2"), copy("http://a.test/?longer=12")], "http://a.test/?longer=12", "fewer"),
        ([copy("http://a.test/abc"), copy("http://a.test/b")], "http://a.test/b", "shorter"),
        ([copy("http://a.test/b"), copy("http://a.test/c", age_days=1)], "http://a.test/c", "older"),
        ([copy("http://a.test/c"), copy("http://a.test/b")], "http://a.test/b", "a draw is decided by the URL"),
        (
            [copy("http://a.test/a"), copy("http://a.test/a%zz", age_days=9), copy("http://a.test/%", age_days=9)],
            "http://a.test/a",
            "well-formed (NUTCH-2935)",
        ),
        (
            [copy("https://a.test/x"), copy("http://b.test/long-name"), copy("http://c.test/",
                  canonical="http://b.test/long-name")],
            "http://b.test/long-name",
            "another copy calls it canonical",
        ),
        (
            [copy("https://a.test/x"), copy("http://b.test/", canonical="http://b.test/")],
            "https://a.test/x",
            "what a page says of itself does not count",
        ),
        (
            [copy("https://a.test/x", canonical="http://other.test/"), copy("http://b.test/")],
            "https://a.test/x",
            "nor a name that is no copy (stormcrawler#239)",
        ),
    ],
)  # fmt: skip
def test_preferred_copy(copies: list[Copy], wanted: str, why: str) -> None:
    assert preferred(copies).url == wanted, why
    assert preferred(reversed(copies)).url == wanted, "in any order"


def keyed(*pages: Copy) -> dict[int, Copy]:
    return {page.url_key: page for page in pages}


A, B, C, D = (copy(f"http://a.test/{name}", age_days=age) for name, age in (("long", 4), ("bb", 3), ("c", 2), ("d", 1)))


def state(copies: list[Copy], clusters: list[Cluster]) -> tuple[dict[int, Copy], dict[int, Cluster]]:
    return keyed(*copies), {row.cluster: row for row in clusters}


def pair(one: Copy, other: Copy) -> tuple[int, int]:
    return one.url_key, other.url_key


def test_a_cluster_is_named_by_its_first_copy_and_shown_by_its_preferred() -> None:
    copies, clusters = state(*settle(keyed(A, B), {}, {}, [pair(A, B)], 1))
    assert clusters == {A.url_key: Cluster(A.url_key, A.url_key, B.url_key, B.url, 2, 1)}
    assert {key: (row.cluster, row.duplicate, row.judged) for key, row in copies.items()} == {
        A.url_key: (A.url_key, True, True),
        B.url_key: (A.url_key, False, True),
    }


def test_who_was_known_before_comes_first_however_old_the_new_one_is() -> None:
    copies, clusters = state(*settle(keyed(A), keyed(B), {}, [pair(A, B)], 1))
    assert set(clusters) == {B.url_key}
    assert set(copies) == {A.url_key, B.url_key}, "the known one is told of its cluster"


def test_a_new_member_rewrites_itself_and_who_is_preferred_no_more() -> None:
    copies, clusters = state(*settle(keyed(A, B), {}, {}, [pair(A, B)], 1))
    told, rows = settle(keyed(C), copies, clusters, [pair(A, C)], 2)
    assert {row.url_key: row.duplicate for row in told} == {B.url_key: True, C.url_key: False}, "A is left alone"
    assert rows == [Cluster(A.url_key, A.url_key, C.url_key, C.url, 3, 1)]
    assert all(row.cluster == A.url_key for row in told)


def test_two_clusters_that_turn_out_to_be_one_keep_both_names() -> None:
    copies, clusters = state(*settle(keyed(A, B), {}, {}, [pair(A, B)], 1))
    more, others = state(*settle(keyed(C, D), {}, {}, [pair(C, D)], 2))
    bridge = copy("http://a.test/bridge")
    told, rows = settle(keyed(bridge), copies | more, clusters | others, [pair(A, bridge), pair(D, bridge)], 3)
    assert {row.cluster: (row.root, row.preferred_key, row.size) for row in rows} == {
        A.url_key: (A.url_key, C.url_key, 5),
        C.url_key: (A.url_key, C.url_key, 5),
    }
    names = {row.url_key: row.cluster for row in told}
    assert names == {bridge.url_key: A.url_key, B.url_key: A.url_key}, "C and D keep theirs, and are not rewritten"


def test_who_leaves_is_told_and_the_name_stays() -> None:
    copies, clusters = state(*settle(keyed(A, B), {}, {}, [pair(A, B)], 1))
    told, rows = settle(keyed(copies[A.url_key]), {B.url_key: copies[B.url_key]}, clusters, [], 2)
    assert [(row.url_key, row.cluster, row.duplicate, row.judged) for row in told] == [(A.url_key, None, False, True)]
    assert rows == [Cluster(A.url_key, A.url_key, B.url_key, B.url, 1, 1)]
    left, clusters = keyed(*told), {row.cluster: row for row in rows}
    told, rows = settle(keyed(C), left, clusters, [pair(A, C)], 3)
    assert [row.cluster for row in rows] == [C.url_key], "the name of A belongs to a cluster that A has left"


def test_a_page_that_is_gone_is_no_copy_any_more() -> None:
    copies, clusters = state(*settle(keyed(A, B), {}, {}, [pair(A, B)], 1))
    gone = copy(B.url, live=False)
    gone = Copy(**{name: getattr(gone, name) for name in Copy.__slots__} | {"cluster": A.url_key})
    told, rows = settle(keyed(gone), {A.url_key: copies[A.url_key]}, clusters, [], 2)
    assert {row.url_key: (row.cluster, row.duplicate, row.judged) for row in told} == {
        A.url_key: (A.url_key, False, True),
        B.url_key: (None, False, False),
    }
    assert rows == [Cluster(A.url_key, A.url_key, A.url_key, A.url, 1, 1)]


def test_a_cluster_too_large_to_load_keeps_its_preferred_copy() -> None:
    large = {A.url_key: Cluster(A.url_key, A.url_key, B.url_key, B.url, 1_000_000, 1)}
    held = Copy(**{name: getattr(B, name) for name in Copy.__slots__} | {"cluster": A.url_key})
    told, rows = settle(keyed(C), keyed(held), large, [pair(B, C)], 2)
    assert [(row.url_key, row.duplicate) for row in told] == [(C.url_key, True)]
    assert [(row.preferred_key, row.size) for row in rows] == [(B.url_key, 1_000_001)]


#: A history: at each step some pages get a content (0: gone). Contents that differ by one are near copies.
HISTORIES = st.lists(st.dictionaries(st.integers(0, 9), st.integers(0, 9), min_size=1, max_size=5), max_size=8)


class Model:
    """Groups of pages as sets: who changes leaves, who is near to a member joins, groups never fall apart."""

    def __init__(self) -> None:
        self.content: dict[int, int] = {}
        self.groups: list[set[int]] = []

    def step(self, changes: dict[int, int]) -> list[tuple[int, int]]:
        """The pairs that a search would find."""
        self.groups = [group - set(changes) for group in self.groups]
        self.content |= changes
        live = [page for page, content in self.content.items() if content]
        found = [
            (a, b)
            for a, b in combinations(sorted(live), 2)
            if abs(self.content[a] - self.content[b]) <= 1 and (a in changes or b in changes)
        ]
        for both in found:
            touched = [group for group in self.groups if group & set(both)]
            self.groups = [group for group in self.groups if group not in touched]
            self.groups.append(set(both).union(*touched))
        return found


@given(HISTORIES)
def test_any_history_ends_as_in_the_model(history: list[dict[int, int]]) -> None:
    pages = [copy(f"http{'s' * (n % 2)}://a.test/{'p' * (n % 3)}{n}", age_days=n % 4) for n in range(10)]
    number = {page.url_key: n for n, page in enumerate(pages)}
    model, copies, clusters = Model(), dict[int, Copy](), dict[int, Cluster]()
    for seq, changes in enumerate(history):
        fresh = {}
        for n, content in changes.items():
            was = copies.get(pages[n].url_key)
            facts = {name: getattr(pages[n], name) for name in Copy.__slots__}
            facts |= {"content_hash": f"{content}", "live": content > 0, "cluster": was.cluster if was else None}
            fresh[pages[n].url_key] = Copy(**facts)
        found = [(pages[a].url_key, pages[b].url_key) for a, b in model.step(changes)]
        known = {key: page for key, page in copies.items() if key not in fresh}
        told, rows = settle(fresh, known, clusters, found, seq)
        again = settle(fresh, known, clusters, reversed(found), seq)
        assert (sorted(told, key=lambda p: p.url_key), rows) == (sorted(again[0], key=lambda p: p.url_key), again[1])
        names = {key: row.cluster for key, row in copies.items() if key not in fresh and row.cluster is not None}
        copies |= keyed(*told)
        assert set(clusters) <= set(clusters | {row.cluster: row for row in rows})
        clusters |= {row.cluster: row for row in rows}
        assert all(copies[key].cluster == name for key, name in names.items()), "a name never changes"
        check(copies, clusters, {frozenset(group) for group in model.groups if group}, number)


def check(
    copies: dict[int, Copy], clusters: dict[int, Cluster], wanted: set[frozenset[int]], number: dict[int, int]
) -> None:
    members: dict[int, list[Copy]] = {}
    for page in copies.values():
        assert page.live or page.cluster is None
        if page.cluster is not None:
            members.setdefault(clusters[page.cluster].root, []).append(page)
        else:
            assert not page.duplicate
    assert {frozenset(number[page.url_key] for page in group) for group in members.values()} == wanted
    for root, group in members.items():
        best = preferred(group)
        assert [page for page in group if not page.duplicate] == [best]
        for row in clusters.values():
            if row.root == root:
                assert (row.preferred_key, row.preferred_url, row.size) == (best.url_key, best.url, len(group))
