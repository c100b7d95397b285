"""WARC 1.1 (ISO 28500:2017) records as bytes, and back.

This file alone decides how an exchange is laid down: one gzip member a record, header bytes as received, content coding
kept, transfer coding removed. Values in, bytes out: it knows no file, no clock and no network, and invents no ids.

Scope of digests: `WARC-Payload-Digest` is the SHA-256 (lower-case hex) of the stored payload, that is of the entity
after the transfer coding was removed and with its content coding kept, so that any reader can check it from the record
alone; `WARC-Block-Digest` is that of the stored block. `content_hash` of the tables, of the decoded body, is another.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import mmh3

try:  # 7.6 times cheaper than zlib 6 for 6 to 13 % more bytes (research/fetch.md section 2)
    from isal import isal_zlib as _zlib

    _LEVEL = 1  # level 2 costs a sixth more for half a per cent fewer bytes (bench/fetch.py's pages)
except ImportError:  # pragma: no cover - depends on the platform's wheels
    import zlib as _zlib  # type: ignore[no-redef]

    _LEVEL = 1

_ISAL_ERROR: Any = _zlib.error  # a class of its own; typed as an instance in the stubs
_ERRORS: tuple[type[Exception], ...] = (zlib.error, _ISAL_ERROR)

Headers = Sequence[tuple[bytes, bytes]]

IDENTICAL_PAYLOAD = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
NOT_MODIFIED = "http://netpreserve.org/warc/1.1/revisit/server-not-modified"

#: Our extension field of a revisit: where the payload lies, `file offset length`; other readers ignore it (5.1).
LOCATION = "Spindle-Refers-To-Location"

_SMALL_BYTES = 1024  # about a request record
_BLOCK_BYTES = 0xFFFF  # of a stored block at most (RFC 1951 3.2.4)
_BLOCK, _TRAILER = struct.Struct("<BHH"), struct.Struct("<II")
_GZIP = 31  # window bits of zlib for a gzip wrapper
_RENAMED = b"X-Crawler-"  # as Common Crawl marks headers that no longer describe the stored payload


class WarcError(ValueError):
    """Bytes that are not one whole WARC record: cut off, damaged, or something else."""


class Capture(NamedTuple):
    """One exchange. `date` is the UTC start of the fetch (ISO 8601 with Z), the same text as in the table.

    `headers` as received; `body` without transfer coding; `digest` of the body as `payload_digest` gives it;
    `truncated` one of None, "length", "time", "disconnect", "unspecified" (WARC 1.1, 5.13).
    """

    url: str
    date: str
    ip: str | None
    request: bytes
    status_line: bytes
    headers: Headers
    body: bytes
    digest: str
    truncated: str | None = None


@dataclass(frozen=True, slots=True)
class Original:
    """The record that a revisit stands for. `location` is (file, offset, length) where it is known."""

    url: str
    date: str
    location: tuple[str, int, int] | None = None


@dataclass(frozen=True, slots=True)
class HttpMessage:
    """The HTTP part of a response or revisit record. `body` is the stored payload: its content coding is still on."""

    status_line: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    @property
    def status(self) -> int:
        return int(self.status_line.split(None, 2)[1])

    def header(self, name: str) -> str | None:
        """All values of a header joined by ", " (RFC 9110 5.3), or None."""
        wanted = name.lower().encode("ascii")
        values = [value for key, value in self.headers if key.lower() == wanted]
        return b", ".join(values).decode("latin-1") if values else None


@dataclass(frozen=True, slots=True)
class Record:
    """One WARC record: named fields (lower-case keys) and the block."""

    fields: dict[str, str]
    block: bytes

    @property
    def type(self) -> str:
        return self.fields.get("warc-type", "")

    @property
    def http(self) -> HttpMessage:
        """The block read as an HTTP message.

        Raises:
            WarcError: the block has no HTTP head.
        """
        head, found, body = self.block.partition(b"\r\n\r\n")
        if not found:
            raise WarcError("no HTTP head in the block")
        status_line, *lines = head.split(b"\r\n")
        pairs = (line.partition(b":") for line in lines)
        return HttpMessage(status_line, tuple((name, value.strip()) for name, _, value in pairs), body)

    @property
    def location(self) -> tuple[str, int, int] | None:
        """Of a revisit: file, offset and length of the record that holds the payload, where this crawler wrote it."""
        parts = self.fields.get(LOCATION.lower(), "").rsplit(" ", 2)
        return (parts[0], int(parts[1]), int(parts[2])) if len(parts) == 3 else None


def payload_digest(body: bytes) -> str:
    """The digest of a stored payload, labelled with its algorithm. Hex, since base32 of SHA-256 would end in `=`, which
    is no token (WARC 1.1, 5.8)."""
    return "sha256:" + hashlib.sha256(body).hexdigest()


def record_id(*parts: str) -> str:
    """A name-based UUID: the same parts give the same id, on any machine.

    Version 8 of RFC 9562 over MurmurHash3 x64-128 (seed 0): no secret hangs on it, and SHA-1 costs ten times as much.
    """
    digits = mmh3.hash_bytes("\n".join(parts)).hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"<urn:uuid:{digits[:8]}-{digits[8:12]}-8{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}>"


@lru_cache(64)
def record_ids(url: str, date: str) -> tuple[str, str]:
    """Ids of the answer's and the request's record; they differ in the last digit only: one hash for both."""
    answer = record_id(url, date)
    return answer, answer[:-2] + _NEXT_DIGIT[answer[-2]] + ">"


def warcinfo(file: str, date: str, fields: Mapping[str, str]) -> bytes:
    """The record that opens a file: who wrote it and how."""
    block = "".join(f"{name}: {value}\r\n" for name, value in fields.items()).encode()
    head = (
        f"WARC/1.1\r\nWARC-Type: warcinfo\r\nWARC-Record-ID: {record_id('warcinfo', file, date)}\r\n"
        f"WARC-Date: {date}\r\nWARC-Filename: {file}\r\nContent-Type: application/warc-fields\r\n"
    )
    return _whole(head, block)


def request(capture: Capture) -> bytes:
    """The request record of an exchange."""
    return _whole(_common(capture, "request") + _HTTP["request"], capture.request)


def response(capture: Capture) -> bytes:
    """The response record of an exchange: head as received, body with its content coding, chunking removed."""
    http = stored_head(capture.status_line, capture.headers, len(capture.body))
    head = _common(capture, "response") + f"WARC-Payload-Digest: {capture.digest}\r\n"
    if capture.truncated:
        head += f"WARC-Truncated: {capture.truncated}\r\n"
    return _whole(head + _HTTP["response"], http, capture.body)


def revisit(capture: Capture, profile: str, original: Original) -> bytes:
    """The record of an answer whose payload another record holds: the HTTP head only (WARC 1.1, 6.7)."""
    head = _common(capture, "revisit") + (
        f"WARC-Profile: {profile}\r\nWARC-Refers-To-Target-URI: {original.url}\r\n"
        f"WARC-Refers-To-Date: {original.date}\r\n"
    )
    if profile == IDENTICAL_PAYLOAD:
        head += f"WARC-Payload-Digest: {capture.digest}\r\n"
    if original.location:
        head += f"{LOCATION}: {' '.join(map(str, original.location))}\r\n"
    length = len(capture.body) if profile == IDENTICAL_PAYLOAD else None
    block = stored_head(capture.status_line, capture.headers, length)
    return _whole(head + _HTTP["response"], block)


def stored_head(status_line: bytes, headers: Headers, body_length: int | None) -> bytes:
    """The HTTP head as it is stored, up to and with the empty line.

    Every line is kept as received, but a `Transfer-Encoding`, or a `Content-Length` that is not the stored length, is
    renamed as Common Crawl renames it (`X-Crawler-...`), and a true `Content-Length` stands in for it. `body_length`
    None: a 304 has no body, and its length is that of another answer (RFC 9110 8.6).
    """
    if body_length is None:
        return b"\r\n".join([status_line, *(name + b": " + value for name, value in headers)]) + b"\r\n\r\n"
    lines, true_length, stated, renamed = [status_line], b"%d" % body_length, False, False
    for name, value in headers:
        lower = name.lower()
        if lower == b"transfer-encoding" or (lower == b"content-length" and (stated or value != true_length)):
            lines.append(_RENAMED + name + b": " + value)
            renamed = True
        else:
            lines.append(name + b": " + value)
            stated = stated or lower == b"content-length"
    if renamed and not stated:
        lines.append(b"Content-Length: " + true_length)
    return b"\r\n".join(lines) + b"\r\n\r\n"


def member(record: bytes, *, coded: bool = False) -> bytes:
    """A record as one gzip member, so that a file can be read from any record's offset (WARC 1.1, annex D).

    Small records, and those whose payload is `coded` (compressed already), are stored in it as they are: deflating
    them would cost a hundred times as much and gain next to nothing.
    """
    if coded or len(record) <= _SMALL_BYTES:
        return _stored(record)
    return bytes(_zlib.compress(record, _LEVEL, _GZIP))


def member_length(data: bytes) -> int:
    """The length of the gzip member that `data` begins with.

    Raises:
        WarcError: it is cut off, damaged, or none.
    """
    inflater = _zlib.decompressobj(_GZIP)
    try:
        inflater.decompress(data)
    except _ERRORS as error:
        raise WarcError(f"damaged gzip member: {error}") from None
    if not inflater.eof:
        raise WarcError("the gzip member is cut off")
    return len(data) - len(inflater.unused_data)


def read_record(data: bytes, max_bytes: int = 1 << 30) -> Record:
    """The record in `data`: one gzip member, or one plain record.

    Raises:
        WarcError: cut off, damaged, more than `max_bytes` when inflated, or not a record.
    """
    return _parse(_inflate(data, max_bytes) if data[:2] == b"\x1f\x8b" else data)


def read_fields(data: bytes) -> dict[str, str]:
    """The named fields (lower-case keys) of a record of which only the beginning is at hand.

    Raises:
        WarcError: the beginning does not hold all of them, or is none of a record.
    """
    if data[:2] == b"\x1f\x8b":
        try:
            data = bytes(_zlib.decompressobj(_GZIP).decompress(data, 1 << 16))
        except _ERRORS as error:
            raise WarcError(f"damaged gzip member: {error}") from None
    return _fields(data)[0]


_NEXT_DIGIT = dict(zip("0123456789abcdef", "123456789abcdef0", strict=True))
_HTTP = {kind: f"Content-Type: application/http; msgtype={kind}\r\n" for kind in ("request", "response")}


def _common(capture: Capture, kind: str) -> str:
    """The fields that the records of an exchange share."""
    mine, its = record_ids(capture.url, capture.date)
    if kind == "request":
        mine, its = its, mine
    address = f"WARC-IP-Address: {capture.ip}\r\n" if capture.ip else ""
    return (
        f"WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Record-ID: {mine}\r\nWARC-Date: {capture.date}\r\n"
        f"WARC-Target-URI: {capture.url}\r\nWARC-Concurrent-To: {its}\r\n{address}"
    )


def _whole(head: str, *block: bytes) -> bytes:
    """A record of its fields and the pieces of its block; a body is copied here, and only here."""
    length = sum(map(len, block))
    return b"".join((f"{head}Content-Length: {length}\r\n\r\n".encode(), *block, b"\r\n\r\n"))


def _stored(record: bytes) -> bytes:
    """A gzip member of stored blocks (RFC 1951 3.2.4, RFC 1952 2.3)."""
    parts = [b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"]
    last = max(len(record) - 1, 0) // _BLOCK_BYTES
    for number in range(last + 1):
        block = record[number * _BLOCK_BYTES : (number + 1) * _BLOCK_BYTES]
        parts.append(_BLOCK.pack(number == last, len(block), len(block) ^ 0xFFFF))
        parts.append(block)
    parts.append(_TRAILER.pack(_zlib.crc32(record), len(record) & 0xFFFFFFFF))
    return b"".join(parts)


def _inflate(data: bytes, max_bytes: int) -> bytes:
    inflater = _zlib.decompressobj(_GZIP)
    try:
        record = inflater.decompress(data, max_bytes)
    except _ERRORS as error:
        raise WarcError(f"damaged gzip member: {error}") from None
    if not inflater.eof:
        raise WarcError("the gzip member is cut off" if len(record) < max_bytes else f"record over {max_bytes} bytes")
    return bytes(record)


def _parse(record: bytes) -> Record:
    fields, rest = _fields(record)
    length = int(fields["content-length"]) if fields.get("content-length", "").isdigit() else -1
    if not 0 <= length <= len(rest):
        raise WarcError(f"Content-Length {fields.get('content-length')!r} does not fit the block of {len(rest)} bytes")
    return Record(fields, rest[:length])


def _fields(record: bytes) -> tuple[dict[str, str], bytes]:
    head, found, rest = record.partition(b"\r\n\r\n")
    version, *lines = head.decode("utf-8", "replace").split("\r\n")
    if not found or not version.startswith("WARC/"):
        raise WarcError("not a WARC record")
    pairs = (line.partition(":") for line in lines)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}, rest
