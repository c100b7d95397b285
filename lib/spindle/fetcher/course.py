"""The course of one attempt at a task: hosts are served as they come due, until nothing is left or a reason to stop.

This file decides what is asked next, when the task stops and why, and what happens by the clock: seals, the operator's
word, the tail, progress. What happens in one turn of a host is `visit`'s decision.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from spindle import urls
from spindle.config import UNLIMITED, Settings, SheetSettings
from spindle.errors import SpindleError
from spindle.fetcher.archive import Archive
from spindle.fetcher.books import Books, HostBook
from spindle.fetcher.client import Client
from spindle.fetcher.journal import Journal, Row
from spindle.fetcher.listing import Around, Behind, Listing, host_state
from spindle.fetcher.rows import Origin, Page, fetch_row, iso
from spindle.fetcher.suspects import Suspects
from spindle.fetcher.tally import Tally
from spindle.fetcher.visit import POLL_S, Item, Visits
from spindle.outcome import Outcome
from spindle.politeness import BackTier, HostState, Ready, Wait, gap_s
from spindle.sheets import Sheets
from spindle.store import Store
from spindle.wishes import NO_WORD, HostWord, Word

TICK_S = 1.0

_TAIL_SHARE = 0.1  # a task is in its tail when at most this part of its hosts is left; a site crawl has none
_MAX_STUMBLES = 100  # faults of ours in a task; more are a broken program


class Course:
    """Build, `load`, `run`, `close`. `stopped` says why it ended before its list; `counts` what happened."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        client: Client,
        journal: Journal,
        origin: Origin,
        around: Around,
        suspects: Suspects,
    ) -> None:
        self._settings, self._limits, self._store = settings, settings.fetch, store
        self._journal, self._origin, self._suspects = journal, origin, suspects
        self._clock, self._heartbeat = around.clock, around.heartbeat
        self._sheets = Sheets(settings.scope.sheets)
        queues = settings.fetch.queues_factor * settings.fetch.max_open
        self._tier: BackTier[Item] = BackTier(settings.politeness, max_open=settings.fetch.max_open, queues=queues)
        self._books = Books(settings.fetch, journal, origin)
        archive = Archive(journal, origin, around.read_earlier)
        self._visits = Visits(
            settings, origin, client, self._tier, self._books, archive, suspects, around.clock, around.scope
        )
        self._flying: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._alarm_at = math.inf
        self._over = asyncio.Event()
        self._failure: BaseException | None = None
        self._ear, self._word = around.ear, Word()
        self._began = self._ticked = self._clock()
        self._stop_at = self._began + settings.fetch.window_s
        self._tail_since: float | None = None
        self._placed: set[str] = set()  # hosts whose address generate told
        self._began_with = 1
        self.stopped: str | None = None
        self.counts = self._books.counts

    @property
    def sums(self) -> dict[str, Any]:
        """What the rows of the whole journal add up to, earlier attempts included."""
        return self._books.tally.sums()

    # --- before

    def load(self, listing: Listing, earlier: Iterable[Row] = (), *, resumed: bool = False) -> None:
        """Take the listing, less what the sealed parts of earlier attempts already have."""
        self._books.tally = Tally(listing.robots)
        behind = Behind.of(self._books.tally.over(earlier))
        if listing.lease_until is not None:
            self._stop_at = min(self._stop_at, listing.lease_until - self._limits.total_timeout_s)
        for row in listing.rows:
            self._admit(Page.listed(row), listing, behind, resumed)
            self._place(row)
        self._began_with = max(len(self._books.hosts), 1)
        self._books.seen |= behind.seen
        self.counts.update(behind.outcomes)
        for row in behind.redirects:  # go on with those that were not followed to their end
            self._visits.follow(Page.of_row(row), row["redirect_to"])

    def _admit(self, page: Page, listing: Listing, behind: Behind, resumed: bool) -> None:
        if page.key in behind.done:
            self._books.seen.add(page.key)
            return
        if page.host not in self._books.hosts:
            learned = behind.hosts.get(page.host) or (listing.left or {}).get(page.host)
            self._add_host(page.host, listing.hosts.get(page.host), learned, resumed or listing.left is not None)
        if not self._books.admit(page):
            return
        if page.key in self._suspects.guilty:
            self._books.settle(page)
            text = "set aside: it has ended the process that worked on it, twice"
            self._books.write(fetch_row(self._origin, page, Outcome.PROTOCOL_ERROR, text))
            return
        host, origin = self._books.hosts[page.host], urls.origin_of(page.url)
        if origin not in host.origins:
            host.origins.add(origin)
            self._visits.gate.load(origin, behind.robots.get(origin) or listing.robots.get(origin))
            self._visits.learn_delay(page.host)
        self._tier.put(page.host, page)

    def _add_host(self, host: str, row: Mapping[str, Any] | None, learned: Row | None, resumed: bool) -> None:
        state, sheet = host_state(row, learned), self._sheets.of_host(host)
        if state.limit_delay_s is None:  # an operator's word on the one host goes before a sheet's on many
            state = replace(state, limit_delay_s=sheet.delay_s)
        if resumed:  # the attempt before may just have touched it
            state = replace(state, next_ok_at=max(state.next_ok_at, self._began + self._delay_s(state)))
        self._tier.add_host(host, state)
        self._books.hosts[host] = HostBook(
            hops_left=self._request_budget(row, sheet), limit_delay_s=state.limit_delay_s
        )
        if row is not None and row.get("paused"):
            self._tier.hold(host, math.inf)

    def _place(self, row: Mapping[str, Any]) -> None:
        """Where generate found the host, and with how many tasks it shares that address."""
        host, address = row["host"], row.get("ip")
        if not address or host in self._placed or host not in self._books.hosts:
            return
        self._placed.add(host)
        self._tier.share_address(address, row.get("ip_tasks") or 1)
        if self._tier.state(host).address is None:
            self._tier.set_address(host, address)

    def _delay_s(self, state: HostState) -> float:
        return gap_s(
            self._settings.politeness,
            crawl_delay_s=state.crawl_delay_s,
            limit_delay_s=state.limit_delay_s,
            backoff_level=state.backoff_level,
        )

    def _request_budget(self, row: Mapping[str, Any] | None, sheet: SheetSettings) -> int | None:
        """Requests a host may get in this task; what the list leaves of it may go to redirect hops."""
        limits = self._settings.generate
        own = limits.host_budget if sheet.host_budget is None else sheet.host_budget
        of_day = limits.host_day_budget if sheet.host_day_budget is None else sheet.host_day_budget
        budgets = [own] if own != UNLIMITED else []
        if of_day != UNLIMITED:
            today = row is not None and str(row.get("day")) == iso(self._began)[:10]
            budgets.append(of_day - (row.get("fetched_today") or 0 if row and today else 0))
        return min(budgets) if budgets else None

    # --- the course

    async def run(self) -> None:
        """Fetch until nothing is left or a reason to stop has come; raises what broke the task itself."""
        self._loop = asyncio.get_running_loop()
        self._obey(await asyncio.to_thread(self._ear.listen))
        keeper, over = asyncio.create_task(self._keep_house()), asyncio.create_task(self._over.wait())
        self._pump()
        self._end_if_idle()
        try:
            await asyncio.wait({keeper, over}, return_when=asyncio.FIRST_COMPLETED)
            if keeper.done():
                keeper.result()
            if self._failure is not None:
                raise self._failure
        finally:
            if self._timer is not None:
                self._timer.cancel()
            rest = [keeper, over, *self._flying]
            for one in rest:
                one.cancel()
            await asyncio.gather(*rest, return_exceptions=True)

    async def close(self) -> None:
        """Write the rows that are still owed, and the last word on progress."""
        for _ in self._books.close(self.stopped):
            await self._journal.seal()
        self._watch_fault()
        await self._report()

    def stop(self, reason: str) -> None:
        """Start nothing more; the task is over when the last request has ended."""
        self.stopped = self.stopped or reason
        self._visits.stopping = True

    def _pump(self) -> None:
        while (step := self._take()) is not None:
            flight = asyncio.create_task(self._fly(step))
            self._flying.add(flight)
            flight.add_done_callback(self._landed)

    def _take(self) -> Ready[Item] | None:
        """The next host that is due; otherwise arms the alarm, or ends the task when nothing can come any more."""
        if self.stopped is not None or self._failure is not None or self._word.pause:
            return None
        now = self._clock()
        if now >= self._stop_at:
            self.stop("window")
            return None
        if now - self._ticked > self._limits.seal_interval_s + TICK_S:
            return None  # we were stopped, or stuck: first the keeper finds out whether the task is still ours
        step = self._tier.next(now)
        if isinstance(step, Ready):
            return step
        if isinstance(step, Wait):
            self._arm(step.until, now)
        return None

    def _arm(self, until: float, now: float) -> None:
        if until >= self._stop_at and self._tier.in_flight == 0:
            self.stop("window")  # nobody's turn comes before the end: no use in idling until then
        elif until < self._alarm_at:
            if self._timer is not None:
                self._timer.cancel()
            self._alarm_at = until
            self._timer = self._loop.call_later(max(0.0, until - now), self._ring)

    def _ring(self) -> None:
        self._timer, self._alarm_at = None, math.inf
        self._pump()
        self._end_if_idle()

    def _landed(self, flight: asyncio.Task[None]) -> None:
        self._flying.discard(flight)
        if not flight.cancelled() and (error := flight.exception()) is not None:
            self._failure = self._failure or error
        self._pump()
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        done = self._failure is not None or self.stopped is not None or self._tier.items_left == 0
        if done and not self._flying:
            self._over.set()

    async def _fly(self, step: Ready[Item]) -> None:
        """Serve one host after the other as long as some host is due; one coroutine costs less than one a page."""
        following: Ready[Item] | None = step
        while following is not None:
            try:
                await self._visits.serve(following.host, following.item)
            except SpindleError:
                raise  # the store, or our right to write: the task itself cannot go on
            except (Exception, SystemExit) as error:
                self._visits.stumble(following.host, following.item, error)
                if self.counts["internal_errors"] > _MAX_STUMBLES:
                    raise
            self._watch_fault()
            following = self._take()

    def _watch_fault(self) -> None:
        if self._books.our_fault and self.stopped is None:
            self.stop("our_fault")

    # --- by the clock

    async def _keep_house(self) -> None:
        """Raises what breaks the task: the store refuses, or a newer attempt owns it."""
        sealed_at = asked_at = reported_at = self._clock()
        pause = min(TICK_S, self._limits.seal_interval_s / 2)
        while True:
            await asyncio.sleep(pause)
            now = self._clock()
            if now - self._ticked > self._limits.seal_interval_s:
                await self._journal.check()
            self._ticked = now
            self._heartbeat()
            if now - asked_at >= POLL_S:
                self._obey(await asyncio.to_thread(self._ear.listen))
                asked_at = now
            if now - sealed_at >= self._limits.seal_interval_s or self._journal.warc_bytes >= self._limits.seal_bytes:
                await self._journal.seal()
                sealed_at = now
            if now - reported_at >= TICK_S:
                await self._report()
                reported_at = now
            self._watch_end()
            self._pump()
            self._end_if_idle()

    def _watch_end(self) -> None:
        now, left = self._clock(), self._tier.hosts_left
        few = left < self._limits.tail_hosts and left <= self._began_with * _TAIL_SHARE
        self._tail_since = (self._tail_since or now) if few else None
        if self._tail_since is not None and now - self._tail_since >= self._limits.tail_s:
            self.stop("tail")
        if now >= self._stop_at:
            self.stop("window")

    def _obey(self, word: Word) -> None:
        before, self._word = self._word, word
        self._visits.wishes = word.hosts
        if self._origin.segment in word.stop:
            self.stop("stop")
        for host in word.hosts.keys() & self._books.hosts.keys():
            self._obey_host(host, before.hosts.get(host, NO_WORD), word.hosts[host])

    def _obey_host(self, host: str, before: HostWord, word: HostWord) -> None:
        book = self._books.hosts[host]
        if word.block:
            self._visits.release_all(host, "blocked")
        if (word.limited, word.limit_delay_s) != (before.limited, before.limit_delay_s):
            self._tier.set_limit(host, book.limit_delay_s if word.limited is None else word.limit_delay_s)
        if (word.pause or word.pause != before.pause) and not book.origins & self._visits.gate.pending:
            self._tier.hold(host, self._visits.paused_until(host))

    async def _report(self) -> None:
        """The progress file that the driver's bar reads."""
        counts, now = self.counts, self._clock()
        pages = sum(counts[outcome] for outcome in Outcome) - counts[Outcome.NOT_REACHED]
        good = counts[Outcome.OK] + counts[Outcome.NOT_MODIFIED] + counts[Outcome.REDIRECT]
        slowest = self._tier.slowest_host()
        progress = {
            "task": self._origin.task,
            "epoch": self._origin.epoch,
            "at": iso(now),
            "pages": pages,
            "errors": pages - good,
            "urls_left": self._books.urls_left,
            "hosts_left": self._tier.hosts_left,
            "in_flight": self._tier.in_flight,
            "slowest_host": slowest[0] if slowest else None,
            "finish_in_s": round(min(slowest[1] if slowest else 0.0, max(self._stop_at - now, 0.0)), 1),
        }
        name, content = f"journal/{self._origin.task:05d}.progress", json.dumps(progress).encode()
        await asyncio.to_thread(self._store.put, name, content, durable=False)
