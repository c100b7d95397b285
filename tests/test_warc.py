"""WARC records, read back by other people's readers (warcio, fastwarc) and by our own."""

from __future__ import annotations

import gzip
import hashlib
import io

import pytest
from fastwarc.warc import ArchiveIterator as FastIterator
from hypothesis import given
from hypothesis import strategies as st
from warcio.archiveiterator import ArchiveIterator

from spindle import warc
from spindle.warc import Capture, Original

DATE = "2026-11-30T23:59:58.123456Z"
BODY = b"<html>caf\xc3\xa9</html>"


def capture(**changes: object) -> Capture:
    body = changes.pop("body", BODY)
    assert isinstance(body, bytes)
    fields: dict[str, object] = {
        "url": "http://h.example/a?b=1",
        "date": DATE,
        "ip": "192.0.2.7",
        "request": b"GET /a?b=1 HTTP/1.1\r\nHost: h.example\r\n\r\n",
        "status_line": b"HTTP/1.1 200 OK",
        "headers": ((b"Content-Type", b"text/html"), (b"Content-Length", b"%d" % len(body))),
        "body": body,
        "digest": warc.payload_digest(body),
    }
    return Capture(**(fields | changes))  # type: ignore[arg-type]


def file_of(*records: bytes) -> bytes:
    return b"".join(warc.member(record) for record in records)


def by_warcio(data: bytes) -> list[tuple[str, dict[str, str], bytes, bool | None]]:
    """Type, fields, payload and whether all digests hold, as warcio sees them."""
    found = []
    for record in ArchiveIterator(io.BytesIO(data), check_digests=True):
        payload = record.content_stream().read() if record.rec_type != "warcinfo" else b""
        fields = dict(record.rec_headers.headers)
        found.append((record.rec_type, fields, payload, record.digest_checker.passed))
    return found


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (BODY, "text"),
        (b"\x89PNG\r\n\r\n\x00\x01", "binary with an empty line inside: nutch#5 added two bytes in front"),
        (b"", "no body at all"),
        (b"\r\n\r\n", "nothing but what separates head and body"),
        (gzip.compress(BODY, mtime=0), "coded content stays coded"),
        (bytes(range(256)) * 1000, "longer than a stored block"),
    ],
)
@pytest.mark.parametrize("coded", [False, True])
def test_payload_is_the_received_body_and_digests_hold(body: bytes, why: str, coded: bool) -> None:
    written = capture(body=body)
    records = (warc.request(written), warc.response(written))
    data = b"".join(warc.member(record, coded=coded) for record in records)
    _, (kind, fields, payload, ok) = by_warcio(data)
    assert (kind, payload, ok) == ("response", body, True), why
    head = warc.stored_head(written.status_line, written.headers, len(body))
    assert int(fields["Content-Length"]) == len(head) + len(body)
    assert fields["WARC-Payload-Digest"] == "sha256:" + hashlib.sha256(body).hexdigest()
    for record in FastIterator(io.BytesIO(data), parse_http=True):
        if record.headers["WARC-Type"] == "response":
            assert record.verify_payload_digest()
            assert record.reader.read() == body


def test_digest_checkers_notice_a_changed_byte() -> None:
    """The checks above can fail: one flipped byte of the payload is found by both readers."""
    record = warc.response(capture()).replace(b"<html>", b"<HTML>")
    assert by_warcio(file_of(record))[0][3] is False
    assert not next(iter(FastIterator(io.BytesIO(file_of(record)), parse_http=True))).verify_payload_digest()


def test_request_and_response_share_date_and_address_and_refer_to_each_other() -> None:
    written = capture()
    (_, asked, _, _), (_, answered, _, _) = by_warcio(file_of(warc.request(written), warc.response(written)))
    assert asked["WARC-Date"] == answered["WARC-Date"] == DATE
    assert asked["WARC-IP-Address"] == answered["WARC-IP-Address"] == "192.0.2.7"
    assert asked["WARC-Concurrent-To"] == answered["WARC-Record-ID"]
    assert answered["WARC-Concurrent-To"] == asked["WARC-Record-ID"]
    assert asked["WARC-Target-URI"] == answered["WARC-Target-URI"] == "http://h.example/a?b=1"


