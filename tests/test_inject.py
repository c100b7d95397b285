"""inject: what goes in, and what it must leave alone (known faults, group A: apache/nutch#158 and #829)."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rows import NOW, add, ago, new_warehouse, settings_of, url_row
from spindle import cli, urls
from spindle.jobs import inject
from spindle.segments import SegmentId, State

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SITEMAP = b"""<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
<url><loc>http://a.test/1</loc><priority>1.0</priority></url><url><loc>/relative</loc></url>
<url><loc>ftp://a.test/</loc></url><url><loc>http://a.test/1</loc></url></urlset>"""
INDEX = b"<sitemapindex><sitemap><loc>http://a.test/m1.xml</loc></sitemap></sitemapindex>"


@pytest.mark.parametrize(
    ("name", "body", "lines", "told", "why"),
    [
        ("m.xml", SITEMAP, [("http://a.test/1", "page"), ("relative", "page")], "scheme 1, duplicate 1", "a urlset"),
        ("m.xml.gz", gzip.compress(INDEX), [("http://a.test/m1.xml", "sitemap")], "", "an index, packed"),
        ("m.txt", b"http://a.test/x\n", [("http://a.test/x", "page")], "", "one URL a line"),
    ],
)
def test_a_sitemap_is_a_list_of_seeds(
    name: str, body: bytes, lines: list[tuple[str, str]], told: str, why: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / name).write_bytes(body)
    found = [json.loads(line) for line in inject.read_sitemap(str(tmp_path / name))]
    assert [(line["url"], line["kind"]) for line in found] == lines, why
    assert all("priority" not in line for line in found), "what a site claims of itself is no word of ours"
    err = capsys.readouterr().err
    assert all(part in err for part in told.split(", ")) and bool(err) == bool(told)


def test_a_relative_entry_is_a_bad_line_and_a_sitemap_on_the_web_a_seed(tmp_path: Path) -> None:
    (tmp_path / "m.xml").write_bytes(SITEMAP)
    lines, lists = inject.read_lists([], [str(tmp_path / "m.xml"), "http://b.test/m.xml"])
    seeds, faults = inject.sift(lines, settings_of())
    assert [(seed.url, seed.kind) for seed in seeds] == [
        ("http://a.test/1", "page"),
        ("http://b.test/m.xml", "sitemap"),
    ]
    assert [(fault.line, fault.reason) for fault in faults] == [(2, "not_absolute")]
    assert [size for _, size in lists] == [2, 1]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "nothing to inject: name a seed list"),
        (["no/such/file"], "seed list no/such/file: No such file or directory"),
        (["--sitemap", "no/such.xml"], "seed list no/such.xml: No such file or directory"),
        (["--sitemap", __file__], "no_urls; expected XML"),
    ],
)
def test_what_cannot_be_read_leaves_nothing_behind(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """apache/nutch#829: a missing seed path kept the table locked."""
    assert cli.main(["inject", "--warehouse", str(tmp_path / "w"), *words]) == 2
    assert told in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(900)
def test_inject_touches_only_what_it_was_given(spark: SparkSession, tmp_path: Path) -> None:
    """apache/nutch#158: rows that no longer pass the filter stay as they are. And a seed that is known is not reset
    unless asked; its priority outlives that."""
    warehouse = new_warehouse(spark, tmp_path / "w")
    known = [url_row(f"http://{host}.test/{n}", status="fetched", fetch_count=3, next_fetch=ago(-9), last_fetch=ago(9))
             for host in ("kept", "denied") for n in range(5)]  # fmt: skip
    add(warehouse, "urls", known)
    settings = settings_of(scope={"deny": ["host:denied.test"]})
    lines = ["http://new.test/\tpriority=0.9\tteam=docs", "http://kept.test/1\tpriority=1.0", "http://denied.test/2"]
    lines += ["http://new.test:80/#top\tpriority=0.7"]

    def everything() -> dict[str, str]:
        rows = warehouse.read("urls").selectExpr("url", "to_json(struct(*)) AS row").collect()
        return {row.url: row.row for row in rows}

    before = everything()
    counts, faults = inject.run(warehouse, lines, settings, NOW, SegmentId("one"))
    assert (counts["inserted"], counts["seeds"], counts["rejected.out_of_scope"]) == (1, 2, 1)
    assert [fault.line for fault in faults] == [3]
    after = everything()
    assert {url: row for url, row in after.items() if url in before} == before, "the ten are as they were"
    new = json.loads(after["http://new.test/"])
    assert (new["seed_priority"], new["status"], new["depth"], new["kind"]) == (0.7, "new", 0, "page"), "the last wins"
    assert (new["bucket"], new["url_key"]) == (urls.bucket_of("new.test", 4), urls.url_key("http://new.test/"))

    assert inject.run(warehouse, lines, settings, NOW, SegmentId("two"))[0]["inserted"] == 0
    assert everything() == after, "twice is once"
    inject.run(warehouse, lines, settings, NOW, SegmentId("three"), overwrite=True)
    renewed = json.loads(everything()["http://kept.test/1"])
    assert (renewed["seed_priority"], renewed["fetch_count"], renewed["status"]) == (1.0, 3, "fetched")
    assert [entry.state for entry in warehouse.ledger.entries()] == [State.OPENED, State.UPDATED] * 3, (
        "no lease is left"
    )
