"""Which character encoding a body is in, and its text.

This file alone decides that, by the WHATWG rules: byte-order mark, HTTP header, declaration in the first 1024 bytes
(HTML Standard 13.2.3.2, "encoding sniffing algorithm"), a declaration further on, then what the bytes look like, then
windows-1252. Labels are those of the Encoding Standard and no others. It knows nothing of tags beyond the prescan.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

import webencodings  # type: ignore[import-untyped]

from spindle import detector

DEFAULT = "windows-1252"  # the locale default of most of the world (HTML Standard 13.2.3.2, step 9)
PRESCAN_BYTES = 1024  # HTML Standard 13.2.3.2
LATE_SCAN_BYTES = 262_144  # a browser changes its mind at any later <meta>; nobody declares beyond this

_BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xfe\xff", "utf-16be"), (b"\xff\xfe", "utf-16le"))
_STEP = re.compile(rb"<(?:(!--)|(meta)(?=[\t\n\f\r /])|(/?[a-z][^\t\n\f\r >]*)|[!/?])", re.I)
_ATTRIBUTE = re.compile(
    rb"[\t\n\f\r /]*(=?[^\t\n\f\r />=]+|=)[\t\n\f\r ]*"  # "=" first is part of a name, says the standard
    rb"(?:=[\t\n\f\r ]*(?:\"([^\"]*)\"|'([^']*)'|([^\"'>\t\n\f\r ][^>\t\n\f\r ]*)|(?=>)|(?P<open>[\"'])))?"
)
_IN_CONTENT = re.compile(
    rb"charset[\t\n\f\r ]*=[\t\n\f\r ]*(?:\"([^\"]*)\"|'([^']*)'|([^\"'\t\n\f\r ;][^\t\n\f\r ;]*))", re.I
)
_IN_HEADER = re.compile(r"[\t\n\r ]*([^=;]*)(?:=(?:\"((?:[^\"\\]|\\.)*)\"?[^;]*|([^;]*)))?(?:;|$)")
_MIME = re.compile(r"[\t\n\r ]*([!#$%&'*+.^_`|~A-Za-z0-9-]+/[!#$%&'*+.^_`|~A-Za-z0-9-]+)[\t\n\r ]*(?:;|$)")
_XML_DECLARATION = re.compile(rb"<\?xml[^>]*?encoding[\x00-\x20]*=[\x00-\x20]*(?:\"([^\">]*)\"|'([^'>]*)')")


class Found(NamedTuple):
    """`name`: WHATWG name, lower case. `source`: bom, header, meta, detected or default."""

    name: str
    source: str


class Decoded(NamedTuple):
    """The body as text without its byte-order mark; bytes that the encoding lacks are U+FFFD."""

    text: str
    name: str
    source: str


def detect(body: bytes, content_type: str | None) -> str:
    """The encoding's WHATWG name in lower case; never raises. `content_type` is the header's value."""
    return detect_source(body, content_type).name


def detect_source(body: bytes, content_type: str | None) -> Found:
    """The encoding and the step that decided it."""
    for mark, name in _BOMS:
        if body.startswith(mark):
            return Found(name, "bom")
    if content_type and (label := header_charset(content_type)):
        return Found(label, "header")
    xml = is_xml(content_type)
    if declared := (_xml_declaration(body) if xml else prescan(body[:PRESCAN_BYTES]) or _late(body)):
        return Found(declared, "meta")
    return _undeclared(body, xml)


def decode(body: bytes, content_type: str | None) -> Decoded:
    """The body's text; never raises."""
    name, source = detect_source(body, content_type)
    if source == "bom":
        body = body[3 if name == "utf-8" else 2 :]
    return Decoded(decode_as(body, name), name, source)


def decode_as(body: bytes, name: str) -> str:
    """Decode by a WHATWG name; what the encoding lacks becomes U+FFFD.

    The "replacement" encoding is one U+FFFD for any body (Encoding Standard 14.1): what it stands for
    (hz-gb-2312, iso-2022-kr and the like) smuggles markup past filters.
    """
    if name == "replacement":
        return "\ufffd" if body else ""
    text: str = webencodings.lookup(name).codec_info.decode(body, "replace")[0]
    return text


@lru_cache(4096)
def by_label(label: str) -> str | None:
    """The WHATWG name in lower case of a label, None for one that the Encoding Standard does not list."""
    if (found := webencodings.lookup(label)) is None:
        return "replacement" if label.strip("\t\n\f\r ").lower() in _REPLACED else None
    return str(found.name).lower()


#: Labels of the replacement encoding (Encoding Standard 4.2) that `webencodings` leaves out or maps otherwise.
_REPLACED = frozenset({"csiso2022kr", "hz-gb-2312", "iso-2022-cn", "iso-2022-cn-ext", "iso-2022-kr", "replacement"})


