"""Content codings undone within bounds (RFC 9110 8.4): gzip, deflate, br and zstd, also stacked.

This file alone decides what a `Content-Encoding` means, and when a body is a compression bomb. Bytes in, bytes out: the
output is never larger than the caller's limit, whatever the input claims. fetch (hash) and parse (text) share it, so
both see the same content.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import brotli  # type: ignore[import-untyped]  # it ships no types
import zstandard

try:
    from isal import isal_zlib as _zlib
except ImportError:  # pragma: no cover - depends on the platform's wheels
    import zlib as _zlib  # type: ignore[no-redef]

#: What we can undo, and so what we ask for.
ACCEPT_ENCODING = "gzip, deflate, br, zstd"

_MAX_LAYERS = 4  # a stack deeper than this is an attack
_RATIO_FLOOR = 1 << 20  # bytes; below this no ratio makes a bomb (a page of blanks is only a page of blanks)
_ZSTD_WINDOW = 8 << 20  # bytes; RFC 9659 limits the window of zstd over HTTP to 8 MiB
_ZSTD_STEP = 64  # bytes of input at once: one block, of up to 128 KiB, takes 4 bytes, so a step yields 2 MiB at most
_BROTLI_ERROR: type[Exception] = brotli.error
_ISAL_ERROR: Any = _zlib.error  # typed as an instance in the stubs
_ERRORS: tuple[type[Exception], ...] = (zlib.error, _ISAL_ERROR, _BROTLI_ERROR, zstandard.ZstdError, EOFError)


@dataclass(frozen=True, slots=True)
class Decoded:
    """The body without its codings.

    `flaw` says why it is not the whole content: "length" (cut at the limit), "ratio" (a bomb: cut early), "incomplete"
    (the coded bytes ended early), "undecodable" (`body` is empty then); None when it is whole.
    """

    body: bytes
    flaw: str | None = None


def decode(body: bytes, content_encoding: str | None, max_bytes: int, max_ratio: float) -> Decoded:
    """Undo the codings of a body, outermost first.

    `max_bytes` bounds what comes out; so does `max_ratio` x the size of what went in, but not below 1 MiB. A name we do
    not know, or a coding the bytes do not have, counts as `identity` if the bytes do not look compressed: servers send
    `Content-Encoding: UTF-8`, and `gzip` over plain text.
    """
    if not content_encoding:
        return Decoded(body[:max_bytes], "length" if len(body) > max_bytes else None)
    names = [name.strip().lower() for name in content_encoding.split(",")]
    names = [_ALIASES.get(name, name) for name in names if name and name != "identity"]
    if len(names) > _MAX_LAYERS:
        return Decoded(b"", "undecodable")
    by_ratio = max(int(max_ratio * len(body)), _RATIO_FLOOR)
    limit, over = (by_ratio, "ratio") if by_ratio < max_bytes else (max_bytes, "length")
    flaw: str | None = None
    for name in reversed(names):
        layer = _undo(name, body, limit)
        if layer.flaw == "undecodable":
            return layer
        body, flaw = layer.body, flaw or layer.flaw
    if len(body) > limit:
        return Decoded(body[:limit], over)
    return Decoded(body, over if flaw == "length" else flaw)


def _undo(name: str, body: bytes, limit: int) -> Decoded:
    undo = _CODINGS.get(name)
    try:
        if undo is not None and body:
            return undo(body, limit)
    except _ERRORS:
        pass  # what follows decides on the bytes themselves
    return Decoded(b"", "undecodable") if _looks_coded(body) else Decoded(body)


def _looks_coded(body: bytes) -> bool:
    """Bytes that begin like a compressed stream, or hold control characters that no text has."""
    if body.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x1f\x9d")):
        return True
    return any(byte < 9 or (13 < byte < 32 and byte != 27) for byte in body[:512]) and not body.startswith(
        (b"\xff\xfe", b"\xfe\xff")  # UTF-16 text is full of zeros
    )


def _gunzip(body: bytes, limit: int) -> Decoded:
    """All members of a gzip stream; what follows the last is padding and ignored, as browsers do."""
    pieces: list[bytes] = []
    room = limit
    while True:
        inflater = _zlib.decompressobj(31)
        try:
            piece = inflater.decompress(body, room)
        except _ERRORS:
            if not pieces:
                return _inflate_damaged(body, 31, limit)
            return Decoded(b"".join(pieces), "incomplete")
        pieces.append(piece)
        room -= len(piece)
        body = inflater.unused_data
        if not inflater.eof:
            return Decoded(b"".join(pieces), "length" if room <= 0 else "incomplete")
        if not body.startswith(b"\x1f\x8b"):
            return Decoded(b"".join(pieces))
        if room <= 0:
            return Decoded(b"".join(pieces), "length")


def _inflate(body: bytes, limit: int) -> Decoded:
    """`deflate` is zlib's format (RFC 9110 8.4.1.2), yet many servers send the raw stream."""
    wrapped = (body[0] & 0x0F) == 8 and len(body) > 1 and ((body[0] << 8) | body[1]) % 31 == 0
    for bits in (15, -15) if wrapped else (-15, 15):
        inflater = _zlib.decompressobj(bits)
        try:
            plain = inflater.decompress(body, limit)
        except _ERRORS:
            continue
        if inflater.eof:
            return Decoded(plain)
        return Decoded(plain, "length" if len(plain) >= limit else "incomplete")
    return _inflate_damaged(body, 15 if wrapped else -15, limit)


