"""The configuration: a frozen value, one dataclass a section, units in the names.

Types and ranges are decided here, defaults and reasons in `conf/spindle.toml` (the only place with defaults). Reading
files is left to the caller: this module turns text into `Settings`, and says what is wrong with the text.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import math
import re
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from spindle.errors import ConfigError

UNLIMITED = -1  # spelled so in every limit that can be switched off; 0 means "none at all"
#: No wait that ends in a date is longer: a hundred years after today is still a valid timestamp everywhere.
CENTURY_S = 3_155_760_000


class Range(NamedTuple):
    """The number must lie in low..high, or be UNLIMITED where that is allowed."""

    low: float = 0
    high: float = math.inf
    unlimited: bool = False


class OneOf:
    """The text must be one of these."""

    def __init__(self, *choices: str) -> None:
        self.choices = choices


@dataclass(frozen=True, slots=True)
class AgentSettings:
    token: str
    contact: str

    @property
    def user_agent(self) -> str:
        """The User-Agent header; contains the token, as RFC 9309 2.2.1 asks."""
        return f"Mozilla/5.0 (compatible; {self.token}/0.1; +{self.contact})"


@dataclass(frozen=True, slots=True)
class WarehouseSettings:
    buckets: Annotated[int, Range(1, 65536)]


@dataclass(frozen=True, slots=True)
class UrlSettings:
    max_length: Annotated[int, Range(16, 65536)]
    sort_query: bool
    sort_query_except: tuple[str, ...]
    tracking_params: tuple[str, ...]
    session_params: tuple[str, ...]
    keep_params: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SheetSettings:
    """Limits of one part of the web; None leaves a limit as it is elsewhere. `spindle.sheets` lays them over."""

    match: tuple[str, ...]
    name: str | None = None
    delay_s: Annotated[float, Range(0)] | None = None
    host_budget: Annotated[int, Range(0, unlimited=True)] | None = None
    host_day_budget: Annotated[int, Range(0, unlimited=True)] | None = None
    domain_budget: Annotated[int, Range(0, unlimited=True)] | None = None
    max_depth: Annotated[int, Range(0, unlimited=True)] | None = None
    max_path_segments: Annotated[int, Range(1, unlimited=True)] | None = None
    max_repeated_segments: Annotated[int, Range(1, unlimited=True)] | None = None
    max_query_params: Annotated[int, Range(0, unlimited=True)] | None = None
    max_url_digits_run: Annotated[int, Range(1, unlimited=True)] | None = None
    initial_interval_s: Annotated[int, Range(1, CENTURY_S)] | None = None
    min_interval_s: Annotated[int, Range(1, CENTURY_S)] | None = None
    max_interval_s: Annotated[int, Range(1, CENTURY_S)] | None = None


@dataclass(frozen=True, slots=True)
class ScopeSettings:
    follow: Annotated[str, OneOf("everywhere", "domain", "host")]
    allow: tuple[str, ...]
    deny: tuple[str, ...]
    schemes: tuple[str, ...]
    sheets: tuple[SheetSettings, ...]


@dataclass(frozen=True, slots=True)
class TrapSettings:
    max_depth: Annotated[int, Range(0, unlimited=True)]
    max_path_segments: Annotated[int, Range(1, unlimited=True)]
    max_repeated_segments: Annotated[int, Range(1, unlimited=True)]
    max_query_params: Annotated[int, Range(0, unlimited=True)]
    max_url_digits_run: Annotated[int, Range(1, unlimited=True)]


@dataclass(frozen=True, slots=True)
class BrakeSettings:
    pages: Annotated[int, Range(0)]
    share: Annotated[float, Range(0, 1)]
    bits: Annotated[int, Range(0, 64)]
    keep_s: Annotated[int, Range(1, CENTURY_S)]


@dataclass(frozen=True, slots=True)
class GenerateSettings:
    list_size: Annotated[int, Range(0)]
    levels: Annotated[int, Range(1, 100)]
    level_shares: tuple[int, ...]
    new_share: Annotated[float, Range(0, 1)]
    age_level_s: Annotated[int, Range(1, CENTURY_S)]
    host_budget: Annotated[int, Range(0, unlimited=True)]
    host_day_budget: Annotated[int, Range(0, unlimited=True)]
    domain_budget: Annotated[int, Range(0, unlimited=True)]
    domain_new_hosts: Annotated[int, Range(0, unlimited=True)]
    address_budget: Annotated[int, Range(0, unlimited=True)]
    fetch_tasks: Annotated[int, Range(0, 100_000)]
    resolve_hosts: Annotated[int, Range(0)]
    resolve_s: Annotated[float, Range(0)]
    lease_s: Annotated[int, Range(1, CENTURY_S)]


@dataclass(frozen=True, slots=True)
class PrioritySettings:
    seed_weight: Annotated[float, Range(0, 1)]
    inlinks_weight: Annotated[float, Range(0, 1)]
    depth_weight: Annotated[float, Range(0, 1)]
    quality_weight: Annotated[float, Range(0, 1)]
    change_weight: Annotated[float, Range(0, 1)]
    new_bonus: Annotated[float, Range(0, 1)]


@dataclass(frozen=True, slots=True)
class PolitenessSettings:
    min_delay_s: Annotated[float, Range(0)]
    duration_factor: Annotated[float, Range(0)]
    max_duration_delay_s: Annotated[float, Range(0)]
    backoff_max_s: Annotated[float, Range(0)]
    retry_after_max_s: Annotated[float, Range(0)]
    host_failures: Annotated[int, Range(1)]
    address_gap_s: Annotated[float, Range(0)]
    address_max_open: Annotated[int, Range(1, unlimited=True)]


@dataclass(frozen=True, slots=True)
class FetchSettings:
    max_open: Annotated[int, Range(1, 10_000)]
    queues_factor: Annotated[int, Range(1)]
    window_s: Annotated[float, Range(0)]
    tail_hosts: Annotated[int, Range(0)]
    tail_s: Annotated[float, Range(0)]
    total_timeout_s: Annotated[float, Range(0.001)]
    connect_timeout_s: Annotated[float, Range(0.001)]
    read_timeout_s: Annotated[float, Range(0.001)]
    min_rate_bytes_s: Annotated[int, Range(0)]
    max_body_bytes: Annotated[int, Range(0)]
    max_decoded_bytes: Annotated[int, Range(0)]
    max_decode_ratio: Annotated[float, Range(1)]
    max_header_bytes: Annotated[int, Range(256)]
    max_redirects: Annotated[int, Range(0)]
    accept_types: tuple[str, ...]
    verify_tls: bool
    tls_unverified_hosts: tuple[str, ...]
    seal_interval_s: Annotated[float, Range(0.001)]
    seal_bytes: Annotated[int, Range(1)]
    warc_file_bytes: Annotated[int, Range(0)]
    keep_dead_connections_s: Annotated[float, Range(0)]
    stall_s: Annotated[float, Range(1)]
    our_fault_share: Annotated[float, Range(0, 1)]
    our_fault_window: Annotated[int, Range(1)]


@dataclass(frozen=True, slots=True)
class RobotsSettings:
    ttl_s: Annotated[float, Range(0)]
    stale_s: Annotated[float, Range(0)]
    max_bytes: Annotated[int, Range(512_000)]
    max_redirects: Annotated[int, Range(0)]
    retry_s: Annotated[float, Range(0)]


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    hosts_file: str
    hosts_file_only: bool
    allow_addresses: tuple[str, ...]
    deny_addresses: tuple[str, ...]
    dns_ttl_s: Annotated[float, Range(0)]
    dns_negative_ttl_s: Annotated[float, Range(0)]
    dns_max_entries: Annotated[int, Range(1)]


@dataclass(frozen=True, slots=True)
class ParseSettings:
    max_links: Annotated[int, Range(0, unlimited=True)]
    anchor_chars: Annotated[int, Range(0)]
    text_chars: Annotated[int, Range(0)]
    follow_nofollow: bool
    follow_forms: bool
    meta_robots: bool
    x_robots_tag: bool
    detect_language: bool
    simhash_min_words: Annotated[int, Range(1)]
    timeout_s: Annotated[float, Range(0.001)]
    memory_bytes: Annotated[int, Range(1)]


@dataclass(frozen=True, slots=True)
class RecrawlSettings:
    policy: Annotated[str, OneOf("halve_and_double", "budget")]
    visits_per_day: Annotated[float, Range(0)]
    replan_s: Annotated[int, Range(0, CENTURY_S)]
    sitemap_interval_s: Annotated[int, Range(0, CENTURY_S)]
    feed_interval_s: Annotated[int, Range(0, CENTURY_S)]
    initial_interval_s: Annotated[int, Range(1, CENTURY_S)]
    min_interval_s: Annotated[int, Range(1, CENTURY_S)]
    max_interval_s: Annotated[int, Range(1, CENTURY_S)]
    shrink: Annotated[float, Range(0.001, 1)]
    grow: Annotated[float, Range(1, 1000)]
    near_copy_bits: Annotated[int, Range(0, 64)]
    retry_s: Annotated[int, Range(1, CENTURY_S)]
    max_failures: Annotated[int, Range(1)]
    dead_probe_s: Annotated[int, Range(1, CENTURY_S)]
    denied_recheck_s: Annotated[int, Range(1, CENTURY_S)]
    gone_recheck_s: Annotated[int, Range(1, CENTURY_S)]


@dataclass(frozen=True, slots=True)
class DedupSettings:
    near_bits: Annotated[int, Range(0, 16)]
    blocks: Annotated[int, Range(1, 20)]
    hot_pairs: Annotated[int, Range(1)]
    cluster_members: Annotated[int, Range(2)]
    range_rows: Annotated[int, Range(1000)]
    batch_rows: Annotated[int, Range(1)]
    compact_files: Annotated[int, Range(1)]


@dataclass(frozen=True, slots=True)
class SparkSettings:
    shuffle_partitions: Annotated[int, Range(0)]
    driver_memory: str
    direct_rows: Annotated[int, Range(0)]


@dataclass(frozen=True, slots=True)
class CheckSettings:
    window_s: Annotated[int, Range(1, CENTURY_S)]
    min_fetches: Annotated[int, Range(1)]
    throttled_share: Annotated[float, Range(0, 1)]
    forbidden_share: Annotated[float, Range(0, 1)]
    host_min_fetches: Annotated[int, Range(1)]
    host_forbidden_share: Annotated[float, Range(0, 1)]
    starved_s: Annotated[int, Range(1, CENTURY_S)]
    stale_s: Annotated[int, Range(1, CENTURY_S)]


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a job may be told, one section an attribute."""

    agent: AgentSettings
    warehouse: WarehouseSettings
    url: UrlSettings
    scope: ScopeSettings
    trap: TrapSettings
    brake: BrakeSettings
    generate: GenerateSettings
    priority: PrioritySettings
    politeness: PolitenessSettings
    fetch: FetchSettings
    robots: RobotsSettings
    network: NetworkSettings
    parse: ParseSettings
    recrawl: RecrawlSettings
    dedup: DedupSettings
    spark: SparkSettings
    check: CheckSettings

    def digest(self) -> str:
        """SHA-256 (hex) of all settings, the same for equal settings; pinned in a segment's first state."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True)


Layer = tuple[str, Mapping[str, Any]]  # (where it was written, section -> key -> value)


def parse_toml(text: str, place: str) -> Layer:
    """One layer from TOML text; `place` is its name in errors.

    Raises:
        ConfigError: the text is not TOML (with line and column).
    """
    try:
        return place, tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{place}: not valid TOML: {error}") from None


def parse_set(assignment: str) -> Layer:
    """One layer from `section.key=value`; the value is TOML, or else a plain string.

    Raises:
        ConfigError: no `=`, or no `section.` before the key.
    """
    name, equals, text = assignment.partition("=")
    section, dot, key = name.strip().partition(".")
    if not equals or not dot or not section or not key:
        raise ConfigError(f"--set {assignment}: expected section.key=value, for example politeness.min_delay_s=5")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    return f"--set {assignment}", {section: {key: value}}


def build(layers: Iterable[Layer]) -> Settings:
    """Settings from layers, later ones over earlier; each layer is checked as it is laid.

    Raises:
        ConfigError: unknown section or key (names the nearest), wrong type, impossible value, or a missing default.
    """
    sections = typing.get_type_hints(Settings)
    merged: dict[str, dict[str, Any]] = {name: {} for name in sections}
    places: dict[str, str] = {}
    for place, layer in layers:
        for section, values in layer.items():
            _known(section, sections, place, "section")
            if not isinstance(values, Mapping):
                raise ConfigError(f"{place}: {section} is a section; write [{section}] and its keys below it")
            for key, value in _values(sections[section], values, place, f"{section}.").items():
                merged[section][key] = value
                places.pop(name := f"{section}.{key}", None)  # so that the last one set stands last
                places[name] = place
    settings = Settings(**{name: _section(cls, name, merged[name]) for name, cls in sections.items()})
    _across(settings, places)
    return settings


def from_json(text: str) -> Settings:
    """The settings that `to_json` wrote; used to rerun a segment under its pinned configuration."""
    return build([("pinned configuration", json.loads(text))])


def _values(cls: type, values: Mapping[str, Any], place: str, prefix: str) -> dict[str, Any]:
    """What stands below one section, each key known and each value checked."""
    kinds, found = typing.get_type_hints(cls, include_extras=True), {}
    for key, value in values.items():
        _known(key, kinds, place, "key", prefix)
        found[key] = _value(kinds[key], value, f"{place}: {prefix}{key}")
    return found


def _section(cls: type, name: str, values: dict[str, Any]) -> Any:
    missing = [f.name for f in dataclasses.fields(cls) if f.name not in values]
    if missing:
        raise ConfigError(f"{name}.{missing[0]}: no value; the defaults of conf/spindle.toml must be the first layer")
    return cls(**values)


def _known(name: str, known: Iterable[str], place: str, what: str, prefix: str = "") -> None:
    if name in (names := list(known)):
        return
    near = difflib.get_close_matches(name, names, 1, cutoff=0.5)
    hint = f"; did you mean {prefix}{near[0]}?" if near else f"; known are {', '.join(sorted(names))}"
    raise ConfigError(f"{place}: unknown {what} {prefix}{name}{hint}")


def _value(kind: Any, value: Any, where: str) -> Any:
    rule = None
    if typing.get_origin(kind) in (typing.Union, types.UnionType):  # `X | None`, where None stands for not given
        if value is None:
            return None
        kind = typing.get_args(kind)[0]
    if typing.get_origin(kind) is Annotated:
        kind, rule = typing.get_args(kind)
    value = _typed(kind, value, where)
    if isinstance(rule, OneOf) and value not in rule.choices:
        raise ConfigError(f"{where} = {value!r}: must be one of {', '.join(rule.choices)}")
    if isinstance(rule, Range):
        _in_range(value, rule, where)
    return value


def _in_range(value: float, limits: Range, where: str) -> None:
    if limits.unlimited and value == UNLIMITED:
        return
    if not limits.low <= value <= limits.high:
        also = f", or {UNLIMITED} for unlimited" if limits.unlimited else ""
        high = "" if limits.high == math.inf else f" and at most {limits.high}"
        raise ConfigError(f"{where} = {value}: must be at least {limits.low}{high}{also}")


def _typed(kind: Any, value: Any, where: str) -> Any:
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{where} = {value!r}: must be a list")
        return tuple(_typed(typing.get_args(kind)[0], item, f"{where}[{n}]") for n, item in enumerate(value, 1))
    if dataclasses.is_dataclass(kind):
        return _record(kind, value, where)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    endless = isinstance(value, float) and not math.isfinite(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)) or endless:
        wanted = {int: "a whole number", float: "a finite number", bool: "true or false", str: "a text in quotes"}[kind]
        raise ConfigError(f"{where} = {value!r}: must be {wanted}")
    return value


def _record(kind: Any, value: Any, where: str) -> Any:
    """One table of a list of tables, such as `[[scope.sheets]]`."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} = {value!r}: must be a table of keys and values")
    missing = [f.name for f in dataclasses.fields(kind) if f.default is dataclasses.MISSING and f.name not in value]
    if missing:
        raise ConfigError(f"{where}: {missing[0]} is missing")
    return kind(**_values(kind, value, where, ""))


