"""Sizes of a crawl: the arithmetic by hand for one case, and what must hold for all."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.cli import main
from spindle.sizing import Wish, plan, power_of_two

BILLION = Wish(pages_per_month=1e9, delay_s=2)
BY_HAND = {  # a month of 30 days has 2,592,000 s
    "pages": 385.8,
    "requests": 463.0,  # x 1.2
    "open requests": 463.0,  # of one second each
    "hosts": 1388.9,  # x (2 + 1)
    "URLs": 10e9,
    "buckets": 1024,  # 1000 of ten million rows
    "slices": 512,  # 500 of twenty million
    "turns": 2048,
    "list": 16276.0,  # 385.8 x 86,400 / 2048
    "cores": 8,  # 385.8 x 3 ms = 1.16 cores of work, 2048 x 100 s / 86,400 = 2.37 more, half busy: 7.06
    "WARC files": 35.0,
    "URL table": 2.0,
}


def test_a_billion_pages_a_month_by_hand() -> None:
    assert {line.what: line.value for line in plan(BILLION)} == pytest.approx(BY_HAND, rel=1e-3)


@pytest.mark.parametrize(("value", "power"), [(0, 1), (0.3, 1), (1, 1), (1.01, 2), (1000, 1024), (1024, 1024)])
def test_powers_of_two(value: float, power: int) -> None:
    assert power_of_two(value) == power


@given(st.floats(1, 1e13), st.floats(0.1, 100))
def test_a_larger_crawl_is_never_planned_smaller(pages: float, delay: float) -> None:
    small, large = (plan(Wish(pages_per_month=pages * by, delay_s=delay)) for by in (1, 2))
    for one, other in zip(small, large, strict=True):
        assert other.value >= one.value or one.what == "list", one.what
    sizes = {line.what: line.value for line in small}
    assert sizes["slices"] <= sizes["buckets"]
    assert sizes["list"] * sizes["turns"] * 30 == pytest.approx(pages), "the lists of a month are its pages"


def test_the_command_shows_its_arithmetic(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--pages-per-month", "1e9"]) == 0
    out = capsys.readouterr().out
    assert "386 a second   = 1,000,000,000 a month / 2,592,000 s" in out
    assert len(out.splitlines()) == len(BY_HAND)
    assert main(["plan", "--pages-per-month", "1e9", "--set", "politeness.min_delay_s=10"]) == 0
    assert "5,093 at work at once" in capsys.readouterr().out
    assert main(["plan", "--pages-per-month", "0"]) == 2
    assert "--pages-per-month 0: must be above 0" in capsys.readouterr().err
    assert main(["plan", "--pages-per-month", "1e9", "--busy-share", "2"]) == 2


def test_every_assumption_can_be_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    for field in dataclasses.fields(Wish):
        if field.name not in ("pages_per_month", "delay_s", "busy_share"):
            assert main(["plan", "--pages-per-month", "1e6", f"--{field.name.replace('_', '-')}", "7"]) == 0
            assert "7" in capsys.readouterr().out, field.name
