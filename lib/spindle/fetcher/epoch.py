"""Who may write a task's journal: attempts take numbered epochs by a conditional create, the highest one owns the task.

This file alone decides when a predecessor counts as dead and how long its successor waits for it otherwise.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spindle.errors import LeaseHeld
from spindle.store import Store


class Superseded(LeaseHeld):
    """A newer attempt owns this task. The older one stops and writes nothing more."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """One attempt's number (from 1), and what its predecessor left: None when there was none."""

    store: Store
    task: int
    number: int
    predecessor: dict[str, Any] | None

    def check(self) -> None:
        """Raises Superseded when a higher epoch exists."""
        if self.store.exists(_name(self.task, self.number + 1)):
            raise Superseded(f"task {self.task}: epoch {self.number} was superseded by a newer attempt; it stops here")

    def release(self) -> None:
        """Say that this attempt has ended, so that a successor need not wait for it."""
        self.store.put(_name(self.task, self.number) + ".released", b"")

    @property
    def predecessor_is_dead(self) -> bool:
        """Proven: it said so, or its process on this very machine is gone."""
        if self.predecessor is None or self.store.exists(_name(self.task, self.number - 1) + ".released"):
            return True
        here = _process(os.getpid())
        if self.predecessor.get("machine") != here["machine"]:
            return False
        pid = self.predecessor["pid"]
        return bool(pid != here["pid"] and _began(pid) != self.predecessor.get("began"))


def take(store: Store, task: int, started_at: str, suspect: Callable[[int], int | None] = lambda _: None) -> Epoch:
    """The next epoch of the task; exactly one attempt gets each number.

    `suspect` tells what URL the epoch before was working on when it died; it goes into the new epoch's file.
    """
    prefix = f"journal/{task:05d}.epoch-"
    taken = [name.removeprefix(prefix).partition(".")[0] for name in store.list(prefix)]
    number = max((int(text) for text in taken), default=0) + 1
    me = {**_process(os.getpid()), "started_at": started_at}
    while not store.create_exclusive(_name(task, number), json.dumps(me | {"suspect": suspect(number - 1)}).encode()):
        number += 1
    before = json.loads(store.get(_name(task, number - 1))) if number > 1 else None
    return Epoch(store, task, number, before)


def _name(task: int, number: int) -> str:
    return f"journal/{task:05d}.epoch-{number:03d}"


def _process(pid: int) -> dict[str, Any]:
    """What tells one process from all others: machine (boot and pid namespace included), pid, start tick."""
    return {"host": socket.gethostname(), "machine": _machine(), "pid": pid, "began": _began(pid)}


def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{socket.gethostname()} {boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:  # not Linux: nothing is proven, so a successor waits
        return f"{socket.gethostname()} {os.getpid()} {time.time_ns()}"


def _began(pid: int) -> str | None:
    """Start time of a process in clock ticks since boot; None when it does not run (a zombie runs no more)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else fields[19]


def noted(store: Store, task: int, number: int, name: str) -> list[Any]:
    """The values of one fact in the files of all epochs up to `number`."""
    found = []
    for one in range(1, number + 1):
        with contextlib.suppress(FileNotFoundError, ValueError):
            found.append(json.loads(store.get(_name(task, one))).get(name))
    return found


def first_start(store: Store, task: int, default: str) -> str:
    """When the task's first attempt began (ISO 8601); `default` if that is not known."""
    try:
        return str(json.loads(store.get(_name(task, 1)))["started_at"])
    except FileNotFoundError:
        return default
