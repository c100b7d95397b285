"""The door to Spark: one session, the same for spark-submit, Airflow, a test and the one-command local crawl.

What `make setup` wrote beside the pip-installed Spark (class path, Java, Python, class archive) is found by Spark
itself; here are only the choices that depend on the run. It knows nothing of tables or jobs.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from spindle.defaults import shipped_text
from spindle.errors import SpindleError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spindle.config import SparkSettings

#: pyspark -> delta-spark; the only pair that is tested (a patch release of one may break the other at run time).
TESTED_PAIR = ("4.2.0", "4.4.0")


#: For sessions of seconds: measured on two cores, a session opens in 4 CPU-s instead of 22 (C1 only, no parallel
#: collector, and the class archive that `make setup` dumped under these same options). C1 alone reserves 48 MB for what
#: it compiles, which a turn of the wheel fills: the JVM then throws code away and compiles it again. Compiling early (a
#: third of the calls that it usually waits for) took a tenth off a first turn; metaspace that starts small grows by
#: full collections.
QUICK = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
    " -XX:CompileThresholdScaling=0.3 -XX:MetaspaceSize=256m"
)


def open_session(app: str, settings: SparkSettings, *, master: str | None = None, quick: bool = False) -> SparkSession:
    """The running session, or a new one.

    Under spark-submit the master, memory and class path of the command line win. Otherwise a local session with all
    cores is made; `SPINDLE_MASTER` or `master` choose another number. `quick` (or SPINDLE_QUICK=1) tunes the JVM for
    a short life.

    Raises:
        SpindleError: pyspark and delta-spark are not the tested pair, or Java or Delta's jars are missing.
    """
    _check_versions()
    _environment(_is_quick(quick))
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app)
    quiet = "log4j2.configurationFile" in os.environ.get("SPARK_SUBMIT_OPTS", "")  # Spark announces a level it is told
    for key, value in _defaults():
        if not (quiet and key == "spark.log.level"):
            builder = builder.config(key, value)
    if _is_quick(quick):  # frames of a few thousand rows: compiling their code costs more than running it
        builder = builder.config("spark.sql.codegen.wholeStage", "false")
        builder = builder.config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        builder = builder.config("spark.sql.adaptive.enabled", "false")  # each stage planned anew: nothing to adapt
    if not _submitted():
        builder = builder.master(master or os.environ.get("SPINDLE_MASTER", "local[*]"))
        builder = builder.config("spark.driver.memory", settings.driver_memory)
    try:
        spark = builder.getOrCreate()
    except Exception as error:  # py4j raises many kinds; each means the JVM did not come up
        raise SpindleError(_explain(error)) from error
    _answer_interrupts()
    partitions = settings.shuffle_partitions or 2 * spark.sparkContext.defaultParallelism
    spark.conf.set("spark.sql.shuffle.partitions", partitions)
    return spark


def _answer_interrupts() -> None:
    """Lets Ctrl-C raise KeyboardInterrupt and nothing else. PySpark's own handler first asks the JVM to stop, over the
    connection that is in the middle of a call, and py4j logs a stack trace for each call that is cut off."""
    logging.disable(logging.NOTSET)
    logging.getLogger("SQLQueryContextLogger").disabled = True  # logs each failed query with the stack of the JVM
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(*_: object) -> NoReturn:
    logging.disable(logging.CRITICAL)
    raise KeyboardInterrupt


def _is_quick(wished: bool) -> bool:
    return wished or os.environ.get("SPINDLE_QUICK") == "1"


def _environment(quick: bool) -> None:
    """What `make setup` found out (Java, class archive), for a session that starts from plain Python."""
    found = Path(sys.executable).parent / "find-spark-home"
    if found.exists():
        for name, value in re.findall(r'^export (\w+)="(?:\$\{\w+:-)?(.*?)\}?"$', found.read_text(), re.MULTILINE):
            os.environ.setdefault(name, value)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if quick and QUICK not in (options := os.environ.get("SPARK_SUBMIT_OPTS", "")):
        os.environ["SPARK_SUBMIT_OPTS"] = f"{options} {QUICK}".strip()


def _defaults() -> list[tuple[str, str]]:
    """The settings of conf/spark-defaults.conf, so that a plain spark-submit needs no --properties-file."""
    lines = (line.split(None, 1) for line in shipped_text("conf/spark-defaults.conf").splitlines())
    return [(words[0], words[1].strip()) for words in lines if len(words) == 2 and not words[0].startswith("#")]


def _submitted() -> bool:
    """Whether spark-submit started this Python (it leaves the port of its gateway)."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _check_versions() -> None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = (version("pyspark"), version("delta-spark"))
    except PackageNotFoundError:
        return  # a cluster that ships its own Spark: its administrator chose the pair
    if found != TESTED_PAIR:
        raise SpindleError(
            f"pyspark {found[0]} with delta-spark {found[1]}: only {TESTED_PAIR[0]} with {TESTED_PAIR[1]} is tested. "
            f"Run `make setup`, or pip install pyspark=={TESTED_PAIR[0]} delta-spark=={TESTED_PAIR[1]}"
        )


def _explain(error: Exception) -> str:
    text = str(error)
    if "JAVA_HOME" in text or "JAVA_GATEWAY_EXITED" in text:
        return f"Java did not start; run `make setup`, or set JAVA_HOME to a Java 17 or newer ({text.splitlines()[0]})"
    if "DeltaSparkSessionExtension" in text or "delta" in text.lower():
        return f"Delta's jars are not on Spark's class path; run `make setup` ({text.splitlines()[0]})"
    return f"Spark did not start: {text.splitlines()[0] if text else type(error).__name__}"
