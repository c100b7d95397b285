"""Freshness of two recrawl policies over a simulated year, with one budget of visits, against the optimum.

Run: `.venv/bin/python bench/freshness.py [--pages 300] [--plot freshness.svg]`. Pages change as Poisson processes with
heavy-tailed rates. Freshness is the share of time that our copy equals the page, over all pages. At day 0 every page
has just been fetched and nothing is known of its rate.

The bar (issue 7): the second policy, which learns the rates from its own visits, within 3 % of the optimum computed
with the true rates. Halve and double spends what it likes; the others get as many visits, evenly over the year. Equal
intervals are the naive rival that any cleverness has to beat. No timings: the table is the same on every machine.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from spindle import config
from spindle.defaults import default_layer
from spindle.recrawl import (
    BARS,
    PageClass,
    Seen,
    Visit,
    best_interval,
    freshness,
    halve_and_double,
    price_for,
    rate_of,
    remembered,
)

SETTINGS = config.build([default_layer()]).recrawl
DAY, MONTH, YEAR = 86400.0, 30 * 86400.0, 360 * 86400.0
FASTEST = 24 / DAY  # changes per second; more is a clock, not a page
REPLANNED = 7 * DAY  # the price of a visit is set anew this often
BAR = 0.97


def pareto(shape: float, slowest: float = 1 / (120 * DAY)) -> Callable[[random.Random], float]:
    """No page slower than `slowest`; the smaller the shape, the more fast ones."""
    return lambda rng: slowest * (1 - rng.random()) ** (-1 / shape)


def log_normal(median: float, spread: float) -> Callable[[random.Random], float]:
    """Spread over powers of ten on both sides of the median: most pages hardly ever change, a few all the time."""
    return lambda rng: median * math.exp(rng.gauss(0, spread))


WEBS = {
    "Pareto, shape 1": pareto(1.0),
    "Pareto, shape 0.8": pareto(0.8),
    "log-normal, spread 2": log_normal(1 / (60 * DAY), 2.0),
    "log-normal, spread 3": log_normal(1 / (60 * DAY), 3.0),
}


class Year:
    """Visits to pages, what each finds, and the expected fresh time by month (expected: less noise than drawn)."""

    def __init__(self, rates: Sequence[float], rng: random.Random) -> None:
        self.rates, self.rng = rates, rng
        self.last = [0.0] * len(rates)
        self.visits = 0
        self.fresh_s = [0.0] * round(YEAR / MONTH)

    def visit(self, page: int, now: float) -> Visit:
        self._count(page, now)
        gap = now - self.last[page]
        self.last[page] = now
        self.visits += 1
        return Visit(gap, self.rng.expovariate(self.rates[page]) < gap)

    def end(self) -> list[float]:
        """Freshness month by month."""
        for page in range(len(self.rates)):
            self._count(page, YEAR)
        return [fresh_s / MONTH / len(self.rates) for fresh_s in self.fresh_s]

    def _count(self, page: int, now: float) -> None:
        """The integral of e^-rt since the last visit, cut at the ends of months."""
        start, since = self.last[page], self.last[page]
        while since < now:
            month = min(int(since // MONTH), len(self.fresh_s) - 1)
            until = min(now, (month + 1) * MONTH)
            rate = self.rates[page]
            self.fresh_s[month] += (math.exp(-rate * (since - start)) - math.exp(-rate * (until - start))) / rate
            since = until


def halving_and_doubling(year: Year) -> None:
    intervals = [SETTINGS.initial_interval_s] * len(year.rates)
    due = [((0.5 + year.rng.random()) * DAY, page) for page in range(len(intervals))]
    heapq.heapify(due)
    while due[0][0] <= YEAR:
        now, page = heapq.heappop(due)
        intervals[page] = halve_and_double(intervals[page], year.visit(page, now).changed, SETTINGS)
        heapq.heappush(due, (now + intervals[page], page))


Plan = Callable[[Sequence[float]], Callable[[float], float]]  # rates, as far as known -> interval of a rate


def spending(year: Year, visits: int, plan: Plan) -> None:
    """One visit each year/visits seconds, to the page that is due first. As update does it: a page gets its interval
    when it is visited, by what was seen of it (three numbers) and the price of the week."""
    unknown = rate_of(Seen(0, 0, 0), SETTINGS.initial_interval_s)
    rates, seen = [unknown] * len(year.rates), [Seen(0, 0, 0)] * len(year.rates)
    intervals = [float(SETTINGS.initial_interval_s)] * len(rates)
    order = list(range(len(rates)))
    year.rng.shuffle(order)
    due = [(place * YEAR / visits, page) for place, page in enumerate(order)]
    now, planned, interval_of = 0.0, -math.inf, plan(rates)
    while (now := now + YEAR / visits) <= YEAR:
        if now - planned >= REPLANNED:
            planned, interval_of = now, plan(rates)
        _, page = heapq.heappop(due)
        seen[page] = remembered(seen[page], year.visit(page, now), intervals[page])
        rates[page] = rate_of(seen[page], intervals[page])
        intervals[page] = interval_of(rates[page])
        heapq.heappush(due, (now + intervals[page], page))


def planner(visits_per_s: float) -> Plan:
    """The second policy: one price for all, from a histogram of the rates, as a driver with a billion rows would."""

    def plan(rates: Sequence[float]) -> Callable[[float], float]:
        bars = Counter(round(BARS * math.log10(rate)) for rate in rates)
        classes = [PageClass(10 ** (bar / BARS), 1.0, pages) for bar, pages in bars.items()]
        price = price_for(classes, visits_per_s, SETTINGS)
        return lambda rate: float(best_interval(rate, 1.0, price, SETTINGS))

    return plan


def optimum(rates: Sequence[float], visits_per_s: float) -> float:
    """Freshness at the best even intervals within the bounds, rates known."""
    price = price_for([PageClass(rate, 1.0, 1) for rate in rates], visits_per_s, SETTINGS)
    return sum(freshness(rate, best_interval(rate, 1.0, price, SETTINGS)) for rate in rates) / len(rates)


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def compare(pages: int, web: Callable[[random.Random], float], seed: int) -> tuple[dict[str, list[float]], float, int]:
    """Freshness by month of each policy, the optimum, and the visits of each."""
    rng = random.Random(seed)
    rates = [min(FASTEST, web(rng)) for _ in range(pages)]
    simple = Year(rates, random.Random(seed + 1))
    halving_and_doubling(simple)
    budget = simple.visits / YEAR
    months = {"halve and double": simple.end()}
    plans: dict[str, Plan] = {
        "equal intervals": lambda known: lambda _: len(known) / budget,
        "second policy": planner(budget),
    }
    for name, plan in plans.items():
        year = Year(rates, random.Random(seed + 1))
        spending(year, simple.visits, plan)
        months[name] = year.end()
    return months, optimum(rates, budget), simple.visits


def write_plot(path: Path, months: dict[str, list[float]], best: float, title: str) -> None:
    """Lines of freshness over the months, as SVG of its own making: no plotting library for four lines."""
    lines = {**months, "optimum": [best] * 12}
    floor = math.floor(10 * min(map(min, lines.values()))) / 10

    def height(value: float) -> float:
        return 330 - (value - floor) / (1 - floor) * 290

    drawn, label = [], 0.0
    colours = dict(zip(lines, ("#d95f02", "#777777", "#1b6ca8", "#222222"), strict=True))
    for name, values in sorted(lines.items(), key=lambda line: -line[1][-1]):
        label = max(label + 17, height(values[-1]) + 4)  # no label on another
        points = " ".join(f"{60 + month * 48},{height(value):.1f}" for month, value in enumerate(values))
        drawn.append(f'<polyline fill="none" stroke="{colours[name]}" stroke-width="2" points="{points}"/>')
        drawn.append(f'<text x="600" y="{label:.0f}" fill="{colours[name]}">{name} {mean(values):.3f}</text>')
    steps = [floor + n * (1 - floor) / 4 for n in range(5)]
    drawn += [f'<text x="15" y="{height(value) + 4:.0f}">{value:.2f}</text>' for value in steps]
    drawn += [f'<text x="{56 + 48 * n}" y="352">{n + 1}</text>' for n in range(12)]
    path.write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 380" font-family="sans-serif" font-size="13">'
        f'<rect width="800" height="380" fill="white"/><text x="60" y="20">{title}</text>{"".join(drawn)}'
        '<text x="310" y="372">month</text></svg>\n',
        encoding="utf-8",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Freshness of the recrawl policies over a simulated year.")
    parser.add_argument("--pages", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plot", type=Path, help="write one row, month by month, as SVG to this file")
    parser.add_argument("--web", choices=WEBS, default="log-normal, spread 2", help="the row to plot")
    options = parser.parse_args()
    print("rates of change       visits/page  optimum  second policy  of it  equal intervals  halve and double   gain")
    worst = 1.0
    for name, web in WEBS.items():
        months, best, visits = compare(options.pages, web, options.seed)
        simple, equal, second = (mean(months[n]) for n in ("halve and double", "equal intervals", "second policy"))
        worst = min(worst, second / best)
        print(
            f"{name:21} {visits / options.pages:11.1f} {best:8.3f} {second:14.3f} {second / best:6.1%}"
            f" {equal:16.3f} {simple:17.3f} {second / simple - 1:+6.1%}"
        )
        if options.plot and name == options.web:
            write_plot(options.plot, months, best, f"Freshness, {name}, {visits / options.pages:.0f} visits a page")
    print(f"worst {worst:.1%} of the optimum; the bar is {BAR:.0%}")
    return 0 if worst >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
