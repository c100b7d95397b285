"""One task of the parse job: records in file order, understood in a child that can be killed, and counted.

This file alone decides what goes between the JVM and the parse workers (COLUMNS), and that a last row has the task's
counts, so that nobody need count the rows again. A page goes as JSON, so that the shape of its table stays in `schema`;
its text, half of the bytes, and its links, most of the values, go as they are: as JSON they cost as much again as
finding them. What a record means is `extract`'s; a page that hangs, crashes or eats memory costs itself (`isolate`). It
needs no Spark.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from spindle import schema
from spindle.config import from_json
from spindle.errors import WarehouseError
from spindle.isolate import Failure, Isolated
from spindle.reader import SegmentReader

if TYPE_CHECKING:
    import pyarrow as pa

    from spindle.extract import Extract, Rules, Target

#: What a task yields, a row a URL: `page`, a row of `pages` without its text, or null; `text`; `links`, with where they
#: stand; `counts`: null but in a task's last row.
_LINK = {name: kind for name, kind in schema.kinds("links").items() if name not in schema.LINK_SOURCE}
_LINKS = f"ARRAY<STRUCT<{', '.join(f'{name}: {kind}' for name, kind in _LINK.items())}>>"
_FROM = ("src_key", "src_url", "src_host")
COLUMNS = {"page": "STRING", "text": "STRING", **{name: schema.kinds("links")[name] for name in _FROM}}
COLUMNS |= {"links": _LINKS, "counts": "STRING"}

#: Kinds of work, the column `what`. Of the last two only the number matters.
RECORD, REDIRECT, ROBOTS, UNCHANGED, NO_RECORD = "record", "redirect", "robots", "unchanged", "no_record"

READ_AHEAD_BYTES = 4 << 20  # sequential reads; S3 charges and waits by request
BATCH_ROWS = 200  # pages a batch to the JVM, or fewer:
BATCH_CHARS = 8 << 20  # bounds a task's memory where pages are large
_LINK_CHARS = 100  # of a link's row beside its URL, about

FACTORY = "spindle.parsetask:factory"  # what runs in the child

Row = dict[str, Any]


class Made(NamedTuple):
    """What the child found, ready for the JVM. `source`: by _FROM."""

    page: str | None
    text: str | None
    source: tuple[int, str, str] | None
    links: list[Target]
    counts: dict[str, int]

    @property
    def chars(self) -> int:
        """About its size in the JVM."""
        return len(self.page or "") + len(self.text or "") + sum([len(link[3]) + _LINK_CHARS for link in self.links])


def run(batches: Iterable[pa.RecordBatch], plain: Mapping[str, Any], root: str) -> Iterator[pa.RecordBatch]:
    """Parses a partition. `plain`: see `rules_of`; `root`: the store of the segment files.

    Raises:
        WarehouseError: the store fails; no fault of any page.
        IsolationError: the guarding child cannot start.
    """
    counts: Counter[str] = Counter()
    batch: list[Made] = []
    size = 0
    for made in _parsed((row for table in batches for row in table.to_pylist()), plain, root, counts):
        for name, number in made.counts.items():
            counts[name] += number
        chars = made.chars
        counts["chars"] += chars
        batch.append(made)
        size += chars
        if len(batch) >= BATCH_ROWS or size >= BATCH_CHARS:
            yield _batch(batch)
            batch, size = [], 0
    yield _batch(batch, json.dumps(counts))


def _batch(made: list[Made], counts: str | None = None) -> pa.RecordBatch:
    """The rows, and one with the counts if there are any."""
    import pyarrow as pa

    rows = [*made, *([Made(None, None, None, [], {})] if counts else [])]
    ends = list(accumulate((len(row.links) for row in rows), initial=0))
    values = zip(*(link for row in rows for link in row.links), strict=True)
    own = [pa.array(column, kind) for column, kind in zip(values, _arrow(_LINK), strict=True)] if ends[-1] else None
    found = pa.StructArray.from_arrays(own or [pa.array([], kind) for kind in _arrow(_LINK)], list(_LINK))
    sources = zip(*(row.source or (None, None, None) for row in rows), strict=True)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([row.page for row in rows], pa.string()),
            pa.array([row.text for row in rows], pa.string()),
            *(
                pa.array(column, kind)
                for column, kind in zip(sources, (pa.int64(), pa.string(), pa.string()), strict=True)
            ),
            pa.ListArray.from_arrays(pa.array(ends, pa.int32()), found),
            pa.array([*(None for _ in made), *([counts] if counts else [])], pa.string()),
        ],
        list(COLUMNS),
    )


def _arrow(kinds: Mapping[str, str]) -> list[Any]:
    import pyarrow as pa

    known = {"STRING": pa.string(), "BIGINT": pa.int64(), "INT": pa.int32(), "BOOLEAN": pa.bool_()}
    return [(known | {"DOUBLE": pa.float64()})[kind] for kind in kinds.values()]


def pages_in(results: pa.Table) -> list[Row]:
    """The rows of `pages` in what tasks yielded."""
    told = zip(results["page"].to_pylist(), results["text"].to_pylist(), strict=True)
    return [json.loads(page) | {"text": text} for page, text in told if page]


def links_in(results: pa.Table, segment: str, parse_version: int) -> list[Row]:
    """The rows of `links` in what tasks yielded."""
    here = {"segment": segment, "parse_version": parse_version}
    return [
        {**here, **{name: row[name] for name in _FROM}, **link}
        for row in results.select([*_FROM, "links"]).to_pylist()
        for link in row["links"]
    ]


def _parsed(rows: Iterable[Row], plain: Mapping[str, Any], root: str, counts: Counter[str]) -> Iterator[Made]:
    """The result of each row that is work; the others are counted under their kind."""
    reader, settings = SegmentReader(root, READ_AHEAD_BYTES), from_json(plain["settings"]).parse
    waiting: deque[Row] = deque()

    def items() -> Iterator[tuple[Row, bytes | None]]:
        for row in rows:
            if row["what"] in (UNCHANGED, NO_RECORD):
                counts[row["what"]] += 1
            else:
                waiting.append(row)
                yield row, _record(row, reader)

    with Isolated(FACTORY, (dict(plain), root), settings.timeout_s, settings.memory_bytes) as child:
        for result in child.map(items()):
            row = waiting.popleft()
            if isinstance(result, WarehouseError):
                raise result
            yield _failed(row, result, plain) if isinstance(result, Failure) else result


def _record(row: Row, reader: SegmentReader) -> bytes | None:
    """The stored bytes of a row's record; None where there is none."""
    if row["what"] != RECORD:
        return None
    try:
        return reader.read(row["warc_file"], row["warc_offset"], row["warc_length"])
    except FileNotFoundError:
        return None


