"""Verdicts: what a crawler may do with an origin whose robots.txt was read, is absent, or cannot be reached.

One table decides (RFC 9309 2.3.1 and 2.4). Ages and spans are seconds and come in as values.
"""

from __future__ import annotations

from enum import StrEnum

from spindle.config import RobotsSettings


class State(StrEnum):
    """What the last attempt to read a robots.txt found."""

    OK = "ok"
    ABSENT = "absent"  # "unavailable" in the words of RFC 9309 2.3.1.3
    UNREACHABLE = "unreachable"  # 2.3.1.4


class Verdict(StrEnum):
    """What a crawler may do with the URLs of an origin."""

    ALLOW_ALL = "allow_all"
    RULES = "rules"  # ask the last good copy
    UNREACHABLE = "unreachable"  # nothing may be fetched until the file is read; costs the URLs nothing


class Copy(StrEnum):
    """The last good copy, by its age."""

    FRESH = "fresh"  # up to ttl_s
    STALE = "stale"  # up to stale_s
    EXPIRED = "expired"
    NONE = "none"


#: (state, copy) -> (verdict, verdict once the file has been unreachable for stale_s). Where RFC 9309 leaves a choice it
#: is the strictest that does not shut a site out for good.
VERDICTS: dict[tuple[State, Copy], tuple[Verdict, Verdict]] = {
    (State.OK, Copy.FRESH): (Verdict.RULES, Verdict.RULES),  # 2.3.1.1
    (State.OK, Copy.STALE): (Verdict.UNREACHABLE, Verdict.UNREACHABLE),  # 2.4: not beyond 24 h; read it again first
    (State.OK, Copy.EXPIRED): (Verdict.UNREACHABLE, Verdict.UNREACHABLE),
    (State.OK, Copy.NONE): (Verdict.RULES, Verdict.RULES),  # the copy is the one just read
    (State.ABSENT, Copy.FRESH): (Verdict.ALLOW_ALL, Verdict.ALLOW_ALL),  # 2.3.1.3: the owner took the file away
    (State.ABSENT, Copy.STALE): (Verdict.ALLOW_ALL, Verdict.ALLOW_ALL),
    (State.ABSENT, Copy.EXPIRED): (Verdict.ALLOW_ALL, Verdict.ALLOW_ALL),
    (State.ABSENT, Copy.NONE): (Verdict.ALLOW_ALL, Verdict.ALLOW_ALL),
    (State.UNREACHABLE, Copy.FRESH): (Verdict.RULES, Verdict.RULES),  # 2.4: a cached copy serves
    (State.UNREACHABLE, Copy.STALE): (Verdict.RULES, Verdict.RULES),  # 2.4: beyond 24 h "unless ... unreachable"
    (State.UNREACHABLE, Copy.EXPIRED): (Verdict.UNREACHABLE, Verdict.RULES),  # 2.3.1.4: or "use a cached copy"
    (State.UNREACHABLE, Copy.NONE): (Verdict.UNREACHABLE, Verdict.ALLOW_ALL),  # 2.3.1.4: MUST disallow; after 30 d MAY
}


def robots_state(http_status: int | None, redirects_exceeded: bool = False) -> State:
    """The state that the answer to a request for robots.txt means.

    `http_status` is that of the last hop, None when there was no answer (network, TLS, blocked address, deadline).
    429 counts as unreachable, for a site that asks for less must not get more. So does a redirect that could not be
    followed, 304 (we send no validators), and any status without a meaning.
    """
    if redirects_exceeded:  # RFC 9309 2.3.1.2: MAY be taken as unavailable
        return State.ABSENT
    if http_status is None or http_status == 429:
        return State.UNREACHABLE
    if 200 <= http_status < 300:
        return State.OK
    return State.ABSENT if 400 <= http_status < 500 else State.UNREACHABLE


def decide(
    state: State, age_of_good_copy_s: float | None, unreachable_for_s: float, settings: RobotsSettings
) -> Verdict:
    """The verdict by `VERDICTS`; `unreachable_for_s` counts from the first failed attempt of the present outage."""
    verdict, after_long_outage = VERDICTS[state, _copy(age_of_good_copy_s, settings)]
    return after_long_outage if unreachable_for_s > settings.stale_s else verdict


def _copy(age_s: float | None, settings: RobotsSettings) -> Copy:
    if age_s is None:
        return Copy.NONE
    if age_s <= settings.ttl_s:
        return Copy.FRESH
    return Copy.STALE if age_s <= settings.stale_s else Copy.EXPIRED


def expires_at(
    state: State, attempted_at: float, settings: RobotsSettings, retry_after_s: float | None = None
) -> float:
    """When robots.txt must be asked for again (seconds, the clock of `attempted_at`).

    A success or a 4xx serves for ttl_s (RFC 9309 2.4: 24 hours); a failure for retry_s only, or as long as Retry-After
    asks, ttl_s at most: silence must not be remembered longer than an answer.
    """
    if state is not State.UNREACHABLE:
        return attempted_at + settings.ttl_s
    return attempted_at + max(settings.retry_s, min(retry_after_s or 0.0, settings.ttl_s))
