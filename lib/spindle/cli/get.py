"""`spindle get URL`: what a URL answered, from the WARC files: its latest response, or that of a time. No JVM.

The latest record is where the row in `urls` points to: one partition of one table, one range of one file. The answer of
a time is looked up in `fetches`.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Callable, Sequence

from spindle import coding, direct, runner, sqltext, tables, urls, warc
from spindle.errors import InputError, WarehouseError
from spindle.reader import SegmentReader

Read = Callable[[str, int, int], bytes]
_POINTER = ("warc_file", "warc_offset", "warc_length")


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="spindle get", description="What a URL answered, as it is stored.")
    parser.add_argument("url", metavar="URL")
    runner.add_warehouse(parser)
    parser.add_argument("--at", metavar="TIME", help="the last answer up to this ISO 8601 time (default: the latest)")
    parser.add_argument("--headers", action="store_true", help="status line and headers before the body")
    parser.add_argument("--record", action="store_true", help="the WARC record itself, as it lies in the file")
    runner.add_settings(parser)
    return runner.main("get", parser, _get, argv)


def _get(options: argparse.Namespace) -> int:
    settings = runner.settings_of(options)
    url = runner.url_of(options.url, urls.Normalizer(settings.url).normalize)
    place = pointer(options.warehouse, url, _time(options.at))
    if place is None:
        print(f"get {url}: no answer of it is stored", file=sys.stderr)
        return 1
    read = SegmentReader(options.warehouse, ahead=0).read
    try:
        data = read(*place)
        if options.record:
            shown = data
        else:
            limits = settings.fetch.max_decoded_bytes, settings.fetch.max_decode_ratio
            shown = answer(data, read, *limits, headers=options.headers)
    except (FileNotFoundError, warc.WarcError) as error:
        raise WarehouseError(f"{place[0]} at {place[1]}: the record of {url} cannot be read: {error}") from None
    sys.stdout.buffer.write(shown)
    sys.stdout.buffer.flush()
    return 0


def pointer(warehouse: str, url: str, at: datetime.datetime | None = None) -> tuple[str, int, int] | None:
    """File, offset and length of a URL's latest record, or of its last one up to a time; None: there is none."""
    key, buckets = urls.url_key(url), int(tables.read_marker(warehouse)["buckets"])
    root, columns = tables.hadoop_uri(warehouse), ", ".join(_POINTER)
    if at is None:
        bucket = urls.bucket_of(urls.registered_domain(urls.host_of(url)), buckets)
        query = f"SELECT {columns} FROM urls WHERE bucket = {bucket} AND url_key = {key}"
        found = direct.query({"urls": f"{root}/urls"}, query)
    else:
        query = f"""SELECT {columns} FROM fetches WHERE url_key = {key} AND started_at <= {sqltext.instant(at)}
            AND month <= '{at.astimezone(datetime.UTC):%Y-%m}' AND warc_file IS NOT NULL
            ORDER BY started_at DESC LIMIT 1"""  # the month is that of the turn, which began before
        found = direct.query({"fetches": f"{root}/fetches"}, query)
    if not found or found[0]["warc_file"] is None:
        return None
    return found[0]["warc_file"], found[0]["warc_offset"], found[0]["warc_length"]


def answer(data: bytes, read: Read, max_bytes: int, max_ratio: float, *, headers: bool) -> bytes:
    """The body, its content coding undone; of a revisit that of the record it points to. `headers`: before it, what
    came in this very answer.

    Raises:
        WarcError, FileNotFoundError: the record, or the one it points to, cannot be read.
    """
    record = warc.read_record(data)
    holder = record
    if record.type == "revisit" and record.location is not None:
        holder = warc.read_record(read(*record.location))
    body = coding.decode(holder.http.body, holder.http.header("content-encoding"), max_bytes, max_ratio).body
    return record.block.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" + body if headers else body


def _time(text: str | None) -> datetime.datetime | None:
    if text is None:
        return None
    try:
        return runner.utc(text)
    except (ValueError, OverflowError):
        raise InputError(f"--at {text}: not an ISO 8601 time, as in 2026-12-01T10:00:00Z") from None
