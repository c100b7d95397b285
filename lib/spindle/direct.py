"""The door to Delta that needs no JVM: few rows, read and written by delta-rs in this process.

A commit by Spark costs 2 to 3 CPU seconds on two cores and one by delta-rs 0.03 (bench/small_commits.py), so what is
known to be small goes this way: the copy of the ledger, metrics, watermarks, and a segment's rows up to
`spark.direct_rows`. Tables with deletion vectors (`urls`, `hosts`) cannot: delta-rs does not write those. Which way a
table goes is `tables`' business; values come and go as Arrow tables.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from deltalake import DeltaTable

Equals = Mapping[str, Any]  # column -> the value, or the list of values, that rows must have


def read(location: str, equals: Equals, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows whose columns have the given values; files that cannot hold any are skipped by their statistics."""
    filters = [(name, "in", value) if isinstance(value, list) else (name, "=", value) for name, value in equals.items()]
    names = None if columns is None else list(columns)
    return _table(location).to_pyarrow_table(filters=filters or None, columns=names)


def query(locations: Mapping[str, str], sql: str) -> list[dict[str, Any]]:
    """The rows that a query (DataFusion's SQL) gives over tables, by the names it knows them by. Deletion vectors are
    heeded; rows are streamed, so a whole table may be counted in bounded memory."""
    from deltalake import QueryBuilder

    asked = QueryBuilder()
    for name, location in locations.items():
        asked.register(name, _table(location))
    rows: list[dict[str, Any]] = pa.table(asked.execute(sql)).to_pylist()
    return rows


def scan(location: str, columns: Sequence[str], name: str, low: int, high: int) -> pa.Table:
    """The rows whose column `name` lies in low..high (high exclusive); files and row groups beyond are skipped."""
    import pyarrow.dataset as ds

    within = (ds.field(name) >= low) & (ds.field(name) < high)
    found: pa.Table = _table(location).to_pyarrow_dataset().to_table(columns=list(columns), filter=within)
    return found


def count(location: str) -> tuple[int, int]:
    """Rows and files, by the log alone."""
    added = pa.table(_table(location).get_add_actions(flatten=True))
    return sum(number or 0 for number in added["num_records"].to_pylist()), added.num_rows


def upsert(location: str, rows: pa.Table, key: str, transaction: tuple[str, int]) -> bool:
    """Lays rows over those of the same key, or adds them, and moves an application's number, in one commit; False when
    the table has seen that number already."""
    from deltalake import CommitProperties, Transaction

    if not rows.num_rows:
        return append(location, rows, transaction)
    table, (name, number) = _table(location), transaction
    if number <= (table.transaction_version(name) or 0):
        return False
    told = CommitProperties(app_transactions=[Transaction(name, number)])
    same = f"t.{key} = s.{key}"
    merger = table.merge(rows, same, source_alias="s", target_alias="t", commit_properties=told)
    merger.when_matched_update_all().when_not_matched_insert_all().execute()
    return True


def rewrite(location: str, rows: Iterator[pa.RecordBatch], group_rows: int) -> None:
    """Puts a stream of rows in the place of the whole table, in its order and in row groups small enough to skip.

    The stream runs in a thread of its own: delta-rs, which asks for the next batch, cannot be asked by that meanwhile.
    """
    from deltalake import WriterProperties, write_deltalake

    ready: queue.Queue[pa.RecordBatch | BaseException | None] = queue.Queue(maxsize=2)
    threading.Thread(target=_produce, args=(rows, ready), daemon=True).start()
    stream = pa.RecordBatchReader.from_batches(_schema(location), iter(_taken(ready)))
    told = WriterProperties(max_row_group_size=group_rows, compression="ZSTD")
    write_deltalake(_table(location), stream, mode="overwrite", writer_properties=told)


def _produce(rows: Iterator[pa.RecordBatch], ready: queue.Queue[pa.RecordBatch | BaseException | None]) -> None:
    try:
        for batch in rows:
            ready.put(batch)
        ready.put(None)
    except BaseException as error:  # noqa: BLE001 # raised again where the stream is read
        ready.put(error)


