"""`spindle plan`: how large a crawl has to be built for so many pages a month, with the arithmetic. Needs nothing."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence

from spindle import runner, sizing
from spindle.errors import InputError
from spindle.sizing import Line, Wish

_TOLD = {
    field.name: field.default for field in dataclasses.fields(Wish) if field.name not in ("pages_per_month", "delay_s")
}


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="spindle plan", description="Machines, buckets, slices and disk for a crawl.")
    parser.add_argument("--pages-per-month", type=float, required=True, metavar="N", help="as in 1e9")
    for name, usual in _TOLD.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=float, default=usual, metavar="N", help=f"default {usual:g}"
        )
    runner.add_settings(parser)
    return runner.main("plan", parser, _plan, argv)


def _plan(options: argparse.Namespace) -> int:
    given = {name: getattr(options, name) for name in ("pages_per_month", *_TOLD)}
    for name, value in given.items():
        if not 0 < value < 1e18:
            raise InputError(f"--{name.replace('_', '-')} {value:g}: must be above 0")
    if given["busy_share"] > 1:
        raise InputError(f"--busy-share {given['busy_share']:g}: at most 1")
    delay = runner.settings_of(options).politeness.min_delay_s
    for line in sizing.plan(Wish(delay_s=delay, **given)):
        print(f"  {line.what:14} {_shown(line):>28}   = {line.how}")
    return 0


def _shown(line: Line) -> str:
    digits = 0 if line.value >= 100 or line.value == int(line.value) else 1 if line.value >= 1 else 3
    return f"{line.value:,.{digits}f} {line.unit}".rstrip()
