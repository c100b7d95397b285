"""A small web on loopback that tests are written in: `site.page("/", links=["/a"])`, and a log of what came in when.

Not named `site`: that name is the standard library's, and taken before any test is imported. All names below `.test`
lead here through a hosts file, so any number of hosts costs nothing. Every connection has a thread; a `raw` page gets
the socket and may do with it what it likes.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from spindle import config, schema, urls, warc
from spindle.defaults import default_layer
from spindle.fetcher import Around, Listing, fetch_task, read_parts
from spindle.fetcher.journal import place_now
from spindle.store import open_store

Script = Callable[[socket.socket], None]


@dataclass
class Request:
    """One request as the server saw it, in seconds of the monotonic clock; `ended`: just before the last bytes left."""

    host: str
    line: str
    headers: dict[str, str]
    started: float
    ended: float = float("inf")

    @property
    def path(self) -> str:
        return self.line.split(" ")[1]


@dataclass
class _Page:
    status: int = 200
    body: bytes = b""
    headers: list[tuple[str, str]] = field(default_factory=list)
    delay_s: float = 0.0
    script: Script | None = None


class Site:
    """Use as a context manager. `host=None` of a page means: the same on every host."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._pages: dict[tuple[str | None, str], list[_Page]] = {}
        self._listeners: list[socket.socket] = []
        self._lock = threading.Lock()
        self._folder = tempfile.TemporaryDirectory()
        self.folder = Path(self._folder.name)
        self.robots(b"", status=404)

    def __enter__(self) -> Site:
        self.port = self._listen(None)
        return self

    def __exit__(self, *_: object) -> None:
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self._folder.cleanup()

    # --- what is served

    def page(
        self,
        path: str,
        body: str | bytes | None = None,
        *,
        links: Iterable[str] = (),
        status: int = 200,
        content_type: str | None = "text/html",
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        host: str | None = None,
        delay_s: float = 0.0,
    ) -> None:
        """Serve a page. A path that is given several times serves its pages in turn, the last one for ever."""
        if body is None:
            anchors = "".join(f'<a href="{link}">{link}</a>' for link in links)
            body = f"<html><title>{path}</title><body>{path} {anchors}</body></html>"
        content = body.encode() if isinstance(body, str) else body
        fields = list(headers.items() if isinstance(headers, Mapping) else headers)
        if content_type is not None:
            fields.insert(0, ("Content-Type", content_type))
        self._pages.setdefault((host, path), []).append(_Page(status, content, fields, delay_s))

    def redirect(self, path: str, to: str, *, status: int = 302, host: str | None = None) -> None:
        self.page(path, b"", status=status, headers={"Location": to}, host=host)

    def robots(self, text: str | bytes, *, status: int = 200, host: str | None = None, **more: Any) -> None:
        self._pages.pop((host, "/robots.txt"), None)
        self.page("/robots.txt", text, status=status, content_type="text/plain", host=host, **more)

    def raw(self, path: str, answer: bytes | Script, *, host: str | None = None) -> None:
        """Answer with these very bytes and close, or let a function have the socket."""

        def send(connection: socket.socket) -> None:
            connection.sendall(answer)  # type: ignore[arg-type]

        script = send if isinstance(answer, bytes) else answer
        self._pages.setdefault((host, path), []).append(_Page(script=script))

    # --- where it is, and who asked

    def url(self, path: str, host: str = "h.test") -> str:
        return f"http://{host}{path}"

    def settings(self, *layers: Mapping[str, Mapping[str, Any]]) -> config.Settings:
        """The shipped defaults with this web as the whole world, no delay, and a contact; then `layers`."""
        hosts = self.folder / "hosts"
        hosts.write_text(f"127.0.0.1:{self.port} *.test\n", encoding="utf-8")
        here = {
            "agent": {"contact": "https://crawler.example/"},
            "network": {
                "hosts_file": str(hosts),
                "hosts_file_only": True,
                "allow_addresses": ["127.0.0.0/8"],
            },
            "politeness": {"min_delay_s": 0.0, "duration_factor": 0.0, "address_max_open": config.UNLIMITED},
        }
        return config.build([default_layer(), ("loopback", here), *(("test", layer) for layer in layers)])

    def seen(self, path: str | None = None, host: str | None = None) -> list[Request]:
        with self._lock:
            found = [r for r in self.requests if path in (None, r.path) and host in (None, r.host)]
        return sorted(found, key=lambda request: request.started)

    def paths(self, host: str | None = None) -> list[str]:
        """Paths asked for, robots.txt left out, in order."""
        return [request.path for request in self.seen(host=host) if request.path != "/robots.txt"]

    def gaps(self, host: str) -> list[float]:
        """Seconds from the end of each request of a host to the start of its next; negative: they overlapped."""
        log = self.seen(host=host)
        return [after.started - before.ended for before, after in itertools.pairwise(log)]

    def serve_tls(self, *names: str) -> tuple[int, Path]:
        """Serve the same pages over TLS too; the port, and the certificate to trust (it is its own authority)."""
        certificate, key = self.folder / "cert.pem", self.folder / "key.pem"
        alternatives = ",".join(f"DNS:{name}" for name in names)
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        command += ["-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", f"/CN={names[0]}"]
        subprocess.run([*command, "-addext", f"subjectAltName={alternatives}"], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        return self._listen(context), certificate

    def serve_ipv6(self) -> int | None:
        """Serve the same pages at ::1 too; the port, or None where the machine has no such address."""
        try:
            return self._listen(None, "::1")
        except OSError:
            return None

    # --- the server

    def _listen(self, tls: ssl.SSLContext | None, address: str = "127.0.0.1") -> int:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = socket.create_server((address, 0), family=family, backlog=512)
        self._listeners.append(listener)
        threading.Thread(target=self._accept, args=(listener, tls), daemon=True).start()
        port: int = listener.getsockname()[1]
        return port

    def _accept(self, listener: socket.socket, tls: ssl.SSLContext | None) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._converse, args=(connection, tls), daemon=True).start()

    def _converse(self, connection: socket.socket, tls: ssl.SSLContext | None) -> None:
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stack.enter_context(connection)
            if tls is not None:
                connection = stack.enter_context(tls.wrap_socket(connection, server_side=True))
            for request in _requests(connection):
                with self._lock:
                    self.requests.append(request)
                try:
                    keep = self._answer(connection, request)
                finally:
                    request.ended = min(request.ended, time.monotonic())
                if not keep:
                    return

    def _answer(self, connection: socket.socket, request: Request) -> bool:
        page = self._find(request)
        if page.delay_s:
            time.sleep(page.delay_s)
        if page.script is not None:
            page.script(connection)
            return False
        lines = [f"HTTP/1.1 {page.status} Reason", *(f"{name}: {value}" for name, value in page.headers)]
        lowered = {name.lower() for name, _ in page.headers}
        if not lowered & {"content-length", "transfer-encoding"} and page.status not in (204, 304):
            lines.append(f"Content-Length: {len(page.body)}")
        request.ended = time.monotonic()  # not after sending: a thread that waits for its turn would shorten the gap
        connection.sendall("\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape") + page.body)
        return "close" not in (request.headers.get("connection", ""), dict(page.headers).get("Connection", ""))

    def _find(self, request: Request) -> _Page:
        with self._lock:
            for key in ((request.host, request.path), (None, request.path)):
                turns = self._pages.get(key)
                if turns:
                    return turns.pop(0) if len(turns) > 1 else turns[0]
        return _Page(404, b"nothing here", [("Content-Type", "text/plain")])


