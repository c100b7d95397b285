"""What makes two texts the same, or nearly: words, text hash and SimHash.

This file alone decides the features and the arithmetic; stored values name them by SIMHASH_SCHEME, and only values of
one scheme may be compared. The same on every machine: hashes are little-endian by definition, words are UTF-8.

The scheme (docs/fingerprints.md has the measurement that chose it): words are runs of `\\w` of the NFC, case-folded
text, in scripts without blanks each character by itself; every 3 words in a row are a feature; its hash is the first
64 bits of mmh3 x64-128 (seed 0) of each word, mixed; a bit of the SimHash is 1 where more than half of the features'
hashes have it (Charikar 2002; Manku, Jain and Das Sarma 2007).
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import NamedTuple

import mmh3
import numpy as np
import numpy.typing as npt

SIMHASH_SCHEME = "w3-mmh3-1"
SHINGLE = 3

_TO_BLANK = bytes(byte if byte >= 0x80 or chr(byte).isalnum() or byte == 0x5F else 0x20 for byte in range(256))
_WORD = re.compile(r"\w+")
#: Scripts written without blanks: Thai, Lao, Myanmar, Khmer, kana, Han. A word there is one character.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
_MEMORY = 200_000  # words whose hashes are remembered; then afresh
_MAX_REMEMBERED = 64  # bytes of a word worth remembering
_LANES = np.uint64(0x0101010101010101)  # one bit of each byte: eight counters in a word
_SHIFTS = np.arange(8, dtype=np.uint64)
_RUN = 255  # features that a counter of 8 bits can take
_MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9))


class Fingerprint(NamedTuple):
    """Of a text: how many words, SHA-256 (hex) of the normalised text, SimHash (unsigned) unless it is too short."""

    word_count: int
    text_hash: str | None
    simhash: int | None


class _WordHashes(dict[bytes, bytes]):
    """Word to the 8 bytes of its hash; most words of a page were met before."""

    def __missing__(self, word: bytes) -> bytes:
        value = mmh3.mmh3_x64_128_digest(word, 0)[:8]
        if len(self) >= _MEMORY:
            self.clear()
        if len(word) <= _MAX_REMEMBERED:
            self[word] = value
        return value


_hashes = _WordHashes()


def of_text(text: str, min_words: int) -> Fingerprint:
    """All of it at once, for the cost of one split. A text without words has no hash."""
    found = words(text)
    enough = len(found) >= max(min_words, SHINGLE)
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
    if text.isascii():
        return text.lower().encode().translate(_TO_BLANK).split()
    text = unicodedata.normalize("NFC", text).casefold()
    if _UNSPACED.search(text):
        text = _UNSPACED.sub(r" \g<0> ", text)
    return " ".join(_WORD.findall(text)).encode("utf-8", "replace").split()


def _text_hash(found: list[bytes]) -> str:
    return hashlib.sha256(b" ".join(found)).hexdigest()


def _simhash(found: list[bytes]) -> int:
    """The majority of each bit over the features' hashes; a draw is 0."""
    if not found:
        return 0
    digests = b"".join(map(_hashes.__getitem__, found))
    features = _features(np.frombuffer(digests, dtype="<u8").astype(np.uint64))
    ones = _ones(features)
    bits = np.packbits(ones * 2 > len(features), bitorder="little")
    return int.from_bytes(bits.tobytes(), "little")


def _features(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """One hash for each 3 words in a row: order counts, and every bit of each word reaches every bit."""
    reach = min(SHINGLE, len(hashes))
    last = len(hashes) - reach + 1
    mixed = np.zeros(last, dtype=np.uint64)
    for place in range(reach):
        mixed = (mixed ^ hashes[place : place + last]) * _MIX[place]
        mixed ^= mixed >> np.uint64(29)
    return mixed


def _ones(features: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """How many features have each bit, lowest bit first. Eight counters to a word, 255 features to a counter."""
    lanes = (features[:, None] >> _SHIFTS) & _LANES
    sums = np.add.reduceat(lanes, np.arange(0, len(features), _RUN), axis=0)
    counters = sums.astype("<u8").view(np.uint8).reshape(-1, 8, 8)
    by_shift_and_byte: npt.NDArray[np.int64] = counters.sum(axis=0, dtype=np.int64)
    return by_shift_and_byte.T.reshape(64)
