"""The operator's word on frames of hosts: laid over `hosts` before generate looks, folded into `hosts` and `inbox` by
update.

What a wish means is decided in `wishes`, where wishes lie in `inbox`; here only how that word and a row of `hosts` come
together. The files of the inbox stay the truth: the table `inbox` is their copy for SQL (the audit log), the columns of
`hosts` what a turn that hears nothing new goes by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spindle import inbox, tables, urls
from spindle.runner import Turn
from spindle.wishes import HostWord, Wish, Word, standing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LITERAL_HOSTS = 2000  # named in the query itself, so that files are skipped by it
_WORD = pa.schema(
    [
        ("host", pa.string()),
        ("said_block", pa.bool_()),
        ("said_pause", pa.bool_()),
        ("said_limit", pa.bool_()),
        ("new_limit", pa.float64()),
    ]
)
#: Column of `hosts` -> what it is once the word was heard. An unblocked host is up, or still backs off.
_HEARD = {
    "state": """CASE WHEN said_block THEN 'blocked'
                     WHEN NOT said_block AND state = 'blocked' THEN IF(backoff_until IS NULL, 'up', 'backing_off')
                     ELSE state END""",
    "paused": "coalesce(said_pause, paused)",
    "limit_delay_s": "IF(said_limit IS NULL, limit_delay_s, new_limit)",
}
#: A host that was only named yet: column -> SQL, null where not given.
_NEW_HOST = {"state": "IF(said_block, 'blocked', 'up')", "paused": "said_pause", "limit_delay_s": "new_limit"}
_NEW_HOST |= dict.fromkeys(("backoff_level", "failure_streak", "fetched_today"), "0")


def heard(hosts: DataFrame, turn: Turn) -> DataFrame:
    """`hosts` of the turn's range as the operators who spoke before it opened want them; a host that the table does
    not know comes in with nothing but their word."""
    said = _of_range(standing(_until(inbox.read(turn.warehouse.store), turn.wishes)), turn)
    if not said:
        return hosts
    word = tables.frame_of(hosts.sparkSession, _frame_rows(said)).hint("broadcast")
    others = [name for name in hosts.columns if name not in _HEARD]
    known = hosts.join(word, "host", "left").selectExpr(*others, *(f"{sql} AS {name}" for name, sql in _HEARD.items()))
    unknown = word.join(_named(hosts, said).select("host"), "host", "left_anti")
    new = unknown.selectExpr("host", "IF(said_block, 'blocked', NULL) AS state", "said_pause AS paused", "new_limit")
    return known.unionByName(new.withColumnRenamed("new_limit", "limit_delay_s"), allowMissingColumns=True)


def fold(turn: Turn) -> int:
    """Writes all that was wished so far: new wishes into `inbox`, what stands for hosts of the turn's range into
    `hosts`. Returns how many hosts changed; to do it again changes nothing."""
    wishes = inbox.read(turn.warehouse.store)
    _copy(turn, wishes)
    said = _of_range(standing(wishes), turn)
    if not said:
        return 0
    rows = _changed(turn, said)
    if rows:
        _merge(turn, rows)
    return len(rows)


def _until(wishes: Sequence[Wish], last: str | None) -> list[Wish]:
    return [wish for wish in wishes if last is None or wish.id <= last]


def _of_range(word: Word, turn: Turn) -> dict[str, HostWord]:
    """The hosts that somebody spoke of and whose bucket the turn owns."""
    span, buckets = turn.segment.buckets(turn.warehouse.buckets), turn.warehouse.buckets
    return {host: one for host, one in word.hosts.items() if _bucket(host, buckets) in span}


def _bucket(host: str, buckets: int) -> int:
    return urls.bucket_of(urls.registered_domain(host), buckets)


def _frame_rows(said: Mapping[str, HostWord]) -> pa.Table:
    rows = [(host, one.block, one.pause, one.limited, one.limit_delay_s) for host, one in sorted(said.items())]
    return pa.Table.from_pylist([dict(zip(_WORD.names, row, strict=True)) for row in rows], schema=_WORD)


def _named(hosts: DataFrame, said: Mapping[str, HostWord]) -> DataFrame:
    return hosts.filter(hosts["host"].isin(list(said))) if len(said) <= LITERAL_HOSTS else hosts


def _changed(turn: Turn, said: Mapping[str, HostWord]) -> dict[str, HostWord]:
    """Those whose row is not yet what was said, or who have none and about whom there is something to keep."""
    hosts = turn.warehouse.read_range("hosts", turn.segment)
    word = tables.frame_of(hosts.sparkSession, _frame_rows(said)).hint("broadcast")
    both = _named(hosts, said).join(word, "host")
    same = " AND ".join(f"({sql}) <=> {name}" for name, sql in _HEARD.items())
    done = {row.host: row.same for row in both.selectExpr("host", f"{same} AS same").collect()}
    return {host: one for host, one in said.items() if not done.get(host, not (one.block or one.pause or one.limited))}


def _merge(turn: Turn, said: Mapping[str, HostWord]) -> None:
    warehouse, buckets = turn.warehouse, turn.warehouse.buckets
    rows = _frame_rows(said)
    domains = [urls.registered_domain(host) for host in rows["host"].to_pylist()]
    rows = rows.append_column("domain", pa.array(domains, pa.string()))
    rows = rows.append_column("bucket", pa.array([urls.bucket_of(one, buckets) for one in domains], pa.int32()))
    span = tables.in_buckets(turn.segment.buckets(buckets))
    source = tables.frame_of(warehouse.spark, rows)
    builder = warehouse.merge("hosts", source, f"t.{span} AND t.bucket = s.bucket AND t.host = s.host")
    builder = builder.whenMatchedUpdate(set=dict(_HEARD))
    values: dict[str, Any] = {name: f"s.{name}" for name in ("host", "bucket", "domain")} | _NEW_HOST
    tables.retry_conflicts(builder.whenNotMatchedInsert(values=values).execute)


def _copy(turn: Turn, wishes: Sequence[Wish]) -> None:
    """Appends the wishes that the table lacks."""
    tables.copy_log(turn.warehouse.location("inbox"), "inbox", lambda: wishes, lambda wish: int(wish.id), _row)


def _row(wish: Wish) -> dict[str, Any]:
    at = datetime.fromisoformat(wish.at)
    row = {name: getattr(wish, name) for name in ("id", "who", "what", "host", "value")}
    return row | {"at": at, "what": str(wish.what), "url": None}
