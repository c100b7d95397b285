"""What a task is given: its listing, what surrounds it, and what earlier attempts have left in the journal.

Values only. What is done with them is decided in `course`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from spindle.fetcher.journal import Place, Row
from spindle.fetcher.rows import as_seconds
from spindle.inbox import Ear
from spindle.outcome import Outcome
from spindle.politeness import HostState

ReadEarlier = Callable[[Place], bytes]


@dataclass
class Listing:
    """What one task is to fetch.

    `rows`: of `fetchlist`, in the order of their priority; read once, so a generator keeps the memory small. `hosts`,
    `robots`: rows of those tables by host and origin. `month`: of the rows written (default: the month in which the
    task's first attempt began). `lease_until`: seconds since the epoch; nothing is sent in the last `total_timeout_s`
    before it. `left`: by host, the last row of `fetches` in the journals of expired segments over these hosts; None: no
    segment is.
    """

    rows: Iterable[Mapping[str, Any]]
    hosts: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    robots: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    month: str | None = None
    lease_until: float | None = None
    left: Mapping[str, Row] | None = None


def steady_clock() -> Callable[[], float]:
    """Seconds since the epoch that go on evenly from now, whatever is done to the system's clock."""
    ticks = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # goes on while the machine sleeps, as a lease does
    offset, read = time.time() - time.clock_gettime(ticks), time.clock_gettime
    return lambda: offset + read(ticks)


@dataclass
class Around:
    """What a task meets from outside, each thing as an argument.

    `clock`: seconds since the epoch, never running backwards. `scope`: whether a redirect hop is wanted.
    `read_earlier`: the beginning of a record of an earlier segment; `folder`: this segment's, from the warehouse, which
    is where such places, and those that revisit records name, count from. `mark`: see `suspects`; `ear` hears what
    operators say; `heartbeat` is called about once a second while the loop moves.
    """

    clock: Callable[[], float] = field(default_factory=steady_clock)
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    scope: Callable[[str], bool] | None = None
    read_earlier: ReadEarlier | None = None
    folder: str = ""
    mark: Path | None = None
    ear: Ear = field(default_factory=Ear)
    heartbeat: Callable[[], None] = lambda: None


@dataclass
class Behind:
    """What the sealed parts of earlier attempts say, in as little memory as a take-over needs."""

    done: set[int] = field(default_factory=set)  # keys with a hop-0 row
    seen: set[int] = field(default_factory=set)  # keys with any row
    hosts: dict[str, Row] = field(default_factory=dict)  # the last row of a host that tells its state
    robots: dict[str, Row] = field(default_factory=dict)
    redirects: list[Row] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Behind:
        behind = cls()
        for row in rows:
            behind._add(row)
        return behind

    def _add(self, row: Row) -> None:
        if row["type"] == "robots":
            self.robots[row["origin"]] = row
            return
        self.seen.add(row["url_key"])
        if row["hop"] == 0:
            self.done.add(row["url_key"])
            self.outcomes.append(row["outcome"])
        if row["next_ok_at"] is not None:
            self.hosts[row["host"]] = row
        if row["outcome"] == Outcome.REDIRECT and row["redirect_to"]:
            self.redirects.append(row)


def host_state(row: Mapping[str, Any] | None, learned: Row | None) -> HostState:
    """The state with which a host enters: from its row of `hosts`, and from what an earlier attempt's journal says
    (where JSON that Spark wrote leaves out what is null)."""
    row = row or {}
    state = HostState(
        next_ok_at=as_seconds(row.get("next_ok_at")) or 0.0,
        crawl_delay_s=row.get("crawl_delay_s"),
        limit_delay_s=row.get("limit_delay_s"),
        backoff_level=row.get("backoff_level") or 0,
        backoff_until=as_seconds(row.get("backoff_until")) or 0.0,
        address=row.get("ip"),
        failure_streak=row.get("failure_streak") or 0,
    )
    if learned is None:
        return state
    return replace(
        state,
        next_ok_at=max(state.next_ok_at, as_seconds(learned.get("next_ok_at")) or 0.0),
        crawl_delay_s=learned.get("crawl_delay_s"),
        backoff_level=learned.get("backoff_level") or 0,
        address=learned.get("ip") or state.address,
    )
