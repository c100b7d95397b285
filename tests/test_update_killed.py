"""An update killed at any moment and run again leaves what one clean run leaves: by SIGKILL, four times, or as often as
SPINDLE_KILLS says (each takes half a minute and more)."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rows import contents
from spindle import runner, tables
from spindle.jobs import update
from spindle.segments import State
from test_update import SEGMENT, laid_out

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLS = int(os.environ.get("SPINDLE_KILLS", "4"))
TABLES = ("urls", "hosts", "events", "seen")
PROGRAM = "import sys; from spindle.cli import main; sys.exit(main())"


@pytest.mark.heavy
@pytest.mark.timeout(3600)
def test_killed_at_random_points_the_tables_are_those_of_a_clean_run(spark: SparkSession, tmp_path: Path) -> None:
    """Each time from the same parsed segment, in a process of its own; killed at an even spread of random moments
    between the first sign of work and the end; then run to the end."""
    base, turn = laid_out(spark, tmp_path / "base")
    shutil.copytree(base.store.root, tmp_path / "clean")
    clean = tables.open_warehouse(spark, str(tmp_path / "clean"))
    runner.turn_of(clean, turn.segment, "update", update.run)
    wanted = {table: contents(clean, table) for table in TABLES}
    took_s, rng, reached = timed(tmp_path / "timed", Path(base.store.root)), random.Random(11), set()
    for number in range(KILLS):
        root = tmp_path / f"killed{number}"
        shutil.copytree(base.store.root, root)
        kill(root, took_s * (number + rng.random()) / KILLS)
        warehouse = tables.open_warehouse(spark, str(root))
        reached.add(tuple(len(list((root / table / "_delta_log").glob("*.json"))) for table in TABLES))
        runner.turn_of(warehouse, turn.segment, "update", update.run)
        entry = warehouse.ledger.current(SEGMENT)
        assert entry is not None and entry.state is State.UPDATED
        for table in TABLES:
            assert contents(warehouse, table) == wanted[table], (number, table)
        shutil.rmtree(root)
    assert len(reached) > 1 or KILLS < 10, "the moments were not all before the first commit"


def started(root: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "SPINDLE_MASTER": "local[2]", "SPINDLE_QUICK": "1"}
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        environment.pop(name, None)
    command = [sys.executable, "-c", PROGRAM, "update", "--warehouse", str(root), "--segment", SEGMENT]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, env=environment, start_new_session=True, stdout=quiet, stderr=quiet)


def timed(root: Path, base: Path) -> float:
    """How long a whole run takes here and now, a JVM's start and all."""
    shutil.copytree(base, root)
    begun = time.monotonic()
    assert started(root).wait(900) == 0
    return time.monotonic() - begun


def kill(root: Path, after_s: float) -> None:
    """Ends the process and the JVM that it started, without a warning. They are one process group, which is ours."""
    job = started(root)
    try:
        job.wait(after_s)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait(60)
