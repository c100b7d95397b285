"""What understanding a page costs, side by side: the whole job, its parts measured bare, and what others do.

Run: `.venv/bin/python bench/parse.py [FOLDER_OF_HTML ...]`. Generated pages first, 20 KB with 59 links as in the fetch
bench; then up to 2,000 real ones of the folders, or of Debian's documentation packages where they are installed
(python3-doc, debian-handbook, postgresql-doc, git-doc). CPU milliseconds a page = CPU seconds per 1,000 pages; all rows
are taken in turn and the best of many turns of each page counts, since other loads on the machine only add. Read the
ratios, not the figures. The bars (issue 6): the whole job (record, charset, tree, links normalised and keyed, text,
SimHash, rows) at least 3 times cheaper than Scrapy's link extraction (shown where Scrapy can be imported; SCRAPY_PATH
may name a folder that has it) and at most 1.5 times its own parts. Language detection and the guarding child are apart.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import lxml.html
import mmh3
import pyarrow as pa
from selectolax.lexbor import LexborHTMLParser
from simhash import Simhash

from spindle import charset, config, extract, fingerprint, html, htmltree, links, pagefacts, parsetask, warc
from spindle.defaults import default_layer
from spindle.reader import SegmentReader
from spindle.urls import Normalizer, url_key

URL = "http://www.example.org/docs/guide/page.html"
TURNS, FEW = 40, 100  # of more pages than that, five turns say as much
MOST_PAGES, LEAST_BYTES = 2000, 500
DEBIAN = (
    "python3*/html",
    "python3*-doc/html",
    "debian-handbook/html/en-US",
    "postgresql-doc-*/html",
    "git/html",
    "git-doc",
)
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


def real_pages(arguments: list[str]) -> list[bytes]:
    """A sample of the HTML files below the folders; those that only lead elsewhere are no pages."""
    named = [Path(folder) for folder in arguments]
    folders = named or [folder for name in DEBIAN for folder in sorted(Path("/usr/share/doc").glob(name))]
    files = sorted({file.resolve() for folder in folders for file in folder.rglob("*.htm*") if file.is_file()})
    bodies = [body for file in files if len(body := file.read_bytes()) >= LEAST_BYTES]
    return random.Random(1).sample(bodies, min(len(bodies), MOST_PAGES))


PLAIN = {"settings": dataclasses.replace(SETTINGS, parse=RULES).to_json(), "seed_hosts": [], "seed_domains": []}
PLAIN |= {"buckets": 32, "segment": "b.1of1", "month": "2026-11", "parse_version": 1}
JOB = parsetask.rules_of(PLAIN)


class Prepared:
    """A page half done, so that each part can be measured by itself."""

    def __init__(self, body: bytes, fetch: dict[str, Any], reader: SegmentReader, work: Callable[[Any], Any]) -> None:
        self.body, self.fetch, self.reader, self.work = body, fetch, reader, work
        self.record = parsetask._record(fetch, reader) or b""
        self.text = charset.decode(body, "text/html").text
        self.tree = LexborHTMLParser(self.text, options=1)
        elements = htmltree.elements(self.tree)
        self.others = [element for element in elements if element.name != "a"]
        self.linking = [node for name, node in elements if name in ("a", "area", "link", "meta", "iframe")]
        self.hrefs = [found.href for found in links.candidates(elements, forms=False)]
        self.page = html.parse_page(body, URL, "text/html", RULES)
        self.made = work((fetch, self.record))
        self.row = json.loads(self.made.page)

    def rows(self) -> extract.Extract:
        made = extract.Extract(None)
        extract._add_links(made, self.page, 1, JOB)
        return made

    def facts(self) -> tuple[object, ...]:
        metas = pagefacts.by_name(pagefacts.metas_of(self.others))
        dates = pagefacts.published(metas, {}), pagefacts.modified(metas, {})
        described = pagefacts.title_of(self.others, metas), pagefacts.first(metas, "description", "og:description")
        return described, dates, pagefacts.declared_language(self.tree, metas), pagefacts.open_graph(metas)


def whole(page: Prepared) -> object:
    """What a task does for a record, but for the guarding child, language, and rows to Arrow (`to_arrow`)."""
    return page.work((page.fetch, parsetask._record(page.fetch, page.reader))).chars


PARTS: dict[str, Callable[[Prepared], object]] = {
    "record read, inflated, parsed": lambda page: warc.read_record(page.record).http,
    "charset and decoding": lambda page: charset.decode(page.body, "text/html"),
    "tree (lexbor)": lambda page: LexborHTMLParser(page.text, options=1),
    "links: elements and attributes": lambda page: [n.attributes for n in page.tree.css("a,area,link,meta,iframe")],
    "links: anchor texts": lambda page: [" ".join(n.text().split()) for n in page.linking],
    "links: normalised and keyed": lambda page: NORMALIZER.links(page.hrefs, URL),
    "facts: title, metas, dates": lambda page: page.facts(),
    "text: walk and fold": lambda page: " ".join(page.tree.body.text(separator=" ").split()),  # type: ignore[union-attr]
    "words, text hash and SimHash": lambda page: fingerprint.of_text(page.page.text, 16),
    "rows: traps, scope, domain, bucket": lambda page: page.rows(),
    "rows: JSON of the page": lambda page: json.dumps(page.row),
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


class Unguarded:
    """Stands in for `isolate.Isolated`: the same work in this process."""

    def __init__(self, _: str, argument: Any, *__: object) -> None:
        self.work = parsetask.factory(argument)

    def __enter__(self) -> Unguarded:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, items: Iterable[Any]) -> Iterator[Any]:
        return map(self.work, items)


def task(fetches: list[dict[str, object]], folder: str) -> float:
    """CPU ms a page of a whole task with all its processes: records of a WARC file in, batches out. What its start
    costs is measured by itself and taken off."""
    spent = []
    for count in (1, len(fetches)):
        start = cpu()
        for _ in parsetask.run([pa.RecordBatch.from_pylist(fetches[:count])], PLAIN, folder):
            pass
        spent.append(cpu() - start)
    return (spent[1] - spent[0]) / (len(fetches) - 1) * 1e3


def guarding(fetches: list[dict[str, object]], folder: str, turns: int = 3) -> tuple[float, float]:
    """A task with the guarding child and without, the better of a few turns of each, one after the other."""
    guarded, bare = [], []
    real = parsetask.Isolated
    for _ in range(turns):
        guarded.append(task(fetches, folder))
        parsetask.Isolated = Unguarded  # type: ignore[assignment,misc]
        bare.append(task(fetches, folder))
        parsetask.Isolated = real  # type: ignore[misc]
    return min(guarded), min(bare)


def to_arrow(pages: list[Prepared]) -> float:
    """CPU ms a page of making the JVM's batches, as a task does: many pages at a time."""
    made = [page.made for page in pages]
    batches = [made[start : start + parsetask.BATCH_ROWS] for start in range(0, len(made), parsetask.BATCH_ROWS)]
    spent = []
    for _ in range(TURNS):
        start = time.process_time_ns()
        for batch in batches:
            parsetask._batch(batch)
        spent.append(time.process_time_ns() - start)
    return min(spent) / len(pages) / 1e6


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