def _requests(connection: socket.socket) -> Iterator[Request]:
    """The requests on a connection, one after the other."""
    waiting = b""
    while True:
        while b"\r\n\r\n" not in waiting:
            more = connection.recv(65536)
            if not more:
                return
            waiting += more
        head, _, waiting = waiting.partition(b"\r\n\r\n")
        line, *fields = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
        host = headers.get("host", "")
        host = host[: host.index("]") + 1] if host.startswith("[") else host.partition(":")[0]
        yield Request(host, line, headers, time.monotonic())


def listing_row(url: str, position: int = 0, **more: Any) -> dict[str, Any]:
    """A row of `fetchlist` for a normalised URL."""
    host = urls.host_of(url)
    row = {"segment": "t.1of1", "task": 0, "position": position, "url_key": urls.url_key(url), "bucket": 3}
    row |= {"kind": "page", "url": url, "host": host, "domain": urls.registered_domain(host), "depth": 1}
    row |= {"priority": 1, "score": 0.5, "seed_priority": None, "etag": None, "last_modified": None}
    row |= {"content_hash": None, "warc_file": None, "warc_offset": None, "warc_length": None, "record_date": None}
    return row | more


def listing_rows(pages: Iterable[str]) -> list[dict[str, Any]]:
    return [listing_row(url, position) for position, url in enumerate(pages)]


