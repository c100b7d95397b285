"""Golden values of the fingerprints, the scheme by definition, and what must be alike or not."""

from __future__ import annotations

import itertools
import random

import mmh3
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spindle import fingerprint
from spindle.fingerprint import distance, page_simhash, simhash, text_hash

FOX = "The quick brown fox jumps over the lazy dog. "
MASK = (1 << 64) - 1


def test_the_hash_function_is_the_one_we_pin():
    """hajimes/mmh3#52: values that differ by version, sign or byte order make stored fingerprints useless."""
    assert mmh3.hash("abc") == -1277324294
    assert mmh3.hash("abc", signed=False) == 3017643002
    assert mmh3.hash64("abc") == (-5434086359492102041, 4297124817637354834)
    assert mmh3.mmh3_x64_128_digest(b"abc")[:8] == (-5434086359492102041).to_bytes(8, "little", signed=True)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 5628612607003194863),
        ("a b", 3735571819694739834),
        ("a b c", 1713605220545590640),
        ("the quick brown fox jumps over the lazy dog", 2534743464807673672),
        ("The; QUICK, brown-fox!\n jumps (over) the LAZY dog?", 2534743464807673672),  # layout does not count
        ("Ünïcödé straße ΣΊΣΥΦΟΣ", 4284631627746300323),
        ("u\u0308ni\u0308co\u0308de\u0301 STRASSE σίσυφος", 4284631627746300323),  # nor case or normal form
        ("日本語のページです", 8030501677697734828),
    ],
)
def test_golden_values_of_the_scheme(text, value):
    assert fingerprint.SIMHASH_SCHEME == "w23-mmh3-1"  # another scheme needs another name and new values here
    assert simhash(text) == value


def by_definition(text: str) -> int:
    """The scheme in plain Python, as docs/fingerprints.md states it."""

    def mixed(value: int, factor: int) -> int:
        value = value * factor & MASK
        return value ^ value >> 29

    first, second, third = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
    hashes = [mmh3.hash64(word, signed=False)[0] for word in fingerprint.words(text)]
    if len(hashes) < 2:
        features = {mixed(value, first) for value in hashes}
    else:
        pairs = [mixed(mixed(a, first) ^ b, second) for a, b in itertools.pairwise(hashes)]
        features = {*pairs, *(mixed(pair ^ c, third) for pair, c in zip(pairs, hashes[2:], strict=False))}
    return sum(1 << bit for bit in range(64) if 2 * sum(f >> bit & 1 for f in features) > len(features))


@pytest.mark.parametrize("count", [1, 2, 3, 17, 128, 129, 256, 257, 1000])  # 255 features fill a counter
def test_the_quick_way_is_the_definition(count):
    chance = random.Random(count)
    text = " ".join(f"w{chance.randint(0, 300)}" for _ in range(count))
    assert simhash(text) == by_definition(text)


@settings(deadline=None)
@given(st.lists(st.integers(1, 40), max_size=30), st.lists(st.integers(1, 3), min_size=30, max_size=30), st.randoms())
def test_words_of_any_length_hash_as_the_package_does(sizes, gaps, chance):
    """Up to 15 bytes all at once, longer ones by the package."""
    found = ["".join(chance.choices("abcdefgé日9_", k=size)).encode() for size in sizes]
    plain = b"".join(b" " * gap + word for gap, word in zip(gaps, found, strict=False)) + b" " * gaps[0]
    places = fingerprint._word_places(plain)
    assert fingerprint._word_hashes(plain, *places).tolist() == [mmh3.hash64(w, signed=False)[0] for w in found]
    assert fingerprint._joined(plain) == b" ".join(found)


@settings(deadline=None)
@given(st.text())
def test_any_text_has_a_hash(text):
    assert 0 <= simhash(text) <= MASK
    assert len(text_hash(text)) == 64
    assert simhash(text) == by_definition(text)


@pytest.mark.parametrize("text", ["", "   ", "!!!", "OK", "one two three four five six seven eight nine ten"])
def test_short_texts_have_none(text):
    """1e0ng/simhash#14: pages with too little text all look alike."""
    assert page_simhash(text, 16) is None


def test_enough_words_have_one():
    assert page_simhash("w " * 15, 16) is None
    assert page_simhash("w " * 16, 16) == simhash("w " * 16)
    assert page_simhash("a b", 1) is None  # no triple, whatever the setting


def test_a_text_without_words_has_no_text_hash():
    assert fingerprint.of_text(" !? ", 16) == (0, None, None)
    assert fingerprint.of_text("OK!", 16) == (1, text_hash("ok"), None)


def test_the_text_hash_is_of_the_normalised_words():
    assert text_hash("Hello,  WORLD!") == text_hash("hello world")
    assert text_hash("hello world") == "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9"  # sha256
    assert text_hash("world hello") != text_hash("hello world")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("don't stop_it 3.14", ["don", "t", "stop_it", "3", "14"]),
        ("naïve—café «mot»", ["naïve", "café", "mot"]),
        ("東京 tower", ["東", "京", "tower"]),  # no blanks between words: each character is one
        ("हिन्दी में", ["हिन्दी", "में"]),  # vowel signs belong to the word
        ("ไทย", ["ไ", "ท", "ย"]),
        ("a\u00a0b", ["a", "b"]),
    ],
)
def test_words(text, words):
    assert [word.decode() for word in fingerprint.words(text)] == words


def test_one_word_changed_is_a_near_copy_and_another_text_is_not():
    chance = random.Random(5)
    words = [f"word{chance.randint(0, 500)}" for _ in range(600)]
    changed = [*words[:300], "edited", *words[301:]]
    others = [f"word{chance.randint(0, 500)}" for _ in range(600)]
    assert distance(simhash(" ".join(words)), simhash(" ".join(changed))) <= 3
    assert distance(simhash(" ".join(words)), simhash(" ".join(others))) > 10
    assert simhash(FOX * 40) != simhash(FOX * 39 + "x y z")


@pytest.mark.parametrize("value", [0, 1, (1 << 63) - 1, 1 << 63, MASK])
def test_signed_for_tables_and_back(value):
    signed = fingerprint.to_signed(value)
    assert -(1 << 63) <= signed < 1 << 63
    assert fingerprint.from_signed(signed) == value


def test_distance_counts_bits_signed_or_not():
    assert distance(0, MASK) == 64
    assert distance(0b1011, 0b0001) == 2
    assert distance(fingerprint.to_signed(MASK), fingerprint.to_signed(1)) == 63
