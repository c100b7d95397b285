"""The prioritiser: what a URL is worth, 0..1, and the front queue (level) that follows; and how waiting raises both.

This file alone decides them, twice over: as functions, and as Spark SQL text over column names or expressions. The
twins use only sums, products, quotients, comparisons and whole numbers, in the same order, so they agree to the last
bit. It does not know how many URLs a level may list (`selector`) or when one is due (`recrawl`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spindle.config import PrioritySettings

UNKNOWN_QUALITY = 0.5  # a host nobody has seen is neither good nor bad
INLINK_DOUBLINGS = 10  # 1023 linking hosts are as many as count; whole doublings, which is what the estimate resolves


@dataclass(frozen=True, slots=True)
class PriorityFacts:
    """What the score is made of. `None` is unknown; values out of range are cut to it, NaN is unknown."""

    seed_priority: float | None = None  # 0..1, a person's own word
    inlinks: int = 0  # estimated number of linking hosts
    depth: int = 0  # link hops from a seed
    host_quality: float | None = None  # 0..1, share of useful pages
    change_rate: float = 0.0  # changes a visit, 0..1
    never_fetched: bool = True


def _weights(settings: PrioritySettings) -> tuple[float, float, float, float, float, float]:
    """In the order of the sum, scaled so that the best URL of all has 1. A URL is either new or has a change rate."""
    s = settings
    total = s.seed_weight + s.inlinks_weight + s.depth_weight + s.quality_weight + max(s.change_weight, s.new_bonus)
    scale = 1 / total if total > 0 else 0.0
    weights = (s.seed_weight, s.inlinks_weight, s.depth_weight, s.quality_weight, s.change_weight, s.new_bonus)
    seed, inlinks, depth, quality, change, new = (weight * scale for weight in weights)
    return seed, inlinks, depth, quality, change, new


def score(facts: PriorityFacts, settings: PrioritySettings) -> float:
    """0..1, higher is better; the weighted sum of the facts."""
    seed, inlinks, depth, quality, change, new = _weights(settings)
    doublings = min(INLINK_DOUBLINGS, (max(0, facts.inlinks) + 1).bit_length() - 1)
    return min(
        1.0,
        seed * _share(facts.seed_priority, 0.0)
        + inlinks * (doublings / INLINK_DOUBLINGS)
        + depth * (1 / (1 + max(0, facts.depth)))
        + quality * _share(facts.host_quality, UNKNOWN_QUALITY)
        + (new if facts.never_fetched else change * _share(facts.change_rate, 0.0)),
    )


def _share(value: float | None, unknown: float) -> float:
    if value is None or value != value:
        return unknown
    return max(0.0, min(1.0, value))


#: The columns that `score_sql` reads, under their names in `urls` and `hosts`.
SCORE_COLUMNS = ("seed_priority", "inlinks", "depth", "quality", "change_count", "fetch_count")


def score_sql(settings: PrioritySettings, columns: Mapping[str, str] | None = None) -> str:
    """Spark SQL twin of `score` over `SCORE_COLUMNS`; `columns` puts another expression in the place of a name."""
    at = {name: f"({sql})" for name, sql in (columns or {}).items()}
    seed_priority, links, hops, quality, changes, fetches = (at.get(name, name) for name in SCORE_COLUMNS)
    seed, inlinks, depth, good, change, new = (f"{weight!r}D" for weight in _weights(settings))
    doublings = f"least({INLINK_DOUBLINGS}, length(bin(greatest(0, {links}) + 1L)) - 1)"
    return (
        f"least(1D, {seed} * {_share_sql(seed_priority, 0.0)}"
        f" + {inlinks} * ({doublings} / {INLINK_DOUBLINGS}D)"
        f" + {depth} * (1D / (1L + greatest(0, {hops})))"
        f" + {good} * {_share_sql(quality, UNKNOWN_QUALITY)}"
        f" + CASE WHEN {fetches} > 0 THEN {change} * {_share_sql(f'{changes} / {fetches}', 0.0)} ELSE {new} END)"
    )


def _share_sql(value: str, unknown: float) -> str:
    return f"greatest(0D, least(1D, nanvl(coalesce({value}, {unknown!r}D), {unknown!r}D)))"


def level(score: float, levels: int) -> int:
    """The front queue 1..levels of a score: equal bands, 1 the highest."""
    return max(1, min(levels, levels - int(max(0.0, min(1.0, score)) * levels)))


def level_sql(score: str, levels: int) -> str:
    """Spark SQL twin of `level`."""
    return f"cast(greatest(1, least({levels}, {levels} - floor(greatest(0D, least(1D, {score})) * {levels}))) AS INT)"


def aged_level(level: int, waiting_s: int, age_level_s: int, levels: int) -> int:
    """The queue a URL stands in when `waiting_s` seconds overdue: one higher per age_level_s, never above 1.

    A level outside 1..levels (written under another configuration) counts as the nearest one.
    """
    raised = min(levels, max(0, waiting_s) // age_level_s)
    return max(1, min(levels, max(1, level)) - raised)


def aged_level_sql(level: str, waiting_s: str, age_level_s: int, levels: int) -> str:
    """Spark SQL twin of `aged_level`; `waiting_s` is an expression of whole seconds."""
    raised = f"least({levels}L, greatest(0L, {waiting_s}) div {age_level_s}L)"
    return f"cast(greatest(1L, least({levels}, greatest(1, {level})) - {raised}) AS INT)"


def aged_score(score: float, waiting_s: int, age_level_s: int, levels: int) -> float:
    """The order within a level: the score, plus the width of one level per age_level_s of waiting.

    It goes on growing in level 1, above 1.0 too: otherwise new URLs of a better score would overtake a waiting one
    there for ever. After levels x age_level_s a URL stands before every newcomer.
    """
    return max(0.0, score) + max(0, waiting_s) / (age_level_s * levels)


def aged_score_sql(score: str, waiting_s: str, age_level_s: int, levels: int) -> str:
    """Spark SQL twin of `aged_score`."""
    return f"(greatest(0D, {score}) + greatest(0L, {waiting_s}) / {age_level_s * levels}D)"
