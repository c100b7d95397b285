"""Questions to a warehouse: SQL over its tables, the crawl in numbers, everything known of one URL. Reads only."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from spindle import runner, schema, tables, urls
from spindle.defaults import shipped_names, shipped_text
from spindle.errors import InputError
from spindle.session import open_session
from spindle.tables import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_DUE = "count_if(next_fetch <= now()) AS due"
STATS = {
    "URLs by status": f"SELECT status, count(*) AS urls, {_DUE} FROM urls GROUP BY ALL ORDER BY 2 DESC",
    "URLs by level": f"SELECT priority AS level, count(*) AS urls, {_DUE} FROM urls GROUP BY ALL ORDER BY 1",
    "hosts by state": "SELECT state, count(*) AS hosts FROM hosts GROUP BY ALL ORDER BY 2 DESC",
    "fetches by outcome": "SELECT outcome, count(*) AS fetches, sum(wire_bytes) AS wire_bytes FROM fetches "
    "GROUP BY ALL ORDER BY 2 DESC",
    "latest segments": "SELECT segment, max_by(state, seq) AS state, max(at) AS at FROM segments "
    "GROUP BY ALL ORDER BY max(seq) DESC LIMIT 10",
}


def sql(argv: Sequence[str]) -> int:
    parser = _parser("sql", "Ask the tables a question in SQL; every table is a view of its own name.")
    parser.add_argument("query", nargs="?", help="the SQL text; without it, it is read from standard input")
    parser.add_argument("--init", action="store_true", help="print the SQL that makes these views in another session")
    parser.add_argument("--rows", type=int, default=1000, metavar="N", help="rows shown at most (default 1000)")
    return runner.main("sql", parser, _sql, argv)


def _sql(options: argparse.Namespace) -> int:
    from pyspark.errors import AnalysisException, ParseException

    if options.init:
        print(initial_sql(tables.hadoop_uri(options.warehouse)))
        return 0
    warehouse = _open(options)
    query = sys.stdin.read() if options.query is None else options.query
    register(warehouse, query)
    try:
        frame = warehouse.spark.sql(query.strip().rstrip(";"))
        _print(frame.limit(options.rows) if options.rows >= 0 else frame)
    except (ParseException, AnalysisException) as error:
        text = str(error).split("JVM stacktrace")[0].split("\n'")[0].strip()  # without the plan that follows
        raise InputError(f"{text}\nTables: {', '.join(schema.TABLES)}\nViews: {', '.join(views())}") from None
    return 0


def register(warehouse: Warehouse, query: str = "") -> None:
    """Makes the tables temporary views of their own names, and the views of `sql/` that a query names."""
    for table in schema.TABLES:
        warehouse.read(table).createOrReplaceTempView(table)
    for name, statement in views().items():
        if re.search(rf"\b{name}\b", query, re.IGNORECASE):
            warehouse.spark.sql(statement)


def views() -> dict[str, str]:
    """The views that come with Spindle: name -> the statement that makes it. Each is a file of `sql/` that opens with
    the question it answers."""
    texts = {name.removesuffix(".sql"): shipped_text(f"sql/{name}") for name in shipped_names("sql")}
    return {name: text.split(";\n")[0] for name, text in texts.items() if name != "tables"}


def initial_sql(uri: str) -> str:
    """What `spark-sql -i` reads to have the tables and views of one warehouse."""
    text = shipped_text("sql/tables.sql").replace("${warehouse}", uri)
    return text + "\n".join(f"\n{statement};" for statement in views().values())


def stats(argv: Sequence[str]) -> int:
    return runner.main("stats", _parser("stats", "The crawl in a few numbers."), _stats, argv)


def _stats(options: argparse.Namespace) -> int:
    warehouse = _open(options)
    register(warehouse)
    for title, query in STATS.items():
        print(f"\n{title}")
        _print(warehouse.spark.sql(query))
    return 0


def url(argv: Sequence[str]) -> int:
    parser = _parser("url", "Everything known of one URL.")
    parser.add_argument("url", metavar="URL")
    return runner.main("url", parser, _url, argv)


def _url(options: argparse.Namespace) -> int:
    normal = runner.url_of(options.url, urls.Normalizer(runner.settings_of(options).url).normalize)
    warehouse, now = _open(options), runner.now_of(options)
    register(warehouse)
    key, host = urls.url_key(normal), urls.host_of(normal)
    bucket = urls.bucket_of(urls.registered_domain(host), warehouse.buckets)
    print(f"{normal}\nkey {key}, bucket {bucket}, host {host}")
    row = warehouse.read("urls").filter(f"bucket = {bucket} AND url_key = {key}").head()
    if row is None:
        print("\nnot in the URL table: no seed and no followed link has named it (or a rule refused it)")
        return 1
    print("\nits row")
    for name, value in row.asDict().items():
        if value is not None:
            print(f"  {name:18} {value}")
    print("\nwhy it is or is not listed\n  " + "\n  ".join(reasons(warehouse, row, now)))
    print("\nits history")
    columns = "segment, hop, outcome, http_status, started_at, duration_ms, redirect_to, warc_file, warc_offset"
    _print(warehouse.spark.sql(f"SELECT {columns} FROM fetches WHERE url_key = {key} ORDER BY started_at"))
    print("\nlinks to it")
    links = f"SELECT src_url, rel, anchor, segment FROM links WHERE dst_bucket = {bucket} AND dst_key = {key} LIMIT 20"
    _print(warehouse.spark.sql(links))
    return 0


def reasons(warehouse: Warehouse, row: Any, now: Any) -> list[str]:
    """Why generate would list this URL now, or would not."""
    told = []
    segments = (
        warehouse.read("fetchlist").filter(f"url_key = {row.url_key}").select("segment", "task", "position").collect()
    )
    told += [f"listed in segment {s.segment}, task {s.task}, place {s.position}" for s in segments]
    due = row.next_fetch is None or row.next_fetch.timestamp() <= now.timestamp()
    told.append("due" if due else f"not due until {row.next_fetch} UTC")
    host = warehouse.read("hosts").filter(f"host = '{row.host}'").head()
    if host is not None and host.paused:
        told.append("its host is paused by an operator")
    if host is not None and host.backoff_until is not None and host.backoff_until.timestamp() > now.timestamp():
        told.append(f"its host is {host.state} until {host.backoff_until} UTC")
    told += [f"its range is owned by segment {e.segment} ({e.state})" for e in _owners(warehouse, row.bucket)]
    if due and len(told) == len(segments) + 1:
        told.append(f"the next generate may list it: level {row.priority}, score {row.score:.3f}, budgets permitting")
    return told


def _owners(warehouse: Warehouse, bucket: int) -> list[Any]:
    from spindle.segments import live_overlaps

    return live_overlaps(warehouse.ledger.entries(), bucket, bucket + 1)


def _parser(name: str, description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"spindle {name}", description=description)
    runner.add_warehouse(parser)
    runner.add_settings(parser)
    return parser


def _open(options: argparse.Namespace) -> Warehouse:
    settings = runner.settings_of(options)
    tables.read_marker(options.warehouse)  # before a JVM is started for nothing
    return tables.open_warehouse(open_session("spindle ask", settings.spark, quick=True), options.warehouse)


def _print(frame: DataFrame) -> None:
    """A plain table, every cell in full, control characters made visible: titles and hosts are hostile input."""
    names, rows = frame.columns, [[_cell(value) for value in row] for row in frame.collect()]
    widths = [max([len(name), *(len(row[i]) for row in rows)]) for i, name in enumerate(names)]
    for row in [names, ["-" * width for width in widths], *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print(f"({len(rows)} rows)")


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)
