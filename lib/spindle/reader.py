"""Reads records of segment files in the order in which they lie, with few large reads and bounded memory."""

from __future__ import annotations

from spindle.store import open_store


class SegmentReader:
    """Sequential reads of `ahead` bytes; a record outside the window opens a new one at its offset."""

    def __init__(self, root: str, ahead: int) -> None:
        self._store, self._ahead = open_store(root), ahead
        self._name, self._start, self._window = "", 0, b""

    def read(self, name: str, offset: int, length: int) -> bytes:
        """The bytes of one record.

        Raises:
            FileNotFoundError: no such file.
            WarehouseError: it cannot be read.
        """
        begin = offset - self._start
        if name != self._name or begin < 0 or begin + length > len(self._window):
            self._name, self._start, begin = name, offset, 0
            self._window = self._store.get_range(name, offset, max(length, self._ahead))
        return self._window[begin : begin + length]
