"""What a fetched page costs: CPU seconds of the client per 1,000 pages, against the bare loop that only reads bodies.

    python bench/fetch.py [--pages 20000] [--hosts 2000] [--open 100] [--rounds 3] [--gzip] [--profile] [--scrapy PY]
    python bench/fetch.py --memory --pages 100000 --hosts 10000 --open 500 --bytes 100000 --window 60

A server process on loopback answers with 1,000 distinct pages of 20 KB. Client processes run in turn: `bare` (aiohttp
in its cheapest setting, research/fetch.md section 1) and `task` (`run_task`: politeness with delay 0, robots.txt of
every host, SHA-256, gzip WARC with request records, journal). The least of the rounds counts; a ratio is only worth
something within one run, since neighbours on the machine move both. `--scrapy` names an interpreter that has Scrapy
(python -m venv v && v/bin/pip install scrapy): it then runs in the same turns, with robots.txt, parsing and storing
nothing. `--memory` lets one task run for `--window` seconds and prints its memory, listing included: the peak, and how
it went over time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RIG = Path(__file__).with_name("rig")
GOALS = {"bare": "goal: the task at most 2.3 times it", "scrapy": "goal: at least 7.5 times the task"}


async def bare(args: argparse.Namespace) -> int:
    """aiohttp, cheapest setting: reads each body and does nothing with it."""
    import aiohttp
    from yarl import URL

    class Here(aiohttp.abc.AbstractResolver):
        async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[Any]:
            return [{"hostname": host, "host": "127.0.0.1", "port": port, "family": 2, "proto": 0, "flags": 4}]

        async def close(self) -> None: ...

    read, each = 0, args.pages // args.hosts
    hosts = iter(range(args.hosts))

    async def work(session: aiohttp.ClientSession) -> None:
        nonlocal read
        for host in hosts:
            for page in range(each):
                url = URL(f"http://h{host}.test:{args.port}/p{host * each + page}", encoded=True)
                async with session.get(url, allow_redirects=False) as response:
                    read += len(await response.read())

    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, resolver=Here(), keepalive_timeout=15, use_dns_cache=False),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
        auto_decompress=False,
    ) as session:
        await asyncio.gather(*(work(session) for _ in range(args.open)))
    return read


def task(args: argparse.Namespace) -> int:
    """The whole fetch task."""
    from spindle import config, urls
    from spindle.defaults import default_layer
    from spindle.fetcher import Listing, run_task

    folder = Path(tempfile.mkdtemp())
    (folder / "hosts").write_text(f"127.0.0.1:{args.port} *.test\n")
    layer = {
        "agent": {"contact": "bench"},
        "network": {"hosts_file": str(folder / "hosts"), "hosts_file_only": True, "allow_addresses": ["127.0.0.0/8"]},
        "politeness": {"min_delay_s": 0.0, "duration_factor": 0.0, "address_max_open": -1},
        "fetch": {"max_open": args.open, "window_s": args.window},
    }
    settings, each = config.build([default_layer(), ("bench", layer)]), args.pages // args.hosts

    def rows() -> Iterator[dict[str, Any]]:
        for number in range(args.hosts * each):
            host = f"h{number // each}.test"
            url = f"http://{host}/p{number}"
            yield {"url_key": urls.url_key(url), "url": url, "host": host, "bucket": 0, "depth": 1}

    try:
        if args.memory:
            watch_memory()
        start = _cpu()
        made = run_task(Listing(rows()), settings, str(folder), "bench", 0)
        args.spent = _cpu() - start
        assert made["counts"]["ok"] == args.hosts * each or args.memory, made
        print(made["counts"], file=sys.stderr) if args.memory else None
        return sum(path.stat().st_size for path in folder.rglob("*.warc.gz"))
    finally:
        shutil.rmtree(folder)


def watch_memory() -> None:
    """Prints the resident memory now and then while the task runs: flat, or growing?"""
    import threading

    def look() -> None:
        began = time.monotonic()
        while True:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            mib = pages * resource.getpagesize() >> 20
            print(f"  after {time.monotonic() - began:4.0f} s: {mib} MiB", file=sys.stderr, flush=True)
            time.sleep(10)

    threading.Thread(target=look, daemon=True).start()


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


#: Of a profile's line (file and function) the first that occurs names the part.
PARTS = {
    "the kernel: send, connect, receive, poll, files": ("_socket.socket", "select.epoll", "posix.", "_io."),
    "deflate and CRC (isal)": ("isal",),
    "SHA-256": ("_hashlib",),
    "aiohttp, yarl": ("/aiohttp/", "/yarl/", "/multidict/"),
    "asyncio": ("/asyncio/", "_asyncio", "_contextvars"),
    "politeness": ("spindle/politeness",),
    "WARC records": ("spindle/warc", "fetcher/archive", "mmh3"),
    "rows and journal": ("fetcher/rows", "fetcher/journal", "fetcher/tally", "msgspec"),
    "client and wire": ("fetcher/client", "fetcher/wire", "fetcher/answer"),
    "course, visits, books, blame, robots": ("spindle/fetcher", "spindle/robots", "spindle/urls"),
}


def _shares(stats: Any) -> list[tuple[float, str]]:
    """Own time by part, largest first; built-ins that serve everywhere (len, max, join) are not told apart."""
    spent: dict[str, float] = {}
    for (file, _, function), (_, _, own, _, _) in stats.stats.items():
        name = f"{file} {function}"
        part = next(
            (part for part, marks in PARTS.items() if any(mark in name for mark in marks)), "built-ins, the rest"
        )
        spent[part] = spent.get(part, 0.0) + own
    return sorted(((own / sum(spent.values()), part) for part, own in spent.items()), reverse=True)


def client(args: argparse.Namespace) -> None:
    """One measured client; prints CPU seconds, wall seconds, bytes and peak memory."""
    import gc

    import aiohttp  # noqa: F401 - its import is not part of a page

    import spindle.fetcher  # noqa: F401

    began, start = time.perf_counter(), _cpu()
    args.spent = None
    if args.client == "bare":
        gc.freeze()
        gc.set_threshold(50_000, 50, 50)
        size = asyncio.run(bare(args))
    elif args.profile:
        import cProfile
        import pstats

        profile = cProfile.Profile()
        size = profile.runcall(task, args)
        stats = pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime")
        stats.print_stats(45)
        print("\n".join(f"{share:6.1%}  {part}" for share, part in _shares(stats)), file=sys.stderr)
    else:
        size = task(args)
    spent = args.spent if args.spent is not None else _cpu() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"cpu_s": spent, "wall_s": time.perf_counter() - began, "bytes": size, "rss_mib": peak}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=20_000)
    parser.add_argument("--hosts", type=int, default=2_000)
    parser.add_argument("--open", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gzip", action="store_true", help="the server sends gzip")
    parser.add_argument("--profile", action="store_true", help="one profiled run of the task instead")
    parser.add_argument("--bytes", type=int, default=20_000, help="of a page")
    parser.add_argument("--window", type=float, default=3600.0, help="seconds of a task")
    parser.add_argument("--memory", action="store_true", help="one run of the task, for its peak memory")
    parser.add_argument("--scrapy", metavar="PYTHON", help="an interpreter that has Scrapy: measure it, too")
    parser.add_argument("--client", choices=["bare", "task"], help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.client:
        client(args)
    else:
        measure(args)


def measure(args: argparse.Namespace) -> None:
    flags = ["--bytes", str(args.bytes), *(["--gzip"] if args.gzip else [])]
    server = subprocess.Popen(
        [sys.executable, str(RIG / "server.py"), *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert server.stdout is not None and server.stdin is not None
    args.port = int(server.stdout.readline())
    alone = args.profile or args.memory
    kinds = ["task"] if alone else ["bare", "task", *(["scrapy"] if args.scrapy else [])]
    least: dict[str, dict[str, float]] = {}
    try:
        for _ in range(1 if alone else args.rounds):
            for kind in kinds:
                told = subprocess.run(command(kind, args), check=True, stdout=subprocess.PIPE)
                found = json.loads(told.stdout)
                if kind not in least or found["cpu_s"] < least[kind]["cpu_s"]:
                    least[kind] = found
    finally:
        server.stdin.close()
        server.wait()
    report(least, args.pages)


def command(kind: str, args: argparse.Namespace) -> list[str]:
    if kind == "scrapy":
        told = {name: getattr(args, name) for name in ("port", "pages", "hosts", "open")}
        return [args.scrapy, str(RIG / "scrapy_client.py"), json.dumps(told)]
    sizes = [f"--{name}={getattr(args, name)}" for name in ("port", "pages", "hosts", "open", "window")]
    flags = [f"--{name}" for name in ("memory", "profile") if getattr(args, name)]
    return [sys.executable, __file__, "--client", kind, *sizes, *flags]


def report(least: dict[str, dict[str, float]], pages: int) -> None:
    for kind, found in least.items():
        cpu, rate = found["cpu_s"] / pages * 1000, pages / found["wall_s"]
        print(f"{kind:6} {cpu:.3f} CPU-s per 1,000 pages, {rate:,.0f} pages/s, {found['rss_mib']:.0f} MiB peak")
    for other in least.keys() - {"task"}:
        more, less = ("task", other) if other == "bare" else (other, "task")
        print(f"{more} / {less}: {least[more]['cpu_s'] / least[less]['cpu_s']:.2f} ({GOALS[other]})")


if __name__ == "__main__":
    main()
