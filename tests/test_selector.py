"""Sharing out a list: quotas, the cut of a histogram, packing of hosts. Tables of cases, then properties."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle import config
from spindle.config import UNLIMITED
from spindle.defaults import default_layer
from spindle.priority import aged_level, aged_score
from spindle.selector import (
    BALANCE,
    Cut,
    HostLoad,
    cuts,
    floors,
    holders,
    level_quotas,
    pack_tasks,
    predicted_ends,
    suffices,
)

SETTINGS = config.build([default_layer()]).generate
SHARES = [50, 25, 13, 8, 4]
PLENTY = [10**6] * 5


# --- quotas ---


@pytest.mark.parametrize(
    ("due", "size", "shares", "expected", "why"),
    [
        (PLENTY, 100, SHARES, [50, 25, 13, 8, 4], "plenty everywhere: the shares"),
        (PLENTY, 1000, SHARES, [500, 250, 130, 80, 40], "plenty everywhere: the shares"),
        ([0, 10**6, 10**6, 10**6, 10**6], 100, SHARES, [0, 50, 26, 16, 8], "level 1 empty: its half flows on"),
        ([10, 10**6, 0, 0, 10**6], 100, SHARES, [10, 78, 0, 0, 12], "what levels 1, 3, 4 cannot use flows on"),
        ([0, 0, 0, 0, 500], 100, SHARES, [0, 0, 0, 0, 100], "only the lowest has any: it gets all"),
        ([1, 2, 3, 4, 5], 100, SHARES, [1, 2, 3, 4, 5], "a list larger than everything"),
        ([1, 2, 3, 4, 5], 15, SHARES, [1, 2, 3, 4, 5], "exactly everything"),
        (PLENTY, 0, SHARES, [0, 0, 0, 0, 0], "a list of size 0"),
        ([0, 0, 0, 0, 0], 100, SHARES, [0, 0, 0, 0, 0], "nothing due"),
        (PLENTY, 5, SHARES, [1, 1, 1, 1, 1], "one each while it is long enough"),
        (PLENTY, 4, SHARES, [2, 1, 1, 0, 0], "too short for one each: by remainder"),
        (PLENTY, 1, SHARES, [1, 0, 0, 0, 0], "too short for one each: by remainder"),
        (
            PLENTY,
            10,
            SHARES,
            [4, 3, 1, 1, 1],
            "10: halves are 5, 2.5, 1.3, .8, .4; the lowest takes its one from above",
        ),
        ([10**6, 10**6], 3, [1, 1], [2, 1], "an even remainder goes to the higher level"),
        ([10**6, 10**6, 0], 10, [0, 1, 5], [0, 10, 0], "no share: nothing while others can use it"),
        ([10**6, 3, 0], 10, [0, 1, 5], [7, 3, 0], "no share: what others cannot use"),
        ([7], 3, [1], [3], "one level"),
        ([10**18, 10**18], 10**18, [1, 2], [333333333333333333, 666666666666666667], "exact in large numbers"),
    ],
)
def test_level_quotas(due: list[int], size: int, shares: list[int], expected: list[int], why: str) -> None:
    assert level_quotas(due, size, shares) == expected, why


@pytest.mark.parametrize(("due", "size", "shares"), [([1], 1, [1, 2]), ([1], -1, [1]), ([-1], 1, [1]), ([1], 1, [-1])])
def test_impossible_numbers_are_refused(due: list[int], size: int, shares: list[int]) -> None:
    with pytest.raises(ValueError):
        level_quotas(due, size, shares)


LEVELS = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 60)), min_size=1, max_size=8)


@given(LEVELS, st.integers(0, 1200))
def test_quotas_fill_the_list_and_starve_nobody(levels: list[tuple[int, int]], size: int) -> None:
    due, shares = [d for d, _ in levels], [s for _, s in levels]
    quotas = level_quotas(due, size, shares)
    assert sum(quotas) == min(size, sum(due))
    assert all(0 <= quota <= d for quota, d in zip(quotas, due, strict=True))
    if size >= len(levels):
        assert all(quota > 0 for quota, d, share in zip(quotas, due, shares, strict=True) if d and share)


@given(LEVELS, st.integers(0, 1200))
def test_a_level_with_enough_due_gets_its_share(levels: list[tuple[int, int]], size: int) -> None:
    due, shares = [d for d, _ in levels], [s for _, s in levels]
    for quota, d, share in zip(level_quotas(due, size, shares), due, shares, strict=True):
        own_part = size * share // max(1, sum(shares))
        assert quota >= min(d, own_part) - len(levels)  # at most one URL goes to each level that would have none


# --- the cut ---


def listed(
    histogram: dict[tuple[int, bool, int], int], found: dict[tuple[int, bool], Cut]
) -> Counter[tuple[int, bool]]:
    """What a reader of the cut takes: whole bins above the edge, a part of the edge."""
    taken: Counter[tuple[int, bool]] = Counter()
    for (level, is_new, score_bin), count in histogram.items():
        cut = found.get((level, is_new))
        if cut and score_bin > cut.edge_bin:
            taken[level, is_new] += count
        elif cut and score_bin == cut.edge_bin:
            assert 0 < cut.of_edge <= count
            taken[level, is_new] += cut.of_edge
    return taken


def test_cut_takes_the_best_bins_and_a_part_of_the_edge() -> None:
    histogram = {(1, False, 900): 10, (1, False, 800): 30, (1, False, 100): 99, (2, False, 700): 500}
    only = replace(SETTINGS, list_size=60)
    # shares 50 : 25 of 60, all recrawls
    assert cuts(histogram, only) == {(1, False): Cut(800, 40, 30), (2, False): Cut(700, 20, 20)}


def test_new_urls_and_recrawls_share_the_list() -> None:
    histogram = {(1, True, 1): 1000, (1, False, 1): 1000}
    assert {of: cut.total for of, cut in cuts(histogram, replace(SETTINGS, list_size=100)).items()} == {
        (1, True): 50,
        (1, False): 50,
    }
    mostly_new = replace(SETTINGS, list_size=100, new_share=0.8)
    assert {of: cut.total for of, cut in cuts(histogram, mostly_new).items()} == {(1, True): 80, (1, False): 20}
    few_new = {(1, True, 1): 7, (1, False, 1): 1000}
    assert {of: cut.total for of, cut in cuts(few_new, mostly_new).items()} == {(1, True): 7, (1, False): 93}


@pytest.mark.parametrize(
    ("histogram", "size", "why"),
    [({}, 100, "nothing due"), ({(1, True, 5): 10}, 0, "a list of size 0"), ({(1, True, 5): 0}, 9, "an empty bar")],
)
def test_nothing_to_list(histogram: dict[tuple[int, bool, int], int], size: int, why: str) -> None:
    assert cuts(histogram, replace(SETTINGS, list_size=size)) == {}, why


@pytest.mark.parametrize("level", [0, 6, -1])
def test_a_level_out_of_range_is_refused(level: int) -> None:
    with pytest.raises(ValueError, match=r"outside 1\.\.5"):
        cuts({(level, True, 1): 1}, SETTINGS)


HISTOGRAMS = st.dictionaries(
    st.tuples(st.integers(1, 5), st.booleans(), st.integers(0, 30)), st.integers(0, 50), max_size=60
)


@given(HISTOGRAMS, st.integers(0, 2000), st.floats(0, 1))
def test_the_list_is_exactly_full(histogram: dict[tuple[int, bool, int], int], size: int, new_share: float) -> None:
    """Exactly top-N, no skew loss."""
    settings = replace(SETTINGS, list_size=size, new_share=new_share)
    found = cuts(histogram, settings)
    taken = listed(histogram, found)
    assert sum(taken.values()) == min(size, sum(histogram.values()))
    assert dict(taken) == {of: cut.total for of, cut in found.items()}


@given(HISTOGRAMS, st.integers(0, 2000), st.randoms())
def test_the_order_of_the_bars_does_not_matter(
    histogram: dict[tuple[int, bool, int], int], size: int, rng: random.Random
) -> None:
    settings = replace(SETTINGS, list_size=size)
    shuffled = list(histogram.items())
    rng.shuffle(shuffled)
    assert cuts(dict(shuffled), settings) == cuts(histogram, settings)


# --- floors ---


def test_floors_leave_plenty_and_spare_the_rest() -> None:
    """A list of 100: 50 places for new URLs, 25 of them for level 1 if both levels have more than enough."""
    settings = replace(SETTINGS, list_size=100, level_shares=[50, 50, 0, 0, 0])
    due = {(1, True, n): 10 for n in range(100)} | {(2, True, n): 10 for n in range(100)} | {(1, False, 7): 60}
    assert floors(due, settings, 4) == {(1, True): 90, (2, True): 90}, "four times 25 are the ten best bars"
    assert floors(due, settings, 1000) == {}, "nothing to spare"
    assert floors({}, settings, 4) == {}


@given(HISTOGRAMS, HISTOGRAMS, st.integers(0, 300), st.integers(1, 4), st.randoms())
def test_what_lies_under_a_floor_would_change_nothing(
    due: dict[tuple[int, bool, int], int],
    held: dict[tuple[int, bool, int], int],
    size: int,
    plenty: int,
    rng: random.Random,
) -> None:
    """Whatever budgets hold back (`held`), and however many of those below are candidates: if what lies above the
    floors suffices, the cuts are those of all candidates."""
    settings = replace(SETTINGS, list_size=size)
    found = floors(due, settings, plenty)
    candidates = {bar: max(0, count - held.get(bar, 0)) for bar, count in due.items()}
    over = {bar: count for bar, count in candidates.items() if bar[2] >= found.get((bar[0], bar[1]), 0)}
    under = {bar: rng.randint(0, due[bar]) for bar in candidates.keys() - over.keys()}
    if suffices(over, due, found, settings):
        assert cuts(over, settings) == cuts(over | under, settings)


# --- starvation, in a small frontier with a clock that is an argument ---


def turns_until_listed(score: float, inflow: int, inflow_score: float, most_turns: int) -> int:
    """Turns (days) until one URL is listed against a stream of others; lists of 10, a backlog of 200 at the start."""
    settings = replace(SETTINGS, list_size=10)
    step, levels = settings.age_level_s, settings.levels
    level_of = {0.9: 1, 0.5: 3, 0.1: 5}
    waiting = [(score, 0, True)] + [(inflow_score, 0, False)] * 200
    for turn in range(1, most_turns + 1):
        rows = []
        for value, since, is_ours in waiting:
            waited = (turn - since) * 86400
            of = aged_level(level_of[value], waited, step, levels), True
            rows.append((of, aged_score(value, waited, step, levels), value, since, is_ours))
        histogram = Counter((of[0], of[1], int(aged * 1000)) for of, aged, *_ in rows)
        found = cuts(histogram, settings)
        rows.sort(key=lambda row: (-row[1], row[4]))  # best first; ours last among equals
        left, places = [], Counter({of: cut.total for of, cut in found.items()})
        for of, _, value, since, is_ours in rows:
            if places[of] > 0:
                places[of] -= 1
                if is_ours:
                    return turn
            else:
                left.append((value, since, is_ours))
        waiting = left + [(inflow_score, turn, False)] * inflow
    return most_turns + 1


@pytest.mark.parametrize("inflow", [0, 10, 20, 40])
@pytest.mark.parametrize(("score", "rival"), [(0.1, 0.9), (0.1, 0.5), (0.5, 0.9), (0.1, 0.1), (0.9, 0.9)])
def test_no_url_starves_whatever_the_load_of_others(score: float, rival: float, inflow: int) -> None:
    """Its level's share brings it in, or after levels x age_level_s (35 days) its age, behind the backlog at most."""
    assert turns_until_listed(score, inflow, rival, 70) <= 35 + 200 / 10 + 1


