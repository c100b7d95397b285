"""Which URLs this crawl is about (`Scope`), and which have the shape of an endless site (`trap_reason`).

Alone decides both, and names the rule that did. Asked at inject, at link time and again at generate, since rules
change. Takes normalised URLs; knows nothing of robots.txt, budgets, or what a host has answered so far.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from spindle.config import UNLIMITED, ScopeSettings, TrapSettings
from spindle.sheets import Sheets
from spindle.urlrules import Rules

#: Why a URL looks like a trap: the closed vocabulary under which `metrics` counts.
TRAP_REASONS = ("depth", "path_segments", "repeated_segments", "query_params", "digits")

_DIGITS = re.compile(r"[0-9]+")


class Verdict(NamedTuple):
    """Whether a URL is in scope, and the rule that said so, in the words of the configuration."""

    allowed: bool
    rule: str


_EVERYWHERE = Verdict(True, "follow everywhere")


class Scope:
    """The scope of a crawl. A URL must pass `schemes`, `deny`, `allow` (if there are any) and `follow`, in that order.

    Raises:
        ConfigError: a rule that cannot be understood; names it.
    """

    def __init__(
        self, settings: ScopeSettings, seed_hosts: Iterable[str] = (), seed_domains: Iterable[str] = ()
    ) -> None:
        self._schemes = tuple(f"{scheme.lower()}:" for scheme in settings.schemes)
        self._deny = Rules("scope.deny", settings.deny)
        self._allow = Rules("scope.allow", settings.allow) if settings.allow else None
        self._follow = settings.follow
        self._all = None if settings.deny or settings.allow or self._follow != "everywhere" else _EVERYWHERE
        self.sheets = Sheets(settings.sheets)
        self._seeds = frozenset({"host": seed_hosts, "domain": seed_domains}.get(settings.follow, ()))

    def takes_all(self) -> bool:
        """Whether no http(s) URL is refused, so that whoever has many need not ask for each."""
        return self._all is not None and {"http:", "https:"} <= set(self._schemes)

    def verdict(self, url: str, host: str, domain: str) -> Verdict:
        """Of a normalised URL, its host and its registered domain."""
        if not url.startswith(self._schemes):
            return Verdict(False, f"schemes: {url.partition(':')[0]} is not among them")
        if self._all is not None:
            return self._all
        if rule := self._deny.first_match(url, host):
            return Verdict(False, f"deny {rule}")
        allowing = "" if self._allow is None else self._allow.first_match(url, host)
        if self._allow is not None and not allowing:
            return Verdict(False, "allow: no rule matches")
        if self._follow != "everywhere" and (host if self._follow == "host" else domain) not in self._seeds:
            return Verdict(False, f"follow {self._follow}: not a seed {self._follow}")
        return Verdict(True, f"allow {allowing}" if allowing else f"follow {self._follow}")


def trap_reason(url: str, depth: int, settings: TrapSettings) -> str | None:
    """Why a normalised URL at this many links from a seed looks like a trap: one of TRAP_REASONS, or None."""
    return trap_reasoner(settings)(url, depth)


@lru_cache
def trap_reasoner(settings: TrapSettings) -> Callable[[str, int], str | None]:
    """`trap_reason` under one group of settings, looked up once for whoever has many URLs."""
    most_segments, most_repeated = settings.max_path_segments, settings.max_repeated_segments
    most_params, most_digits, most_depth = settings.max_query_params, settings.max_url_digits_run, settings.max_depth
    digits = _more_digits_than(most_digits).search

    def reason_of(url: str, depth: int) -> str | None:
        start = url.index("/", 8)
        slashes = url.count("/", start)
        # Too short, too flat and too near for any suspicion, as nearly all links of a page are: certain and cheap.
        # UNLIMITED lies below every count and says nothing here.
        if (
            depth <= most_depth
            and slashes <= most_segments
            and url.count("&", start) < most_params
            and (slashes <= most_repeated or _all_differ(url[start + 1 :]))
            and (len(url) - start <= most_digits or not digits(url, start))
        ):
            return None
        return next((reason for reason, _ in _suspicions(url, depth, settings)), None)

    return reason_of


def _more_digits_than(count: int) -> re.Pattern[str]:
    return re.compile(f"[0-9]{{{max(0, count) + 1}}}")


def _all_differ(tail: str) -> bool:
    names = (tail[: tail.index("?")] if "?" in tail else tail).split("/")
    return len(set(names)) == len(names)


def explain_trap(url: str, depth: int, settings: TrapSettings) -> str | None:
    """As `trap_reason`, in a sentence for a person."""
    return next((f"{reason}: {text}" for reason, text in _suspicions(url, depth, settings)), None)


def refusal(url: str, host: str, domain: str, depth: int, scope: Scope, traps: TrapSettings) -> str | None:
    """Why a URL is not wanted, as a reason and what a person may want to know of it, or None when it is wanted. The
    limits of traps are those that the scope's sheets set for the URL."""
    if trap := explain_trap(url, depth, scope.sheets.traps(url, host, traps)):
        return f"trap_{trap}"
    verdict = scope.verdict(url, host, domain)
    return None if verdict.allowed else f"out_of_scope: {verdict.rule}"


