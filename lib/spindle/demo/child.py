"""The demo web as a child process: started, waited for, asked to move its clock, stopped.

Decides the life of that process and nothing of its content. The child stops by itself when its parent is gone, however
the parent ended; it is stopped by its own process id, never by a name.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import spindle
from spindle.demo.server import serve
from spindle.demo.world import build_world
from spindle.errors import InputError

_POLL_S = 0.05
_PARENT_CHECK_S = 0.5  # the child looks this often whether its parent is still there
_STOP_S = 10.0  # a child that has not stopped after this is killed


def run(
    seed: int = 1,
    hosts: int = 200,
    *,
    pages: tuple[int, int] = (10, 60),
    farm: bool = False,
    log_path: Path,
    hosts_file: Path,
    base_address: str = "127.1.0.0",
    port: int = 0,
    tick_s: float = 20.0,
    parent: int | None = None,
) -> None:
    """Serve a world until SIGTERM or SIGINT comes, or until `parent` (a process id) is no longer our parent.

    On the way out `hosts_file` and the file beside it are removed, so that what is there can be used.
    Raises InputError where the sockets cannot be had, ValueError for an impossible world.
    """
    world = build_world(seed, hosts, pages, farm)
    _allow_files()

    async def until_stopped() -> None:
        stop = _on_signals()  # before the hosts file says that we can be used, and so stopped
        server = await serve(
            world, log_path=log_path, hosts_file=hosts_file, base_address=base_address, port=port, tick_s=tick_s
        )
        try:
            await _stop_asked(stop, parent)
        finally:
            _withdraw(hosts_file)
            await server.close()

    asyncio.run(until_stopped())


def _withdraw(hosts_file: Path) -> None:
    """Remove our two files, unless another demo web has put its own there."""
    facts = facts_path(hosts_file)
    with contextlib.suppress(OSError, ValueError):
        if json.loads(facts.read_text(encoding="utf-8"))["pid"] == os.getpid():
            hosts_file.unlink(missing_ok=True)
            facts.unlink(missing_ok=True)


def facts_path(hosts_file: Path) -> Path:
    """The JSON file beside a hosts file: pid, port, admin_port, log, seeds."""
    return hosts_file.with_name(hosts_file.name + ".json")


def _on_signals() -> asyncio.Event:
    """Set by SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


async def _stop_asked(stop: asyncio.Event, parent: int | None) -> None:
    while not stop.is_set() and (parent is None or os.getppid() == parent):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _PARENT_CHECK_S)


def _allow_files() -> None:
    """A socket for each host and for each of the crawler's connections: take all that the system grants."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@dataclass(slots=True)
class DemoProcess:
    """A demo web that runs in a child process. Names in `hosts_file` resolve, `log_path` fills, `seeds` are fronts."""

    process: subprocess.Popen[bytes]
    hosts_file: Path
    log_path: Path
    port: int
    admin_port: int
    seeds: list[str]

    @property
    def pid(self) -> int:
        return self.process.pid

    def advance(self, ticks: int = 1) -> int:
        """Move the world's clock on; the new tick."""
        return self._ask("POST", f"/advance?ticks={ticks}")

    def tick(self) -> int:
        return self._ask("GET", "/clock")

    def stop(self) -> int:
        """Ask the process to stop, and see to it that it does; its exit code. Stopping twice is harmless."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def _ask(self, method: str, path: str) -> int:
        request = urllib.request.Request(f"http://127.0.0.1:{self.admin_port}{path}", method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback: never through a proxy
        with opener.open(request, timeout=_STOP_S) as answer:
            return int(json.load(answer)["tick"])


def launch(
    folder: Path,
    seed: int = 1,
    hosts: int = 200,
    *,
    pages: tuple[int, int] = (10, 60),
    farm: bool = False,
    tick_s: float = 20.0,
    base_address: str = "127.1.0.0",
    port: int = 0,
    timeout_s: float = 60.0,
) -> DemoProcess:
    """Start a demo web in a child process; it answers when this returns.

    In `folder`: `demo.hosts`, `demo.hosts.json`, `requests.jsonl`, `demo.err`. Raises InputError with the child's own
    words where it does not come up within `timeout_s`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    hosts_file, log_path = folder / "demo.hosts", folder / "requests.jsonl"
    for old in (hosts_file, facts_path(hosts_file)):
        old.unlink(missing_ok=True)
    options: dict[str, Any] = {"seed": seed, "hosts": hosts, "pages": f"{pages[0]}-{pages[1]}", "tick-s": tick_s}
    options |= {
        "base-address": base_address,
        "port": port,
        "log": log_path,
        "hosts-file": hosts_file,
        "parent": os.getpid(),
    }
    words = [f"--{name}={value}" for name, value in options.items()] + ["--farm"] * farm
    with (folder / "demo.err").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "spindle.demo", "serve", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={**os.environ, "PYTHONPATH": _python_path()},
            start_new_session=True,  # Ctrl-C at a terminal is the parent's to answer
        )
    try:
        facts = _ready(process, hosts_file, folder / "demo.err", timeout_s)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return DemoProcess(process, hosts_file, log_path, facts["port"], facts["admin_port"], facts["seeds"])


@contextmanager
def start_in_process(folder: Path, seed: int = 1, hosts: int = 200, **options: Any) -> Iterator[DemoProcess]:
    """`launch` as a context: the child is stopped on the way out, whatever happened inside."""
    demo = launch(folder, seed, hosts, **options)
    try:
        yield demo
    finally:
        demo.stop()


def _python_path() -> str:
    """The child finds the same spindle, installed or not, from a folder or a zip."""
    own = str(Path(spindle.__file__).parent.parent)
    return os.pathsep.join([own, *filter(None, [os.environ.get("PYTHONPATH")])])


def _ready(process: subprocess.Popen[bytes], hosts_file: Path, errors: Path, timeout_s: float) -> dict[str, Any]:
    deadline = time.monotonic() + timeout_s
    while not hosts_file.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            said = errors.read_text(encoding="utf-8", errors="replace").strip()
            last = said.splitlines()[-1] if said else f"nothing within {timeout_s:g} s"
            raise InputError(f"the demo web did not start: {last} (all of it in {errors})")
        time.sleep(_POLL_S)
    facts: dict[str, Any] = json.loads(facts_path(hosts_file).read_text(encoding="utf-8"))
    return facts
