"""Rows of the journal: whatever a server sends and whatever became of it, the row fits its table."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from loopback import check_row, listing_row
from spindle.config import Settings, build
from spindle.defaults import default_layer
from spindle.fetcher.answer import Answer
from spindle.fetcher.rows import Origin, Page, describe, fetch_row, judge, robots_row
from spindle.outcome import Outcome

SETTINGS: Settings = build([default_layer()])
ORIGIN = Origin("t.1of1", 7, 2, "2026-12", "segment-files/t.1of1")
NAMES = [b"Content-Type", b"ETag", b"Last-Modified", b"X-Robots-Tag", b"Retry-After", b"Content-Encoding", b"X"]
VALUES = st.binary(max_size=30) | st.sampled_from(
    [b"gzip", b"br, gzip", b"99999999999", b"-5", b"soon", b"Wed, 02 Dec 2026 00:00:00 GMT", b"text/html; charset=x"]
)
WORDS = st.text(max_size=20)


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    """Any status or none, any failure, headers of any octets, any body, cut or not."""
    answer = Answer("http://h.test/x", draw(st.floats(0, 4e9)))
    answer.duration_s = draw(st.floats(0, 1e5))
    answer.ended_at = answer.started_at + answer.duration_s
    answer.ip = draw(st.none() | st.just("127.0.0.1"))
    answer.failure = draw(st.none() | st.sampled_from(list(Outcome)))
    answer.error = draw(st.none() | WORDS)
    answer.status = draw(st.none() | st.integers(0, 999))
    if answer.status is None:
        return answer
    answer.ttfb_s = draw(st.none() | st.floats(0, 1e5))
    answer.headers = tuple(draw(st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=6)))
    for name, value in answer.headers:
        before = answer.fields.get(name.lower())
        answer.fields[name.lower()] = value if before is None else before + b", " + value
    answer.body, answer.body_skipped = draw(st.binary(max_size=60)), draw(st.booleans())
    answer.truncated = draw(st.sampled_from([None, "length", "time", "disconnect"]))
    return answer


@given(answers(), st.booleans())
def test_any_answer_makes_a_row_that_fits(answer: Answer, conditional: bool) -> None:
    """apache/spark#50531: a value of another type fails the task, or shifts into other columns."""
    known: dict[str, Any] = {"etag": '"1"', "content_hash": "0" * 64} if conditional else {}
    page = Page.listed(listing_row(answer.url, **known))
    content = judge(answer, page, SETTINGS.fetch)
    row = fetch_row(ORIGIN, page, content.outcome, content.error)
    describe(row, answer, content)
    assert row["outcome"] in set(Outcome)
    check_row(json.loads(json.dumps(row)))


@given(st.sampled_from(list(Outcome)), st.none() | WORDS)
def test_any_outcome_without_an_answer_does_too(outcome: Outcome, error: str | None) -> None:
    page = Page.listed(listing_row("http://h.test/x")).hop_to(1, "http://h.test/y")
    check_row(json.loads(json.dumps(fetch_row(ORIGIN, page, outcome, error))))


def test_an_attempt_at_robots_txt_fits_its_table() -> None:
    row = robots_row(ORIGIN, "http://h.test", "h.test", 3, 1.0)
    check_row(row | {"verdict": "rules", "expires_at": row["attempted_at"]})
