"""Whose fault a failure is: held back until later attempts have shown that the network works."""

from __future__ import annotations

from typing import Any

from spindle.fetcher.blame import Blame


def row(name: str) -> dict[str, Any]:
    return {"url": name}


def names(rows: list[dict[str, Any]]) -> list[str]:
    return [one["url"] for one in rows]


def test_a_success_is_written_at_once_and_a_failure_when_the_window_has_passed_it() -> None:
    blame = Blame(window=3, share=0.9)
    assert names(blame.note("a", False, row("a1"))) == ["a1"]
    assert names(blame.note("b", True, row("b1"))) == []
    assert names(blame.note("c", False, row("c1"))) == ["c1"]
    assert names(blame.note("d", False, row("d1"))) == ["d1"]
    assert names(blame.note("e", False, row("e1"))) == ["e1", "b1"]
    assert blame.close() == []
    assert not blame.ours


def test_what_follows_from_a_failed_attempt_shares_its_fate() -> None:
    blame = Blame(window=2, share=0.9)
    blame.note("a", True, row("robots of a"))
    assert blame.follow("a", row("a1")) == []
    assert names(blame.follow("b", row("b1"))) == ["b1"], "b has not failed"
    blame.note("c", False, row("c1"))
    assert names(blame.note("d", False, row("d1"))) == ["d1", "robots of a", "a1"]
    assert names(blame.follow("a", row("a2"))) == ["a2"]


def test_the_fault_is_ours_when_nearly_all_fail_over_many_hosts() -> None:
    blame = Blame(window=20, share=0.9)
    blame.note("good", False, row("good"))
    for n in range(18):
        blame.note(f"h{n}", True, row(f"h{n}"))
    assert not blame.ours, "the window is not full"
    blame.note("h18", True, row("h18"))
    assert blame.ours
    assert len(blame.close()) == 19


def test_few_hosts_that_fail_are_their_own_fault() -> None:
    blame = Blame(window=20, share=0.9)
    for n in range(40):
        blame.note(f"h{n % 9}", True, row(str(n)))
    assert not blame.ours
    assert len(blame.close()) == 20
    assert not blame.ours


def test_a_short_task_is_judged_at_its_end() -> None:
    blame = Blame(window=50, share=0.9)
    for n in range(10):
        blame.note(f"h{n}", True, row(str(n)))
    assert not blame.ours
    assert len(blame.close()) == 10
    assert blame.ours


def test_a_mixed_window_is_nobodys_fault() -> None:
    blame = Blame(window=20, share=0.9)
    for n in range(100):
        blame.note(f"h{n}", n % 4 != 0, row(str(n)))
    assert not blame.ours
