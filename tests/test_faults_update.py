"""Known faults of other crawlers and of Delta, groups *Near-duplicates* and *Update and Delta*: each with its test.

The table names, for each entry, where it is tested; what no other file tests is tested here. `OWED` are those that are
not met yet, and why.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cases import shared_file
from rows import direct_warehouse
from spindle import schema, tables
from spindle.clusters import preferred
from spindle.errors import SegmentStateError
from test_clusters import copy
from test_dedup import crawl, run, verdicts

ROOT = Path(__file__).resolve().parents[1]
GROUPS = ("F. Near-duplicates", "G. Update and Delta")
COMES_HOME = "test_update.py::test_a_parsed_segment_comes_home"
HERE = "test_faults_update.py"

#: The first id of each entry -> where it is tested.
TESTED = {
    "1e0ng/simhash#14": "test_dedup.py::test_four_bits_are_too_many_and_short_pages_are_alike_only_to_the_byte",
    "hajimes/mmh3#52": "test_fingerprint.py::",
    "1e0ng/simhash#26": "test_dedup.py::test_mixed_generations_of_fingerprints_are_refused",
    "apache/nutch#723": f"{HERE}::test_odd_urls_do_not_end_the_job",
    "apache/nutch#425": f"{HERE}::test_exactly_one_copy_survives_and_always_the_same",
    "apache/stormcrawler#239": f"{HERE}::test_a_canonical_link_to_another_page_changes_nothing_there",
    "delta-io/delta#218": COMES_HOME,
    "delta-io/delta#780": "test_schema.py::test_keys_and_partitions_are_never_null",
    "delta-io/delta#1418": f"{HERE}::test_settings_that_guard_delta_are_never_touched",
    "delta-io/delta#668": COMES_HOME,
    "delta-io/delta#761": f"{HERE}::test_a_conflict_is_tried_again_from_the_read_a_few_times",
    "delta-io/delta#3318": f"{HERE}::test_merges_name_their_columns",
    "delta-io/delta#3954": f"{HERE}::test_no_handle_outlives_a_statement",
    "apache/nutch#485": "test_lifecycle.py::test_a_chain_or_loop_is_a_matter_of_each_row_alone",
    "commoncrawl/news-crawl#9": COMES_HOME,
    "apache/nutch#108": "test_lifecycle.py::test_modified_time_is_ours_whatever_the_server_claims",
    "delta-io/delta#1141": f"{HERE}::test_a_turn_is_applied_once_and_an_older_one_is_refused",
    "delta-io/delta#1470": f"{HERE}::test_settings_that_guard_delta_are_never_touched",
    "delta-io/delta#535": f"{HERE}::test_rows_of_urls_are_slim",
    "apache/nutch#212": "test_segments.py::test_advance",
    "apache/stormcrawler#203": "test_lifecycle.py::test_failures_back_off_and_end_as_dead",
}
OWED = {"delta-io/delta#546": "nothing compacts `urls` yet: small files of many updates pile up"}


def test_every_known_fault_has_its_test_or_is_owed() -> None:
    text = shared_file("known_faults.md").read_text(encoding="utf-8")
    found = set()
    for group in GROUPS:
        body = text.split(f"\n## {group}\n")[1].split("\n## ")[0]
        found |= {re.split(r"[ ,]", line.removeprefix("[!] "))[0] for line in re.findall(r"^### (.+)$", body, re.M)}
    assert found == set(TESTED) | set(OWED)


@pytest.mark.parametrize(("fault", "place"), TESTED.items())
def test_the_tests_are_there(fault: str, place: str) -> None:
    file, _, name = place.partition("::")
    assert f"def {name}" in (ROOT / "tests" / file).read_text(encoding="utf-8"), fault


# --- near-duplicates


def test_odd_urls_do_not_end_the_job(tmp_path: Path) -> None:
    """NUTCH-2935: comparing copies unescaped their URLs and raised on `%zz`; the well-formed one is preferred."""
    warehouse, odd = direct_warehouse(tmp_path / "w"), ["http://h.test/a%zz", "http://h.test/%", "http://h.test/a"]
    crawl(warehouse, "t1", [(url, "same", None) for url in odd])
    run(warehouse)
    assert [url for url, (_, duplicate) in verdicts(warehouse).items() if not duplicate] == ["http://h.test/a"]


def test_exactly_one_copy_survives_and_always_the_same(tmp_path: Path) -> None:
    """NUTCH-2683, NUTCH-2570: all copies were marked, or another one each time, or http kept over https."""
    urls = ["http://a.test/page", "https://a.test/page", "https://a.test/page/longer"]
    for number, order in enumerate((urls, urls[::-1])):
        warehouse = direct_warehouse(tmp_path / f"w{number}")
        crawl(warehouse, "t1", [(url, "same", 5) for url in order])
        run(warehouse)
        run(warehouse)
        survivors = [url for url, (_, duplicate) in verdicts(warehouse).items() if not duplicate]
        assert survivors == ["https://a.test/page"]


def test_a_canonical_link_to_another_page_changes_nothing_there(tmp_path: Path) -> None:
    """stormcrawler#239: the status was written to the URL that a page claimed as canonical."""
    warehouse = direct_warehouse(tmp_path / "w")
    crawl(warehouse, "t1", [("http://b.test/", "other", 0x1234 << 40)])
    crawl(warehouse, "t2", [("http://a.test/1", "own", 5)], canonical="http://b.test/")
    run(warehouse)
    assert set(verdicts(warehouse).values()) == {(None, False)}, "it is no copy, so the claim is not heard"
    assert preferred([copy("http://a.test/1", canonical="http://b.test/")]).url == "http://a.test/1"


