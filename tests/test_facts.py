"""Rows to `lifecycle` and back: nothing but what a fetch may change is touched, and times keep their zone."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spindle import config, schema
from spindle.facts import COLUMNS, TYPES, advanced
from spindle.lifecycle import FetchEvent, UrlFacts

NOW = datetime(2026, 11, 30, 12, 0, 0, 123456, tzinfo=UTC)
BLANK: dict[str, Any] = dataclasses.asdict(UrlFacts()) | {"status": "new"}
KNOWN: dict[str, Any] = {"url_key": 5, "bucket": 3, "url": "http://h.test/", "depth": 2, "seed_priority": 0.5}


def row(before: dict[str, Any] | None = None, **event: Any) -> dict[str, Any]:
    """A row with its event, as Arrow hands it to the worker."""
    told = dict.fromkeys((field.name for field in dataclasses.fields(FetchEvent)), None)
    told |= {"outcome": "ok", "started_at": NOW} | event
    return KNOWN | BLANK | (before or {}) | {f"event_{name}": value for name, value in told.items()}


def test_every_column_has_its_type_in_the_url_table_and_its_copy_in_the_list() -> None:
    declared = {ddl.split()[0]: ddl.split(" ", 1)[1] for ddl in schema.field_ddl("urls")}
    assert {name: declared[name].replace(" NOT NULL", "") for name in COLUMNS} == TYPES
    assert set(COLUMNS) <= set(schema.columns("fetchlist")), "the list is the pre-image of the row"


def test_a_first_fetch(settings: config.Settings) -> None:
    held = {"warc_file": "segment-files/a.1of1/warc/x.warc.gz", "warc_offset": 0, "warc_length": 9}
    event = {"http_status": 200, "content_hash": "cafe", "simhash": -5, "etag": '"1"', **held}
    after = advanced(row(**event), settings.recrawl, NOW)
    wanted = {
        "status": "fetched",
        "last_outcome": "ok",
        "last_fetch": NOW,
        "next_fetch": NOW + timedelta(seconds=settings.recrawl.initial_interval_s),
        "record_date": NOW,
        "fetch_count": 1,
        "change_count": 0,
        "failure_streak": 0,
        **event,
    }
    assert {name: after[name] for name in wanted} == wanted
    assert {name: after[name] for name in KNOWN} == KNOWN, "what a fetch cannot change"


@pytest.mark.parametrize(
    ("started_at", "outcome", "last_fetch", "why"),
    [
        (NOW.replace(tzinfo=None), "ok", NOW, "Spark hands naive times that mean UTC"),
        (None, "denied", NOW, "no request was made: the verdict is of the turn's pinned time"),
        (NOW - timedelta(hours=1), "not_found", NOW - timedelta(hours=1), "the event's own time otherwise"),
    ],
)
def test_times(
    started_at: datetime | None, outcome: str, last_fetch: datetime, why: str, settings: config.Settings
) -> None:
    after = advanced(row(started_at=started_at, outcome=outcome), settings.recrawl, NOW)
    assert after["last_fetch"] == last_fetch, why
    assert after["last_fetch"].tzinfo is not None and after["next_fetch"].tzinfo is not None


def test_an_event_laid_twice_or_too_late_changes_nothing(settings: config.Settings) -> None:
    once = advanced(row(content_hash="cafe"), settings.recrawl, NOW)
    assert advanced(once, settings.recrawl, NOW) == once
    late = once | {"event_started_at": NOW - timedelta(seconds=1), "event_outcome": "gone"}
    assert advanced(late, settings.recrawl, NOW) == late


@pytest.mark.parametrize("outcome", ["no_such_outcome", ""])
def test_a_word_outside_the_vocabulary_is_an_error(outcome: str, settings: config.Settings) -> None:
    with pytest.raises(ValueError, match="is not a valid Outcome"):
        advanced(row(outcome=outcome), settings.recrawl, NOW)
