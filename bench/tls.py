"""TLS: how many hand-shakes a task makes, and what its connections weigh. A hand-shake costs eight pages.

    python bench/tls.py [--hosts 2000] [--each 5] [--delay 1.0]

Every host is spoken to over TLS, with its certificate checked (an authority of our own, made by openssl). Two tasks, in
processes of their own: without a delay, and with one, where all hosts wait for their next turn with a connection kept.
The server counts: a hand-shake a host is the least there can be, robots.txt and all pages on one connection. The
keep-alive of the settings is long here, so that a slow machine's gaps do not end connections: `--keep` to change it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SERVER = Path(__file__).parent / "rig" / "server.py"


def task(args: argparse.Namespace) -> None:
    """One task in this process; prints its CPU seconds and peak memory."""
    from spindle import config, urls
    from spindle.defaults import default_layer
    from spindle.fetcher import Listing, run_task

    folder = Path(tempfile.mkdtemp())
    (folder / "hosts").write_text(f"127.0.0.1:{args.port} *.web.test\n")
    layer = {
        "agent": {"contact": "bench"},
        "network": {"hosts_file": str(folder / "hosts"), "hosts_file_only": True, "allow_addresses": ["127.0.0.0/8"]},
        "politeness": {"min_delay_s": args.delay, "duration_factor": 0.0, "address_max_open": -1},
        "fetch": {"keep_dead_connections_s": args.keep},
    }
    pages = [f"https://h{host}.web.test/p{page}" for page in range(args.each) for host in range(args.hosts)]
    rows: list[dict[str, Any]] = [
        {"url_key": urls.url_key(url), "url": url, "host": urls.host_of(url), "bucket": 0, "depth": 1} for url in pages
    ]
    began = time.monotonic()
    made = run_task(Listing(rows), config.build([default_layer(), ("bench", layer)]), str(folder), "bench", 0)
    shutil.rmtree(folder)
    used = resource.getrusage(resource.RUSAGE_SELF)
    told = {"cpu_s": used.ru_utime + used.ru_stime, "rss_mib": used.ru_maxrss / 1024, "counts": made["counts"]}
    print(json.dumps(told | {"wall_s": time.monotonic() - began}))


def certificate(folder: Path) -> tuple[str, str]:
    """A certificate for all names of the bench, its own authority, and its key."""
    chain, key = folder / "cert.pem", folder / "key.pem"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    make += [
        "-keyout",
        str(key),
        "-out",
        str(chain),
        "-subj",
        "/CN=web.test",
        "-addext",
        "subjectAltName=DNS:*.web.test",
    ]
    subprocess.run(make, check=True, capture_output=True)
    return str(chain), str(key)


def measure(args: argparse.Namespace, delay: float) -> None:
    folder = Path(tempfile.mkdtemp())
    chain, key = certificate(folder)
    command = [sys.executable, str(SERVER), "--tls", chain, key]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdout is not None and server.stdin is not None
    sizes = [f"--{name}={getattr(args, name)}" for name in ("hosts", "each", "keep")]
    port = int(server.stdout.readline())
    client = [sys.executable, __file__, f"--port={port}", f"--delay={delay}", *sizes]
    told = subprocess.run(client, check=True, stdout=subprocess.PIPE, env={**os.environ, "SSL_CERT_FILE": chain})
    server.stdin.close()
    counted = json.loads(server.stdout.read())
    server.wait()
    shutil.rmtree(folder)
    found, pages = json.loads(told.stdout), args.hosts * args.each
    assert found["counts"]["ok"] == pages, found
    print(
        f"delay {delay:g} s: {counted['connections'] / args.hosts:.2f} hand-shakes a host, {counted['most_open']:,} "
        f"open at once, {found['rss_mib']:.0f} MiB peak, {found['cpu_s'] / pages * 1000:.3f} CPU-s per 1,000 pages"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=2_000)
    parser.add_argument("--each", type=int, default=5, help="pages of a host")
    parser.add_argument("--keep", type=float, default=60.0, help="seconds an idle connection is kept")
    parser.add_argument("--delay", type=float, default=1.0, help="seconds, of the second task")
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.port:
        task(args)
    else:
        measure(args, 0.0)
        measure(args, args.delay)


if __name__ == "__main__":
    main()
