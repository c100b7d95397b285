"""`spindle check`: the alarms of `checks`, asked of a warehouse; exit code 1 where one rings. No JVM is started."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from typing import Any

from spindle import checks, direct, runner, tables
from spindle.checks import QUESTIONS, Verdict
from spindle.errors import InputError
from spindle.ledger import Ledger
from spindle.store import open_store

OF_LEDGER = ("leases", "stale")
NAMES = tuple(question.name for question in QUESTIONS) + OF_LEDGER


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="spindle check", description="Alarms; exit code 1 where one rings.")
    runner.add_warehouse(parser)
    parser.add_argument("names", nargs="*", metavar="CHECK", help=f"only these of {', '.join(NAMES)}")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    runner.add_settings(parser)
    return runner.main("check", parser, _check, argv)


def _check(options: argparse.Namespace) -> int:
    if unknown := [name for name in options.names if name not in NAMES]:
        raise InputError(f"check {unknown[0]}: no such check; there are {', '.join(NAMES)}")
    verdicts = list(_verdicts(options, options.names or NAMES))
    for verdict in verdicts:
        print(_json(verdict) if options.json else "\n".join(_lines(verdict)))
    return 1 if any(verdict.alarms for verdict in verdicts) else 0


def _verdicts(options: argparse.Namespace, names: Sequence[str]) -> Iterator[Verdict]:
    settings, now = runner.settings_of(options).check, runner.now_of(options)
    buckets = int(tables.read_marker(options.warehouse)["buckets"])
    entries = Ledger(open_store(options.warehouse), buckets).entries()
    limits = checks.limits_of(settings, now, entries)
    for question in QUESTIONS:
        if question.name in names:
            rows = direct.query(_locations(options.warehouse, question.tables), question.query.format(**limits))
            yield checks.verdict_of(question, rows, limits)
    if "leases" in names:
        yield checks.leaks(entries, now.timestamp())
    if "stale" in names:
        yield checks.stale_ranges(entries, buckets, now.timestamp(), settings)


def _locations(warehouse: str, names: Sequence[str]) -> dict[str, str]:
    return {name: f"{tables.hadoop_uri(warehouse)}/{name}" for name in names}


def _lines(verdict: Verdict) -> list[str]:
    told = [f"ALARM {verdict.name}: {text}" for text in verdict.alarms] or [f"ok    {verdict.name}: {verdict.asks}"]
    return told + ([f"      {verdict.name}: and {verdict.more} more"] if verdict.more else [])


def _json(verdict: Verdict) -> str:
    told: dict[str, Any] = {name: getattr(verdict, name) for name in ("name", "asks", "more")}
    return json.dumps(told | {"alarms": list(verdict.alarms)}, sort_keys=True)
