"""One task from its listing to its manifest: `run_task` is what a Spark worker calls, `fetch_task` the same in a loop.

This file decides how the parts are put together, when an attempt may begin, and what of the process is tuned. The
course of the fetch itself is in `course`; no rule of politeness or of rows lives here.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import json
import logging
import resource
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from spindle import urls
from spindle.config import Settings
from spindle.errors import WarehouseError
from spindle.fetcher import epoch as epochs
from spindle.fetcher.addresses import AddressRule
from spindle.fetcher.client import Client
from spindle.fetcher.course import Course
from spindle.fetcher.join import Joined, clear, forget, join
from spindle.fetcher.journal import (
    Journal,
    Place,
    Row,
    done_name,
    joined_files,
    joined_name,
    manifest,
    prefixes_before,
    read_parts,
    sealed_parts,
    warc_parts,
)
from spindle.fetcher.listing import Around, Listing
from spindle.fetcher.resolver import Resolver
from spindle.fetcher.rows import Origin, iso
from spindle.fetcher.suspects import Suspects, Watchdog, left_behind, mark_path
from spindle.inbox import Ear
from spindle.scope import Scope, trap_reason
from spindle.segments import SegmentId
from spindle.store import Store, open_store
from spindle.warc import WarcError

_SOCKETS = 65_536
_JOIN_POLL_S = 5.0

_log = logging.getLogger(__name__)

__all__ = ["Around", "Listing", "fetch_task", "journal_rows", "run_task"]


def run_task(
    listing: Listing,
    settings: Settings,
    root: str,
    segment: str,
    task: int,
    *,
    month: str | None = None,
    lease_until: float | None = None,
    scope: Callable[[str], bool] | None = None,
) -> dict[str, Any]:
    """Fetch one task's listing into the segment's folder of the warehouse `root`; the manifest.

    Safe to run again, here or elsewhere: a finished task returns its manifest, an unfinished one goes on where its
    journal ends. `month` (YYYY-MM) goes into the rows; nothing is sent in the last `total_timeout_s` before
    `lease_until` (seconds since the epoch). `scope` says whether a redirect hop is wanted (default: the
    configuration's).

    Raises:
        Superseded: a newer attempt has taken the task over.
        WarehouseError: the store cannot be written.
    """
    warehouse, folder = open_store(root), SegmentId.parse(segment).folder
    listing = replace(listing, month=month or listing.month, lease_until=lease_until or listing.lease_until)

    def read_earlier(place: Place) -> bytes:
        return warehouse.get_range(place.file, place.offset, min(place.length, 4096))

    _make_room_for_sockets()
    with _quiet_collector(), Watchdog(settings.fetch.stall_s) as watchdog:
        around = Around(
            scope=scope or hop_scope(settings),
            read_earlier=read_earlier,
            folder=folder,
            mark=mark_path(root, segment, task),
            ear=Ear(warehouse),
            heartbeat=watchdog.beat,
        )
        store = open_store(f"{root.rstrip('/')}/{folder}")
        return asyncio.run(fetch_task(listing, settings, store, segment=segment, task=task, around=around))


def hop_scope(settings: Settings) -> Callable[[str], bool]:
    """Whether a redirect hop is wanted: by the scope's rules, and not of a trap's shape. Its host is listed already."""
    scope = Scope(replace(settings.scope, follow="everywhere"))

    def wanted(url: str) -> bool:
        host = urls.host_of(url)
        allowed = scope.verdict(url, host, urls.registered_domain(host)).allowed
        return allowed and trap_reason(url, 0, scope.sheets.traps(url, host, settings.trap)) is None

    return wanted


async def fetch_task(
    listing: Listing, settings: Settings, store: Store, *, segment: str, task: int, around: Around | None = None
) -> dict[str, Any]:
    """As `run_task`, in the running loop, into the store of the segment's folder."""
    around = around or Around()
    if (finished := manifest(store, task)) is not None:
        clear(store, finished.get("joined", {}))  # a crash may have come between
        return finished
    started = iso(around.clock())
    epoch = epochs.take(store, task, started, lambda before: left_behind(around.mark, before) if around.mark else None)
    try:
        await _wait_for(epoch, settings, around)
        if (finished := manifest(store, task)) is not None:
            return finished
        month = listing.month or epochs.first_start(store, task, started)[:7]
        origin = Origin(segment, task, epoch.number, month, around.folder)
        return await _attempt(listing, settings, store, epoch, origin, started, around)
    finally:
        with contextlib.suppress(WarehouseError):  # then a successor has to wait, that is all
            epoch.release()


async def _wait_for(epoch: epochs.Epoch, settings: Settings, around: Around) -> None:
    """A predecessor that may still live finds out at its next seal; then its last request runs into its deadline."""
    left = 0.0 if epoch.predecessor_is_dead else settings.fetch.seal_interval_s + settings.fetch.total_timeout_s
    while left > 0:
        around.heartbeat()
        await around.sleep(min(left, 5.0))
        left -= 5.0


async def _attempt(
    listing: Listing,
    settings: Settings,
    store: Store,
    epoch: epochs.Epoch,
    origin: Origin,
    started: str,
    around: Around,
) -> dict[str, Any]:
    task, resumed = origin.task, epoch.number > 1
    earlier = sealed_parts(store, task) if resumed else []
    if resumed:
        for prefix in prefixes_before(origin.segment, task, epoch.number):
            store.clear_unfinished(prefix)
    journal = Journal(store, origin.segment, task, epoch.number, info=_info(settings), may_write=epoch.check)
    rule = AddressRule(settings.network.allow_addresses, settings.network.deny_addresses)
    resolver = Resolver(settings.network, rule, timeout_s=settings.fetch.connect_timeout_s)
    suspects = Suspects(around.mark, epoch.number, epochs.noted(store, task, epoch.number, "suspect"))
    try:
        async with Client(settings, resolver, rule, around.clock) as client:
            course = Course(settings, store, client, journal, origin, around, suspects)
            course.load(listing, read_parts(store, earlier), resumed=resumed)
            await course.run()
            await course.close()
        await journal.seal()
        epoch.check()
    finally:
        suspects.close()
        await journal.abandon()
    joined = await _joined(store, origin, earlier + journal.parts, settings, around)
    try:
        epoch.check()  # joining may have taken a while
    except BaseException:
        forget(store, joined)
        raise
    found = {
        "segment": origin.segment,
        "task": task,
        "epoch": epoch.number,
        "started_at": started,
        "ended_at": iso(around.clock()),
        "stopped": course.stopped,
        "parts": earlier + journal.parts,
        "joined": {part: list(place) for part, place in joined.items()},
        "counts": {str(name): count for name, count in course.counts.items()},
        "sums": course.sums,
    }
    if not store.create_exclusive(done_name(task), json.dumps(found).encode()):
        forget(store, joined)
        return manifest(store, task) or found
    clear(store, joined)
    for stray in joined_files(store, origin.segment, task) - {file for file, _ in joined.values()}:
        store.delete(stray)  # of an attempt that died before its manifest
    return found


async def _joined(store: Store, origin: Origin, parts: list[str], settings: Settings, around: Around) -> Joined:
    """Join the WARC parts of the task, off the loop. Where the store has no room for that the parts stay."""

    def work() -> Joined:
        names = warc_parts(store, origin.segment, origin.task, parts)
        name = functools.partial(joined_name, origin.segment, origin.task, origin.epoch)
        return join(store, names, name, settings.fetch.warc_file_bytes, _info(settings))

    running = asyncio.ensure_future(asyncio.to_thread(work))
    while not running.done():
        around.heartbeat()
        await asyncio.wait({running}, timeout=_JOIN_POLL_S)
    try:
        return running.result()
    except (WarehouseError, WarcError) as error:
        _log.warning("task %d keeps its WARC parts as they are: %s", origin.task, error)
        return {}


def journal_rows(store: Store, task: int) -> Iterable[Row]:
    """The records of one task: those its manifest names, or while it has none, all that are sealed."""
    done = manifest(store, task)
    return read_parts(store, done["parts"] if done else sealed_parts(store, task))


def _info(settings: Settings) -> Mapping[str, str]:
    return {
        "software": "Spindle/0.1",
        "format": "WARC File Format 1.1",
        "conformsTo": "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/",
        "http-header-user-agent": settings.agent.user_agent,
        "robots": "RFC 9309",
    }


def _make_room_for_sockets() -> None:
    """A thousand descriptors, a common limit, are fewer than the connections of a large task."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _SOCKETS if hard == resource.RLIM_INFINITY else min(hard, _SOCKETS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class _quiet_collector:  # noqa: N801 - a context manager
    """Freeze what is there and let the collector run rarely: a quarter of fetch's CPU (research/fetch.md section 1)."""

    def __enter__(self) -> None:
        self._before = gc.get_threshold()
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 50, 50)

    def __exit__(self, *_: object) -> None:
        gc.set_threshold(*self._before)
        gc.unfreeze()