def _inflate_damaged(body: bytes, bits: int, limit: int) -> Decoded:
    """What can be had before the damage, in small steps; raises as the codec does when that is nothing."""
    inflater, pieces, size = _zlib.decompressobj(bits), [], 0
    for start in range(0, len(body), 1024):
        try:
            piece = inflater.decompress(body[start : start + 1024], limit - size)
        except _ERRORS:
            if not size:
                raise
            break
        pieces.append(piece)
        size += len(piece)
        if size >= limit:
            return Decoded(b"".join(pieces), "length")
    return Decoded(b"".join(pieces), "incomplete")


def _unbrotli(body: bytes, limit: int) -> Decoded:
    decoder, pieces, size = brotli.Decompressor(), [], 0
    piece = decoder.process(body, output_buffer_limit=limit)
    while piece or not decoder.can_accept_more_data():
        pieces.append(piece)
        size += len(piece)
        if size >= limit and not decoder.is_finished():
            return Decoded(b"".join(pieces), "length")
        if decoder.is_finished():
            break
        piece = decoder.process(b"", output_buffer_limit=max(limit - size, 1))
    return Decoded(b"".join(pieces), None if decoder.is_finished() else "incomplete")


def _unzstd(body: bytes, limit: int) -> Decoded:
    """All frames. Fed in small steps, since this decoder has no limit of its own."""
    pieces: list[bytes] = []
    size, start, ended = 0, 0, True
    while start < len(body):
        if ended and pieces and body[start : start + 4] != b"\x28\xb5\x2f\xfd":
            break  # padding
        if ended:
            decoder, ended = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj(), False
        piece = decoder.decompress(body[start : start + _ZSTD_STEP])
        start = min(start + _ZSTD_STEP, len(body)) - len(decoder.unused_data)
        ended = decoder.eof
        pieces.append(piece)
        size += len(piece)
        if size >= limit and not (ended and start >= len(body)):
            return Decoded(b"".join(pieces)[:limit], "length")
    return Decoded(b"".join(pieces), None if ended else "incomplete")


_ALIASES = {"x-gzip": "gzip", "x-deflate": "deflate"}
_CODINGS: dict[str, Callable[[bytes, int], Decoded]] = {
    "gzip": _gunzip,
    "deflate": _inflate,
    "br": _unbrotli,
    "zstd": _unzstd,
}
