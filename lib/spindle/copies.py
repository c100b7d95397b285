"""The door to the tables of the search for copies: `fingerprints`, `copies`, `clusters`. No JVM; delta-rs reads them.

`fingerprints` and `copies` are logs: the row with the highest `seq` holds, and a run takes the place of what a broken
one left beyond the last finished run's number. That number is set with the rows of `clusters`, in one commit, which
alone makes a run true. What is a copy of what is decided by `nearpairs` and `clusters`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spindle import direct, ledger, nearpairs
from spindle.clusters import Cluster, Copy
from spindle.errors import LeaseHeld, WarehouseError
from spindle.nearpairs import EXACT, RANGES, Layout, Rows
from spindle.store import Store

APPLICATION = "dedup"
ROW_GROUP = 1 << 17
_COLUMNS = ["key_table", "value", "url_key", "seq", "gone"]


@dataclass(frozen=True, slots=True)
class Copies:
    """The tables of a warehouse, as the run number `done` left them. `uri` is spelled for Delta."""

    uri: str
    layout: Layout
    done: int

    def claim(self, store: Store, now: float, lease_s: float) -> None:
        """Says that this process goes on from the last finished run: two at once would take each other's rows away.
        Whose process is gone, or whose time is over, is followed.

        Raises:
            LeaseHeld: another process is at work.
        """
        folder = f"dedup-files/{self.done:012d}-"
        names = store.list(folder)
        if names:
            last = json.loads(store.get(names[-1]))
            if last["until"] > now and not ledger.is_gone(last["holder"]):
                raise LeaseHeld(f"dedup is at work ({last['holder']}, for another {last['until'] - now:.0f} s at most)")
        claim = json.dumps({"holder": ledger.holder(), "until": now + lease_s}).encode()
        if not store.create_exclusive(f"{folder}{len(names) + 1:06d}.json", claim):
            raise LeaseHeld("another dedup has begun at this very moment")

    @classmethod
    def open(cls, uri: str, layout: Layout) -> Copies:
        """As the last run that came to its end left them; its number is the ledger's place up to which it looked.

        Raises:
            WarehouseError: the keys were made under another layout or SimHash, so that nothing could be compared.
        """
        copies = cls(uri, layout, done(uri))
        schemes = set(direct.read(copies._at("copies"), {}, ["scheme"])["scheme"].unique().to_pylist())
        if other := schemes - {layout.scheme}:
            raise WarehouseError(
                f"{uri}/copies has fingerprints keyed as {', '.join(sorted(other))}, not {layout.scheme}: set "
                f"dedup.near_bits and dedup.blocks as they were"
            )
        return copies

    def records(self, keys: Iterable[int]) -> dict[int, Copy]:
        """What finished runs know of pages."""
        return self._latest({"url_key": sorted(set(keys))})

    def members(self, names: Iterable[int]) -> dict[int, Copy]:
        """The live pages that were last told one of these names."""
        wanted = set(names)
        told = self._read("copies", {"cluster": sorted(wanted)}, ["url_key"])
        found = self.records(row["url_key"] for row in told)
        return {key: page for key, page in found.items() if page.live and page.cluster in wanted}

    def clusters(self, names: Iterable[int]) -> dict[int, Cluster]:
        """These clusters with their roots, and all that have a root in common with them."""
        rows = self._read("clusters", {"cluster": sorted(set(names))})
        rows += self._read("clusters", {"root": sorted({row["root"] for row in rows})})
        return {row["cluster"]: Cluster(**row) for row in rows}

    def note(self, fresh: Iterable[Copy], before: Mapping[int, Copy], seq: int) -> int:
        """Writes that the keys which these pages had are gone, and those that they have now; returns how many rows."""
        came = list(fresh)
        was = [before[page.url_key] for page in came if page.url_key in before]
        here = keyed(came, self.layout), keyed(was, self.layout)
        ranges, table, value, page = (np.concatenate(both) for both in zip(*here, strict=True))
        gone = np.repeat([False, True], [len(part[0]) for part in here])
        order = np.lexsort((page, value, table, ranges))
        arrays = [pa.array(column[order]) for column in (ranges, table, value, page, gone)]
        names = ["key_range", "key_table", "value", "url_key", "gone", "seq"]
        self._add("fingerprints", pa.table([*arrays, pa.array(np.full(len(order), seq))], names=names))
        return len(order)

    def spans(self, most_rows: int) -> list[range]:
        """The key ranges, as many at a time as hold some `most_rows` rows."""
        rows, _ = direct.count(self._at("fingerprints"))
        parts = min(RANGES, max(1, -(-rows // most_rows)))
        return [range(n * RANGES // parts, (n + 1) * RANGES // parts) for n in range(parts)]

    def standing(self, span: range) -> Rows:
        """The rows that hold in some key ranges."""
        return nearpairs.standing(self._rows(span))

    def tell(self, pages: Sequence[Copy], seq: int) -> None:
        """Writes what is known of pages now."""
        same = {"scheme": self.layout.scheme, "seq": seq}
        kinds = direct.from_rows(self._at("copies"), []).schema
        columns = ([same.get(name) or getattr(page, name) for page in pages] for name in kinds.names)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, kinds, strict=True)]
        self._add("copies", pa.Table.from_arrays(arrays, schema=kinds))

    def finish(self, rows: Iterable[Cluster], seq: int) -> None:
        """Writes the clusters and, with them, that the run is true.

        Raises:
            WarehouseError: another run came to its end meanwhile.
        """
        told = direct.from_rows(self._at("clusters"), [dataclasses.asdict(row) for row in rows])
        came = done(self.uri) != self.done
        if came or not direct.upsert(self._at("clusters"), told, "cluster", (APPLICATION, seq)):
            raise WarehouseError("another dedup has finished meanwhile; run this one again")

    def compact(self, most_files: int, most_rows: int) -> bool:
        """Rewrites the two logs, without rows that hold no more, once they lie in many files. True when it did."""
        if direct.count(self._at("fingerprints"))[1] <= most_files:
            return False
        location = self._at("fingerprints")
        direct.rewrite(location, self._compacted(self.spans(most_rows)), ROW_GROUP)
        latest = pa.table(direct.read(self._at("copies"), {})).sort_by([("url_key", "ascending"), ("seq", "ascending")])
        keys = latest["url_key"].to_numpy()
        last = np.append(keys[1:] != keys[:-1], np.ones(min(1, len(keys)), bool))
        direct.rewrite(self._at("copies"), iter(latest.filter(pa.array(last)).to_batches()), ROW_GROUP)
        return True

    def _compacted(self, spans: Iterable[range]) -> Iterator[pa.RecordBatch]:
        kinds = direct.from_rows(self._at("fingerprints"), []).schema
        for span in spans:
            rows = self.standing(span)
            ranges = np.zeros(len(rows.page), np.int32)
            for table in np.unique(rows.table):
                here = rows.table == table
                ranges[here] = nearpairs.ranges(rows.value[here], self.layout, int(table))
            order = np.lexsort((rows.page, rows.value, rows.table, ranges))
            columns = (ranges, rows.table, rows.value.view(np.int64), rows.page, rows.gone, rows.seq)
            arrays = [pa.array(column[order]) for column in columns]
            yield from pa.Table.from_arrays(arrays, schema=kinds).to_batches()

    def _rows(self, span: range) -> Rows:
        found = direct.scan(self._at("fingerprints"), _COLUMNS, "key_range", span.start, span.stop)
        table, value, page, seq, gone = (
            found[name].combine_chunks().to_numpy(zero_copy_only=False) for name in _COLUMNS
        )
        return Rows(table, value.view(np.uint64), page, seq, gone)

    def _latest(self, equals: Mapping[str, Any]) -> dict[int, Copy]:
        found: dict[int, dict[str, Any]] = {}
        for row in self._read("copies", equals):
            known = found.get(row["url_key"])
            if row["seq"] <= self.done and (known is None or known["seq"] < row["seq"]):
                found[row["url_key"]] = row
        names = [field.name for field in dataclasses.fields(Copy)]
        return {key: Copy(**{name: row[name] for name in names}) for key, row in found.items()}

    def _read(
        self, table: str, equals: Mapping[str, Any], columns: Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        if any(value == [] for value in equals.values()):
            return []
        rows: list[dict[str, Any]] = direct.read(self._at(table), equals, columns).to_pylist()
        return rows

    def _add(self, table: str, rows: pa.Table) -> None:
        """In the place of what a broken run has left."""
        direct.replace(self._at(table), f"seq > {self.done}", rows)

    def _at(self, table: str) -> str:
        return f"{self.uri}/{table}"


def done(uri: str) -> int:
    """The number of the last run that came to its end; 0 before the first."""
    return direct.version(f"{uri}/clusters", APPLICATION)


def verdicts(uri: str, after: int, upto: int, buckets: range) -> pa.Table:
    """What finished runs beyond the number `after` say of URLs of some buckets, the last word on each: `dst_key`,
    `dst_bucket`, the cluster that it is a copy in or null (`verdict_of`), and the content judged (`verdict_hash`)."""
    names = ["url_key", "bucket", "content_hash", "cluster", "duplicate", "judged", "live", "seq"]
    rows = direct.scan(f"{uri}/copies", names, "seq", after + 1, upto + 1)
    rows = rows.filter(pc.field("bucket").isin(list(buckets)))
    rows = rows.sort_by([("url_key", "ascending"), ("seq", "ascending")])
    keys = rows["url_key"].to_numpy()
    last = pa.array(np.append(keys[1:] != keys[:-1], np.ones(min(1, len(keys)), bool)))
    rows = rows.filter(last).filter(pc.field("judged") & pc.field("live"))
    named = pc.if_else(rows["duplicate"], rows["cluster"], pa.scalar(None, pa.int64()))
    columns = [rows["url_key"], rows["bucket"], named, rows["content_hash"]]
    return pa.table(columns, names=["dst_key", "dst_bucket", "verdict_of", "verdict_hash"])


def keyed(pages: Sequence[Copy], layout: Layout) -> tuple[npt.NDArray[Any], ...]:
    """Range, table, value and page of the keys of pages, as arrays; a page without content has none."""
    held = [page for page in pages if page.live and page.content_hash]
    near = [page for page in held if page.simhash is not None]
    exact = np.array([int((page.content_hash or "")[:16], 16) for page in held], np.uint64)
    simhashes = np.array([page.simhash for page in near], np.int64).view(np.uint64)
    found = []
    for table in range(len(layout.tables) + 1):
        values, of = (exact, held) if table == EXACT else (simhashes, near)
        keys = np.array([page.url_key for page in of], np.int64)
        ranges = nearpairs.ranges(values, layout, table)
        found.append((ranges, np.full(len(keys), table, np.int32), values.view(np.int64), keys))
    return tuple(np.concatenate(column) for column in zip(*found, strict=True))
