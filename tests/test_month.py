"""The front tier over a simulated month (`month`): nobody starves, no budget is overspent, no URL is held twice."""

from __future__ import annotations

import pytest

from month import DAY, STEP, Month

AGEING = 5 * STEP  # after which no newcomer stands before a URL
BACKLOG = 100 / 16 * DAY  # the URLs of the first day, at sixteen of a hundred a day


@pytest.fixture(scope="module")
def month() -> Month:
    month = Month(urls=100_000, hosts=1_000)
    month.run(30)  # checks budgets, leases, order, fullness and balance at each turn
    return month


def test_the_month_was_a_busy_one(month: Month) -> None:
    report = month.report
    assert report.turns == 60 and report.listed > 2 * month.all, "every URL about twice or more"
    assert report.expired > 2, "turns died, and their URLs went back"
    assert report.refused == 120, "a rival on an owned range is refused each time"
    assert min(report.by_level[n] for n in range(1, 6)) > 1000, "every level was listed"


def test_nobody_starves(month: Month) -> None:
    """Beyond what the budget of its own host explains, a URL waits for its age and for the first backlog at most."""
    assert month.report.longest_wait <= AGEING + BACKLOG
    assert month.longest_still_waiting(30 * DAY) <= AGEING + BACKLOG


def test_priority_is_kept(month: Month) -> None:
    """Worse than strict priority by no more than the shares want (50:25:13:8:4 has a mean of 1.91), and far better
    than a round-robin over hosts."""
    report = month.report
    cut = report.strict  # sums over the same number of URLs
    assert cut <= report.ours <= 1.91 * cut
    assert report.ours < 0.9 * report.round_robin


def test_an_endless_stream_of_better_urls_keeps_nobody_out() -> None:
    """Newcomers of level 1 are half as many again as there are places for new URLs. Level 5 has four of a hundred
    places, too few for its backlog: it is its age that brings the last URL of the first day in."""
    month = Month(urls=3_000, hosts=600, growth=0.06)
    month.run(40)
    assert month.never_listed() == 0
    assert month.report.by_level[1] > month.report.listed / 2, "and yet most of what was listed is the best"
