"""`python -m spindle.demo serve | truth | seeds`: the demo web without the rest of Spindle."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from spindle.demo import truth
from spindle.demo.child import run
from spindle.demo.world import build_world
from spindle.errors import SpindleError


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit code."""
    options = _parser().parse_args(argv)
    try:
        return _COMMANDS[options.command](options)
    except (SpindleError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code if isinstance(error, SpindleError) else 2


def _serve(options: argparse.Namespace) -> int:
    run(
        options.seed,
        options.hosts,
        pages=options.pages,
        farm=options.farm,
        log_path=options.log,
        hosts_file=options.hosts_file,
        base_address=options.base_address,
        port=options.port,
        tick_s=options.tick_s,
        parent=options.parent,
    )
    return 0


def _truth(options: argparse.Namespace) -> int:
    world = build_world(options.seed, options.hosts, options.pages, options.farm)
    json.dump(truth.as_json(world, options.tick), sys.stdout, indent=1)
    print()
    return 0


def _seeds(options: argparse.Namespace) -> int:
    print("\n".join(build_world(options.seed, options.hosts, options.pages, options.farm).seeds))
    return 0


_COMMANDS = {"serve": _serve, "truth": _truth, "seeds": _seeds}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spindle.demo", description="A web of many hosts on loopback, made from a seed."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, about in (("serve", "run it"), ("truth", "what is true of it, as JSON"), ("seeds", "URLs to start from")):
        command = commands.add_parser(name, help=about)
        command.add_argument("--seed", type=int, default=1)
        command.add_argument("--hosts", type=int, default=200)
        command.add_argument("--pages", type=_span, default=(10, 60), help="fewest-most pages a host")
        command.add_argument("--farm", action="store_true", help="also a wildcard domain of endless hosts")
        if name == "serve":
            _add_serving(command)
        if name == "truth":
            command.add_argument("--tick", type=int, default=0)
    return parser


def _add_serving(command: argparse.ArgumentParser) -> None:
    command.add_argument("--log", type=Path, default=Path("demo-requests.jsonl"))
    command.add_argument("--hosts-file", type=Path, default=Path("demo.hosts"))
    command.add_argument("--base-address", default="127.1.0.0")
    command.add_argument("--port", type=int, default=0, help="of every host; 0 takes a free one")
    command.add_argument("--tick-s", type=float, default=20.0, help="seconds of a tick; 0: only POST /advance moves it")
    command.add_argument("--parent", type=int, default=None, help="stop when this process is no longer the parent")


def _span(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    return int(low), int(high or low)


if __name__ == "__main__":
    sys.exit(main())
