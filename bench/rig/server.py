"""The web that fetch is measured on: 1,000 distinct pages from memory, robots.txt beside them, plain or over TLS.

    python bench/rig/server.py --bytes 20000 [--gzip] [--tls CERTIFICATE KEY]

Prints its port, answers until stdin closes, then prints what it counted as JSON: connections (over TLS each of them is
a hand-shake), the most that were open at once, requests.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import random
import resource
import ssl
import sys
from typing import Any

PAGES = 1000  # distinct ones
RULES = b"User-agent: *\nDisallow: /private/\n"
COUNTED = {"connections": 0, "most_open": 0, "requests": 0}


def text_of(number: int, page_bytes: int) -> bytes:
    chance = random.Random(number)
    words = [f"w{chance.randrange(5000)}" for _ in range(page_bytes // 6)]
    return b"<html>" + " ".join(words).encode()[: page_bytes - 6]


def response(body: bytes, coded: bool) -> bytes:
    extra = b"Content-Encoding: gzip\r\n" if coded else b""
    body = gzip.compress(body, 6, mtime=0) if coded else body
    head = b"HTTP/1.1 200 OK\r\nServer: bench\r\nDate: Mon, 30 Nov 2026 00:00:00 GMT\r\nContent-Type: text/html\r\n"
    return head + b"%bContent-Length: %d\r\n\r\n" % (extra, len(body)) + body


def serve(options: argparse.Namespace) -> None:
    answers = [response(text_of(number, options.bytes), options.gzip) for number in range(PAGES)]
    robots = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%b" % (len(RULES), RULES)
    is_open = 0

    class Server(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            nonlocal is_open
            self.transport: Any = transport
            is_open += 1
            COUNTED["connections"] += 1
            COUNTED["most_open"] = max(COUNTED["most_open"], is_open)

        def connection_lost(self, exc: Exception | None) -> None:
            nonlocal is_open
            is_open -= 1

        def data_received(self, data: bytes) -> None:
            COUNTED["requests"] += 1
            path = data.split(b" ", 2)[1]
            self.transport.write(robots if path == b"/robots.txt" else answers[int(path[2:]) % PAGES])
            if b"\r\nConnection: close" in data:
                self.transport.close()

    async def run() -> None:
        tls = None
        if options.tls:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(*options.tls)
        server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0, backlog=4096, ssl=tls)
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.to_thread(sys.stdin.read)
        print(json.dumps(COUNTED), flush=True)

    asyncio.run(run())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, default=20_000, help="of a page")
    parser.add_argument("--gzip", action="store_true", help="send gzip")
    parser.add_argument("--tls", nargs=2, metavar=("CERTIFICATE", "KEY"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536) if hard > 0 else soft, hard))
    serve(parser.parse_args())


if __name__ == "__main__":
    main()
