"""Feeds broken pages and sitemaps to the parser until time is up: no crash, no hang, no page over its limits.

Run: `.venv/bin/python tools/fuzz_parse.py [SECONDS] [SEED]` (an hour by default; outside CI). The seeds are the shared
cases. Everything is parsed in the guarding child of `isolate` under the shipped limits; what it loses is written to
`var/fuzz/` and the exit code is 1. What ran out of time is tried once more by itself with ten times as much, since a
child that the machine leaves no CPU hangs too; such an input is told and does not count.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from spindle import html, sitemap
from spindle.config import ParseSettings
from spindle.isolate import TIMEOUT, Failure, Isolated
from spindle.urls import normalize

CASES = Path(os.environ.get("SPINDLE_SHARED", Path(__file__).resolve().parents[2] / "shared")) / "cases"
FOUND = Path("var/fuzz")
URL = "http://e.example/d/page.html"
TYPES = [
    None,
    "text/html",
    "text/html; charset=utf-8",
    "text/html; charset=shift_jis",
    "application/xhtml+xml",
    "text/plain",
]
TOKENS = [
    b"<a href=",
    b"<base href=",
    b"<meta charset=",
    b"<table>",
    b"<svg>",
    b"<template>",
    b"<select>",
    b"<!--",
    b"-->",
]
TOKENS += [
    b"<![CDATA[",
    b"]]>",
    b"&amp",
    b"&#x110000;",
    b"\0",
    b"\xff\xfe",
    b"'",
    b'"',
    b"<div>",
    b"</p>",
    b"<frame src=x>",
]
TOKENS += [
    b"<script>",
    b"</script>",
    b"<noscript>",
    b"http://[",
    b"<loc>",
    b"</url>",
    b"<urlset>",
    b"\xf0\x9f\x98\x80",
    b"\xe9",
]
Item = tuple[str, bytes, str | None]


def factory(_: object) -> Callable[[Item], None]:
    """In the child: parses an item and checks what must hold of any result."""

    def work(item: Item) -> None:
        kind, body, content_type = item
        if kind == "page":
            _check(html.parse_page(body, URL, content_type))
            return
        try:
            made = sitemap.parse(body, URL)
        except sitemap.SitemapError:
            return
        assert all(entry.loc.startswith(("http://", "https://")) for entry in made.urls)

    return work


def _check(page: html.Page) -> None:
    assert "\\u0000" not in json.dumps(dataclasses.asdict(page)), "NUL in a text"
    for text in (page.text, page.title or "", page.description or "", *(link.anchor for link in page.links)):
        text.encode()
    for link in page.links[:50]:
        assert normalize(link.url) == link.url, f"not normal: {link.url}"


def seeds() -> list[tuple[str, bytes]]:
    pages = [("page", file.read_bytes()) for file in sorted((CASES / "html_links").glob("*.html"))]
    maps = [
        ("sitemap", file.read_bytes()) for file in sorted((CASES / "sitemaps").iterdir()) if file.suffix != ".jsonl"
    ]
    return pages + maps * 2


def broken(body: bytes, chance: random.Random) -> bytes:
    """A few mutations: bits, tokens, cuts, repeats (some a thousand times)."""
    made = bytearray(body)
    for _ in range(chance.randint(1, 8)):
        place, length = chance.randrange(len(made) + 1), chance.choice((1, 8, 64, 512))
        kind = chance.randrange(5)
        if kind == 0 and made:
            made[place % len(made)] = chance.randrange(256)
        elif kind == 1:
            made[place:place] = chance.choice(TOKENS) * chance.choice((1, 1, 1, 50, 3000))
        elif kind == 2:
            del made[place : place + length]
        elif kind == 3:
            made[place:place] = made[place : place + length] * chance.choice((1, 2, 20, 500))
        elif chance.random() < 0.2:
            del made[place:]
        if len(made) > 4_000_000:
            break
    return bytes(made)


def items(seconds: float, chance: random.Random, kept: dict[int, Item]) -> Iterator[Item]:
    corpus, until, number = seeds(), time.monotonic() + seconds, 0
    while time.monotonic() < until:
        kind, body = chance.choice(corpus)
        kept[number] = (kind, broken(body, chance), chance.choice(TYPES))
        yield kept[number]
        number += 1


def _ends(item: Item, limits: ParseSettings) -> bool:
    """Whether an input that was late is done in ten times the time, alone in a child."""
    with Isolated("fuzz_parse:factory", None, 10 * limits.timeout_s, limits.memory_bytes) as child:
        return not any(isinstance(result, Failure) for result in child.map([item]))


def main() -> int:
    seconds = float(sys.argv[1]) if sys.argv[1:] else 3600.0
    seed = int(sys.argv[2]) if sys.argv[2:] else time.time_ns()
    print(f"seed {seed}", flush=True)
    lost, kept, number = 0, dict[int, Item](), -1
    limits = html.default_settings()
    with Isolated("fuzz_parse:factory", None, limits.timeout_s, limits.memory_bytes) as child:
        results: Iterator[Any] = child.map(items(seconds, random.Random(seed), kept))
        for number, result in enumerate(results):
            item = kept.pop(number)
            if isinstance(result, Failure):
                if result.reason == TIMEOUT and _ends(item, limits):
                    print(f"{number}: {len(item[1])} bytes were late, and not for themselves", flush=True)
                    continue
                lost += 1
                FOUND.mkdir(parents=True, exist_ok=True)
                (FOUND / f"{seed}-{number}.{item[0]}").write_bytes(item[1])
                print(
                    f"{number}: {item[0]} as {item[2]}, {len(item[1])} bytes: {result.reason}: {result.detail}",
                    flush=True,
                )
    print(f"{number + 1} inputs, {lost} lost")
    return int(lost > 0)


if __name__ == "__main__":
    sys.exit(main())
