"""Near copies of a batch among stored fingerprints, beside a join by exact hash of the same rows in Spark.

Run: `.venv/bin/python bench/dedup.py --stored 1000000 5000000 --new 50000` (minutes; small by default). CPU seconds of
this process and, for the join, its JVM, in one run: read the ratios. The bar (issue 7): all pairs within 3 bits, at
most 3 times the join. Fingerprints are random, which is the worst case: no file and no range can be left out. A
thousandth of the new pages, at least ten, are near copies of stored ones, planted at 0 to 3 bits; all must be found.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parent))

from generate import cpu_of

from spindle import clusters, config, direct, nearpairs, tables
from spindle.clusters import Copy
from spindle.copies import ROW_GROUP, Copies
from spindle.defaults import default_layer
from spindle.fingerprint import to_signed
from spindle.jobs import dedup
from spindle.nearpairs import Layout
from spindle.session import open_session

SETTINGS = config.build([default_layer()])
LAYOUT = Layout(SETTINGS.dedup.near_bits, SETTINGS.dedup.blocks)
NOW = datetime.datetime(2026, 11, 30, 12, tzinfo=datetime.UTC)
STEP = 500_000


def fill(uri: str, values: np.ndarray, exact: np.ndarray) -> None:
    """The tables as a compaction leaves them: sorted, one row a key; every page by itself."""
    pages = np.arange(len(values), dtype=np.int64)
    parts = []
    for table in range(len(LAYOUT.tables) + 1):
        value = exact if table == nearpairs.EXACT else values
        parts.append((nearpairs.ranges(value, LAYOUT, table), np.full(len(value), table, np.int32), value))
    ranges, table, value = (np.concatenate(column) for column in zip(*parts, strict=True))
    page = np.tile(pages, len(parts))
    order = np.argsort(ranges.astype(np.uint16), kind="stable")

    def keys() -> Iterator[pa.RecordBatch]:
        kinds = direct.from_rows(f"{uri}/fingerprints", []).schema
        for start in range(0, len(order), STEP):
            some = order[start : start + STEP]
            columns = (ranges[some], table[some], value[some].view(np.int64), page[some])
            arrays = [*map(pa.array, columns), pa.array(np.zeros(len(some), bool)), pa.array(np.ones(len(some), int))]
            yield from pa.Table.from_arrays(arrays, schema=kinds).to_batches()

    def records() -> Iterator[pa.RecordBatch]:
        kinds = direct.from_rows(f"{uri}/copies", []).schema
        for start in range(0, len(pages), STEP):
            rows = [record(int(page), int(values[page]), int(exact[page])) for page in pages[start : start + STEP]]
            columns = {name: [row[name] for row in rows] for name in kinds.names}
            yield from pa.Table.from_pydict(columns, schema=kinds).to_batches()

    direct.rewrite(f"{uri}/fingerprints", keys(), ROW_GROUP)
    direct.rewrite(f"{uri}/copies", records(), ROW_GROUP)
    direct.upsert(f"{uri}/clusters", direct.from_rows(f"{uri}/clusters", []), "cluster", ("dedup", 1))


def record(page: int, value: int, exact: int) -> dict[str, object]:
    copy = copy_of(page, value, exact)
    names = ("url_key", "bucket", "url", "canonical_key", "discovered_at", "content_hash", "simhash", "live", "cluster")
    row = {name: getattr(copy, name) for name in names}
    return row | {"duplicate": False, "judged": False, "scheme": LAYOUT.scheme, "seq": 1}


def copy_of(page: int, value: int, exact: int) -> Copy:
    return Copy(
        page, 0, f"http://h{page % 997}.test/{page}", None, NOW, f"{exact:016x}" + "0" * 48, to_signed(value), True
    )


def search(copies: Copies, fresh: dict[int, Copy]) -> set[tuple[int, int]]:
    """What `jobs.dedup.search` does with pages that came."""
    before = copies.records(fresh)
    copies.note(fresh.values(), before, 2)
    pairs, _ = dedup.paired(copies, SETTINGS)
    known, groups = dedup.company(copies, fresh, pairs, SETTINGS.dedup.cluster_members)
    told, rows = clusters.settle(fresh, known, groups, pairs, 2)
    copies.tell(told, 2)
    copies.finish(rows, 2)
    return pairs


def joined(spark, folder: str, exact: np.ndarray, new: np.ndarray) -> float:
    """CPU seconds of a join by content hash: the best of three, as the first pays for compiling."""
    from deltalake import write_deltalake

    for name, values in (("stored", exact), ("new", new)):
        hashes = [f"{value:016x}" + "0" * 48 for value in values.tolist()]
        write_deltalake(f"{folder}/{name}", pa.table({"url_key": np.arange(len(values)), "content_hash": hashes}))
    cpu, best = cpu_of(spark), float("inf")
    for _ in range(3):
        begun = cpu()
        stored, fresh = (spark.read.format("delta").load(f"{folder}/{name}") for name in ("stored", "new"))
        stored.join(fresh.withColumnRenamed("url_key", "new_key"), "content_hash").collect()
        best = min(best, cpu() - begun)
    return best


def measure(spark, folder: str, stored: int, new: int) -> None:
    rng = np.random.default_rng(7)
    values, exact = (rng.integers(0, 2**64, stored, dtype=np.uint64) for _ in range(2))
    fresh, hashes = (rng.integers(0, 2**64, new, dtype=np.uint64) for _ in range(2))
    planted = max(10, new // 1000)
    for n in range(planted):
        fresh[n] = values[n]
        for bit in rng.choice(64, n % 4, replace=False):
            fresh[n] ^= np.uint64(1) << np.uint64(bit)
    warehouse = tables.create(spark, folder + "/w", 4, {})
    fill(warehouse.uri, values, exact)
    copies = Copies(warehouse.uri, LAYOUT, 1)
    came = {stored + n: copy_of(stored + n, int(fresh[n]), int(hashes[n])) for n in range(new)}
    begun = time.process_time()
    pairs = search(copies, came)
    ours = time.process_time() - begun
    found = sum((n, stored + n) in pairs for n in range(planted))
    join = joined(spark, folder, exact, hashes)
    print(
        f"{stored:>11,} stored, {new:,} new: {ours:.1f} CPU-s, {found} of {planted} planted copies found, "
        f"{len(pairs) - found} other pairs; join by exact hash {join:.1f} CPU-s; {ours / join:.2f} x the join",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stored", type=int, nargs="+", default=[200_000], help="fingerprints in the table")
    parser.add_argument("--new", type=int, default=10_000, help="of the batch")
    options = parser.parse_args()
    spark = open_session("bench dedup", SETTINGS.spark)
    for stored in options.stored:
        with tempfile.TemporaryDirectory() as folder:
            measure(spark, folder, stored, options.new)
    spark.stop()


if __name__ == "__main__":
    main()
