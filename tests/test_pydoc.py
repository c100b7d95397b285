"""Real input: Debian's python3-doc, HTML that nobody here wrote, behind nginx. A crawl from its index must be complete.

What is to be found is computed here by other means (html.parser and urllib over the files on disk), so no code of
Spindle judges itself. `make test-heavy` installs both packages (tools/heavy.py).
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import pytest

from spindle.cli import crawl
from spindle.tables import open_warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.heavy

SITE = "http://docs.test"
#: What a site of one's own on loopback needs: no delay, one host may use the whole list, names and addresses of the
#: test. Traps, link and body limits are the shipped ones: real documentation must not run into them.
OWN_SITE = {
    "agent.contact": "https://docs.test/crawler",
    "warehouse.buckets": "2",
    "scope.follow": "host",
    "politeness.min_delay_s": "0",
    "politeness.duration_factor": "0",
    "generate.host_budget": "-1",
    "generate.host_day_budget": "-1",
    "generate.domain_budget": "-1",
    "network.hosts_file_only": "true",
    "network.allow_addresses": '["127.0.0.0/8"]',
}


@dataclass(frozen=True)
class Server:
    """The running nginx: where it listens, what it serves, what it was asked (`path status`, a line each)."""

    port: int
    root: Path
    log: Path

    def asked(self) -> list[tuple[str, int]]:
        lines = (line.split(" ") for line in self.log.read_text().splitlines())
        return [(path, int(status)) for path, status in lines]


def found_or_skip(found: object, what: str) -> None:
    """In CI nothing is skipped in silence."""
    if not found:
        text = f"{what} is not here; `make test-heavy` installs it as root"
        pytest.fail(text) if os.environ.get("CI") == "true" else pytest.skip(text)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """nginx in the foreground with a configuration of its own, stopped by its process id."""
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:" + os.environ["PATH"])
    index = next(iter(sorted(Path("/usr/share/doc").glob("python3.*/html/index.html"))), None)
    found_or_skip(nginx, "nginx")
    found_or_skip(index, "python3-doc")
    assert nginx is not None and index is not None
    folder = tmp_path_factory.mktemp("nginx")
    server = Server(free_port(), index.parent.resolve(), folder / "access.log")
    config = folder / "nginx.conf"
    config.write_text(nginx_config(server, folder))
    errors = folder / "stderr"
    with errors.open("wb") as sink:
        process = subprocess.Popen([nginx, "-p", folder, "-c", config, "-e", folder / "error.log"], stderr=sink)
    try:
        wait_until_open(server.port, process, errors)
        yield server
    finally:
        process.terminate()
        process.wait(10)


def nginx_config(server: Server, folder: Path) -> str:
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return f"""
        daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
        events {{ }}
        http {{
            {temporary}
            types {{ text/html html; text/plain txt; application/octet-stream py; }}
            log_format asked "$request_uri $status"; access_log {server.log} asked;
            server {{ listen 127.0.0.1:{server.port}; root {server.root}; }}
        }}"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_open(port: int, process: subprocess.Popen[bytes], errors: Path) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert process.poll() is None and time.monotonic() < deadline, errors.read_text()
            time.sleep(0.05)


class Links(HTMLParser):
    """Links and title of one page, by Python's own parser: the elements that lead to another page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.title: str | None = None
        self._in_title = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        told = dict(attributes)
        target = told.get("src" if tag in ("iframe", "frame") else "href")
        leads = set((told.get("rel") or "").lower().split()) & {"next", "prev", "alternate", "canonical"}
        if target and (tag in ("a", "area", "iframe", "frame") or (tag == "link" and leads)):
            self.links.append(target)
        if tag == "title" and self.title is None:
            self._in_title, self.title = True, ""

    def handle_endtag(self, tag: str) -> None:
        self._in_title = self._in_title and tag != "title"

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title = (self.title or "") + data


@dataclass
class Reachable:
    """What links lead to from the index, on this site: pages with their titles, and all else (missing, not HTML)."""

    titles: dict[str, str]
    others: set[str]


def reachable(root: Path) -> Reachable:
    found, waiting = Reachable({}, set()), [f"{SITE}/index.html"]
    while waiting:
        url = waiting.pop()
        file = root / unquote(urlsplit(url).path).lstrip("/")
        if url in found.titles or url in found.others:
            continue
        if not file.is_file() or file.suffix != ".html":
            found.others.add(url)
            continue
        page = Links()
        page.feed(file.read_text(encoding="utf-8"))
        found.titles[url] = " ".join((page.title or "").split())
        targets = (urldefrag(urljoin(url, link.strip())).url for link in page.links)
        waiting += [target for target in targets if target.startswith(f"{SITE}/")]
    return found


@pytest.mark.timeout(3000)
def test_every_page_of_python3_doc_is_fetched_once_and_has_its_title(
    spark: SparkSession, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = reachable(server.root)
    assert len(expected.titles) > 400, "python3-doc has some 500 pages: is the independent walk broken?"
    seeds, hosts = tmp_path / "seeds.txt", tmp_path / "hosts"
    seeds.write_text(f"{SITE}/index.html\n")
    hosts.write_text(f"127.0.0.1:{server.port} docs.test\n")
    options = {**OWN_SITE, "network.hosts_file": str(hosts)}
    sets = [word for name, value in options.items() for word in ("--set", f"{name}={value}")]
    warehouse = tmp_path / "warehouse"

    code = crawl.main([str(seeds), "--warehouse", str(warehouse), "--turns", "12", "--until-dry", *sets])

    told = capsys.readouterr()
    assert code == 0, told.err
    assert "listed 0," in told.out, "the frontier is not dry after 12 turns"

    # The server's side: every page once; beside them only links that lead to no page, and robots.txt.
    asked = Counter(f"{SITE}{path}" for path, _ in server.asked())
    assert {url: count for url, count in asked.items() if count != 1} == {}
    assert set(asked) == {*expected.titles, *expected.others, f"{SITE}/robots.txt"}
    assert {f"{SITE}{path}" for path, status in server.asked() if status == 200} >= set(expected.titles)

    # Our side: one row a fetch, one row a page with the title that the other parser read.
    opened = open_warehouse(spark, str(warehouse))
    fetches = opened.read("fetches").select("url", "outcome", "http_status").collect()
    assert Counter(row.url for row in fetches) == Counter([*expected.titles, *expected.others])
    assert {row.url for row in fetches if row.outcome == "ok"} >= set(expected.titles)
    pages = opened.read("pages").filter("charset IS NOT NULL").select("url", "title", "error").collect()
    titles = [(row.url, row.title) for row in pages if row.url in expected.titles]
    assert sorted(titles) == sorted(expected.titles.items())
    assert [row for row in pages if row.error] == []
