"""Whose fault: when nearly every request fails across hosts, the network is ours and no URL pays for it.

This file alone decides that. Pure: told of each attempt, it holds back the rows of failed ones until enough later
attempts have shown that the network works, and hands them out as written or as not to be charged.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from spindle.fetcher.journal import Row

MIN_HOSTS = 10  # fewer hosts that fail are those hosts' trouble


@dataclass(slots=True, eq=False)
class _Attempt:
    host: str
    failed: bool
    rows: list[Row] = field(default_factory=list)


class Blame:
    """The last `window` attempts of a task. `share`: of network-class failures, from which on the fault is ours."""

    def __init__(self, window: int, share: float) -> None:
        self._size, self._share = window, share
        self._window: deque[_Attempt] = deque()
        self._failing: dict[str, _Attempt] = {}  # host -> its last attempt in the window, where that failed
        self._failed = 0
        self.ours = False

    def note(self, host: str, failed: bool, row: Row) -> list[Row]:
        """One attempt and its row; returns the rows that may be written now."""
        attempt = _Attempt(host, failed, [row] if failed else [])
        self._window.append(attempt)
        self._failed += failed
        if failed:
            self._failing[host] = attempt
        else:
            self._failing.pop(host, None)
        released = [] if failed else [row]
        if len(self._window) > self._size:
            released = released + self._leave(self._window.popleft())
        self._decide(len(self._window) >= self._size)
        return released

    def follow(self, host: str, row: Row) -> list[Row]:
        """A row without a request that follows from the host's last attempt (its robots.txt was unreachable)."""
        attempt = self._failing.get(host)
        if attempt is None:
            return [row]
        attempt.rows.append(row)
        return []

    def close(self) -> list[Row]:
        """At the task's end: judge a short task on what there was; the rows held back, to be charged unless `ours`."""
        self._decide(True)
        held = [row for attempt in self._window for row in attempt.rows]
        self._window.clear()
        self._failing.clear()
        return held

    def _leave(self, attempt: _Attempt) -> list[Row]:
        self._failed -= attempt.failed
        if self._failing.get(attempt.host) is attempt:
            del self._failing[attempt.host]
        return attempt.rows

    def _decide(self, enough: bool) -> None:
        if enough and self._failed and self._failed >= self._share * len(self._window):
            self.ours = self.ours or len({attempt.host for attempt in self._window}) >= MIN_HOSTS
