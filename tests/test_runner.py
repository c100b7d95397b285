"""What all jobs share: layers of settings, the present, sentences instead of stack traces, pins."""

from __future__ import annotations

import argparse
import datetime
import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spindle import config, runner
from spindle.defaults import default_layer
from spindle.errors import (
    ConfigError,
    InputError,
    LeaseHeld,
    NothingDue,
    SegmentStateError,
    SpindleError,
    WarehouseError,
)
from spindle.segments import SegmentId

UTC = datetime.UTC


def options(*words: str) -> argparse.Namespace:
    return runner.arguments("x", "A job.").parse_args(["--warehouse", "w", "--segment", "a", *words])


# --- settings


def test_each_layer_lies_over_the_one_before(tmp_path: Path) -> None:
    first, second = tmp_path / "a.toml", tmp_path / "b.toml"
    first.write_text("[generate]\nlist_size = 2\nhost_budget = 2\ndomain_budget = 2\n")
    second.write_text("[generate]\nhost_budget = 3\ndomain_budget = 3\n")
    over = [("over", {"generate": {"list_size": 1, "host_budget": 1, "domain_budget": 1, "lease_s": 1}})]
    told = options("--set", "generate.domain_budget=4", "--config", str(first), "--config", str(second))
    found = runner.settings_of(told, over).generate
    assert (found.lease_s, found.list_size, found.host_budget, found.domain_budget) == (1, 2, 3, 4)
    assert runner.settings_of(options()) == config.build([default_layer()]), "nothing told: the shipped defaults"
    again = options("--set", "agent.contact=a@b.test", "--set", "agent.contact=c@d.test")
    assert runner.settings_of(again).agent.contact == "c@d.test", "the last word counts"


@pytest.mark.parametrize(
    ("words", "content", "told"),
    [
        (["--config", "{}/none.toml"], None, "none.toml: No such file or directory"),
        (["--config", "{}"], None, "Is a directory"),
        (["--config", "{}/x.toml"], b"[generate\n", "x.toml: not valid TOML"),
        (["--config", "{}/x.toml"], b"\xff\xfe[", "x.toml: not UTF-8 text"),
        (["--config", "{}/x.toml"], b"[generate]\nlist_sise = 1\n", "did you mean generate.list_size?"),
        (["--set", "generate.list_size"], None, "expected section.key=value"),
        (["--set", "generate.list_size=many"], None, "must be a whole number"),
    ],
)
def test_bad_settings_say_where(words: list[str], content: bytes | None, told: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "x.toml").write_bytes(content)
    with pytest.raises(ConfigError) as error:
        runner.settings_of(options(*(word.format(tmp_path) for word in words)))
    assert told in str(error.value)


# --- the present


@pytest.mark.parametrize(
    ("text", "wanted", "why"),
    [
        ("2026-11-30T12:00:00Z", datetime.datetime(2026, 11, 30, 12, tzinfo=UTC), "UTC"),
        ("2026-11-30T12:00:00+02:00", datetime.datetime(2026, 11, 30, 10, tzinfo=UTC), "an offset, as Airflow gives"),
        ("2026-11-30T12:00:00.25", datetime.datetime(2026, 11, 30, 12, 0, 0, 250000, tzinfo=UTC), "none means UTC"),
        ("2026-11-30", datetime.datetime(2026, 11, 30, tzinfo=UTC), "a date is its beginning"),
    ],
)
def test_now_is_utc(text: str, wanted: datetime.datetime, why: str) -> None:
    found = runner.now_of(options("--now", text))
    assert (found, found.tzinfo) == (wanted, UTC), why


def test_now_is_the_clock_or_an_error() -> None:
    before = datetime.datetime.now(UTC)
    assert before <= runner.now_of(options()) <= datetime.datetime.now(UTC)
    for text in ("yesterday", "", "2026-13-01", "12:00"):
        with pytest.raises(InputError, match="expected ISO 8601"):
            runner.now_of(options("--now", text))


# --- sentences and exit codes


def raising(error: BaseException) -> Callable[[argparse.Namespace], int]:
    def body(_: argparse.Namespace) -> int:
        raise error

    return body


