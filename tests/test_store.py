"""Segment files: the same promises of a local folder and of S3."""

from __future__ import annotations

import errno
import os
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fake_s3 import FakeS3
from spindle import store_s3
from spindle.errors import WarehouseError
from spindle.store import LocalStore, Store, open_store


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeS3]:
    with FakeS3("bucket", page_size=2) as fake:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", fake.endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        store_s3._clients.clear()
        yield fake
        store_s3._clients.clear()


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local":
        return open_store(tmp_path / "with blank % and #")
    request.getfixturevalue("s3")
    return open_store("s3a://bucket/ware house")


def test_what_is_put_can_be_read_whole_and_in_ranges(store: Store) -> None:
    store.put("a/b.txt", b"0123456789")
    assert store.get("a/b.txt") == b"0123456789"
    assert store.get_range("a/b.txt", 3, 4) == b"3456"
    assert store.get_range("a/b.txt", 8, 100) == b"89"
    store.put("a/b.txt", b"new", durable=False)
    assert store.get("a/b.txt") == b"new"


def test_a_missing_file_is_its_own_error(store: Store) -> None:
    for read in (lambda: store.get("no"), lambda: store.get_range("no", 0, 1)):
        with pytest.raises(FileNotFoundError):
            read()
    assert not store.exists("no")
    store.delete("no")
    assert store.list("no/") == []


def test_listing_is_by_prefix_and_sorted(store: Store) -> None:
    for name in ("j/00001.done", "j/00001-002.jsonl", "j/00001-001.jsonl", "j/00010-001.jsonl", "k/x", "j/deep/y"):
        store.put(name, b"")
    assert store.list("j/00001-") == ["j/00001-001.jsonl", "j/00001-002.jsonl"]
    assert store.list("j/") == [
        "j/00001-001.jsonl",
        "j/00001-002.jsonl",
        "j/00001.done",
        "j/00010-001.jsonl",
        "j/deep/y",
    ]
    store.delete("j/00001.done")
    assert not store.exists("j/00001.done")


def test_one_creator_wins_and_the_content_is_whole(store: Store) -> None:
    wins: list[int] = []

    def create(number: int) -> None:
        if store.create_exclusive("epoch-001", b"%d" % number * 1000):
            wins.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wins) == 1
    assert store.get("epoch-001") == b"%d" % wins[0] * 1000


def test_a_writer_s_file_appears_when_it_is_sealed(store: Store) -> None:
    writer = store.open_writer("warc/x.gz")
    writer.write(b"abc")
    writer.write(b"def")
    assert (writer.size, writer.name) == (6, "warc/x.gz")
    assert not store.exists("warc/x.gz")
    assert store.list("warc/") == []
    writer.seal()
    assert store.get("warc/x.gz") == b"abcdef"
    assert store.list("warc/") == ["warc/x.gz"]


def test_an_abandoned_writer_leaves_nothing(store: Store, tmp_path: Path) -> None:
    writer = store.open_writer("warc/x.gz")
    writer.write(b"abc" * 4_000_000)
    writer.abandon()
    assert store.list("") == []
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_what_a_dead_writer_left_can_be_cleared(store: Store, tmp_path: Path) -> None:
    """Only under the prefix, and no file that is finished; the dead one, should it wake up, cannot finish."""
    store.put("warc/t-00001-001.gz", b"whole")
    dead, other = store.open_writer("warc/t-00001-002.gz"), store.open_writer("warc/t-00002-001.gz")
    for writer in (dead, other):
        writer.write(b"x" * (18 << 20))
    store.clear_unfinished("warc/t-00001-")
    store.clear_unfinished("none/such-")
    other.seal()
    with pytest.raises((WarehouseError, FileNotFoundError)):
        dead.seal()
    assert store.list("warc/") == ["warc/t-00001-001.gz", "warc/t-00002-001.gz"]
    assert [path.name for path in tmp_path.rglob(".*")] == []


def test_large_files_arrive_whole(store: Store) -> None:
    """Larger than several parts of a multipart upload, in pieces that do not fit them."""
    writer, pieces = store.open_writer("big"), [bytes([n]) * 3_333_333 for n in range(9)]
    for piece in pieces:
        writer.write(piece)
    writer.seal()
    assert store.get("big") == b"".join(pieces)


