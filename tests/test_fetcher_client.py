"""One GET against a hostile web: it ends within its deadline as one answer with the right outcome, whatever comes."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from hostile_web import HOSTILE, OK, drip, flood
from loopback import Site
from spindle.config import Settings
from spindle.fetcher.addresses import AddressRule
from spindle.fetcher.answer import Answer
from spindle.fetcher.client import Client
from spindle.fetcher.resolver import Resolver
from spindle.outcome import Outcome

FAST = {"fetch": {"total_timeout_s": 1.2, "connect_timeout_s": 0.4, "read_timeout_s": 0.5}}


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as one:
        yield one


def get(settings: Settings, *urls: str, lookup: Any = None, pause_s: float = 0.0, **options: Any) -> list[Answer]:
    """The answers to GETs sent one after the other by one client."""

    async def run() -> list[Answer]:
        rule = AddressRule(settings.network.allow_addresses)
        resolver = Resolver(settings.network, rule, timeout_s=settings.fetch.connect_timeout_s, lookup=lookup)
        async with Client(settings, resolver, rule, time.time) as client:
            answers = []
            for url in urls:
                answers.append(await client.get(url, **{"max_bytes": 100_000, **options}))
                await asyncio.sleep(pause_s)
            return answers

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("act", "status", "failure", "truncated", "body"), [case[1:] for case in HOSTILE], ids=[case[0] for case in HOSTILE]
)
def test_hostile_web(
    site: Site, act: Any, status: int | None, failure: Outcome | None, truncated: str | None, body: bytes | None
) -> None:
    site.raw("/x", act)
    site.page("/good", "fine")
    began = time.monotonic()
    answer, good = get(site.settings(FAST), site.url("/x"), site.url("/good", "other.test"))
    assert time.monotonic() - began < 5, "well past every deadline"
    if body is None and status is None:  # the library may take it or refuse it; both are an answer
        assert answer.failure in (None, Outcome.PROTOCOL_ERROR)
        assert (answer.status is None) <= (answer.failure is not None)
    else:
        assert (answer.status, answer.failure, answer.truncated) == (status, failure, truncated)
        assert body is None or answer.body == body
    assert answer.failure is None or answer.error
    assert len(answer.body) <= 100_000
    assert (good.status, good.body) == (200, b"fine"), "the next host pays nothing"


def test_a_slow_but_honest_page_is_whole(site: Site) -> None:
    site.raw("/x", drip(OK + b"Content-Length: 6\r\n\r\n", b"ab", b"cd", b"ef", every_s=0.1))
    (answer,) = get(site.settings(FAST), site.url("/x"))
    assert (answer.status, answer.failure, answer.truncated, answer.body) == (200, None, None, b"abcdef")
    assert answer.duration_s >= 0.3
    assert answer.ended_at == pytest.approx(answer.started_at + answer.duration_s)


def test_memory_stays_near_the_cap_however_much_is_sent(site: Site) -> None:
    site.raw("/x", flood(OK + b"Content-Length: 999999999999\r\n\r\n", b"x" * 65536))
    settings = site.settings(FAST)
    tracemalloc.start()
    try:
        (answer,) = get(settings, site.url("/x"), max_bytes=2 << 20)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (len(answer.body), answer.truncated) == (2 << 20, "length")
    assert peak < 12 << 20


def test_a_gzip_bomb_is_not_unpacked_while_it_is_read(site: Site) -> None:
    """auto_decompress is off: the wire bytes are what comes, and what is kept."""
    bomb = gzip.compress(bytes(50 << 20))
    site.page("/x", bomb, headers={"Content-Encoding": "gzip"})
    (answer,) = get(site.settings(FAST), site.url("/x"))
    assert answer.body == bomb[:100_000]


@pytest.mark.parametrize(
    "path",
    [
        "/w/A_%26_B",
        "/a%2Fb",
        "/%27%3B",
        "/a//b",
        "/a;x=1",
        "/a?b=%20&c=+",
        "/a?b=c%3Dd",
        "/%E2%82%AC",
        "/caf%E9/",
        "/a?x=%",
        "/~u/'()*",
    ],
)
def test_the_url_goes_out_byte_for_byte(site: Site, path: str) -> None:
    """aio-libs/aiohttp#6626: escapes were decoded on the way out, and servers redirected back for ever."""
    get(site.settings(), site.url(path))
    assert site.requests[0].line == f"GET {path} HTTP/1.1"


def test_what_is_sent_is_what_is_recorded(site: Site) -> None:
    site.page("/a", "x")
    (answer,) = get(site.settings(), site.url("/a"), headers={"If-None-Match": '"1"'}, last=True)
    (request,) = site.requests
    assert request.headers["connection"] == "close"
    assert request.headers["user-agent"].startswith("Mozilla/5.0 (compatible; spindle/")
    assert request.headers["accept-encoding"] == "gzip, deflate, br, zstd"
    assert request.headers["if-none-match"] == '"1"'
    assert not {"cookie", "authorization", "referer"} & request.headers.keys()
    line, *lines = answer.request.decode().removesuffix("\r\n\r\n").split("\r\n")
    recorded = {name.lower(): value for name, value in (one.split(": ", 1) for one in lines)}
    assert (line, list(recorded.items())) == (request.line, list(request.headers.items()))
    assert answer.ip == "127.0.0.1"


