"""What `spindle.politeness` promises: the law of delays, the invariants of the back tier, and that it never idles."""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spindle.config import UNLIMITED, PolitenessSettings, Settings
from spindle.politeness import (
    BackTier,
    Done,
    HostState,
    Ready,
    Signal,
    Wait,
    budget,
    expected_seconds,
    gap_s,
    retry_after_s,
)

#: Round numbers, so that a model can count on floats; the shipped ones are in conf/spindle.toml.
PLAIN = PolitenessSettings(
    min_delay_s=2.0,
    duration_factor=10.0,
    max_duration_delay_s=60.0,
    backoff_max_s=3_600.0,
    retry_after_max_s=86_400.0,
    host_failures=5,
    address_gap_s=0.0,
    address_max_open=UNLIMITED,
)


def test_the_shipped_settings_are_the_ones_the_design_names(settings: Settings) -> None:
    shipped = settings.politeness
    assert (shipped.min_delay_s, shipped.duration_factor, shipped.backoff_max_s) == (2.0, 10.0, 3_600.0)


# --- the law ----------------------------------------------------------------------------------------------------------

GAPS = [  # what differs, seconds, why
    ({}, 2.0, "the minimum"),
    ({"duration_s": 0.1}, 2.0, "ten times a quick answer is less"),
    ({"duration_s": 0.5}, 5.0, "ten times the last answer: the server is loaded"),
    ({"duration_s": 50.0}, 60.0, "... but the factor alone never asks for more than its cap"),
    ({"crawl_delay_s": 7.0}, 7.0, "the site's own word"),
    ({"crawl_delay_s": 0.0}, 2.0, "a site that asks for nothing still gets the minimum"),
    ({"crawl_delay_s": 900.0, "duration_s": 50.0}, 900.0, "a crawl-delay is never shortened"),
    ({"crawl_delay_s": 7.0, "duration_s": 3.0}, 30.0, "... and the factor may ask for more"),
    ({"limit_delay_s": 0.2}, 0.2, "an owner may want us faster"),
    ({"limit_delay_s": 0.2, "duration_s": 3.0}, 0.2, "... whatever the last answer took"),
    ({"limit_delay_s": 0.0}, 0.0, "... or without a pause"),
    ({"limit_delay_s": 30.0}, 30.0, "or slower"),
    ({"limit_delay_s": 0.2, "crawl_delay_s": 7.0}, 7.0, "never below the site's crawl-delay"),
    ({"backoff_level": 1}, 4.0, "a 429 doubles"),
    ({"backoff_level": 3}, 16.0, "each doubles again"),
    ({"backoff_level": 11}, 3_600.0, "up to an hour"),
    ({"backoff_level": 10**6}, 3_600.0, "and no further"),
    ({"backoff_level": 2, "crawl_delay_s": 7_200.0}, 7_200.0, "the cap of the back-off does not shorten a crawl-delay"),
    ({"backoff_level": 2, "limit_delay_s": 0.5}, 4.0, "a limit is doubled too, from a second on"),
    ({"backoff_level": 2, "limit_delay_s": 0.0}, 4.0, "nothing doubled would be nothing"),
]


@pytest.mark.parametrize(("facts", "seconds", "why"), GAPS, ids=[row[2] for row in GAPS])
def test_gap(facts: dict[str, Any], seconds: float, why: str) -> None:
    assert gap_s(PLAIN, **facts) == seconds


NOW = 1_445_412_480.0  # Wed, 21 Oct 2015 07:28:00 GMT
RETRY_AFTER = [  # header, seconds, why
    ("120", 120.0, "seconds"),
    (" 0 ", 0.0, "at once"),
    ("Wed, 21 Oct 2015 07:30:00 GMT", 120.0, "a date two minutes ahead"),
    ("Wednesday, 21-Oct-15 07:30:00 GMT", 120.0, "RFC 850, obsolete and alive"),
    ("Wed, 21 Oct 2015 07:00:00 GMT", None, "a date in the past"),
    ("-5", None, "negative"),
    ("1.5", None, "no whole number (RFC 9110 10.2.3)"),
    ("soon", None, "no date"),
    ("", None, "empty"),
    (None, None, "absent"),
    ("99999999999", 99_999_999_999.0, "huge: the tier gives the host up"),
    ("9" * 400, math.inf, "huger"),
    ("Wed, 21 Oct 99999 07:30:00 GMT", None, "a year nobody has"),
]


