"""Sheets: the limits of one part of the web, laid over those of all (Heritrix's sheet overlays, `[[scope.sheets]]`).

Alone decides which sheets apply and which limit is in force. A limit of a URL (traps, intervals) follows from the
sheets that match the URL; one of a whole host (delay, budgets) from those that match its front page, and a domain's
budget from those that match the domain's. Of several sheets that set one limit the last in the file wins, as with
layers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

from spindle.config import RecrawlSettings, SheetSettings, TrapSettings
from spindle.errors import ConfigError
from spindle.urlrules import Rules

#: Limits of a whole host (the last one: of a registered domain), which no rule about paths can set.
OF_HOST = ("delay_s", "host_budget", "host_day_budget", "domain_budget")
_MOST_HOSTS = 100_000  # remembered; a worker of a broad crawl meets millions
NOTHING = SheetSettings(match=())

_Section = TypeVar("_Section", TrapSettings, RecrawlSettings)


class Sheets:
    """The sheets of a crawl, in the order of the file.

    Raises:
        ConfigError: a rule that cannot be understood, a sheet that matches nothing or limits nothing, or one that
            limits hosts and names a path.
    """

    def __init__(self, sheets: Sequence[SheetSettings]) -> None:
        self._sheets = tuple(sheets)
        self._rules = [_rules(number, sheet) for number, sheet in enumerate(self._sheets, 1)]
        self._merged: dict[tuple[int, ...], SheetSettings] = {(): NOTHING}
        self._of_host: dict[str, SheetSettings] = {}

    def __bool__(self) -> bool:
        return bool(self._sheets)

    def limits_hosts(self) -> bool:
        """Whether any sheet sets a limit of whole hosts or domains."""
        return any(getattr(sheet, name) is not None for sheet in self._sheets for name in OF_HOST)

    def most(self, limit: str, usual: int, unlimited: int) -> int:
        """The largest value that an integer limit has anywhere."""
        values = [usual, *(v for sheet in self._sheets if (v := getattr(sheet, limit)) is not None)]
        return unlimited if unlimited in values else max(values)

    def of_url(self, url: str, host: str) -> SheetSettings:
        """The limits that sheets set for a normalised URL, and in `name` which sheets they are."""
        if not self._sheets:
            return NOTHING
        return self._laid_over(tuple(n for n, rules in enumerate(self._rules) if rules.first_match(url, host)))

    def of_host(self, host: str) -> SheetSettings:
        """The limits that sheets set for a whole host: those of its front page, by http or https."""
        if not self._sheets:
            return NOTHING
        if (known := self._of_host.get(host)) is None:
            pages = f"https://{host}/", f"http://{host}/"
            if len(self._of_host) >= _MOST_HOSTS:
                self._of_host.clear()
            matching = (n for n, rules in enumerate(self._rules) if any(rules.first_match(p, host) for p in pages))
            known = self._of_host[host] = self._laid_over(tuple(matching))
        return known

    def traps(self, url: str, host: str, usual: TrapSettings) -> TrapSettings:
        """The shapes that count as traps for this URL."""
        return _over(usual, self.of_url(url, host)) if self._sheets else usual

    def recrawl(self, url: str, host: str, usual: RecrawlSettings) -> RecrawlSettings:
        """The intervals of this URL. A bound that a sheet sets moves the other one where they would cross."""
        if not self._sheets:
            return usual
        sheet = self.of_url(url, host)
        laid = _over(usual, sheet)
        if laid.min_interval_s > laid.max_interval_s:
            bound = laid.max_interval_s if sheet.max_interval_s is not None else laid.min_interval_s
            laid = dataclasses.replace(laid, min_interval_s=bound, max_interval_s=bound)
        return laid

    def _laid_over(self, numbers: tuple[int, ...]) -> SheetSettings:
        if numbers not in self._merged:
            chosen = [self._sheets[n] for n in numbers]
            limits = {k: v for sheet in chosen for k, v in dataclasses.asdict(sheet).items() if v is not None}
            names = ", ".join(sheet.name or f"sheet {n + 1}" for n, sheet in zip(numbers, chosen, strict=True))
            self._merged[numbers] = SheetSettings(**{**limits, "match": (), "name": names})
        return self._merged[numbers]


def limits_of(sheet: SheetSettings) -> dict[str, Any]:
    """The limits that a sheet sets, by name."""
    values = dataclasses.asdict(sheet)
    return {name: value for name, value in values.items() if value is not None and name not in ("match", "name")}


def _rules(number: int, sheet: SheetSettings) -> Rules:
    where = f"scope.sheets[{number}]"
    if not sheet.match:
        raise ConfigError(f"{where}: match is empty, so the sheet applies nowhere")
    if not (set_here := limits_of(sheet)):
        raise ConfigError(f"{where}: sets no limit")
    if (sheet.min_interval_s or 0) > (sheet.max_interval_s or float("inf")):
        raise ConfigError(f"{where}: min_interval_s is larger than max_interval_s")
    of_path = [rule for rule in sheet.match if rule.startswith("surt:") and rule.partition(")")[2].strip("/")]
    if of_path and (whole := [name for name in OF_HOST if name in set_here]):
        raise ConfigError(f"{where}: {whole[0]} is a limit of whole hosts, and {of_path[0]!r} names a path")
    return Rules(f"{where}: match", sheet.match)


def _over(usual: _Section, sheet: SheetSettings) -> _Section:
    set_here = limits_of(sheet)
    laid = {f.name: set_here[f.name] for f in dataclasses.fields(usual) if f.name in set_here}
    return dataclasses.replace(usual, **laid) if laid else usual
