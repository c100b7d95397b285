"""Fetch: one task's listing in, a journal of rows and WARC files out (DESIGN sections 1, 3 and 5).

`task` puts an attempt together, `course` runs it, `visit` serves one host's turn; `client` is the door to HTTP,
`resolver` to names, `journal` to what is kept. Nothing else of Spindle opens a connection to a web server.
"""

from __future__ import annotations

from spindle.fetcher.epoch import Superseded
from spindle.fetcher.journal import manifest, read_parts, sealed_parts
from spindle.fetcher.listing import Around, Listing
from spindle.fetcher.task import fetch_task, journal_rows, run_task

__all__ = [
    "Around",
    "Listing",
    "Superseded",
    "fetch_task",
    "journal_rows",
    "manifest",
    "read_parts",
    "run_task",
    "sealed_parts",
]
