"""A fetch task, seen from both sides: by the rows it leaves and by the log of the servers it visited."""

from __future__ import annotations

import asyncio
import email.utils
import errno
import gzip
import hashlib
import io
import itertools
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from warcio.archiveiterator import ArchiveIterator

from loopback import Fetched, Site, listing_row, run
from spindle import inbox, schema, urls
from spindle.fetcher import books, course, visit, wire
from spindle.fetcher.rows import as_seconds
from spindle.store import open_store
from spindle.wishes import What


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as one:
        yield one


def polite(**values: Any) -> dict[str, dict[str, Any]]:
    return {"politeness": values}


def fetch(**values: Any) -> dict[str, dict[str, Any]]:
    return {"fetch": values}


def check_records(found: Fetched) -> None:
    """Every pointer opens to the record of its URL, and every digest of every file holds (invariant 6)."""
    for row in found.rows:
        if row["warc_file"] is not None and row["type"] == "fetch":
            record = found.record(row)
            assert record.fields["warc-target-uri"] == row["url"]
            assert record.fields["warc-date"] == row["started_at"]
    for file in found.folder.glob("warc/*"):
        for record in ArchiveIterator(io.BytesIO(file.read_bytes()), check_digests=True):
            record.content_stream().read()
            assert record.digest_checker.passed is not False, record.digest_checker.problems


# --- rows


def test_every_listed_url_has_one_row_with_all_columns(site: Site) -> None:
    site.page("/a", "alpha")
    site.page("/gone", "gone", status=410)
    site.robots("User-agent: *\nDisallow: /private\n")
    pages = [site.url(path, host) for host in ("h.test", "g.test") for path in ("/a", "/gone", "/private/x", "/none")]
    found = run(site, pages)
    assert found.outcomes == {
        url: {"a": "ok", "gone": "gone", "x": "denied", "none": "not_found"}[url.rpartition("/")[2]] for url in pages
    }
    assert Counter(row["url_key"] for row in found.pages) == Counter({urls.url_key(url): 1 for url in pages})
    for row in found.rows:
        table = "fetches" if row["type"] == "fetch" else "robots"
        assert set(schema.columns(table)) <= row.keys()
    check_records(found)


def test_what_a_row_says_of_an_answer(site: Site) -> None:
    body = "<p>hello</p>"
    head = {"ETag": '"v1"', "Last-Modified": "Mon, 30 Nov 2026 00:00:00 GMT", "X-Robots-Tag": "noindex"}
    site.page("/a", gzip.compress(body.encode(), mtime=0), headers={**head, "Content-Encoding": "gzip"}, delay_s=0.1)
    found = run(site, [site.url("/a")])
    row = found.row(site.url("/a"))
    assert row["content_hash"] == hashlib.sha256(body.encode()).hexdigest()
    assert (row["body_bytes"], row["wire_bytes"]) == (len(body), len(gzip.compress(body.encode(), mtime=0)))
    assert (row["http_status"], row["content_type"], row["ip"], row["truncated"]) == (
        200,
        "text/html",
        "127.0.0.1",
        None,
    )
    assert (row["etag"], row["last_modified"], row["x_robots_tag"]) == tuple(head.values())
    assert (row["segment"], row["task"], row["epoch"], row["bucket"], row["depth"]) == ("t.1of1", 0, 1, 3, 1)
    assert row["duration_ms"] >= row["ttfb_ms"] >= 100
    assert row["started_at"] < row["ended_at"]
    assert row["started_at"].endswith("Z")
    assert row["month"] == row["started_at"][:7]
    record = found.record(row)
    assert record.http.body == gzip.compress(body.encode(), mtime=0), "the content coding stays on"
    assert record.http.header("content-encoding") == "gzip"


STATUSES = [
    (200, "ok"),
    (203, "ok"),
    (204, "ok"),
    (206, "ok"),
    (300, "protocol_error"),
    (304, "protocol_error"),  # nobody asked conditionally
    (400, "client_error"),
    (401, "forbidden"),
    (403, "forbidden"),
    (404, "not_found"),
    (410, "gone"),
    (418, "client_error"),
    (429, "throttled"),
    (451, "forbidden"),
    (500, "server_error"),
    (503, "throttled"),
    (599, "server_error"),
    (999, "protocol_error"),
]


def test_statuses_become_outcomes(site: Site) -> None:
    pages = {}
    for status, outcome in STATUSES:
        host = f"s{status}.test"
        site.page("/x", "" if status in (204, 304) else "text", status=status, host=host)
        pages[site.url("/x", host)] = (status, outcome)
    found = run(site, pages)
    assert {row["url"]: (row["http_status"], row["outcome"]) for row in found.pages} == pages
    assert all(row["warc_file"] for row in found.pages), "every answer with a status line is kept"
    check_records(found)