@pytest.mark.parametrize(("header", "seconds", "why"), RETRY_AFTER, ids=[row[2] for row in RETRY_AFTER])
def test_retry_after(header: str | None, seconds: float | None, why: str) -> None:
    assert retry_after_s(header, NOW) == seconds


BUDGETS = [  # window, delay, operator's limit, rest of the day, URLs, why
    (600.0, 5.0, UNLIMITED, UNLIMITED, 120, "what the delay lets through"),
    (600.0, 5.0, 50, UNLIMITED, 50, "the operator's limit is smaller"),
    (600.0, 5.0, 500, UNLIMITED, 120, "... or larger"),
    (600.0, 5.0, 50, 7, 7, "what is left of the day"),
    (600.0, 5.0, 50, 0, 0, "nothing is left of the day"),
    (600.0, 5.0, 0, UNLIMITED, 0, "0 is none"),
    (600.0, 86_400.0, UNLIMITED, UNLIMITED, 1, "a long crawl-delay lets one through"),
    (600.0, 86_400.0, 0, UNLIMITED, 0, "... unless none may"),
    (600.0, 0.0, UNLIMITED, UNLIMITED, UNLIMITED, "no delay, no bound"),
    (600.0, 0.0, 9, UNLIMITED, 9, "... but the operator's"),
]


@pytest.mark.parametrize(("window", "delay", "limit", "day", "urls", "why"), BUDGETS, ids=[row[5] for row in BUDGETS])
def test_budget(window: float, delay: float, limit: int, day: int, urls: int, why: str) -> None:
    assert budget(window, delay, limit, day) == urls


def test_expected_seconds() -> None:
    assert expected_seconds(10, 2.0, 0.5) == 25.0
    assert expected_seconds(0, 2.0, 0.5) == 0.0


# --- one host ---------------------------------------------------------------------------------------------------------


UNKNOWN = HostState()


def tier_of(
    *hosts: str, items: int = 1, settings: PolitenessSettings = PLAIN, max_open: int = 100, queues: int = 300,
    state: HostState = UNKNOWN,
) -> BackTier[int]:  # fmt: skip
    tier: BackTier[int] = BackTier(settings, max_open=max_open, queues=queues)
    for host in hosts:
        tier.add_host(host, state)
        for item in range(items):
            tier.put(host, item)
    return tier


def visit(tier: BackTier[int], now: float, **what: Any) -> float:
    """Takes what is ready now, answers at once, and says when the host may be asked again."""
    answer = tier.next(now)
    assert isinstance(answer, Ready)
    tier.finished(answer.host, now, **{"duration_s": 0.0, **what})
    return tier.state(answer.host).next_ok_at - now


def test_the_gap_runs_from_the_end_of_the_request() -> None:
    tier = tier_of("h", items=2)
    assert tier.next(0.0) == Ready("h", 0)
    assert tier.next(0.5) == Wait(math.inf)  # in flight: only its end changes anything
    tier.finished("h", 1.0, duration_s=1.0)
    assert tier.next(1.0) == Wait(11.0)
    assert tier.next(11.0) == Ready("h", 1)
    tier.finished("h", 11.0, duration_s=0.0)
    assert tier.next(11.0) == Done()


def test_a_queue_that_ran_empty_does_not_forget_its_host() -> None:
    tier = tier_of("h")
    visit(tier, 0.0)
    assert tier.next(0.0) == Done()
    tier.put("h", 1)
    assert tier.next(0.5) == Wait(2.0)
    assert tier.next(2.0) == Ready("h", 1)


def test_what_an_earlier_turn_learned_holds() -> None:
    state = HostState(next_ok_at=30.0, crawl_delay_s=7.0, backoff_level=2, backoff_until=40.0, failure_streak=3)
    tier = tier_of("h", items=2, state=state)
    assert tier.next(0.0) == Wait(40.0)
    assert visit(tier, 40.0) == 14.0  # one level back: 7 s doubled once
    assert tier.state("h") == HostState(54.0, 7.0, None, 1, 54.0, None, 0)


def test_throttling_doubles_and_success_walks_back() -> None:
    lenient = replace(PLAIN, host_failures=100)
    tier = tier_of("h", items=40, settings=lenient)
    now, gaps = 0.0, []
    for signal in [Signal.THROTTLED] * 12 + [Signal.OK] * 12:
        gap = visit(tier, now, signal=signal)
        gaps.append(gap)
        now += gap
    doubling = [4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_024.0, 2_048.0, 3_600.0, 3_600.0]
    assert gaps == [*doubling, *doubling[-2::-1], 2.0]


