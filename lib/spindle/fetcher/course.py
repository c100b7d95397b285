"""One fetch task: takes hosts from the back tier as they come due, has each item fetched, and sees to the end.

This file decides the course of a task: what is asked next, when it stops and why, and that every listed URL gets
exactly one hop-0 row. When a host may be touched is `politeness`' decision; how a request goes out, `client`'s; what a
row says, `rows`'; what robots.txt allows, `gate`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from spindle import urls, warc
from spindle.config import UNLIMITED, Settings
from spindle.errors import SpindleError
from spindle.fetcher.blame import Blame
from spindle.fetcher.client import Answer, Client
from spindle.fetcher.control import POLL_S, Control, HostWish, read_control
from spindle.fetcher.gate import Gate, Probe, first_probe
from spindle.fetcher.journal import Journal, Place, Row
from spindle.fetcher.rows import (
    MAX_SPAN_S,
    Content,
    Origin,
    Page,
    as_seconds,
    describe,
    fetch_row,
    iso,
    judge,
    outcome_of,
    redirect_target,
    robots_row,
    wanted_types,
)
from spindle.fetcher.suspects import Suspects
from spindle.outcome import NETWORK_CLASS, Outcome
from spindle.politeness import BackTier, HostState, Ready, Signal, Wait, gap_s, retry_after_s
from spindle.store import Store

Item = Page | Probe
ReadEarlier = Callable[[Place], bytes]

_TAIL_SHARE = 0.1  # a task is in its tail when at most this part of its hosts is left; a site crawl has none
TICK_S = 1.0
_NO_WISH = HostWish()
_MAX_STUMBLES = 100  # a task

_log = logging.getLogger(__name__)
_IDENTITY = ("type", "segment", "url_key", "hop", "via_key", "month", "bucket", "url", "host", "kind", "depth")


@dataclass
class Listing:
    """What one task is to fetch.

    `rows`: of `fetchlist`, in the order of their priority. `hosts`, `robots`: rows of those tables by host and origin.
    `month`: of the rows written (default: the month in which the task's first attempt began). `lease_until`: seconds
    since the epoch; nothing is sent in the last `total_timeout_s` before it.
    """

    rows: Iterable[Mapping[str, Any]]
    hosts: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    robots: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    month: str | None = None
    lease_until: float | None = None


def steady_clock() -> Callable[[], float]:
    """Seconds since the epoch that go on evenly from now, whatever is done to the system's clock."""
    offset = time.time() - time.monotonic()
    return lambda: offset + time.monotonic()


@dataclass
class Around:
    """What a task meets from outside, each thing as an argument.

    `clock`: seconds since the epoch, never running backwards. `scope`: whether a redirect hop is wanted.
    `read_earlier`: the beginning of a record of an earlier segment; `folder`: this segment's, from the warehouse, which
    is where such places, and those that revisit records name, count from. `mark`: see `suspects`; `heartbeat` is called
    about once a second while the loop moves.
    """

    clock: Callable[[], float] = field(default_factory=steady_clock)
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    scope: Callable[[str], bool] | None = None
    read_earlier: ReadEarlier | None = None
    folder: str = ""
    mark: Path | None = None
    heartbeat: Callable[[], None] = lambda: None


@dataclass
class _Host:
    """What the task remembers of a host until its last URL is done."""

    open: int = 0  # URLs still to be fetched, hops included
    hops_left: int | None = None  # None: unlimited
    origins: set[str] = field(default_factory=set)
    payloads: dict[str, warc.Original] = field(default_factory=dict)


class Course:
    """The course of one attempt. Build, `load`, `run`, `close`; or let `fetch_task` do all of it."""

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
        self._settings, self._fetch, self._store = settings, settings.fetch, store
        self._client, self._journal, self._origin = client, journal, origin
        self._clock, self._scope, self._read_earlier = around.clock, around.scope, around.read_earlier
        self._heartbeat, self._suspects = around.heartbeat, suspects
        self._normalizer = urls.Normalizer(settings.url)
        self._gate = Gate(settings.robots, settings.agent.token, self._normalizer, settings.fetch.max_decode_ratio)
        self._blame = Blame(settings.fetch.our_fault_window, settings.fetch.our_fault_share)
        queues = settings.fetch.queues_factor * settings.fetch.max_open
        self._tier: BackTier[Item] = BackTier(settings.politeness, max_open=settings.fetch.max_open, queues=queues)
        self._hosts: dict[str, _Host] = {}
        self._open: dict[int, Page] = {}  # hop-0 pages without a row
        self._seen: set[int] = set()  # keys listed, or followed to
        self._touched: dict[str, float] = {}  # host -> end of its last request
        self._flying: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._alarm_at = math.inf
        self._over = asyncio.Event()
        self._failure: BaseException | None = None
        self._control = Control()
        self._wanted = wanted_types(settings.fetch)
        self._began = self._clock()
        self._stop_at = self._began + settings.fetch.window_s
        self._tail_since: float | None = None
        self.stopped: str | None = None
        self.counts: Counter[str] = Counter()

    # --- before

    def load(self, listing: Listing, earlier: Iterable[Row] = (), *, resumed: bool = False) -> None:
        """Take the listing, less what the sealed parts of earlier attempts already have."""
        now, behind = self._clock(), list(earlier)
        if listing.lease_until is not None:
            self._stop_at = min(self._stop_at, listing.lease_until - self._fetch.total_timeout_s)
        done = {row["url_key"] for row in behind if row["type"] == "fetch" and row["hop"] == 0}
        learned = {row["host"]: row for row in behind if row["type"] == "fetch" and row["next_ok_at"] is not None}
        robots = {**listing.robots, **{row["origin"]: row for row in behind if row["type"] == "robots"}}
        for row in listing.rows:
            page = Page.listed(row)
            self._seen.add(page.key)
            if page.key in self._suspects.guilty and page.key not in done:
                text = "set aside: it has ended the process that worked on it, twice"
                self._write(fetch_row(self._origin, page, Outcome.PROTOCOL_ERROR, text))
            elif page.key not in done and page.key not in self._open:
                self._admit(page, listing, learned, robots, now if resumed else None)
        self._began_with = max(len(self._hosts), 1)
        self._take_over(behind)

    def _admit(
        self,
        page: Page,
        listing: Listing,
        learned: Mapping[str, Row],
        robots: Mapping[str, Mapping[str, Any] | None],
        resumed_at: float | None,
    ) -> None:
        host = self._hosts.get(page.host)
        if host is None:
            host = self._hosts[page.host] = _Host()
            state = host_state(listing.hosts.get(page.host), learned.get(page.host))
            if resumed_at is not None:  # the dead attempt may just have touched it
                state = replace(state, next_ok_at=max(state.next_ok_at, resumed_at + self._delay_s(state)))
            self._tier.add_host(page.host, state)
            host.hops_left = self._hop_budget(listing.hosts.get(page.host), self._began)
        origin = urls.origin_of(page.url)
        if origin not in host.origins:
            host.origins.add(origin)
            self._gate.load(origin, robots.get(origin))
            self._learn_delay(page.host)
        host.open += 1
        if host.hops_left is not None:
            host.hops_left -= 1
        self._open[page.key] = page
        self._tier.put(page.host, page)

    def _delay_s(self, state: HostState) -> float:
        return gap_s(
            self._settings.politeness,
            crawl_delay_s=state.crawl_delay_s,
            limit_delay_s=state.limit_delay_s,
            backoff_level=state.backoff_level,
        )

    def _hop_budget(self, row: Mapping[str, Any] | None, now: float) -> int | None:
        """Requests a host may get in this task; what the list leaves of it may go to redirect hops."""
        limits = self._settings.generate
        budgets = [limits.host_budget] if limits.host_budget != UNLIMITED else []
        if limits.host_day_budget != UNLIMITED:
            today = row is not None and str(row.get("day")) == iso(now)[:10]
            budgets.append(limits.host_day_budget - (row.get("fetched_today") or 0 if row and today else 0))
        return min(budgets) if budgets else None

    def _take_over(self, behind: list[Row]) -> None:
        """Go on with redirects that an earlier attempt saw and did not follow to the end."""
        hops = [row for row in behind if row["type"] == "fetch"]
        self._seen.update(row["url_key"] for row in hops)
        for row in hops:
            if row["hop"] == 0:
                self.counts[row["outcome"]] += 1
            if row["outcome"] == Outcome.REDIRECT and row["redirect_to"] and row["host"] in self._hosts:
                page = Page(
                    row["url_key"], row["url"], row["host"], row["bucket"], row["kind"], row["depth"], hop=row["hop"]
                )
                self._follow(page, row["redirect_to"])

    # --- the course

    async def run(self) -> None:
        """Fetch until nothing is left or a reason to stop has come; raises what broke the task itself."""
        self._loop = asyncio.get_running_loop()
        keeper = asyncio.create_task(self._keep_house())
        self._pump()
        over = asyncio.create_task(self._over.wait())
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

    def close(self) -> None:
        """Write the rows that are still owed: failures held back, and `not_reached` for all that has no row."""
        for row in self._blame.close():
            self._write(row)
        self._note_fault()
        for page in list(self._open.values()):
            self._settle(page)
            self._not_reached(page, self.stopped)

    def stop(self, reason: str) -> None:
        """Start nothing more; the task is over when the last request has ended."""
        self.stopped = self.stopped or reason
        self._pump()

    def _pump(self) -> None:
        while (step := self._take()) is not None:
            flight = asyncio.create_task(self._fly(step.host, step.item))
            self._flying.add(flight)
            flight.add_done_callback(self._landed)

    def _take(self) -> Ready[Item] | None:
        """The next host that is due; otherwise arms the alarm, or ends the task when nothing can come any more."""
        if self._failure is None and self.stopped is None and not self._control.pause:
            now = self._clock()
            if now >= self._stop_at:
                self.stopped = "window"
                return None
            step = self._tier.next(now)
            if isinstance(step, Ready):
                return step
            if isinstance(step, Wait):
                self._arm(step.until, now)
        return None

    def _arm(self, until: float, now: float) -> None:
        if until >= self._stop_at and self._tier.in_flight == 0:
            self.stopped = "window"  # nobody's turn comes before the end: no use in idling until then
            return
        if until < self._alarm_at:
            if self._timer is not None:
                self._timer.cancel()
            self._alarm_at = until
            self._timer = self._loop.call_later(max(0.0, until - now), self._pump_or_end)

    def _pump_or_end(self) -> None:
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
        if self._flying:
            return
        nothing_left = self._tier.items_left == 0
        if self._failure is not None or self.stopped is not None or nothing_left:
            self._over.set()

    async def _fly(self, host: str, item: Item) -> None:
        """Serve one host after the other as long as some host is due; one coroutine costs less than one a page."""
        step: Ready[Item] | None
        while True:
            try:
                await self._visit(host, item)
            except SpindleError:
                raise  # the store, or our right to write: the task itself cannot go on
            except (Exception, SystemExit) as error:  # noqa: BLE001 - one page must not cost the others
                self._stumble(host, item, error)
            if (step := self._take()) is None:
                return
            host, item = step.host, step.item

    def _stumble(self, host: str, item: Item, error: BaseException) -> None:
        """A fault of ours in one item: a row that says so. Many of them are a broken program, and end the task."""
        _log.error("%s: %r", item.url, error, exc_info=error)
        self.counts["internal_errors"] += 1
        if self.counts["internal_errors"] > _MAX_STUMBLES:
            raise error
        with contextlib.suppress(ValueError):  # it may have landed already
            self._tier.finished(host, self._clock(), duration_s=0.0)
        if isinstance(item, Page) and (item.hop > 0 or item.key in self._open):
            self._settle(item)
            text = f"internal error: {type(error).__name__}: {error}"[:300]
            self._write(fetch_row(self._origin, item, Outcome.PROTOCOL_ERROR, text))

    # --- one item

    async def _visit(self, host: str, item: Item) -> None:
        if isinstance(item, Probe):
            await self._ask_robots(host, item)
            return
        origin, now = urls.origin_of(item.url), self._clock()
        if self._wish(host).block:
            self._settle(item)
            self._not_reached(item, "blocked")
            self._tier.release(host, now)
        elif origin in self._gate.pending:
            self._tier.put_front(host, item)
            self._tier.hold(host, math.inf)  # until the probe in the other host's queue is done
            self._tier.release(host, now)
        elif self._gate.must_ask(origin, now):
            self._tier.put_front(host, item)
            await self._ask_robots(host, first_probe(origin, host, item.bucket))
        elif (refusal := self._gate.refusal(origin, item.url)) is not None:
            self._settle(item)
            row = fetch_row(self._origin, item, refusal)
            for one in self._blame.follow(host, row) if refusal is Outcome.ROBOTS_UNREACHABLE else [row]:
                self._write(one)
            self._tier.release(host, now)
        else:
            await self._fetch_page(host, item)

    async def _fetch_page(self, host: str, page: Page) -> None:
        answer = await self._client.get(
            page.url,
            headers=page.validators,
            max_bytes=self._fetch.max_body_bytes,
            wanted=self._wanted,
            last=self._hosts[host].open == 1,
            admit=lambda address: self._tier.admit(host, address, self._clock()),
        )
        if self._sent_in_vain(host, page, answer):
            return
        self._suspects.mark(page.key)
        content = judge(answer, page, self._fetch)
        row = fetch_row(self._origin, page, content.outcome, content.error)
        describe(row, answer, content)
        row["gap_ms"] = self._gap_ms(host, answer.started_at)
        if answer.status is not None:
            await self._keep(row, page, answer, content)
        if content.outcome is Outcome.REDIRECT:
            row["redirect_to"], row["error"] = redirect_target(answer, self._normalizer)
            if row["redirect_to"]:
                self._follow(page, row["redirect_to"])
        self._suspects.clear()
        self._settle(page)
        self._finish(host, answer, row)
        self._record(host, content.outcome in NETWORK_CLASS, [row])
        self._give_up(host)

    def _sent_in_vain(self, host: str, item: Item, answer: Answer) -> bool:
        """No request reached the server: the address has its fill, or a kept connection had been closed meanwhile.

        The item goes back to the head of its queue; the second case once only, and at the price of a gap.
        """
        if answer.refused:
            self._tier.put_front(host, item)
            self._tier.release(host, self._clock())
            return True
        if answer.stale and item.tries == 0:
            item.tries += 1
            self.counts["stale_connections"] += 1
            self._tier.put_front(host, item)
            self._finish(host, answer, None)
            return True
        return False

    def _follow(self, page: Page, target: str) -> None:
        """A hop on the same host goes to the head of its own queue, once, where scope and budget let it."""
        host, key = self._hosts.get(page.host), urls.url_key(target)
        if host is None or urls.host_of(target) != page.host or key in self._seen or self.stopped:
            return
        if page.hop >= self._fetch.max_redirects or (self._scope is not None and not self._scope(target)):
            return
        if host.hops_left is not None:
            if host.hops_left <= 0:
                self.counts["hops_over_budget"] += 1
                return
            host.hops_left -= 1
        self._seen.add(key)
        host.open += 1
        origin = urls.origin_of(target)
        if origin not in host.origins:
            host.origins.add(origin)
        self._tier.put_front(page.host, page.hop_to(key, target))

    def _finish(self, host: str, answer: Answer, row: Row | None) -> None:
        """Tell the back tier how it went, and the row what the host has to wait for now."""
        self._touched[host] = answer.ended_at
        signal, wait = _signal(answer)
        self._tier.finished(host, self._clock(), duration_s=answer.duration_s, signal=signal, retry_after_s=wait)
        if answer.ip and urls.host_of(answer.url) == host:
            self._tier.set_address(host, answer.ip)
        if row is not None:
            state = self._tier.state(host)
            row["crawl_delay_s"], row["backoff_level"] = state.crawl_delay_s, state.backoff_level
            row["next_ok_at"] = iso(min(max(state.next_ok_at, state.backoff_until), self._clock() + MAX_SPAN_S))

    def _gap_ms(self, host: str, started_at: float) -> float | None:
        before = self._touched.get(host)
        return None if before is None else round((started_at - before) * 1000, 3)

    async def _keep(self, row: Row, page: Page, answer: Answer, content: Content) -> None:
        """Lay the exchange down in the WARC part and its place in the row."""
        plain = content.content_hash is not None and content.body_bytes == len(answer.body)
        coded = answer.header(b"content-encoding") is not None
        digest = f"sha256:{content.content_hash}" if plain and not coded else warc.payload_digest(answer.body)
        capture = _capture(row, answer, digest)
        whole = answer.truncated is None and not answer.body_skipped
        original = None
        if whole and content.outcome is Outcome.OK and answer.body:
            original = await self._original(page, content, digest)
            self._suspects.mark(page.key)
        if content.outcome is Outcome.NOT_MODIFIED and page.record_date is not None:
            earlier = warc.Original(page.url, page.record_date, page.place)
            record = warc.revisit(capture, warc.NOT_MODIFIED, earlier)
        elif original is not None:
            record = warc.revisit(capture, warc.IDENTICAL_PAYLOAD, original)
        else:
            record = warc.response(capture)
        place = self._journal.store_exchange(capture.date, warc.request(capture), record)
        row["warc_file"], row["warc_offset"], row["warc_length"] = place
        if whole and original is None and content.outcome is Outcome.OK and answer.body and page.host in self._hosts:
            known = warc.Original(page.url, capture.date, self._origin.in_warehouse(place))
            self._hosts[page.host].payloads.setdefault(digest, known)

    async def _original(self, page: Page, content: Content, digest: str) -> warc.Original | None:
        """The record that holds these very payload bytes: of this host in this task, or the last one of this URL."""
        host = self._hosts.get(page.host)
        if host is not None and digest in host.payloads:
            return host.payloads[digest]
        known = page.place is not None and page.record_date is not None and self._read_earlier is not None
        if not known or content.content_hash != page.content_hash:
            return None
        assert page.place is not None and page.record_date is not None and self._read_earlier is not None
        try:  # equal content may have had another content coding then; the digest of the old payload tells
            fields = warc.read_fields(await asyncio.to_thread(self._read_earlier, page.place))
        except (OSError, warc.WarcError):
            return None
        same = fields.get("warc-type") == "response" and fields.get("warc-payload-digest") == digest
        return warc.Original(page.url, page.record_date, page.place) if same else None

    # --- robots.txt

    async def _ask_robots(self, host: str, probe: Probe) -> None:
        answer = await self._client.get(
            probe.url,
            max_bytes=self._settings.robots.max_bytes,
            admit=lambda address: self._tier.admit(host, address, self._clock()),
        )
        if self._sent_in_vain(host, probe, answer):
            return
        row = robots_row(self._origin, probe.origin, probe.home, probe.bucket, answer.started_at)
        if answer.status is not None:
            capture = _capture({"started_at": iso(answer.started_at)}, answer, warc.payload_digest(answer.body))
            place = self._journal.store_exchange(capture.date, warc.request(capture), warc.response(capture))
            row["warc_file"], row["warc_offset"], row["warc_length"] = place
        self.counts["robots_requests"] += 1
        following = self._gate.next_probe(probe, answer)
        if following is not None:
            self._pass_on(host, following)
            self._finish(host, answer, None)
            return
        try:
            self._gate.learn(probe, answer, row)
        except Exception as error:  # noqa: BLE001 - a file we stumble over forbids its site, and only that
            _log.error("%s: %r", probe.url, error, exc_info=error)
            self.counts["internal_errors"] += 1
            self._gate.fail(probe, answer.ended_at, f"internal error: {error!r}"[:300], row)
        self._wake_home(probe)
        self._finish(host, answer, None)
        self._record(host, answer.failure in NETWORK_CLASS, [row])
        self._give_up(host)

    def _pass_on(self, host: str, probe: Probe) -> None:
        """A redirected robots.txt is read in the queue of the host it leads to, where that is in this task."""
        target = urls.host_of(probe.url)
        if target != host and target in self._hosts:
            self._gate.pending.add(probe.origin)
            self._tier.put_front(target, probe)
        else:
            self.counts["robots_elsewhere"] += target != host
            self._tier.put_front(host, probe)

    def _wake_home(self, probe: Probe) -> None:
        """The last word on an origin is known: its pages may go on."""
        if probe.origin in self._gate.pending:
            self._gate.pending.discard(probe.origin)
            self._tier.hold(probe.home, self._paused_until(probe.home))
        self._learn_delay(probe.home)

    def _learn_delay(self, host: str) -> None:
        """The longest crawl-delay of a host's origins holds for all of it; what is not known yet shortens nothing."""
        origins, now = self._hosts[host].origins, self._clock()
        delays = [delay for origin in origins if (delay := self._gate.crawl_delay_s(origin)) is not None]
        before = self._tier.state(host).crawl_delay_s
        if before is not None and any(self._gate.must_ask(origin, now) for origin in origins):
            delays.append(before)
        delay = max(delays, default=None)
        if delay != before:
            self._tier.set_crawl_delay(host, delay)

    # --- rows

    def _record(self, host: str, failed: bool, rows: list[Row]) -> None:
        for row in self._blame.note(host, failed, rows):
            self._write(row)
        self._note_fault()

    def _note_fault(self) -> None:
        if self._blame.ours and self.stopped is None:
            self.stopped = "our_fault"

    def _write(self, row: Row) -> None:
        if self._blame.ours and _is_network_failure(row):
            self.counts["uncharged"] += 1
            if row["type"] == "robots" or row["hop"] > 0:
                return
            row = {**dict.fromkeys(row), **{name: row[name] for name in _IDENTITY}}
            row["task"], row["epoch"] = self._origin.task, self._origin.epoch
            row["outcome"], row["error"] = Outcome.NOT_REACHED.value, "our_fault"
        if row["type"] == "fetch" and row["hop"] == 0:
            self.counts[row["outcome"]] += 1
        self._journal.write(row)

    def _settle(self, page: Page) -> None:
        """The page has its row (or will, when it is held back); forget the host with its last one."""
        host = self._hosts[page.host]
        host.open -= 1
        if page.hop == 0:
            del self._open[page.key]
        if host.open == 0:
            host.payloads.clear()
            for origin in host.origins - self._gate.pending:
                self._gate.forget(origin)

    def _not_reached(self, page: Page, reason: str | None) -> None:
        if page.hop == 0:
            self._write(fetch_row(self._origin, page, Outcome.NOT_REACHED, reason))

    def _give_up(self, host: str) -> None:
        """A host that failed too often in a row is left alone for this turn."""
        if self._tier.given_up(host):
            self._release_all(host, "host failures")

    def _release_all(self, host: str, reason: str) -> None:
        for item in self._tier.drop(host):
            if isinstance(item, Page):
                self._settle(item)
                self._not_reached(item, reason)
            else:
                row = robots_row(self._origin, item.origin, item.home, item.bucket, self._clock())
                self._gate.fail(item, self._clock(), f"its redirect leads to {host}: {reason}", row)
                self._wake_home(item)
                self._write(row)

    # --- housekeeping

    async def _keep_house(self) -> None:
        """What happens by the clock: seals, the operator's word, tail, progress. Raises what breaks the task."""
        sealed_at = asked_at = reported_at = self._loop.time()
        pause = min(TICK_S, self._fetch.seal_interval_s / 2)
        while True:
            await asyncio.sleep(pause)
            now = self._loop.time()
            self._heartbeat()
            if now - asked_at >= POLL_S:
                self._obey(await asyncio.to_thread(read_control, self._store))
                asked_at = now
            if now - sealed_at >= self._fetch.seal_interval_s or self._journal.warc_bytes >= self._fetch.seal_bytes:
                await self._journal.seal()
                sealed_at = now
            if now - reported_at >= TICK_S:
                await asyncio.to_thread(self._report)
                reported_at = now
            self._watch_tail()
            self._pump()
            self._end_if_idle()

    def _watch_tail(self) -> None:
        now, left = self._clock(), self._tier.hosts_left
        few = left < self._fetch.tail_hosts and left <= self._began_with * _TAIL_SHARE
        self._tail_since = (self._tail_since or now) if few else None
        if self._tail_since is not None and now - self._tail_since >= self._fetch.tail_s:
            self.stop("tail")
        if now >= self._stop_at:
            self.stop("window")

    def _obey(self, control: Control) -> None:
        before, self._control = self._control, control
        if control.stop:
            self.stop("stop")
        for host in before.hosts.keys() | control.hosts.keys():
            if host in self._hosts:
                self._obey_host(host, before.hosts.get(host, HostWish()), control.hosts.get(host, HostWish()))

    def _obey_host(self, host: str, before: HostWish, wish: HostWish) -> None:
        if wish.block:
            self._release_all(host, "blocked")
        if wish.limit_delay_s != before.limit_delay_s:
            self._tier.set_limit(host, wish.limit_delay_s)
        if (wish.pause or before.pause) and not self._hosts[host].origins & self._gate.pending:
            self._tier.hold(host, self._paused_until(host))

    def _wish(self, host: str) -> HostWish:
        return self._control.hosts.get(host, _NO_WISH) if self._control.hosts else _NO_WISH

    def _paused_until(self, host: str) -> float:
        """A pause is renewed at each poll until it is lifted."""
        return self._clock() + 3 * POLL_S if self._wish(host).pause else 0.0

    def _report(self) -> None:
        pages = sum(self.counts[outcome] for outcome in Outcome) - self.counts[Outcome.NOT_REACHED]
        good = self.counts[Outcome.OK] + self.counts[Outcome.NOT_MODIFIED] + self.counts[Outcome.REDIRECT]
        progress = {
            "task": self._origin.task,
            "epoch": self._origin.epoch,
            "at": iso(self._clock()),
            "pages": pages,
            "errors": pages - good,
            "urls_left": len(self._open),
            "hosts_left": self._tier.hosts_left,
            "in_flight": self._tier.in_flight,
            "slowest_host": self._tier.slowest_host(),
            "ends_by": iso(self._stop_at),
        }
        name = f"journal/{self._origin.task:05d}.progress"
        self._store.put(name, json.dumps(progress).encode(), durable=False)


def host_state(row: Mapping[str, Any] | None, learned: Row | None) -> HostState:
    """The state with which a host enters: from its row of `hosts`, and from what an earlier attempt's journal says."""
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
        next_ok_at=max(state.next_ok_at, as_seconds(learned["next_ok_at"]) or 0.0),
        crawl_delay_s=learned["crawl_delay_s"],
        backoff_level=learned["backoff_level"] or 0,
    )


def _signal(answer: Answer) -> tuple[Signal, float | None]:
    if answer.status is not None and outcome_of(answer.status) is Outcome.THROTTLED:
        return Signal.THROTTLED, retry_after_s(answer.header(b"retry-after"), answer.ended_at)
    return (Signal.FAILED if answer.failure in NETWORK_CLASS else Signal.OK), None


def _capture(row: Row, answer: Answer, digest: str) -> warc.Capture:
    return warc.Capture(
        url=answer.url,
        date=row["started_at"],
        ip=answer.ip,
        request=answer.request,
        status_line=answer.status_line,
        headers=answer.headers,
        body=answer.body,
        digest=digest,
        truncated=answer.truncated or ("unspecified" if answer.body_skipped else None),
    )


def _is_network_failure(row: Row) -> bool:
    if row["type"] == "robots":
        return row["http_status"] is None
    return row["outcome"] == Outcome.ROBOTS_UNREACHABLE or row["outcome"] in NETWORK_CLASS
