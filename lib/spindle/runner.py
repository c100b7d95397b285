"""What every job shares: arguments, settings, session, warehouse, pins, metrics, exit code. A job adds only its rules.

The same code runs below `spark-submit jobs/X.py`, `spindle X`, Airflow and a test, so none of them can differ.
"""

from __future__ import annotations

import argparse
import datetime
import errno
import importlib
import json
import os
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spindle import config, schema, sqltext, tables, urls
from spindle.config import Settings
from spindle.defaults import default_layer
from spindle.errors import ConfigError, InputError, SpindleError, UrlRejected, WarehouseError
from spindle.segments import Entry, SegmentId
from spindle.session import open_session
from spindle.tables import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

INTERRUPTED = 130  # shells' code for Ctrl-C


@dataclass(slots=True)
class Turn:
    """One job's run on one segment. `now` is pinned when the segment opens, so that a rerun computes the same."""

    warehouse: Warehouse
    segment: SegmentId
    settings: Settings
    now: datetime.datetime
    seed: int
    entry: Entry | None
    sizes: Mapping[str, int] = field(default_factory=dict)  # what the jobs so far have counted: listed, fetches, ...
    wishes: str | None = None  # id of the last wish of operators that generate hears, pinned like `now`; None: of all

    @property
    def month(self) -> str:
        """Partition of `fetches` and `pages`: that of the pinned time, so that a segment lies in one month."""
        return self.now.strftime("%Y-%m")

    @property
    def now_sql(self) -> str:
        """The pinned time as a SQL literal."""
        return sqltext.instant(self.now)

    @property
    def where(self) -> str:
        """The rows of this segment, for `Warehouse.replace`."""
        return f"segment = '{self.segment}'"

    def is_small(self) -> bool:
        """Whether a driver can hold what this segment lists, fetches and parses (but its links), by the ledger."""
        return 0 <= self.sizes.get("fetches", self.sizes.get("listed", -1)) <= self.settings.spark.direct_rows

    def rows(self, table: str) -> DataFrame:
        """This segment's rows of a table. Of a small segment they come without Spark's help: listing a Delta table's
        files costs Spark a query or two each time."""
        where = {"segment": str(self.segment)} | ({"month": self.month} if table in schema.BY_MONTH else {})
        if self.is_small():
            return self.warehouse.local(table, where)
        return self.warehouse.read(table).filter(" AND ".join(f"{name} = '{value}'" for name, value in where.items()))

    def put(self, table: str, frame: DataFrame, *, few: bool | None = None) -> None:
        """Puts this segment's rows of a table in the place of those that an earlier attempt left."""
        where = f"month = '{self.month}' AND {self.where}" if table in schema.BY_MONTH else self.where
        self.warehouse.replace(table, where, frame, few=self.is_small() if few is None else few)


Job = Callable[[Turn], Mapping[str, float]]


def arguments(job: str, description: str, *, segment: bool = True) -> argparse.ArgumentParser:
    """The parser with what all jobs take."""
    parser = argparse.ArgumentParser(prog=f"spindle {job}", description=description)
    parser.add_argument("--warehouse", required=True, metavar="URI", help="local path or s3://bucket/prefix")
    if segment:
        parser.add_argument(
            "--segment", required=True, metavar="ID", help="<run>.<i>of<n>; a bare run id is slice 1of1"
        )
    add_settings(parser)
    return parser


def add_warehouse(parser: argparse.ArgumentParser) -> None:
    """For commands that ask tables: the warehouse may stand in the environment."""
    here = os.environ.get("SPINDLE_WAREHOUSE")
    parser.add_argument("--warehouse", metavar="URI", default=here, required=here is None, help="or SPINDLE_WAREHOUSE")


def add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", action="append", default=[], metavar="FILE", help="TOML over the defaults; repeatable"
    )
    parser.add_argument("--set", action="append", default=[], metavar="S.K=V", help="one setting; repeatable")
    parser.add_argument("--now", metavar="TIME", help="ISO 8601 time to take as the present (default: the clock)")


