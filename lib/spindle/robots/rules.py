"""Matching: which of a crawler's rules decides about a URL (RFC 9309 2.2.2 and 2.2.3).

Cost is bounded by the octets of rules and URL. No rule becomes a regular expression; a wildcard rule is matched left to
right and never goes back; literal rules are looked up by length; and where wildcard rules are many, three octets of
each select the few worth trying (bench/politeness.py has the figures). It knows nothing of groups and names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?]*")
_PLAIN = re.compile(r"[A-Za-z0-9\-._~:/?\[\]@!&'()+,;=]*")  # octets that are canonical as they stand
_ODD = re.compile(rb"%[0-9A-Fa-f]{2}|[^A-Za-z0-9\-._~:/?\[\]@!&'()+,;=*]")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_FOLD = {ord(char): f"%{ord(char):02X}" for char in ":/?[]@"}
_INDEX_FROM = 32  # wildcard rules; fewer are tried one by one (measured: the index costs as much as about 30 tries)
_GRAM = 3  # octets
_PIECE_TAIL = 12  # octets of a piece that are looked at for the rarest gram; bounds the cost of the index


class Rules:
    """The rules of one crawler out of one robots.txt.

    `crawl_delay_s` is None when none is given (or none that can be read); `sitemaps` are the values of all Sitemap
    lines as written; `truncated` says that the file was longer than what is read of it.
    """

    __slots__ = ("_exact", "_lengths", "_prefixes", "_wild", "crawl_delay_s", "sitemaps", "truncated")

    def __init__(
        self,
        rules: Iterable[tuple[bool, bytes]] = (),
        crawl_delay_s: float | None = None,
        sitemaps: Iterable[str] = (),
        truncated: bool = False,
    ) -> None:
        self.crawl_delay_s = crawl_delay_s
        self.sitemaps = list(sitemaps)
        self.truncated = truncated
        self._exact: dict[str, int] = {}
        self._prefixes: dict[str, int] = {}
        self._wild = _WildRules()
        for allow, value in rules:
            self._add(allow, value)
        self._lengths = sorted({len(prefix) for prefix in self._prefixes}, reverse=True)

    def _add(self, allow: bool, value: bytes) -> None:
        text, anchored = _pattern(value)
        folded = _folded(text)
        strength = _strength(len(folded) + anchored, allow)
        for variant in (text,) if text == folded else (text, folded):
            if "*" in variant:
                self._wild.rules.append((strength, tuple(variant.split("*")), anchored))
            else:
                table = self._exact if anchored else self._prefixes
                table[variant] = max(strength, table.get(variant, 0))

    def allows(self, url: str) -> bool:
        """Whether `url`, absolute or from the path on, may be fetched under these rules.

        The longest matching rule in octets decides, Allow between equals, and no rule means yes (RFC 9309 2.2.2).
        """
        path = _path(url)
        if path == "/robots.txt":  # RFC 9309 2.2.2: implicitly allowed
            return True
        folded = _folded(path)
        best = self._strongest(path)
        if folded != path:
            best = max(best, self._strongest(folded))
        return best & 1 == 1

    def _strongest(self, path: str) -> int:
        best = self._exact.get(path, 1)
        prefixes = self._prefixes
        for length in self._lengths:
            strength = prefixes.get(path[:length], 0)
            if strength:
                best = max(best, strength)
                break  # longest first: what follows is weaker (folding keeps prefixes prefixes)
        return self._wild.strongest(path, best)


class _WildRules:
    """Rules with a "*" inside. Where they are many, each is filed under three octets that a path must have to match."""

    __slots__ = ("_always", "_by_gram", "rules")

    def __init__(self) -> None:
        self.rules: list[_Wild] = []
        self._always: list[_Wild] = []  # no piece is long enough
        self._by_gram: dict[str, list[_Wild]] | None = None  # made when first asked

    def strongest(self, path: str, best: int) -> int:
        """The strength of the strongest rule that matches, or `best` where none is stronger."""
        for strength, pieces, anchored in self.rules if len(self.rules) < _INDEX_FROM else self._candidates(path):
            if strength > best and _matches(path, pieces, anchored):
                best = strength
        return best

    def _candidates(self, path: str) -> list[_Wild]:
        if self._by_gram is None:
            self._by_gram = self._index()
        found = list(self._always)
        for gram in self._by_gram.keys() & set(_grams(path)):
            found += self._by_gram[gram]
        return found

    def _index(self) -> dict[str, list[_Wild]]:
        index: dict[str, list[_Wild]] = {}
        for rule in self.rules:
            grams = _grams(max(rule[1], key=len)[-_PIECE_TAIL:])
            if grams:
                index.setdefault(min(grams, key=lambda gram: len(index.get(gram, ()))), []).append(rule)
            else:
                self._always.append(rule)
        return index


_Wild = tuple[int, tuple[str, ...], bool]  # strength, what stands between the stars, ends in "$"


def _strength(octets: int, allow: bool) -> int:
    """One number to compare rules by: longer first, then Allow; its lowest bit is the verdict."""
    return 2 * octets + allow


def _grams(text: str) -> list[str]:
    return [text[at : at + _GRAM] for at in range(len(text) - _GRAM + 1)]


def _matches(path: str, pieces: tuple[str, ...], anchored: bool) -> bool:
    """Whether `path` is matched. Taking each piece where it first fits loses nothing, so no step is ever undone."""
    first, last = pieces[0], pieces[-1]
    if not path.startswith(first) or (anchored and not path.endswith(last)):
        return False
    at, end = len(first), len(path) - len(last) if anchored else len(path)
    for piece in pieces[1:-1] if anchored else pieces[1:]:
        at = path.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return at <= end


def _pattern(value: bytes) -> tuple[str, bool]:
    """A rule in canonical octets with its stars, and whether it is anchored at the end ("$" is special there only).

    A run of stars means the same as one and counts as one (RFC 9309 2.2.3: "0 or more").
    """
    anchored = value.endswith(b"$")
    if anchored:
        value = value[:-1]
    if b"**" in value:
        value = re.sub(rb"\*+", b"*", value)
    return _ODD.sub(_canonical_octet, value).decode("ascii"), anchored


def _path(url: str) -> str:
    """Path and query of a URL in canonical octets: what rules are compared with."""
    text = url.partition("#")[0] if "#" in url else url
    if not text.startswith("/"):
        authority = _AUTHORITY.match(text)
        text = text[authority.end() if authority else 0 :]
        if not text.startswith("/"):
            text = "/" + text
    if _PLAIN.fullmatch(text):
        return text
    octets = text.replace("*", "%2A").encode("utf-8", "surrogateescape")  # a "*" in a URL is no star
    return _ODD.sub(_canonical_octet, octets).decode("ascii")


def _canonical_octet(match: re.Match[bytes]) -> bytes:
    """RFC 9309 2.2.2: an escaped unreserved octet is decoded, everything else that is not plain is escaped.

    So "*" and "$" in a URL become "%2A" and "%24", which is how a rule spells them when it means them (2.2.3).
    """
    text = match[0]
    octet = int(text[1:], 16) if len(text) == 3 else text[0]
    return bytes((octet,)) if octet in _UNRESERVED else b"%%%02X" % octet


def _folded(path: str) -> str:
    """The same with reserved octets of the query escaped, as the second row of RFC 9309 2.2.2's table has it.

    That row makes "?baz=https://foo.bar" and its escaped spelling one; the paragraph above it keeps reserved octets
    apart, as RFC 3986 does. Both spellings are tried, so that neither reading lets a forbidden URL through.
    """
    head, mark, query = path.partition("?")
    return head + mark + query.translate(_FOLD) if mark else path