RETRY_AFTERS = [  # seconds asked, gap, given up, why
    (None, 4.0, False, "none: the back-off alone"),
    (1.0, 4.0, False, "shorter than the back-off"),
    (120.0, 120.0, False, "where it is longer"),
    (86_400.0, 86_400.0, False, "up to the cap"),
    (86_401.0, 86_400.0, True, "beyond it the host is given up until a later turn"),
    (math.inf, 86_400.0, True, "... and not for ever"),
    (-5.0, 4.0, False, "nonsense"),
]


@pytest.mark.parametrize(("asked", "gap", "given_up", "why"), RETRY_AFTERS, ids=[row[3] for row in RETRY_AFTERS])
def test_retry_after_holds_where_it_is_longer(asked: float | None, gap: float, given_up: bool, why: str) -> None:
    tier = tier_of("h", items=2)
    assert visit(tier, 0.0, signal=Signal.THROTTLED, retry_after_s=asked) == gap
    assert tier.state("h").backoff_until == gap
    assert tier.given_up("h") is given_up
    assert tier.next(0.0) == (Done() if given_up else Wait(gap))
    assert tier.drop("h") == [1]


@pytest.mark.parametrize("signal", [Signal.FAILED, Signal.THROTTLED])
def test_a_host_that_only_refuses_is_left_alone_after_n_hits(signal: Signal) -> None:
    tier = tier_of("bad", items=200)
    now, hits = 0.0, 0
    while isinstance(tier.next(now), Ready):
        tier.finished("bad", now, duration_s=0.0, signal=signal)
        hits, now = hits + 1, now + 600.0
    assert (hits, tier.given_up("bad"), tier.next(now)) == (PLAIN.host_failures, True, Done())
    assert (tier.hosts_left, tier.items_left, len(tier.drop("bad"))) == (0, 0, 195)


def test_failures_count_in_a_row_only() -> None:
    tier = tier_of("h", items=20)
    for turn, signal in enumerate([*[Signal.FAILED] * 4, Signal.THROTTLED, *[Signal.FAILED] * 4, Signal.OK]):
        visit(tier, turn * 100.0, signal=signal)
    assert not tier.given_up("h")


def test_a_host_that_failed_in_earlier_turns_is_probed_once() -> None:
    tier = tier_of("h", items=20, state=HostState(failure_streak=9))
    visit(tier, 0.0, signal=Signal.FAILED)
    assert tier.given_up("h")
    tier = tier_of("h", items=20, state=HostState(failure_streak=9))
    visit(tier, 0.0)
    assert (tier.given_up("h"), tier.state("h").failure_streak) == (False, 0)


def test_a_released_item_costs_no_gap() -> None:
    tier = tier_of("h", items=3)
    for item in range(2):
        assert tier.next(0.0) == Ready("h", item)
        tier.release("h", 0.0)
    assert tier.next(0.0) == Ready("h", 2)


def test_an_item_given_back_waits_for_the_request_made_in_its_stead() -> None:
    tier = tier_of("h", items=2)
    assert tier.next(0.0) == Ready("h", 0)
    tier.put_front("h", 0)  # robots.txt first
    tier.set_crawl_delay("h", 5.0)
    tier.finished("h", 1.0, duration_s=0.1)
    assert tier.next(1.0) == Wait(6.0)
    assert tier.next(6.0) == Ready("h", 0)


def test_the_operators_word_counts_for_a_gap_that_has_begun() -> None:
    tier = tier_of("h", items=9, state=HostState(limit_delay_s=100.0))
    visit(tier, 0.0)
    assert tier.next(0.0) == Wait(100.0)
    tier.set_limit("h", 10.0)
    assert tier.next(0.0) == Wait(10.0)
    tier.set_limit("h", 0.0)
    assert tier.next(0.0) == Ready("h", 1)
    tier.finished("h", 0.0, duration_s=0.0)
    tier.set_limit("h", None)
    assert tier.next(0.0) == Wait(2.0)


def test_a_hold_pauses_and_its_end_resumes() -> None:
    tier = tier_of("h", items=9)
    tier.hold("h", 50.0)
    assert tier.next(0.0) == Wait(50.0)
    tier.hold("h", math.inf)
    assert (tier.next(60.0), tier.hosts_left, tier.items_left) == (Done(), 0, 0)
    tier.hold("h", 0.0)
    assert (tier.next(60.0), tier.hosts_left, tier.items_left) == (Ready("h", 0), 1, 8)


