"""`spindle explain URL`: which rule lets it in or keeps it out, where it stands, and why the next list has it or not.

The answer is that of generate itself: the plan of the whole table is made (and thrown away), so it costs about what a
`spindle generate --dry-run` costs.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spindle import brakes, candidates, inbox, runner, tables, urls
from spindle.runner import Turn
from spindle.scope import TRAP_REASONS, Scope, refusal
from spindle.segments import SegmentId, live_overlaps
from spindle.session import open_session
from spindle.sheets import OF_HOST, Sheets, limits_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spindle.jobs.generate import Plan

#: Reason -> what a person is told; `not_listed.<reason>` in `metrics` counts all URLs of it.
REASONS: Mapping[str, str] = {
    "host_budget": "better URLs of its host use up generate.host_budget",
    "host_blocked": "its host is blocked (`spindle hosts`), or its address is (network.deny_addresses)",
    "host_paused": "its host is paused (`spindle hosts`)",
    "host_dead": "its host never answered in the last turns: one URL of it is tried now and then",
    "host_backing_off": "its host is left alone for a while (failures, 429 or 503, or robots.txt unreachable)",
    "day_budget": "better URLs use up what is left of its host's day (generate.host_day_budget, UTC)",
    "window_budget": "better URLs use up what its host's delay lets through in fetch.window_s",
    "domain_budget": "better URLs of its registered domain use up generate.domain_budget",
    "cut": "the list is full of better ones (generate.list_size, level_shares, new_share)",
    "out_of_scope": "the scope of today does not want it",
    "trap_copies": "new URLs of its form have shown one content again and again ([brake])",
    **{f"trap_{reason}": "it has the shape of a trap" for reason in TRAP_REASONS},
}


def main(argv: Sequence[str] | None = None) -> int:
    parser = runner.arguments(
        "explain", "Which rule decides about a URL, and why it is or is not listed.", segment=False
    )
    parser.add_argument("url", metavar="URL")
    return runner.main("explain", parser, _body, argv)


def _body(options: argparse.Namespace) -> int:
    from spindle.jobs import generate

    settings, now = runner.settings_of(options), runner.now_of(options)
    url = runner.url_of(options.url, urls.Normalizer(settings.url).normalize)
    generate.check_policy(tables.read_marker(options.warehouse), settings)
    spark = open_session("spindle explain", settings.spark, quick=True)
    warehouse = tables.open_warehouse(spark, options.warehouse)
    turn = Turn(warehouse, SegmentId("explain"), settings, now, 0, None)
    listed = explain(turn, url, print)
    return 0 if listed else 1


def explain(turn: Turn, url: str, tell: Callable[[str], object]) -> bool:
    """Tells all that is known; whether the next list would have the URL."""
    from spindle.jobs import generate

    warehouse, host = turn.warehouse, urls.host_of(url)
    domain, key = urls.registered_domain(host), urls.url_key(url)
    bucket = urls.bucket_of(domain, warehouse.buckets)
    tell(f"{url}\n  key {key}, bucket {bucket}, host {host}, registered domain {domain}")
    row = warehouse.read("urls").filter(f"bucket = {bucket} AND url_key = {key}").head()
    scope = Scope(turn.settings.scope, *generate.seeds_of(turn))
    why = refusal(url, host, domain, row.depth if row else 0, scope, turn.settings.trap)
    tell(f"rules: refused, {why}" if why else f"rules: wanted, by {scope.verdict(url, host, domain).rule}")
    for wish in [wish for wish in inbox.read(warehouse.store) if wish.host == host]:
        tell(f"operators: {wish.what} {wish.value or ''}".rstrip() + f", by {wish.who} at {wish.at}, wish {wish.id}")
    for line in sheet_lines(scope.sheets, url, host, domain):
        tell(line)
    if row is None:
        tell("table: not there; no seed and no followed link has named it, or a rule refused it")
        return False
    tell(f"table: {row.status}, level {row.priority}, score {row.score:.3f}, depth {row.depth}, due {row.next_fetch}")
    for entry in live_overlaps(warehouse.ledger.entries(), bucket, bucket + 1):
        tell(f"lease: segment {entry.segment} ({entry.state}) owns its range; what follows holds once it is closed")
    if row.next_fetch is not None and row.next_fetch.timestamp() > turn.now.timestamp():
        tell("list: no, it is not due yet")
        return False
    if why:
        tell(f"list: no, {why}")
        return False
    with runner.kept() as keep:
        reason, place = standing(generate.planned(turn, keep), key, bucket)
    if reason == "trap_copies":
        place = f"; {'; '.join(brake_lines(turn, url, host))}"
    tell(f"list: no, {reason}: {REASONS.get(reason, reason)}{place}" if reason else f"list: yes{place}")
    return not reason


def sheet_lines(sheets: Sheets, url: str, host: str, domain: str) -> list[str]:
    """Which sheets set limits for the URL, for its host and for its domain, and which limits these are."""
    of_host = [name for name in OF_HOST if name != "domain_budget"]
    of_url = [name for name in limits_of(sheets.of_url(url, host)) if name not in OF_HOST]
    lines = []
    for what, sheet, names in (
        ("URL", sheets.of_url(url, host), of_url),
        ("host", sheets.of_host(host), of_host),
        ("domain", sheets.of_host(domain), ["domain_budget"]),
    ):
        if told := ", ".join(f"{name} {value:g}" for name, value in limits_of(sheet).items() if name in names):
            lines.append(f"sheets: {told} for the {what}, by {sheet.name}")
    return lines


def brake_lines(turn: Turn, url: str, host: str) -> list[str]:
    """What was learned of the forms that hold the URL back."""
    from spindle.jobs import generate

    forms = generate.braked_forms(turn).get(host, ())
    return [brakes.reason(form) for form in forms if re.search(brakes.pattern_of(form.form), url)]


def standing(plan: Plan, key: int, bucket: int) -> tuple[str, str]:
    """The reason for which a due URL is held back, or "" where it is listed; and where it stands."""
    if refused := _row(plan.waiting.filter("refused IS NOT NULL"), key, bucket):
        return str(refused.refused), ""
    row = _row(plan.judged, key, bucket)
    if row is None:
        is_below = bool(plan.floors and _row(candidates.below(plan.waiting, plan.floors), key, bucket))
        return ("cut" if is_below else "host_budget"), ""
    place = f" (level {row.level}, aged score {row.score:.3f})"
    if row.reason:
        return str(row.reason), place
    if _row(plan.chosen, key, bucket) is None:
        return "cut", place
    return "", f", in task {plan.tasks[row.host]}{place}"


def _row(frame: DataFrame, key: int, bucket: int) -> Any:
    return frame.filter(f"bucket = {bucket} AND url_key = {key}").head()
