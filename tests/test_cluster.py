"""The wheel on a Spark standalone cluster: a master and two workers from the pip package, each job by `spark-submit`.

One of the workers is killed, with its executor and the fetch task in it, in the middle of the fetch. The turn completes
all the same: Spark runs the task again on the other worker, which takes the journal over. Politeness is read from the
web's log, the rest from the tables. The workers share the warehouse's folder, as on a network file system.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from processes import descendants
from spindle import direct
from spindle.demo import gaps, overlaps, read_log
from spindle.demo.child import DemoProcess, start_in_process
from spindle.ledger import Ledger
from spindle.segments import State, latest
from spindle.store import open_store

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
MIN_DELAY_S = 0.3
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: Seals and deadlines short, so that the successor need not wait long; a task a worker.
CONFIG = f"""
agent = {{ contact = "https://localhost/cluster" }}
warehouse = {{ buckets = 4 }}
generate = {{ fetch_tasks = 2 }}
politeness = {{ min_delay_s = {MIN_DELAY_S}, duration_factor = 1.0 }}
fetch = {{ tail_s = 3.0, seal_interval_s = 2.0, total_timeout_s = 8.0, window_s = 90 }}
recrawl = {{ maps_per_host = 0 }}
"""


@dataclass
class Cluster:
    """Daemons of Spark: the master, then the workers. `environment` has nothing of this process's Spark."""

    folder: Path
    environment: dict[str, str]
    port: int
    daemons: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def start(self, kind: str, *words: str, until: str) -> None:
        log = self.folder / f"{kind}-{len(self.daemons)}.log"
        command = [BIN / "spark-class", f"org.apache.spark.deploy.{kind.lower()}.{kind}", "--host", "127.0.0.1", *words]
        with log.open("wb") as said:
            self.daemons.append(subprocess.Popen(command, env=self.environment, stdout=said, stderr=said))
        deadline = time.monotonic() + 120
        while until not in log.read_text(errors="replace"):
            assert self.daemons[-1].poll() is None and time.monotonic() < deadline, log.read_text(errors="replace")
            time.sleep(0.1)

    def submit(self, bundle: Path, job: str, *words: object) -> subprocess.Popen[str]:
        flags = ["--master", self.url, "--executor-memory", "512m", "--executor-cores", "1", "--driver-memory", "700m"]
        flags += ["--conf", f"spark.executor.extraJavaOptions={QUICK}", "--driver-java-options", QUICK]
        command = [BIN / "spark-submit", *flags, "--properties-file", ROOT / "conf" / "spark-defaults.conf"]
        command += ["--py-files", bundle, ROOT / "jobs" / f"{job}.py", *words]
        said = (self.folder / f"{job}.out").open("w")
        return subprocess.Popen(
            [str(word) for word in command], env=self.environment, stdout=said, stderr=said, text=True
        )

    def run(self, bundle: Path, job: str, *words: object) -> str:
        code = self.submit(bundle, job, *words).wait()
        said = (self.folder / f"{job}.out").read_text()
        assert code == 0, said
        return said

    def kill_worker(self, number: int) -> list[int]:
        """A machine dies: the worker's daemon, its executor, and the Python workers that it forked."""
        daemon = self.daemons[number]
        family = [daemon.pid, *descendants(daemon.pid, "")]
        for process in family:
            os.kill(process, signal.SIGKILL)
        daemon.wait()
        return family

    def stop(self) -> None:
        for daemon in reversed(self.daemons):
            if daemon.poll() is None:
                daemon.terminate()
                daemon.wait(60)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    ours = ("SPARK", "PYSPARK", "SPINDLE", "PYTHON", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    conf = folder / "log4j2.properties"
    conf.write_text(
        "rootLogger.level = info\nrootLogger.appenderRef.c.ref = c\n"
        "appender.c.type = Console\nappender.c.name = c\nappender.c.target = SYSTEM_ERR\n"
        "appender.c.layout.type = PatternLayout\nappender.c.layout.pattern = %p %m%n\n"
    )
    environment |= {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{QUICK} -Dlog4j2.configurationFile=file:{conf} -Dspark.master.rest.enabled=false",
    }
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        made = Cluster(folder, environment, asked.getsockname()[1])
    try:
        made.start("Master", "--port", str(made.port), "--webui-port", "0", until="elected leader")
        for number in (1, 2):
            room = ["--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(folder / f"work{number}")]
            made.start("Worker", *room, made.url, until="Successfully registered with master")
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoProcess]:
    with start_in_process(tmp_path_factory.mktemp("web"), hosts=40) as demo:
        yield demo


def test_a_turn_completes_although_a_worker_dies_in_the_fetch(
    cluster: Cluster, web: DemoProcess, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, ROOT / "tools" / "make_zip.py"], check=True)
    bundle, warehouse = ROOT / "dist" / "spindle.zip", tmp_path / "w"
    (tmp_path / "seeds.txt").write_text("\n".join(web.seeds))
    loopback = f'hosts_file = "{web.hosts_file}", hosts_file_only = true, allow_addresses = ["127.0.0.0/8"]'
    (tmp_path / "spindle.toml").write_text(CONFIG + f"network = {{ {loopback} }}")
    turn = ("--warehouse", warehouse, "--config", tmp_path / "spindle.toml", "--segment")

    cluster.run(bundle, "inject", *turn, "in", tmp_path / "seeds.txt")
    assert re.search(r"listed \d\d", cluster.run(bundle, "generate", *turn, "t"))
    fetch = cluster.submit(bundle, "fetch", *turn, "t")
    killed = kill_when_busy(cluster, web, fetch)
    assert fetch.wait() == 0, (cluster.folder / "fetch.out").read_text()
    assert len(killed) >= 3, "a worker, its executor, and the Python that fetched"
    for job in ("parse", "update"):
        cluster.run(bundle, job, *turn, "t")

    entries = latest(Ledger(open_store(warehouse), 4).entries())
    assert entries["t.1of1"].state is State.UPDATED
    listed = direct.read(str(warehouse / "fetchlist"), {}, ["url_key"])["url_key"].to_pylist()
    fetched = direct.read(str(warehouse / "fetches"), {"hop": 0}, ["url_key", "epoch", "outcome"]).to_pylist()
    assert sorted(row["url_key"] for row in fetched) == sorted(listed), "one row for each listed URL"
    assert max(row["epoch"] for row in fetched) > min(row["epoch"] for row in fetched), "no task was taken over"
    assert sum(row["outcome"] == "ok" for row in fetched) > len(fetched) / 2
    log = read_log(web.log_path)
    assert overlaps(log) == [] and min(gaps(log).values()) >= MIN_DELAY_S


def kill_when_busy(cluster: Cluster, web: DemoProcess, fetch: subprocess.Popen[str]) -> list[int]:
    """Kills the second worker once it fetches: pages were asked for, and it has an executor with Python below it."""
    while fetch.poll() is None:
        python = descendants(cluster.daemons[2].pid, "pyspark")
        pages = sum(entry.path != "/robots.txt" for entry in read_log(web.log_path)) if web.log_path.exists() else 0
        if len(python) >= 2 and pages >= 5:
            return cluster.kill_worker(2)
        time.sleep(0.1)
    return []
