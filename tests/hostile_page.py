"""A parser for `isolate` to guard, in which some URLs do to their process what a page might; else the real one."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

from spindle import parsetask

DEEDS: dict[str, Callable[[], Any]] = {
    "hangs": lambda: ctypes.PyDLL(None).sleep(1000),  # holds the interpreter's lock, as a C extension does
    "crashes": lambda: ctypes.string_at(0),
    "eats": lambda: bytearray(1 << 30),
    "raises": lambda: time.sleep("no number"),  # type: ignore[arg-type]
}


def hostile(kind: str) -> str:
    """The last part of a URL that does so."""
    return f"hostile-{kind}"


def factory(argument: Any) -> Callable[[Any], Any]:
    work = parsetask.factory(argument)

    def guarded(item: Any) -> Any:
        name = item[0]["url"].rpartition("hostile-")[2]
        return DEEDS[name]() if name in DEEDS else work(item)

    return guarded
