"""Tables and columns: what other modules and other people's readers rely on."""

from __future__ import annotations

import re

import pytest

from spindle import schema
from spindle.lifecycle import UrlFacts

DESIGN_TABLES = """
    urls hosts inbox robots segments fetchlist fetches pages links fingerprints copies clusters seen events metrics
    traps
"""
TYPES = re.compile(
    r"(BIGINT|INT|DOUBLE|STRING|BOOLEAN|TIMESTAMP|DATE|BINARY|ARRAY<(STRING|BIGINT)>|MAP<STRING, (STRING|BIGINT)>)"
    r"( NOT NULL)?"
)
#: What a row is found or merged by (DESIGN section 2); null never equals null (known_faults: delta-io/delta#780).
KEYS = {
    "urls": ["bucket", "url_key"],
    "hosts": ["host", "bucket"],
    "inbox": ["id"],
    "robots": ["origin", "since"],
    "segments": ["segment", "state", "seq"],
    "fetchlist": ["segment", "task", "position", "url_key"],
    "fetches": ["segment", "url_key", "hop", "month"],
    "pages": ["segment", "url_key", "parse_version", "month"],
    "links": ["segment", "src_key", "dst_key", "dst_bucket"],
    "fingerprints": ["key_range", "key_table", "value", "url_key", "seq"],
    "copies": ["url_key", "bucket", "seq"],
    "clusters": ["cluster"],
    "traps": ["host", "form"],
    "seen": ["bucket"],
    "events": ["segment", "sequence"],
    "metrics": ["segment", "job", "attempt", "name"],
}


#: Claims of pages, kept as they were written: a date of year 1 or 2099 must not become a timestamp. And a foreign key.
AS_WRITTEN = {"published_at", "modified_at", "blob_key"}


def declared(table: str) -> dict[str, str]:
    """Column -> type with its NOT NULL."""
    return dict(field.split(" ", 1) for field in schema.field_ddl(table))


def test_tables_are_those_of_the_design() -> None:
    assert set(schema.TABLES) == set(DESIGN_TABLES.split())


@pytest.mark.parametrize("table", schema.TABLES)
def test_every_column_has_a_known_type_and_a_name_of_its_own(table: str) -> None:
    names = schema.columns(table)
    assert len(names) == len(set(names))
    for name, kind in declared(table).items():
        assert TYPES.fullmatch(kind), f"{table}.{name} {kind}"


@pytest.mark.parametrize("table", schema.TABLES)
def test_no_column_looks_reserved_and_names_hold_everywhere(table: str) -> None:
    """known_faults: delta-io/delta#1289: a column called path makes plans ambiguous under deletion vectors."""
    for name in schema.columns(table):
        assert re.fullmatch(r"[a-z][a-z0-9_]*", name), name
        assert name not in {"path", "filepath", "file_path", "metadata_file", "base_row_id", "row_index"}


@pytest.mark.parametrize(("table", "key"), KEYS.items())
def test_keys_and_partitions_are_never_null(table: str, key: list[str]) -> None:
    columns = declared(table)
    for name in [*key, *schema.PARTITIONS.get(table, [])]:
        assert columns[name].endswith(" NOT NULL"), f"{table}.{name}"


@pytest.mark.parametrize("table", schema.TABLES)
def test_units_and_hashes_have_their_types(table: str) -> None:
    for name, kind in declared(table).items():
        kind = kind.removesuffix(" NOT NULL")
        if name in AS_WRITTEN:
            assert kind == "STRING", name
            continue
        if name.endswith(("_s", "_ms")):
            assert kind in ("BIGINT", "DOUBLE"), name
        if name.endswith(("_key", "_bytes", "_offset", "_length", "simhash")):
            assert kind == "BIGINT", name
        if name.endswith("_at") or name in ("last_fetch", "next_fetch", "last_change", "record_date"):
            assert kind == "TIMESTAMP", name
        if name.endswith(("_hash", "outcome", "status")) and name not in ("http_status", "status"):
            assert kind == "STRING", name
        if name in ("bucket", "dst_bucket", "depth", "hop", "task"):
            assert kind.startswith("INT"), name


SHARED_COLUMNS = [
    # what travels from one table to the next keeps name and type
    ("urls", "fetchlist", "url_key bucket kind url host domain depth etag last_modified content_hash warc_file"),
    ("urls", "fetches", "url_key bucket url host http_status etag last_modified content_hash warc_file warc_offset"),
    ("fetches", "pages", "segment url_key month bucket url host"),
    ("urls", "pages", "url_key bucket simhash kind"),
    ("fetches", "robots", "host bucket http_status error warc_file warc_offset warc_length crawl_delay_s"),
    ("fetches", "hosts", "host bucket ip crawl_delay_s next_ok_at"),
]


@pytest.mark.parametrize(("source", "target", "names"), SHARED_COLUMNS)
def test_columns_that_travel_keep_their_type(source: str, target: str, names: str) -> None:
    one, other = declared(source), declared(target)
    for name in names.split():
        assert one[name].removesuffix(" NOT NULL") == other[name].removesuffix(" NOT NULL"), name


def test_counts_of_a_url_are_never_null() -> None:
    columns = declared("urls")
    for name, default in ((f.name, f.default) for f in UrlFacts.__dataclass_fields__.values()):
        assert columns[name].endswith(" NOT NULL") == (default is not None), name


def test_columns_reads_commas_inside_types_as_part_of_the_type() -> None:
    assert schema.columns("hosts")[-2:] == ["outcomes", "last_segment"]
    assert declared("hosts")["outcomes"] == "MAP<STRING, BIGINT>"


def test_partitions_and_deletion_vectors_name_real_tables() -> None:
    assert set(schema.PARTITIONS) <= set(schema.TABLES)
    assert set(schema.TABLES) >= schema.DELETION_VECTORS
    assert schema.PARTITIONS["urls"] == ["bucket"]  # a turn touches its slice only
