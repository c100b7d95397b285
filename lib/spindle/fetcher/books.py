"""The books of a task: which URLs are open, which rows are written, and what is counted.

This file alone sees to it that every listed URL gets exactly one hop-0 row, that rows of failures are held back while
it is open whose fault they are (`blame`), and that no URL pays for a fault of ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from spindle.config import FetchSettings
from spindle.fetcher.blame import Blame
from spindle.fetcher.journal import Journal, Row
from spindle.fetcher.rows import Origin, Page, fetch_row
from spindle.fetcher.tally import Tally
from spindle.outcome import NETWORK_CLASS, Outcome

_IDENTITY = (
    *("type", "segment", "task", "epoch", "url_key", "hop", "via_key", "month", "bucket", "url", "host", "kind"),
    "depth",
)
_ROWS_A_PART = 10_000  # owed at the end: a row takes a kilobyte in memory until it is sealed


@dataclass(slots=True, eq=False)
class HostBook:
    """What is noted of one host. `open`: URLs still to be fetched, redirect hops included."""

    open: int = 0
    hops_left: int | None = None  # None: unlimited
    limit_delay_s: float | None = None  # the operator's, as the table has it
    origins: set[str] = field(default_factory=set)
    touched_at: float | None = None  # end of its last request


class Books:
    """`hosts` by name; `seen`: keys that are listed, or were followed to; `tally`: of all rows of the journal."""

    def __init__(self, limits: FetchSettings, journal: Journal, origin: Origin) -> None:
        self._journal, self._origin = journal, origin
        self.tally = Tally()
        self._blame = Blame(limits.our_fault_window, limits.our_fault_share)
        self._open: dict[int, Page] = {}  # hop-0 pages without a row
        self.hosts: dict[str, HostBook] = {}
        self.seen: set[int] = set()
        self.counts: Counter[str] = Counter()

    @property
    def urls_left(self) -> int:
        return len(self._open)

    @property
    def our_fault(self) -> bool:
        return self._blame.ours

    def is_open(self, page: Page) -> bool:
        return page.hop > 0 or page.key in self._open

    def admit(self, page: Page) -> bool:
        """Note a listed page; False when it is listed twice."""
        self.seen.add(page.key)
        if page.key in self._open:
            return False
        self._open[page.key] = page
        host = self.hosts[page.host]
        host.open += 1
        if host.hops_left is not None:
            host.hops_left -= 1
        return True

    def admit_hop(self, page: Page) -> bool:
        """Note a redirect hop; False when its target is known to the task, or the host's budget is spent."""
        host = self.hosts[page.host]
        if page.key in self.seen:
            return False
        if host.hops_left is not None:
            if host.hops_left <= 0:
                self.counts["hops_over_budget"] += 1
                return False
            host.hops_left -= 1
        self.seen.add(page.key)
        host.open += 1
        return True

    def settle(self, page: Page) -> HostBook:
        """The page has its row, or will have when it is no longer held back."""
        host = self.hosts[page.host]
        host.open -= 1
        if page.hop == 0:
            del self._open[page.key]
        return host

    def attempt(self, host: str, failed: bool, row: Row) -> None:
        """The row of a request that was made. `failed`: in a way that may be our network's."""
        for one in self._blame.note(host, failed, row):
            self.write(one)

    def follow(self, host: str, row: Row) -> None:
        """A row that follows from the host's last attempt without one of its own: its robots.txt was unreachable."""
        for one in self._blame.follow(host, row):
            self.write(one)

    def not_reached(self, page: Page, reason: str | None) -> None:
        if page.hop == 0:
            self.write(fetch_row(self._origin, page, Outcome.NOT_REACHED, reason))

    def close(self, reason: str | None) -> Iterator[None]:
        """Write the rows still owed: failures held back, and `not_reached` for every page that has none. Of a long list
        they are many: comes up for air now and then, so that they can be sealed and need not all be held."""
        held = self._blame.close()
        for row in held:
            self.write(row)
        for number, page in enumerate(list(self._open.values()), 1):
            self.settle(page)
            self.not_reached(page, "our_fault" if self.our_fault else reason)
            if number % _ROWS_A_PART == 0:
                yield

    def write(self, row: Row) -> None:
        if self.our_fault and _may_be_ours(row):
            self.counts["uncharged"] += 1
            if row["type"] == "robots" or row["hop"] > 0:
                return
            row = {**dict.fromkeys(row), **{name: row[name] for name in _IDENTITY}}
            row["outcome"], row["error"] = Outcome.NOT_REACHED, "our_fault"
        if row["type"] == "fetch" and row["hop"] == 0:
            self.counts[row["outcome"]] += 1
        self.tally.add(row)
        self._journal.write(row)


def _may_be_ours(row: Row) -> bool:
    if row["type"] == "robots":
        return row["http_status"] is None
    return row["outcome"] == Outcome.ROBOTS_UNREACHABLE or row["outcome"] in NETWORK_CLASS
