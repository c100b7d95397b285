"""The jobs as a cluster runs them: `spark-submit --py-files dist/spindle.zip jobs/X.py`, from anywhere.

The editable install must not help: the driver's own Python may see nothing of `lib/`, so what runs is the zip.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from spindle.ledger import Ledger
from spindle.segments import State, latest
from spindle.store import open_store

ROOT = Path(__file__).resolve().parents[1]
SUBMIT = Path(sys.executable).with_name("spark-submit")

CONTACT = ("--set", "agent.contact=https://crawler.test/", "--set", "network.hosts_file_only=true")

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The zip of the sources as they are, but for one default: who sees three buckets was told so by the zip."""
    subprocess.run([sys.executable, ROOT / "tools" / "make_zip.py"], check=True)
    bundle = tmp_path_factory.mktemp("bundle") / "spindle.zip"
    with zipfile.ZipFile(ROOT / "dist" / "spindle.zip") as made, zipfile.ZipFile(bundle, "w") as other:
        for name in made.namelist():
            content = made.read(name)
            if name == "spindle/conf/spindle.toml":
                content, changed = re.subn(rb"(?m)^buckets = \d+", b"buckets = 3", content)
                assert changed == 1
            other.writestr(name, content)
    return bundle


def submit(bundle: Path, job: str, *words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """As a user would: from another folder, with no activated environment and no variable of ours."""
    ours = ("SPARK", "PYSPARK", "SPINDLE", "PYTHON", "VIRTUAL_ENV", "JAVA_HOME")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environment["PATH"] = "/usr/bin:/bin"
    command = [SUBMIT, "--master", "local[2]", "--py-files", bundle, ROOT / "jobs" / f"{job}.py", *words]
    return subprocess.run(
        [str(word) for word in command], cwd=folder, env=environment, text=True, capture_output=True, check=False
    )


def said(done: subprocess.CompletedProcess[str]) -> str:
    """spark-submit sends a Python driver's standard error where its standard output goes."""
    return done.stdout + done.stderr


def states(warehouse: Path) -> dict[str, State]:
    return {name: entry.state for name, entry in latest(Ledger(open_store(warehouse), 3).entries()).items()}


def test_jobs_run_from_the_zip_and_their_exit_codes_survive(bundle: Path, tmp_path: Path) -> None:
    warehouse = tmp_path / "w"
    (tmp_path / "seeds.txt").write_text("http://a.test/\nhttp://b.test/\njunk\n")

    done = submit(bundle, "inject", "--warehouse", warehouse, "--segment", "in", "seeds.txt", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "inject in.1of1: lines 3, seeds 2, bad_lines 1" in done.stdout
    assert "  line 3: not_absolute: 'junk'" in said(done)
    assert json.loads((warehouse / "spindle.json").read_text())["buckets"] == 3, "not the zip's code ran"

    done = submit(bundle, "generate", "--warehouse", "w", "--segment", "a", *CONTACT, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "generate a.1of1: listed 2" in done.stdout
    assert states(warehouse) == {"in.1of1": State.UPDATED, "a.1of1": State.GENERATED}

    done = submit(bundle, "generate", "--warehouse", "w", "--segment", "b", *CONTACT, folder=tmp_path)
    assert done.returncode == 3, "a range that somebody else owns: try again later"
    assert "spindle generate: buckets 0..2 belong to segment a.1of1" in said(done)
    assert "Traceback" not in said(done) and "\tat " not in said(done)
    assert states(warehouse) == {"in.1of1": State.UPDATED, "a.1of1": State.GENERATED}
