"""Work for `isolate` to guard: each kind of item does to its process what a page might."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable
from typing import Any


def factory(argument: Any) -> Callable[[Any], Any]:
    if argument == "broken":
        raise ValueError("cannot be made")

    def work(item: Any) -> Any:
        name = item[0] if isinstance(item, tuple) else item
        return KINDS.get(name, lambda thing: (argument, thing))(item)

    return work


def _hang_in_c(_: Any) -> None:
    libc = ctypes.PyDLL(None)  # keeps the interpreter's lock, as a C extension does
    libc.sleep(1000)


def _recurse(_: Any) -> Any:
    return _recurse(_)


def _eat(item: tuple[str, int]) -> int:
    return len(bytearray(item[1]))


KINDS: dict[Any, Callable[[Any], Any]] = {
    "hang": lambda _: time.sleep(1000),
    "hang in C": _hang_in_c,
    "crash": lambda _: ctypes.string_at(0),
    "exit": lambda _: os._exit(7),
    "sys.exit": lambda _: sys.exit(3),
    "raise": lambda _: 1 / 0,
    "recurse": _recurse,
    "print": lambda _: print("no result") or (os.write(1, b"nor this") and "printed"),
    "unpicklable": lambda _: lambda: None,
    "eat": _eat,
    "pid": lambda _: os.getpid(),
    "large": lambda item: b"x" * item[1],
}