def test_bodies_that_are_not_whole(site: Site) -> None:
    """A cut page is usable and marked; one that broke off or ran out of time is a failure without a hash."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
    site.page("/long", b"x" * 5000, host="long.test")
    site.raw("/short", head + b"Content-Length: 500\r\n\r\nabc", host="short.test")
    site.raw("/chunks", head + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", host="chunks.test")

    def hang(connection: socket.socket) -> None:
        connection.sendall(head + b"Content-Length: 500\r\n\r\nabc")
        time.sleep(1.5)

    site.raw("/hang", hang, host="hang.test")
    names = ("long", "short", "chunks", "hang")
    limits = fetch(max_body_bytes=1000, read_timeout_s=0.4)
    found = run(site, [site.url(f"/{name}", f"{name}.test") for name in names], site.settings(limits))
    rows = {row["url"].rpartition("/")[2]: row for row in found.pages}
    assert {name: (rows[name]["outcome"], rows[name]["truncated"]) for name in names} == {
        "long": ("ok", "length"),
        "short": ("protocol_error", "disconnect"),
        "chunks": ("protocol_error", "disconnect"),
        "hang": ("timeout", "time"),
    }
    assert rows["long"]["content_hash"] == hashlib.sha256(b"x" * 1000).hexdigest()
    assert [rows[name]["content_hash"] for name in names[1:]] == [None] * 3
    for name in names:
        record = found.record(rows[name])
        assert record.fields["warc-truncated"] == rows[name]["truncated"]
        assert record.http.body == (b"x" * 1000 if name == "long" else b"abc")
    check_records(found)


def test_content_types_outside_the_accepted_set_stop_after_the_headers(site: Site) -> None:
    site.page("/v", b"x" * 100_000, content_type="video/mp4")
    site.page("/t", "text", content_type="Text/HTML; charset=utf-8")
    site.page("/n", "text", content_type=None)
    site.page("/e", "not here", status=404, content_type="image/png")
    found = run(site, [site.url(path) for path in ("/v", "/t", "/n", "/e")])
    assert list(found.outcomes.values()) == ["bad_type", "ok", "ok", "not_found"]
    row = found.row(site.url("/v"))
    assert (row["wire_bytes"], row["content_hash"], row["content_type"]) == (0, None, "video/mp4")
    assert found.record(row).http.header("x-crawler-content-length") == "100000"
    check_records(found)


def test_bombs_and_codings_that_cannot_be_undone(site: Site) -> None:
    site.page("/bomb", gzip.compress(bytes(30 << 20)), headers={"Content-Encoding": "gzip"})
    site.page("/odd", b"\x1f\x9d\x90" + bytes(50), headers={"Content-Encoding": "compress"})
    site.page("/half", gzip.compress(b"x" * 5000 + bytes(range(256)))[:-40], headers={"Content-Encoding": "gzip"})
    found = run(site, [site.url(path) for path in ("/bomb", "/odd", "/half")])
    rows = [found.row(site.url(path)) for path in ("/bomb", "/odd", "/half")]
    assert [(row["outcome"], row["truncated"]) for row in rows] == [
        ("too_large", "length"),
        ("protocol_error", None),
        ("ok", "unspecified"),
    ]
    assert [row["content_hash"] is None for row in rows] == [True, True, False]
    check_records(found)


# --- politeness, from the server's side


def test_the_gap_is_kept_on_every_path(site: Site) -> None:
    """robots.txt, pages, redirect hops and errors of one host: never two in flight, never closer than the delay."""
    site.page("/a", "a")
    site.redirect("/r", "/r2")
    site.redirect("/r2", "/a2")
    site.page("/a2", "a2")
    site.raw("/rst", b"")
    site.page("/slow", "s", delay_s=0.1)
    hosts = [f"h{n}.test" for n in range(5)]
    pages = [site.url(path, host) for path in ("/a", "/r", "/rst", "/slow", "/none") for host in hosts]
    found = run(site, pages, site.settings(polite(min_delay_s=0.15)))
    for host in hosts:
        assert len(site.seen(host=host)) == 9  # robots.txt, five pages, two hops, a second try on a new connection
        assert min(site.gaps(host)) >= 0.15, host
    gaps = [row["gap_ms"] for row in found.pages]
    assert min(gap for gap in gaps if gap is not None) >= 150
    assert len({row["host"] for row in found.pages}) == 5


def test_http_https_and_ports_of_a_host_count_together(site: Site) -> None:
    """apache/nutch#369: one queue whatever the scheme, case or port."""
    port = site.serve_tls("h.test")[0]
    hosts = site.folder / "both"
    hosts.write_text("127.0.0.1 h.test\n", encoding="utf-8")
    for path in "1234":
        site.page(f"/{path}", path)
    pages = [
        f"http://h.test:{site.port}/1",
        f"https://h.test:{port}/2",
        urls.normalize(f"HTTP://H.test.:{site.port}/3"),
        f"https://h.test:{port}/4",
    ]
    layers = polite(min_delay_s=0.2) | {"network": {"hosts_file": str(hosts)}} | fetch(verify_tls=False)
    found = run(site, pages, site.settings(layers))
    assert set(found.outcomes.values()) == {"ok"}
    assert len(found.robots) == 2, "robots.txt is per scheme, host and port"
    assert len(site.seen(host="h.test")) == 6
    assert min(site.gaps("h.test")) >= 0.2


def test_a_slow_answer_makes_a_longer_gap(site: Site) -> None:
    site.page("/slow", "x", delay_s=0.2)
    site.page("/b", "x")
    found = run(site, [site.url("/slow"), site.url("/b")], site.settings(polite(duration_factor=3.0)))
    assert site.gaps("h.test")[1] >= 0.6
    assert found.row(site.url("/b"))["gap_ms"] >= 600


def test_a_crawl_delay_is_obeyed_and_reported(site: Site) -> None:
    site.robots("User-agent: spindle\nCrawl-delay: 0.4\n")
    site.page("/a", "x")
    site.page("/b", "x")
    found = run(site, [site.url("/a"), site.url("/b")])
    assert min(site.gaps("h.test")) >= 0.4
    assert {row["crawl_delay_s"] for row in found.pages} == {0.4}
    assert found.robots[0]["crawl_delay_s"] == 0.4


def test_state_of_earlier_turns_holds(site: Site) -> None:
    """next_ok_at, back-off and crawl-delay come in through `hosts`."""
    site.page("/a", "x")
    now = time.time()
    hosts = {
        "h.test": {"host": "h.test", "next_ok_at": "2030-01-01T00:00:00Z", "backoff_level": 0},
        "g.test": {"host": "g.test", "backoff_until": now + 0.4, "backoff_level": 2, "crawl_delay_s": 0.3},
    }
    began = time.monotonic()
    pages = [site.url("/a"), site.url("/a", "g.test")]
    found = run(site, pages, site.settings(fetch(window_s=3.0)), hosts=hosts)
    assert [found.outcomes[page] for page in pages] == ["not_reached", "ok"]
    assert site.seen(host="h.test") == []
    assert site.seen(host="g.test")[0].started - began >= 0.35
    assert min(site.gaps("g.test")) >= 0.3


def test_throttling_slows_down_and_ends(site: Site) -> None:
    """apache/nutch#853: a host that answers 429 to everything gets few hits, and the task ends soon."""
    site.page("/x", "no", status=429)
    site.page("/a", "yes", host="good.test")
    pages = [site.url("/x")] + [site.url(f"/{n}") for n in range(50)] + [site.url("/a", "good.test")]
    for n in range(50):
        site.page(f"/{n}", "no", status=429)
    found = run(site, pages, site.settings(polite(host_failures=3, backoff_max_s=0.2)))
    counts = Counter(found.outcomes.values())
    assert counts == {"throttled": 3, "not_reached": 48, "ok": 1}
    assert len(site.paths("h.test")) == 3
    assert found.manifest["counts"]["not_reached"] == 48


