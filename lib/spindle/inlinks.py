"""How many hosts link to a URL: a sketch that may be folded twice, in any order, and say the same. Pure.

Linear counting (Whang, Vander-Zanden, Taylor 1990) on 64 bits: each source host sets one bit, folds are bitwise OR, so
a rerun changes nothing and a row is rewritten at most 64 times. 64 bits count some 150 hosts well and saturate near
310; beyond that a priority need not tell. Each function has its SQL twin; a test holds them equal.
"""

from __future__ import annotations

import math

BITS = 64
SATURATED = round(BITS * math.log(BITS * 2))  # all bits set: at least this many


def bit_sql(hash_sql: str) -> str:
    """SQL: the bit of a source, from a 64-bit hash of its host."""
    return f"shiftleft(1L, CAST(pmod({hash_sql}, {BITS}) AS INT))"


def estimate(bits: int) -> int:
    """Distinct source hosts that `bits` (signed or unsigned 64 bit) stands for."""
    empty = BITS - (bits & 0xFFFF_FFFF_FFFF_FFFF).bit_count()
    return SATURATED if empty == 0 else round(BITS * math.log(BITS / empty))


def estimate_sql(bits_sql: str) -> str:
    """SQL twin of `estimate`."""
    empty = f"({BITS} - bit_count({bits_sql}))"
    return f"CAST(IF({empty} = 0, {SATURATED}, round({BITS} * ln({BITS} / {empty}))) AS INT)"
