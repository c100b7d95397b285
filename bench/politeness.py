"""What the back tier and robots.txt cost, and how near to its politeness bound a task runs. Simulated time, no network.

Run: `.venv/bin/python bench/politeness.py` (about two minutes; 1 M hosts want 1 GB). CPU seconds of this process.
The bar (issue 5): at least 0.95 of the optimum hosts / delay until the tail with 10,000 hosts at 1 s, no gap violated;
cost per URL O(log hosts) up to 1 M hosts; 20,000 wildcard rules must not stall a task.
"""

from __future__ import annotations

import gc
import heapq
import math
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from protego import Protego

from spindle import config, robots
from spindle.defaults import default_layer
from spindle.politeness import BackTier, Done, HostState, Ready

SETTINGS = config.build([default_layer()]).politeness
PAGE_KB = 4  # of a page of memory, as /proc counts


def tier_of(hosts: int, urls: int, min_delay_s: float, max_open: int, one_address: bool = False) -> BackTier[int]:
    tier: BackTier[int] = BackTier(replace(SETTINGS, min_delay_s=min_delay_s), max_open=max_open, queues=3 * max_open)
    for host in range(hosts):
        tier.add_host(f"www.h{host}.example", HostState(address=f"192.0.2.{0 if one_address else host}"))
    for url in range(urls):
        for host in range(hosts):
            tier.put(f"www.h{host}.example", url)
    return tier


def crawl(tier: BackTier[int], duration_s: float) -> tuple[list[float], float]:
    """A whole task in simulated time: the starts of all requests, and the smallest gap at one host."""
    now, closest = 0.0, math.inf
    starts: list[float] = []
    flying: list[tuple[float, str]] = []
    ended: dict[str, float] = {}
    while True:
        while isinstance(answer := tier.next(now), Ready):
            starts.append(now)
            closest = min(closest, now - ended.get(answer.host, -math.inf))
            heapq.heappush(flying, (now + duration_s, answer.host))
        if isinstance(answer, Done):
            return starts, closest
        now = min(answer.until, flying[0][0] if flying else math.inf)
        while flying and flying[0][0] <= now:
            ended_at, host = heapq.heappop(flying)
            ended[host] = ended_at
            tier.finished(host, ended_at, duration_s=duration_s)


def speed() -> None:
    print("hosts, 30 URLs each, 1 s delay, 500 open     of the optimum until the tail     smallest gap, s")
    for hosts, duration_s in ((1_000, 0.01), (10_000, 0.01), (10_000, 0.03)):
        starts, closest = crawl(tier_of(hosts, 30, 1.0, 500), duration_s)
        body = int(len(starts) * 0.9)  # then hosts run out
        print(
            f"{hosts:>7,} hosts, {duration_s * 1e3:3.0f} ms a page {body / starts[body] / hosts:37.3f} {closest:20.3f}"
        )


def cost_of(hosts: int, one_address: bool) -> tuple[float, float]:
    """Microseconds of CPU a URL (put, next, finished), and KiB of memory a host."""
    gc.freeze()
    gc.set_threshold(50_000, 50, 50)  # as the fetch task has it
    before = _resident_kb()
    started = time.process_time()
    tier = tier_of(hosts, 2, 2.0, 100, one_address)
    memory = (_resident_kb() - before) / hosts
    now, urls = 0.0, 0
    while not isinstance(answer := tier.next(now), Done):
        if isinstance(answer, Ready):
            tier.finished(answer.host, now, duration_s=0.1)
            now, urls = now + 1e-5, urls + 1
        else:
            now = answer.until
    assert urls == 2 * hosts
    return (time.process_time() - started) / urls * 1e6, memory


def _resident_kb() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_KB


def cost() -> None:
    print("\nhosts, 2 URLs each     us CPU a URL     KiB a host     (a process of its own for each row)")
    for hosts, one_address in ((1_000, False), (10_000, False), (100_000, False), (100_000, True), (1_000_000, False)):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            micros, memory = pool.apply(cost_of, (hosts, one_address))
        print(f"{hosts:>9,} {micros:25.2f} {memory:14.2f}     {'on one address' if one_address else ''}")


def best_us(work: Callable[[], object], times: int) -> float:
    def once() -> float:
        started = time.process_time_ns()
        for _ in range(times):
            work()
        return (time.process_time_ns() - started) / times / 1e3

    return min(once() for _ in range(7))


URL = "http://www.example.com/some/path/of/a/page-name.html?x=1"
LONG_URL = "http://www.example.com/" + "a" * 1_950
FILES = {  # name -> (file, URL asked for, times)
    "5 lines": ("Disallow: /private/\nDisallow: /tmp/\nAllow: /private/ok\nCrawl-delay: 2\n", URL, 2_000),
    "100 literal rules": ("".join(f"Disallow: /d{n}/x\n" for n in range(100)), URL, 200),
    "100 wildcard rules": ("".join(f"Disallow: /*/x{n}*y.html\n" for n in range(100)), URL, 100),
    "20,000 wildcard rules": ("".join(f"Disallow: /*x{n}*y*z\n" for n in range(20_000)), URL, 1),
    "20,000 alike, long URL": ("".join(f"Disallow: /*a*aa*{n}\n" for n in range(20_000)), LONG_URL, 1),
}


def rules() -> None:
    print("\nrobots.txt, us CPU             parse   (protego)        allows   (protego)")
    for name, (lines, url, times) in FILES.items():
        text = "User-agent: *\n" + lines
        ours, theirs = robots.parse(text.encode(), "spindle"), Protego.parse(text)
        columns = (
            best_us(lambda text=text: robots.parse(text.encode(), "spindle"), times),  # type: ignore[misc]
            best_us(lambda text=text: Protego.parse(text), times),  # type: ignore[misc]
            best_us(lambda ours=ours, url=url: ours.allows(url), times),  # type: ignore[misc]
            best_us(lambda theirs=theirs, url=url: theirs.can_fetch(url, "spindle"), times),  # type: ignore[misc]
        )
        print("{:24} {:11,.1f} {:11,.1f} {:13,.1f} {:11,.1f}".format(name, *columns))


if __name__ == "__main__":
    speed()
    cost()
    rules()