def settings_of(options: argparse.Namespace, over: Sequence[config.Layer] = ()) -> Settings:
    """Defaults, then `over`, then each --config, then each --set.

    Raises:
        ConfigError: see `config.build`; also a file that cannot be read.
    """
    layers = [default_layer(), *over]
    for name in options.config:
        try:
            layers.append(config.parse_toml(Path(name).read_text(encoding="utf-8"), name))
        except OSError as error:
            raise ConfigError(f"--config {name}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise ConfigError(f"--config {name}: not UTF-8 text") from None
    return config.build([*layers, *map(config.parse_set, options.set)])


def check_rules(settings: Settings) -> None:
    """Reads the rules that only their users understand, so that no segment is pinned under one that nobody can read.

    Raises:
        ConfigError: a rule of the scope, a network or a line of the hosts file makes no sense, or there is no contact.
    """
    from spindle.fetcher.addresses import AddressRule
    from spindle.fetcher.resolver import read_hosts_file
    from spindle.scope import Scope

    Scope(settings.scope)
    AddressRule(settings.network.allow_addresses, settings.network.deny_addresses)
    read_hosts_file(settings.network.hosts_file)
    if not settings.agent.contact:
        raise ConfigError(
            "agent.contact is empty: site owners must be able to reach you; "
            "--set agent.contact=https://example.org/crawler or a mail address"
        )


def now_of(options: argparse.Namespace) -> datetime.datetime:
    """--now, or the clock, in UTC."""
    if options.now is None:
        return datetime.datetime.now(datetime.UTC)
    try:
        told = utc(options.now)
    except (ValueError, OverflowError):
        raise InputError(f"--now {options.now!r}: expected ISO 8601, for example 2026-11-30T12:00:00Z") from None
    if not 1970 <= told.year < 3000:
        raise InputError(f"--now {options.now!r}: a year from 1970 to 2999")
    return told


def utc(text: str) -> datetime.datetime:
    """An ISO 8601 time; one without a zone is UTC.

    Raises:
        ValueError, OverflowError: it is none.
    """
    told = datetime.datetime.fromisoformat(text)
    return told.replace(tzinfo=datetime.UTC) if told.tzinfo is None else told.astimezone(datetime.UTC)


def url_of(text: str, normalize: Callable[[str], str] = urls.normalize) -> str:
    """A URL from the command line, normalised.

    Raises:
        InputError: it is refused; says why.
    """
    try:
        return normalize(text)
    except UrlRejected as error:
        raise InputError(f"{text}: not a URL that Spindle takes ({error})") from None


def main(
    job: str, parser: argparse.ArgumentParser, body: Callable[[argparse.Namespace], int], argv: Sequence[str] | None
) -> int:
    """Runs `body` and turns what it raises into a sentence and an exit code."""
    try:
        return body(parser.parse_args(argv))
    except (Exception, KeyboardInterrupt) as error:
        if (told := sentence(error)) is None:
            raise
        print(f"spindle {job}: {told[0]}", file=sys.stderr)
        return told[1]


def sentence(error: BaseException) -> tuple[str, int] | None:
    """What a user is told, and the exit code; None where the program is broken and the stack trace is what helps."""
    if interrupted(error):
        return "interrupted; nothing is lost, run the same command again to go on", INTERRUPTED
    if known := error if isinstance(error, SpindleError) else of_worker(error):
        return str(known), known.exit_code
    told = explain(error)
    return None if told is None else (told, WarehouseError.exit_code)


def interrupted(error: BaseException) -> bool:
    """Whether Ctrl-C is at the root: what was under way may fail in a way of its own when it is cut off."""
    chain: BaseException | None = error
    while chain is not None and not isinstance(chain, KeyboardInterrupt):
        chain = chain.__cause__ or chain.__context__
    return chain is not None


def of_worker(error: BaseException) -> SpindleError | None:
    """The user's mistake that a Python worker of Spark ran into: here it arrives as the text of its stack trace."""
    for module, name, text in reversed(re.findall(r"^(spindle[\w.]*)\.(\w+): (.+)$", str(error), re.MULTILINE)):
        with suppress(ImportError):
            kind = getattr(importlib.import_module(module), name, None)
            if isinstance(kind, type) and issubclass(kind, SpindleError):
                return kind(text)
    return None


def explain(error: BaseException) -> str | None:
    """The sentence for a failure of the place rather than the program: a full disk, or no permission."""
    text = str(error)
    if getattr(error, "errno", None) == errno.ENOSPC or "No space left on device" in text:
        return "the disk is full; free some space and run the same command again, nothing is lost"
    if isinstance(error, PermissionError) or "Permission denied" in text:
        line = next((part for part in text.splitlines() if "ermission denied" in part), text)
        return f"no permission: {line.strip()}"
    return None


def run_job(options: argparse.Namespace, job: str, body: Job) -> int:
    """A job on an existing segment, from the command line."""
    settings, segment = settings_of(options), SegmentId.parse(options.segment)
    tables.read_marker(options.warehouse)  # before a JVM is started for nothing
    spark = open_session(f"spindle {job} {options.segment}", settings.spark)
    counts = turn_of(tables.open_warehouse(spark, options.warehouse), segment, job, body)
    print(summary_line(job, options.segment, counts))
    return 0


def turn_of(warehouse: Warehouse, segment: SegmentId, job: str, body: Job) -> Mapping[str, float]:
    """Runs a job on a segment under the pins of its first state, then writes its metrics."""
    entry = warehouse.ledger.current(str(segment))
    if entry is None:
        from spindle.segments import State, advance

        advance(None, str(segment), State.FETCHED)  # raises: it does not exist
    pins = warehouse.ledger.pins(str(segment))
    turn = pinned_turn(warehouse, segment, pins, entry)
    turn.sizes = warehouse.ledger.sizes(str(segment))
    return measured(turn, job, body)


def pinned_turn(warehouse: Warehouse, segment: SegmentId, pins: Mapping[str, Any], entry: Entry | None) -> Turn:
    settings = config.build([default_layer(), ("pinned configuration", pins["settings"])])
    now, wishes = datetime.datetime.fromisoformat(pins["now"]), pins.get("wishes")
    return Turn(warehouse, segment, settings, now, pins["seed"], entry, wishes=wishes)


@contextmanager
def kept(*, few: bool = False) -> Iterator[Callable[[DataFrame], DataFrame]]:
    """Frames of the batch that are used more than once: computed once, let go at the end. `few` says that the driver
    can hold them: a frame of plain rows costs a planner nothing, where each reader of a cached one plans it anew."""
    frames: list[DataFrame] = []

    def keep(frame: DataFrame) -> DataFrame:
        if few:
            return tables.frame_of(frame.sparkSession, frame.toArrow())
        frames.append(frame.persist())
        return frames[-1]

    try:
        yield keep
    finally:
        for frame in frames:
            frame.unpersist()


def measured(turn: Turn, job: str, body: Job) -> Mapping[str, float]:
    """Runs `body`, and appends its counts and its wall and driver CPU seconds to `metrics`."""
    wall, cpu = time.monotonic(), time.process_time()
    counts = dict(body(turn))
    counts |= {"wall_s": round(time.monotonic() - wall, 3), "driver_cpu_s": round(time.process_time() - cpu, 3)}
    write_metrics(turn.warehouse, str(turn.segment), job, counts)
    return counts


def write_metrics(warehouse: Warehouse, segment: str, job: str, counts: Mapping[str, float]) -> None:
    told = {"segment": segment, "job": job, "attempt": uuid.uuid4().hex[:12], "at": datetime.datetime.now(datetime.UTC)}
    rows = [told | {"name": name, "value": float(value)} for name, value in sorted(counts.items())]
    warehouse.record("metrics", rows)


def summary_line(job: str, segment: str, counts: Mapping[str, float]) -> str:
    """One line a job: `generate 20261130.1of1: listed 600 ...`."""
    shown = ", ".join(f"{name} {value:.15g}" for name, value in counts.items() if _is_shown(name, value))
    return f"{job} {segment}: {shown or 'nothing to do'}"


def _is_shown(name: str, value: float) -> bool:
    """Not what is nothing, nor what has a line for each task; `metrics` has all of it."""
    return (bool(value) or name == "listed") and ".task_" not in name


def pins(now: datetime.datetime, settings: Settings) -> dict[str, Any]:
    """What a segment's first state pins: time, seed of chance, configuration and its digest."""
    seed = int.from_bytes(os.urandom(4), "big")
    values = json.loads(settings.to_json())
    return {"now": now.isoformat(), "seed": seed, "settings": values, "digest": settings.digest()}
