"""The demo web on its sockets, asked by http.client and by raw bytes: what the wire shows, what the log says."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from spindle.demo import DemoProcess, Entry, World, build_world, expectation, gaps, overlaps, read_log, start_in_process
from spindle.demo.world import MIN_HOSTS
from spindle.errors import InputError

PAGES = (8, 12)
AGENT = "test/1"
DEADLINE_S = 30.0  # for what must happen some time; nothing here is measured


@pytest.fixture(scope="module")
def world() -> World:
    return build_world(3, MIN_HOSTS, PAGES)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoProcess]:
    """A demo web whose clock only moves when it is told to."""
    with start_in_process(tmp_path_factory.mktemp("demo"), 3, MIN_HOSTS, pages=PAGES, tick_s=0) as running:
        yield running


def resolve(demo: DemoProcess, name: str) -> tuple[str, int]:
    """Address and port of a host, from the hosts file alone, as a crawler does it."""
    table = dict(reversed(line.split(" ")) for line in demo.hosts_file.read_text().splitlines())
    where, _, port = table[name].partition(":")
    return where, int(port)


Response = tuple[int, dict[str, str], bytes]


def get(demo: DemoProcess, url: str, method: str = "GET", **headers: str) -> Response:
    """One request on a connection of its own."""
    host = urlsplit(url).netloc
    connection = http.client.HTTPConnection(*resolve(demo, host), timeout=DEADLINE_S)
    asked = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, url.partition(host)[2] or "/", headers={"Host": host, "User-Agent": AGENT, **asked})
    response = connection.getresponse()
    try:
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    finally:
        connection.close()


def raw(demo: DemoProcess, host: str, *requests: bytes) -> bytes:
    """Everything that comes back for these bytes, until the server closes."""
    with socket.create_connection(resolve(demo, host), timeout=DEADLINE_S) as sock:
        sock.sendall(b"".join(requests))
        return b"".join(iter(lambda: sock.recv(65_536), b""))


def host_of(world: World, role: str) -> str:
    return urlsplit(world.examples[role][0]).netloc


def eventually(check: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + DEADLINE_S
    while not check() and time.monotonic() < deadline:
        time.sleep(0.02)
    return check()


def entries(demo: DemoProcess, host: str, path: str) -> list[Entry]:
    return [entry for entry in read_log(demo.log_path) if (entry.host, entry.path) == (host, path)]


# --- what it serves --------------------------------------------------------------------------------------------------


def test_the_process_serves_the_world_of_its_seed(demo: DemoProcess, world: World) -> None:
    assert demo.seeds == list(world.seeds)
    for front in world.seeds:
        status, headers, body = get(demo, front)
        expected = expectation(world, front)
        assert expected is not None
        assert (status, headers["content-length"]) == (200, str(len(body)))
        assert f"<title>{expected.title}</title>" in body.decode(expected.codec)


STATUSES = {
    "redirect_one": 301,
    "redirect_relative": 302,
    "redirect_chain": 308,
    "redirect_loop": 301,
    "redirect_to_itself": 302,
    "redirect_cross_host": 302,
    "redirect_to_denied": 302,
    "missing": 404,
    "gone": 410,
    "forbidden": 403,
    "unavailable": 503,
    "broken": 500,
    "denied": 200,
    "pdf": 200,
    "image": 200,
    "empty": 200,
    "long_url": 200,
    "unicode_path": 200,
}


@pytest.mark.parametrize(("label", "status"), STATUSES.items())
def test_statuses(demo: DemoProcess, world: World, label: str, status: int) -> None:
    assert {get(demo, url)[0] for url in world.examples[label]} == {status}


def test_a_chain_of_redirects_ends_at_a_page_and_a_loop_does_not(demo: DemoProcess, world: World) -> None:
    def hops(url: str) -> list[int]:
        found = []
        for _ in range(6):
            status, headers, _ = get(demo, url)
            found.append(status)
            url = headers.get("location", url)
        return found

    assert hops(world.examples["redirect_chain"][0]) == [308, 307, 303, 200, 200, 200]
    assert set(hops(world.examples["redirect_loop"][0])) == {301}


def test_errors_that_heal(demo: DemoProcess, world: World) -> None:
    healing, throttled = world.examples["heals"][0], world.examples["throttled"][0]
    assert [get(demo, healing)[0] for _ in range(4)] == [500, 500, 200, 200]
    first, second = get(demo, throttled), get(demo, throttled)
    assert (first[0], first[1]["retry-after"], second[0]) == (429, "2", 200)


@pytest.mark.parametrize(
    ("role", "status"), [("no_robots", 404), ("robots_500", 500), ("robots_403", 403), ("robots_denies_all", 200)]
)
def test_robots_statuses(demo: DemoProcess, world: World, role: str, status: int) -> None:
    assert get(demo, f"http://{host_of(world, role)}/robots.txt")[0] == status


def test_robots_files(demo: DemoProcess, world: World) -> None:
    status, headers, _ = get(demo, f"http://{host_of(world, 'robots_moved')}/robots.txt")
    assert (status, headers["location"]) == (301, "/robots-moved.txt")
    moved = get(demo, f"http://{host_of(world, 'robots_moved')}/robots-moved.txt")[2].decode().splitlines()
    assert "Disallow: /private/" in moved
    assert "Crawl-delay: 2" in get(demo, f"http://{host_of(world, 'delay_2s')}/robots.txt")[2].decode().splitlines()
    mapped = urlsplit(world.examples["sitemap"][0]).netloc
    assert f"Sitemap: {world.examples['sitemap'][0]}" in get(demo, f"http://{mapped}/robots.txt")[2].decode()


def test_sitemaps(demo: DemoProcess, world: World) -> None:
    index = next(url for url in world.examples["sitemap"] if url.endswith("_index.xml"))
    base = index.rpartition("/")[0]
    assert f"<loc>{base}/sitemap-2.xml.gz</loc>" in get(demo, index)[2].decode()
    _, headers, body = get(demo, f"{base}/sitemap-2.xml.gz")
    assert headers["content-type"] == "application/gzip"
    assert gzip.decompress(body).startswith(b'<?xml version="1.0" encoding="UTF-8"?>\n<urlset ')


def test_an_honest_304_and_a_page_that_changes_when_the_clock_moves(demo: DemoProcess, world: World) -> None:
    url, page = next(
        (f"http://{host.name}{page.path}", page)
        for host, page in world.everything()
        if page.period == 2 and not page.phase and host.validators == "both" and not host.slow_s
    )
    demo.advance(demo.tick() % 2)  # to the start of a period
    _, headers, body = get(demo, url)
    asked = {"If_None_Match": headers["etag"], "If_Modified_Since": headers["last-modified"]}
    status, again, nothing = get(demo, url, **asked)
    assert (status, nothing, again["etag"]) == (304, b"", headers["etag"])
    assert get(demo, url, If_Modified_Since=headers["last-modified"])[0] == 304
    demo.advance(1)
    assert get(demo, url, **asked)[0] == 304  # half a period is no change
    demo.advance(1)
    status, _, other = get(demo, url, **asked)
    assert status == 200
    assert other != body
    assert page.period == 2


def test_the_clock_is_told_and_moved_over_http_only_as_documented(demo: DemoProcess) -> None:
    before = demo.tick()
    assert demo.advance(3) == before + 3
    for method, path in (("POST", "/advance?ticks=-1"), ("POST", "/elsewhere"), ("GET", "/advance?ticks=x")):
        connection = http.client.HTTPConnection("127.0.0.1", demo.admin_port, timeout=DEADLINE_S)
        connection.request(method, path)
        assert connection.getresponse().status == 400
        connection.close()
    assert demo.tick() == before + 3


def test_compression_is_given_to_those_who_take_it(demo: DemoProcess, world: World) -> None:
    front = world.examples["gzip"][0]
    _, squeezed, small = get(demo, front, Accept_Encoding="gzip")
    _, plain, large = get(demo, front)
    assert (squeezed["content-encoding"], gzip.decompress(small)) == ("gzip", large)
    assert "content-encoding" not in plain
    assert len(small) < len(large)


def test_transfer_in_chunks(demo: DemoProcess, world: World) -> None:
    front = world.examples["chunked"][0]
    _, headers, body = get(demo, front)
    assert headers["transfer-encoding"] == "chunked"
    assert "content-length" not in headers
    assert body.endswith(b"</html>\n")


def test_a_body_that_is_cut_short(demo: DemoProcess, world: World) -> None:
    with pytest.raises(http.client.IncompleteRead) as cut:
        get(demo, world.examples["cut_short"][0])
    assert len(cut.value.partial) > 500
    assert cut.value.expected is not None
    assert cut.value.expected > 500


def test_charset_bytes(demo: DemoProcess, world: World) -> None:
    _, headers, body = get(demo, world.examples["koi8_r"][0])
    assert headers["content-type"] == "text/html; charset=KOI8-R"
    host, _ = world.find(world.examples["koi8_r"][0]) or pytest.fail()
    assert f"<title>{host.title}</title>" in body.decode("koi8-r")
    assert not host.title.isascii()
    with pytest.raises(UnicodeDecodeError):
        body.decode("utf-8")
    assert get(demo, world.examples["utf16_bom"][0])[2].startswith(b"\xff\xfe<\0!\0")


def test_two_hosts_on_one_address(demo: DemoProcess, world: World) -> None:
    one = host_of(world, "shares_address")
    place = world.hosts[one].place
    other = next(host.name for host in world.hosts.values() if host.place == place and host.name != one)
    assert resolve(demo, one) == resolve(demo, other)
    assert get(demo, f"http://{one}/")[2] != get(demo, f"http://{other}/")[2]


def test_tracking_parameters_name_the_same_page(demo: DemoProcess, world: World) -> None:
    url = world.seeds[0]
    assert get(demo, f"{url}?utm_source=x&gclid=1")[2] == get(demo, url)[2]


# --- the protocol ----------------------------------------------------------------------------------------------------


def test_keep_alive_and_pipelining_answer_in_order(demo: DemoProcess, world: World) -> None:
    host = urlsplit(world.seeds[0]).netloc
    line = f"GET {{}} HTTP/1.1\r\nHost: {host}\r\n{{}}\r\n"
    asked = [line.format("/nowhere", ""), line.format("/", ""), line.format("/robots.txt", "Connection: close\r\n")]
    answers = raw(demo, host, *(text.encode() for text in asked))
    assert [part[:3] for part in answers.split(b"HTTP/1.1 ")[1:]] == [b"404", b"200", get_robots_status(demo, host)]
    mine = read_log(demo.log_path)[-4:-1]
    assert len({entry.conn for entry in mine}) == 1
    assert overlaps(mine) == []


def get_robots_status(demo: DemoProcess, host: str) -> bytes:
    return str(get(demo, f"http://{host}/robots.txt")[0]).encode()


def test_head_has_no_body(demo: DemoProcess, world: World) -> None:
    status, headers, body = get(demo, world.seeds[0], "HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 1_000


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST / HTTP/1.1\r\nHost: x\r\n\r\n", b"405"),
        (b"hello\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: not-here.test\r\nConnection: close\r\n\r\n", b"421"),
        (b"GET / HTTP/1.0\r\nHost: not-here.test\r\n\r\n", b"421"),
    ],
)
def test_bad_requests(demo: DemoProcess, world: World, sent: bytes, status: bytes) -> None:
    assert raw(demo, urlsplit(world.seeds[0]).netloc, sent).startswith(b"HTTP/1.1 " + status)


# --- the log ---------------------------------------------------------------------------------------------------------


def test_every_request_is_in_the_log_before_its_answer_arrives(demo: DemoProcess, world: World) -> None:
    url = world.seeds[1]
    host = urlsplit(url).netloc
    for number in range(1, 4):
        get(demo, f"{url}log?n={number}", If_None_Match='"mine"')
        [entry] = entries(demo, host, f"/log?n={number}")
        assert (entry.status, entry.agent, entry.if_none_match, entry.method) == (404, AGENT, '"mine"', "GET")
        assert entry.address == resolve(demo, host)[0]
        assert entry.t_start <= entry.t_end
    log = [entry for entry in read_log(demo.log_path) if entry.path.startswith("/log?")]
    assert gaps(log)[host] > 0
    assert overlaps(log) == []
    assert len({entry.conn for entry in log}) == 3


def test_two_requests_at_once_to_one_host_are_seen(demo: DemoProcess, world: World) -> None:
    host = host_of(world, "slow_300ms")
    request = f"GET /twice HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
    with socket.create_connection(resolve(demo, host)) as one, socket.create_connection(resolve(demo, host)) as two:
        one.sendall(request)
        two.sendall(request)
        assert one.recv(100)
        assert two.recv(100)
    pair = entries(demo, host, "/twice")
    assert len(overlaps(pair)) == 1
    assert gaps(pair)[host] < 0
    assert min(entry.t_end - entry.t_start for entry in pair) >= 0.3


def test_a_client_that_leaves_is_logged_too(demo: DemoProcess, world: World) -> None:
    host = host_of(world, "slow_1s")
    with socket.create_connection(resolve(demo, host)) as sock:
        sock.sendall(f"GET /leaving HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert eventually(lambda: bool(entries(demo, host, "/leaving")))
    assert entries(demo, host, "/leaving")[0].status == 499


# --- the process -----------------------------------------------------------------------------------------------------


def gone(pid: int) -> bool:
    """True if no such process runs (a zombie that nobody reaps runs no more)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def test_it_stops_by_its_pid_and_leaves_no_hosts_file(tmp_path: Path) -> None:
    with start_in_process(tmp_path, 3, MIN_HOSTS, pages=PAGES) as demo:
        facts = json.loads((tmp_path / "demo.hosts.json").read_text())
        assert (facts["pid"], facts["port"], facts["admin_port"]) == (demo.pid, demo.port, demo.admin_port)
        where = resolve(demo, urlsplit(demo.seeds[0]).netloc)
        with socket.create_connection(where):
            os.kill(demo.pid, signal.SIGTERM)
            assert demo.process.wait(DEADLINE_S) == 0
        assert not demo.hosts_file.exists()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(where)
        assert demo.stop() == 0  # a second stop is harmless