def _suspicions(url: str, depth: int, settings: TrapSettings) -> Iterator[tuple[str, str]]:
    if _exceeds(depth, settings.max_depth):
        yield "depth", f"{depth} links from a seed, more than trap.max_depth = {settings.max_depth}"
    tail = url[url.index("/", 8) :]
    path, _, query = tail.partition("?")
    segments = path.split("/")[1:]
    if _exceeds(len(segments), settings.max_path_segments):
        yield "path_segments", f"{len(segments)}, more than trap.max_path_segments = {settings.max_path_segments}"
    if text := _repetition(segments, settings.max_repeated_segments):
        yield "repeated_segments", f"{text} (trap.max_repeated_segments = {settings.max_repeated_segments})"
    parameters = query.count("&") + 1 if query else 0
    if _exceeds(parameters, settings.max_query_params):
        yield "query_params", f"{parameters}, more than trap.max_query_params = {settings.max_query_params}"
    if _exceeds(len(tail), settings.max_url_digits_run):  # no shorter text has so many digits
        digits = max(map(len, _DIGITS.findall(tail)), default=0)
        if digits > settings.max_url_digits_run:
            yield "digits", f"{digits} in a row, more than trap.max_url_digits_run = {settings.max_url_digits_run}"


def _exceeds(count: int, limit: int) -> bool:
    return limit != UNLIMITED and count > limit


def _repetition(segments: Sequence[str], limit: int) -> str:
    """The repetition that makes a loop, or "". Numbers do not count: dates and shards repeat them (/11/11/11/)."""
    if limit == UNLIMITED or len(set(segments)) == len(segments):
        return ""
    for size in range(1, len(segments) // (limit + 1) + 1):
        if block := _block_in_a_row(segments, size, limit + 1):
            return f"/{'/'.join(block)} stands {limit + 1} times in a row"
    names = Counter(name for name in segments if name and not name.isdecimal())
    return next((f"/{name} occurs {count} times" for name, count in names.most_common(1) if count > 2 * limit), "")


def _block_in_a_row(segments: Sequence[str], size: int, times: int) -> Sequence[str]:
    """A block of so many segments that stands so many times in a row. It does so where a segment equals the one
    `size` places on for `size * (times - 1)` places."""
    equal = 0
    for place in range(len(segments) - size):
        equal = equal + 1 if segments[place] == segments[place + size] else 0
        if equal >= size * (times - 1):
            block = segments[place - equal + 1 : place - equal + 1 + size]
            if not all(name.isdecimal() for name in block):
                return block
    return ()
