"""The records of a task: each exchange laid down once, and a `revisit` where the payload is stored already.

This file alone decides when a payload counts as stored: this host has given it in this task, or this URL's last record
holds the very bytes. How a record looks is `warc`'s decision, where it lies the journal's.
"""

from __future__ import annotations

import asyncio

from spindle import warc
from spindle.fetcher.answer import Answer
from spindle.fetcher.journal import Journal, Place, Row
from spindle.fetcher.listing import ReadEarlier
from spindle.fetcher.rows import Content, Origin, Page, iso
from spindle.outcome import Outcome

_COMPRESSED = {b"gzip", b"x-gzip", b"br", b"zstd", b"deflate"}


class Archive:
    """`read_earlier` gives the beginning of a record of an earlier segment; None: such records are not consulted."""

    def __init__(self, journal: Journal, origin: Origin, read_earlier: ReadEarlier | None) -> None:
        self._journal, self._origin, self._read_earlier = journal, origin, read_earlier
        self._payloads: dict[str, dict[str, warc.Original]] = {}  # host -> digest -> the record that holds it

    async def keep(self, row: Row, page: Page, answer: Answer, content: Content) -> None:
        """Lay an exchange down, and its place in the row."""
        capture = _capture(row["started_at"], answer, _digest(answer, content))
        coded = answer.fields.get(b"content-encoding", b"identity").strip().lower() in _COMPRESSED
        if content.outcome is Outcome.NOT_MODIFIED and page.record_date is not None:
            earlier = warc.Original(page.url, page.record_date, page.place)
            self._store(row, capture, warc.revisit(capture, warc.NOT_MODIFIED, earlier))
        elif content.outcome is Outcome.OK and answer.body and answer.truncated is None:
            await self._keep_payload(row, page, capture, content, coded)
        else:
            self._store(row, capture, warc.response(capture), coded)

    def keep_robots(self, row: Row, answer: Answer) -> None:
        capture = _capture(iso(answer.started_at), answer, warc.payload_digest(answer.body))
        self._store(row, capture, warc.response(capture))

    def forget(self, host: str) -> None:
        """The host's last URL is done."""
        self._payloads.pop(host, None)

    async def _keep_payload(self, row: Row, page: Page, capture: warc.Capture, content: Content, coded: bool) -> None:
        known = self._payloads.setdefault(page.host, {})
        original = known.get(capture.digest)
        if original is None and page.place is not None and content.content_hash == page.content_hash:
            original = await self._last_record(page, capture.digest)
        if original is not None:
            self._store(row, capture, warc.revisit(capture, warc.IDENTICAL_PAYLOAD, original))
            return
        place = self._store(row, capture, warc.response(capture), coded)
        known[capture.digest] = warc.Original(page.url, capture.date, self._origin.in_warehouse(place))

    async def _last_record(self, page: Page, digest: str) -> warc.Original | None:
        """The URL's last record if it holds these very bytes.

        Equal content may have had another content coding then, and a reader of the revisit could not decode it; the
        digest of the payload that was stored tells.
        """
        if page.place is None or page.record_date is None or self._read_earlier is None:
            return None
        try:
            fields = warc.read_fields(await asyncio.to_thread(self._read_earlier, page.place))
        except (OSError, warc.WarcError):
            return None  # moved or erased: then this answer is stored in full
        same = fields.get("warc-type") == "response" and fields.get("warc-payload-digest") == digest
        return warc.Original(page.url, page.record_date, page.place) if same else None

    def _store(self, row: Row, capture: warc.Capture, record: bytes, coded: bool = False) -> Place:
        place = self._journal.store_exchange(capture.date, warc.request(capture), record, coded=coded)
        row["warc_file"], row["warc_offset"], row["warc_length"] = place
        return place


def _digest(answer: Answer, content: Content) -> str:
    """Of the stored payload; the hash of the content is the same where there is no coding and all of it was hashed."""
    whole = content.content_hash is not None and content.body_bytes == len(answer.body)
    if whole and b"content-encoding" not in answer.fields:
        return f"sha256:{content.content_hash}"
    return warc.payload_digest(answer.body)


def _capture(date: str, answer: Answer, digest: str) -> warc.Capture:
    return warc.Capture(
        answer.url,
        date,
        answer.ip,
        answer.request,
        answer.status_line,
        answer.headers,
        answer.body,
        digest,
        answer.truncated or ("unspecified" if answer.body_skipped else None),
    )
