"""The two small languages inside HTML attributes: a meta refresh and a srcset. Pure text in, values out."""

from __future__ import annotations

import re
from typing import NamedTuple

_WS = " \t\n\f\r"
_REFRESH = re.compile(
    r"[ \t\n\f\r]*([0-9]+|(?=\.))[0-9.]*(?:$|(?=[;, \t\n\f\r])[ \t\n\f\r]*[;,]?[ \t\n\f\r]*(.*))", re.S
)
_TARGET = re.compile(r"(?:[uU][rR][lL][ \t\n\f\r]*=[ \t\n\f\r]*)?(?:\"([^\"]*)|'([^']*)|(.*))", re.S)
_CANDIDATE = re.compile(r"[ \t\n\f\r,]*([^ \t\n\f\r,][^ \t\n\f\r]*)")
_DESCRIPTOR = re.compile(r"\([^)]*\)?|[^ \t\n\f\r,(]+|,|[ \t\n\f\r]+")
_NUMBER = r"-?(?:[0-9]+|[0-9]*\.[0-9]+)(?:[eE][+-]?[0-9]+)?"


class Refresh(NamedTuple):
    """`delay` in seconds; `url` as written and unresolved, None for a reload of the same page."""

    delay: int
    url: str | None


def parse_refresh(content: str) -> Refresh | None:
    """What <meta http-equiv=refresh content=...> asks for (HTML 4.2.5.3, shared declarative refresh steps), or None."""
    if (match := _REFRESH.match(content)) is None:
        return None
    target = _TARGET.match(match[2] or "")
    parts = target.groups() if target else ()
    url = re.sub(r"[\t\n\r]", "", next((part for part in parts if part is not None), "")).strip(_WS)
    return Refresh(int(match[1][-9:] or 0), url or None)


def parse_srcset(srcset: str) -> list[str]:
    """The candidates' URLs as written, in order, those with bad descriptors left out (HTML 4.8.4.3.7, srcset)."""
    urls: list[str] = []
    place = 0
    while place < len(srcset):
        if (match := _CANDIDATE.match(srcset, place)) is None:
            break
        place = match.end()
        descriptors: list[str] = []
        if not match[1].endswith(","):
            descriptors, place = _descriptors(srcset, place)
        if _valid(descriptors):
            urls.append(match[1].rstrip(","))
    return urls


def _descriptors(srcset: str, place: int) -> tuple[list[str], int]:
    """The words up to the next comma outside parentheses, and the place after it."""
    words = [""]
    while match := _DESCRIPTOR.match(srcset, place):
        place = match.end()
        if match[0] == ",":
            break
        if match[0].isspace():
            words.append("")
        else:
            words[-1] += match[0]
    return [word for word in words if word], place


def _valid(descriptors: list[str]) -> bool:
    kinds = sorted(word[-1] for word in descriptors)
    if kinds not in ([], ["w"], ["x"], ["h", "w"]):
        return False
    return all(_valid_number(word[:-1], word[-1]) for word in descriptors)


def _valid_number(text: str, kind: str) -> bool:
    if kind in "wh":
        return text.isascii() and text.isdigit() and int(text[-9:]) > 0
    return bool(re.fullmatch(_NUMBER, text)) and not text.startswith("-")