# --- packing ---


def loads(placed: dict[str, int], hosts: list[HostLoad], tasks: int) -> list[float]:
    sums = [0.0] * tasks
    for host in hosts:
        sums[placed[host.host]] += host.seconds
    return sums


def hosts_of(seconds: list[float], addresses: str = "") -> list[HostLoad]:
    """Hosts h0, h1, ... with one letter of `addresses` each; none, or `-`, is unknown."""
    letters = addresses.ljust(len(seconds), "-")
    return [
        HostLoad(f"h{n}", None if letter == "-" else letter, 1, second)
        for n, (second, letter) in enumerate(zip(seconds, letters, strict=True))
    ]


PACKINGS = [
    # seconds of each host, addresses, tasks, the longest task, why
    ([5.0, 5.0, 5.0, 5.0], "", 2, 10, "even"),
    ([8.0, 7.0, 6.0, 5.0, 4.0], "", 2, 15, "longest first alone gives 17: a swap mends it"),
    ([3.0, 3.0, 2.0, 2.0, 2.0], "", 2, 6, "longest first alone gives 7: a swap mends it"),
    ([100.0, 1.0, 1.0, 1.0], "", 2, 100, "a host that nobody can divide"),
    ([4.0, 4.0, 4.0], "", 5, 4, "more tasks than hosts"),
    ([4.0, 4.0, 4.0, 4.0], "aabb", 2, 8, "addresses together: they fit"),
    ([6.0, 6.0, 6.0, 6.0, 6.0, 6.0], "aabbcc", 2, 18, "three addresses of 12 on two tasks: one is divided"),
    ([1.0] * 12, "a" * 12, 3, 4, "one address for all: divided among the tasks"),
    ([], "", 3, 0, "nothing to fetch"),
    ([7.0], "", 1, 7, "one task"),
]


