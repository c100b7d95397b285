"""Seed lists: lines in, seeds and faults out. Pure.

Three forms, one a line, may be mixed: a URL; Nutch's URL with tab-separated `key=value`; a JSON object with `url`.
Known keys: `priority` (0..1, also `nutch.score`), `interval` (seconds, also `nutch.fetchInterval`), `kind` (page,
sitemap or feed: what the URL is to be read as); every other key is kept as metadata. Blank lines and lines that begin
with `#` say nothing; a byte order mark and Windows line ends are tolerated.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from spindle.config import CENTURY_S
from spindle.errors import UrlRejected
from spindle.urls import Normalizer

_PRIORITY = ("priority", "nutch.score")
_INTERVAL = ("interval", "nutch.fetchInterval")
KINDS = ("page", "sitemap", "feed")


@dataclass(frozen=True, slots=True)
class Seed:
    url: str  # normalised
    priority: float | None = None  # 0..1
    interval_s: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    kind: str = "page"  # one of KINDS
    line: int = field(default=0, compare=False)  # 1-based; where it stood, for who refuses it later


@dataclass(frozen=True, slots=True)
class Fault:
    """A line that is no seed: its number (1-based), its text, and why."""

    line: int
    text: str
    reason: str


def parse(lines: Iterable[str], normalizer: Normalizer) -> Iterator[Seed | Fault]:
    """Each line that says something, in order."""
    for number, line in enumerate(lines, 1):
        text = line.strip("\ufeff \t\r\n\f\v\0")
        if text and not text.startswith("#"):
            yield _seed(number, text, normalizer)


def _seed(number: int, text: str, normalizer: Normalizer) -> Seed | Fault:
    try:
        url, values = _json(text) if text.startswith("{") else _tabbed(text)
        priority, interval = _taken(values, _PRIORITY), _taken(values, _INTERVAL)
        kind = _kind(_taken(values, ("kind",)))
        metadata = {str(key): _text(value) for key, value in values.items()}
        return Seed(normalizer.normalize(url), _priority(priority), _interval(interval), metadata, kind, number)
    except UrlRejected as error:
        return Fault(number, text[:200], error.reason)
    except ValueError as error:
        return Fault(number, text[:200], str(error))


def _json(text: str) -> tuple[str, dict[str, Any]]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("not valid JSON") from None
    if not isinstance(values, dict) or not isinstance(values.get("url"), str):
        raise ValueError('a JSON seed needs "url", a text')
    return values.pop("url"), values


def _tabbed(text: str) -> tuple[str, dict[str, Any]]:
    url, *fields = text.split("\t")
    pairs = [item.strip().partition("=") for item in fields if item.strip()]
    if odd := next((key for key, equals, _ in pairs if not equals or not key), None):
        raise ValueError(f"expected key=value after the URL, found {odd[:40]!r}")
    return url.strip(), {key.strip(): value.strip() for key, _, value in pairs}


def _taken(values: dict[str, Any], names: Iterable[str]) -> Any:
    found = [values.pop(name) for name in names if name in values]
    return found[0] if found else None


def _priority(value: Any) -> float | None:
    if value is None:
        return None
    number = _number(value, "priority")
    if not 0 <= number <= 1:
        raise ValueError(f"priority {number:g} is not within 0..1")
    return number


def _interval(value: Any) -> int | None:
    if value is None:
        return None
    number = _number(value, "interval")
    if not 1 <= number <= CENTURY_S:
        raise ValueError(f"interval {number:g} s is not within 1..{CENTURY_S}")
    return int(number)


def _kind(value: Any) -> str:
    if value is None:
        return "page"
    if value not in KINDS:
        raise ValueError(f"kind {value!r} is not one of {', '.join(KINDS)}")
    return str(value)


def _number(value: Any, name: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} {value!r} is not a number") from None
    if isinstance(value, bool) or not math.isfinite(number):
        raise ValueError(f"{name} {value!r} is not a number")
    return number


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
