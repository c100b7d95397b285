"""What makes two texts the same, or nearly: words, text hash and SimHash.

This file alone decides the features and the arithmetic; stored values name them by SIMHASH_SCHEME, and only values of
one scheme may be compared. The same on every machine: hashes are little-endian by definition, words are UTF-8.

The scheme (docs/fingerprints.md has the measurement that chose it): words are runs of letters of the NFC, case-folded
text, in scripts without blanks each character by itself; each different pair and triple of words in a row is a
feature; its hash is mixed from the first 64 bits of mmh3 x64-128 (seed 0) of its words; a bit of the SimHash is 1 where
more than half of the features' hashes have it (Charikar 2002; Manku, Jain and Das Sarma 2007).
"""

from __future__ import annotations

import codecs
import hashlib
import re
import unicodedata
from functools import lru_cache
from typing import NamedTuple

import mmh3
import numpy as np
import numpy.typing as npt

SIMHASH_SCHEME = "w23-mmh3-1"
LEAST_WORDS = 3  # fewer have no triple

#: One step for all of ASCII: letters to lower case, what is no letter, digit or "_" to a blank.
_ASCII = bytes(
    code if code >= 0x80 or code == 0x5F else ord(chr(code).lower()) if chr(code).isalnum() else 0x20
    for code in range(256)
)
_ACCENTS = ("\u0300", "\u036f")  # first and last of the only marks that melt with an ASCII character
#: Vowel signs and points are no letters to `re`, but part of the word: Latin, Hebrew, Arabic, the scripts of India.
_LETTER = re.compile(r"[\w\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0963\u0966-\u0dff]")
#: Scripts written without blanks: Thai, Lao, Myanmar, Khmer, kana, Han. A word there is one character.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
_REMEMBERED_CHARS = 32  # of a run; words come again, paragraphs do not
_MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9))
_DOWN = np.uint64(29)
#: How many counters are added, the bits of each before, and which of them.
_STEPS = tuple(
    (together, np.uint64(width), np.uint64(mask))
    for together, width, mask in ((3, 1, 0x5555555555555555), (5, 2, 0x3333333333333333), (17, 4, 0x0F0F0F0F0F0F0F0F))
)
_BLANK = 0x20
# mmh3 x64-128 (Appleby, MurmurHash3.cpp, public domain), for words of up to 15 bytes, which are its tail alone.
_TAIL_BYTES = 15
_LOW = np.array([(1 << 8 * min(size, 8)) - 1 for size in range(_TAIL_BYTES + 1)], dtype=np.uint64)
_HIGH = np.array([(1 << 8 * max(size - 8, 0)) - 1 for size in range(_TAIL_BYTES + 1)], dtype=np.uint64)
_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
_F1, _F2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)


class Fingerprint(NamedTuple):
    """Of a text: how many words, SHA-256 (hex) of the normalised text, SimHash (unsigned) unless it is too short."""

    word_count: int
    text_hash: str | None
    simhash: int | None


def of_text(text: str, min_words: int) -> Fingerprint:
    """All of it at once. A text without words has no hash."""
    plain = _plain(text)
    starts, sizes = _word_places(plain)
    count = len(starts)
    enough = count >= max(min_words, LEAST_WORDS)
    return Fingerprint(
        count,
        hashlib.sha256(_joined(plain)).hexdigest() if count else None,
        _majority(_word_hashes(plain, starts, sizes)) if enough else None,
    )


def simhash(text: str) -> int:
    """The SimHash, 0..2^64-1; of a text shorter than a feature, of what there is (0 for no word)."""
    plain = _plain(text)
    return _majority(_word_hashes(plain, *_word_places(plain)))


def page_simhash(text: str, min_words: int) -> int | None:
    """The SimHash, or None when the text has fewer words than `min_words`: short texts all look alike."""
    return of_text(text, min_words).simhash


def text_hash(text: str) -> str:
    """SHA-256 (hex) of the normalised text: its words joined by blanks. Case, punctuation and layout do not count."""
    return hashlib.sha256(_joined(_plain(text))).hexdigest()


def distance(a: int, b: int) -> int:
    """Bits in which two SimHashes differ, 0..64; both signed or both unsigned."""
    return ((a ^ b) & 0xFFFFFFFFFFFFFFFF).bit_count()


def to_signed(value: int) -> int:
    """For tables, whose BIGINT is signed."""
    return value - (1 << 64) if value >= 1 << 63 else value


def from_signed(value: int) -> int:
    """Back from a table."""
    return value & 0xFFFFFFFFFFFFFFFF


def words(text: str) -> list[bytes]:
    """The words of a text in order, normalised, as UTF-8."""
    return _plain(text).split()


def _plain(text: str) -> bytes:
    """The words with blanks between them, one or more."""
    try:
        plain = text.encode("ascii", "spindle-words")
    except _AccentError:
        plain = unicodedata.normalize("NFC", text).encode("ascii", "spindle-words-nfc")
    return plain.translate(_ASCII)


class _AccentError(Exception):
    """An accent follows an ASCII character: only the normal form of both together is right."""


def _of_run(error: UnicodeError) -> tuple[bytes, int]:
    """For `str.encode`, which finds the runs beyond ASCII ten times quicker than a pattern does."""
    assert isinstance(error, UnicodeEncodeError)
    run = error.object[error.start : error.end]
    return _remembered(run) if len(run) <= _REMEMBERED_CHARS else _folded(run), error.end