def test_an_unknown_host_is_an_error_and_not_a_fresh_one() -> None:
    tier = tier_of()
    with pytest.raises(KeyError, match="add_host must come first"):
        tier.put("h", 0)


def test_a_host_that_is_not_in_flight_cannot_end() -> None:
    tier = tier_of("h")
    with pytest.raises(ValueError, match="no request is in flight"):
        tier.finished("h", 0.0, duration_s=0.0)


def test_a_host_added_twice_keeps_what_was_learned() -> None:
    tier = tier_of("h", items=2)
    visit(tier, 0.0)
    tier.add_host("h", HostState())
    assert tier.next(0.0) == Wait(2.0)


def test_the_slowest_host_is_the_one_with_most_seconds_left() -> None:
    tier = tier_of("many", "slow", items=3)
    assert tier.slowest_host() == ("slow", 6.0)  # a tie: by name
    tier.set_crawl_delay("slow", 90.0)
    assert tier.slowest_host() == ("slow", 270.0)
    tier.drop("slow")
    assert tier.slowest_host() == ("many", 6.0)
    tier.drop("many")
    assert tier.slowest_host() is None


# --- many hosts -------------------------------------------------------------------------------------------------------


def test_hosts_are_activated_in_the_order_of_their_first_items() -> None:
    tier: BackTier[str] = BackTier(PLAIN, max_open=1, queues=2)
    for host in "abcd":
        tier.add_host(host, HostState())
    for host, item in ["c1", "a1", "c2", "d1", "b1", "a2"]:
        tier.put(host, item)
    seen = []
    for tenth in range(6):
        answer = tier.next(tenth / 10)
        assert isinstance(answer, Ready)
        seen.append(answer.host)
        tier.finished(answer.host, tenth / 10, duration_s=0.0)
        if tenth == 3:
            break
    assert seen == ["c", "a", "d", "b"]


def test_a_queue_that_runs_empty_is_refilled_from_the_list() -> None:
    tier = tier_of("a", "b", "c", items=1, max_open=1, queues=2)
    tier.put("b", 1)
    for now, host in ((0.0, "a"), (1.0, "b"), (3.0, "c"), (3.0, "b")):  # c took a's place at 1.0, before b's next turn
        answer = tier.next(now)
        assert isinstance(answer, Ready)
        assert answer.host == host
        tier.finished(host, now, duration_s=0.0)


def test_the_bound_on_active_hosts_gives_way_before_the_task_idles() -> None:
    tier = tier_of(*"abcdefgh", items=2, queues=1)
    started = []
    while isinstance(answer := tier.next(0.0), Ready):
        started.append(answer.host)
    assert (started, answer) == (list("abcdefgh"), Wait(math.inf))


def test_a_host_without_a_gap_is_finished_while_its_connection_is_hot() -> None:
    tier = tier_of("a", "b", "c", items=3, state=HostState(limit_delay_s=0.0), max_open=1)
    seen = ""
    for now in range(9):
        answer = tier.next(float(now))
        assert isinstance(answer, Ready)
        seen += answer.host
        tier.finished(answer.host, now + 0.5, duration_s=0.5)
    assert seen == "aaabbbccc"


def test_no_more_requests_are_open_than_allowed() -> None:
    tier = tier_of("a", "b", "c", max_open=2)
    assert (tier.next(0.0), tier.next(0.0), tier.next(0.0)) == (Ready("a", 0), Ready("b", 0), Wait(math.inf))
    tier.release("a", 0.0)
    assert tier.next(0.0) == Ready("c", 0)


def test_drain_gives_back_what_was_set_aside_too() -> None:
    tier = tier_of("a", "b", items=2)
    tier.hold("b", math.inf)
    visit(tier, 0.0)
    assert tier.drain() == [("a", 1), ("b", 0), ("b", 1)]
    assert (tier.next(9.0), tier.drain()) == (Done(), [])


# --- addresses --------------------------------------------------------------------------------------------------------

SHARED_HOST = HostState(address="192.0.2.1")


def test_an_address_takes_so_many_requests_at_once() -> None:
    tier = tier_of("a", "b", "c", settings=replace(PLAIN, address_max_open=2), state=SHARED_HOST)
    assert (tier.next(0.0), tier.next(0.0), tier.next(0.0)) == (Ready("a", 0), Ready("b", 0), Wait(math.inf))
    tier.finished("b", 1.0, duration_s=1.0)
    assert tier.next(1.0) == Ready("c", 0)