def measure(rows: dict[str, Callable[[Prepared], object]], pages: list[Prepared], of: int) -> dict[str, float]:
    """CPU milliseconds a page of each row: the best of many turns of each page, of fewer where the pages are many
    (`of`). Rows are taken in turn, each with a first page that does not count: it pays for the memory that the row
    before gave back to the system.
    """
    best = {name: [float("inf")] * len(pages) for name in rows}
    for _ in range(TURNS if of <= FEW else 5):
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


def compare(bodies: list[bytes], folder: str) -> None:
    """All rows for these pages, and the ratios that have a bar."""
    fetches = stored(bodies, Path(folder, "x.warc.gz"))
    reader, work = SegmentReader(folder, parsetask.READ_AHEAD_BYTES), parsetask.factory((PLAIN, folder))
    rows: dict[str, Callable[[Prepared], object]] = {
        "whole job but Arrow": whole,
        **{f"  {name}": part for name, part in PARTS.items()},
        "language detection, apart": lambda page: pagefacts.detected_language(page.page.text),
        "lxml, iterlinks, urllib, simhash": lambda page: lxml_way(page.body),
    }
    if len(bodies) > FEW:
        del rows["lxml, iterlinks, urllib, simhash"]  # it would take longer than all others
    if scrapy := scrapy_way():
        rows["Scrapy, links alone"] = lambda page: scrapy(page.body)
    best, count = dict.fromkeys([*rows, "  rows: to Arrow"], 0.0), 0
    for start in range(0, len(bodies), FEW):  # few at a time, since trees are large
        part = zip(bodies[start : start + FEW], fetches[start : start + FEW], strict=True)
        pages = [Prepared(body, fetch, reader, work) for body, fetch in part]
        for name, cost in (measure(rows, pages, len(bodies)) | {"  rows: to Arrow": to_arrow(pages)}).items():
            best[name] += cost * len(pages) / len(bodies)
        count += sum(len(page.hrefs) for page in pages)
    own = best.pop("whole job but Arrow") + best["  rows: to Arrow"]
    parts = sum(cost for name, cost in best.items() if name.startswith("  "))
    guarded, bare = guarding(fetches * max(1, 600 // len(fetches)), folder)
    size = sum(map(len, bodies)) / len(bodies) / 1000
    print(f"{len(bodies)} pages of {size:.0f} KB with {count / len(bodies):.0f} links; CPU ms a page, and in jobs\n")
    for name, cost in ({"whole job": own} | best | {"sum of the parts": parts}).items():
        print(f"{name:36} {cost:8.3f} {cost / own:7.2f}")
    print(f"\njob / its parts: {own / parts:.2f} (at most 1.5)")
    if scrapy:
        print(f"Scrapy's links / job: {best['Scrapy, links alone'] / own:.2f} (at least 3)")
    print(
        f"a task of these pages with the guarding child / without: {guarded:.3f} / {bare:.3f} = {guarded / bare:.2f}\n"
    )


def main() -> None:
    for bodies in ([made_page(seed) for seed in range(30)], real_pages(sys.argv[1:])):
        if not bodies:
            print("no real pages: name a folder, or apt-get install python3-doc debian-handbook postgresql-doc git-doc")
            continue
        with tempfile.TemporaryDirectory() as folder:
            compare(bodies, folder)


if __name__ == "__main__":
    main()
