"""Which URL was being worked on when a process died, and the watchdog that ends one that is stuck.

A page can end its process where no `except` helps: a fault in a C library, memory, an endless loop. So the key of the
page in work stands in a mapped file, which outlives the process; the next attempt notes it in its epoch's file, and a
key noted twice is set aside. The file is on this machine: an attempt elsewhere knows nothing and tries again.
"""

from __future__ import annotations

import hashlib
import logging
import mmap
import os
import struct
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

_RECORD = struct.Struct("<qq")  # epoch, key; all zero: nothing in work
_STUCK_EXIT = 75  # EX_TEMPFAIL: try again

_log = logging.getLogger(__name__)


class Suspects:
    """The mark of one attempt. `noted`: what earlier attempts found; a key that occurs twice is in `guilty`."""

    def __init__(self, path: Path | None, epoch: int, noted: Iterable[int | None] = ()) -> None:
        self.guilty = {key for key, times in Counter(noted).items() if key is not None and times > 1}
        self._epoch, self._map = epoch, _mapped(path) if path else None
        self.clear()

    def mark(self, key: int) -> None:
        if self._map is not None:
            _RECORD.pack_into(self._map, 0, self._epoch, key)

    def clear(self) -> None:
        if self._map is not None:
            _RECORD.pack_into(self._map, 0, 0, 0)

    def close(self) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None


def mark_path(root: str, segment: str, task: int) -> Path:
    """On this machine, whatever the store is."""
    name = hashlib.sha256(f"{root} {segment} {task} {os.getuid()}".encode()).hexdigest()[:32]
    return Path(tempfile.gettempdir()) / f"spindle-{name}.mark"


def left_behind(path: Path, epoch: int) -> int | None:
    """The key that the attempt `epoch` was working on when it died; None if there is no such mark."""
    try:
        then, key = _RECORD.unpack_from(path.read_bytes())
    except (OSError, struct.error):
        return None
    return int(key) if then == epoch else None


class Watchdog:
    """Ends the process when `beat` was not called for `limit_s`: a stuck loop cannot be interrupted, nor waited for.

    What is sealed survives, the URL in work is marked, and Spark starts the task again in another worker.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s, self._last, self._stopped = limit_s, time.monotonic(), threading.Event()

    def __enter__(self) -> Watchdog:
        threading.Thread(target=self._watch, daemon=True, name="fetch-watchdog").start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()

    def beat(self) -> None:
        self._last = time.monotonic()

    def _watch(self) -> None:
        while not self._stopped.wait(min(1.0, self._limit_s / 4)):
            if time.monotonic() - self._last > self._limit_s:
                _log.critical(
                    "the fetch loop has not moved for %g s: this worker ends, the task goes on", self._limit_s
                )
                os._exit(_STUCK_EXIT)


def _mapped(path: Path) -> mmap.mmap | None:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None  # no place for a mark: the attempt goes on without
    try:
        os.ftruncate(descriptor, _RECORD.size)
        return mmap.mmap(descriptor, _RECORD.size)
    finally:
        os.close(descriptor)