@pytest.mark.parametrize(
    ("tasks", "open_at_once", "gap"), [(1, 8, 1.0), (2, 4, 2.0), (3, 2, 3.0), (8, 1, 8.0), (20, 1, 20.0)]
)
def test_a_cap_is_divided_among_the_tasks_that_hold_the_address(tasks: int, open_at_once: int, gap: float) -> None:
    """Together they open no more, and come no closer, than one alone; another address is nobody else's business."""
    hosts = [f"h{n}" for n in range(9)]
    tier = tier_of(*hosts, settings=replace(PLAIN, address_max_open=8), state=SHARED_HOST)
    tier.share_address("192.0.2.1", tasks)
    assert [isinstance(tier.next(0.0), Ready) for _ in hosts] == [n < open_at_once for n in range(9)]
    tier = tier_of("a", "b", settings=replace(PLAIN, address_gap_s=1.0), state=SHARED_HOST)
    tier.share_address("192.0.2.1", tasks)
    tier.next(0.0)
    assert tier.next(0.5) == Wait(gap)
    other = tier_of(*hosts, settings=replace(PLAIN, address_max_open=8), state=SHARED_HOST)
    other.share_address("192.0.2.2", tasks)
    assert sum(isinstance(other.next(0.0), Ready) for _ in hosts) == 8


def test_an_address_has_a_gap_between_starts_and_after_ends() -> None:
    settings = replace(PLAIN, address_gap_s=1.0)
    tier = tier_of("a", "b", "c", settings=settings, state=SHARED_HOST)
    assert (tier.next(0.0), tier.next(0.0)) == (Ready("a", 0), Wait(1.0))
    tier.finished("a", 0.5, duration_s=0.5)
    assert (tier.next(1.0), tier.next(1.5)) == (Wait(1.5), Ready("b", 0))
    tier.release("b", 1.5)  # never sent: costs the address nothing
    assert tier.next(1.5) == Ready("c", 0)


def test_an_address_that_is_learned_in_flight_may_refuse() -> None:
    tier = tier_of("a", "b", settings=replace(PLAIN, address_max_open=1))
    assert (tier.next(0.0), tier.next(0.0)) == (Ready("a", 0), Ready("b", 0))
    assert (tier.admit("a", "192.0.2.1", 0.0), tier.admit("b", "192.0.2.1", 0.0)) == (True, False)
    tier.put_front("b", 0)
    tier.release("b", 0.0)
    assert tier.next(0.0) == Wait(math.inf)
    assert tier.admit("a", "192.0.2.1", 0.0)  # asked again: it is in already
    tier.finished("a", 1.0, duration_s=1.0)
    assert tier.next(1.0) == Ready("b", 0)


def test_the_line_of_an_address_is_kept() -> None:
    tier = tier_of("x", "a", "b", settings=replace(PLAIN, address_max_open=1), state=SHARED_HOST)
    tier.add_host("late", replace(SHARED_HOST, next_ok_at=3.0))
    tier.put("late", 0)
    assert (tier.next(0.0), tier.next(0.0)) == (Ready("x", 0), Wait(3.0))  # a and b are in line
    tier.finished("x", 5.0, duration_s=5.0)
    for now, host in ((5.0, "a"), (6.0, "b"), (7.0, "late")):
        assert tier.next(now) == Ready(host, 0)
        tier.finished(host, now, duration_s=0.0)


def test_a_host_that_left_the_line_is_passed_over() -> None:
    tier = tier_of("x", "a", "b", "c", settings=replace(PLAIN, address_max_open=1), state=SHARED_HOST)
    assert (tier.next(0.0), tier.next(0.0)) == (Ready("x", 0), Wait(math.inf))
    tier.drop("a")
    tier.hold("b", math.inf)
    tier.finished("x", 1.0, duration_s=1.0)
    assert tier.next(1.0) == Ready("c", 0)


def test_a_line_that_everybody_left_can_form_again() -> None:
    tier = tier_of("x", "a", settings=replace(PLAIN, address_gap_s=1.0), state=SHARED_HOST)
    assert (tier.next(0.0), tier.next(0.0)) == (Ready("x", 0), Wait(1.0))
    tier.drop("a")
    assert tier.next(0.5) == Wait(math.inf)
    tier.put("a", 1)
    assert (tier.next(0.5), tier.next(1.0)) == (Wait(1.0), Ready("a", 1))


