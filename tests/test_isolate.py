"""What hangs, crashes or eats memory costs itself: the items round it are answered as if it were not there."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spindle.isolate import CRASH, TIMEOUT, Failure, Isolated, IsolationError

WORK = "hostile_work:factory"


def isolated(timeout_s: float = 20.0, memory_bytes: int = 256 << 20, argument: object = "done") -> Isolated:
    return Isolated(WORK, argument, timeout_s, memory_bytes)


def test_results_come_in_order():
    with isolated() as child:
        assert list(child.map(range(1000))) == [("done", number) for number in range(1000)]
        assert list(child.map(["again"])) == [("done", "again")]
        assert list(child.map([])) == []
        assert child.restarts == 0


@pytest.mark.parametrize(
    ("item", "reason", "detail", "restarts"),
    [
        ("hang", TIMEOUT, "no result within 1 s", 1),
        ("hang in C", TIMEOUT, "no result within 1 s", 1),  # no signal handler would get through
        ("crash", CRASH, "the child was ended by signal 11", 1),
        ("exit", CRASH, "the child ended with status 7", 1),
        ("sys.exit", CRASH, "SystemExit: 3", 0),
        ("raise", CRASH, "ZeroDivisionError: division by zero", 0),
        ("recurse", CRASH, "RecursionError: maximum recursion depth exceeded", 0),
        ("unpicklable", CRASH, "", 0),
        (("eat", 512 << 20), CRASH, "MemoryError: more than parse.memory_bytes", 1),
    ],
)
def test_a_bad_item_costs_itself(item, reason, detail, restarts):
    with isolated(timeout_s=1) as child:
        before, bad, *after = list(child.map(["a", item, "b", "c"]))
        assert isinstance(bad, Failure)
        assert (bad.reason, bad.detail[: len(detail)]) == (reason, detail)
        assert [before, *after] == [("done", "a"), ("done", "b"), ("done", "c")]
        assert child.restarts == restarts


def test_several_bad_items_in_a_row():
    with isolated(timeout_s=1) as child:
        results = list(child.map(["crash", "exit", "hang", "x", "crash"]))
        assert [result.reason if isinstance(result, Failure) else result for result in results] == [
            CRASH,
            CRASH,
            TIMEOUT,
            ("done", "x"),
            CRASH,
        ]


def test_memory_within_the_limit_is_granted():
    with isolated() as child:
        assert list(child.map([("eat", 128 << 20)])) == [128 << 20]


def test_what_the_work_prints_is_no_result():
    with isolated() as child:
        assert list(child.map(["print", "a"])) == ["printed", ("done", "a")]


def test_items_and_results_larger_than_any_pipe():
    """Both sides write at once: neither may wait for the other."""
    with isolated() as child:
        items = [("large", 3_000_000, b"y" * 3_000_000)] * 10
        assert [len(result) for result in child.map(items)] == [3_000_000] * 10


def test_a_slow_consumer_is_not_the_childs_fault():
    with isolated(timeout_s=1) as child:
        results = child.map(range(200))
        first = next(results)
        time.sleep(1.5)
        assert [first, *results] == [("done", number) for number in range(200)]
        assert child.restarts == 0


def test_results_that_nobody_waited_for_answer_nobody_else():
    with isolated() as child:
        results = child.map(range(100))
        next(results)
        results.close()
        assert list(child.map(["a"])) == [("done", "a")]


def test_no_child_outlives_its_use():
    with isolated() as child:
        (pid,) = child.map(["pid"])
        assert Path(f"/proc/{pid}").exists()
    assert not Path(f"/proc/{pid}").exists()


def test_a_child_dies_with_a_parent_that_was_killed():
    """A Spark worker is killed with SIGKILL; its child may be in an endless loop and never look at its input."""
    code = (
        "import os, threading, time\n"
        "from spindle.isolate import Isolated\n"
        f"child = Isolated({WORK!r}, 'x', 100, 1 << 28)\n"
        "print(next(child.map(iter(['pid']))), flush=True)\n"
        "list(child.map(['hang in C']))\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=env) as parent:
        assert parent.stdout is not None
        grandchild = int(parent.stdout.readline())
        parent.kill()
    gone = time.monotonic() + 20
    while Path(f"/proc/{grandchild}").exists() and time.monotonic() < gone:
        time.sleep(0.05)
    assert not Path(f"/proc/{grandchild}").exists()


@pytest.mark.parametrize(
    ("factory", "argument", "says"),
    [
        (WORK, "broken", "ValueError: cannot be made"),
        ("no_such_module:factory", None, "ModuleNotFoundError"),
        ("hostile_work:no_such_name", None, "AttributeError"),
        ("ctypes:string_at", 0, "ended by signal 11"),
    ],
)
def test_a_child_that_cannot_start_is_an_error_of_the_program(factory, argument, says):
    with Isolated(factory, argument, 5, 1 << 28) as child, pytest.raises(IsolationError, match=says):
        list(child.map(["a"]))
