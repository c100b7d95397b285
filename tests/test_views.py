"""The views of `sql/`, each asked on a small crawl that is written down here; and that each says what it answers."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rows import NOW, Row, ago, fetched_row, frame, host_row, link_row, new_warehouse, url_row
from spindle import schema
from spindle.cli import ask
from spindle.cli.ask import initial_sql, views
from spindle.defaults import shipped_text

SEGMENT = "s.1of1"
A, B, C = "http://a.test/", "http://a.test/b", "http://a.test/copy"
MOVED, GONE, ALONE, SCRIPT = "http://a.test/moved", "http://b.test/gone", "http://b.test/alone", "http://b.test/app"
PAST, FUTURE = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), datetime.datetime(2999, 1, 1, tzinfo=datetime.UTC)
HELD: dict[str, Any] = {"status": "fetched", "fetch_count": 2, "change_count": 1, "fetch_interval_s": 3600}


def urls() -> list[Row]:
    page = HELD | {"last_fetch": PAST, "next_fetch": PAST, "last_segment": SEGMENT}
    a = url_row(A, depth=0, priority=1, **page | {"next_fetch": FUTURE})
    b = url_row(B, content_hash="h", **page)
    copy = url_row(C, content_hash="h", duplicate_of=b["url_key"], **page | {"status": "duplicate"})
    moved = url_row(MOVED, redirect_to=B, http_status=301, **page | {"status": "redirected"})
    gone = url_row(GONE, http_status=404, last_outcome="not_found", failure_streak=1, status="retry", next_fetch=FUTURE)
    return [a, b, copy, moved, gone, url_row(ALONE, next_fetch=PAST), url_row(SCRIPT, **page)]


def fetches(rows: list[Row]) -> list[Row]:
    a, b, copy, moved, gone, alone, script = rows
    same = {"wire_bytes": 100, "ttfb_ms": 10.0}
    return [
        fetched_row(a, SEGMENT, "ok", started_at=ago(60), **same),
        fetched_row(b, SEGMENT, "ok", gap_ms=2000.0, started_at=ago(50), **same),
        fetched_row(copy, SEGMENT, "ok", gap_ms=1999.0, started_at=ago(40), **same),
        fetched_row(moved, SEGMENT, "redirect", gap_ms=5000.0, started_at=ago(30), **same),
        fetched_row(gone, SEGMENT, "not_found", started_at=ago(20), **same),
        fetched_row(alone, SEGMENT, "denied", started_at=None, ended_at=None, duration_ms=None),
        fetched_row(script, SEGMENT, "ok", gap_ms=4000.0, crawl_delay_s=5.0, started_at=ago(10), **same),
    ]


def segments() -> list[Row]:
    sheets = [{"delay_s": None}, {"delay_s": 9.0}]  # no sheet makes any host faster
    pins = json.dumps({"settings": {"politeness": {"min_delay_s": 2.0}, "scope": {"sheets": sheets}}})
    row: Row = dict.fromkeys(schema.columns("segments")) | {"segment": SEGMENT, "at": NOW, "slice_i": 1, "slice_n": 1}
    row |= {"bucket_lo": 0, "bucket_hi": 4, "turn": 1, "seq": 1, "state": "opened", "pins": pins}
    return [row, row | {"seq": 2, "state": "generated", "pins": None}]


def pages(rows: list[Row]) -> list[Row]:
    facts = {"segment": SEGMENT, "parse_version": 1, "month": f"{NOW:%Y-%m}", "kind": "page"}
    same = [{name: row[name] for name in ("url_key", "bucket", "url", "host")} | facts for row in rows]
    made = [dict.fromkeys(schema.columns("pages")) | row | {"needs_js": row["url"] == SCRIPT} for row in same]
    return [row | {"title": "An app", "word_count": 2} if row["needs_js"] else row for row in made]


@pytest.fixture(scope="module")
def asked(spark: SparkSession) -> Iterator[Any]:
    known = urls()
    robots: Row = dict.fromkeys(schema.columns("robots")) | {"origin": "http://b.test", "host": "b.test", "bucket": 0}
    robots |= {"since": NOW, "attempted_at": NOW, "expires_at": NOW, "verdict": "rules", "http_status": 200}
    links = [link_row(A, B, SEGMENT, 1, anchor="to b"), link_row(A, GONE, SEGMENT, 1, anchor="lost")]
    links += [link_row(B, A, SEGMENT, 1, nofollow=True), link_row(A, ALONE, SEGMENT, 1, rel="sitemap")]
    made = {"urls": known, "fetches": fetches(known), "segments": segments(), "pages": pages(known)}
    made |= {"hosts": [host_row("a.test", quality=0.75), host_row("b.test")], "robots": [robots], "links": links}
    for table in schema.TABLES:
        frame(spark, table, made.get(table, [])).createOrReplaceTempView(table)
    for statement in views().values():
        spark.sql(statement)
    yield lambda query: [tuple(row) for row in spark.sql(query).collect()]
    for name in (*views(), *schema.TABLES):
        spark.catalog.dropTempView(name)


EXPECTED: list[tuple[str, str, list[tuple[Any, ...]]]] = [
    (
        "crawl_overview",
        "urls, due, hosts, segments, fetches, good, throttled, wire_bytes",
        [(7, 5, 2, 1, 7, 4, 0, 600)],
    ),
    ("frontier", "level, urls, never_fetched, due", [(1, 1, 0, 0), (3, 6, 2, 5)]),
    (
        "host_report",
        "host, state, requests, good, errors, wire_bytes, min_gap_ms, quality",
        [("a.test", "up", 4, 3, 0, 400, 1999.0, 0.75), ("b.test", "up", 2, 1, 0, 200, 4000.0, None)],
    ),
    (
        "status_mix",
        "CAST(day AS STRING), outcome, fetches, percent",
        [("2026-11-30", "ok", 4, 66.7), ("2026-11-30", "not_found", 1, 16.7), ("2026-11-30", "redirect", 1, 16.7)],
    ),
    ("freshness", "age, urls, overdue, mean_interval_s, changes_per_fetch", [("5 older", 4, 3, 3600.0, 0.5)]),
    ("duplicates", "original, copy, host, content_hash", [(B, C, "a.test", "h")]),
    ("redirects", "url, http_status, redirect_to, target_status", [(MOVED, 301, B, "fetched")]),
    (
        "robots_refusals",
        "host, denied, unreachable, verdict, robots_status, example",
        [("b.test", 1, 0, "rules", 200, ALONE)],
    ),
    ("slowest_hosts", "host, requests, mean_ms, busy_s", [("a.test", 4, 100.0, 9.4), ("b.test", 2, 100.0, 4.2)]),
    ("gap_violations", "url, gap_ms, least_ms", [(C, 1999.0, 2000.0), (SCRIPT, 4000.0, 5000.0)]),
    ("orphans", "url", [(C,), (MOVED,), (ALONE,), (SCRIPT,)]),
    ("broken_links", "source, anchor, target, last_outcome, http_status", [(A, "lost", GONE, "not_found", 404)]),
    (f"inlinks_of WHERE url = '{A}'", "source, source_host, rel, nofollow", [(B, "a.test", "a", True)]),
    ("needs_js", "host, url, title, word_count", [("b.test", SCRIPT, "An app", 2)]),
]


@pytest.mark.parametrize(("view", "columns", "expected"), EXPECTED, ids=[row[0].split()[0] for row in EXPECTED])
def test_a_view_answers_its_question(asked: Any, view: str, columns: str, expected: list[tuple[Any, ...]]) -> None:
    found = asked(f"SELECT {columns} FROM {view}")
    assert sorted(found, key=str) == sorted(expected, key=str)


def test_each_view_is_asked_here_and_opens_with_its_question() -> None:
    assert {row[0].split()[0] for row in EXPECTED} == set(views())
    for name in views():
        assert shipped_text(f"sql/{name}.sql").splitlines()[0].rstrip(")").endswith(("?", "no row.")), name


@pytest.mark.parametrize("query", ["SELECT * FROM nowhere", "SELEC 1", "SELECT nothing FROM urls", ""])
def test_a_query_that_makes_no_sense_is_told_in_a_sentence(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str], query: str
) -> None:
    new_warehouse(spark, tmp_path / "w")
    assert ask.sql(["--warehouse", str(tmp_path / "w"), query]) == 2
    told = capfd.readouterr().err
    assert told.startswith("spindle sql: [") and "Views: broken_links, crawl_overview" in told
    assert not any(word in told for word in ("Traceback", "org.apache", "'Project", '"ts"'))


def test_another_session_gets_all_tables_and_views_of_one_warehouse() -> None:
    text = initial_sql("/data/wheel")
    assert all(f"delta.`/data/wheel/{table}`" in text for table in schema.TABLES)
    assert all(f"VIEW {name} AS" in text for name in views())
    assert "${" not in text