def test_ten_thousand_hosts_on_one_address_cost_no_more_than_one_try_each() -> None:
    class Counted(str):
        """A name that counts how often it is looked at."""

        looks = 0

        def __hash__(self) -> int:
            Counted.looks += 1
            return super().__hash__()

    hosts = 10_000
    tier: BackTier[int] = BackTier(replace(PLAIN, address_max_open=1), max_open=100, queues=300)
    for number in range(hosts):
        tier.add_host(f"h{number}", replace(SHARED_HOST, address=Counted("192.0.2.1")))
        tier.put(f"h{number}", 0)
    for turn in range(hosts):
        answer = tier.next(float(turn))
        assert isinstance(answer, Ready)
        tier.finished(answer.host, float(turn), duration_s=0.0)
    assert (tier.next(float(hosts)), tier.hosts_left) == (Done(), 0)
    assert Counted.looks < 10 * hosts


# --- against a plain model --------------------------------------------------------------------------------------------


@dataclass
class Model:
    """A host as one would write it down: no heap, no tickets."""

    not_before: float
    ended_at: float = -math.inf
    duration_s: float = 0.0
    crawl: float | None = None
    limit: float | None = None
    level: int = 0
    streak: int = 0
    hold: float = -math.inf
    given_up: bool = False
    flying: bool = False
    address: str | None = None
    at: str | None = None  # the address where the request in flight counts
    items: list[int] = field(default_factory=list)

    def gap(self, law: PolitenessSettings) -> float:
        own = max(law.min_delay_s, min(law.duration_factor * self.duration_s, law.max_duration_delay_s))
        base = max(own if self.limit is None else self.limit, 0.0 if self.crawl is None else self.crawl)
        return base if not self.level else max(base, min(max(base, 1.0) * 2**self.level, law.backoff_max_s))

    def ready_at(self, law: PolitenessSettings) -> float:
        return max(self.not_before, self.ended_at + self.gap(law), self.hold)

    def live(self) -> bool:
        return bool(self.items) and not self.given_up and self.hold < math.inf


HOSTS = st.sampled_from("abcde")
ADDRESSES = st.sampled_from(["192.0.2.1", "192.0.2.2"])
SPANS = st.sampled_from([0.0, 0.5, 1.0, 3.0, 20.0])
DELAYS = st.none() | SPANS


