"""Work done in a child process that can be killed: what hangs, crashes or eats memory costs itself and nothing else.

This file alone starts, feeds, times, kills and replaces such a child (`isolate_child` is what runs in it). It works on
C code, which no exception and no signal handler reaches. It is a plain `subprocess` that imports what it needs, not a
fork: a Spark Python worker has threads and sockets that a forked child must not inherit, and its daemon may have no
children by `multiprocessing`. What is worked on is the caller's: a factory named "module:function" is called once in
the child, what it returns is called for each item. Longer than other files: one protocol, its pipes and its clock.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self

from spindle.errors import SpindleError

TIMEOUT, CRASH = "parse_timeout", "parse_crash"

_AHEAD_BYTES = 1 << 20  # sent before the results of earlier items are in: the child never waits for the parent
_AHEAD_ITEMS = 64
PIPE_BYTES = 1 << 18  # read and written at a time
_START_S = 60.0  # for the child's imports
HEAD = 4  # bytes of a frame's length


class IsolationError(SpindleError):
    """The child cannot start: the factory or an import fails there. The text ends with what it said."""


class Failure(NamedTuple):
    """Instead of a result. `reason`: TIMEOUT or CRASH; `detail`: the exception or the exit status, for a person."""

    reason: str
    detail: str


@dataclass(slots=True)
class _Sent:
    """An item that the child has, or will have when `end` bytes of the stream are through."""

    frame: bytes
    end: int


class Isolated:
    """One child. Use it in a `with`; `map` may be called again and again.

    Args:
        factory: "module:function"; called in the child as function(argument), must return item -> result.
        argument: anything that pickles, as must items and results.
        timeout_s: an item's time, from the moment that the child has it and is done with the one before.
        memory_bytes: what an item may take beyond what the child has after its imports (Linux: RLIMIT_AS).
    """

    def __init__(self, factory: str, argument: Any, timeout_s: float, memory_bytes: int) -> None:
        self._setup = framed((factory, argument, memory_bytes))
        self._timeout_s = timeout_s
        self._child: subprocess.Popen[bytes] | None = None
        self._sent: deque[_Sent] = deque()
        self.restarts = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._kill()

    def map(self, items: Iterable[Any]) -> Iterator[Any]:
        """The result of each item, in order; a `Failure` for one that hung, crashed or raised.

        Raises:
            IsolationError: the child cannot start.
        """
        waiting = iter(items)
        more = True
        try:
            while more or self._sent:
                while more and len(self._sent) < _AHEAD_ITEMS and (not self._sent or self._unread < _AHEAD_BYTES):
                    try:
                        item = next(waiting)
                    except StopIteration:
                        more = False
                    else:
                        self._give(item)
                if self._sent:
                    yield from self._some_results()
        finally:
            if self._sent:  # whoever asked went away; results that nobody waits for must not answer the next
                self._kill()
                self._sent.clear()

    def _give(self, item: Any) -> None:
        if self._child is None:  # not before there is work: its imports cost half a second
            self._start()
        self._send(framed(item))

    def _some_results(self) -> Iterator[Any]:
        """Waits until something moves; the results that came in, or the failure of the item that was waited for."""
        self._exchange(self._time_left())
        if frames := list(self._frames()):
            for told, result in frames:
                if told == "stop":  # the child ends by itself, and not for the item that it has not begun
                    self._excused = True
                else:
                    self._forget()
                    yield result
        elif self._ended:
            yield from self._replace(CRASH)
        elif self._time_left() <= 0:
            yield from self._replace(TIMEOUT)

    def _forget(self) -> None:
        self._unread -= len(self._sent.popleft().frame)
        self._head_since = time.monotonic()

    def _replace(self, reason: str) -> Iterator[Failure]:
        """A new child; it gets again what the old one had not answered, but for the item that ended it."""
        blamed = bool(self._sent) and not self._excused
        status = self._kill()
        if blamed:
            self._sent.popleft()
        unanswered = [sent.frame for sent in self._sent]
        self.restarts += 1
        self._start()
        for frame in unanswered:
            self._send(frame)
        if blamed:
            yield Failure(reason, f"no result within {self._timeout_s:g} s" if reason == TIMEOUT else _told(status))

    def _start(self) -> None:
        paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # address space, and cores that are not ours
        # Memory of one item comes again for the next: given back to the system it costs a fault each 4 KB (a fifth of
        # the CPU of parsing small pages; glibc, mallopt(3)).
        memory = {"MALLOC_TRIM_THRESHOLD_": str(1 << 28), "MALLOC_MMAP_THRESHOLD_": str(1 << 25)}
        self._child = subprocess.Popen(
            [sys.executable, "-m", "spindle.isolate_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **paths, **threads, **memory},
            bufsize=0,
        )
        self._in, self._out = self._child.stdin.fileno(), self._child.stdout.fileno()  # type: ignore[union-attr]
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)
        self._sent.clear()
        self._outgoing: deque[memoryview] = deque()
        self._incoming = bytearray()
        self._put = self._written = self._unread = 0
        self._ended = self._excused = False
        self._outgoing.append(memoryview(self._setup))
        self._put += len(self._setup)
        self._await_readiness()

    def _await_readiness(self) -> None:
        give_up = time.monotonic() + _START_S
        while not self._ended and time.monotonic() < give_up:
            self._exchange(give_up - time.monotonic())
            for told, text in self._frames():
                if told == "ready":
                    self._head_since = time.monotonic()
                    return
                self._kill()
                raise IsolationError(f"the isolated child cannot start: {text}")
        raise IsolationError(f"the isolated child cannot start: {_told(self._kill())}")

    def _send(self, frame: bytes) -> None:
        self._outgoing.append(memoryview(frame))
        self._put += len(frame)
        self._unread += len(frame)
        self._sent.append(_Sent(frame, self._put))

    def _time_left(self) -> float:
        """Of the item at work; while it is not through to the child, all of it."""
        if not self._sent or self._written < self._sent[0].end:
            self._head_since = time.monotonic()
        return self._timeout_s - (time.monotonic() - self._head_since)

    def _exchange(self, wait_s: float) -> None:
        """Writes what the child takes, reads what it says; waits for one of both."""
        poll = select.poll()
        poll.register(self._out, select.POLLIN)
        if self._outgoing:
            poll.register(self._in, select.POLLOUT)
        for place, event in poll.poll(max(0.0, wait_s) * 1000):
            if place == self._out:
                self._read()
            elif event & (select.POLLERR | select.POLLHUP):
                self._outgoing.clear()  # it died; its output tells the rest
            else:
                self._write()

    def _read(self) -> None:
        if data := os.read(self._out, PIPE_BYTES):
            self._incoming += data
        else:
            self._ended = True

    def _write(self) -> None:
        try:
            while self._outgoing:
                count = os.write(self._in, self._outgoing[0][:PIPE_BYTES])
                self._written += count
                self._outgoing[0] = self._outgoing[0][count:]
                if not self._outgoing[0]:
                    self._outgoing.popleft()
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._outgoing.clear()

    def _frames(self) -> Iterator[tuple[str, Any]]:
        while len(self._incoming) >= HEAD:
            end = HEAD + int.from_bytes(self._incoming[:HEAD], "little")
            if len(self._incoming) < end:
                return
            told, result = pickle.loads(bytes(self._incoming[HEAD:end]))
            del self._incoming[:end]
            yield told, result

    def _kill(self) -> int:
        """Ends the child and gives its exit status."""
        if self._child is None:
            return 0
        child, self._child = self._child, None
        if self._ended:  # it is ending by itself: its own status says more than our signal
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(1.0)
        child.kill()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()
        return child.wait()


def framed(thing: Any) -> bytes:
    """What goes through the pipes, both ways: a length and a pickle."""
    body = pickle.dumps(thing, pickle.HIGHEST_PROTOCOL)
    return len(body).to_bytes(HEAD, "little") + body


def _told(status: int) -> str:
    return f"the child was ended by signal {-status}" if status < 0 else f"the child ended with status {status}"
