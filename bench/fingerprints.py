"""Which features make a good SimHash: precision and recall for distance 0..10 on a labelled set.

Run: `.venv/bin/python bench/fingerprints.py [FOLDER_OF_HTML ...]` (Debian's documentation packages; without a folder
the demo web only). The set: real pages and articles of the demo web, whose few sentence patterns are the hard case;
near copies of both made here by editing their words; every two different pages of one source are a pair that must not
match. `docs/fingerprints.md` is what this printed.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import mmh3
import numpy as np

from spindle import fingerprint, html
from spindle.demo import render
from spindle.demo.model import Kind
from spindle.demo.world import build_world

Words = list[bytes]
Scheme = Callable[[Words], int]
LEAST, MOST_PAGES = 60, 600
MIX = [np.uint64(x) for x in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5)]


def shingles(words: Words, size: int) -> np.ndarray:
    hashes = np.frombuffer(b"".join(map(mmh3.mmh3_x64_128_digest, words)), dtype="<u8")[::2]
    mixed = np.zeros(len(hashes) - size + 1, dtype=np.uint64)
    for place in range(size):
        mixed = (mixed ^ hashes[place : place + len(mixed)]) * MIX[place]
        mixed ^= mixed >> np.uint64(29)
    return mixed


def of_features(features: np.ndarray, weights: np.ndarray) -> int:
    bits = np.unpackbits(features.astype("<u8").view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
    majority = weights @ (2 * bits.astype(np.float32) - 1) > 0
    return int.from_bytes(np.packbits(majority, bitorder="little").tobytes(), "little")


def scheme(*sizes: int, distinct: bool = True) -> Scheme:
    def value(words: Words) -> int:
        features = np.concatenate([shingles(words, size) for size in sizes])
        found, counts = np.unique(features, return_counts=True)
        return of_features(found, (np.ones_like(counts) if distinct else counts).astype(np.float32))

    return value


def characters(words: Words) -> int:
    """The package's default: 4-grams of the text without blanks, counted (with mmh3 for md5)."""
    text = b"".join(words)
    grams = [mmh3.hash64(text[i : i + 4], signed=False)[0] for i in range(max(1, len(text) - 3))]
    found, counts = np.unique(np.array(grams, dtype=np.uint64), return_counts=True)
    return of_features(found, counts.astype(np.float32))


SCHEMES: dict[str, Scheme] = {
    "characters 4 (package)": characters,
    "words": scheme(1, distinct=False),
    "distinct words": scheme(1),
    "triples": scheme(3, distinct=False),
    "distinct triples": scheme(3),
    "distinct words, pairs": scheme(1, 2),
    "distinct pairs, triples": lambda words: fingerprint.simhash(b" ".join(words).decode()),  # ours, the real thing
    "distinct quadruples": scheme(4),
}


def edits(words: Words, chance: random.Random) -> Iterator[tuple[str, Words]]:
    count = len(words)
    for name, changed in (("1 word", 1), ("3 words", 3), ("1 %", max(1, count // 100)), ("5 %", max(1, count // 20))):
        copy = list(words)
        for place in chance.sample(range(count), min(changed, count)):
            copy[place] = b"edit%d" % chance.randrange(10**6)
        yield name, copy
    for name, length in (("-10 %", count // 10), ("-25 %", count // 4)):
        start = chance.randrange(count - length)
        yield name, words[:start] + words[start + length :]
    start = chance.randrange(count)
    yield "+15 words", words[:start] + [chance.choice(words) for _ in range(15)] + words[start:]


def demo_pages() -> list[Words]:
    world, found = build_world(1, 120), {}
    for host in world.hosts.values():
        for path, page in host.resources.items():
            if page.kind is Kind.PAGE and not (page.copy_of or page.near_of or page.trap or page.empty):
                text = html.parse_page(render.body(world, host, page, 0), f"http://{host.name}{path}", None).text
                found[text] = fingerprint.words(text)
    return list(found.values())


def real_pages(folders: list[str]) -> list[Words]:
    files = sorted(file for folder in folders for file in Path(folder).rglob("*.htm*"))
    pages = (html.parse_page(file.read_bytes(), "http://doc.example/", None).text for file in files)
    return [fingerprint.words(text) for text in dict.fromkeys(pages)]


def between(values: list[int]) -> np.ndarray:
    """Distances of all pairs."""
    column = np.array(values, dtype=np.uint64)
    return np.concatenate([np.bitwise_count(column[i + 1 :] ^ column[i]) for i in range(len(column) - 1)])


def report(name: str, pages: list[Words], value: Scheme, chance: random.Random) -> None:
    values = [value(page) for page in pages]
    apart = between(values)
    near: dict[str, list[int]] = {}
    for page, own in list(zip(pages, values, strict=True))[:200]:
        for kind, copy in edits(page, chance):
            near.setdefault(kind, []).append(fingerprint.distance(own, value(copy)))
    print(f"\n{name}: {len(apart):,} pairs of different pages, nearest {apart.min()}\n")
    print("| bits | false matches | " + " | ".join(f"found: {kind}" for kind in near) + " |")
    print("|---|---|" + "---|" * len(near))
    for bits in range(11):
        recall = " | ".join(f"{np.mean(np.array(found) <= bits):.2f}" for found in near.values())
        print(f"| {bits} | {int((apart <= bits).sum())} | {recall} |")


def main() -> None:
    chance = random.Random(7)
    sources = {"demo web": demo_pages()} | ({"real pages": real_pages(sys.argv[1:])} if sys.argv[1:] else {})
    for source, pages in sources.items():
        long_enough = [page for page in pages if len(page) >= LEAST]
        chosen = chance.sample(long_enough, min(len(long_enough), MOST_PAGES))
        for name, value in SCHEMES.items():
            report(f"### {source}, {name}", chosen, value, random.Random(7))


if __name__ == "__main__":
    main()