@pytest.mark.parametrize(("seconds", "addresses", "tasks", "longest", "why"), PACKINGS)
def test_packing(seconds: list[float], addresses: str, tasks: int, longest: float, why: str) -> None:
    hosts = hosts_of(seconds, addresses)
    placed = pack_tasks(hosts, tasks)
    assert set(placed) == {host.host for host in hosts}
    assert max(loads(placed, hosts, tasks)) == longest, why


def test_hosts_of_an_address_stay_together_where_they_fit() -> None:
    rng = random.Random(3)
    hosts = [HostLoad(f"h{n}", f"a{rng.randrange(100)}", 5, rng.uniform(1, 9)) for n in range(1000)]
    placed = pack_tasks(hosts, 4)
    assert set(holders(hosts, placed).values()) == {1}
    assert max(loads(placed, hosts, 4)) <= BALANCE * sum(h.seconds for h in hosts) / 4


def test_a_large_address_is_held_by_as_few_tasks_as_it_takes() -> None:
    """A CDN with 60 % of the work on ten tasks needs six of them."""
    hosts = hosts_of([1.0] * 600, "c" * 600) + [HostLoad(f"other{n}", None, 1, 1.0) for n in range(400)]
    placed = pack_tasks(hosts, 10)
    assert holders(hosts, placed) == {"c": 6}
    assert max(loads(placed, hosts, 10)) == 100


