"""The operator's word while a task runs: files under `control/` of the segment, asked for every few seconds.

`control/stop` and `control/pause` act by being there; `control/hosts.json` is an object of host name to
`{"block": true}`, `{"pause": true}` and `{"limit_delay_s": 5.0}` in any combination, and always says the whole wish:
what is no longer in it is lifted (but blocked URLs of this task stay given back). Others write these files.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field

from spindle.store import Store

POLL_S = 5.0  # a word takes effect within 60 s; asking is cheap

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HostWish:
    block: bool = False
    pause: bool = False
    limit_delay_s: float | None = None


NO_WISH = HostWish()


@dataclass(frozen=True, slots=True)
class Control:
    stop: bool = False
    pause: bool = False
    hosts: dict[str, HostWish] = field(default_factory=dict)


def read_control(store: Store) -> Control:
    """The present wishes. A file that cannot be read as described is reported and left out: no word is made up."""
    present = set(store.list("control/"))
    hosts: dict[str, HostWish] = {}
    if "control/hosts.json" in present:
        try:
            found = json.loads(store.get("control/hosts.json"))
            hosts = {host: _wish(wish) for host, wish in found.items()}
        except (ValueError, TypeError, AttributeError, FileNotFoundError) as error:
            _log.warning("control/hosts.json is not as described and was left out: %s", error)
    return Control("control/stop" in present, "control/pause" in present, hosts)


def _wish(wish: dict[str, object]) -> HostWish:
    limit = wish.get("limit_delay_s")
    seconds = float(limit) if isinstance(limit, int | float) and not isinstance(limit, bool) and limit >= 0 else None
    return HostWish(wish.get("block") is True, wish.get("pause") is True, seconds)