@lru_cache(4096)
def header_charset(content_type: str) -> str | None:
    """What a Content-Type header declares, or None (MIME Sniffing 4.4; a list is split at commas as Fetch 3.5 does).

    The last value that is a MIME type decides; one without a charset inherits that of the value before it when the
    type is the same. A label that does not exist declares nothing.
    """
    essence, label = "", None
    for value in content_type.split(","):
        if not (mime := _MIME.match(value)):
            continue
        found = _parameter(value[mime.end() :], "charset")
        if found is not None or mime[1].lower() != essence:
            label = found
        essence = mime[1].lower()
    return by_label(label) if label else None


def is_xml(content_type: str | None) -> bool:
    """True for an XML media type (RFC 7303 section 8: text/xml, application/xml and +xml)."""
    essence = (content_type or "").split(";")[0].strip().lower()
    return essence in ("text/xml", "application/xml") or essence.endswith("+xml")


def _parameter(text: str, name: str) -> str | None:
    """The first parameter of that name; an unclosed quote runs to the end (MIME Sniffing 4.4)."""
    for match in _IN_HEADER.finditer(text):
        if match[1].strip("\t\n\r ").lower() == name and "=" in match[0]:
            quoted, token = match[2], match[3]
            return re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else token.strip("\t\n\r ")
    return None


def prescan(window: bytes, skip_raw_text: bool = False) -> str | None:
    """The declaration in these bytes (HTML Standard 13.2.3.2, "prescan a byte stream"), or None.

    A browser's prescan sees a <meta> in a script too; its parser, which finds the late ones, does not
    (`skip_raw_text`).
    """
    if window.startswith((b"<\0?\0x\0", b"\0<\0?\0x")):
        return "utf-16le" if window.startswith(b"<") else "utf-16be"
    place = 0
    while step := _STEP.search(window, place):
        comment, meta, tag = step.groups()
        if comment:
            place = window.find(b"-->", step.start() + 2) + 3
        elif meta:
            label, place = _meta(window, step.end())
            if label:
                return label
        elif tag:
            _, place = _attributes(window, step.end())
            if skip_raw_text and tag.lower() in (b"script", b"style"):
                place = _after_raw_text(window, place, tag)
        else:
            place = window.find(b">", step.start()) + 1
        if place <= step.start():  # the bytes ran out
            break
    return _xml_declaration(window)


def _late(body: bytes) -> str | None:
    """A declaration past the prescan: a browser restarts with it (HTML Standard 13.2.3.4)."""
    if len(body) <= PRESCAN_BYTES or b"charset" not in body[PRESCAN_BYTES - 64 : LATE_SCAN_BYTES].lower():
        return None
    return prescan(body[:LATE_SCAN_BYTES], skip_raw_text=True)


def _after_raw_text(window: bytes, place: int, tag: bytes) -> int:
    end = re.compile(rb"</" + tag, re.I).search(window, place)
    return end.start() if end else 0


def _meta(window: bytes, place: int) -> tuple[str | None, int]:
    attributes, place = _attributes(window, place)
    if attributes is None:
        return None, place
    label = attributes.get(b"charset")
    if label is None and attributes.get(b"http-equiv", b"").lower() == b"content-type":
        match = _IN_CONTENT.search(attributes.get(b"content", b""))
        label = next((value for value in match.groups() if value is not None), None) if match else None
    name = by_label(label.decode("latin-1")) if label else None
    return _as_declared_inside(name), place


def _as_declared_inside(name: str | None) -> str | None:
    """A document that could be read as ASCII is not UTF-16 (HTML Standard 13.2.3.2, "prescan", UTF-16BE/LE)."""
    if name in ("utf-16le", "utf-16be"):
        return "utf-8"
    return DEFAULT if name == "x-user-defined" else name


def _attributes(window: bytes, place: int) -> tuple[dict[bytes, bytes] | None, int]:
    """Attributes up to the tag's end and the place after it; (None, 0) when the bytes run out before that."""
    found: dict[bytes, bytes] = {}
    while match := _ATTRIBUTE.match(window, place):
        if match["open"]:
            return None, 0
        name, *values = match.groups()[:4]
        found.setdefault(name.lower(), next((value for value in values if value is not None), b""))
        place = match.end()
    end = window.find(b">", place)
    return (found, end + 1) if end >= 0 else (None, 0)


def _xml_declaration(body: bytes) -> str | None:
    """What <?xml ... encoding="..."?> says (HTML Standard 13.2.3.2, "get an XML encoding")."""
    if not (match := _XML_DECLARATION.match(body[:PRESCAN_BYTES])):
        return None
    return _as_declared_inside(by_label((match[1] or match[2] or b"").decode("latin-1")))


def _undeclared(body: bytes, xml: bool) -> Found:
    """Nothing is declared: valid UTF-8 that is more than ASCII is UTF-8; else a guess; else the default."""
    fallback = Found("utf-8" if xml else DEFAULT, "default")  # XML 1.0 4.3.3
    if body.isascii():
        return fallback
    if detector.is_utf8(body):
        return Found("utf-8", "detected")
    guess = by_label(detector.guess(body) or "")
    return Found(guess, "detected") if guess else fallback
