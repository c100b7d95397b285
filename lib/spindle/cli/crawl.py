"""`spindle crawl`: the whole wheel in one process and one session. It drives the same jobs as Airflow does, in order.

With --demo it starts the loopback web, crawls its seeds under demo settings, and judges politeness from the server's
side. Decides nothing of the crawl itself.
"""

from __future__ import annotations

import argparse
import datetime
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spindle import runner
from spindle.cli.summary import Crawled, show
from spindle.config import Layer, Settings
from spindle.errors import InputError
from spindle.ledger import is_gone
from spindle.segments import CLOSED, Entry, SegmentId, State, latest

#: How the runs of this driver are named; it takes up no others.
OWN_RUN = "crawl-"

#: For a web of our own on loopback, where nobody minds: short delays, a short window, quick recrawls so that three
#: turns show 304s and changes.
DEMO: dict[str, dict[str, Any]] = {
    "agent": {"contact": "https://localhost/demo"},
    "generate": {"list_size": 900, "host_budget": 30},
    "politeness": {"min_delay_s": 0.2, "duration_factor": 1.0},
    "fetch": {"window_s": 14.0, "tail_s": 3.0, "seal_interval_s": 5.0, "total_timeout_s": 8.0, "read_timeout_s": 4.0},
    "network": {"hosts_file_only": True, "allow_addresses": ["127.0.0.0/8"]},
    "recrawl": {"initial_interval_s": 20, "min_interval_s": 5, "retry_s": 10},
    "warehouse": {"buckets": 4},
}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="spindle crawl", description="Turn the wheel N times from a seed list.")
    parser.add_argument("seeds", nargs="*", metavar="FILE", help="seed lists; - is standard input")
    parser.add_argument("--warehouse", required=True, metavar="URI", help="where the tables are, or will be made")
    parser.add_argument("--turns", type=int, default=3, metavar="N", help="segments to run (default 3)")
    parser.add_argument("--until-dry", action="store_true", help="stop early, after a turn that found nothing due")
    parser.add_argument("--demo", action="store_true", help="crawl the loopback demo web instead of a seed list")
    parser.add_argument("--demo-hosts", type=int, default=200, metavar="N", help="size of the demo web")
    runner.add_settings(parser)
    return runner.main("crawl", parser, _body, argv)


def _body(options: argparse.Namespace) -> int:
    if options.turns < 1:
        raise InputError(f"--turns {options.turns}: at least 1")
    if options.demo == bool(options.seeds):
        raise InputError("give seed lists, or --demo, not both" if options.demo else "give a seed list, or --demo")
    if not options.demo:
        settings = runner.settings_of(options)
        runner.check_rules(settings)
        lines, lists = _inject_job().read_lists(options.seeds)
        show(turn_wheel(options, settings, lines, lists))
        return 0
    with demo_web(options) as (web, layer):
        settings = runner.settings_of(options, over=[("demo", DEMO), layer])
        crawled = turn_wheel(options, settings, web.seeds, between_turns=web.advance)
        crawled.log_path = web.log_path
        show(crawled)
    return 0


@contextmanager
def demo_web(options: argparse.Namespace) -> Iterator[tuple[Any, Layer]]:
    """The demo web in a child process, and the settings that lead to it."""
    from spindle.demo.child import start_in_process

    folder = Path(options.warehouse + "-web") if "://" not in options.warehouse else Path("var/demo-web")
    with start_in_process(folder.absolute(), hosts=options.demo_hosts) as web:
        print(f"demo web: {options.demo_hosts} hosts on loopback, its log in {web.log_path}")
        yield web, ("demo web", {"network": {"hosts_file": str(web.hosts_file)}})


def turn_wheel(
    options: argparse.Namespace,
    settings: Settings,
    lines: Sequence[str],
    lists: Sequence[tuple[str, int]] = (),
    between_turns: Any = None,
) -> Crawled:
    """Injects, then runs the turns one after the other, each a segment of its own; first finishes what an interrupted
    crawl has left."""
    from spindle.jobs import generate

    inject = _inject_job()
    runner.now_of(options)
    runner.check_rules(settings)
    warehouse = inject.ensure_warehouse(options, settings)
    crawled = Crawled(warehouse, settings, time.monotonic())
    for entry in left_behind(warehouse.ledger.entries(), time.time()):
        _finish(crawled, entry)
    run = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S")
    counts, faults = inject.run(warehouse, lines, settings, runner.now_of(options), SegmentId(f"inject-{run}"))
    inject.tell(faults, lists)
    print(runner.summary_line("inject", run, {key: counts[key] for key in ("seeds", "inserted", "bad_lines")}))
    for number in range(1, options.turns + 1):
        segment = SegmentId(f"{OWN_RUN}{run}-{number}")
        listed = _turn(crawled, (number, options.turns), generate.open_turn(warehouse, segment, settings, options))
        if between_turns is not None:
            between_turns()
        if options.until_dry and not listed:
            break
    return crawled


def _turn(crawled: Crawled, place: tuple[int, int], turn: runner.Turn) -> float:
    """One turn of the wheel, or what is left of it; returns how many URLs were listed."""
    from spindle.jobs import dedup, fetch, generate, parse, update

    name, listed = str(turn.segment), 0.0
    if turn.entry is not None and turn.entry.state is State.OPENED:
        counts = runner.measured(turn, "generate", generate.run)
        listed = counts["listed"]
        crawled.add(*place, name, "generate", counts)
    for job, run in (("fetch", fetch.run), ("parse", parse.run)):
        crawled.add(*place, name, job, runner.turn_of(crawled.warehouse, turn.segment, job, run))
    crawled.add(*place, name, "dedup", dedup.measured(crawled.warehouse, crawled.settings))  # so that update folds it
    crawled.add(*place, name, "update", runner.turn_of(crawled.warehouse, turn.segment, "update", update.run))
    return listed


def left_behind(entries: Sequence[Entry], now: float) -> list[Entry]:
    """Segments of crawls (and leases of injects) whose process ended before they were closed, oldest first. Those of
    other drivers are left alone: between two tasks of Airflow no process lives either."""
    lapsed = (entry for entry in latest(entries).values() if entry.state not in CLOSED and entry.lease_until > now)
    return [entry for entry in lapsed if entry.segment.startswith((OWN_RUN, "inject-")) and is_gone(entry.holder)]


def _finish(crawled: Crawled, entry: Entry) -> None:
    warehouse, segment = crawled.warehouse, SegmentId.parse(entry.segment)
    if not entry.segment.startswith(OWN_RUN):
        warehouse.ledger.move(entry.segment, State.EXPIRED, time.time())  # only a lease; its seeds come again
        return
    print(f"going on with segment {segment}, which an interrupted crawl left {entry.state}", flush=True)
    _turn(crawled, (0, 0), runner.pinned_turn(warehouse, segment, warehouse.ledger.pins(entry.segment), entry))


def _inject_job() -> Any:
    from spindle.jobs import inject

    return inject
