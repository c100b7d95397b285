"""Content codings: undone in order, within bounds, and never handed on as if they were text."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib

import brotli
import pytest
import zstandard

from spindle.coding import decode

TEXT = b"<html>" + b" ".join(b"word%d" % (n * n % 7919) for n in range(2000))
GZIP = gzip.compress(TEXT, mtime=0)
LIMIT, RATIO = 1 << 25, 200.0

WHOLE = [
    (None, TEXT, "no coding"),
    ("", TEXT, "an empty header"),
    ("identity", TEXT, "its name for none"),
    ("gzip", GZIP, ""),
    ("GZIP ", GZIP, "names have no case"),
    ("x-gzip", GZIP, "RFC 9110 8.4.1.3: the same as gzip"),
    ("gzip, gzip", gzip.compress(GZIP), "a stack, undone from the outside in (aiohttp#13364)"),
    ("gzip, br", brotli.compress(GZIP), "a mixed stack"),
    ("deflate", zlib.compress(TEXT), "as RFC 9110 says"),
    ("deflate", zlib.compress(TEXT)[2:-4], "the raw stream, as many servers send it"),
    ("br", brotli.compress(TEXT), ""),
    ("zstd", zstandard.compress(TEXT), ""),
    ("gzip", gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:]), "several members"),
    ("zstd", zstandard.compress(TEXT[:100]) + zstandard.compress(TEXT[100:]), "several frames"),
    ("gzip", GZIP + b"\0\0\0\0", "padding behind the last member"),
    ("gzip", TEXT, "named but not done: the bytes are plain"),
    ("br", TEXT, "the same for a coding without a mark of its own"),
    ("UTF-8", TEXT, "a charset in the wrong header"),
]


@pytest.mark.parametrize(("name", "body", "why"), WHOLE)
def test_whole_bodies(name: str | None, body: bytes, why: str) -> None:
    found = decode(body, name, LIMIT, RATIO)
    assert (found.body, found.flaw) == (TEXT, None), why


@pytest.mark.parametrize(
    ("name", "body", "why"),
    [
        ("compress", b"\x1f\x9d\x90" + bytes(40), "a coding we did not ask for"),
        ("foo", GZIP, "an unknown name over bytes that look compressed"),
        ("gzip", b"\x1f\x8b\x08\x00" + bytes(range(200)), "damaged from the start: compressed bytes are not text"),
        (", ".join(["gzip"] * 9), GZIP, "a stack beyond reason"),
    ],
)
def test_compressed_bytes_are_never_passed_on_as_text(name: str, body: bytes, why: str) -> None:
    found = decode(body, name, LIMIT, RATIO)
    assert found.body == b"", why
    assert found.flaw in ("undecodable", "incomplete")


@pytest.mark.parametrize(
    ("name", "body"), [("gzip", GZIP), ("deflate", zlib.compress(TEXT)), ("br", brotli.compress(TEXT))]
)
def test_what_came_of_a_stream_that_ended_early_is_kept_and_marked(name: str, body: bytes) -> None:
    found = decode(body[: len(body) * 3 // 4], name, LIMIT, RATIO)
    assert TEXT.startswith(found.body)
    assert found.body
    assert found.flaw == "incomplete"


def bombs() -> list[tuple[str, bytes]]:
    zeros = bytes(200 << 20)
    squeezed = gzip.compress(zeros, 1)
    return [
        ("gzip", squeezed),
        ("deflate", zlib.compress(zeros, 1)),
        ("br", brotli.compress(zeros, quality=1)),
        ("zstd", zstandard.compress(zeros)),
        ("gzip, gzip", gzip.compress(squeezed)),
    ]


@pytest.mark.parametrize(("name", "body"), bombs(), ids=lambda value: value if isinstance(value, str) else "")
def test_bombs_end_at_the_bound_and_cost_no_more(name: str, body: bytes) -> None:
    """aiohttp#8248: 200 MB of zeros; the output stays within the limit, and memory within a few times that."""
    limit = 4 << 20
    tracemalloc.start()
    try:
        found = decode(body, name, limit, RATIO)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(found.body) <= limit
    assert found.flaw in ("length", "ratio")
    assert peak < 4 * limit


def test_the_ratio_marks_a_bomb_before_the_size_does_but_spares_small_bodies() -> None:
    small = gzip.compress(bytes(500_000))
    assert decode(small, "gzip", LIMIT, RATIO).flaw is None
    large = gzip.compress(bytes(8 << 20))
    assert decode(large, "gzip", LIMIT, RATIO).flaw == "ratio"
    assert decode(large, "gzip", LIMIT, 2000.0).flaw is None


def test_a_plain_body_is_cut_at_the_limit() -> None:
    found = decode(TEXT, None, 10, RATIO)
    assert (found.body, found.flaw) == (TEXT[:10], "length")
