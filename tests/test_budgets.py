"""What a host's part of a list takes, and the words for each reason. The SQL is tested in test_generate."""

from __future__ import annotations

import re

import pytest

from rows import NOW, settings_of
from spindle.budgets import PACE, host_reason_sql, host_seconds
from spindle.cli.explain import REASONS

RULES = settings_of().politeness
#: Pace of a host (crawl-delay, operator's limit, mean fetch in ms), seconds that ten URLs take.
PACES = [
    ((None, None, None), 20.0, "a host never met: the minimum of 2 s"),
    ((None, None, 500.0), 55.0, "ten times half a second, and the half second"),
    ((30.0, None, 500.0), 305.0, "its crawl-delay"),
    ((None, 0.5, 100.0), 6.0, "the operator's limit"),
    ((3.0, 0.5, None), 30.0, "... never below the crawl-delay"),
    ((None, None, 1e9), 10 * (60 + 1e6), "the factor asks for a minute at most"),
    ((None, None, float("nan")), 20.0, "no duration: unknown"),
    ((None, None, float("inf")), 20.0, "no duration either"),
    ((None, None, -5.0), 20.0, "nor this"),
]


@pytest.mark.parametrize(("pace", "seconds", "why"), PACES, ids=[row[2] for row in PACES])
def test_what_ten_urls_of_a_host_take(pace: tuple[float | None, ...], seconds: float, why: str) -> None:
    assert host_seconds(10, RULES, **dict(zip(PACE, pace, strict=True))) == pytest.approx(seconds), why


def test_every_reason_of_a_host_is_explained() -> None:
    reasons = set(re.findall(r"THEN '(\w+)'", host_reason_sql(settings_of(), NOW)))
    assert reasons == {"host_blocked", "host_paused", "host_backing_off", "host_dead", "day_budget", "window_budget"}
    assert reasons - REASONS.keys() == set()