def run(
    site: Site,
    pages: Iterable[str | dict[str, Any]],
    settings: config.Settings | None = None,
    *,
    root: Path | None = None,
    hosts: Mapping[str, Any] | None = None,
    robots: Mapping[str, Any] | None = None,
    **more: Any,
) -> Fetched:
    """Fetch pages (URLs or rows of `fetchlist`) as task 0 of a segment and read its journal back."""
    rows = [listing_row(page, place) if isinstance(page, str) else page for place, page in enumerate(pages)]
    folder = root or Path(tempfile.mkdtemp(dir=site.folder))
    listing = Listing(rows, hosts or {}, robots or {}, lease_until=more.pop("lease_until", None))
    store = open_store(folder)
    manifest = asyncio.run(
        fetch_task(listing, settings or site.settings(), store, segment="t.1of1", task=0, around=Around(**more))
    )
    found = Fetched(manifest, list(read_parts(store, manifest["parts"])), folder)
    for row in found.rows:
        check_row(row)
    return found


def check_row(row: Mapping[str, Any]) -> None:
    """A row of the journal fits its table: all columns, of their types (spark#50531: a row that does not fit fails a
    task, or shifts into other columns)."""
    table = "fetches" if row["type"] == "fetch" else "robots"
    for column in schema.field_ddl(table):
        name, kind, *required = column.split()
        value = row[name]
        assert value is not None or not required or name == "since", f"{name} is missing"
        assert value is None or _FITS[kind](value), f"{name} = {value!r} is no {kind}"


_FITS: dict[str, Callable[[Any], bool]] = {
    "STRING": lambda value: isinstance(value, str),
    "INT": lambda value: isinstance(value, int) and abs(value) < 1 << 31,
    "BIGINT": lambda value: isinstance(value, int) and -(1 << 63) <= value < 1 << 63,
    "DOUBLE": lambda value: isinstance(value, float | int) and math.isfinite(value),
    "TIMESTAMP": lambda value: datetime.fromisoformat(value).year < 2100 and value.endswith("Z"),
    "ARRAY<STRING>": lambda value: all(isinstance(one, str) for one in value),
}


@dataclass
class Fetched:
    """What a task left: its manifest, the rows of its journal, and the folder of the segment."""

    manifest: dict[str, Any]
    rows: list[dict[str, Any]]
    folder: Path

    @property
    def pages(self) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["type"] == "fetch"]

    @property
    def robots(self) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["type"] == "robots"]

    @property
    def outcomes(self) -> dict[str, str]:
        """URL -> outcome of its hop-0 row."""
        return {row["url"]: row["outcome"] for row in self.pages if row["hop"] == 0}

    def row(self, url: str) -> dict[str, Any]:
        (found,) = [row for row in self.pages if row["url"] == url]
        return found

    def record(self, row: Mapping[str, Any]) -> warc.Record:
        """The WARC record that a row points to."""
        file, offset, length = place_now(row, self.manifest["joined"])
        return warc.read_record((self.folder / file).read_bytes()[offset : offset + length])
