"""The wheel in Airflow 3: one DAG run is a round, a turn of the wheel for each slice of the URL table.

Nothing of Spindle is imported here: Airflow has an environment of its own, and knows of Spindle its jobs (by
spark-submit), its command line (for what needs no JVM) and their exit codes (docs/operations.md). What this file alone
decides is the order, who waits for whom, what is tried again, and who is told.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import urllib.request
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, task, task_group
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

GUIDE = """
### Spindle: a round of the crawl

**One run is one round.** Each slice of the URL table has its turn: `generate` lists what is worth fetching, `fetch`
fetches it politely, `parse` reads it, `dedup` finds copies, `update` merges all of it into the tables. A segment is
named `<run>.<i>of<n>` after the run's logical date, or its run id where it has none, so a task that runs again goes on
where it was.

**A task failed?** Its log ends with a sentence that says what to do. Clearing the task is always safe: a job that is at
its end does nothing, one that died goes on. Exit codes 2 and 4 (a mistake in the settings, a damaged or full warehouse)
are not tried again by themselves. A turn that is not to be finished is given up with `spindle expire SEGMENT`.

**Runs never overlap**, and the pool lets as many jobs write as the store can bear: 1 for a local path.

**`check` failed?** An alarm rings (429 share, blocks, gaps, starvation, leases, stale slices): `spindle check`.

Settings are environment variables of the scheduler and workers; see the table in docs/operations.md.
"""


def setting(name: str, default: str) -> str:
    return os.environ.get(f"SPINDLE_{name}", default)


HOME = Path(setting("HOME", str(Path(__file__).resolve().parents[1])))
BIN = Path(setting("BIN", str(HOME / ".venv" / "bin")))
WAREHOUSE = setting("WAREHOUSE", str(HOME / "var" / "airflow"))
CONFIG = setting("CONFIG", "")  # a TOML file over the defaults; it needs agent.contact at least
CONFIGURED = ("--config", CONFIG) if CONFIG else ()
SEEDS = setting("SEEDS", "")  # a seed list that each round injects: what is known stays as it is
SLICES = int(setting("SLICES", "1"))
WINDOW_S = int(setting("FETCH_WINDOW_S", "3600"))
RETRY_S = int(setting("RETRY_S", "300"))
ALERT_URL = setting("ALERT_URL", "")  # gets a JSON object by POST for each failure
HOPELESS = {2: "a mistake in what was typed or configured", 4: "the warehouse is damaged, full or out of reach"}


class SpindleJob(SparkSubmitOperator):
    """A job of the wheel by spark-submit. What no retry can mend fails at once, by the job's exit code."""

    def execute(self, context: Any) -> Any:
        try:
            return super().execute(context)
        except AirflowException as error:
            found = re.search(r"Error code is: (\d+)", str(error))
            if found and (why := HOPELESS.get(int(found[1]))):
                raise AirflowFailException(f"{why}: see the last lines of this log") from error
            raise


def job(name: str, segment: Any, *words: str, **more: Any) -> SpindleJob:
    """The job `name` on a segment, with further words for its command line."""
    return SpindleJob(
        task_id=name,
        name=f"spindle {name}",
        application=str(HOME / "jobs" / f"{name}.py"),
        application_args=["--warehouse", WAREHOUSE, "--segment", segment, *CONFIGURED, *words],
        py_files=str(HOME / "dist" / "spindle.zip"),
        spark_binary=str(BIN / "spark-submit"),
        env_vars={"PYSPARK_PYTHON": str(BIN / "python")},
        conn_id=setting("SPARK_CONN", "spark_default"),
        **more,
    )


