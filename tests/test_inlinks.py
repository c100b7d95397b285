"""The sketch of linking hosts: how far off it is (measured), and that folding twice changes nothing."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.inlinks import BITS, SATURATED, bit_sql, estimate, estimate_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BITMAPS = st.integers(-(2**63), 2**63 - 1)


def signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits


@pytest.mark.parametrize(
    ("bits", "hosts", "why"),
    [
        (0, 0, "nobody"),
        (1, 1, "one host"),
        (-(2**63), 1, "one host, on the sign bit"),
        (0b11, 2, "two"),
        (0b111, 3, "three"),
        ((1 << 32) - 1, 44, "half of the bits: 64 ln 2"),
        (-1, SATURATED, "all bits: at least so many"),
        (2**64 - 1, SATURATED, "the same without a sign"),
        (signed((1 << 64) - 2), 266, "all but one: 64 ln 64"),
    ],
)
def test_estimate(bits: int, hosts: int, why: str) -> None:
    assert estimate(bits) == hosts, why


@given(BITMAPS, BITMAPS)
def test_a_fold_is_idempotent_in_any_order_and_never_loses(one: int, other: int) -> None:
    both = one | other
    assert both | one == both and both | other | one == both
    assert estimate(both) >= max(estimate(one), estimate(other))
    assert 0 <= estimate(one) <= SATURATED


@pytest.mark.parametrize(
    ("hosts", "measured"), [(1, 0.0), (5, 0.034), (20, 0.077), (50, 0.089), (100, 0.101), (150, 0.122), (300, 0.092)]
)
def test_error_as_measured(hosts: int, measured: float) -> None:
    """The mean relative error over 500 draws, each source on a bit of its own choice."""
    rng = random.Random(hosts)
    errors = []
    for _ in range(500):
        bits = 0
        for _ in range(hosts):
            bits |= 1 << rng.randrange(BITS)
        errors.append(abs(estimate(bits) - hosts) / hosts)
    assert sum(errors) / len(errors) == pytest.approx(measured, abs=0.001)


def test_sql_twins_agree(spark: SparkSession) -> None:
    rng = random.Random(1)
    bitmaps = [0, 1, -1, -(2**63), 2**63 - 1, -2] + [signed(rng.getrandbits(64)) for _ in range(500)]
    bitmaps += [signed(rng.getrandbits(64) & rng.getrandbits(64) & rng.getrandbits(64)) for _ in range(500)]
    rows = [(number, bitmap) for number, bitmap in enumerate(bitmaps)]
    found = spark.createDataFrame(rows, "n INT, bits LONG").selectExpr(
        "bits", f"{estimate_sql('bits')} AS hosts", f"{bit_sql('bits')} AS bit"
    )
    for row in found.collect():
        assert row.hosts == estimate(row.bits)
        assert row.bit == signed(1 << (row.bits % BITS)), "one bit, chosen by the hash modulo 64, sign or not"