# --- update and Delta


class Spark:
    """A session that only has settings."""

    def __init__(self) -> None:
        self.set_now: dict[str, str] = {}
        self.conf = SimpleNamespace(set=self.set_now.__setitem__, unset=self.set_now.pop)


def test_a_turn_is_applied_once_and_an_older_one_is_refused(tmp_path: Path) -> None:
    """delta#1141: the commit lands and the caller dies before it notes that; Delta skips lower numbers in silence. The
    commit carries the turn's number, which is read first."""
    warehouse, spark = direct_warehouse(tmp_path / "w"), Spark()
    object.__setattr__(warehouse, "spark", spark)
    with tables.applied_once(warehouse, "events", "update 0-4", 7, "a.1of1") as is_new:
        assert is_new
        assert spark.set_now == {
            "spark.databricks.delta.write.txnAppId": "update 0-4",
            "spark.databricks.delta.write.txnVersion": "7",
            "spark.databricks.delta.commitInfo.userMetadata": "a.1of1",
        }
        commit(warehouse, "update 0-4", 7)
    assert spark.set_now == {}, "for one statement only"
    with tables.applied_once(warehouse, "events", "update 0-4", 7, "a.1of1") as is_new:
        assert not is_new and spark.set_now == {}
    with (
        pytest.raises(SegmentStateError, match=r"up to turn 7; turn 6 .* too old"),
        tables.applied_once(warehouse, "events", "update 0-4", 6, "late.1of1"),
    ):
        pass
    with tables.applied_once(warehouse, "events", "update 4-8", 6, "late.2of2") as is_new:
        assert is_new, "of another range"


def commit(warehouse: tables.Warehouse, application: str, number: int) -> None:
    from spindle import direct

    location = warehouse.location("events")
    assert direct.append(location, direct.from_rows(location, []), (application, number))


def test_a_conflict_is_tried_again_from_the_read_a_few_times() -> None:
    """delta#761: one of two that commit at once fails."""
    from delta.exceptions import DeltaConcurrentModificationException

    tries: list[int] = []

    def conflicting(times: int) -> str:
        tries.append(1)
        if len(tries) <= times:
            raise DeltaConcurrentModificationException("somebody was faster")
        return "done"

    assert (tables.retry_conflicts(conflicting, 2), len(tries)) == ("done", 3)
    tries.clear()
    with pytest.raises(DeltaConcurrentModificationException):
        tables.retry_conflicts(conflicting, 99)
    assert len(tries) == 5, "a limited number of times"


def sources() -> dict[str, str]:
    files = [*ROOT.glob("jobs/*.py"), *ROOT.glob("lib/spindle/**/*.py"), *ROOT.glob("conf/*")]
    return {str(file): file.read_text(encoding="utf-8") for file in files if file.is_file()}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("materializeSource", "delta#1418: a source that is evaluated twice may give other rows the second time"),
        ("retentionDurationCheck", "delta#1470: a vacuum too early takes files from readers"),
    ],
)
def test_settings_that_guard_delta_are_never_touched(name: str, why: str) -> None:
    assert [file for file, text in sources().items() if name in text] == [], why


def test_merges_name_their_columns() -> None:
    """delta#3318: update-all and insert-all want every column of the table in the source."""
    found = [file for file, text in sources().items() if re.search(r"when(Not)?Matched(Update|Insert)All", text)]
    assert found == []


def test_no_handle_outlives_a_statement(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """delta#3954, delta#2063: a handle or frame over the table is no snapshot; each statement opens its own."""
    import delta.tables

    made: list[Any] = []
    monkeypatch.setattr(delta.tables.DeltaTable, "forPath", lambda *_: made.append(object()) or made[-1])
    warehouse = direct_warehouse(tmp_path / "w")
    assert warehouse.delta("urls") is not warehouse.delta("urls") and len(made) == 2
    holders = [file for file, text in sources().items() if re.search(r"self\.\w+ = .*(DeltaTable|\.delta\()", text)]
    assert holders == []


def test_rows_of_urls_are_slim() -> None:
    """delta#535: text, headers or bodies in the table make a merge run out of memory. A few hundred bytes a row."""
    assert not {"text", "body", "headers", "html", "links", "anchor"} & set(schema.columns("urls"))
    assert "BINARY" not in schema.TABLES["urls"] and "ARRAY" not in schema.TABLES["urls"]