def test_it_stops_when_its_parent_is_killed(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys, time\nfrom spindle.demo import launch\n"
        f"launch(pathlib.Path(sys.argv[1]), 3, {MIN_HOSTS}, pages={PAGES})\ntime.sleep({DEADLINE_S})"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    try:
        assert eventually((tmp_path / "demo.hosts").exists)
        child = json.loads((tmp_path / "demo.hosts.json").read_text())["pid"]
    finally:
        parent.kill()
        parent.wait()
    assert eventually(lambda: gone(child))
    assert not (tmp_path / "demo.hosts").exists()


def test_a_port_in_use_is_a_clear_error(demo: DemoProcess, tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match=rf"cannot listen on 127\.1\.0\.\d+, port {demo.port}: .*in use"),
        start_in_process(tmp_path, 3, MIN_HOSTS, pages=PAGES, port=demo.port),
    ):
        pass


def test_an_address_outside_loopback_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match="loopback addresses only"),
        start_in_process(tmp_path, 3, MIN_HOSTS, base_address="10.0.0.0"),
    ):
        pass


def test_the_command_tells_truth_and_seeds(world: World) -> None:
    def ran(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "spindle.demo", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)

    options = ("--seed=3", f"--hosts={MIN_HOSTS}", "--pages=8-12")
    assert ran("seeds", *options).stdout.split() == list(world.seeds)
    told = json.loads(ran("truth", *options).stdout)
    assert told["seeds"] == list(world.seeds)
    url = world.examples["gone"][0]
    assert (told["urls"][url]["status"], told["urls"][url]["fate"]) == (410, "fetch")
    bad = ran("seeds", "--hosts=3")
    assert (bad.returncode, bad.stderr.startswith("error: a demo web has at least")) == (2, True)
