"""Reads records of segment files in the order in which they lie, with few large reads and bounded memory."""

from __future__ import annotations

import json

from spindle.store import Store, open_store


class SegmentReader:
    """Sequential reads of `ahead` bytes; a record outside the window opens a new one at its offset."""

    def __init__(self, root: str, ahead: int) -> None:
        self._store, self._ahead = open_store(root), ahead
        self._name, self._start, self._window = "", 0, b""
        self._moved: dict[str, tuple[str, int]] = {}

    def read(self, name: str, offset: int, length: int) -> bytes:
        """The bytes of one record.

        Raises:
            FileNotFoundError: no such file.
            WarehouseError: it cannot be read.
        """
        begin = offset - self._start
        if name != self._name or begin < 0 or begin + length > len(self._window):
            self._name, self._start, begin = name, offset, 0
            self._window = self._get(name, offset, max(length, self._ahead))
        return self._window[begin : begin + length]

    def _get(self, name: str, offset: int, length: int) -> bytes:
        """As the store has it; a part that was joined to others is followed there (`fetcher.join`)."""
        if name not in self._moved:
            try:
                return self._store.get_range(name, offset, length)
            except FileNotFoundError:
                if (place := moved(self._store, name)) is None:
                    raise
                self._moved[name] = place
        file, base = self._moved[name]
        return self._store.get_range(file, base + offset, length)


def moved(store: Store, name: str) -> tuple[str, int] | None:
    """File, and what to add to an offset, of a WARC part that is no more: the manifest of its task tells (the names are
    those of `fetcher.journal`). None: it went nowhere."""
    folder, _, file = name.rpartition("/warc/")
    words = file.rsplit("-", 3)
    try:
        joined = json.loads(store.get(f"{folder}/journal/{words[-3]}.done"))["joined"]
        file, base = joined[f"warc/{file}"]
    except (FileNotFoundError, KeyError, IndexError):
        return None
    return f"{folder}/{file}", int(base)
