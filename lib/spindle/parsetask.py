"""One task of the parse job: records in file order, understood in a child that can be killed, and counted.

This file alone decides what goes between the JVM and the parse workers: rows of JSON text, so that the shape of the
tables stays in `schema`, and one last row with the task's counts, so that nobody need count the rows again. What a
record means is `extract`'s; a page that hangs, crashes or eats memory costs itself (`isolate`). It needs no Spark.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from spindle.config import from_json
from spindle.errors import WarehouseError
from spindle.isolate import Failure, Isolated
from spindle.reader import SegmentReader

if TYPE_CHECKING:
    import pyarrow as pa

    from spindle.extract import Extract, Rules

#: What a task yields. `page`: a row of `pages`, or null; `links`: an array of rows of `links`; `counts`: null but in a
#: task's last row.
COLUMNS = ("page", "links", "counts")

#: Kinds of work, the column `what`. Of the last two only the number matters.
RECORD, REDIRECT, ROBOTS, UNCHANGED, NO_RECORD = "record", "redirect", "robots", "unchanged", "no_record"

READ_AHEAD_BYTES = 4 << 20  # sequential reads; S3 charges and waits by request
BATCH_ROWS = 200  # pages a batch to the JVM, or fewer:
BATCH_CHARS = 8 << 20  # bounds a task's memory where pages are large

FACTORY = "spindle.parsetask:factory"  # what runs in the child

Row = dict[str, Any]


class Made(NamedTuple):
    """What the child found, ready for the JVM."""

    page: str | None
    links: str
    counts: Counter[str]


def run(batches: Iterable[pa.RecordBatch], plain: Mapping[str, Any], root: str) -> Iterator[pa.RecordBatch]:
    """Parses a partition. `plain`: see `rules_of`; `root`: the store of the segment files.

    Raises:
        WarehouseError: the store fails; no fault of any page.
        IsolationError: the guarding child cannot start.
    """
    counts: Counter[str] = Counter()
    batch: list[Row] = []
    size = 0
    for made in _parsed((row for table in batches for row in table.to_pylist()), plain, root, counts):
        counts += made.counts
        counts["chars"] += len(made.page or "") + len(made.links)
        batch.append({"page": made.page, "links": made.links, "counts": None})
        size += len(made.page or "") + len(made.links)
        if len(batch) >= BATCH_ROWS or size >= BATCH_CHARS:
            yield _batch(batch)
            batch, size = [], 0
    yield _batch([*batch, {"page": None, "links": "[]", "counts": json.dumps(counts)}])


def _batch(rows: list[Row]) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_pylist(rows, schema=pa.schema([(name, pa.string()) for name in COLUMNS]))


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
        return Made(None, "[]", Counter({failure.reason: 1}))
    page = failed(row, f"{failure.reason}: {failure.detail}", rules_of(plain))
    return Made(json.dumps(page), "[]", Counter({"pages": 1, "errors": 1, failure.reason: 1}))


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
    counts = Counter({f"rejected.{reason}": number for reason, number in made.rejected.items()})
    counts["links"] = len(made.links)
    if made.page is not None:
        counts["pages"], counts["errors"] = 1, int(made.page["error"] is not None)
    return Made(None if made.page is None else json.dumps(made.page), json.dumps(made.links), counts)
