"""Dates as the web writes them, in one spelling. This file alone knows the formats; it has no clock.

A date in the future comes back as it is: only the caller knows what time it is, and must not be poisoned by it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_tz

FIRST_YEAR, LAST_YEAR = 1990, 2100  # outside lie typing errors and epochs, not pages

_DAY = re.compile(r"\s*(\d{4})(?:-?(\d\d)(?:-?(\d\d))?)?\s*")
_ZONE = re.compile(r"(?:[+-]\d{4}|\b[A-Za-z]{1,4})\s*(?:\(.*\))?$")  # without one an RFC 5322 date may be off by a day
_MAX_CHARS = 64


def normal_date(text: str | None) -> str | None:
    """`2004-10-01T18:23:17+00:00` (UTC), or `2004-10-01`, `2004-10`, `2004` where no time is given; else None.

    Understands W3C-DTF and ISO 8601 (a time without a zone is taken as UTC) and RFC 5322 dates with their zone.
    """
    text = (text or "").strip()
    if not text or len(text) > _MAX_CHARS:
        return None
    return _day(text) or _instant(text)


def _day(text: str) -> str | None:
    if (match := _DAY.fullmatch(text)) is None:
        return None
    year, month, day = (int(part) if part else None for part in match.groups())
    try:
        datetime(year or 0, month or 1, day or 1)
    except ValueError:
        return None
    return "-".join(part for part in match.groups() if part) if _plausible(year or 0) else None


def _instant(text: str) -> str | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return _rfc5322(text)
    try:
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:  # year 1 or 9999, moved by a zone
        return None
    return moment.isoformat(timespec="seconds") if _plausible(moment.year) else None


def _rfc5322(text: str) -> str | None:
    parts = parsedate_tz(text) if _ZONE.search(text) else None
    if parts is None or not _plausible(parts[0]):
        return None
    try:
        moment = datetime(*parts[:6], tzinfo=UTC)
        return datetime.fromtimestamp(moment.timestamp() - (parts[9] or 0), UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return None


def _plausible(year: int) -> bool:
    return FIRST_YEAR <= year <= LAST_YEAR
