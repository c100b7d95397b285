"""Rows of the journal: what a fetch, a robots.txt attempt or a URL not reached looks like under the tables' columns.

This file alone decides how an `Answer` becomes an outcome and a row. One constructor a table, used by every path, so
that no outcome can make a row of another shape. It sends nothing and keeps nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any

from spindle import coding, urls
from spindle.config import FetchSettings
from spindle.errors import UrlRejected
from spindle.fetcher.answer import Answer
from spindle.fetcher.journal import Place, Row
from spindle.outcome import Outcome, of_status
from spindle.politeness import retry_after_s
from spindle.schema import columns

outcome_of = cache(of_status)

_FETCH_COLUMNS = dict.fromkeys(columns("fetches"))
_ROBOTS_COLUMNS = dict.fromkeys(columns("robots"))


#: No span in a row is longer (a year): servers ask for 99999999999 s, which no timestamp can hold.
MAX_SPAN_S = 366 * 86400.0


@dataclass(slots=True, eq=False)
class Page:
    """A URL to be fetched: a row of the list (hop 0), or a redirect hop that is followed at once."""

    key: int
    url: str
    host: str
    bucket: int
    kind: str | None
    depth: int | None
    etag: str | None = None
    last_modified: str | None = None
    content_hash: str | None = None
    place: Place | None = None  # of the record that holds the content
    record_date: str | None = None
    hop: int = 0
    via_key: int | None = None
    tries: int = 0  # how often a kept connection was found closed

    @classmethod
    def listed(cls, row: Mapping[str, Any]) -> Page:
        """From a row of `fetchlist`."""
        file = row.get("warc_file")
        return cls(
            key=row["url_key"],
            url=row["url"],
            host=row["host"],
            bucket=row["bucket"],
            kind=row.get("kind"),
            depth=row.get("depth"),
            etag=row.get("etag"),
            last_modified=row.get("last_modified"),
            content_hash=row.get("content_hash"),
            place=Place(file, row["warc_offset"], row["warc_length"]) if file else None,
            record_date=as_iso(row.get("record_date")),
        )

    @classmethod
    def of_row(cls, row: Row) -> Page:
        """As it was when its row of `fetches` was written, for what follows from that row."""
        return cls(row["url_key"], row["url"], row["host"], row["bucket"], row["kind"], row["depth"], hop=row["hop"])

    def hop_to(self, key: int, url: str) -> Page:
        return Page(key, url, self.host, self.bucket, self.kind, self.depth, hop=self.hop + 1, via_key=self.key)

    @property
    def validators(self) -> dict[str, str]:
        """Headers of a conditional request; none unless we still hold the content they stand for."""
        if self.content_hash is None:
            return {}
        found = {"If-None-Match": self.etag, "If-Modified-Since": self.last_modified}
        return {name: value for name, value in found.items() if value and value.isascii() and value.isprintable()}


@dataclass(slots=True)
class Content:
    """The verdict on one answer: outcome, and the hash and size of the content-decoded body where it is usable."""

    outcome: Outcome
    error: str | None = None
    content_hash: str | None = None
    body_bytes: int | None = None
    truncated: str | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """What all rows of one attempt share."""

    segment: str
    task: int
    epoch: int
    month: str | None
    folder: str = ""  # of the segment in the warehouse

    def in_warehouse(self, place: Place) -> Place:
        return place._replace(file=f"{self.folder}/{place.file}") if self.folder else place


def wanted_types(limits: FetchSettings) -> Callable[[int, str | None], bool]:
    """Whether to read a body, by status and content type.

    Content of a type we cannot use is not read; what comes with an error or a redirect is small, and kept.
    """
    accepted = frozenset(limits.accept_types)

    def wanted(status: int, content_type: str | None) -> bool:
        return not 200 <= status < 300 or (content_type or "").partition(";")[0].strip().lower() in accepted

    return wanted


def judge(answer: Answer, page: Page, limits: FetchSettings) -> Content:
    """The outcome of an answer (`outcome.of_status`, RFC 9110 15), and what its body is worth."""
    if answer.status is None:
        return Content(answer.failure or Outcome.CONNECT_ERROR, answer.error)
    outcome = outcome_of(answer.status)
    if answer.failure is not None:
        return Content(answer.failure, answer.error, truncated=answer.truncated)
    if outcome is Outcome.NOT_MODIFIED:
        if not page.validators:
            return Content(Outcome.PROTOCOL_ERROR, "304 to a request without conditions")
        return Content(outcome, content_hash=page.content_hash)
    if answer.body_skipped:
        return Content(Outcome.BAD_TYPE, f"content type {answer.header(b'content-type') or ''}"[:200])
    if outcome is not Outcome.OK:
        return Content(outcome, truncated=answer.truncated)
    return _judge_body(answer, limits)


def _judge_body(answer: Answer, limits: FetchSettings) -> Content:
    encoding = answer.header(b"content-encoding")
    plain = coding.decode(answer.body, encoding, limits.max_decoded_bytes, limits.max_decode_ratio)
    size = len(plain.body)
    if plain.flaw == "undecodable":
        return Content(Outcome.PROTOCOL_ERROR, f"content coding {encoding} cannot be undone"[:200])
    if plain.flaw == "ratio":
        text = f"compression bomb: {len(answer.body)} bytes unpack to more than {size}"
        return Content(Outcome.TOO_LARGE, text, body_bytes=size, truncated="length")
    truncated = answer.truncated or _REASONS.get(plain.flaw or "")
    if truncated == "length" and not size:
        return Content(Outcome.TOO_LARGE, "nothing usable below the size limit", truncated=truncated)
    return Content(Outcome.OK, None, hashlib.sha256(plain.body).hexdigest(), size, truncated)


_REASONS = {"length": "length", "incomplete": "unspecified"}  # WARC 1.1, 5.13


def redirect_target(answer: Answer, normalizer: urls.Normalizer) -> tuple[str | None, str | None]:
    """The normalised target of a redirect, or None and why there is none. Bytes of `Location` count as they stand."""
    for name, value in answer.headers:
        if name.lower() == b"location":
            try:
                return normalizer.normalize(urls.escape_bytes(value), answer.url), None
            except UrlRejected as rejected:
                return None, f"redirect target rejected: {rejected.reason}"
    return None, "redirect without Location"


def fetch_row(origin: Origin, page: Page, outcome: Outcome, error: str | None = None) -> Row:
    """A row of `fetches` that says what is known without an answer; `describe` adds the answer."""
    row: Row = {"type": "fetch", **_FETCH_COLUMNS}
    row["segment"], row["task"], row["epoch"], row["month"] = origin.segment, origin.task, origin.epoch, origin.month
    row["url_key"], row["hop"], row["via_key"], row["bucket"] = page.key, page.hop, page.via_key, page.bucket
    row["url"], row["host"], row["kind"], row["depth"] = page.url, page.host, page.kind, page.depth
    row["outcome"], row["error"] = outcome, error
    return row


def describe(row: Row, answer: Answer, content: Content) -> None:
    """Add an answer to its row."""
    row["http_status"] = answer.status
    row["started_at"], row["ended_at"] = iso(answer.started_at), iso(answer.ended_at)
    row["duration_ms"] = as_ms(answer.duration_s)
    row["ttfb_ms"] = None if answer.ttfb_s is None else as_ms(answer.ttfb_s)
    row["ip"] = answer.ip
    if answer.status is None:
        return
    row["wire_bytes"], row["body_bytes"] = len(answer.body), content.body_bytes
    row["truncated"], row["content_hash"] = content.truncated, content.content_hash
    fields = answer.fields
    for name, column in _NOTED.items():
        if name in fields:
            row[column] = fields[name].decode("latin-1")
    if b"retry-after" in fields:
        asked = retry_after_s(answer.header(b"retry-after"), answer.ended_at)
        row["retry_after_s"] = None if asked is None else min(asked, MAX_SPAN_S)


_NOTED = {
    b"content-type": "content_type",
    b"etag": "etag",
    b"last-modified": "last_modified",
    b"x-robots-tag": "x_robots_tag",
}


def robots_row(origin: Origin, robots_of: str, host: str, bucket: int, attempted_at: float) -> Row:
    """A row of `robots` for one attempt; `robots_of` is the origin whose rules were asked for."""
    row: Row = {"type": "robots", **_ROBOTS_COLUMNS}
    row["origin"], row["host"], row["bucket"], row["last_segment"] = robots_of, host, bucket, origin.segment
    row["attempted_at"] = iso(attempted_at)
    row["task"], row["epoch"] = origin.task, origin.epoch
    return row


def iso(seconds: float) -> str:
    """Seconds since the epoch as ISO 8601 UTC with microseconds and Z."""
    micros = int(seconds * 1_000_000 + 0.5)
    return f"{_whole_second(micros // 1_000_000)}.{micros % 1_000_000:06d}Z"


def as_ms(seconds: float) -> float:
    """Milliseconds, in whole microseconds."""
    return int(seconds * 1_000_000 + 0.5) / 1000


@lru_cache(1024)
def _whole_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def as_iso(moment: Any) -> str | None:
    """A timestamp column (datetime, naive meaning UTC; or ISO text) as `iso` writes it."""
    seconds = as_seconds(moment)
    return None if seconds is None else iso(seconds)


def as_seconds(moment: Any) -> float | None:
    """A timestamp column (datetime, naive meaning UTC; ISO text; seconds) as seconds since the epoch."""
    if moment is None or isinstance(moment, int | float):
        return moment
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    return float((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
