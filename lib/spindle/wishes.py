"""What operators may ask for, and what stands: wishes in their order in, the present word out. Pure.

This file alone decides what each wish means and that the later one counts. Where wishes lie is `inbox`' business, who
obeys them that of a running fetch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum


class What(StrEnum):
    BLOCK = "block"  # fetch nothing more of this host
    UNBLOCK = "unblock"
    PAUSE = "pause"  # of a host; without one, of everything
    RESUME = "resume"
    LIMIT = "limit"  # seconds between two requests to this host, in place of the minimum and the k-term
    UNLIMIT = "unlimit"
    STOP = "stop"  # the segment in `value` fetches nothing more


@dataclass(frozen=True, slots=True)
class Wish:
    """One line of the audit log; fields named as columns of the table `inbox`. `id`: its place in the order; `at`: when
    by the clock of who made it, ISO 8601 with its zone."""

    id: str
    at: str
    who: str
    what: What
    host: str | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True)
class HostWord:
    """What stands for one host. None: nobody has said, so what the table `hosts` has counts."""

    block: bool | None = None
    pause: bool | None = None
    limited: bool | None = None
    limit_delay_s: float | None = None  # where limited


@dataclass(frozen=True, slots=True)
class Word:
    """What stands. `stop`: segments that are to end."""

    pause: bool = False
    stop: frozenset[str] = frozenset()
    hosts: Mapping[str, HostWord] = field(default_factory=dict)

    def after(self, wish: Wish) -> Word:
        """What stands once this wish was made, too."""
        if wish.what is What.STOP:
            return replace(self, stop=self.stop | {wish.value or ""})
        if wish.host is None:
            return replace(self, pause=wish.what is What.PAUSE)
        return replace(self, hosts={**self.hosts, wish.host: _of_host(self.hosts.get(wish.host, NO_WORD), wish)})


NO_WORD = HostWord()


def standing(wishes: Iterable[Wish], before: Word | None = None) -> Word:
    """What stands after these wishes, made in this order after `before`."""
    word = before or Word()
    for wish in wishes:
        word = word.after(wish)
    return word


def of_fields(name: str, told: Mapping[str, object]) -> Wish:
    """A wish from its stored fields.

    Raises:
        ValueError: it is none; says why.
    """
    text = {key: told.get(key) for key in ("at", "who", "what", "host", "value")}
    for key, value in text.items():
        if not isinstance(value, str) and not (value is None and key in ("host", "value")):
            raise ValueError(f"{key} is {value!r}")
    wish = Wish(
        name, str(text["at"]), str(text["who"]), What(str(text["what"])), _text(told["host"]), _text(told["value"])
    )
    check(wish)
    return wish


def check(wish: Wish) -> None:
    """Raises ValueError where a wish lacks what it needs."""
    if datetime.fromisoformat(wish.at).tzinfo is None:
        raise ValueError(f"at is {wish.at}, without its zone")
    if wish.what in (What.BLOCK, What.UNBLOCK, What.LIMIT, What.UNLIMIT) and not wish.host:
        raise ValueError(f"{wish.what} names no host")
    if wish.what is What.STOP and not wish.value:
        raise ValueError("stop names no segment")
    if wish.what is What.LIMIT:
        seconds_of(wish.value or "")


def seconds_of(text: str) -> float:
    """A limit's delay in seconds, 0 to a day; ValueError otherwise."""
    seconds = float(text)
    if not (math.isfinite(seconds) and 0 <= seconds <= 86400):
        raise ValueError(f"{text} is no delay of 0 to 86400 seconds")
    return seconds


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _of_host(word: HostWord, wish: Wish) -> HostWord:
    match wish.what:
        case What.BLOCK | What.UNBLOCK:
            return replace(word, block=wish.what is What.BLOCK)
        case What.PAUSE | What.RESUME:
            return replace(word, pause=wish.what is What.PAUSE)
        case What.LIMIT:
            return replace(word, limited=True, limit_delay_s=seconds_of(wish.value or ""))
        case _:
            return replace(word, limited=False, limit_delay_s=None)
