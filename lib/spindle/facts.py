"""Between rows and `lifecycle`: which columns a fetch changes, and how a row with its event becomes the row after.

Pure. The names are `lifecycle.UrlFacts`' own, the types `schema`'s, so a column added to one fails here at import.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from spindle.config import RecrawlSettings
from spindle.lifecycle import FetchEvent, UrlFacts, advance
from spindle.outcome import Outcome, Status
from spindle.schema import field_ddl

#: Columns of `urls` (and of `fetchlist`, its pre-image) that a fetch may change.
COLUMNS = [field.name for field in dataclasses.fields(UrlFacts)]

_DDL = {ddl.split()[0]: ddl.split(" ", 1)[1].replace(" NOT NULL", "") for ddl in field_ddl("urls")}

#: Their SQL types.
TYPES = {name: _DDL[name] for name in COLUMNS}

_EVENT = [field.name for field in dataclasses.fields(FetchEvent)]


def advanced(
    row: Mapping[str, Any], settings: RecrawlSettings, now: datetime, price: float | None = None
) -> dict[str, Any]:
    """The row after the event in its `event_*` columns; timestamps come and go as aware UTC datetimes.

    `now` is the turn's pinned time: that of a verdict for which no request was made (robots.txt denied it). `price` is
    explained in `lifecycle.advance`.
    """
    facts = UrlFacts(**{name: _python(name, row[name]) for name in COLUMNS})
    told = {name: _python(name, row[f"event_{name}"]) for name in _EVENT}
    told["started_at"] = told["started_at"] or now
    after = advance(facts, FetchEvent(**told), settings, price)
    return {**row, **{name: getattr(after, name) for name in COLUMNS}}


def _python(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name == "status":
        return Status(value)
    if name in ("outcome", "last_outcome"):
        return Outcome(value)
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return value
