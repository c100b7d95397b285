"""When a host may be touched: the law of delays and budgets (`law`), and the queues that keep it (`tier`).

Pure: time is an argument (seconds of any one clock), nothing is fetched, no chance is taken. `fetch` asks the tier what
to do next and tells it what happened; `generate` asks the law how many URLs of a host a window lets through.
"""

from __future__ import annotations

from spindle.politeness.law import HostState, Signal, budget, expected_seconds, gap_s, retry_after_s
from spindle.politeness.records import Done, Ready, Wait
from spindle.politeness.tier import BackTier

__all__ = [
    "BackTier",
    "Done",
    "HostState",
    "Ready",
    "Signal",
    "Wait",
    "budget",
    "expected_seconds",
    "gap_s",
    "retry_after_s",
]
