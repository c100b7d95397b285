"""WARC parts joined when their task is done: every pointer still opens, whoever holds it, and a crash loses nothing."""

from __future__ import annotations

import asyncio
import io
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from warcio.archiveiterator import ArchiveIterator

from loopback import Fetched, Site, listing_rows, run
from spindle import warc
from spindle.errors import WarehouseError
from spindle.fetcher import Around, Listing, fetch_task, join, read_parts
from spindle.fetcher.journal import done_name, place_now
from spindle.reader import SegmentReader
from spindle.store import LocalStore, open_store

FOLDER = "segment-files/t.1of1"


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as one:
        yield one


def many_parts(site: Site, **fetch: Any) -> Any:
    """Seals so often that a few pages make many parts."""
    return site.settings({"politeness": {"min_delay_s": 0.1}, "fetch": {"seal_interval_s": 0.05, **fetch}})


def fetched(site: Site, root: Path, paths: int = 8, store: LocalStore | None = None, **fetch: Any) -> Fetched:
    """A task of a warehouse at `root`; the second page is the first one's copy, and so a revisit."""
    for n in range(paths):
        site.page(f"/{n}", f"page {max(n, 1)}" * 50)
    listing = Listing(listing_rows([site.url(f"/{n}") for n in range(paths)]))
    folder = store or open_store(root / FOLDER)
    work = fetch_task(
        listing, many_parts(site, **fetch), folder, segment="t.1of1", task=0, around=Around(folder=FOLDER)
    )
    made = asyncio.run(work)
    return Fetched(made, list(read_parts(folder, made["parts"])), root / FOLDER)


def warc_names(found: Fetched) -> list[str]:
    return sorted(path.name for path in (found.folder / "warc").iterdir())


def test_every_pointer_opens_in_the_one_file_that_is_left(site: Site, tmp_path: Path) -> None:
    found = fetched(site, tmp_path)
    assert len(found.manifest["joined"]) >= 4, "there were parts to join"
    (name,) = warc_names(found)
    assert name == "t.1of1-00000-001-j0000.warc.gz"
    for row in found.rows:
        fields = found.record(row).fields
        assert fields["warc-target-uri"] == (row["url"] if row["type"] == "fetch" else row["origin"] + "/robots.txt")
    kinds = Counter[str]()
    for record in ArchiveIterator(io.BytesIO((found.folder / "warc" / name).read_bytes()), check_digests="raise"):
        record.content_stream().read()
        kinds[record.rec_type] += 1
        if record.rec_type == "warcinfo":
            assert record.rec_headers.get_header("WARC-Filename") == name
    assert kinds == {"warcinfo": 1, "request": 9, "response": 8, "revisit": 1}


def test_what_names_a_part_is_followed_to_where_it_went(site: Site, tmp_path: Path) -> None:
    """A revisit record says where its payload lies, in a part that is no more."""
    found = fetched(site, tmp_path)
    (row,) = [row for row in found.pages if found.record(row).type == "revisit"]
    location = found.record(row).location
    assert location is not None and not (tmp_path / location[0]).exists()
    reader = SegmentReader(str(tmp_path), 1)
    for _ in range(2):  # once asked, then remembered
        original = warc.read_record(reader.read(*location))
    assert (original.type, original.http.body) == ("response", b"page 1" * 50)
    with pytest.raises(FileNotFoundError):
        reader.read(location[0].replace("-00000-", "-00007-"), 0, 1)
    with pytest.raises(FileNotFoundError):
        reader.read("segment-files/t.1of1/warc/none", 0, 1)


def test_files_are_closed_at_their_size(site: Site, tmp_path: Path) -> None:
    found = fetched(site, tmp_path, warc_file_bytes=1500)
    assert len(warc_names(found)) > 1
    assert {file for file, _ in found.manifest["joined"].values()} == {f"warc/{name}" for name in warc_names(found)}
    for row in found.pages:
        assert found.record(row).fields["warc-target-uri"] == row["url"]


@pytest.mark.parametrize(("pages", "limit"), [(1, 1 << 30), (8, 0)], ids=["one part", "not wanted"])
def test_parts_that_stay(site: Site, tmp_path: Path, pages: int, limit: int) -> None:
    settings = many_parts(site, warc_file_bytes=limit) if pages > 1 else site.settings()
    found = run(site, [site.url(f"/{n}") for n in range(pages)], settings, root=tmp_path)
    assert found.manifest["joined"] == {}
    assert all(found.record(row).fields["warc-target-uri"] == row["url"] for row in found.pages)


def test_a_crash_between_manifest_and_tidying_is_made_good(site: Site, tmp_path: Path) -> None:
    found = fetched(site, tmp_path)
    store = open_store(tmp_path / FOLDER)
    for part in found.manifest["joined"]:
        store.put(part, b"as if it had not been removed yet")
    assert fetched(site, tmp_path).manifest == found.manifest
    assert len(warc_names(found)) == 1


def test_a_crash_before_the_manifest_leaves_no_stray(site: Site, tmp_path: Path) -> None:
    class Dies(LocalStore):
        def create_exclusive(self, name: str, content: bytes) -> bool:
            if name == done_name(0):
                raise KeyboardInterrupt
            return super().create_exclusive(name, content)

    with pytest.raises(KeyboardInterrupt):
        fetched(site, tmp_path, store=Dies(str(tmp_path / FOLDER)))
    found = fetched(site, tmp_path)
    assert warc_names(found) == ["t.1of1-00000-002-j0000.warc.gz"]
    assert Counter(row["url"] for row in found.pages) == Counter(site.url(f"/{n}") for n in range(8))
    assert all(found.record(row).fields["warc-target-uri"] == row["url"] for row in found.pages)


def test_a_store_without_room_keeps_the_parts(site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Full(LocalStore):
        def open_writer(self, name: str) -> Any:
            if "-j" in name:
                raise WarehouseError(f"{name}: the disk is full")
            return super().open_writer(name)

    found = fetched(site, tmp_path, store=Full(str(tmp_path / FOLDER)))
    assert found.manifest["joined"] == {} and len(warc_names(found)) >= 4
    assert "keeps its WARC parts as they are" in caplog.text
    assert all(found.record(row).fields["warc-target-uri"] == row["url"] for row in found.pages)


def test_a_damaged_part_leaves_nothing_behind(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    whole = warc.member(warc.warcinfo("a", "2026-12-01T00:00:00Z", {"software": "x"}))
    store.put("warc/a", whole + whole)
    store.put("warc/b", whole[:20])
    with pytest.raises(warc.WarcError, match="cut off"):
        join.join(store, ["warc/a", "warc/b"], lambda n: f"warc/j{n}", 1, {})
    assert store.list("") == ["warc/a", "warc/b"]


def test_a_row_without_a_record_has_no_place_to_move() -> None:
    row = {"warc_file": "warc/a", "warc_offset": 7, "warc_length": 9}
    assert place_now(row, {}) == ("warc/a", 7, 9)
    assert place_now(row, json.loads('{"warc/a": ["warc/j", 100]}')) == ("warc/j", 107, 9)