def ask(*words: str, answers: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess[str]:
    """A command of Spindle that needs no JVM, on the warehouse. Exit codes that are no answer fail the task."""
    command = [str(BIN / "spindle"), *words, "--warehouse", WAREHOUSE]
    told = subprocess.run(command, text=True, capture_output=True, check=False)
    if told.returncode not in answers:
        raise AirflowException(f"spindle {words[0]}: exit code {told.returncode}: {told.stderr.strip()}")
    return told


@task
def run_name(dag_run: Any = None) -> str:
    """The name of this round: its logical date, or its run id where it has none, in letters a segment may have."""
    logical = dag_run.logical_date
    return f"{logical:%Y%m%dT%H%M%S}" if logical else re.sub(r"[^A-Za-z0-9._:+-]", "-", dag_run.run_id)


@task
def segments(run: str) -> list[str]:
    """The names of this round's turns."""
    return [f"{run}.{i}of{SLICES}" for i in range(1, SLICES + 1)]


@task
def anything_listed(segment: str) -> None:
    """Ends a turn here when nothing is due. Of several slices each goes on: links that others forwarded to it come into
    the table by its update."""
    turn = json.loads(ask("segments", segment, "--json").stdout)
    if turn["counts"].get("listed") == 0 and SLICES == 1:
        ask("expire", segment)  # its range is free again
        raise AirflowSkipException(f"{segment}: nothing is due")


@task
def dedup(segment: str) -> None:
    """Looks for copies among all pages, exact and near, so that update can say so of this turn's."""
    print(segment, ask("dedup", *CONFIGURED).stdout)


@task_group
def turn(segment: str) -> None:
    """One slice's turn of the wheel."""
    hour = timedelta(hours=1)
    window = f"fetch.window_s={WINDOW_S}"  # pinned here for all four
    generate = job("generate", segment, "--set", window, execution_timeout=2 * hour)
    fetch = job("fetch", segment, execution_timeout=timedelta(seconds=WINDOW_S) + hour)  # it ends by itself
    parse = job("parse", segment, execution_timeout=6 * hour)
    update = job("update", segment, execution_timeout=6 * hour)
    generate >> anything_listed(segment) >> fetch >> parse >> dedup(segment) >> update


@task(trigger_rule="none_failed", retries=0)
def check() -> None:
    """The alarms. A run whose turns are done is still not well while one rings."""
    told = ask("check", *CONFIGURED, answers=(0, 1))
    print(told.stdout, told.stderr)
    if told.returncode == 1:
        raise AirflowException("\n".join(line for line in told.stdout.splitlines() if not line.startswith("ok")))


def tell(context: Any) -> None:
    """Tells who is on call. Put your own notifier here, or set SPINDLE_ALERT_URL."""
    instance = context["task_instance"]
    told = {"dag": instance.dag_id, "run": instance.run_id, "task": instance.task_id, "slice": instance.map_index}
    told["text"] = f"{instance.task_id} failed: {context.get('exception')}"
    print("spindle alert:", json.dumps(told))
    if ALERT_URL:
        body = json.dumps(told).encode()
        request = urllib.request.Request(ALERT_URL, body, {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=10).close()  # an address of the operator's own


with DAG(
    "spindle",
    doc_md=GUIDE,
    description="Spindle: generate, fetch, parse, update, for each slice",
    schedule=setting("SCHEDULE", "@daily"),
    start_date=datetime(2026, 1, 1),  # Airflow takes it as UTC
    catchup=False,  # a crawl of yesterday cannot be made up for
    max_active_runs=1,  # no two rounds on one slice; the lease would refuse the second anyway
    default_args={
        "retries": int(setting("RETRIES", "2")),
        "retry_delay": timedelta(seconds=RETRY_S),
        "on_failure_callback": tell,
        "pool": setting("POOL", "spindle"),
    },
    tags=["crawl"],
) as dag:
    run = run_name()
    named = segments(run)
    if SEEDS:  # under a name of this round's own, so that a retry finds its own lease
        lease = "inject-{{ ti.xcom_pull(task_ids='run_name') }}"
        run >> job("inject", lease, SEEDS, execution_timeout=timedelta(hours=1)) >> named
    turn.expand(segment=named) >> check()