@pytest.mark.parametrize(
    ("value", "kept", "gap", "why"),
    [
        ("1", 1.0, 1.0, "seconds"),
        ("0", 0.0, 0.0, "no wait asked for: the normal back-off"),
        (" 1 ", 1.0, 1.0, "blanks"),
        ("-5", None, 0.0, "negative: the normal back-off"),
        ("soon", None, 0.0, "garbage"),
        ("Mon, 01 Jan 2001 00:00:00 GMT", None, 0.0, "past"),
    ],
)
def test_retry_after(site: Site, value: str, kept: float | None, gap: float, why: str) -> None:
    site.page("/a", "no", status=503, headers={"Retry-After": value})
    site.page("/b", "yes")
    settings = site.settings(polite(backoff_max_s=0.1))
    found = run(site, [site.url("/a"), site.url("/b")], settings)
    assert found.row(site.url("/a"))["retry_after_s"] == kept, why
    assert site.gaps("h.test")[1] >= gap
    assert list(found.outcomes.values()) == ["throttled", "ok"]


def test_retry_after_as_a_date(site: Site) -> None:
    date = email.utils.formatdate(time.time() + 3, usegmt=True)
    site.page("/a", "no", status=429, headers={"Retry-After": date})
    site.page("/b", "yes")
    found = run(site, [site.url("/a"), site.url("/b")])
    assert 1.0 < found.row(site.url("/a"))["retry_after_s"] <= 3.0
    assert site.gaps("h.test")[1] >= 1.5


def test_retry_after_beyond_the_cap_parks_the_host(site: Site) -> None:
    site.page("/a", "no", status=429, headers={"Retry-After": "99999999999"})
    site.page("/b", "yes")
    found = run(site, [site.url("/a"), site.url("/b")])
    assert list(found.outcomes.values()) == ["throttled", "not_reached"]
    row = found.row(site.url("/a"))
    assert row["next_ok_at"] > "2026"
    assert row["retry_after_s"] <= 366 * 86400


def test_a_connection_found_closed_costs_the_url_nothing_and_the_site_a_gap(site: Site) -> None:
    """No hidden retry (aiohttp#10790): the second try is ours, after the host's gap, and there is one row."""
    site.page("/a", "a")
    site.raw("/b", b"")
    site.page("/b", "b")
    found = run(site, [site.url("/a"), site.url("/b")], site.settings(polite(min_delay_s=0.2)))
    assert list(found.outcomes.values()) == ["ok", "ok"]
    assert site.paths() == ["/a", "/b", "/b"]
    assert min(site.gaps("h.test")) >= 0.2
    assert found.manifest["counts"]["stale_connections"] == 1


def test_hosts_on_one_address_share_its_cap(site: Site) -> None:
    for n in range(12):
        site.page("/x", "x", host=f"h{n}.test", delay_s=0.1)
    pages = [site.url("/x", f"h{n}.test") for n in range(12)]
    found = run(site, pages, site.settings(polite(address_max_open=2)))
    assert set(found.outcomes.values()) == {"ok"}
    log = [request for request in site.seen() if request.path == "/x"]
    for request in log:
        open_then = [one for one in log if one.started <= request.started < one.ended - 0.02]
        assert len(open_then) <= 2


def test_a_task_keeps_to_its_part_of_an_address(site: Site) -> None:
    """Hosts never met, which generate has looked up and packed into four tasks: of a cap of 8 this one opens 2."""
    hosts = [f"h{n}.test" for n in range(8)]
    site.page("/x", "x", delay_s=0.2)
    rows = [listing_row(site.url("/x", host), n, ip="127.0.0.1", ip_tasks=4) for n, host in enumerate(hosts)]
    found = run(site, rows, site.settings(polite(address_max_open=8)))
    assert set(found.outcomes.values()) == {"ok"}
    log = [request for request in site.seen() if request.path == "/x"]
    for request in log:
        assert len([one for one in log if one.started <= request.started < one.ended - 0.02]) <= 2


# --- robots.txt


ROBOTS = [
    (200, "User-agent: *\nDisallow: /", "denied", "rules", "forbidden"),
    (200, "User-agent: *\nDisallow: /other", "ok", "rules", "allowed"),
    (200, "", "ok", "rules", "an empty file"),
    (200, "<html>not found</html>", "ok", "rules", "an HTML page gives no rules"),
    (204, "", "ok", "rules", "no content"),
    (404, "", "ok", "allow_all", "RFC 9309 2.3.1.3"),
    (401, "", "ok", "allow_all", "all of 4xx but 429"),
    (429, "", "robots_unreachable", "unreachable", "a site that asks for less gets less"),
    (500, "", "robots_unreachable", "unreachable", "RFC 9309 2.3.1.4"),
    (503, "User-agent: *\nAllow: /", "robots_unreachable", "unreachable", "its body does not count"),
]


def test_robots_statuses(site: Site) -> None:
    pages = {}
    for number, (status, text, outcome, verdict, _) in enumerate(ROBOTS):
        host = f"r{number}.test"
        site.page("/x", "x", host=host)
        site.robots(text, status=status, host=host)
        pages[site.url("/x", host)] = (outcome, verdict)
    found = run(site, pages)
    verdicts = {row["origin"]: row["verdict"] for row in found.robots}
    assert {url: (found.outcomes[url], verdicts[urls.origin_of(url)]) for url in pages} == pages
    asked = {request.host for request in site.seen("/x")}
    assert asked == {urls.host_of(url) for url, (outcome, _) in pages.items() if outcome == "ok"}
    assert all(row["warc_file"] for row in found.robots), "responses are kept too"


def test_unreachable_robots_forbid_everything_of_their_host_and_nothing_else(site: Site) -> None:
    """Scrapling#437: 5xx or silence was read as permission."""

    def silent(connection: socket.socket) -> None:
        time.sleep(1.0)

    site.page("/a", "x")
    site.robots("", status=503, host="down.test")
    site._pages[("dead.test", "/robots.txt")] = []
    site.raw("/robots.txt", silent, host="dead.test")
    hosts = ("down.test", "dead.test", "up.test")
    pages = [site.url(f"/{path}", host) for host in hosts for path in ("a", "b", "c")]
    found = run(site, pages, site.settings(fetch(read_timeout_s=0.3)))
    for host in hosts[:2]:
        assert {found.outcomes[site.url(f"/{path}", host)] for path in "abc"} == {"robots_unreachable"}
        assert [request.path for request in site.seen(host=host)] == ["/robots.txt"]
    assert found.outcomes[site.url("/a", "up.test")] == "ok"
    unreachable = {row["host"]: row for row in found.robots}
    assert (
        unreachable["dead.test"]["unreachable_since"] == unreachable["dead.test"]["attempted_at"]
        or unreachable["dead.test"]["unreachable_since"] > unreachable["dead.test"]["attempted_at"]
    )