def _taken(ready: queue.Queue[pa.RecordBatch | BaseException | None]) -> Iterator[pa.RecordBatch]:
    while (batch := ready.get()) is not None:
        if isinstance(batch, BaseException):
            raise batch
        yield batch


def version(location: str, application: str) -> int:
    """The last version of an application that the table has seen, 0 for none."""
    return _table(location).transaction_version(application) or 0


def row_counts(location: str, partition: str) -> dict[Any, int]:
    """Partition -> rows of its files by the log, deleted ones included."""
    actions = pa.table(_table(location).get_add_actions(flatten=True))
    found: dict[Any, int] = {}
    if "num_records" in actions.column_names:
        columns = (actions.column(name).to_pylist() for name in (f"partition.{partition}", "num_records"))
        for value, rows in zip(*columns, strict=True):
            found[value] = found.get(value, 0) + (rows or 0)
    return found


def files(location: str, partition: str, nulls_of: str, bounds_of: str) -> list[dict[str, Any]]:
    """What the log says of each file: its partition, its rows and how many of them are deleted, how many have no value
    in one column, and between which values another lies. Reads no row; None where there are no statistics."""
    table = _table(location)
    actions = pa.table(table.get_add_actions(flatten=True))
    names = {"file": "path", "partition": f"partition.{partition}", "rows": "num_records"}
    names |= {"nulls": f"null_count.{nulls_of}", "least": f"min.{bounds_of}", "most": f"max.{bounds_of}"}
    told = {key: actions.column(name).to_pylist() for key, name in names.items() if name in actions.column_names}
    columns = [told.get(key, [None] * actions.num_rows) for key in names]
    deleted = _deleted(table)
    rows = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    return [row | {"deleted": deleted.get(row["file"], 0)} for row in rows]


def _deleted(table: DeltaTable) -> dict[str, int]:
    """File -> rows that its deletion vector takes out."""
    import pyarrow.compute as pc

    found: dict[str, int] = {}
    for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()):
        for name, kept in zip(batch.column("filepath"), batch.column("selection_vector"), strict=True):
            path = name.as_py().rpartition(table.table_uri.rstrip("/").rpartition("/")[2] + "/")[2]
            found[path] = len(kept.values) - (pc.sum(kept.values).as_py() or 0)
    return found


def append(location: str, rows: pa.Table, transaction: tuple[str, int] | None = None) -> bool:
    """Adds rows in one commit. `transaction` is an application's name and its version (Delta protocol, "Transaction
    Identifiers"): rows of a version that the table has seen, or that somebody else commits meanwhile, are not added,
    and the answer is False."""
    from deltalake import CommitProperties, Transaction, write_deltalake
    from deltalake.exceptions import CommitFailedError

    table = _table(location)
    if transaction is None:
        write_deltalake(table, rows, mode="append")
        return True
    name, number = transaction
    if number <= (table.transaction_version(name) or 0):
        return False
    told = CommitProperties(app_transactions=[Transaction(name, number)])
    try:
        write_deltalake(table, rows, mode="append", commit_properties=told)
    except CommitFailedError:
        return False
    return True


def replace(location: str, where: str, rows: pa.Table) -> None:
    """Puts `rows` in the place of those that the SQL predicate `where` names, in one commit."""
    from deltalake import write_deltalake

    write_deltalake(_table(location), rows, mode="overwrite", predicate=where)


def from_rows(location: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as the table's columns want them."""
    return pa.Table.from_pylist([dict(row) for row in rows], schema=_schema(location))


def _schema(location: str) -> pa.Schema:
    return pa.schema(_table(location).schema().to_arrow())


def _table(location: str) -> DeltaTable:
    from deltalake import DeltaTable

    return DeltaTable(location, storage_options=storage_options() if "://" in location else None)


def storage_options() -> dict[str, str]:
    """Where an object store is, from the variables that boto3 reads; commits are conditional puts (put-if-absent)."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    told = {"aws_conditional_put": "etag"}
    if endpoint:
        told |= {"aws_endpoint": endpoint, "aws_allow_http": str(endpoint.startswith("http:")).lower()}
    return told
