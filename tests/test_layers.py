"""The rings of DESIGN section 4, read from the sources themselves: who may import what, and who may ask a clock.

A rule is a function from a module's syntax tree to its breaches, so that each rule is shown to catch a breach here too.
What is imported for the type checker only (`if TYPE_CHECKING:`) binds nobody at run time and is left out.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LIB, JOBS = ROOT / "lib" / "spindle", ROOT / "jobs"

#: Values in, values out. Modules that these import belong to the ring too (see `ring`).
PURE = {
    *("errors", "config", "schema", "urls", "scope", "robots", "charset", "html", "sitemap", "fingerprint"),
    *("outcome", "lifecycle", "recrawl", "priority", "selector", "politeness", "warc", "wishes"),
    *("nearpairs", "clusters"),
}
#: One door to each outside thing: package -> modules that may import it, and who else.
DOORS = {
    "pyspark": {"tables", "session", "jobs"},
    "delta": {"tables", "session", "jobs"},
    "aiohttp": {"fetcher", "server"},
    "boto3": {"store", "notify"},
    "botocore": {"store", "notify"},
}
#: `server` is two things: the demo web's and, later, the control API's. `store` has its S3 half in a file apart.
ALSO = {"demo": "server", "store_s3": "store"}
#: Breaches that are known and owed: file -> package. An entry that is paid must go (a test sees to it).
OWED = {"lib/spindle/cli/ask.py": "pyspark"}  # names the errors of a user's SQL; belongs to `session` or `tables`
#: Outside things, clocks and chance: nothing for the pure ring.
IMPURE = {
    *DOORS,
    *("deltalake", "requests", "urllib3", "httpx", "http.client", "urllib.request", "socket", "ssl", "rich"),
    *("asyncio", "threading", "multiprocessing", "concurrent", "subprocess", "signal", "os", "shutil", "tempfile"),
    *("time", "random", "secrets", "uuid"),
}
IMPURE_CALLS = {"now", "utcnow", "today", "urandom", "getenv", "read_text", "write_text", "read_bytes", "write_bytes"}
IMPURE_BUILTINS = {"open", "print", "input", "exec", "eval"}
#: Reading a file that ships with this or an installed package is a constant written elsewhere.
CONSTANTS = {"defaults": {"read_text"}, "urls": {"read_bytes", "read_text", "open"}}


def sources(folder: Path) -> dict[str, list[Path]]:
    """Module (or package) name -> its files. Links (`spindle.jobs`) lead out of the package and are left alone."""
    found: dict[str, list[Path]] = {}
    for entry in sorted(folder.iterdir()):
        if entry.suffix == ".py":
            found[entry.stem] = [entry]
        elif entry.is_dir() and not entry.is_symlink() and (files := sorted(entry.rglob("*.py"))):
            found[entry.name] = files
    return found


MODULES = sources(LIB)
JOB_FILES = sources(JOBS)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def nodes_at_run_time(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node except those below `if TYPE_CHECKING:`."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.orelse:
                yield other
                yield from nodes_at_run_time(other)
        else:
            yield child
            yield from nodes_at_run_time(child)


def imports(tree: ast.AST, package: str = "") -> set[str]:
    """Dotted names of all that is imported, names out of modules included; `package` resolves relative imports."""
    found = set()
    for node in nodes_at_run_time(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(part for part in (package if node.level else "", node.module or "") if part)
            found |= {f"{base}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("__import__", "importlib.import_module"):
            found |= {str(arg.value) for arg in node.args[:1] if isinstance(arg, ast.Constant)}
    return found


def within(name: str, packages: set[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def impure_imports(tree: ast.AST) -> set[str]:
    return {name for name in imports(tree) if within(name, IMPURE)}


def impure_calls(tree: ast.AST) -> set[str]:
    found = set()
    for node in nodes_at_run_time(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Attribute) and node.func.attr in IMPURE_CALLS:
            found.add(node.func.attr)
        if isinstance(node.func, ast.Name) and node.func.id in IMPURE_BUILTINS:
            found.add(node.func.id)
    return found


@cache
def own_imports(module: str) -> set[str]:
    """The spindle modules that a module imports."""
    found = set()
    for path in MODULES[module]:
        package = ".".join(("spindle", *path.relative_to(LIB).parts[:-1]))
        for name in imports(tree_of(path), package):
            if name.startswith("spindle."):
                found.add(name.split(".")[1])
    return (found & set(MODULES)) - {module}


def ring() -> set[str]:
    """The pure modules that exist, and all that these import from spindle, at any remove."""
    reached, todo = set(), [name for name in PURE if name in MODULES]
    while todo:
        module = todo.pop()
        reached.add(module)
        todo += own_imports(module) - reached
    return reached


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def passers(package: str) -> dict[str, list[Path]]:
    """Modules and jobs that import a package at run time, with the files that do."""
    found: dict[str, list[Path]] = {}
    for name, files in [*MODULES.items(), *((f"jobs/{job}", files) for job, files in JOB_FILES.items())]:
        through = [path for path in files if any(within(i, {package}) for i in imports(tree_of(path)))]
        if through:
            found[name] = through
    return found


# --- the rules ---


def test_the_sources_are_found() -> None:
    assert {"errors", "config", "outcome", "lifecycle", "selector"} <= set(MODULES)
    assert "jobs" not in MODULES
    assert ring() >= {name for name in PURE if name in MODULES}


@pytest.mark.parametrize("module", sorted(ring()))
def test_pure_ring_imports_nothing_from_outside(module: str) -> None:
    for path in MODULES[module]:
        assert impure_imports(tree_of(path)) == set(), path


@pytest.mark.parametrize("module", sorted(ring()))
def test_pure_ring_asks_no_clock_chance_or_file(module: str) -> None:
    for path in MODULES[module]:
        assert impure_calls(tree_of(path)) - CONSTANTS.get(module, set()) == set(), path


@pytest.mark.parametrize("package", DOORS)
def test_one_door_to_each_outside_thing(package: str) -> None:
    for name, files in passers(package).items():
        door = "jobs" if name.startswith("jobs/") else ALSO.get(name, name)
        strangers = {place(path) for path in files if door not in DOORS[package]}
        assert {path for path in strangers if OWED.get(path) != package} == set(), f"must not import {package}"


@pytest.mark.parametrize(("file", "package"), OWED.items())
def test_what_is_owed_is_not_paid_yet(file: str, package: str) -> None:
    assert any(place(path) == file for files in passers(package).values() for path in files), "paid: take it off OWED"


@pytest.mark.parametrize("job", sorted(JOB_FILES))
def test_no_job_imports_another(job: str) -> None:
    others = {
        f"{base}.{name}" for base in ("jobs", "spindle.jobs") for name in JOB_FILES if name not in (job, "__init__")
    }
    for path in JOB_FILES[job]:
        names = imports(tree_of(path), "jobs")
        assert {name for name in names if within(name, others)} == set(), path


@pytest.mark.parametrize("module", sorted(set(MODULES) - {"cli"}))
def test_only_the_command_line_knows_the_jobs(module: str) -> None:
    for path in MODULES[module]:
        package = ".".join(("spindle", *path.relative_to(LIB).parts[:-1]))
        known = {name for name in imports(tree_of(path), package) if within(name, {"jobs", "spindle.jobs"})}
        assert known == set(), path


def test_modules_form_no_circle() -> None:
    open_modules: list[str] = []
    done: set[str] = set()

    def visit(module: str) -> None:
        assert module not in open_modules, " -> ".join([*open_modules, module])
        if module in done:
            return
        open_modules.append(module)
        for other in sorted(own_imports(module)):
            if ALSO.get(other) != module and ALSO.get(module) != other:  # two halves of one door
                visit(other)
        done.add(open_modules.pop())

    for module in sorted(MODULES):
        visit(module)


@pytest.mark.parametrize("module", sorted(name for name in MODULES if not name.startswith("_")))
def test_every_file_opens_with_its_contract(module: str) -> None:
    for path in MODULES[module]:
        if path.read_text(encoding="utf-8").strip():
            assert ast.get_docstring(tree_of(path)), path


# --- the rules bite ---


@pytest.mark.parametrize(
    "code",
    [
        "import pyspark",
        "import pyspark.sql as s",
        "from pyspark.sql import functions",
        "from time import monotonic",
        "import random",
        "def f():\n    import boto3",
        "from os import environ",
        "import importlib\nimportlib.import_module('aiohttp')",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    pass\nelse:\n    import socket",
    ],
)
def test_an_impure_import_is_seen(code: str) -> None:
    assert impure_imports(ast.parse(code))


@pytest.mark.parametrize(
    "code",
    [
        "from datetime import datetime\ndatetime.now()",
        "import datetime\ndatetime.datetime.utcnow()",
        "from datetime import date\nx = date.today()",
        "open('x')",
        "print(1)",
        "from pathlib import Path\nPath('x').read_text()",
    ],
)
def test_an_impure_call_is_seen(code: str) -> None:
    assert impure_calls(ast.parse(code))


@pytest.mark.parametrize(
    "code",
    [
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pyspark.sql import DataFrame",
        "from datetime import datetime\ndatetime.fromisoformat('2026-01-01')",
        "import timeit_like",
        "import math",
    ],
)
def test_what_is_allowed_is_not_seen(code: str) -> None:
    assert not impure_imports(ast.parse(code)) and not impure_calls(ast.parse(code))


def test_relative_imports_are_resolved() -> None:
    assert imports(ast.parse("from . import fetch\nfrom .update import run"), "jobs") == {
        "jobs.fetch",
        "jobs.update.run",
    }


def test_the_pure_ring_loads_without_spark_or_network() -> None:
    """The proof by doing: a fresh interpreter imports the ring, and nothing of the outside has come along."""
    load = "".join(f"import spindle.{name}\n" for name in sorted(ring()))
    show = f"import sys\nprint(*sorted(set(sys.modules) & {set(DOORS)!r}))"
    done = subprocess.run([sys.executable, "-c", load + show], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
