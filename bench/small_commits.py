"""What a small commit and a small read of a Delta table cost: by Spark, and by delta-rs in the same process.

CPU seconds of driver and JVM for each of ten rounds after one to warm up, in one run. `SPINDLE_QUICK=1` for the JVM
options of short sessions.
"""

from __future__ import annotations

import datetime
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from spindle import config, direct, schema, tables
from spindle.defaults import default_layer
from spindle.session import open_session

ROUNDS, ROWS = 10, 200


def cpu_s(pids: list[int]) -> float:
    """User and system time of processes so far."""
    tick, total = os.sysconf("SC_CLK_TCK"), 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / tick


def java_children() -> list[int]:
    asked = subprocess.run(["pgrep", "-P", str(os.getpid()), "java"], capture_output=True, text=True, check=True)
    return [int(word) for word in asked.stdout.split()]


def measured(name: str, work: Callable[[], object], pids: list[int]) -> float:
    work()
    before = cpu_s(pids)
    for _ in range(ROUNDS):
        work()
    spent = (cpu_s(pids) - before) / ROUNDS
    print(f"{name:34s} {spent:7.3f} CPU-s")
    return spent


def main() -> None:
    spark = open_session("bench", config.build([default_layer()]).spark)
    pids = [os.getpid(), *java_children()]
    with tempfile.TemporaryDirectory() as folder:
        warehouse = tables.create(spark, f"{folder}/wheel", 4, {})
        names = {"segment": "a", "job": "bench", "attempt": "1", "name": "rows", "value": 1.0}
        at = {"at": datetime.datetime.now(datetime.UTC)}
        local = direct.from_rows(warehouse.location("metrics"), [names | at] * ROWS)
        frame = spark.createDataFrame(local).selectExpr(*schema.columns("metrics"))
        place = warehouse.location("metrics")
        write = measured("replace by Spark", lambda: warehouse.replace("metrics", "segment = 'a'", frame), pids)
        quick = measured("replace by delta-rs", lambda: direct.replace(place, "segment = 'a'", local), pids)
        read = measured("read by Spark", lambda: warehouse.read("metrics").filter("segment = 'a'").collect(), pids)
        fast = measured("read by delta-rs", lambda: direct.read(place, {"segment": "a"}), pids)
    print(f"a commit of {ROWS} rows: {write / quick:.0f} times; a read: {read / max(fast, 1e-3):.0f} times")


if __name__ == "__main__":
    main()
