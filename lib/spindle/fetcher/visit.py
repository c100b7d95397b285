"""What happens when a host's turn has come: one item is served, a page or a robots.txt, and everybody is told.

This file decides what one request is for and what follows from its answer: a row, a record, a hop, a new delay. When a
host's turn comes is `politeness`' decision, and how long the task goes on `course`'s.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping

from spindle import urls
from spindle.config import Settings
from spindle.fetcher.answer import Answer
from spindle.fetcher.archive import Archive
from spindle.fetcher.books import Books
from spindle.fetcher.client import Client
from spindle.fetcher.gate import Gate, Probe, first_probe
from spindle.fetcher.journal import Row
from spindle.fetcher.rows import (
    MAX_SPAN_S,
    Origin,
    Page,
    as_ms,
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
from spindle.politeness import BackTier, Signal, retry_after_s
from spindle.urls import Normalizer
from spindle.wishes import NO_WORD, HostWord

Item = Page | Probe

POLL_S = 5.0  # an operator's word takes effect within 60 s; asking is cheap

_BREATH = 200  # rows without a request, in a row, before the loop may see to others

_TRACES = 3  # faults of ours whose stack is logged; a broken program needs no hundred of them

_log = logging.getLogger(__name__)


class Visits:
    """Serves items. `wishes`: the operator's word by host, put there by the course."""

    def __init__(
        self,
        settings: Settings,
        origin: Origin,
        client: Client,
        tier: BackTier[Item],
        books: Books,
        archive: Archive,
        suspects: Suspects,
        clock: Callable[[], float],
        scope: Callable[[str], bool] | None,
    ) -> None:
        self._limits, self._origin, self._client, self._tier = settings.fetch, origin, client, tier
        self._books, self._archive, self._suspects, self._clock = books, archive, suspects, clock
        self._scope, self._normalizer = scope, Normalizer(settings.url)
        self._robots_bytes = settings.robots.max_bytes
        self._wanted = wanted_types(settings.fetch)
        self._requestless = 0
        self.gate = Gate(settings.robots, settings.agent.token, self._normalizer, settings.fetch.max_decode_ratio)
        self.wishes: Mapping[str, HostWord] = {}
        self.stopping = False

    async def serve(self, host: str, item: Item) -> None:
        """Serve an item of a host in flight; the host has landed when this returns."""
        if isinstance(item, Probe):
            await self._ask_robots(host, item)
            return
        origin, now = urls.origin_of(item.url), self._clock()
        if self.wishes and self.wish(host).block:
            self._settle(item)
            self._books.not_reached(item, "blocked")
            self._tier.release(host, now)
        elif origin in self.gate.pending:
            self._tier.put_front(host, item)
            self._tier.hold(host, math.inf)  # until the probe in the other host's queue is done
            self._tier.release(host, now)
        elif self.gate.must_ask(origin, now):
            self._tier.put_front(host, item)
            await self._ask_robots(host, first_probe(origin, host, item.bucket))
        elif (refusal := self.gate.refusal(origin, item.url)) is not None:
            await self._refuse(host, item, refusal)
        else:
            await self._fetch(host, item)

    def wish(self, host: str) -> HostWord:
        return self.wishes.get(host, NO_WORD)

    def paused_until(self, host: str) -> float:
        """A pause is renewed at each poll until it is lifted."""
        return self._clock() + 3 * POLL_S if self.wish(host).pause else 0.0

    def stumble(self, host: str, item: Item, error: BaseException) -> None:
        """A fault of ours in one item: a row that says so, and the others go on."""
        self._report_fault(item.url, error)
        try:
            self._tier.finished(host, self._clock(), duration_s=0.0)
        except ValueError:
            _log.debug("%s had landed before the fault", host)
        if isinstance(item, Page) and self._books.is_open(item):
            self._settle(item)
            text = f"internal error: {type(error).__name__}: {error}"[:300]
            self._books.write(fetch_row(self._origin, item, Outcome.PROTOCOL_ERROR, text))

    def _report_fault(self, url: str, error: BaseException) -> None:
        self._books.counts["internal_errors"] += 1
        traced = error if self._books.counts["internal_errors"] <= _TRACES else None
        _log.error("%s: %r", url, error, exc_info=traced)

    def release_all(self, host: str, reason: str) -> None:
        """Give back all that is queued of a host."""
        for item in self._tier.drop(host):
            if isinstance(item, Page):
                self._settle(item)
                self._books.not_reached(item, reason)
            else:
                self._give_up_probe(item, f"its redirect leads to {host}: {reason}")

    def follow(self, page: Page, target: str) -> None:
        """A hop on the same host goes to the head of its own queue, once, where scope and budget let it."""
        if self.stopping or page.host not in self._books.hosts or urls.host_of(target) != page.host:
            return
        if page.hop >= self._limits.max_redirects or (self._scope is not None and not self._scope(target)):
            return
        hop = page.hop_to(urls.url_key(target), target)
        if self._books.admit_hop(hop):
            self._books.hosts[page.host].origins.add(urls.origin_of(target))
            self._tier.put_front(page.host, hop)

    # --- pages

    async def _refuse(self, host: str, page: Page, refusal: Outcome) -> None:
        self._settle(page)
        row = fetch_row(self._origin, page, refusal)
        if refusal is Outcome.ROBOTS_UNREACHABLE:
            self._books.follow(host, row)
        else:
            self._books.write(row)
        self._tier.release(host, self._clock())
        self._requestless += 1
        if self._requestless % _BREATH == 0:
            await asyncio.sleep(0)

    async def _fetch(self, host: str, page: Page) -> None:
        answer = await self._client.get(
            page.url,
            headers=page.validators,
            max_bytes=self._limits.max_body_bytes,
            wanted=self._wanted,
            last=self._books.hosts[host].open == 1,
            admit=lambda address: self._tier.admit(host, address, self._clock()),
        )
        if self._sent_in_vain(host, page, answer):
            return
        row = await self._digest(host, page, answer)
        self._settle(page)
        self._finish(host, answer, row)
        self._books.attempt(host, row["outcome"] in NETWORK_CLASS, row)
        if self._tier.given_up(host):
            self.release_all(host, "host failures")

    async def _digest(self, host: str, page: Page, answer: Answer) -> Row:
        """The row of an answer. While its bytes are worked on, the page stands marked as the one in work."""
        self._suspects.mark(page.key)
        content = judge(answer, page, self._limits)
        row = fetch_row(self._origin, page, content.outcome, content.error)
        describe(row, answer, content)
        before = self._books.hosts[host].touched_at
        row["gap_ms"] = None if before is None else as_ms(answer.started_at - before)
        if answer.status is not None:
            await self._archive.keep(row, page, answer, content)
        if content.outcome is Outcome.REDIRECT:
            row["redirect_to"], row["error"] = redirect_target(answer, self._normalizer)
            if row["redirect_to"]:
                self.follow(page, row["redirect_to"])
        self._suspects.clear()
        return row

    def _sent_in_vain(self, host: str, item: Item, answer: Answer) -> bool:
        """No request reached the server. The item goes back to the head of its queue.

        The address has its fill: the host stands in line. We are out of sockets: our trouble, after a gap again. A kept
        connection had been closed meanwhile: once more on a new one, at the price of a gap.
        """
        if answer.refused:
            self._tier.put_front(host, item)
            self._tier.release(host, self._clock())
            return True
        if answer.exhausted or (answer.stale and item.tries == 0):
            item.tries += answer.stale
            answer.failure = None  # not the host's
            self._books.counts["out_of_sockets" if answer.exhausted else "stale_connections"] += 1
            self._tier.put_front(host, item)
            self._finish(host, answer, None)
            return True
        return False

    def _settle(self, page: Page) -> None:
        host = self._books.settle(page)
        if host.open == 0:
            self._archive.forget(page.host)
            for origin in host.origins - self.gate.pending:
                self.gate.forget(origin)

    def _finish(self, host: str, answer: Answer, row: Row | None) -> None:
        """Tell the back tier how it went, and the row what the host has to wait for now."""
        self._books.hosts[host].touched_at, now = answer.ended_at, self._clock()
        signal, wait = Signal.OK, None
        if answer.status is not None and outcome_of(answer.status) is Outcome.THROTTLED:
            signal, wait = Signal.THROTTLED, retry_after_s(answer.header(b"retry-after"), answer.ended_at)
        elif answer.failure in NETWORK_CLASS:
            signal = Signal.FAILED
        self._tier.finished(host, now, duration_s=answer.duration_s, signal=signal, retry_after_s=wait)
        if row is not None:
            state = self._tier.state(host)
            row["crawl_delay_s"], row["backoff_level"] = state.crawl_delay_s, state.backoff_level
            row["next_ok_at"] = iso(min(max(state.next_ok_at, state.backoff_until), now + MAX_SPAN_S))

    # --- robots.txt

    async def _ask_robots(self, host: str, probe: Probe) -> None:
        answer = await self._client.get(
            probe.url,
            max_bytes=self._robots_bytes,
            admit=lambda address: self._tier.admit(host, address, self._clock()),
        )
        if self._sent_in_vain(host, probe, answer):
            return
        self._books.counts["robots_requests"] += 1
        row = robots_row(self._origin, probe.origin, probe.home, probe.bucket, answer.started_at)
        if answer.status is not None:
            self._archive.keep_robots(row, answer)
        following = self.gate.next_probe(probe, answer)
        if following is not None:
            self._pass_on(host, following)
            self._finish(host, answer, None)
            return
        self._learn(probe, answer, row)
        self._finish(host, answer, None)
        self._books.attempt(host, answer.failure in NETWORK_CLASS, row)
        if self._tier.given_up(host):
            self.release_all(host, "host failures")

    def _learn(self, probe: Probe, answer: Answer, row: Row) -> None:
        try:
            self.gate.learn(probe, answer, row)
        except Exception as error:  # noqa: BLE001 - a file we stumble over forbids its site, and only that
            self._report_fault(probe.url, error)
            self.gate.fail(probe, answer.ended_at, f"internal error: {error!r}"[:300], row)
        self._wake_home(probe)

    def _pass_on(self, host: str, probe: Probe) -> None:
        """A redirected robots.txt is read in the queue of the host it leads to, where that is in this task."""
        target = urls.host_of(probe.url)
        if target == host or target not in self._books.hosts:
            self._books.counts["robots_elsewhere"] += target != host
            self._tier.put_front(host, probe)
        elif self._tier.given_up(target) or self.wish(target).block:
            self._give_up_probe(probe, f"its redirect leads to {target}, which is left alone")
        else:
            self.gate.pending.add(probe.origin)
            self._tier.put_front(target, probe)

    def _give_up_probe(self, probe: Probe, reason: str) -> None:
        now = self._clock()
        row = robots_row(self._origin, probe.origin, probe.home, probe.bucket, now)
        self.gate.fail(probe, now, reason, row)
        self._wake_home(probe)
        self._books.write(row)

    def _wake_home(self, probe: Probe) -> None:
        """The last word on an origin is known: its pages may go on."""
        if probe.origin in self.gate.pending:
            self.gate.pending.discard(probe.origin)
            self._tier.hold(probe.home, self.paused_until(probe.home))
        self.learn_delay(probe.home)

    def learn_delay(self, host: str) -> None:
        """The longest crawl-delay of a host's origins holds for all of it; what is not known yet shortens nothing."""
        origins, now = self._books.hosts[host].origins, self._clock()
        delays = [delay for origin in origins if (delay := self.gate.crawl_delay_s(origin)) is not None]
        before = self._tier.state(host).crawl_delay_s
        if before is not None and any(self.gate.must_ask(origin, now) for origin in origins):
            delays.append(before)
        delay = max(delays, default=None)
        if delay != before:
            self._tier.set_crawl_delay(host, delay)
