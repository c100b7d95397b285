"""The brake: many new URLs of one host and one form that all show one content are a trap, whatever their shape.

Alone decides what the form of a URL is, when two pages show one content, and when a form is braked. Learned from what
was fetched (`update`), obeyed where URLs are listed (`generate`): new URLs of a braked form wait, known pages are
visited as before, and the rest of the host goes on. Only forms with copies are remembered. Pure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from spindle.config import BrakeSettings
from spindle.fingerprint import distance
from spindle.urls.identity import parts

#: A page is compared with so many of its form: a trap of a few templates is one still.
LEADERS = 8
#: Forms with fewer copies in a turn are not remembered; a table of all forms would be a table of all URLs.
WORTH_NOTING = 5

_NUMBERED = re.compile(r"[^/]*[0-9][^/]*")


@dataclass(frozen=True, slots=True)
class Form:
    """A row of `traps`: what is known of the new pages of one form of one host."""

    host: str
    bucket: int
    form: str
    pages: int = 0
    copies: int = 0
    leaders: tuple[int, ...] = ()  # SimHashes of the first pages that were no copies of each other
    example: str | None = None
    first_at: datetime | None = None
    last_at: datetime | None = None
    last_segment: str | None = None


@dataclass(frozen=True, slots=True)
class NewPage:
    """A page that was fetched for the first time."""

    host: str
    bucket: int
    url: str
    simhash: int | None
    content_hash: str | None


def of_row(row: Mapping[str, Any]) -> Form:
    """From a row of `traps`."""
    times = {name: row[name] and row[name].astimezone(UTC) for name in ("first_at", "last_at")}
    return Form(**{**row, **times, "leaders": tuple(row["leaders"] or ())})


def forms_of(url: str) -> tuple[str, ...]:
    """The forms that a normalised URL has: its path with `#` for each segment that has a digit in it, `?` where it has
    a query (facets differ in which parameters they have); and its first folder, for traps that grow in depth.

    >>> forms_of("http://h.test/calendar/2024/01?view=2")
    ('/calendar/#/#?', '/calendar/*')
    """
    path, mark, _ = parts(url)[2].partition("?")
    whole = _NUMBERED.sub("#", path) + mark
    folder = whole.split("/")[1] if whole.count("/") > 1 else ""
    return (whole, f"/{folder}/*") if folder and folder != "#" else (whole,)


def pattern_of(form: str) -> str:
    """A regular expression, for Java's engine and Python's alike, that finds the URLs of a form."""
    if form.endswith("/*"):
        return f"^https?://[^/]*{re.escape(form[:-1])}"
    path, mark, _ = form.partition("?")
    pieces = (re.escape(piece) for piece in path.split("#"))
    return f"^https?://[^/]*{'[^/?]*[0-9][^/?]*'.join(pieces)}{re.escape(mark) if mark else '$'}"


def learned(
    known: Iterable[Form], pages: Iterable[NewPage], settings: BrakeSettings, segment: str, now: datetime
) -> list[Form]:
    """The forms that the new pages of a segment change, as they stand after it. Forms that this segment has changed
    already stay as they are, so a rerun changes nothing; a brake that has run out is forgotten and learned anew."""
    before = {(form.host, form.form): form for form in known if not _is_over(form, settings, now)}
    of_form: dict[tuple[str, str], list[NewPage]] = defaultdict(list)
    for page in sorted(pages, key=lambda page: page.url):
        for name in forms_of(page.url):
            of_form[page.host, name].append(page)
    changed = []
    for key, seen in sorted(of_form.items()):
        form = before.get(key) or Form(key[0], seen[0].bucket, key[1])
        if form.last_segment == segment:
            continue
        after = _with_pages(form, seen, settings.bits)
        if form.pages or after.copies >= WORTH_NOTING:
            first = form.first_at or now
            changed.append(replace(after, example=seen[-1].url, first_at=first, last_at=now, last_segment=segment))
    return changed


def is_braked(form: Form, settings: BrakeSettings, now: datetime) -> bool:
    """Whether new URLs of the form are held back at `now`."""
    enough = form.pages >= settings.pages and form.copies >= settings.share * form.pages
    return settings.pages > 0 and enough and not _is_over(form, settings, now)


def reason(form: Form) -> str:
    """Why the form is braked, for a person."""
    since = f" since {form.first_at:%Y-%m-%d}" if form.first_at else ""
    return (
        f"{form.copies} of {form.pages} new pages of {form.host}{form.form} showed what another of them had shown"
        f"{since}, {form.example} the last"
    )


def braked(forms: Iterable[Form], settings: BrakeSettings, now: datetime) -> Mapping[str, Sequence[Form]]:
    """Host -> its braked forms."""
    found: dict[str, list[Form]] = defaultdict(list)
    for form in forms:
        if is_braked(form, settings, now):
            found[form.host].append(form)
    return found


def _with_pages(form: Form, pages: Sequence[NewPage], bits: int) -> Form:
    leaders, copies, hashes = list(form.leaders), form.copies, set[str | None]()
    for page in pages:
        same = page.content_hash is not None and page.content_hash in hashes
        near = page.simhash is not None and any(distance(page.simhash, leader) <= bits for leader in leaders)
        hashes.add(page.content_hash)
        if same or near:
            copies += 1
        elif page.simhash is not None and len(leaders) < LEADERS:
            leaders.append(page.simhash)
    return replace(form, pages=form.pages + len(pages), copies=copies, leaders=tuple(leaders))


def _is_over(form: Form, settings: BrakeSettings, now: datetime) -> bool:
    return form.last_at is not None and now >= form.last_at + timedelta(seconds=settings.keep_s)
