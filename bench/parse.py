"""What understanding a page costs, side by side: ours, its parts measured bare, and what others do.

Run: `.venv/bin/python bench/parse.py [FOLDER_OF_HTML]` (for example Debian's documentation packages; without a folder
generated pages of 20 KB with 59 links, as in the fetch bench). CPU milliseconds a page = CPU seconds per 1,000 pages;
all rows are taken in turn and the best of many turns counts, since other loads on the machine only add. Read the
ratios, not the figures. The bars (issue 6): at most 1.5 times the parts; at least 3 times fewer than Scrapy's link
extraction (shown where Scrapy can be imported; SCRAPY_PATH may name a folder that has it).
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import lxml.html
import mmh3
import pyarrow as pa
from selectolax.lexbor import LexborHTMLParser
from simhash import Simhash

from spindle import charset, config, fingerprint, html, htmltree, links, parsetask, warc
from spindle.defaults import default_layer
from spindle.isolate import Isolated
from spindle.urls import Normalizer, url_key

URL = "http://www.example.org/docs/guide/page.html"
TURNS = 12
SETTINGS = config.build([default_layer()])
RULES = dataclasses.replace(SETTINGS.parse, detect_language=False)
NORMALIZER = Normalizer(SETTINGS.url)


def made_page(seed: int) -> bytes:
    """20 KB: 59 links, 2,250 words."""
    chance = random.Random(seed)
    letters = "etaoinshrdlucmfw"
    vocabulary = ["".join(chance.choice(letters) for _ in range(chance.randint(2, 9))) for _ in range(800)]
    nav = "".join(f'<li><a href="/section/{i}">Section {i}</a></li>' for i in range(12))
    targets = ("/a/{0}.html?x={1}", "http://host{1}.example.net/p/{0}", "../other/{0}", "page-{0}.html#part")
    paragraphs = []
    for number in range(47):
        words = [chance.choice(vocabulary) for _ in range(48)]
        target = chance.choice(targets).format(chance.randint(0, 9999), number)
        words[20] = f'<a href="{target}" class="l">{words[20]} {words[21]}</a>'
        paragraphs.append(f'<p class="para">{" ".join(words)}</p>\n')
    head = f'<meta charset="utf-8"><title>Page {seed}</title><meta name="description" content="A page">'
    head += f'<link rel="canonical" href="/p/{seed}"><link rel="stylesheet" href="/s.css">'
    body = f"<header><nav><ul>{nav}</ul></nav></header><main><h1>Page</h1>{''.join(paragraphs)}</main>"
    return f'<!DOCTYPE html><html lang="en"><head>{head}</head><body>{body}<footer>(c)</footer></body></html>'.encode()


def pages_of(arguments: list[str]) -> list[bytes]:
    if not arguments:
        return [made_page(seed) for seed in range(30)]
    files = sorted(file for folder in arguments for file in Path(folder).rglob("*.htm*"))
    return [file.read_bytes() for file in random.Random(1).sample(files, min(len(files), 30))]


def ours(body: bytes) -> None:
    html.parse_page(body, URL, "text/html", RULES, normalizer=NORMALIZER)


def ours_with_language(body: bytes) -> None:
    html.parse_page(body, URL, "text/html", SETTINGS.parse, normalizer=NORMALIZER)


class Prepared:
    """A page half done, so that each part can be measured by itself."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.text = charset.decode(body, "text/html").text
        self.tree = LexborHTMLParser(self.text, options=1)
        self.elements = htmltree.elements(self.tree)
        self.linking = [node for name, node in self.elements if name in ("a", "area", "link", "meta", "iframe")]
        self.hrefs = [found.href for found in links.candidates(self.elements, forms=False)]
        self.content = html.parse_page(body, URL, "text/html", RULES).text


PARTS: dict[str, Callable[[Prepared], object]] = {
    "charset and decoding": lambda page: charset.decode(page.body, "text/html"),
    "tree (lexbor)": lambda page: LexborHTMLParser(page.text, options=1),
    "links: elements and attributes": lambda page: [n.attributes for n in page.tree.css("a,area,link,meta,iframe")],
    "links: anchor texts": lambda page: [" ".join(n.text().split()) for n in page.linking],
    "links: normalised and keyed": lambda page: NORMALIZER.links(page.hrefs, URL),
    "text: walk and fold": lambda page: " ".join(page.tree.body.text(separator=" ").split()),  # type: ignore[union-attr]
    "words, text hash and SimHash": lambda page: fingerprint.of_text(page.content, 16),
}


def lxml_way(body: bytes) -> None:
    """The obvious way: lxml's tree and iterlinks, urllib, the simhash package as it comes."""
    tree = lxml.html.document_fromstring(body)
    for _, _, href, _ in tree.iterlinks():
        with contextlib.suppress(ValueError):
            mmh3.hash64(urlsplit(urljoin(URL, href)).geturl())
    with contextlib.suppress(OverflowError):  # the package (2.1.2) on a feature that occurs 256 times, with numpy 2
        Simhash(" ".join(tree.xpath("//text()[not(ancestor::script or ancestor::style)]")))