@pytest.mark.parametrize(
    ("most", "held", "longest"), [(UNLIMITED, 6, 100), (8, 6, 100), (6, 6, 100), (5, 5, 120), (1, 1, 600)]
)
def test_an_address_is_held_by_no_more_tasks_than_its_cap_has_parts(most: int, held: int, longest: float) -> None:
    """Its cap of 8 open requests is divided among its holders: nine could not keep to it. Evenness gives way."""
    hosts = hosts_of([1.0] * 600, "c" * 600) + [HostLoad(f"other{n}", None, 1, 1.0) for n in range(400)]
    placed = pack_tasks(hosts, 10, most)
    assert holders(hosts, placed) == {"c": held}
    assert max(loads(placed, hosts, 10)) == longest


def test_hosts_without_an_address_are_no_neighbours() -> None:
    hosts = hosts_of([1.0] * 10)
    placed = pack_tasks(hosts, 5, 1)
    assert set(loads(placed, hosts, 5)) == {2.0} and holders(hosts, placed) == {}


def test_without_delays_urls_are_balanced() -> None:
    hosts = [HostLoad(f"h{n}", None, urls, 0.0) for n, urls in enumerate([50, 30, 20])]
    placed = pack_tasks(hosts, 2)
    assert placed["h1"] == placed["h2"] != placed["h0"]


HOSTS = st.lists(st.tuples(st.sampled_from(["", "a", "b", "c"]), st.floats(0, 100)), max_size=40).map(
    lambda rows: [HostLoad(f"h{n}", address or None, 1, s) for n, (address, s) in enumerate(rows)]
)


