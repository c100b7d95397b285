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
_COUNTER_MAX = 255  # what a counter of 8 bits can hold
_BLOCK = 4 * _COUNTER_MAX  # features at a time


class Fingerprint(NamedTuple):
    """Of a text: how many words, SHA-256 (hex) of the normalised text, SimHash (unsigned) unless it is too short."""

    word_count: int
    text_hash: str | None
    simhash: int | None


def of_text(text: str, min_words: int) -> Fingerprint:
    """All of it at once, for the cost of one split. A text without words has no hash."""
    found = words(text)
    enough = len(found) >= max(min_words, LEAST_WORDS)
    return Fingerprint(len(found), _text_hash(found) if found else None, _simhash(found) if enough else None)


def simhash(text: str) -> int:
    """The SimHash, 0..2^64-1; of a text shorter than a feature, of what there is (0 for no word)."""
    return _simhash(words(text))


def page_simhash(text: str, min_words: int) -> int | None:
    """The SimHash, or None when the text has fewer words than `min_words`: short texts all look alike."""
    return of_text(text, min_words).simhash


def text_hash(text: str) -> str:
    """SHA-256 (hex) of the normalised text: its words joined by blanks. Case, punctuation and layout do not count."""
    return _text_hash(words(text))


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
    try:
        plain = text.encode("ascii", "spindle-words")
    except _AccentError:
        plain = unicodedata.normalize("NFC", text).encode("ascii", "spindle-words-nfc")
    return plain.translate(_ASCII).split()


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


def _text_hash(found: list[bytes]) -> str:
    return hashlib.sha256(b" ".join(found)).hexdigest()


def _simhash(found: list[bytes]) -> int:
    """The majority of each bit over the features' hashes; a draw is 0."""
    if not found:
        return 0
    digests = b"".join(map(mmh3.mmh3_x64_128_digest, found))
    features = _features(np.frombuffer(digests, dtype="<u8")[::2].astype(np.uint64, copy=False))
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

    Every bit becomes a byte, eight bytes a word, and words are added: eight counters at once, of 255 features each. In
    blocks, since large arrays go back to the system at once and cost a page fault for each 4 KB when they come again.
    """
    ones = np.zeros(64, dtype=np.int64)
    for start in range(0, len(features), _BLOCK):
        block = features[start : start + _BLOCK].astype("<u8", copy=False)
        if len(block) < _BLOCK:
            block = np.concatenate((block, np.zeros(_BLOCK - len(block), dtype="<u8")))
        spread = np.unpackbits(block.view(np.uint8), bitorder="little").view("<u8")
        counters = spread.reshape(_COUNTER_MAX, -1).sum(axis=0).astype("<u8", copy=False)
        ones += counters.view(np.uint8).reshape(-1, 64).sum(axis=0, dtype=np.int64)
    return ones
