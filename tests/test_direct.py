"""direct: small reads and writes of Delta by delta-rs; no JVM. That Spark reads them too, the wheel shows."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from fake_s3 import FakeS3
from spindle import direct

COLUMNS = pa.schema([("segment", pa.string()), ("month", pa.string()), ("n", pa.int64())])


def rows(*values: tuple[str, str, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(COLUMNS.names, value, strict=True)) for value in values], schema=COLUMNS)


def table_at(location: str) -> str:
    DeltaTable.create(location, COLUMNS, partition_by=["month"], storage_options=direct.storage_options())
    return location


@pytest.fixture
def table(tmp_path: Path) -> str:
    return table_at(str(tmp_path / "a table % of tests"))


def values(location: str, **equals: object) -> list[tuple[str, int]]:
    return sorted((row["segment"], row["n"]) for row in direct.read(location, equals).to_pylist())


def test_rows_come_back_by_the_values_of_their_columns(table: str) -> None:
    direct.append(table, rows(("a", "2026-11", 1), ("b", "2026-11", 2), ("a", "2026-12", 3)))
    assert values(table) == [("a", 1), ("a", 3), ("b", 2)]
    assert values(table, segment="a", month="2026-12") == [("a", 3)]
    assert values(table, n=[1, 2, 9]) == [("a", 1), ("b", 2)]
    assert values(table, segment="it's not there") == []
    assert direct.read(table, {"n": 3}, ["n"]).column_names == ["n"]


def test_a_replacement_leaves_other_rows_and_may_run_twice(table: str) -> None:
    direct.append(table, rows(("a", "2026-11", 1), ("b", "2026-11", 2), ("a", "2026-12", 3)))
    for _ in range(2):
        direct.replace(table, "month = '2026-11' AND segment = 'a'", rows(("a", "2026-11", 7), ("a", "2026-11", 8)))
        assert values(table) == [("a", 3), ("a", 7), ("a", 8), ("b", 2)]
    direct.replace(table, "segment = 'a'", rows())
    assert values(table) == [("b", 2)]


def test_a_transaction_number_that_was_seen_adds_nothing(table: str) -> None:
    assert direct.version(table, "copy") == 0
    assert direct.append(table, rows(("a", "2026-11", 1)), ("copy", 5))
    assert not direct.append(table, rows(("a", "2026-11", 2)), ("copy", 5))
    assert not direct.append(table, rows(("a", "2026-11", 3)), ("copy", 4))
    assert direct.append(table, rows(("b", "2026-11", 4)), ("another", 1))
    assert (direct.version(table, "copy"), values(table)) == (5, [("a", 1), ("b", 4)])


def test_of_many_with_one_transaction_number_one_adds_its_rows(table: str) -> None:
    ready, won = threading.Barrier(6), []

    def work(number: int) -> None:
        ready.wait()
        won.append(direct.append(table, rows(("a", "2026-11", number)), ("copy", 1)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won.count(True) == 1
    assert len(values(table)) == 1


def test_plain_rows_take_the_tables_types(table: str) -> None:
    made = direct.from_rows(table, [{"segment": "a", "month": "2026-11", "n": 1}, {"segment": "b", "month": "m"}])
    assert made.schema.field("n").type == pa.int64()
    direct.append(table, made)
    assert direct.read(table, {}).column("n").null_count == 1


def test_an_object_store_is_named_by_the_variables_of_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeS3("crawl") as s3:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
        for name, value in {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b", "REGION": "us-east-1"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        location = table_at("s3a://crawl/wheel/metrics")
        assert direct.append(location, rows(("a", "2026-11", 1)), ("copy", 1))
        assert values(location) == [("a", 1)]
        commits = [headers for method, path, headers in s3.log if method == "PUT" and path.endswith("1.json")]
        assert [headers.get("If-None-Match", headers.get("if-none-match")) for headers in commits] == ["*"]