def test_robots_that_come_back_are_obeyed_and_nothing_was_fetched_before(site: Site) -> None:
    """The same, and its other half: 503 once, then a file. Its bad word is short-lived: asked again after an hour."""
    for path in ("/a", "/b", "/private"):
        site.page(path, "x")
    site.page("/robots.txt", "", status=503, host="h.test")
    site.page("/robots.txt", "User-agent: *\nDisallow: /private", content_type="text/plain", host="h.test")
    pages = [site.url(path) for path in ("/a", "/b", "/private")]
    first = run(site, pages)
    assert set(first.outcomes.values()) == {"robots_unreachable"}
    (row,) = first.robots
    assert as_seconds(row["expires_at"]) - as_seconds(row["attempted_at"]) < 2 * 3600
    second = run(site, pages, robots={row["origin"]: row | {"expires_at": row["attempted_at"]}})
    assert list(second.outcomes.values()) == ["ok", "ok", "denied"]
    assert sorted(site.paths()) == ["/a", "/b"]


def robots_of(**values: Any) -> dict[str, Any]:
    row = dict.fromkeys(schema.columns("robots"))
    return row | {"origin": "http://h.test", "host": "h.test", "verdict": "rules"} | values


def test_a_known_copy_serves_without_asking_while_it_is_fresh(site: Site) -> None:
    site.page("/a", "x")
    site.robots("User-agent: *\nDisallow: /a\n")
    now = time.time()
    known = robots_of(body="User-agent: *\nDisallow: /b\n", expires_at=now + 600, good_at=now - 60)
    found = run(site, [site.url("/a"), site.url("/b")], robots={"http://h.test": known})
    assert list(found.outcomes.values()) == ["ok", "denied"]
    assert found.robots == []
    assert site.seen("/robots.txt") == []
    expired = robots_of(body="User-agent: *\nDisallow: /b\n", expires_at=now - 1, good_at=now - 90000)
    found = run(site, [site.url("/a"), site.url("/b")], robots={"http://h.test": expired})
    assert list(found.outcomes.values()) == ["denied", "not_found"]


def test_an_old_copy_serves_while_robots_are_unreachable(site: Site) -> None:
    """RFC 9309 2.4, and its row keeps the copy and says since when."""
    site.page("/a", "x")
    site.robots("", status=500)
    now = time.time()
    known = robots_of(
        body="User-agent: *\nDisallow: /b\nCrawl-delay: 0.2", body_hash="h", expires_at=now - 1, good_at=now - 100_000
    )
    found = run(site, [site.url("/a"), site.url("/b")], robots={"http://h.test": known})
    assert list(found.outcomes.values()) == ["ok", "denied"]
    (row,) = found.robots
    assert (row["verdict"], row["http_status"], row["body"], row["body_hash"]) == ("rules", 500, known["body"], "h")
    assert row["unreachable_since"] is not None
    assert min(site.gaps("h.test")) >= 0.2


@pytest.mark.parametrize(
    ("hops", "outcome"), [(1, "denied"), (3, "denied"), (5, "denied"), (6, "ok")], ids=["1", "3", "5", "6 is too many"]
)
def test_robots_redirects(site: Site, hops: int, outcome: str) -> None:
    """apache/nutch#779; RFC 9309 2.3.1.2: five are followed, beyond that it may count as unavailable."""
    site._pages.pop((None, "/robots.txt"))
    steps = ["/robots.txt", *(f"/step{n}" for n in range(1, hops + 1))]
    for here, there in itertools.pairwise(steps):
        site.redirect(here, there, status=301)
    site.page(steps[-1], "User-agent: *\nDisallow: /", content_type="text/plain")
    site.page("/a", "x")
    found = run(site, [site.url("/a")], site.settings(polite(min_delay_s=0.1)))
    assert list(found.outcomes.values()) == [outcome]
    assert min(site.gaps("h.test"), default=1) >= 0.1
    assert len(found.robots) == 1


def test_a_robots_loop_ends(site: Site) -> None:
    site._pages.pop((None, "/robots.txt"))
    site.redirect("/robots.txt", "/robots.txt")
    site.page("/a", "x")
    found = run(site, [site.url("/a")])
    assert list(found.outcomes.values()) == ["ok"]
    assert found.robots[0]["error"] == "too many redirects"
    assert len(site.seen("/robots.txt")) == 6


def test_a_robots_redirect_to_a_host_of_the_task_obeys_that_hosts_gap(site: Site) -> None:
    site._pages.pop((None, "/robots.txt"))
    site.redirect("/robots.txt", site.url("/robots.txt", "www.test"), host="bare.test", status=301)
    site.page("/robots.txt", "User-agent: *\nDisallow: /no", host="www.test", content_type="text/plain")
    site.page("/a", "x")
    pages = [site.url(path, host) for host in ("www.test", "bare.test") for path in ("/a", "/no", "/b")]
    found = run(site, pages, site.settings(polite(min_delay_s=0.2)))
    assert [found.outcomes[site.url(path, "bare.test")] for path in ("/a", "/no", "/b")] == [
        "ok",
        "denied",
        "not_found",
    ]
    assert min(site.gaps("www.test")) >= 0.2
    assert min(site.gaps("bare.test")) >= 0.2
    assert [request.path for request in site.seen(host="www.test")].count("/robots.txt") == 2
    assert "robots_elsewhere" not in found.manifest["counts"] or not found.manifest["counts"]["robots_elsewhere"]
    assert {row["origin"]: row["host"] for row in found.robots} == {
        "http://bare.test": "bare.test",
        "http://www.test": "www.test",
    }


def test_a_robots_redirect_to_a_host_outside_the_task_is_one_counted_request(site: Site) -> None:
    site._pages.pop((None, "/robots.txt"))
    site.redirect("/robots.txt", site.url("/robots.txt", "other.test"), host="h.test")
    site.page("/robots.txt", "User-agent: *\nDisallow: /", host="other.test", content_type="text/plain")
    found = run(site, [site.url("/a"), site.url("/b")])
    assert set(found.outcomes.values()) == {"denied"}
    assert found.manifest["counts"]["robots_elsewhere"] == 1
    assert len(site.seen(host="other.test")) == 1


def test_a_robots_redirect_to_a_host_that_was_given_up_ends_as_unreachable(site: Site) -> None:
    site._pages.pop((None, "/robots.txt"))
    site.redirect("/robots.txt", site.url("/robots.txt", "www.test"), host="bare.test")
    site.page("/robots.txt", "", host="www.test", status=404, content_type="text/plain")
    for n in range(9):
        site.page(f"/{n}", "no", host="www.test", status=429)
    pages = [site.url(f"/{n}", "www.test") for n in range(9)] + [site.url("/a", "bare.test")]
    known = {"http://www.test": robots_of(origin="http://www.test", verdict="allow_all", expires_at=time.time() + 99)}
    limits = polite(host_failures=1, min_delay_s=0.3)
    found = run(site, pages, site.settings(limits), robots=known)
    assert found.outcomes[site.url("/a", "bare.test")] in ("robots_unreachable", "ok", "not_reached")
    assert len(site.seen(host="www.test")) <= 2
    assert len(found.outcomes) == 10