def _of_run_without_accent(error: UnicodeError) -> tuple[bytes, int]:
    assert isinstance(error, UnicodeEncodeError)
    if _ACCENTS[0] <= error.object[error.start] <= _ACCENTS[1]:
        raise _AccentError
    return _of_run(error)


codecs.register_error("spindle-words", _of_run_without_accent)
codecs.register_error("spindle-words-nfc", _of_run)


def _folded(run: str) -> bytes:
    """Normal form C and case-folded; blanks for what is no letter and round what stands alone."""
    run = unicodedata.normalize("NFC", run).casefold()
    run = "".join(char if _LETTER.match(char) else " " for char in run)
    return _UNSPACED.sub(r" \g<0> ", run).encode("utf-8", "replace")


_remembered = lru_cache(100_000)(_folded)


def _joined(plain: bytes) -> bytes:
    """As b" ".join(plain.split()), for a third of its cost."""
    chars = np.frombuffer(plain, dtype=np.uint8)
    letters = chars != _BLANK
    kept = letters.copy()
    kept[1:] |= letters[:-1]  # the first blank after a word
    joined: bytes = chars[kept].tobytes()
    return joined.strip()


def _word_places(plain: bytes) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Where each word starts, and its bytes."""
    blank = np.ones(len(plain) + 2, dtype=np.bool_)
    np.equal(np.frombuffer(plain, dtype=np.uint8), _BLANK, out=blank[1:-1])
    blanks = blank.nonzero()[0]
    starts, sizes = (
        blanks[:-1],
        blanks[1:] - blanks[:-1] - 1,
    )  # a word starts one after a blank, where `blank` is one ahead
    words = sizes > 0
    return starts[words], sizes[words]


def _word_hashes(plain: bytes, starts: npt.NDArray[np.intp], sizes: npt.NDArray[np.intp]) -> npt.NDArray[np.uint64]:
    """The first 64 bits of mmh3 x64-128 of each word: what `mmh3.hash64` gives, of all words at once, which halves the
    cost of a split and a call for each."""
    padded = plain + bytes(16)
    eights = np.ndarray((len(plain) + 9,), dtype="<u8", buffer=padded, strides=(1,))  # from each byte on
    tail = np.minimum(sizes, _TAIL_BYTES)
    first = (eights.take(starts) & _LOW.take(tail)).astype(np.uint64, copy=False)
    second = (eights.take(starts + 8) & _HIGH.take(tail)).astype(np.uint64, copy=False)
    first = _turned(first * _C1, 31) * _C2
    second = _turned(second * _C2, 33) * _C1
    length = sizes.astype(np.uint64)
    first ^= length
    second ^= length
    first += second
    second += first
    hashes = _finished(first) + _finished(second)
    for place in (sizes > _TAIL_BYTES).nonzero()[0].tolist():
        start = int(starts[place])
        hashes[place] = mmh3.hash64(plain[start : start + int(sizes[place])], signed=False)[0]
    return hashes


def _turned(values: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.uint64]:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _finished(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    for factor in (_F1, _F2):
        values = (values ^ (values >> np.uint64(33))) * factor
    return values ^ (values >> np.uint64(33))


def _majority(hashes: npt.NDArray[np.uint64]) -> int:
    """The majority of each bit over the hashes of the features that these words make; a draw is 0."""
    if not len(hashes):
        return 0
    features = _features(hashes)
    bits = np.packbits(_ones(features) * 2 > len(features), bitorder="little")
    return int.from_bytes(bits.tobytes(), "little")


def _features(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A hash for each pair and each triple of words in a row, each different one once; order counts."""
    if len(hashes) < 2:
        return _mixed(hashes, _MIX[0])
    pairs = _mixed(_mixed(hashes[:-1], _MIX[0]) ^ hashes[1:], _MIX[1])
    triples = _mixed(pairs[:-1] ^ hashes[2:], _MIX[2])
    every = np.sort(np.concatenate((pairs, triples)))
    return every[np.concatenate(([True], every[1:] != every[:-1]))]


def _mixed(values: npt.NDArray[np.uint64], factor: np.uint64) -> npt.NDArray[np.uint64]:
    """A multiplication carries each bit upwards, a shift brings the top down again."""
    product = values * factor
    return product ^ (product >> _DOWN)


def _ones(features: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """How many features have each bit, lowest bit first.

    Counters lie side by side in words of 64 bits and are added all at once: of 2 bits for 3 features, of 4 for 15, of 8
    for 255. Each step parts the counters of even and of odd places, so that they have room to grow.
    """
    parts = np.concatenate((features, np.zeros(-len(features) % 255, dtype=np.uint64))).reshape(1, -1)
    for together, width, mask in _STEPS:
        halves = np.concatenate((parts & mask, (parts >> width) & mask))
        parts = np.add.reduce(halves.reshape(len(halves), together, -1), axis=1)
    counters = parts.astype("<u8", copy=False).view(np.uint8).reshape(8, -1, 8)
    ones: npt.NDArray[np.int64] = counters.sum(axis=1, dtype=np.int64).T.ravel()
    return ones
