"""The demo web's own record of every request, and what politeness it shows.

Decides the form of the log (one JSON object a line) and how gaps are counted: from the end of one request to a host to
the start of the next. It is the witness that a crawler is judged by, so it takes nothing from the crawler.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Entry:
    """One request. `t_start` is when its first byte came, `t_end` when the last was handed to the kernel (seconds since
    1970, from one monotonic clock). Status 499: the client left before its answer."""

    t_start: float
    t_end: float
    host: str
    method: str
    path: str
    status: int
    agent: str
    if_none_match: str
    if_modified_since: str
    address: str
    conn: int
    sent_bytes: int


class RequestLog:
    """Appends entries to a file, each in one unbuffered write, so that a reader sees whole lines at once."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def add(self, entry: Entry) -> None:
        os.write(self._file, (json.dumps({name: getattr(entry, name) for name in Entry.__slots__}) + "\n").encode())

    def close(self) -> None:
        os.close(self._file)


def read_log(path: Path) -> list[Entry]:
    """All entries of a log, in the order of their ends. A last line that is still being written is left out."""
    text = path.read_text(encoding="utf-8")
    return [Entry(**json.loads(line)) for line in text[: text.rfind("\n") + 1].splitlines()]


def gaps(log: Iterable[Entry], by: str = "host") -> dict[str, float]:
    """For each host (or `by="address"`) the smallest gap in seconds; negative where two requests overlapped.

    A host that was asked once has no gap and is left out.
    """
    found: dict[str, float] = {}
    for before, after in _neighbours(log, by):
        key = getattr(before, by)
        found[key] = min(found.get(key, float("inf")), after.t_start - before.t_end)
    return found


def overlaps(log: Iterable[Entry], by: str = "host") -> list[tuple[Entry, Entry]]:
    """Pairs of requests to one host (or address) of which the second began before the first had ended."""
    return [(before, after) for before, after in _neighbours(log, by) if after.t_start < before.t_end]


def _neighbours(log: Iterable[Entry], by: str) -> Iterator[tuple[Entry, Entry]]:
    """Each request after the first, with the one among its predecessors at this host that ended last."""
    entries = defaultdict(list)
    for entry in log:
        entries[getattr(entry, by)].append(entry)
    for own in entries.values():
        own.sort(key=lambda entry: entry.t_start)
        last = own[0]
        for _, after in pairwise(own):
            yield last, after
            last = max(last, after, key=lambda entry: entry.t_end)
