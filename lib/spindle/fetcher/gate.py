"""robots.txt while a task runs: which origin must be asked first, what an answer means, and what it allows.

This file decides how an answer becomes a state and a row (the law itself is `robots`). It sends nothing: the task asks
when the host's turn has come, so that robots.txt obeys the same gap and flight rule as any page.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spindle import coding, robots, urls
from spindle.config import RobotsSettings
from spindle.fetcher.answer import Answer
from spindle.fetcher.journal import Row
from spindle.fetcher.rows import as_seconds, iso, outcome_of, redirect_target
from spindle.outcome import Outcome
from spindle.politeness import retry_after_s
from spindle.robots import Rules, State, Verdict


@dataclass(slots=True, eq=False)
class Probe:
    """robots.txt of `origin` is to be read at `url`, after `hops` redirects. `home`: the host whose pages wait."""

    origin: str
    home: str
    bucket: int
    url: str
    hops: int = 0
    tries: int = 0

    def hop_to(self, url: str) -> Probe:
        return Probe(self.origin, self.home, self.bucket, url, self.hops + 1)


@dataclass(slots=True)
class _Known:
    """What is known of one origin; the fields named as columns of `robots` mean the same."""

    verdict: Verdict
    expires_at: float
    rules: Rules | None = None
    good_at: float | None = None
    unreachable_since: float | None = None
    body: str | None = None
    body_hash: str | None = None


class Gate:
    """`rows`: origin -> row of `robots` as the listing brought it, or None."""

    def __init__(self, settings: RobotsSettings, token: str, normalizer: urls.Normalizer, max_ratio: float) -> None:
        self._settings, self._token, self._normalizer, self._max_ratio = settings, token, normalizer, max_ratio
        self._known: dict[str, _Known] = {}
        self.pending: set[str] = set()  # origins whose probe waits in another host's queue

    def load(self, origin: str, row: Mapping[str, Any] | None) -> None:
        """Take over what the table, or an earlier attempt's journal, knows of an origin."""
        expires = as_seconds(row["expires_at"]) if row else None
        if row is None or expires is None:
            return
        known = _Known(Verdict(row["verdict"]), expires, None, as_seconds(row.get("good_at")))
        known.unreachable_since = as_seconds(row.get("unreachable_since"))
        known.body, known.body_hash = row.get("body"), row.get("body_hash")
        if known.body is not None:
            known.rules = self._parse(known.body.encode("utf-8"))
        elif known.verdict is Verdict.RULES:
            return  # without its copy the verdict says nothing
        self._known[origin] = known

    def forget(self, origin: str) -> None:
        self._known.pop(origin, None)

    def must_ask(self, origin: str, now: float) -> bool:
        known = self._known.get(origin)
        return known is None or now >= known.expires_at

    def refusal(self, origin: str, url: str) -> Outcome | None:
        """Why the URL may not be fetched now (`denied`, `robots_unreachable`), or None. Only when nothing is to ask."""
        known = self._known[origin]
        if known.verdict is Verdict.ALLOW_ALL:
            return None
        if known.verdict is Verdict.RULES and known.rules is not None:
            return None if known.rules.allows(url) else Outcome.DENIED
        return Outcome.ROBOTS_UNREACHABLE

    def crawl_delay_s(self, origin: str) -> float | None:
        known = self._known.get(origin)
        return known.rules.crawl_delay_s if known and known.rules and known.verdict is Verdict.RULES else None

    def next_probe(self, probe: Probe, answer: Answer) -> Probe | None:
        """Where a redirected robots.txt is to be read next; None when this answer is the last word."""
        if answer.status is None or outcome_of(answer.status) is not Outcome.REDIRECT:
            return None
        target, _ = redirect_target(answer, self._normalizer)
        within = probe.hops < self._settings.max_redirects
        return probe.hop_to(target) if target and within else None

    def learn(self, probe: Probe, answer: Answer, row: Row) -> None:
        """Take the last word on an origin: into memory, and into its row of `robots`."""
        now, status = answer.ended_at, answer.status
        redirected = status is not None and outcome_of(status) is Outcome.REDIRECT
        exceeded = redirected and probe.hops >= self._settings.max_redirects
        body, error = self._body(answer)
        heard = status if answer.failure is None and error is None else None
        state = robots.robots_state(heard, exceeded)
        before = self._known.get(probe.origin)
        known = self._known[probe.origin] = self._judge(state, before, body, now, answer)
        self._fill(row, known, answer, "too many redirects" if exceeded else error or answer.error)

    def fail(self, probe: Probe, now: float, error: str, row: Row) -> None:
        """No request could be made: as unreachable as a dead host."""
        self.learn(probe, Answer(probe.url, now, now, failure=Outcome.CONNECT_ERROR, error=error), row)

    def _body(self, answer: Answer) -> tuple[bytes, str | None]:
        encoding = answer.header(b"content-encoding")
        plain = coding.decode(answer.body, encoding, self._settings.max_bytes, self._max_ratio)
        if answer.status is not None and 200 <= answer.status < 300 and plain.flaw == "undecodable":
            return b"", f"content coding {encoding} cannot be undone"[:200]
        return plain.body, None

    def _judge(self, state: State, before: _Known | None, body: bytes, now: float, answer: Answer) -> _Known:
        expires = robots.expires_at(state, now, self._settings, retry_after_s(answer.header(b"retry-after"), now))
        if state is State.OK:
            text, digest = as_text(body), hashlib.sha256(body).hexdigest()
            return _Known(Verdict.RULES, expires, self._parse(body), now, None, text, digest)
        if state is State.ABSENT:
            return _Known(robots.decide(state, None, 0.0, self._settings), expires)
        since = before.unreachable_since if before and before.unreachable_since is not None else now
        age = None if before is None or before.good_at is None else now - before.good_at
        verdict = robots.decide(state, age, now - since, self._settings)
        if before is None:
            return _Known(verdict, expires, unreachable_since=since)
        return _Known(verdict, expires, before.rules, before.good_at, since, before.body, before.body_hash)

    def _fill(self, row: Row, known: _Known, answer: Answer, error: str | None) -> None:
        row["verdict"], row["http_status"], row["error"] = known.verdict.value, answer.status, error
        row["expires_at"] = iso(known.expires_at)
        row["good_at"] = None if known.good_at is None else iso(known.good_at)
        row["unreachable_since"] = None if known.unreachable_since is None else iso(known.unreachable_since)
        row["body"], row["body_hash"] = known.body, known.body_hash
        if known.rules is not None:
            row["crawl_delay_s"], row["sitemaps"] = known.rules.crawl_delay_s, known.rules.sitemaps

    def _parse(self, body: bytes) -> Rules:
        return robots.parse(body, self._token, max_bytes=self._settings.max_bytes)


def first_probe(origin: str, home: str, bucket: int) -> Probe:
    return Probe(origin, home, bucket, origin + "/robots.txt")


def as_text(body: bytes) -> str:
    """A robots.txt as a text column that means the same to a parser.

    UTF-16 by its BOM; otherwise UTF-8, where a stray byte becomes its percent escape: that is what the byte matches as
    in a path (RFC 9309 2.2.2), and a table's text cannot hold it otherwise.
    """
    for bom, encoding in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if body.startswith(bom):
            return body[2:].decode(encoding, "replace")
    text = body.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    return re.sub("[\udc80-\udcff]", lambda match: f"%{ord(match[0]) - 0xDC00:02X}", text)