@given(HOSTS, st.integers(1, 6), st.randoms())
def test_packing_is_whole_and_the_same_in_any_order(hosts: list[HostLoad], tasks: int, rng: random.Random) -> None:
    placed = pack_tasks(hosts, tasks)
    assert set(placed) == {host.host for host in hosts}
    assert all(0 <= task < tasks for task in placed.values())
    shuffled = list(hosts)
    rng.shuffle(shuffled)
    assert pack_tasks(shuffled, tasks) == placed


@given(HOSTS, st.integers(1, 6))
def test_longest_task_is_at_most_the_mean_and_one_host(hosts: list[HostLoad], tasks: int) -> None:
    """Graham's bound; so small hosts always reach 1.1 times the mean."""
    seconds = [host.seconds for host in hosts]
    mean, largest = sum(seconds) / tasks, max(seconds, default=0.0)
    if largest == 0:
        return
    assert max(loads(pack_tasks(hosts, tasks), hosts, tasks)) <= max(BALANCE * mean, mean + largest) + 1e-9
    if largest <= (BALANCE - 1) * mean:
        assert max(loads(pack_tasks(hosts, tasks), hosts, tasks)) <= BALANCE * mean + 1e-9


def test_small_lists_are_as_even_as_brute_force_nearly_always() -> None:
    uneven = 0
    for seed in range(200):
        rng = random.Random(seed)
        seconds = [float(rng.randint(1, 10)) for _ in range(rng.randint(2, 7))]
        hosts, tasks = hosts_of(seconds, "".join(rng.choice("ab-") for _ in seconds)), rng.randint(2, 3)
        mean = sum(seconds) / tasks
        best = min(
            max(loads(dict(zip((h.host for h in hosts), placed, strict=True)), hosts, tasks))
            for placed in itertools.product(range(tasks), repeat=len(hosts))
        )
        ours = max(loads(pack_tasks(hosts, tasks), hosts, tasks))
        uneven += ours > BALANCE * mean + 1e-9 and best <= BALANCE * mean + 1e-9
    assert uneven <= 1


@pytest.mark.parametrize(
    ("hosts", "tasks", "message"),
    [
        ([], 0, "at least 1"),
        ([HostLoad("h", None, 1, 1.0)] * 2, 1, "named twice"),
        ([HostLoad("h", None, 1, -1.0)], 1, "not negative"),
        ([HostLoad("h", None, 1, float("nan"))], 1, "finite"),
        ([HostLoad("h", None, 1, float("inf"))], 1, "finite"),
    ],
)
def test_impossible_hosts_are_refused(hosts: list[HostLoad], tasks: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pack_tasks(hosts, tasks)


@pytest.mark.parametrize(
    ("seconds", "queues", "ends", "why"),
    [
        ([10.0, 20.0, 30.0], 300, 30.0, "hosts side by side: the longest one"),
        ([10.0, 20.0, 30.0], 1, 60.0, "one after the other"),
        ([10.0] * 40, 20, 20.0, "two rounds of twenty"),
    ],
)
def test_predicted_ends(seconds: list[float], queues: int, ends: float, why: str) -> None:
    loads = [HostLoad(f"h{n}.test", None, 1, s) for n, s in enumerate(seconds)]
    tasks = {load.host: 3 for load in loads} | {"other.test": 0}
    loads.append(HostLoad("other.test", None, 1, 5.0))
    assert predicted_ends(loads, tasks, queues) == {0: 5.0, 3: ends}, why


def test_the_gap_of_an_address_may_be_what_takes_longest() -> None:
    """Ten hosts of three URLs at one address; its gap of 2 s is kept by one task, or twice as long by each of two."""
    hosts = [HostLoad(f"h{n}", "a", 3, 6.0) for n in range(10)]
    together = {load.host: 0 for load in hosts}
    assert predicted_ends(hosts, together, 300, address_gap_s=2.0) == {0: 60.0}
    halves = {load.host: n % 2 for n, load in enumerate(hosts)}
    assert predicted_ends(hosts, halves, 300, address_gap_s=2.0) == {0: 60.0, 1: 60.0}
    assert predicted_ends(hosts, halves, 300) == {0: 6.0, 1: 6.0}