def full_disk() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device", "/w/x")


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (SpindleError("a"), 2, "a"),
        (ConfigError("b"), 2, "b"),
        (LeaseHeld("c"), 3, "c"),
        (SegmentStateError("d"), 3, "d"),
        (WarehouseError("e"), 4, "e"),
        (NothingDue("f"), 5, "f"),
        (KeyboardInterrupt(), 130, "interrupted; nothing is lost"),
        (full_disk(), 4, "the disk is full"),
        (RuntimeError("java.io.IOException: No space left on device\n\tat x.y(Z.java:1)"), 4, "the disk is full"),
        (PermissionError(errno.EACCES, "Permission denied", "/w/x"), 4, "no permission: "),
        (RuntimeError("a\njava.io.FileNotFoundException: /w/urls (Permission denied)\nb"), 4, "/w/urls (Permission"),
    ],
)
def test_what_a_user_can_mend_is_a_sentence(
    error: BaseException, code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = runner.arguments("x", "A job.")
    assert runner.main("x", parser, raising(error), ["--warehouse", "w", "--segment", "a"]) == code
    shown = capsys.readouterr()
    assert shown.err.startswith("spindle x: ") and told in shown.err
    assert shown.err.count("\n") == 1 and not shown.out


def test_a_broken_program_is_an_exception_and_success_its_own_code() -> None:
    parser, words = runner.arguments("x", "A job."), ["--warehouse", "w", "--segment", "a"]
    with pytest.raises(ZeroDivisionError):
        runner.main("x", parser, raising(ZeroDivisionError("x")), words)
    assert runner.main("x", parser, lambda told: 7 if told.segment == "a" else 0, words) == 7
    assert runner.explain(ZeroDivisionError("x")) is None


@pytest.mark.parametrize("words", [[], ["--warehouse", "w"], ["--segment", "a"], ["--warehouse", "w", "--sgment", "a"]])
def test_missing_and_unknown_arguments_are_a_usage_error(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        runner.main("x", runner.arguments("x", "A job."), lambda _: 0, words)
    assert stop.value.code == 2
    assert "usage: spindle x" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("counts", "line"),
    [
        ({"listed": 12, "due": 30.0, "wall_s": 1.5}, "generate a: listed 12, due 30, wall_s 1.5"),
        ({"listed": 0, "not_listed.cut": 0}, "generate a: listed 0"),
        ({"listed": 1234567}, "generate a: listed 1234567"),
        ({}, "generate a: nothing to do"),
        ({"pages": 0}, "generate a: nothing to do"),
    ],
)
def test_summary_line(counts: dict[str, float], line: str) -> None:
    assert runner.summary_line("generate", "a", counts) == line


# --- pins


def test_pins_bring_the_same_turn_back(settings: config.Settings) -> None:
    now = datetime.datetime(2026, 11, 30, 23, 59, 59, 123456, tzinfo=UTC)
    own = config.build([default_layer(), ("test", {"generate": {"list_size": 7}, "trap": {"max_depth": 3}})])
    pins: dict[str, Any] = json.loads(json.dumps(runner.pins(now, own)))
    warehouse: Any = None
    turn = runner.pinned_turn(warehouse, SegmentId("a", 1, 2), pins, None)
    assert (turn.now, turn.settings, turn.seed, turn.entry) == (now, own, pins["seed"], None)
    assert pins["digest"] == own.digest() != settings.digest()
    assert turn.month == "2026-11" and turn.where == "segment = 'a.1of2'"
    assert turn.now_sql == "TIMESTAMP '2026-11-30 23:59:59.123456Z'"
    assert len({runner.pins(now, own)["seed"] for _ in range(20)}) > 1, "chance differs from segment to segment"


def test_old_pins_take_new_settings_from_the_defaults(settings: config.Settings) -> None:
    """A segment opened before an upgrade lacks the settings that came with it."""
    pins = json.loads(json.dumps(runner.pins(datetime.datetime(2026, 11, 30, tzinfo=UTC), settings)))
    del pins["settings"]["trap"]["max_depth"]
    warehouse: Any = None
    assert runner.pinned_turn(warehouse, SegmentId("a"), pins, None).settings == settings
