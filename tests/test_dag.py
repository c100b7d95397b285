"""The DAG in the real Airflow, in an environment of its own (tools/heavy.py makes `.venv-airflow`).

A round against the demo web whose fetch is killed on the way, then one where nothing is due. What Airflow made of it is
read from its own database; politeness from the web's log; how far the turns came from the ledger.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from processes import descendants
from spindle.cli.turns import turns
from spindle.demo import gaps, overlaps, read_log
from spindle.demo.child import DemoProcess, start_in_process
from spindle.ledger import Ledger
from spindle.store import open_store

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(1700)]

ROOT = Path(__file__).resolve().parents[1]
AIRFLOW = ROOT / ".venv-airflow" / "bin" / "airflow"
MIN_DELAY_S = 0.3
#: Only the seeds and no sitemaps, a day until they are due again; seals so long that a killed fetch has work left.
CONFIG = f"""
agent = {{ contact = "https://localhost/airflow" }}
warehouse = {{ buckets = 4 }}
trap = {{ max_depth = 0 }}
politeness = {{ min_delay_s = {MIN_DELAY_S}, duration_factor = 1.0 }}
fetch = {{ tail_s = 3.0, seal_interval_s = 2.0, total_timeout_s = 8.0 }}
recrawl = {{ maps_per_host = 0 }}
check = {{ throttled_share = 1.0, forbidden_share = 1.0 }}
"""
REPORT = """
from airflow.dag_processing.dagbag import DagBag
import json, sys
bag = DagBag(sys.argv[1])
dag = bag.dags.get("spindle")
print("REPORT" + json.dumps({"errors": bag.import_errors, "tasks": {t.task_id: {
    "pool": t.pool, "retries": t.retries, "after": sorted(t.upstream_task_ids),
    "timeout_s": t.execution_timeout and t.execution_timeout.total_seconds()} for t in dag.tasks},
    "runs": dag.max_active_runs, "catchup": dag.catchup}))