def test_record_ids_are_names_not_chances() -> None:
    """The same fetch gives the same id anywhere; another URL, date or kind another; the layout is that of a v8 UUID."""
    ids = {
        warc.record_id(*parts) for parts in [("response", "u", DATE), ("request", "u", DATE), ("response", "v", DATE)]
    }
    assert len(ids) == 3
    assert warc.record_id("response", "u", DATE) in ids
    assert all(one[24] == "8" and one[29] in "89ab" and len(one) == 47 for one in ids)


@pytest.mark.parametrize(
    ("headers", "stored", "why"),
    [
        ([(b"Content-Length", b"5")], b"Content-Length: 5", "a true length stays"),
        (
            [(b"transfer-encoding", b"chunked"), (b"X", b"1")],
            b"X-Crawler-transfer-encoding: chunked\r\nX: 1\r\nContent-Length: 5",
            "chunking is removed: its header is renamed as Common Crawl does, and a length takes its place",
        ),
        (
            [(b"Content-Length", b"500")],
            b"X-Crawler-Content-Length: 500\r\nContent-Length: 5",
            "a body that was cut: what was announced is kept under another name",
        ),
        (
            [(b"Content-Length", b"5"), (b"Content-Length", b"5")],
            b"Content-Length: 5\r\nX-Crawler-Content-Length: 5",
            "a repeated length is one",
        ),
        ([(b"Content-Encoding", b"gzip")], b"Content-Encoding: gzip", "the content coding is still on"),
        ([(b"X-Odd", b"caf\xe9 \xc3\xa9")], b"X-Odd: caf\xe9 \xc3\xa9", "bytes as received, in any charset"),
        ([], b"", "no header at all"),
    ],
)
def test_stored_head(headers: list[tuple[bytes, bytes]], stored: bytes, why: str) -> None:
    line = b"HTTP/1.1 404 Art\xedculo"
    expected = b"\r\n".join(part for part in (line, stored) if part) + b"\r\n\r\n"
    assert warc.stored_head(line, headers, 5) == expected, why


def test_plain_and_chunked_bodies_have_one_digest() -> None:
    """webrecorder/warcio#74: the digest covers the body without its transfer coding, whatever the chunks were."""
    plain = capture()
    chunked = capture(headers=((b"Transfer-Encoding", b"chunked"),))
    found = by_warcio(file_of(warc.response(plain), warc.response(chunked)))
    assert found[0][1]["WARC-Payload-Digest"] == found[1][1]["WARC-Payload-Digest"]
    assert [ok for *_, ok in found] == [True, True]


def test_odd_bytes_never_fail_a_record() -> None:
    """webrecorder/warcio#95: a reason phrase or header outside ASCII is stored as received and does not raise."""
    headers = ((b"Content-Disposition", "filename=é€.txt".encode()), (b"X", bytes(range(128, 256))))
    written = capture(status_line=b"HTTP/1.1 404 Art\xedculo", headers=headers)
    message = warc.read_record(warc.member(warc.response(written))).http
    assert message.status_line == b"HTTP/1.1 404 Art\xedculo"
    assert message.headers == headers
    assert (message.status, message.body) == (404, BODY)


def test_every_record_opens_alone_and_files_concatenate() -> None:
    """webrecorder/warcio#140: one gzip member a record, so an offset is enough, and two files in a row are a file."""
    records = [warc.warcinfo("a.warc.gz", DATE, {"software": "x"}), warc.request(capture()), warc.response(capture())]
    members = [warc.member(record) for record in records]
    data, offset = b"".join(members), 0
    for member, kind in zip(members, ("warcinfo", "request", "response"), strict=True):
        assert warc.read_record(data[offset : offset + len(member)]).type == kind
        offset += len(member)
    assert len(by_warcio(data + data)) == 6