def test_no_request_is_repeated_behind_our_back(site: Site) -> None:
    """aio-libs/aiohttp#10790: a GET on a kept connection that the server closed was sent again, without a gap."""

    def close_unanswered(connection: socket.socket) -> None:
        connection.close()

    site.page("/a", "x")
    site.raw("/b", close_unanswered)
    first, second = get(site.settings(FAST), site.url("/a"), site.url("/b"))
    assert first.status == 200
    assert (second.status, second.failure, second.stale) == (None, Outcome.CONNECT_ERROR, True)
    assert site.paths() == ["/a", "/b"]


def test_a_fresh_connection_that_is_closed_is_not_called_stale(site: Site) -> None:
    site.raw("/b", b"")
    (answer,) = get(site.settings(FAST), site.url("/b"))
    assert (answer.failure, answer.stale) == (Outcome.CONNECT_ERROR, False)


def test_connections_are_kept_between_requests_and_closed_after_the_last(site: Site) -> None:
    site.page("/a", "x")
    get(site.settings(), site.url("/a"), site.url("/a"))
    get(site.settings(), site.url("/a"), last=True)
    assert [request.headers.get("connection") for request in site.requests] == [None, None, "close"]


def test_cookies_are_neither_kept_nor_sent(site: Site) -> None:
    """aio-libs/aiohttp#2683: illegal names do no harm; the bytes still reach the caller."""
    site.page("/a", "x", headers=[("Set-Cookie", "a{b}=1"), ("Set-Cookie", "x/y=2; Path=/"), ("Set-Cookie", "ok=3")])
    answer, _ = get(site.settings(), site.url("/a"), site.url("/a"))
    assert [value for name, value in answer.headers if name == b"Set-Cookie"] == [b"a{b}=1", b"x/y=2; Path=/", b"ok=3"]
    assert "cookie" not in site.requests[1].headers


def test_redirects_are_not_followed(site: Site) -> None:
    site.redirect("/a", "/b", status=301)
    (answer,) = get(site.settings(), site.url("/a"))
    assert (answer.status, answer.header(b"location"), site.paths()) == (301, "/b", ["/a"])


def test_header_bytes_come_as_received(site: Site) -> None:
    site.raw("/a", b"HTTP/1.1 404 Art\xedculo\r\nX-Odd: caf\xe9\r\nx-ODD:  two \r\nContent-Length: 0\r\n\r\n")
    (answer,) = get(site.settings(), site.url("/a"))
    assert answer.status_line == b"HTTP/1.1 404 Art\xedculo"
    assert answer.headers == ((b"X-Odd", b"caf\xe9"), (b"x-ODD", b"two"), (b"Content-Length", b"0"))
    assert answer.header(b"x-odd") == "caf\xe9, two"