class Tier(RuleBasedStateMachine):
    """Drives tier and model alike; every answer of `next` is checked against all that the model knows."""

    @initialize(
        max_open=st.integers(1, 4),
        queues=st.integers(1, 4),
        gap=st.sampled_from([0.0, 1.0]),
        cap=st.sampled_from([1, 2, UNLIMITED]),
        states=st.lists(st.tuples(SPANS, st.none() | ADDRESSES, st.integers(0, 2)), min_size=5, max_size=5),
    )
    def begin(self, max_open: int, queues: int, gap: float, cap: int, states: list[Any]) -> None:
        self.law = PolitenessSettings(2.0, 2.0, 4.0, 16.0, 32.0, 3, gap, cap)
        self.max_open = max_open
        self.tier: BackTier[int] = BackTier(self.law, max_open=max_open, queues=queues)
        self.model: dict[str, Model] = {}
        for host, (next_ok_at, address, level) in zip("abcde", states, strict=True):
            self.model[host] = Model(next_ok_at, level=level, address=address)
            self.tier.add_host(host, HostState(next_ok_at=next_ok_at, backoff_level=level, address=address))
        self.starts: dict[str, dict[str, float]] = defaultdict(dict)  # address -> host in flight -> since
        self.touched: dict[str, float] = defaultdict(lambda: -math.inf)  # address -> last start or end that counts
        self.now = 0.0
        self.put_count = 0
        self.out: Counter[int] = Counter()

    # what the model says of addresses

    def _address_ok_at(self, address: str | None) -> float:
        """When the address would let another request start; math.inf while its cap is reached."""
        if address is None:
            return -math.inf
        open_there = sum(model.at == address for model in self.model.values())
        if self.law.address_max_open != UNLIMITED and open_there >= self.law.address_max_open:
            return math.inf
        latest = max([self.touched[address], *self.starts[address].values()])
        return latest + self.law.address_gap_s

    def _startable_at(self, host: str) -> float:
        model = self.model[host]
        if not model.live() or model.flying:
            return math.inf
        return max(model.ready_at(self.law), self._address_ok_at(model.address))

    def _depart(self, host: str, address: str | None, since: float) -> None:
        self.model[host].at = address
        if address is not None:
            self.starts[address][host] = since

    def _land(self, host: str, made: bool) -> None:
        model = self.model[host]
        if model.at is not None:
            since = self.starts[model.at].pop(host, -math.inf)
            if made:
                self.touched[model.at] = max(self.touched[model.at], since, self.now)
        model.at = None

    # rules

    @rule(span=SPANS)
    def pass_time(self, span: float) -> None:
        self.now += span

    @rule(host=HOSTS, front=st.booleans(), count=st.integers(1, 3))
    def put(self, host: str, front: bool, count: int) -> None:
        for _ in range(count):
            self.put_count += 1
            (self.tier.put_front if front else self.tier.put)(host, self.put_count)
            self.model[host].items.insert(0 if front else len(self.model[host].items), self.put_count)

    @rule(patient=st.booleans())
    def ask(self, patient: bool) -> None:
        answer = self._ask()
        if patient and isinstance(answer, Wait) and answer.until < math.inf:
            self.now = answer.until
            self._ask()

    def _ask(self) -> Ready[int] | Wait | Done:
        answer = self.tier.next(self.now)
        flying = len(self._flying())
        times = {host: self._startable_at(host) for host in self.model}
        if isinstance(answer, Ready):
            model = self.model[answer.host]
            assert flying < self.max_open
            assert times[answer.host] <= self.now
            assert answer.item == model.items.pop(0)
            self.out[answer.item] += 1
            model.flying = True
            self._depart(answer.host, model.address, self.now)
        elif flying >= self.max_open:
            assert answer == Wait(math.inf)
        elif isinstance(answer, Wait):
            first = min(times.values())
            assert first > self.now, "a host could have started"
            assert self.now < answer.until <= first
            assert answer.until < math.inf or flying
        else:
            assert answer == Done()
            assert not flying and not any(model.live() for model in self.model.values())
        return answer

    def _flying(self) -> list[str]:
        return [host for host, model in self.model.items() if model.flying]

    @precondition(lambda self: self._flying())
    @rule(data=st.data(), signal=st.sampled_from(Signal), span=SPANS, asked=st.sampled_from([None, 0.0, 10.0, 99.0]))
    def finish(self, data: st.DataObject, signal: Signal, span: float, asked: float | None) -> None:
        host = data.draw(st.sampled_from(self._flying()))
        self.now += span
        self.tier.finished(host, self.now, duration_s=span, signal=signal, retry_after_s=asked)
        model = self.model[host]
        self._land(host, made=True)
        model.flying, model.ended_at, model.duration_s = False, self.now, span
        model.not_before = self.now + min(asked or 0.0, 32.0)
        model.level = {Signal.OK: max(0, model.level - 1), Signal.THROTTLED: model.level + 1}.get(signal, model.level)
        model.streak = model.streak + 1 if signal is Signal.FAILED else 0
        throttled_out = signal is Signal.THROTTLED and model.level >= 3
        model.given_up = model.given_up or model.streak >= 3 or throttled_out or (asked or 0.0) > 32.0

    @precondition(lambda self: self._flying())
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        host = data.draw(st.sampled_from(self._flying()))
        self.tier.release(host, self.now)
        self._land(host, made=False)
        self.model[host].flying = False

    @precondition(lambda self: self._flying())
    @rule(data=st.data(), address=ADDRESSES)
    def admit(self, data: st.DataObject, address: str) -> None:
        host = data.draw(st.sampled_from(self._flying()))
        model = self.model[host]
        already = model.at == address
        if not already:
            self._land(host, made=False)
        expected = already or self._address_ok_at(address) <= self.now
        assert self.tier.admit(host, address, self.now) is expected
        model.address = address
        if expected and not already:
            self._depart(host, address, self.now)

    @rule(host=HOSTS, address=ADDRESSES)
    def set_address(self, host: str, address: str) -> None:
        self.tier.set_address(host, address)
        model = self.model[host]
        if model.address != address:
            model.address = address
            if model.flying:
                self._land(host, made=False)
                self._depart(host, address, -math.inf)

    @rule(host=HOSTS, delay=DELAYS, which=st.sampled_from(["crawl", "limit"]))
    def learn_delay(self, host: str, delay: float | None, which: str) -> None:
        (self.tier.set_crawl_delay if which == "crawl" else self.tier.set_limit)(host, delay)
        setattr(self.model[host], which, delay)

    @rule(host=HOSTS, span=st.sampled_from([-1.0, 5.0, math.inf]))
    def hold(self, host: str, span: float) -> None:
        self.tier.hold(host, self.now + span)
        self.model[host].hold = self.now + span

    @rule(host=HOSTS)
    def drop(self, host: str) -> None:
        items = self.tier.drop(host)
        assert items == self.model[host].items
        self.out.update(items)
        self.model[host].items = []

    @invariant()
    def counts_agree(self) -> None:
        live = [model for model in self.model.values() if model.live()]
        assert self.tier.items_left == sum(len(model.items) for model in live)
        assert self.tier.hosts_left == sum(model.live() or model.flying for model in self.model.values())
        assert self.tier.in_flight == sum(model.flying for model in self.model.values()) <= self.max_open

    @invariant()
    def states_agree(self) -> None:
        for host, model in self.model.items():
            state = self.tier.state(host)
            assert state.next_ok_at == max(model.not_before, model.ended_at + model.gap(self.law))
            assert (state.backoff_level, state.failure_streak) == (model.level, model.streak)
            assert (state.crawl_delay_s, state.limit_delay_s, state.address) == (
                model.crawl,
                model.limit,
                model.address,
            )
            assert self.tier.given_up(host) is model.given_up
            assert self.tier.delay_s(host) == model.gap(self.law)

    def teardown(self) -> None:
        if not hasattr(self, "tier"):
            return
        self.out.update(item for _, item in self.tier.drain())
        assert self.out == Counter(range(1, self.put_count + 1))