def test_a_robots_file_of_100_mb_is_read_to_its_bound(site: Site) -> None:
    """LAW-Unimi/BUbiNG#17: the first 500 KiB count, the rest is not even downloaded."""
    sent: list[int] = []

    def huge(connection: socket.socket) -> None:
        rules = b"User-agent: *\nDisallow: /early\n" + b"# padding\n" * 60_000 + b"Disallow: /late\n"
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 104857600\r\n\r\n" + rules)
        for _ in range(1000):
            sent.append(connection.send(b"# more\n" * 15_000))

    site._pages.pop((None, "/robots.txt"))
    site.raw("/robots.txt", huge)
    site.page("/late", "x")
    found = run(site, [site.url("/early"), site.url("/late")])
    assert list(found.outcomes.values()) == ["denied", "ok"]
    assert sum(sent) < 20_000_000


def test_bytes_of_robots_survive_as_text(site: Site) -> None:
    """A table holds text: what comes back from it must forbid the same, BOM, UTF-16 and stray bytes included."""
    latin, utf16 = b"User-agent: *\nDisallow: /caf\xe9\n", "\ufeffUser-agent: *\nDisallow: /x\n".encode("utf-16-le")
    site.robots(latin, host="latin.test")
    site.robots(utf16, host="utf16.test")
    pages = [site.url("/caf%E9", "latin.test"), site.url("/x", "utf16.test")]
    first = run(site, pages)
    assert set(first.outcomes.values()) == {"denied"}
    second = run(site, pages, robots={row["origin"]: row for row in first.robots})
    assert set(second.outcomes.values()) == {"denied"}
    assert second.robots == []


# --- redirects


def test_a_redirect_on_the_same_host_is_followed_in_a_row_of_its_own(site: Site) -> None:
    site.redirect("/old", "/new", status=301)
    site.page("/new", "here")
    found = run(site, [site.url("/old")])
    old, new = found.row(site.url("/old")), found.row(site.url("/new"))
    assert (old["outcome"], old["redirect_to"], old["hop"], old["via_key"]) == ("redirect", site.url("/new"), 0, None)
    assert (new["outcome"], new["hop"], new["via_key"]) == ("ok", 1, old["url_key"])
    assert new["url_key"] == urls.url_key(site.url("/new"))
    assert (new["bucket"], new["depth"], new["kind"]) == (old["bucket"], old["depth"], old["kind"])


def test_redirects_that_are_not_followed(site: Site) -> None:
    site.redirect("/elsewhere", "http://other.test/x")
    site.redirect("/listed", "/b")
    site.redirect("/denied", "/private")
    site.redirect("/scope", "/out-of-scope")
    site.redirect("/self", "/self")
    site.redirect("/ftp", "ftp://h.test/x")
    site.page("/none", b"", status=302)
    site.page("/b", "b")
    site.robots("User-agent: *\nDisallow: /private\n")
    paths = ["/elsewhere", "/listed", "/denied", "/scope", "/self", "/ftp", "/none", "/b"]
    found = run(site, [site.url(path) for path in paths], scope=lambda url: "out-of-scope" not in url)
    assert sorted(site.paths()) == sorted(paths), "each listed URL once, and no target"
    hops = [(row["url"], row["outcome"]) for row in found.pages if row["hop"]]
    assert hops == [(site.url("/private"), "denied")]
    assert found.row(site.url("/elsewhere"))["redirect_to"] == "http://other.test/x"
    assert found.row(site.url("/listed"))["redirect_to"] == site.url("/b")
    assert "scheme" in found.row(site.url("/ftp"))["error"]
    assert found.row(site.url("/none"))["error"] == "redirect without Location"


def test_redirect_chains_end_at_the_limit_and_loops_at_once(site: Site) -> None:
    """nutch#485: A leads over 6 hops to B, limit 5: B is not touched. A million redirects end just so."""
    for n in range(1000):
        site.redirect(f"/c{n}", f"/c{n + 1}")
    site.redirect("/l1", "/l2")
    site.redirect("/l2", "/l1")
    found = run(site, [site.url("/c0"), site.url("/l1")], site.settings(fetch(max_redirects=5)))
    assert [path for path in site.paths() if path.startswith("/c")] == [f"/c{n}" for n in range(6)]
    assert [path for path in site.paths() if path.startswith("/l")] == ["/l1", "/l2"]
    assert [row["hop"] for row in found.pages if "/c" in row["url"]] == [0, 1, 2, 3, 4, 5]


def test_many_urls_with_one_target_fetch_it_once(site: Site) -> None:
    for n in range(5):
        site.redirect(f"/{n}", "/login")
    site.page("/login", "please")
    found = run(site, [site.url(f"/{n}") for n in range(5)])
    assert site.paths().count("/login") == 1
    assert Counter(row["hop"] for row in found.pages) == {0: 5, 1: 1}


def test_a_redirect_target_of_raw_bytes_is_escaped_as_it_stands(site: Site) -> None:
    """aiohttp#10047: the byte was dropped and another page asked for."""
    site.raw("/a", b"HTTP/1.1 302 Found\r\nLocation: /caf\xe9/\r\nContent-Length: 0\r\n\r\n")
    site.page("/caf%E9/", "here")
    found = run(site, [site.url("/a")])
    assert site.paths() == ["/a", "/caf%E9/"]
    assert found.row(site.url("/caf%E9/"))["outcome"] == "ok"


def test_a_redirect_between_spellings_ends(site: Site) -> None:
    """aiohttp#6626: /w/A_&_B leads to /w/A_%26_B, which answers; the bytes on the wire are the key in the table."""
    site.redirect("/w/A_&_B", "/w/A_%26_B")
    site.page("/w/A_%26_B", "here")
    found = run(site, [site.url("/w/A_&_B")])
    assert site.paths() == ["/w/A_&_B", "/w/A_%26_B"]
    assert [row["outcome"] for row in found.pages] == ["redirect", "ok"]


def test_hops_stay_within_the_hosts_budget(site: Site) -> None:
    for n in range(3):
        site.redirect(f"/{n}", f"/t{n}")
    found = run(site, [site.url(f"/{n}") for n in range(3)], site.settings({"generate": {"host_budget": 4}}))
    assert len(site.paths()) == 4
    assert found.manifest["counts"]["hops_over_budget"] == 2