@pytest.mark.parametrize("keep", [0, 1, 9, 10, 40, 200, -8, -1])
def test_a_cut_off_record_is_an_error_not_a_short_record(keep: int) -> None:
    """webrecorder/warcio#138: half a gzip member is neither skipped in silence nor waited for."""
    member = warc.member(warc.response(capture()))
    with pytest.raises(warc.WarcError):
        warc.read_record(member[:keep])


def test_a_record_larger_than_allowed_is_an_error() -> None:
    member = warc.member(warc.response(capture(body=b"\0" * 100_000)))
    with pytest.raises(warc.WarcError, match="50000"):
        warc.read_record(member, max_bytes=50_000)


def test_revisits_point_to_what_they_stand_for() -> None:
    original = Original("http://h.example/first", "2026-01-02T03:04:05.000000Z", ("warc/x.warc.gz", 77, 1234))
    same = warc.revisit(capture(), warc.IDENTICAL_PAYLOAD, original)
    unchanged = warc.revisit(
        capture(
            status_line=b"HTTP/1.1 304 Not Modified",
            headers=((b"ETag", b'"1"'), (b"Content-Length", b"5000")),
            body=b"",
        ),
        warc.NOT_MODIFIED,
        Original("http://h.example/a?b=1", "2026-01-02T03:04:05.000000Z"),
    )
    found = list(ArchiveIterator(io.BytesIO(file_of(same, unchanged))))
    assert [record.rec_type for record in found] == ["revisit", "revisit"]
    first = found[0].rec_headers
    assert first.get_header("WARC-Refers-To-Target-URI") == "http://h.example/first"
    assert first.get_header("WARC-Refers-To-Date") == "2026-01-02T03:04:05.000000Z"
    assert first.get_header("WARC-Profile").endswith("identical-payload-digest")
    assert first.get_header("WARC-Payload-Digest") == warc.payload_digest(BODY)
    assert found[1].http_headers.get_statuscode() == "304"
    assert found[1].http_headers.get_header("Content-Length") == "5000", (
        "as received: it is not the length of this body"
    )
    assert warc.read_record(warc.member(same)).location == ("warc/x.warc.gz", 77, 1234)
    assert warc.read_record(warc.member(unchanged)).location is None
    assert warc.read_record(warc.member(same)).http.body == b""


def test_truncation_is_named() -> None:
    for reason in ("length", "time", "disconnect", "unspecified"):
        assert by_warcio(file_of(warc.response(capture(truncated=reason))))[0][1]["WARC-Truncated"] == reason
    assert "WARC-Truncated" not in by_warcio(file_of(warc.response(capture())))[0][1]


def test_fields_can_be_read_from_the_beginning_of_a_record() -> None:
    member = warc.member(warc.response(capture(body=bytes(hashlib.sha256(b"%d" % n).digest()[0] for n in range(9000)))))
    assert warc.read_fields(member[:2000])["warc-payload-digest"].startswith("sha256:")
    with pytest.raises(warc.WarcError):
        warc.read_fields(member[:30])


names = st.text("ABCdef-", min_size=1, max_size=8).map(str.encode)
values = st.binary(max_size=20).map(lambda raw: raw.replace(b"\r", b"").replace(b"\n", b"").strip())


@given(st.binary(max_size=300), st.lists(st.tuples(names, values), max_size=5))
def test_whatever_is_written_is_read_back(body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    kept = [(n, v) for n, v in headers if n.lower() not in (b"content-length", b"transfer-encoding")]
    message = warc.read_record(warc.member(warc.response(capture(body=body, headers=tuple(kept))))).http
    assert (message.headers, message.body) == (tuple(kept), body)
