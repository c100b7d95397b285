"""The child of `isolate`: `python -m spindle.isolate_child`. Items come in on its input, results go out on its output.

This file alone sets the child's limits. It knows nothing of deadlines: who hangs is killed from outside.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import pickle
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spindle.isolate import CRASH, HEAD, PIPE_BYTES, Failure, framed

_END = object()


def serve() -> None:
    """Takes its factory and limit, then an item at a time, until its input ends."""
    source, sink = os.fdopen(os.dup(0), "rb", PIPE_BYTES), os.fdopen(os.dup(1), "wb", PIPE_BYTES)
    os.dup2(2, 1)  # what the work prints is no result
    _die_with_parent()
    factory, argument, memory_bytes = _received(source)
    try:
        work = _load(factory)(argument)
        _limit(memory_bytes)
    except Exception as error:  # noqa: BLE001 the parent raises it
        return _answer(sink, "failed", f"{type(error).__name__}: {error}")
    gc.freeze()  # what the imports made is never garbage: no use looking through it again and again
    gc.set_threshold(20_000, 20, 20)
    _answer(sink, "ready", None)
    while (item := _received(source)) is not _END:
        try:
            answer = framed(("result", work(item)))
        except MemoryError:  # what is left of the heap is in pieces: better a new child
            _answer(sink, "result", Failure(CRASH, "MemoryError: more than parse.memory_bytes"))
            return _answer(sink, "stop", None)
        except BaseException as error:  # noqa: BLE001 whatever it was, it is this item's
            answer = framed(("result", Failure(CRASH, f"{type(error).__name__}: {error}"[:500])))
        sink.write(answer)
        sink.flush()
    return None


def _received(source: Any) -> Any:
    head = source.read(HEAD)
    return pickle.loads(source.read(int.from_bytes(head, "little"))) if len(head) == HEAD else _END


def _answer(sink: Any, told: str, result: Any) -> None:
    sink.write(framed((told, result)))
    sink.flush()


def _load(factory: str) -> Callable[[Any], Callable[[Any], Any]]:
    module, _, name = factory.partition(":")
    found: Callable[[Any], Callable[[Any], Any]] = getattr(importlib.import_module(module), name)
    return found


def _limit(memory_bytes: int) -> None:
    """Address space: what there is now and `memory_bytes` more; and no core file of somebody's page."""
    with contextlib.suppress(FileNotFoundError):  # no /proc: not Linux, and RLIMIT_AS means nothing there
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _die_with_parent() -> None:
    """A child in an endless loop never sees its input end (Linux: PR_SET_PDEATHSIG)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    serve()
