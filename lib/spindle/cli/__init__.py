"""The command `spindle`: names what there is to do and hands over. Each command decides its own arguments."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

#: name -> (module, function, one line of help). Jobs are the files of jobs/, callable by spark-submit as well.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "crawl": (
        "spindle.cli.crawl",
        "main",
        "turn the wheel N times from a seed list, and sum up (--demo: a web of our own)",
    ),
    "inject": ("spindle.jobs.inject", "main", "job: add seed URLs to the URL table"),
    "generate": ("spindle.jobs.generate", "main", "job: list the URLs worth fetching now"),
    "fetch": ("spindle.jobs.fetch", "main", "job: fetch what was listed"),
    "parse": ("spindle.jobs.parse", "main", "job: parse what was fetched"),
    "update": ("spindle.jobs.update", "main", "job: merge a segment into the tables"),
    "dedup": ("spindle.jobs.dedup", "main", "job: find copies among all pages, exact and near"),
    "sql": ("spindle.cli.ask", "sql", "ask the tables a question"),
    "stats": ("spindle.cli.ask", "stats", "the crawl in a few numbers"),
    "url": ("spindle.cli.ask", "url", "everything known of one URL"),
    "get": ("spindle.cli.get", "main", "what a URL answered, from the WARC files"),
    "explain": ("spindle.cli.explain", "main", "which rule decides about a URL, and why it is or is not listed"),
    "prune": ("spindle.cli.prune", "main", "remove URLs by pattern; without --yes only count them"),
    "rekey": ("spindle.cli.rekey", "main", "spell and spread the URLs by today's rules (--dry-run first)"),
    "maintain": (
        "spindle.jobs.maintain",
        "main",
        "job: compact the tables and remove old files (--dry-run first)",
    ),
    "plan": ("spindle.cli.plan", "main", "machines, buckets, slices and disk for so many pages a month"),
    "undo": ("spindle.cli.undo", "main", "take back the last update of a range"),
    "revive": ("spindle.cli.revive", "main", "undo an outage of ours: URLs and hosts that it made dead come back"),
    "check": ("spindle.cli.check", "main", "alarms: are we blocked, throttled, too fast, is anything stuck"),
    "segments": ("spindle.cli.turns", "segments", "turns of the wheel: how far each is, and who holds it"),
    "expire": ("spindle.cli.turns", "expire", "end a segment's lease; its URLs go back without penalty"),
    "hosts": ("spindle.cli.operate", "hosts", "block, pause or limit a host, also while a fetch runs"),
    "pause": ("spindle.cli.operate", "pause", "hold all fetches"),
    "resume": ("spindle.cli.operate", "resume", "let fetches go on"),
    "stop": ("spindle.cli.operate", "stop", "end running fetches gently"),
    "fetch-one": ("spindle.cli.tryout", "fetch_one", "fetch one URL as the crawler would, and show what came"),
    "robots": ("spindle.cli.tryout", "robots", "what a site's robots.txt says of a URL"),
    "parse-one": ("spindle.cli.tryout", "parse_one", "show what is understood of a URL or a file"),
    "demo-web": ("spindle.cli.tryout", "demo_web", "serve the loopback web to learn and test with"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code (docs/operations.md lists them)."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help())
        return 0
    if words[0] == "--version":
        from spindle import __version__

        print(f"spindle {__version__}")
        return 0
    if words[0] not in COMMANDS:
        print(f"spindle: no command {words[0]!r}\n\n{_help()}", file=sys.stderr)
        return 2
    module, function, _ = COMMANDS[words[0]]
    try:
        code: int = getattr(importlib.import_module(module), function)(words[1:])
    except KeyboardInterrupt:  # before the command could begin, or a try-out
        return 130
    return code


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {text}" for name, (_, _, text) in COMMANDS.items()]
    return "\n".join(["usage: spindle COMMAND ...   (spindle COMMAND --help for each)\n", *lines])