"""


@dataclass
class Airflow:
    """An Airflow home of its own, and the environment that leads to it and to one warehouse."""

    home: Path
    warehouse: Path
    environment: dict[str, str]

    def start(self, *words: str) -> subprocess.Popen[str]:
        said = (self.home / f"{'-'.join(words[:2])}.out").open("a")
        return subprocess.Popen([AIRFLOW, *words], env=self.environment, stdout=said, stderr=said, text=True)

    def run(self, *words: str) -> int:
        return self.start(*words).wait()

    def states(self, date: str) -> dict[str, tuple[str, int]]:
        """Of the run of a date: task -> its state, and how often it was tried."""
        with sqlite3.connect(self.home / "airflow.db") as db:
            asked = """SELECT t.task_id, t.state, t.try_number FROM task_instance t
                JOIN dag_run r ON r.run_id = t.run_id WHERE r.logical_date LIKE ? AND r.dag_id = 'spindle'"""
            return {task: (state, tries) for task, state, tries in db.execute(asked, (f"{date}%",))}

    def turns(self) -> dict[str, str]:
        return {turn["segment"]: turn["state"] for turn in turns(Ledger(open_store(self.warehouse), 4).entries())}


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoProcess]:
    with start_in_process(tmp_path_factory.mktemp("web"), hosts=60) as demo:
        yield demo


@pytest.fixture(scope="module")
def airflow(web: DemoProcess, tmp_path_factory: pytest.TempPathFactory) -> Airflow:
    if not AIRFLOW.exists():
        if os.environ.get("CI") == "true":
            raise AssertionError("no Airflow in .venv-airflow; tools/heavy.py installs it")
        pytest.skip("no Airflow in .venv-airflow; `make test-heavy` installs it")
    home = tmp_path_factory.mktemp("airflow")
    loopback = f'hosts_file = "{web.hosts_file}", hosts_file_only = true, allow_addresses = ["127.0.0.0/8"]'
    (home / "spindle.toml").write_text(CONFIG + f"network = {{ {loopback} }}")
    (home / "seeds.txt").write_text("\n".join(web.seeds))
    ours = ("AIRFLOW", "SPARK", "PYSPARK", "PYTHON", "VIRTUAL_ENV", "SPINDLE")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)} | {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW_CONN_SPARK_DEFAULT": "spark://local%5B2%5D",
        "SPINDLE_QUICK": "1",
        "SPINDLE_BIN": str(Path(sys.executable).parent),
        "SPINDLE_WAREHOUSE": str(home / "w"),
        "SPINDLE_CONFIG": str(home / "spindle.toml"),
        "SPINDLE_SEEDS": str(home / "seeds.txt"),
        "SPINDLE_FETCH_WINDOW_S": "60",
        "SPINDLE_RETRY_S": "1",
    }
    made = Airflow(home, home / "w", environment)
    assert made.run("db", "migrate") == 0
    assert made.run("pools", "set", "spindle", "1", "jobs that write one warehouse") == 0
    return made


def test_airflow_takes_the_dag_as_it_is_meant(airflow: Airflow) -> None:
    asked = [AIRFLOW.with_name("python"), "-c", REPORT, str(ROOT / "dags")]
    told = subprocess.run(asked, env=airflow.environment, capture_output=True, text=True, check=True).stdout
    report = json.loads(next(line for line in told.splitlines() if line.startswith("REPORT"))[6:])
    assert report["errors"] == {} and (report["runs"], report["catchup"]) == (1, False)
    tasks = report["tasks"]
    for before, after in pairwise(["generate", "anything_listed", "fetch", "parse", "dedup", "update"]):
        assert f"turn.{before}" in tasks[f"turn.{after}"]["after"]
    assert {tasks[f"turn.{name}"]["pool"] for name in ("generate", "fetch", "parse", "update")} == {"spindle"}
    assert tasks["turn.fetch"]["timeout_s"] > 60 and tasks["turn.fetch"]["retries"] == 2
    assert "turn.update" in tasks["check"]["after"]


def test_a_round_ends_although_its_fetch_was_killed(airflow: Airflow, web: DemoProcess) -> None:
    running = airflow.start("dags", "test", "spindle", "2026-12-01")
    killed = kill_fetch(running, web)
    assert running.wait() == 0 and killed
    states = airflow.states("2026-12-01")
    assert {state for state, _ in states.values()} == {"success"}, states
    assert states["turn.fetch"][1] == 2 and states["turn.parse"][1] == 1
    assert airflow.turns()["20261201T000000.1of1"] == "updated"
    log = read_log(web.log_path)
    assert overlaps(log) == [] and min(gaps(log).values()) >= MIN_DELAY_S
    fetched = {entry.host for entry in log if entry.path != "/robots.txt"}
    assert len(fetched) >= len({seed.split("/")[2] for seed in web.seeds}) - 2  # some answer nothing that a log shows


def kill_fetch(running: subprocess.Popen[str], web: DemoProcess) -> list[int]:
    """Kills the spark-submit of fetch, and all that it started, once the first pages were asked for."""
    while running.poll() is None:
        family = descendants(running.pid, "jobs/fetch.py")
        if family and any(entry.path != "/robots.txt" for entry in read_log(web.log_path)):
            for process in family:
                os.kill(process, signal.SIGKILL)
            return family
        time.sleep(0.05)
    return []


def test_a_round_where_nothing_is_due_ends_early(airflow: Airflow) -> None:
    assert airflow.run("dags", "test", "spindle", "2026-12-02") == 0
    states = airflow.states("2026-12-02")
    assert {name for name, (state, _) in states.items() if state == "skipped"} == {
        "turn.anything_listed",
        "turn.fetch",
        "turn.parse",
        "turn.dedup",
        "turn.update",
    }
    assert states["check"][0] == states["turn.generate"][0] == "success"
    assert airflow.turns()["20261202T000000.1of1"] == "expired", "its range is free again"
