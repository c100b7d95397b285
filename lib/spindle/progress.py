"""The bar that lives while a fetch runs: read from the tasks' progress files, drawn on standard error.

In a terminal a bar that renews itself; elsewhere (Airflow, a file) a plain line now and then. It only looks: nothing
here may slow or stop a fetch.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from spindle.errors import WarehouseError
from spindle.store import Store

_LOOK_S = 0.5
_LINE_S = 15.0


@contextmanager
def watch(store: Store, folder: str, total: int) -> Iterator[None]:
    """Shows progress of `total` URLs while the body runs."""
    stop = threading.Event()
    draw = _bar if sys.stderr.isatty() else _lines
    thread = threading.Thread(target=draw, args=(store, folder, total, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(5)


def snapshot(store: Store, folder: str) -> dict[str, float]:
    """The sums over all tasks that have reported: pages, errors, hosts_left; empty while none has."""
    sums: dict[str, float] = {}
    try:
        names = [name for name in store.list(f"{folder}/journal/") if name.endswith(".progress")]
        for name in names:
            told: Mapping[str, Any] = json.loads(store.get(name))
            for key, value in told.items():
                if isinstance(value, int | float):
                    sums[key] = sums.get(key, 0) + value
    except (WarehouseError, FileNotFoundError, ValueError):
        return sums  # a file that is just being replaced: the next look will see it
    return sums


def _bar(store: Store, folder: str, total: int, stop: threading.Event) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("fetch"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("fetch", total=total, note="")
        while not stop.wait(_LOOK_S):
            seen = snapshot(store, folder)
            progress.update(bar, completed=seen.get("pages", 0), note=_note(seen))


def _lines(store: Store, folder: str, total: int, stop: threading.Event) -> None:
    since = time.monotonic()
    while not stop.wait(_LINE_S):
        seen = snapshot(store, folder)
        passed = time.monotonic() - since
        print(
            f"fetch: {seen.get('pages', 0):.0f} of {total} after {passed:.0f} s, {_note(seen)}",
            file=sys.stderr,
            flush=True,
        )


def _note(seen: Mapping[str, float]) -> str:
    if not seen:
        return "no task has begun yet"
    return f"{seen.get('hosts_left', 0):.0f} hosts left, {seen.get('errors', 0):.0f} errors"
