"""Values as SQL literals, as Spark reads them; instants also as DataFusion does. Pure."""

from __future__ import annotations

from datetime import UTC, datetime


def text(value: str) -> str:
    """A string. An apostrophe is lawful in a host name."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def instant(at: datetime) -> str:
    """A time, the same instant whatever zone the session has; one without a zone is UTC."""
    utc = at if at.tzinfo is None else at.astimezone(UTC)
    return f"TIMESTAMP '{utc:%Y-%m-%d %H:%M:%S.%f}Z'"
