"""How a fetch list is shared out: among levels, among new URLs and recrawls, and, host by host, among fetch tasks.

Works on counts only: how many are due, how many lie in each bar of a histogram, how many seconds a host takes. It
never sees a URL, so its memory does not grow with what is due. It does not know what makes a URL worth its level
(`priority`). The same numbers give the same answer, in whatever order they come.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from spindle.config import UNLIMITED, GenerateSettings

# --- quotas ---


def level_quotas(due_per_level: Sequence[int], list_size: int, shares: Sequence[int]) -> list[int]:
    """How many URLs each level lists; in all min(list_size, everything due).

    Biased, not strict (Mercator's front queues): a level has its share of the list, and what it cannot use flows to the
    others by their shares, at last to levels of share 0. Whole numbers by largest remainder, the higher level first. A
    level with a share and anything due gets at least 1 while the list is long enough for all of them.

    Raises:
        ValueError: one list is longer than the other, or a number is negative.
    """
    if len(due_per_level) != len(shares):
        raise ValueError(f"{len(due_per_level)} levels, but {len(shares)} shares")
    if min(list_size, *due_per_level, *shares, 0) < 0:
        raise ValueError("list size, due URLs and shares must not be negative")
    quotas = _filled(list(due_per_level), list_size, list(shares))
    rest = list_size - sum(quotas)
    if rest > 0:  # only levels of share 0 have anything left
        left = [due - quota for due, quota in zip(due_per_level, quotas, strict=True)]
        quotas = [q + more for q, more in zip(quotas, _filled(left, rest, [1] * len(left)), strict=True)]
    return _with_one_each(quotas, due_per_level, shares)


def _filled(due: list[int], size: int, shares: list[int]) -> list[int]:
    """Shares of `size`; levels that have less due than their part are emptied, and the rest is shared out anew."""
    quotas = [0] * len(due)
    open_levels = [n for n in range(len(due)) if due[n] and shares[n]]
    while open_levels:
        total = sum(shares[n] for n in open_levels)
        emptied = [n for n in open_levels if due[n] * total <= size * shares[n]]
        if not emptied:
            return _rounded(quotas, size, open_levels, shares)
        for n in emptied:
            quotas[n] = due[n]
        size -= sum(due[n] for n in emptied)
        open_levels = [n for n in open_levels if n not in emptied]
    return quotas


def _rounded(quotas: list[int], size: int, levels: list[int], shares: list[int]) -> list[int]:
    total = sum(shares[n] for n in levels)
    for n in levels:
        quotas[n] = size * shares[n] // total
    missing = size - sum(quotas[n] for n in levels)
    for n in sorted(levels, key=lambda n: (-(size * shares[n] % total), n))[:missing]:
        quotas[n] += 1
    return quotas


def _with_one_each(quotas: list[int], due: Sequence[int], shares: Sequence[int]) -> list[int]:
    waiting = [n for n in range(len(due)) if due[n] and shares[n]]
    if sum(quotas) < len(waiting):
        return quotas
    for n in waiting:
        if quotas[n] == 0:
            richest = max(range(len(quotas)), key=lambda m: (quotas[m], m))
            quotas[richest] -= 1
            quotas[n] = 1
    return quotas


# --- the cut ---


class Cut(NamedTuple):
    """What one class (level, new or not) lists: `total` rows; all of the bins above `edge_bin`, and `of_edge` of it."""

    edge_bin: int
    total: int
    of_edge: int


Class = tuple[int, bool]  # level, and whether its URLs were never fetched


def cuts(histogram: Mapping[tuple[int, bool, int], int], settings: GenerateSettings) -> dict[Class, Cut]:
    """The cut of each class, from the number of candidates by (level, never fetched, score bin; higher is better).

    First the list is shared between new URLs and recrawls (`new_share`), then each part among its levels
    (`level_shares`). Classes that list nothing are left out. The totals add up to min(list_size, candidates).

    Raises:
        ValueError: a level outside 1..levels.
    """
    bars: dict[Class, dict[int, int]] = defaultdict(dict)
    for (level, is_new, score_bin), count in histogram.items():
        if not 1 <= level <= settings.levels:
            raise ValueError(f"level {level} lies outside 1..{settings.levels}")
        bars[level, is_new][score_bin] = count
    quotas = _class_quotas({of: sum(counts.values()) for of, counts in bars.items()}, settings)
    return {of: _cut(bars[of], quota) for of, quota in sorted(quotas.items()) if quota}


def floors(due: Mapping[tuple[int, bool, int], int], settings: GenerateSettings, plenty: int) -> dict[Class, int]:
    """Class -> the bin below which its URLs need not be looked at: from there up lie `plenty` times what the class
    could list. Classes that hold less than that have no floor."""
    bars: dict[Class, dict[int, int]] = defaultdict(dict)
    for (level, is_new, score_bin), count in due.items():
        bars[level, is_new][score_bin] = count
    quotas = _class_quotas({of: sum(counts.values()) for of, counts in bars.items()}, settings)
    return {
        of: _cut(bars[of], quota * plenty).edge_bin
        for of, quota in quotas.items()
        if quota and quota * plenty < sum(bars[of].values())
    }


def suffices(
    candidates: Mapping[tuple[int, bool, int], int],
    due: Mapping[tuple[int, bool, int], int],
    above: Mapping[Class, int],
    settings: GenerateSettings,
) -> bool:
    """Whether the candidates above the floors fill all that the list could take of their classes; then those below
    would change nothing, and the cut is the same as if all had been looked at."""
    found, whole = _by_class(candidates), _by_class(due)
    quotas = _class_quotas({of: whole[of] if of in above else found.get(of, 0) for of in whole}, settings)
    return all(found.get(of, 0) >= quotas[of] for of in above)


def _by_class(bars: Mapping[tuple[int, bool, int], int]) -> dict[Class, int]:
    sums: dict[Class, int] = defaultdict(int)
    for (level, is_new, _), count in bars.items():
        sums[level, is_new] += count
    return sums


def _class_quotas(due: Mapping[Class, int], settings: GenerateSettings) -> dict[Class, int]:
    levels = range(1, settings.levels + 1)
    by_kind = {is_new: [due.get((level, is_new), 0) for level in levels] for is_new in (True, False)}
    new_weight = round(settings.new_share * 1_000_000)
    totals = [sum(by_kind[True]), sum(by_kind[False])]
    parts = level_quotas(totals, settings.list_size, [new_weight, 1_000_000 - new_weight])
    return {
        (level, is_new): quota
        for is_new, part in zip((True, False), parts, strict=True)
        for level, quota in zip(levels, level_quotas(by_kind[is_new], part, settings.level_shares), strict=True)
    }


def _cut(counts: Mapping[int, int], quota: int) -> Cut:
    left = quota
    for score_bin in sorted(counts, reverse=True):
        if counts[score_bin] >= left:
            return Cut(score_bin, quota, left)
        left -= counts[score_bin]
    raise AssertionError("a quota never exceeds what is due")


# --- packing ---


class HostLoad(NamedTuple):
    """A host's part of the list; `seconds` is what its URLs and its delay will take, `address` None where unknown."""

    host: str
    address: str | None
    urls: int
    seconds: float


#: The longest task may take this many times the mean; beyond it shared addresses are taken apart.
BALANCE = 1.1
#: Hosts on one address stay together up to this part of a task's mean; the next is tried while tasks are uneven.
TOGETHER = (1.0, 0.5, 0.25, 0.125, 0.0)
MAX_SWAPS = 50  # bounds the repair of an uneven packing; one with many hosts is even without

_Unit = tuple[float, int, tuple[HostLoad, ...]]  # seconds, URLs, hosts: what is placed as a whole


def pack_tasks(hosts: Sequence[HostLoad], tasks: int, most_holders: int = UNLIMITED) -> dict[str, int]:
    """Host -> task 0..tasks-1. Hosts whole; even in seconds; hosts of one address together where they fit.

    Longest first onto the least loaded task (Graham 1969), then swaps while the longest exceeds `BALANCE` times the
    mean and the largest host, which nobody can divide. An address with more than a mean's worth of hosts is held by few
    tasks, and never by more than `most_holders`: its cap is divided among them, and no part may be less than one
    request, though the tasks be uneven then. Finding the very best packing is not tried: of tiny lists (8 hosts) one in
    some hundred could be evener.

    Raises:
        ValueError: no task, a host named twice, or seconds that are negative or not a number.
    """
    if tasks < 1 or most_holders == 0:
        raise ValueError(f"tasks = {tasks}, most_holders = {most_holders}: at least 1 is needed")
    if len({load.host for load in hosts}) != len(hosts):
        raise ValueError("a host is named twice")
    if not all(0 <= load.seconds < float("inf") for load in hosts):
        raise ValueError("seconds must be finite and not negative")
    if not any(load.seconds for load in hosts):  # no delay at all: even in URLs
        hosts = [load._replace(seconds=float(load.urls)) for load in hosts]
    most = most_holders if most_holders != UNLIMITED and most_holders < tasks else len(hosts)
    best = min(_attempts(hosts, tasks, most), key=_longest)
    return {load.host: task for task, units in enumerate(best) for _, _, unit in units for load in unit}


def holders(hosts: Iterable[HostLoad], tasks: Mapping[str, int]) -> dict[str, int]:
    """Address -> how many tasks hold a host of it, so that each may take its part of the address's cap."""
    held: dict[str, set[int]] = defaultdict(set)
    for load in hosts:
        if load.address:
            held[load.address].add(tasks[load.host])
    return {address: len(holding) for address, holding in held.items()}


def predicted_ends(
    hosts: Iterable[HostLoad], tasks: Mapping[str, int], queues: int, address_gap_s: float = 0.0
) -> dict[int, float]:
    """Task -> seconds until its end, at best: its longest host, or all of them through so many queues at a time, or the
    URLs of an address one gap apart, where that is longer (each of k tasks that hold it keeps k gaps)."""
    loads = list(hosts)
    held = holders(loads, tasks)
    of_task: dict[int, list[float]] = defaultdict(list)
    of_address: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for load in loads:
        of_task[tasks[load.host]].append(load.seconds)
        if load.address:
            of_address[tasks[load.host]][load.address] += load.urls * address_gap_s * held[load.address]
    return {
        task: max([*seconds, sum(seconds) / queues, *of_address[task].values()])
        for task, seconds in sorted(of_task.items())
    }


def _attempts(hosts: Sequence[HostLoad], tasks: int, most_holders: int) -> Iterable[list[list[_Unit]]]:
    """Packings, those that keep addresses together first; ends with the first that is even enough."""
    mean = sum(load.seconds for load in hosts) / tasks
    enough = max([BALANCE * mean, *(load.seconds for load in hosts)])
    for part in TOGETHER:
        packing = _swapped(_longest_first(_units(hosts, mean * part, most_holders), tasks), enough)
        yield packing
        if _longest(packing) <= enough:
            return


def _units(hosts: Sequence[HostLoad], most_s: float, most_pieces: int) -> list[_Unit]:
    """The hosts of an address as one unit, or as several of about `most_s` when they are more than that."""
    by_address: dict[str, list[_Unit]] = defaultdict(list)
    for load in hosts:
        by_address[load.address or f"host {load.host}"].append((load.seconds, load.urls, (load,)))
    units: list[_Unit] = []
    for group in by_address.values():
        total = sum(seconds for seconds, _, _ in group)
        pieces = len(group) if most_s <= 0 else min(len(group), max(1, -int(-total // most_s)))
        if group[0][2][0].address:
            pieces = min(pieces, most_pieces)
        units += [_joined(piece) for piece in _longest_first(group, pieces) if piece]
    return units


def _joined(units: Sequence[_Unit]) -> _Unit:
    loads = tuple(load for _, _, unit in units for load in unit)
    return sum(load.seconds for load in loads), sum(load.urls for load in loads), loads


def _longest_first(units: Sequence[_Unit], tasks: int) -> list[list[_Unit]]:
    packing: list[list[_Unit]] = [[] for _ in range(tasks)]
    heap = [(0.0, 0, task) for task in range(tasks)]
    for unit in sorted(units, key=lambda u: (-u[0], -u[1], u[2][0].host)):
        seconds, urls, task = heap[0]
        packing[task].append(unit)
        heapq.heapreplace(heap, (seconds + unit[0], urls + unit[1], task))
    return packing


def _load(units: Iterable[_Unit]) -> float:
    return sum(seconds for seconds, _, _ in units)


def _longest(packing: Iterable[Sequence[_Unit]]) -> float:
    return max(_load(units) for units in packing)


def _swapped(packing: list[list[_Unit]], enough: float) -> list[list[_Unit]]:
    """Moves a unit out of the longest task, or swaps it for a smaller one, while that helps and is needed."""
    for _ in range(MAX_SWAPS):
        loads = [_load(units) for units in packing]
        longest = max(range(len(packing)), key=lambda task: (loads[task], -task))
        if loads[longest] <= enough or not _exchange(packing, loads, longest):
            break
    return packing


def _exchange(packing: list[list[_Unit]], loads: list[float], longest: int) -> bool:
    """The one move or swap that leaves the longer of two tasks shortest; False when none shortens the longest."""
    nothing: _Unit = (0.0, 0, ())
    best, choice = loads[longest] * (1 - 1e-9), None
    for task in sorted(set(range(len(packing))) - {longest}, key=lambda t: (loads[t], t))[:8]:
        for mine in packing[longest]:
            for other in (nothing, *packing[task]):
                gain = mine[0] - other[0]
                after = max(loads[longest] - gain, loads[task] + gain)
                if after < best:
                    best, choice = after, (task, mine, other)
    if choice is None:
        return False
    task, mine, other = choice
    packing[longest].remove(mine)
    packing[task].append(mine)
    if other is not nothing:
        packing[task].remove(other)
        packing[longest].append(other)
    return True
