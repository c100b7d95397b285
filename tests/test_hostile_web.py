"""A whole task on a hostile web: every case is one row with the right outcome, and the good hosts lose nothing.

What one GET makes of each server is in test_fetcher_client; here all of them are hosts of one task, at once, with good
hosts between them.
"""

from __future__ import annotations

import gzip
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import brotli
import pytest
import zstandard

from hostile_web import CHUNKED, HOSTILE, OK, drip, flood
from loopback import Fetched, Site, run
from spindle.fetcher import resolver
from spindle.outcome import of_status

TOTAL_S = 5.0
BOUNDS = {"total_timeout_s": TOTAL_S, "connect_timeout_s": 2.0, "read_timeout_s": 2.0, "max_body_bytes": 100_000}
#: Cases that the parser may refuse or take, as its bytes fall into reads: what they are then.
EITHER = {
    "a length that is too short": {"ok", "protocol_error"},  # the rest is a second answer, or is never looked at
    "204 with a body": {"ok", "protocol_error"},
}
#: Cases of which a single GET leaves open what they are: here it is said.
SAID = {
    "a chunk that promises 16 EB": "ok",  # cut at the limit, like any body without end
    "a space before the colon": "protocol_error",  # request smuggling lives on such lines
    "a control byte in a header": "ok",
    "an unknown transfer coding": "ok",  # read to the end of the connection (RFC 9112 6.3)
}
ZEROS = bytes(30 << 20)
BOMBS = {
    "gzip": gzip.compress(ZEROS),
    "br": brotli.compress(ZEROS, quality=1),
    "zstd": zstandard.ZstdCompressor().compress(ZEROS),
}
GOOD = [f"good{n}.test" for n in range(20)]


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as one:
        yield one


def silent_port() -> socket.socket:
    """Takes connections and says nothing, TLS or not."""
    return socket.create_server(("127.0.0.1", 0), backlog=64)


