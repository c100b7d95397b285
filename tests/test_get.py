"""What a URL answered, read back from WARC files by the pointers in the tables. No JVM."""

from __future__ import annotations

import datetime
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from spindle import urls, warc
from spindle.cli import main
from spindle.schema import FORMAT_VERSION
from spindle.warc import Capture, Original

URL, OTHER, NEVER = "http://h.example/a", "http://h.example/b", "http://h.example/never"
OLD, NEW = b"<p>caf\xc3\xa9 of yesterday</p>", b"<p>caf\xc3\xa9 of today</p>"
FILE = "segment-files/s.1of1/warc/00000-1.warc.gz"
DAY = datetime.timedelta(days=1)
NOON = datetime.datetime(2026, 12, 1, 12, tzinfo=datetime.UTC)
POINTER = [("warc_file", pa.string()), ("warc_offset", pa.int64()), ("warc_length", pa.int64())]
FETCHES = pa.schema(
    [("url_key", pa.int64()), ("month", pa.string()), ("started_at", pa.timestamp("us", tz="UTC")), *POINTER]
)
Place = tuple[str | None, int | None, int | None]


def capture(url: str, body: bytes, *coding: tuple[bytes, bytes]) -> Capture:
    head = ((b"Content-Type", b"text/html"), *coding)
    digest = warc.payload_digest(body)
    return Capture(url, "2026-12-01T12:00:00Z", "192.0.2.7", b"GET", b"HTTP/1.1 200 OK", head, body, digest)


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """URL was fetched yesterday and, gzipped, today; OTHER answered 304 today, its body is yesterday's of URL."""
    file = tmp_path / FILE
    file.parent.mkdir(parents=True)
    first = warc.member(warc.response(capture(URL, OLD)))
    second = warc.member(warc.response(capture(URL, gzip.compress(NEW), (b"Content-Encoding", b"gzip"))), coded=True)
    original = Original(URL, "2026-11-30T12:00:00Z", (FILE, 0, len(first)))
    same = capture(OTHER, b"", (b"X-Mine", b"yes"))._replace(status_line=b"HTTP/1.1 304 Not Modified")
    third = warc.member(warc.revisit(same, warc.NOT_MODIFIED, original))
    file.write_bytes(first + second + third)
    places: dict[str, Place] = {
        "old": (FILE, 0, len(first)),
        "new": (FILE, len(first), len(second)),
        "same": (FILE, len(first + second), len(third)),
        "none": (None, None, None),
    }
    told = [(URL, NOON - DAY, "old"), (URL, NOON, "new"), (OTHER, NOON, "same"), (NEVER, NOON, "none")]
    fetches = [(urls.url_key(url), f"{at:%Y-%m}", at, *places[place]) for url, at, place in told]
    write_deltalake(str(tmp_path / "fetches"), table(fetches, FETCHES), partition_by=["month"])
    latest = [(urls.url_key(url), bucket(url), *places[place]) for url, _, place in told[1:]]
    rows = pa.schema([("url_key", pa.int64()), ("bucket", pa.int32()), *POINTER])
    write_deltalake(str(tmp_path / "urls"), table(latest, rows), partition_by=["bucket"])
    (tmp_path / "spindle.json").write_text(json.dumps({"format_version": FORMAT_VERSION, "buckets": 4}))
    return tmp_path


def table(rows: list[tuple[object, ...]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


def bucket(url: str) -> int:
    return urls.bucket_of(urls.registered_domain(urls.host_of(url)), 4)


HTML = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
ASKED: list[tuple[str, int, bytes, str]] = [
    (URL, 0, NEW, "the latest, its coding undone"),
    ("HTTP://H.example:80/a#part", 0, NEW, "spelled otherwise"),
    (f"{URL} --at 2026-12-01T11:59:59Z", 0, OLD, "what was there before"),
    (f"{URL} --at 2026-12-01T12:00:00", 0, NEW, "a time without a zone is UTC"),
    (f"{URL} --at 2026-11-01T00:00:00Z", 1, b"", "nobody had asked yet"),
    (OTHER, 0, OLD, "of a revisit the body of what it points to"),
    (f"{OTHER} --headers", 0, b"HTTP/1.1 304 Not Modified\r\n", "and its own head"),
    (f"{URL} --headers --at 2026-11-30T12:00:00Z", 0, HTML, "head and body"),
    (NEVER, 1, b"", "it was asked and did not answer"),
    ("http://h.example/unknown", 1, b"", "not in the table"),
]


@pytest.mark.parametrize(("words", "code", "begin", "why"), ASKED, ids=[row[3] for row in ASKED])
def test_what_a_url_answered(
    words: str, code: int, begin: bytes, why: str, warehouse: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["get", "--warehouse", str(warehouse), *words.split(" ")]) == code, why
    out = capfdbinary.readouterr().out
    assert out.startswith(begin) and (begin or not out)
    assert "--headers" in words or out == begin


def test_the_record_itself_and_what_cannot_be_read(warehouse: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["get", "--warehouse", str(warehouse), URL, "--record"]) == 0
    assert warc.read_record(capfdbinary.readouterr().out).fields["warc-target-uri"] == URL
    assert main(["get", "--warehouse", str(warehouse), URL, "--at", "noon"]) == 2
    assert b"--at noon: not an ISO 8601 time" in capfdbinary.readouterr().err
    (warehouse / FILE).write_bytes(b"rubbish" * 1000)
    assert main(["get", "--warehouse", str(warehouse), URL]) == 4
    assert b"the record of http://h.example/a cannot be read" in capfdbinary.readouterr().err
    (warehouse / FILE).unlink()
    assert main(["get", "--warehouse", str(warehouse), URL]) == 4
