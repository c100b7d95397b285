"""A URL as a browser reads it (WHATWG URL Standard), and the reason where a browser reads none.

Alone decides what text is a URL at all. Knows no policy: any scheme, fragment and password are still there.
"""

from __future__ import annotations

import re

import ada_url
import webencodings  # type: ignore[import-untyped]

from spindle.errors import UrlRejected

#: Why a URL is refused, here or by the policy: the closed vocabulary under which `metrics` counts.
REJECT_REASONS = frozenset({"empty", "not_absolute", "bad_base", "scheme", "bad_host", "bad_port", "too_long"})

_C0_AND_SPACE = "".join(map(chr, range(0x21)))
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_AUTHORITY = re.compile(
    r"(?:https?:)?[/\\]*(?:[^/\\?#]*@)?(?:\[[^]/\\?#]*\]|[^:[/\\?#]*)(?::([^/\\?#]*))?", re.IGNORECASE
)


def resolve(url: str, base: str | None = None, encoding: str = "utf-8") -> str:
    """The URL as a browser would serialise it, before any policy.

    `encoding` is the label of the page's charset: browsers escape the query in it (WHATWG URL 4.4, query state).
    Other than in a browser, a broken base does not spoil absolute URLs.

    Raises:
        UrlRejected: not a URL. The detail never quotes the URL, which may hold a password.
    """
    if encoding != "utf-8" and not url.isascii():
        url = _query_in(url, encoding)
    try:
        return ada_url.normalize_url(url) if base is None else ada_url.join_url(base, url)
    except ValueError:
        pass
    repaired = _without_surrogates(url)
    if repaired != url:
        return resolve(repaired, base)
    if base is not None and not ada_url.check_url(_without_surrogates(base)):
        return _without_base(url)
    raise UrlRejected(_why_not(url, base))


def foreign_scheme(url: str) -> bool:
    """Whether the URL plainly has a scheme other than http and https (mailto:, javascript:, a data: of megabytes)."""
    match = _SCHEME.match(url)
    return match is not None and match[0].lower() not in ("http:", "https:")


def has_scheme(url: str) -> bool:
    """Whether the URL starts with a scheme, so that no base path applies (but see `http:page`: WHATWG URL 4.4)."""
    return _SCHEME.match(url) is not None


def escape_bytes(raw: bytes) -> str:
    """Text of a URL that came as bytes, a Location header say: bytes above ASCII are escaped as they stand."""
    return "".join(chr(byte) if byte < 0x80 else f"%{byte:02X}" for byte in raw)


def _without_surrogates(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # WebIDL's USVString


def _without_base(url: str) -> str:
    try:
        return resolve(url)
    except UrlRejected as rejected:
        if rejected.reason in ("not_absolute", "empty"):
            raise UrlRejected("bad_base", "the base is not a URL") from None
        raise


def _why_not(url: str, base: str | None) -> str:
    """The reason for what the parser refused; it does not say."""
    text = re.sub(r"[\t\n\r]", "", url).strip(_C0_AND_SPACE)
    if foreign_scheme(text):
        return "scheme"
    if base is None and not has_scheme(text):
        return "not_absolute" if text else "empty"
    match = _AUTHORITY.match(text)
    port = match[1] if match else None
    return "bad_port" if port and not (port.isdecimal() and int(port[-9:]) < 65536) else "bad_host"


def _query_in(url: str, label: str) -> str:
    """The URL with its query escaped in the page's charset; what that cannot hold becomes `&#NNN;`, as in browsers."""
    encoding = webencodings.lookup(label)
    if encoding is None or encoding.name in ("utf-8", "utf-16le", "utf-16be"):
        return url
    before, hash_mark, fragment = url.partition("#")
    head, mark, query = before.partition("?")
    text = re.sub(r"[\t\n\r]", "", _without_surrogates(query))
    raw, _ = encoding.codec_info.encode(text, "xmlcharrefreplace")
    raw = re.sub(rb"&#([0-9]+);", rb"%26%23\1%3B", raw)
    raw = re.sub(rb"[\x0e\x0f\x1b#\x80-\xff]", lambda match: b"%%%02X" % match[0][0], raw)
    return head + mark + raw.decode("ascii") + hash_mark + fragment