Tier.TestCase.settings = hypothesis_settings(max_examples=150, stateful_step_count=60, deadline=None)
TestTierAgainstAPlainModel = Tier.TestCase


# --- simulated crawls -------------------------------------------------------------------------------------------------


def crawl(tier: BackTier[int], duration_s: float, until: float = math.inf) -> list[tuple[float, float, str]]:
    """A whole task in simulated time, every request of one duration: (start, end, host) of each."""
    now, log, flying = 0.0, [], list[tuple[float, str]]()
    while now < until:
        while isinstance(answer := tier.next(now), Ready):
            log.append((now, now + duration_s, answer.host))
            heapq.heappush(flying, (now + duration_s, answer.host))
        if isinstance(answer, Done):
            break
        now = min(answer.until, flying[0][0] if flying else math.inf)
        while flying and flying[0][0] <= now:
            ended_at, host = heapq.heappop(flying)
            tier.finished(host, ended_at, duration_s=duration_s)
    return log


def closest(log: list[tuple[float, float, str]]) -> float:
    """The smallest time between an end and the next start at one host."""
    ends: dict[str, float] = {}
    gaps = [math.inf]
    for start, end, host in log:
        gaps.append(start - ends.get(host, -math.inf))
        ends[host] = end
    return min(gaps)


SPEEDS = [  # hosts, queues, why
    (1_000, 3_000, "queues enough for all hosts"),
    (1_000, 150, "a tenth of the hosts active at first: the bound gives way"),
]


@pytest.mark.parametrize(("hosts", "queues", "why"), SPEEDS, ids=[row[2] for row in SPEEDS])
def test_politeness_alone_bounds_the_speed_until_the_tail(hosts: int, queues: int, why: str) -> None:
    """hosts / delay pages a second are the most that 1 s of delay allows; a request of 10 ms takes 1 % of that."""
    polite = replace(PLAIN, min_delay_s=1.0)
    tier = tier_of(*(f"h{n}" for n in range(hosts)), items=20, settings=polite, max_open=50, queues=queues)
    log = crawl(tier, duration_s=0.01)
    seconds = log[int(len(log) * 0.9)][0]  # until the tail: the last tenth is hosts running out
    assert len(log) == hosts * 20
    assert len(log) * 0.9 / seconds >= 0.95 * hosts / 1.0
    assert closest(log) >= 1.0 - 1e-9


def test_a_hot_host_does_not_hold_up_the_others() -> None:
    tier = tier_of(*(f"h{n}" for n in range(100)), items=5)
    tier.add_host("slow", HostState(crawl_delay_s=100.0))
    for item in range(50):
        tier.put("slow", item)
    log = crawl(tier, duration_s=0.1, until=60.0)
    assert Counter(host for _, _, host in log)["slow"] == 1
    assert len(log) == 501
