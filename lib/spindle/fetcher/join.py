"""The WARC parts of a finished task become few large files: a part a seal is right for a crash, and wrong for a store.

This file alone decides which parts go together and how. A joined file is the parts' members one after the other under a
warcinfo record of its own; nothing is inflated. Where a part went stands in the task's manifest (`joined`: part ->
[file, base]), by which the second step of fetch writes its rows, and `reader` follows what still names a part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from spindle import warc
from spindle.store import Store, Writer

_CHUNK_BYTES = 4 << 20

Joined = dict[str, tuple[str, int]]  # part -> the file it is in, and what to add to an offset


def join(store: Store, parts: Sequence[str], name: Callable[[int], str], limit: int, info: Mapping[str, str]) -> Joined:
    """Copies the parts, in order, into files `name(0)`, `name(1)`, ... that are closed once they reach `limit` bytes;
    removes nothing. One part alone stays as it is, as all do where `limit` is 0.

    Raises:
        WarehouseError: the store refused; nothing is left under the new names then.
    """
    moved: Joined = {}
    if len(parts) < 2 or not limit:
        return moved
    writer: Writer | None = None
    try:
        for part in parts:
            head = store.get_range(part, 0, _CHUNK_BYTES)
            skipped = warc.member_length(head)  # its warcinfo, which names the part
            if writer is None:
                file = name(len({file for file, _ in moved.values()}))
                writer = store.open_writer(file)
                writer.write(_warcinfo(file, head, info))
            moved[part] = (writer.name, writer.size - skipped)
            _copy(store, part, head, skipped, writer)
            if writer.size >= limit:
                writer.seal()
                writer = None
        if writer is not None:
            writer.seal()
    except BaseException:
        if writer is not None:
            writer.abandon()
        forget(store, moved)
        raise
    return moved


def forget(store: Store, moved: Joined) -> None:
    """Removes the joined files: the parts count."""
    for file in {file for file, _ in moved.values()}:
        store.delete(file)


def clear(store: Store, moved: Mapping[str, Sequence[object]]) -> None:
    """Removes the parts: the joined files count. Those gone already are no error."""
    for part in moved:
        store.delete(part)


def _warcinfo(file: str, head: bytes, info: Mapping[str, str]) -> bytes:
    date = warc.read_fields(head)["warc-date"]
    return warc.member(warc.warcinfo(file.removeprefix("warc/"), date, info))


def _copy(store: Store, part: str, head: bytes, skipped: int, writer: Writer) -> None:
    writer.write(head[skipped:])
    offset = len(head)
    while chunk := store.get_range(part, offset, _CHUNK_BYTES):
        writer.write(chunk)
        offset += len(chunk)