def scrapy_way() -> Callable[[bytes], object] | None:
    sys.path += [path for path in (os.environ.get("SCRAPY_PATH"),) if path]
    try:
        from scrapy.http import HtmlResponse
        from scrapy.linkextractors import LinkExtractor
    except ImportError:
        return None
    extractor = LinkExtractor()
    return lambda body: extractor.extract_links(HtmlResponse(URL, body=body, encoding="utf-8"))


def factory(_: object) -> Callable[[bytes], int]:
    """For the guarding child: the page is parsed there, its text and links come back."""
    return lambda body: html.parse_page(body, URL, "text/html", RULES, normalizer=NORMALIZER)  # type: ignore[return-value]


def guarded(pages: list[bytes], turns: int = 20) -> float:
    """CPU ms a page of parent and child together, without the child's start."""

    spent = []
    for count in (0, turns):
        start = cpu()
        with Isolated("parse:factory", None, 20, 1 << 30) as child:
            for _ in child.map(pages[:1] + pages * count):
                pass
        spent.append(cpu() - start)
    return (spent[1] - spent[0]) / turns / len(pages) * 1e3


def whole_task(pages: list[bytes], turns: int = 20) -> float:
    """CPU ms a page of all that a task of the parse job does, child included: records from a WARC file in, rows out.
    What starting the child costs is measured by itself and taken off."""
    plain = {"settings": dataclasses.replace(SETTINGS, parse=RULES).to_json(), "seed_hosts": [], "seed_domains": []}
    plain |= {"buckets": 32, "segment": "b.1of1", "month": "2026-11", "parse_version": 1}
    spent = []
    with tempfile.TemporaryDirectory() as folder:
        fetches = stored(pages * turns, Path(folder, "x.warc.gz"))
        for count in (1, len(fetches)):
            start = cpu()
            for _ in parsetask.run([pa.RecordBatch.from_pylist(fetches[:count])], plain, folder):
                pass
            spent.append(cpu() - start)
    return (spent[1] - spent[0]) / (len(fetches) - 1) * 1e3


def stored(pages: list[bytes], file: Path) -> list[dict[str, object]]:
    """The pages as records of a WARC file, and the rows that point at them."""
    fetches: list[dict[str, object]] = []
    with file.open("wb") as out:
        for number, body in enumerate(pages):
            url, date = f"{URL}?n={number}", "2026-11-30T12:00:00.000000Z"
            head = (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK", [(b"Content-Type", b"text/html")])
            capture = warc.Capture(url, date, "127.0.0.1", *head, body, warc.payload_digest(body))
            member = warc.member(warc.response(capture))
            where = {"warc_file": file.name, "warc_offset": out.tell(), "warc_length": len(member)}
            names = {
                "url": url,
                "url_key": url_key(url),
                "host": "www.example.org",
                "bucket": 1,
                "kind": "page",
                "depth": 1,
            }
            fetches.append(names | where | {"what": parsetask.RECORD, "x_robots_tag": None, "seed_priority": None})
            out.write(member)
    return fetches


def cpu() -> float:
    """Seconds of this process and of its children that have ended."""
    mine, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return mine.ru_utime + mine.ru_stime + others.ru_utime + others.ru_stime


def measure(rows: dict[str, Callable[[Prepared], object]], pages: list[Prepared]) -> dict[str, float]:
    """CPU milliseconds a page of each row: the best of many turns of each page. Rows are taken in turn, each with a
    first page that does not count: it pays for the memory that the row before gave back to the system.
    """
    best = {name: [float("inf")] * len(pages) for name in rows}
    for _ in range(TURNS):
        for name, work in rows.items():
            gc.collect()
            gc.disable()  # whose turn it is when the collector runs is chance
            work(pages[0])
            for place, page in enumerate(pages):
                start = time.process_time_ns()
                work(page)
                best[name][place] = min(best[name][place], (time.process_time_ns() - start) / 1e6)
            gc.enable()
    return {name: sum(costs) / len(costs) for name, costs in best.items()}


def main() -> None:
    bodies = pages_of(sys.argv[1:])
    pages = [Prepared(body) for body in bodies]

    rows: dict[str, Callable[[Prepared], object]] = {
        "ours, all of it": lambda page: ours(page.body),
        "ours with language detection": lambda page: ours_with_language(page.body),
        **{f"  {name}": part for name, part in PARTS.items()},
        "lxml, iterlinks, urllib, simhash": lambda page: lxml_way(page.body),
    }
    if scrapy := scrapy_way():
        rows["Scrapy, links alone"] = lambda page: scrapy(page.body)
    best = measure(rows, pages)
    best["ours in the guarding child"] = guarded(bodies)
    best["whole task: WARC to rows, guarded"] = whole_task(bodies)
    own, parts = best["ours, all of it"], sum(best[f"  {name}"] for name in PARTS)
    size, count = sum(map(len, bodies)) / len(pages) / 1000, sum(len(page.hrefs) for page in pages) / len(pages)
    print(f"{len(pages)} pages of {size:.0f} KB with {count:.0f} links; CPU ms a page, and as a multiple of ours\n")
    for name, cost in (best | {"sum of the parts": parts}).items():
        print(f"{name:36} {cost:8.3f} {cost / own:7.2f}")
    print(f"\nours / its parts: {own / parts:.2f} (at most 1.5)")
    if scrapy:
        print(f"Scrapy's links / ours: {best['Scrapy, links alone'] / own:.1f} (at least 3)")


if __name__ == "__main__":
    main()