# --- conditional requests and revisits


def test_304_costs_no_body_and_is_a_revisit(site: Site) -> None:
    site.page("/a", "same")
    first = run(site, [site.url("/a")])
    old = first.row(site.url("/a"))
    site._pages[(None, "/a")] = []
    site.page("/a", "", status=304, headers={"ETag": '"v1"'})
    row = listing_row(
        site.url("/a"),
        etag='"v1"',
        last_modified="Mon, 30 Nov 2026 00:00:00 GMT",
        content_hash=old["content_hash"],
        warc_file="segment-files/old/" + old["warc_file"],
        warc_offset=old["warc_offset"],
        warc_length=old["warc_length"],
        record_date=old["started_at"],
    )
    found = run(site, [row])
    new = found.row(site.url("/a"))
    assert (new["outcome"], new["http_status"], new["content_hash"]) == ("not_modified", 304, old["content_hash"])
    headers = site.seen("/a")[1].headers
    assert headers["if-none-match"] == '"v1"'
    assert headers["if-modified-since"] == "Mon, 30 Nov 2026 00:00:00 GMT"
    record = found.record(new)
    assert record.type == "revisit"
    assert record.fields["warc-profile"].endswith("server-not-modified")
    assert record.fields["warc-refers-to-date"] == old["started_at"]
    assert record.fields["warc-refers-to-target-uri"] == site.url("/a")
    assert record.location == (row["warc_file"], old["warc_offset"], old["warc_length"])
    check_records(found)


def test_no_condition_without_the_content(site: Site) -> None:
    site.page("/a", "x")
    run(site, [listing_row(site.url("/a"), etag='"v1"')])
    assert not {"if-none-match", "if-modified-since"} & site.seen("/a")[0].headers.keys()


def test_validators_that_are_no_header_are_not_sent(site: Site) -> None:
    site.page("/a", "x")
    bad = listing_row(site.url("/a"), etag='"v\r\nX-Evil: 1"', last_modified="caf\xe9", content_hash="0" * 64)
    found = run(site, [bad])
    assert found.row(site.url("/a"))["outcome"] == "ok"
    assert not {"if-none-match", "if-modified-since", "x-evil"} & site.seen("/a")[0].headers.keys()


def test_a_payload_the_host_has_given_already_is_a_revisit(site: Site) -> None:
    site.page("/1", "the same words")
    site.page("/2", "the same words")
    site.page("/3", "other words")
    found = run(site, [site.url(f"/{n}") for n in (1, 2, 3)] + [site.url("/1", "g.test")])
    records = {row["url"]: found.record(row) for row in found.pages}
    first, again = records[site.url("/1")], records[site.url("/2")]
    assert [record.type for record in records.values()].count("revisit") == 1
    assert again.type == "revisit"
    assert again.fields["warc-refers-to-target-uri"] == site.url("/1")
    assert again.fields["warc-refers-to-date"] == first.fields["warc-date"]
    assert again.fields["warc-payload-digest"] == first.fields["warc-payload-digest"]
    hashes = {row["url"]: row["content_hash"] for row in found.pages}
    assert hashes[site.url("/1")] == hashes[site.url("/2")]
    check_records(found)


@pytest.mark.parametrize("coding", ["same", "other"])
def test_an_unchanged_page_is_a_revisit_of_its_last_record_if_the_stored_payload_is_the_same(
    site: Site, coding: str
) -> None:
    """Equal content in another content coding is another payload: a reader of the revisit could not decode it."""
    site.page("/a", "words that stay")
    first = run(site, [site.url("/a")])
    old = first.row(site.url("/a"))
    if coding == "other":
        site._pages[(None, "/a")] = []
        site.page("/a", gzip.compress(b"words that stay"), headers={"Content-Encoding": "gzip"})
    known = {name: old[name] for name in ("content_hash", "warc_file", "warc_offset", "warc_length")}
    row = listing_row(site.url("/a"), record_date=old["started_at"], **known)
    store = open_store(first.folder)
    found = run(site, [row], read_earlier=lambda place: store.get_range(place.file, place.offset, place.length))
    new = found.row(site.url("/a"))
    assert new["content_hash"] == old["content_hash"]
    assert found.record(new).type == ("revisit" if coding == "same" else "response")


# --- the end of a task


def test_the_window_ends_and_the_rest_is_not_reached(site: Site) -> None:
    for n in range(40):
        site.page(f"/{n}", "x")
    settings = site.settings(polite(min_delay_s=0.1), fetch(window_s=1.0))
    found = run(site, [site.url(f"/{n}") for n in range(40)])
    assert Counter(found.outcomes.values()) == {"ok": 40}
    site.requests.clear()
    found = run(site, [site.url(f"/{n}") for n in range(40)], settings)
    counts = Counter(found.outcomes.values())
    assert counts["ok"] + counts["not_reached"] == 40
    assert 3 <= counts["ok"] <= 10
    assert found.manifest["stopped"] == "window"
    assert len(site.paths()) == counts["ok"]