def forever(prefix: str) -> Callable[[socket.socket], None]:
    """A redirect to a URL that is a redirect to a URL: a million would come."""
    counter = iter(range(1_000_000))

    def script(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 302 Found\r\nLocation: %s/%d\r\n\r\n" % (prefix.encode(), next(counter)))

    return script


def lay_out(site: Site) -> dict[str, tuple[str, set[str]]]:
    """Serve every case from a host of its own; case -> its URL, and the outcomes that are right."""
    cases: dict[str, tuple[str, set[str]]] = {}

    def case(name: str, outcome: str | set[str], host: str | None = None, path: str = "/x") -> str:
        host = host or f"case{len(cases)}.test"
        cases[name] = site.url(path, host), {outcome} if isinstance(outcome, str) else outcome
        return host

    for name, act, status, failure, _, _ in HOSTILE:
        told = SAID.get(name) or failure or (of_status(status) if status else "")
        site.raw("/x", act, host=case(name, EITHER.get(name, {str(told)})))
    for coding, body in BOMBS.items():
        site.page("/x", body, headers={"Content-Encoding": coding}, host=case(f"a {coding} bomb", "too_large"))
    hops = forever("/hop")
    host = case("a million redirects", "redirect")
    for path in ("/x", *(f"/hop/{n}" for n in range(20))):
        site.raw(path, hops, host=host)
    rules = b"User-agent: *\nDisallow: /x\n" + b"# padding\n" * 60_000
    robots = "/robots.txt"
    site.raw(robots, flood(OK + b"Content-Length: 104857600\r\n\r\n" + rules, b"# more\n" * 1000, 100 << 20),
             host=case("robots.txt of 100 MB", "denied"))  # fmt: skip
    site.raw(robots, drip(CHUNKED, endless=b"1\r\n#\r\n"), host=case("robots.txt byte by byte", "robots_unreachable"))
    site.raw(robots, drip(), host=case("robots.txt never comes", "robots_unreachable"))
    site.page("/x", "x", host=case("a name with an underscore", "ok", "under_score.test"))
    site.page("/x", "x", host=case("an international name", "ok", "xn--bcher-kva.test"))
    return cases


def test_every_hostile_host_in_one_task_costs_its_own_url_only(site: Site) -> None:
    cases = lay_out(site)
    for path in range(5):
        site.page(f"/{path}", f"page {path}")
    good = [site.url(f"/{path}", host) for path in range(5) for host in GOOD]
    bad = [url for url, _ in cases.values()]
    # More open requests than hosts, so that nobody waits for a place; the window is far beyond every deadline.
    settings = site.settings({"fetch": {**BOUNDS, "max_open": 200, "window_s": 300.0}})
    found = run(site, bad + good, settings)
    assert Counter(row["url"] for row in found.pages if row["hop"] == 0) == Counter(bad + good)
    wrong = {name: found.outcomes[url] for name, (url, right) in cases.items() if found.outcomes[url] not in right}
    assert wrong == {}
    assert found.manifest["stopped"] is None, "the task came to its end by itself"
    assert {found.outcomes[url] for url in good} == {"ok"}
    assert all(row["error"] for row in found.pages if row["outcome"] in ("timeout", "protocol_error", "connect_error")
               and row["http_status"] not in (101, 999))  # fmt: skip
    check_good_hosts_first(site, found)
    ends_of_redirects(site, found, cases["a million redirects"][0])


def check_good_hosts_first(site: Site, found: Fetched) -> None:
    """The slowest of the hostile hold a request open to the very deadline; all good pages had gone out by then."""
    asked = max(request.started for host in GOOD for request in site.seen(host=host))
    slowest = max(request.ended for request in site.requests if not request.host.startswith("good"))
    assert asked < slowest
    assert {len(site.paths(host)) for host in GOOD} == {5}


def ends_of_redirects(site: Site, found: Fetched, url: str) -> None:
    host = url.split("/")[2]
    assert len(site.paths(host)) == 6, "the URL and five hops (fetch.max_redirects)"
    assert Counter(row["outcome"] for row in found.pages if row["host"] == host) == {"redirect": 6}


def test_tls_that_stalls_or_lies_and_ports_that_are_dead_cost_others_nothing(site: Site) -> None:
    """Names with ports of their own: a TLS hand-shake that never comes, one that nobody vouches for, a closed port."""
    stalls, dead = silent_port(), silent_port()
    dead_port = dead.getsockname()[1]
    dead.close()
    tls_port, _ = site.serve_tls("liar.test")
    ports = {"stall.test": stalls.getsockname()[1], "liar.test": tls_port, "dead.test": dead_port}
    ports |= {"plain.test": site.port, "good.test": site.port}
    hosts = site.folder / "hosts-by-port"
    hosts.write_text("".join(f"127.0.0.1:{port} {name}\n" for name, port in ports.items()), encoding="utf-8")
    for path in ("/x", "/y"):
        site.page(path, "x")
    bad = {
        "https://stall.test/x": "robots_unreachable",
        "https://liar.test/x": "robots_unreachable",
        "http://dead.test/x": "robots_unreachable",
        "https://plain.test/x": "robots_unreachable",  # speaks HTTP where TLS is asked
        "http://nowhere.test/x": "robots_unreachable",
    }
    good = {"http://good.test/x": "ok", "http://good.test/y": "ok"}
    settings = site.settings({"network": {"hosts_file": str(hosts)}, "fetch": BOUNDS})
    with stalls:
        found = run(site, bad | good, settings)
    assert found.outcomes == bad | good
    assert {row["origin"]: row["error"] is not None for row in found.robots if row["verdict"] == "unreachable"} == {
        url.removesuffix("/x"): True for url in bad
    }


def test_a_name_that_answers_with_a_private_address_the_second_time(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rebinding within a task: robots.txt is read at a lawful address, then the name points at one that is none. Here
    127.0.0.66 plays the private one, and listens: nobody may come."""
    answers = iter([["127.0.0.1"]])
    monkeypatch.setattr(resolver, "system_lookup", lambda name: next(answers, ["127.0.0.66"]))
    site.robots("User-agent: *\nDisallow:\n", headers={"Connection": "close"})
    site.page("/x", "secret")
    visitors: list[Any] = []
    with socket.create_server(("127.0.0.66", site.port)) as private:
        threading.Thread(target=_count, args=(private, visitors), daemon=True).start()
        limits = {"deny_addresses": ["127.0.0.66/32"], "hosts_file": "", "hosts_file_only": False, "dns_ttl_s": 0.0}
        url = f"http://rebind.example:{site.port}/x"
        found = run(site, [url], site.settings({"network": limits, "fetch": BOUNDS}))
    assert found.outcomes == {url: "blocked_address"}
    assert [request.path for request in site.requests] == ["/robots.txt"]
    assert visitors == []


def _count(listener: socket.socket, visitors: list[Any]) -> None:
    try:
        while True:
            visitors.append(listener.accept())
    except OSError:
        return


def test_ipv6(site: Site) -> None:
    """By literal and by name; robots.txt of the literal's own origin, and the address is checked like any other."""
    port = site.serve_ipv6()
    if port is None:
        pytest.skip("this machine has no ::1")
    hosts = site.folder / "hosts6"
    hosts.write_text(f"[::1]:{port} six.test\n", encoding="utf-8")
    site.page("/x", "six")
    pages = [f"http://[::1]:{port}/x", "http://six.test/x"]
    network = {"hosts_file": str(hosts), "allow_addresses": ["::1/128"]}
    found = run(site, pages, site.settings({"network": network}))
    assert found.outcomes == dict.fromkeys(pages, "ok")
    assert {row["ip"] for row in found.pages} == {"::1"}
    assert sorted((request.host, request.path) for request in site.requests) == [
        ("[::1]", "/robots.txt"), ("[::1]", "/x"), ("six.test", "/robots.txt"), ("six.test", "/x"),
    ]  # fmt: skip
    site.requests.clear()
    refused = run(site, pages, site.settings({"network": network | {"allow_addresses": ["127.0.0.0/8"]}}))
    assert refused.outcomes == dict.fromkeys(pages, "robots_unreachable")
    assert site.requests == []