def test_stores_can_be_pickled_and_used_after_a_fork(store: Store) -> None:
    """boto/botocore#1246: no client is captured; each process makes its own."""
    store.put("a", b"parent")
    again = pickle.loads(pickle.dumps(store))
    assert again.get("a") == b"parent"
    child = os.fork()
    if child == 0:
        try:
            again.put("b", again.get("a") + b" and child")
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.get("b") == b"parent and child"


def test_urls_name_the_store() -> None:
    assert open_store("file:///tmp/a%20b").root == "/tmp/a b"
    assert open_store("file:/tmp/x").root == "/tmp/x"
    assert open_store("s3://b/x/").root == open_store("s3a://b/x").root == "s3://b/x"
    with pytest.raises(WarehouseError, match="gs:// is not supported"):
        open_store("gs://b/x")


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    store, stop = open_store(tmp_path), threading.Event()
    store.put("f", b"a" * 100_000)

    def write() -> None:
        while not stop.is_set():
            store.put("f", b"b" * 100_000, durable=False)
            store.put("f", b"a" * 100_000, durable=False)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        seen = {store.get("f") for _ in range(300)}
    finally:
        stop.set()
        thread.join()
    assert seen <= {b"a" * 100_000, b"b" * 100_000}


@pytest.mark.parametrize(
    ("code", "words"),
    [(errno.ENOSPC, "disk is full"), (errno.EACCES, "no permission"), (errno.EROFS, "read-only"), (errno.EIO, "error")],
)
def test_a_disk_that_refuses_is_a_clear_error(
    code: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(str(tmp_path))
    writer = store.open_writer("warc/x")

    def refuse(_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(WarehouseError, match=words) as caught:
        store.put("a", b"x")
    assert str(tmp_path / "a") in str(caught.value)
    writer.write(b"x")
    with pytest.raises(WarehouseError, match=words):
        writer.seal()
    assert store.list("") == []


def test_a_root_that_is_a_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(WarehouseError, match=str(tmp_path)):
        open_store(tmp_path / "file").put("a", b"x")


def test_other_stores_get_no_checksums_they_do_not_know(s3: FakeS3) -> None:
    """boto3 1.36 adds them to every upload by default; S3-compatible stores refuse them (boto/boto3#4398)."""
    store = open_store("s3://bucket/w")
    store.put("small", b"x" * 1000)
    writer = store.open_writer("large")
    writer.write(b"x" * (20 << 20))
    writer.seal()
    sent = [headers for method, _, headers in s3.log if method in ("PUT", "POST")]
    assert len(sent) >= 5
    assert not [name for headers in sent for name in headers if "checksum" in name or name == "x-amz-trailer"]


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (403, "AccessDenied", "no permission"),
        (404, "NoSuchBucket", "bucket does not exist"),
        (403, "SignatureDoesNotMatch", "secret key"),
        (400, "Strange", "refused"),
    ],
)
def test_s3_errors_say_what_and_where(s3: FakeS3, status: int, code: str, words: str) -> None:
    store = open_store("s3://bucket/w")
    s3.fail = [(status, code)] * 3
    with pytest.raises(WarehouseError, match=words) as caught:
        store.put("a", b"x")
    assert "s3://bucket/w/a" in str(caught.value)


def test_an_exclusive_create_that_was_repeated_by_the_network_is_still_the_winner(s3: FakeS3) -> None:
    """The first PUT arrived, its answer was lost, the client's retry gets 412: the content tells that we won."""
    store = open_store("s3://bucket/w")
    s3.objects["bucket/w/epoch"] = b"me"
    assert store.create_exclusive("epoch", b"me")
    assert not store.create_exclusive("epoch", b"somebody else")


def test_an_unreachable_endpoint_is_a_clear_error(s3: FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    store_s3._clients.clear()
    with pytest.raises(WarehouseError, match="AWS_ENDPOINT_URL_S3"):
        open_store("s3://bucket/w").exists("a")