def test_content_that_is_not_wanted_is_not_read(site: Site) -> None:
    sent: list[int] = []

    def video(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: video/mp4\r\nContent-Length: 500000000\r\n\r\n")
        with contextlib.suppress(OSError):
            for _ in range(5000):
                sent.append(connection.send(b"x" * 100_000))

    site.raw("/v", video)
    (answer,) = get(site.settings(FAST), site.url("/v"), wanted=lambda status, kind: kind != "video/mp4")
    assert (answer.status, answer.body, answer.body_skipped) == (200, b"", True)
    assert sum(sent) < 20_000_000


def test_names_that_do_not_resolve_and_ports_that_are_closed(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    hosts = site.folder / "more"
    hosts.write_text(f"127.0.0.1:{port} refused.test\n", encoding="utf-8")
    settings = site.settings({"network": {"hosts_file": str(hosts)}}, FAST)
    nowhere, refused = get(settings, "http://nowhere.test/", "http://refused.test/")
    assert (nowhere.failure, refused.failure) == (Outcome.DNS_ERROR, Outcome.CONNECT_ERROR)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:{port}/", "http://h.test/", "http://[::ffff:127.0.0.1]:{port}/", "http://0.0.0.0:{port}/"]
)
def test_no_connection_leaves_for_an_address_that_is_not_allowed(site: Site, url: str) -> None:
    """By name or as a literal; seen from the server, which gets no connection."""
    site.page("/", "secret")
    settings = site.settings({"network": {"allow_addresses": []}})
    (answer,) = get(settings, url.format(port=site.port))
    assert (answer.status, answer.failure) == (None, Outcome.BLOCKED_ADDRESS)
    assert site.requests == []


def test_rebinding_gains_nothing(site: Site) -> None:
    """A name that is public when first asked and 127.0.0.1 the second time: what is connected to is what is checked."""
    answers = iter([["127.0.0.2"], ["127.0.0.1"]])
    limits = {
        "network": {"hosts_file": "", "hosts_file_only": False, "dns_ttl_s": 0.0, "allow_addresses": ["127.0.0.2/32"]}
    }
    site.page("/", "secret")
    url = f"http://rebind.example:{site.port}/"
    first, second = get(site.settings(limits, FAST), url, url, lookup=lambda name: next(answers))
    assert first.failure is Outcome.CONNECT_ERROR  # nobody listens there
    assert second.failure is Outcome.BLOCKED_ADDRESS
    assert site.requests == []


def test_an_address_that_has_its_fill_is_not_connected_to(site: Site) -> None:
    site.page("/", "x")
    asked: list[str] = []

    def admit(address: str) -> bool:
        asked.append(address)
        return len(asked) > 1

    first, second = get(site.settings(FAST), site.url("/"), site.url("/"), admit=admit)
    assert (first.refused, first.status, second.status, second.refused) == (True, None, 200, False)
    assert asked == ["127.0.0.1", "127.0.0.1"]
    assert len(site.requests) == 1


def test_tls_is_verified(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    port, certificate = site.serve_tls("good.test")
    site.page("/", "over tls")
    hosts = site.folder / "tls-hosts"
    hosts.write_text(f"127.0.0.1:{port} good.test wrong.test\n", encoding="utf-8")
    layer = {"network": {"hosts_file": str(hosts)}}
    (unknown,) = get(site.settings(layer), "https://good.test/")
    assert (unknown.failure, unknown.status) == (Outcome.TLS_ERROR, None)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    good, wrong = get(site.settings(layer), "https://good.test/", "https://wrong.test/")
    assert (good.status, good.body) == (200, b"over tls")
    assert wrong.failure is Outcome.TLS_ERROR
    (lax,) = get(site.settings(layer, {"fetch": {"verify_tls": False}}), "https://wrong.test/")
    assert lax.status == 200
    named = site.settings(layer, {"fetch": {"tls_unverified_hosts": ["wrong.test"]}})
    assert [answer.status for answer in get(named, "https://wrong.test/", "https://good.test/")] == [200, 200]
    monkeypatch.delenv("SSL_CERT_FILE")
    assert [answer.status for answer in get(named, "https://wrong.test/", "https://good.test/")] == [200, None]


@pytest.mark.parametrize(
    ("says", "outcome"), [(None, Outcome.TIMEOUT), (b"HTTP/1.1 400 Bad Request\r\n\r\n", Outcome.TLS_ERROR)]
)
def test_a_tls_port_that_is_silent_or_speaks_something_else(site: Site, says: bytes | None, outcome: Outcome) -> None:
    connections: list[socket.socket] = []

    def accept(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connections.append(listener.accept()[0])
            if says:
                connections[0].sendall(says)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        hosts = site.folder / "tls"
        hosts.write_text(f"127.0.0.1:{listener.getsockname()[1]} tls.test\n", encoding="utf-8")
        began = time.monotonic()
        (answer,) = get(site.settings({"network": {"hosts_file": str(hosts)}}, FAST), "https://tls.test/")
    assert (answer.failure, answer.status) == (outcome, None)
    assert time.monotonic() - began < 4


@pytest.mark.parametrize("host", ["under_score.test", "xn--bcher-kva.test", "-odd-.test", "a.b.c.d.e.f.test", "1.test"])
def test_host_names_of_the_wild(site: Site, host: str) -> None:
    site.page("/", "x")
    (answer,) = get(site.settings(), site.url("/", host))
    assert (answer.status, site.requests[0].host) == (200, host)


def test_many_large_bodies_share_few_places(site: Site) -> None:
    """100 hosts that send 8 MB at once must not fill the memory; those that wait are not charged for it."""
    piece, size = b"x" * 65536, 4 << 20

    def send(connection: socket.socket) -> None:
        connection.sendall(OK + b"Content-Length: %d\r\n\r\n" % size)
        for _ in range(size // len(piece)):
            connection.sendall(piece)

    site.raw("/x", send)
    settings = site.settings({"fetch": {"total_timeout_s": 60.0}})

    async def run() -> list[Answer]:
        rule = AddressRule(settings.network.allow_addresses)
        async with Client(settings, Resolver(settings.network, rule, timeout_s=5), rule, time.time) as client:

            async def one(number: int) -> Answer:
                answer = await client.get(site.url("/x", f"h{number}.test"), max_bytes=8 << 20)
                answer.body = b"%d" % len(answer.body)  # the caller has dealt with it
                return answer

            return await asyncio.gather(*(one(number) for number in range(40)))

    tracemalloc.start()
    try:
        answers = asyncio.run(run())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [answer.body for answer in answers] == [b"%d" % size] * 40
    assert peak < 40 * size * 0.8