def test_a_long_rest_is_sealed_in_parts(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """100,000 URLs not reached are 100 MB of rows: they must not all be held until the end."""
    monkeypatch.setattr(books, "_ROWS_A_PART", 10)
    pages = [site.url(f"/{n}") for n in range(45)]
    found = run(site, pages, site.settings(fetch(window_s=0.0)))
    assert Counter(row["url"] for row in found.pages) == Counter(pages)
    assert set(found.outcomes.values()) == {"not_reached"}
    assert len(found.manifest["parts"]) == 5
    assert found.manifest["counts"] == {"not_reached": 45}


def test_nothing_is_sent_within_one_deadline_of_the_leases_end(site: Site) -> None:
    for n in range(40):
        site.page(f"/{n}", "x")
    settings = site.settings(polite(min_delay_s=0.1), fetch(total_timeout_s=2.0))
    until = time.time() + 2.6
    end = time.monotonic() + 0.6
    found = run(site, [site.url(f"/{n}") for n in range(40)], settings, lease_until=until)
    assert "not_reached" in found.outcomes.values()
    assert max(request.started for request in site.requests) <= end + 0.05


def test_an_idle_task_does_not_wait_for_its_window(site: Site) -> None:
    """A crawl-delay longer than the window: the rest can never be reached, so the task ends at once."""
    site.robots("User-agent: *\nCrawl-delay: 3000\n")
    began = time.monotonic()
    found = run(site, [site.url("/a"), site.url("/b")], site.settings(fetch(window_s=60.0)))
    assert list(found.outcomes.values()) == ["not_reached", "not_reached"]
    assert time.monotonic() - began < 20


def test_the_tail_is_cut_by_the_rule_of_the_configuration(site: Site) -> None:
    pages = [site.url("/x", f"h{n}.test") for n in range(20)] + [site.url(f"/{n}", "long.test") for n in range(200)]
    limits = polite(min_delay_s=0.1), fetch(tail_hosts=2, tail_s=1.0)
    found = run(site, pages, site.settings(*limits))
    counts = Counter(found.outcomes.values())
    assert found.manifest["stopped"] == "tail"
    assert counts["not_reached"] > 100
    assert counts["not_found"] >= 20


def test_a_single_site_has_no_tail(site: Site) -> None:
    limits = polite(min_delay_s=0.05), fetch(tail_hosts=2, tail_s=0.1)
    found = run(site, [site.url(f"/{n}") for n in range(30)], site.settings(*limits))
    assert set(found.outcomes.values()) == {"not_found"}
    assert found.manifest["stopped"] is None


def dead_hosts(site: Site, *names: str) -> dict[str, dict[str, Any]]:
    """These names lead to a closed port."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    hosts = site.folder / "dead"
    lines = [f"127.0.0.1:{port} {' '.join(names)}", f"127.0.0.1:{site.port} *.test"]
    hosts.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {"network": {"hosts_file": str(hosts)}}


def allowed(*names: str) -> dict[str, Any]:
    """Rows of `robots` that spare the question."""
    row = robots_of(verdict="allow_all", expires_at=time.time() + 600)
    return {f"http://{name}": {**row, "origin": f"http://{name}"} for name in names}


def test_a_host_that_fails_n_times_in_a_row_is_left_alone(site: Site) -> None:
    pages = [site.url(f"/{n}", "dead.test") for n in range(20)] + [site.url("/a", "up.test")]
    site.page("/a", "x")
    settings = site.settings(dead_hosts(site, "dead.test"), polite(host_failures=4))
    found = run(site, pages, settings, robots=allowed("dead.test"))
    assert Counter(found.outcomes.values()) == {"connect_error": 4, "not_reached": 16, "ok": 1}


def test_when_nearly_everything_fails_the_fault_is_ours_and_no_url_pays(site: Site) -> None:
    names = [f"dead{n}.test" for n in range(30)]
    pages = [site.url(f"/{n}", name) for n in range(3) for name in names]
    settings = site.settings(dead_hosts(site, *names), fetch(our_fault_window=20, max_open=5))
    found = run(site, pages, settings, robots=allowed(*names))
    assert set(found.outcomes.values()) == {"not_reached"}
    assert found.manifest["stopped"] == "our_fault"
    assert {row["error"] for row in found.pages} == {"our_fault"}
    assert {row["started_at"] for row in found.pages} == {None}


def test_our_fault_also_spares_what_robots_would_have_cost(site: Site) -> None:
    """With the network down robots.txt fails first: no origin is remembered as unreachable for it."""
    names = [f"dead{n}.test" for n in range(15)]
    found = run(site, [site.url("/x", name) for name in names], site.settings(dead_hosts(site, *names)))
    assert set(found.outcomes.values()) == {"not_reached"}
    assert found.robots == []
    assert found.manifest["stopped"] == "our_fault"


def test_a_few_dead_hosts_are_their_own_fault(site: Site) -> None:
    names = [f"dead{n}.test" for n in range(5)]
    site.page("/x", "x")
    pages = [site.url("/x", name) for name in [*names, *(f"up{n}.test" for n in range(30))]]
    settings = site.settings(dead_hosts(site, *names), fetch(our_fault_window=10))
    found = run(site, pages, settings, robots=allowed(*names))
    assert Counter(found.outcomes.values()) == {"connect_error": 5, "ok": 30}


def test_a_host_that_is_paused_in_the_table_is_left_alone(site: Site) -> None:
    hosts = {"h.test": {"host": "h.test", "paused": True}}
    found = run(site, [site.url("/a"), site.url("/a", "g.test")], hosts=hosts)
    assert [found.outcomes[site.url("/a", host)] for host in ("h.test", "g.test")] == ["not_reached", "not_found"]
    assert site.seen(host="h.test") == []


def test_running_out_of_sockets_is_charged_to_nobody(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """EMFILE is our machine's trouble: the URL is asked again, and the host has not failed."""
    real, refused = socket.socket, []

    def scarce(*args: Any, **options: Any) -> Any:
        if args and args[0] == socket.AF_INET and len(refused) < 3:
            refused.append(args)
            raise OSError(errno.EMFILE, "Too many open files")
        return real(*args, **options)

    site.page("/a", "x")
    monkeypatch.setattr(wire.socket, "socket", scarce)
    found = run(site, [site.url("/a")], site.settings(polite(host_failures=1)))
    assert found.outcomes == {site.url("/a"): "ok"}
    assert found.manifest["counts"]["out_of_sockets"] == 3


def test_a_long_list_of_denials_lets_the_loop_breathe(site: Site) -> None:
    site.robots("User-agent: *\nDisallow: /\n")
    pages = [site.url(f"/{n}", host) for n in range(1500) for host in ("h.test", "g.test")]
    found = run(site, pages)
    assert Counter(found.outcomes.values()) == {"denied": 3000}
    assert site.paths() == []


# --- the operator's word


@pytest.fixture
def quick_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(course, "POLL_S", 0.1)
    monkeypatch.setattr(visit, "POLL_S", 0.1)
    monkeypatch.setattr(course, "TICK_S", 0.05)


def during(
    site: Site,
    tmp_path: Path,
    pages: list[str],
    settings: Any,
    *acts: tuple[float, What, str | None, str | None],
    **more: Any,
) -> Fetched:
    """Run a task while wishes (what, host, value) are made at the given seconds."""
    store = open_store(tmp_path)

    def act() -> None:
        began = time.monotonic()
        for at, what, host, value in acts:
            time.sleep(max(0.0, began + at - time.monotonic()))
            inbox.write(store, what, at="2026-12-01T00:00:00Z", who="me", host=host, value=value)

    thread = threading.Thread(target=act)
    thread.start()
    try:
        return run(site, pages, settings, root=tmp_path / "segment", ear=inbox.Ear(store), **more)
    finally:
        thread.join()


@pytest.mark.usefixtures("quick_poll")
def test_stop_drains_the_task_of_its_segment_and_no_other(site: Site, tmp_path: Path) -> None:
    pages = [site.url(f"/{n}") for n in range(200)]
    acts = (0.0, What.STOP, None, "other.1of1"), (0.5, What.STOP, None, "t.1of1")
    found = during(site, tmp_path, pages, site.settings(polite(min_delay_s=0.1)), *acts)
    counts = Counter(found.outcomes.values())
    assert found.manifest["stopped"] == "stop"
    assert counts["not_reached"] > 150
    assert counts["not_found"] == len(site.paths()) > 0


@pytest.mark.usefixtures("quick_poll")
def test_pause_holds_everything_and_ends(site: Site, tmp_path: Path) -> None:
    pages = [site.url(f"/{n}", host) for n in range(8) for host in ("h.test", "g.test")]
    acts = (0.3, What.PAUSE, None, None), (1.6, What.RESUME, None, None)
    found = during(site, tmp_path, pages, site.settings(polite(min_delay_s=0.1)), *acts)
    assert set(found.outcomes.values()) == {"not_found"}
    starts = sorted(request.started for request in site.requests)
    assert max(after - before for before, after in itertools.pairwise(starts)) > 0.8


@pytest.mark.usefixtures("quick_poll")
def test_a_block_takes_effect_while_the_task_runs(site: Site, tmp_path: Path) -> None:
    pages = [site.url(f"/{n}", host) for n in range(30) for host in ("h.test", "g.test")]
    act = (0.5, What.BLOCK, "h.test", None)
    found = during(site, tmp_path, pages, site.settings(polite(min_delay_s=0.1)), act)
    blocked = [row for row in found.pages if row["host"] == "h.test"]
    assert Counter(row["outcome"] for row in blocked)["not_reached"] > 10
    assert {row["error"] for row in blocked if row["outcome"] == "not_reached"} == {"blocked"}
    assert len(site.paths("h.test")) < 20
    assert len(site.paths("g.test")) == 30


@pytest.mark.usefixtures("quick_poll")
def test_a_limit_and_a_pause_of_one_host(site: Site, tmp_path: Path) -> None:
    pages = [site.url(f"/{n}", host) for host, many in (("h.test", 6), ("g.test", 25)) for n in range(many)]
    words = [
        (0.2, What.LIMIT, "h.test", "0.5"),
        (0.2, What.PAUSE, "g.test", None),
        (1.5, What.RESUME, "g.test", None),
    ]
    found = during(site, tmp_path, pages, site.settings(polite(min_delay_s=0.1)), *words)
    assert set(found.outcomes.values()) == {"not_found"}
    assert sorted(site.gaps("h.test"))[-3] >= 0.5
    assert max(site.gaps("g.test")) > 0.8


def test_what_stood_before_the_task_holds_from_its_first_request(site: Site, tmp_path: Path) -> None:
    """And the later wish counts more than the table: what an operator resumed is not paused by an old row."""
    pages = [site.url(f"/{n}", host) for n in range(4) for host in ("h.test", "g.test", "i.test", "j.test")]
    store = open_store(tmp_path)
    for what, host, value in (
        (What.BLOCK, "h.test", None),
        (What.LIMIT, "g.test", "0.3"),
        (What.RESUME, "i.test", None),
        (What.UNLIMIT, "j.test", None),
    ):
        inbox.write(store, what, at="2026-12-01T00:00:00Z", who="me", host=host, value=value)
    hosts = {"i.test": {"paused": True}, "j.test": {"limit_delay_s": 30.0}}
    found = during(site, tmp_path, pages, site.settings(polite(min_delay_s=0.05)), hosts=hosts)
    assert site.paths("h.test") == []
    assert {row["error"] for row in found.pages if row["host"] == "h.test"} == {"blocked"}
    assert min(site.gaps("g.test")) >= 0.3
    assert len(site.paths("i.test")) == len(site.paths("j.test")) == 4


@pytest.mark.usefixtures("quick_poll")
def test_a_word_that_cannot_be_read_changes_nothing(site: Site, tmp_path: Path) -> None:
    pages = [site.url(f"/{n}") for n in range(8)]
    for number, word in enumerate((b"{", b"[1]", b'{"what": "block", "host": 7}', b'{"what": "limit"}')):
        open_store(tmp_path).put(f"inbox-files/{number + 1:09d}.json", word)
    found = during(site, tmp_path, pages, site.settings(polite(min_delay_s=0.1)))
    assert set(found.outcomes.values()) == {"not_found"}


@pytest.mark.usefixtures("quick_poll")
def test_progress_is_there_while_it_runs(site: Site, tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []

    def look() -> None:
        until = time.monotonic() + 1.2
        while time.monotonic() < until:
            path = tmp_path / "journal/00000.progress"
            if path.exists():
                seen.append(json.loads(path.read_text()))
            time.sleep(0.05)

    thread = threading.Thread(target=look)
    thread.start()
    run(site, [site.url(f"/{n}") for n in range(15)], site.settings(polite(min_delay_s=0.1)), root=tmp_path)
    thread.join()
    assert {"pages", "errors", "hosts_left", "slowest_host", "urls_left"} <= seen[0].keys()
    assert seen[-1]["pages"] > seen[0]["pages"]
    assert seen[0]["hosts_left"] == 1


# --- what must not break it


def test_a_fault_of_ours_in_one_page_is_a_row_and_the_others_arrive(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """spark#33273: one poison URL failed the job. Whatever can be caught costs one row."""
    real = visit.judge

    def judge(answer: Any, page: Any, limits: Any) -> Any:
        if page.url.endswith("/60"):
            raise RecursionError("a fault in our code")
        return real(answer, page, limits)

    monkeypatch.setattr(visit, "judge", judge)
    for n in range(100):
        site.page(f"/{n}", "x")
    found = run(site, [site.url(f"/{n}", f"h{n % 10}.test") for n in range(100)])
    assert Counter(found.outcomes.values()) == {"ok": 99, "protocol_error": 1}
    row = found.row(site.url("/60", "h0.test"))
    assert "RecursionError" in row["error"]
    assert found.manifest["counts"]["internal_errors"] == 1


def test_two_tasks_one_after_the_other_in_one_process(site: Site, tmp_path: Path) -> None:
    """ray#47734: nothing is bound to a loop that is gone; Spark reuses its Python workers."""
    site.page("/a", "x")
    with pytest.raises(ZeroDivisionError):
        asyncio.run(_broken())
    for name in ("one", "two"):
        assert run(site, [site.url("/a")], root=tmp_path / name).outcomes == {site.url("/a"): "ok"}


async def _broken() -> None:
    await asyncio.sleep(0)
    raise ZeroDivisionError


def test_an_empty_listing_is_a_finished_task(site: Site) -> None:
    found = run(site, [])
    assert (found.rows, found.manifest["counts"], found.manifest["stopped"]) == ([], {}, None)