def _failed(row: Row, failure: Failure, plain: Mapping[str, Any]) -> Made:
    """The row of a page that cost the child its life."""
    from spindle.extract import failed

    if row["what"] != RECORD:
        return Made(None, None, None, [], {failure.reason: 1})
    page = failed(row, f"{failure.reason}: {failure.detail}", rules_of(plain))
    return Made(json.dumps(page), None, None, [], {"pages": 1, "errors": 1, failure.reason: 1})


def rules_of(plain: Mapping[str, Any]) -> Rules:
    """What holds for all pages of a segment, from values that any process can be sent."""
    from spindle.extract import Rules
    from spindle.scope import Scope
    from spindle.urls import Normalizer

    settings = from_json(plain["settings"])
    scope = Scope(settings.scope, seed_hosts=plain["seed_hosts"], seed_domains=plain["seed_domains"])
    same = (plain["buckets"], plain["segment"], plain["month"], plain["parse_version"])
    return Rules(settings, scope, Normalizer(settings.url), *same)


# --- in the child


def factory(argument: tuple[Mapping[str, Any], str]) -> Callable[[tuple[Row, bytes | None]], Any]:
    """Called once in the child; its imports are the parser's."""
    from spindle import extract

    plain, root = argument
    rules, others = rules_of(plain), SegmentReader(root, 1)

    def work(item: tuple[Row, bytes | None]) -> Made | WarehouseError:
        row, record = item
        if row["what"] == REDIRECT:
            return _told(extract.of_redirect(row, rules))
        if row["what"] == ROBOTS:
            return _told(extract.of_robots(row["url"], row["sitemaps"], rules))

        def read(file: str, offset: int, length: int) -> bytes:
            if (file, offset) != (row["warc_file"], row["warc_offset"]):
                return others.read(file, offset, length)  # the body that a revisit record points at
            if record is None:
                raise FileNotFoundError(file)
            return record

        try:
            return _told(extract.of_record(row, read, rules))
        except WarehouseError as error:
            return error

    return work


def _told(made: Extract) -> Made:
    counts = {f"rejected.{reason}": number for reason, number in made.rejected.items() if number}
    page, text, source = None, None, None
    if made.page is not None:
        text = _storable(made.page.pop("text"))
        page = json.dumps(made.page)
        counts |= {"pages": 1} | ({} if made.page["error"] is None else {"errors": 1})
    if made.targets:
        counts["links"] = len(made.targets)
        source = (made.source["src_key"], made.source["src_url"], made.source["src_host"])
        _storable("".join([target[7] or "" for target in made.targets]))  # anchors; URLs are ASCII
    return Made(page, text, source, made.targets, counts)


def _storable(text: str | None) -> str | None:
    """The same. Raises UnicodeEncodeError here, where half a character costs its page, not where many pages are one."""
    if text is not None:
        text.encode()
    return text
