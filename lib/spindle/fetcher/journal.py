"""The journal of one task attempt: rows and WARC records in parts, each sealed once, never changed (DESIGN section 1).

This file alone decides the names under `journal/` and `warc/` and the order in which they appear: a WARC part gets its
name first, then the journal part whose rows point into it, so that a row never points at nothing. What a row says is
`rows`' decision; who may write is `epoch`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from spindle import warc
from spindle.store import Store, Writer

Row = dict[str, Any]
_encode = msgspec.json.Encoder().encode  # a third of the standard library's time, and one is due for each page


class Place(NamedTuple):
    """Where a record lies: file name relative to the segment's folder, offset and length of its gzip member."""

    file: str
    offset: int
    length: int


def part_name(task: int, epoch: int, part: int) -> str:
    return f"journal/{task:05d}-{epoch:03d}-{part:05d}.jsonl"


def warc_name(segment: str, task: int, epoch: int, part: int) -> str:
    """The segment is part of the name, so that a WARC file can be told wherever it is moved."""
    return f"{warc_prefix(segment, task)}{epoch:03d}-{part:05d}.warc.gz"


def joined_name(segment: str, task: int, epoch: int, number: int) -> str:
    """Of a file that the task's parts are joined into."""
    return f"{warc_prefix(segment, task)}{epoch:03d}-j{number:04d}.warc.gz"


def joined_files(store: Store, segment: str, task: int) -> set[str]:
    """All such files, of whichever attempt."""
    names = store.list(warc_prefix(segment, task))
    return {name for name in names if name.rpartition("-")[2].startswith("j")}


def warc_parts(store: Store, segment: str, task: int, journal_parts: Iterable[str]) -> list[str]:
    """The WARC parts that were sealed with these journal parts; one without an exchange has none."""
    there = set(store.list(warc_prefix(segment, task)))
    numbers = (name.removesuffix(".jsonl").rsplit("-", 2)[1:] for name in journal_parts)
    named = (warc_name(segment, task, int(epoch), int(part)) for epoch, part in numbers)
    return [name for name in named if name in there]


def warc_prefix(segment: str, task: int) -> str:
    return f"warc/{file_safe(segment)}-{task:05d}-"


def prefixes_before(segment: str, task: int, epoch: int) -> list[str]:
    """What begins the names of all files that attempts before `epoch` may have left unfinished."""
    ours = f"journal/{task:05d}"
    notes = [f"{ours}.epoch-{number:03d}" for number in range(1, epoch)]
    return [warc_prefix(segment, task), f"{ours}-", f"{ours}.progress", done_name(task), *notes]


def done_name(task: int) -> str:
    return f"journal/{task:05d}.done"


def file_safe(segment: str) -> str:
    """`:` and `+`, of dates, escaped as in the segment's folder name."""
    return segment.replace(":", "~3A").replace("+", "~2B")


def manifest(store: Store, task: int) -> dict[str, Any] | None:
    """What a finished task left, or None while it is not finished."""
    try:
        found: dict[str, Any] = json.loads(store.get(done_name(task)))
    except FileNotFoundError:
        return None
    return found


def sealed_parts(store: Store, task: int | None = None) -> list[str]:
    """Names of all sealed journal parts, of one task or of the whole segment, in the order they were written.

    For a finished task read `manifest()["parts"]` instead: it leaves out what a superseded attempt sealed too late.
    """
    prefix = "journal/" if task is None else f"journal/{task:05d}-"
    return [name for name in store.list(prefix) if name.endswith(".jsonl")]


def read_parts(store: Store, names: Iterable[str]) -> Iterator[Row]:
    """The records of journal parts, one dict a line."""
    for name in names:
        for line in store.get(name).splitlines():
            yield msgspec.json.decode(line, type=Row)


def place_now(row: Row, joined: Mapping[str, Sequence[Any]]) -> Place:
    """Where the record of a row lies after its part was joined to others (manifest, `joined`)."""
    file, base = joined.get(row["warc_file"], (row["warc_file"], 0))
    return Place(file, base + row["warc_offset"], row["warc_length"])


@dataclass
class _Part:
    lines: list[bytes] = field(default_factory=list)
    writer: Writer | None = None


class Journal:
    """Collects one attempt's records and seals them part by part.

    `may_write` is asked at each seal and raises when the attempt was superseded. `info` are the warcinfo fields.
    Nothing here is on disk under its name before `seal`; memory holds the rows of one part, the bodies go to the
    unfinished WARC file at once.
    """

    def __init__(
        self,
        store: Store,
        segment: str,
        task: int,
        epoch: int,
        *,
        info: Mapping[str, str],
        may_write: Callable[[], None] = lambda: None,
    ) -> None:
        self._store, self._segment, self._task, self._epoch = store, segment, task, epoch
        self._info, self._may_write = dict(info), may_write
        self._part, self._number = _Part(), 0
        self._sealing = asyncio.Lock()
        self._running: asyncio.Future[None] | None = None
        self.parts: list[str] = []
        self.warc_files: list[str] = []

    @property
    def warc_bytes(self) -> int:
        """Size of the unsealed WARC part."""
        return self._part.writer.size if self._part.writer else 0

    def write(self, row: Row) -> None:
        self._part.lines.append(_encode(row))

    def store_exchange(self, date: str, request: bytes, answer: bytes, *, coded: bool = False) -> Place:
        """Append a request record and the record of its answer; the place of the latter. `coded`: see `warc.member`."""
        writer, first, second = self._writer(date), warc.member(request), warc.member(answer, coded=coded)
        offset = writer.size + len(first)
        writer.write(first + second)
        return Place(writer.name, offset, len(second))

    async def check(self) -> None:
        """Raises when this attempt was superseded."""
        await asyncio.to_thread(self._may_write)

    async def seal(self) -> None:
        """Give the present part its names, off the loop; new records go to the next part meanwhile.

        Raises:
            WarehouseError: the store refused. Whatever `may_write` raises.
        """
        async with self._sealing:
            await self._finish_running()
            part, number = self._part, self._number
            if not part.lines and part.writer is None:
                await self.check()
                return
            self._part, self._number = _Part(), number + 1
            work = asyncio.to_thread(self._seal, part, part_name(self._task, self._epoch, number))
            self._running = asyncio.ensure_future(work)
            await self._finish_running()

    async def abandon(self) -> None:
        """Drop what is not sealed; a seal that is under way is waited for."""
        with contextlib.suppress(Exception):  # the reason why this is called, most likely
            await self._finish_running()
        part, self._part = self._part, _Part()
        if part.writer is not None:
            part.writer.abandon()

    async def _finish_running(self) -> None:
        """A caller that is cancelled leaves the thread at work: whoever comes next must not overlook its part."""
        if self._running is not None:
            await asyncio.shield(self._running)
            self._running = None

    def _seal(self, part: _Part, name: str) -> None:
        try:
            self._may_write()
            if part.writer is not None:
                part.writer.seal()
                self.warc_files.append(part.writer.name)
                part.writer = None
                self._may_write()
        except BaseException:
            if part.writer is not None:
                part.writer.abandon()
            raise
        if part.lines:
            self._store.put(name, b"\n".join(part.lines) + b"\n")
            self.parts.append(name)

    def _writer(self, date: str) -> Writer:
        if self._part.writer is None:
            name = warc_name(self._segment, self._task, self._epoch, self._number)
            writer = self._part.writer = self._store.open_writer(name)
            writer.write(warc.member(warc.warcinfo(name.removeprefix("warc/"), date, self._info)))
        return self._part.writer
