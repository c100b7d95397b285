"""The operator's word from the command line: hosts blocked, paused or limited, everything paused, turns stopped.

Each command leaves a wish in the warehouse's inbox, with who and when; fetches that run hear it within seconds, later
ones from their start. No JVM is started.
"""

from __future__ import annotations

import argparse
import datetime
import getpass
import os
import socket
from collections.abc import Sequence

from spindle import inbox, runner, tables, urls
from spindle.errors import InputError, UrlRejected
from spindle.ledger import Ledger
from spindle.segments import CLOSED, SegmentId, State, latest
from spindle.store import Store, open_store
from spindle.wishes import HostWord, What, Word, seconds_of, standing

_HOST_WISHES = [What.BLOCK, What.UNBLOCK, What.PAUSE, What.RESUME, What.LIMIT, What.UNLIMIT]
_STOPPABLE = (State.OPENED, State.GENERATED)  # it fetches, or will


def hosts(argv: Sequence[str]) -> int:
    parser = _parser("hosts", "Block, pause or limit a host, or take that back; without a wish: what stands.")
    parser.add_argument("wish", nargs="?", choices=[str(what) for what in _HOST_WISHES])
    parser.add_argument("host", nargs="?", metavar="HOST", help="this host only, not those below it")
    meant = "for limit: between two requests, in place of politeness.min_delay_s and the k-term"
    parser.add_argument("seconds", nargs="?", metavar="SECONDS", help=f"{meant}; a Crawl-delay still holds")
    return runner.main("hosts", parser, _hosts, argv)


def _hosts(options: argparse.Namespace) -> int:
    if options.wish is None:
        _show(standing(inbox.read(_store(options))))
        return 0
    what = What(options.wish)
    if options.host is None:
        raise InputError(f"hosts {what}: name the host, as in `spindle hosts {what} www.example.org`")
    if (options.seconds is None) == (what is What.LIMIT):
        raise InputError(f"hosts {what}: " + ("add the seconds" if what is What.LIMIT else "takes no seconds"))
    _leave(options, what, host=_host_of(options.host), value=_seconds(options.seconds))
    return 0


def pause(argv: Sequence[str]) -> int:
    return runner.main("pause", _parser("pause", "Hold all fetches until `spindle resume`."), _pause, argv)


def _pause(options: argparse.Namespace) -> int:
    _leave(options, What.PAUSE)
    return 0


def resume(argv: Sequence[str]) -> int:
    return runner.main("resume", _parser("resume", "Let fetches go on after `spindle pause`."), _resume, argv)


def _resume(options: argparse.Namespace) -> int:
    _leave(options, What.RESUME)
    return 0


def stop(argv: Sequence[str]) -> int:
    parser = _parser("stop", "End the fetch of running turns gently: the rest of their lists is not_reached.")
    parser.add_argument("segments", nargs="*", metavar="SEGMENT", help="these turns (default: all that are fetching)")
    return runner.main("stop", parser, _stop, argv)


def _stop(options: argparse.Namespace) -> int:
    ledger = Ledger(_store(options), tables.read_marker(options.warehouse)["buckets"])
    states = {name: entry.state for name, entry in latest(ledger.entries()).items()}
    named = [str(SegmentId.parse(text)) for text in options.segments]
    for name in named:
        if states.get(name, State.EXPIRED) in CLOSED:
            raise InputError(f"stop {name}: no such turn is open; open are {_open_ones(states) or 'none'}")
    chosen = named or [name for name, state in states.items() if state in _STOPPABLE]
    for name in chosen:
        _leave(options, What.STOP, value=name)
    if not chosen:
        print("stop: no turn is fetching; nothing to do")
    return 0


def _open_ones(states: dict[str, State]) -> str:
    return ", ".join(name for name, state in states.items() if state not in CLOSED)


def _leave(options: argparse.Namespace, what: What, host: str | None = None, value: str | None = None) -> None:
    at = datetime.datetime.now(datetime.UTC).isoformat()
    wish = inbox.write(_store(options), what, at=at, who=options.who, host=host, value=value)
    told = " ".join(text for text in (what, host, value) if text)
    print(f"{told}: left as wish {wish.id} by {wish.who}; running fetches hear it within seconds")


def _store(options: argparse.Namespace) -> Store:
    tables.read_marker(options.warehouse)
    return open_store(options.warehouse)


def _host_of(text: str) -> str:
    try:
        normal = urls.normalize(f"http://{text}/")
    except UrlRejected as error:
        raise InputError(f"{text}: not a host name ({error})") from None
    if normal != f"http://{urls.host_of(normal)}/":
        raise InputError(f"{text}: not a host name; the name alone, without scheme, port or path")
    return urls.host_of(normal)


def _seconds(text: str | None) -> str | None:
    try:
        return None if text is None else str(seconds_of(text))
    except ValueError:
        raise InputError(f"limit {text}: seconds from 0 to 86400") from None


def _show(word: Word) -> None:
    print("all fetches are paused" if word.pause else "no pause")
    for host, one in sorted(word.hosts.items()):
        print(f"  {host:40} {_of_host(one)}")


def _of_host(word: HostWord) -> str:
    limit = f"limit {word.limit_delay_s:g} s" if word.limited and word.limit_delay_s is not None else ""
    said = [text for text, on in (("blocked", word.block), ("paused", word.pause), (limit, limit)) if on]
    return ", ".join(said) or "as the table has it"


def _parser(name: str, description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"spindle {name}", description=description)
    runner.add_warehouse(parser)
    me = f"{_user()}@{socket.gethostname()}"
    parser.add_argument("--who", default=me, help=f"whose wish it is, for the log (default {me})")
    return parser


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return str(os.getuid())