def _across(settings: Settings, places: Mapping[str, str]) -> None:
    """Rules that bind several keys. Named is the key that was set last: the other was right before it came."""

    def fail(name: str, text: str, other: str = "") -> None:
        order = list(places)
        last = max((key for key in (name, other) if key), key=order.index)
        told = text if last == name else f"does not go with {name}, which {text}"
        raise ConfigError(f"{places[last]}: {last}: {told}")

    if not re.fullmatch(r"[A-Za-z_-]+", settings.agent.token):  # RFC 9309 2.2.1
        fail("agent.token", f"{settings.agent.token!r} must be letters, '-' and '_' only (RFC 9309 2.2.1)")
    if re.search(r"[\r\n]", settings.agent.contact):
        fail("agent.contact", "must be one line")
    if len(settings.generate.level_shares) != settings.generate.levels:
        fail("generate.level_shares", f"needs one number a level, {settings.generate.levels} in all", "generate.levels")
    if sum(settings.generate.level_shares) <= 0 or min(settings.generate.level_shares) < 0:
        fail("generate.level_shares", "must not be negative, and not all 0")
    if settings.recrawl.min_interval_s > settings.recrawl.max_interval_s:
        fail("recrawl.min_interval_s", "is larger than recrawl.max_interval_s", "recrawl.max_interval_s")
    if settings.robots.stale_s < settings.robots.ttl_s:
        fail("robots.stale_s", "is smaller than robots.ttl_s", "robots.ttl_s")
    if settings.dedup.blocks <= settings.dedup.near_bits:
        fail("dedup.blocks", "must be more than dedup.near_bits: a key is made of the others", "dedup.near_bits")
