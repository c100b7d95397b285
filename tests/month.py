"""A simulated month of the front tier: two turns a day over two slices, a clock that is an argument, no Spark.

The laws are Spindle's own (`priority`, `selector`, `politeness`, `segments`); what is written anew here is only what
`candidates` says in SQL: who is due, ranks within hosts and domains. Each check raises an AssertionError with the turn.
Chance is seeded. `bench/generate.py --month 1000000` runs it at full size.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from spindle import config, politeness, segments, selector
from spindle.defaults import default_layer
from spindle.errors import LeaseHeld
from spindle.priority import aged_level, aged_score, level
from spindle.segments import Entry, SegmentId, State
from spindle.urls import bucket_of

DAY = 86_400
HALF = DAY // 2
BUCKETS = 32
STEP = 2 * DAY  # of ageing: five levels in ten days, so that a month is long enough to see it
WINDOW = 3600.0


@dataclass(slots=True)
class Host:
    name: str
    domain: str
    bucket: int
    delay: float
    urls: int = 0
    day: int = -1
    fetched_today: int = 0
    backoff_until: int = 0


@dataclass(slots=True)
class Url:
    number: int
    host: Host
    score: float
    level: int
    since: int  # due at
    interval: int
    fresh: bool = True


class Candidate(NamedTuple):
    level: int
    minus_score: float
    tie: int
    url: Url


@dataclass(slots=True)
class Report:
    """What the month was: to be asserted, printed or drawn."""

    turns: int = 0
    listed: int = 0
    longest_wait: float = 0.0  # seconds over what the host's own budget explains
    by_level: Counter[int] = field(default_factory=Counter)
    ours: float = 0.0  # sums of levels over the turns whose list was cut, of as many URLs each
    strict: float = 0.0
    round_robin: float = 0.0
    cut: list[tuple[int, int, int, int, int]] = field(default_factory=list)  # of each cut list: day, URLs, these sums
    refused: int = 0  # leases asked for on an owned range
    expired: int = 0


class Month:
    def __init__(self, urls: int, hosts: int, seed: int = 1, growth: float = 0.005) -> None:
        """`growth`: new URLs a turn, as a part of the first ones; 0.08 fills every list."""
        self.chance = random.Random(seed)
        settings = config.build([default_layer()]).generate
        per_turn = max(20, urls * 4 // 100)  # a slice; sixteen of a hundred a day
        self.settings = replace(settings, list_size=per_turn, age_level_s=STEP, host_budget=400, domain_budget=600)
        self.day_budget = 500
        self.entries: list[Entry] = []
        self.live: dict[int, str] = {}  # URL -> the segment that holds it
        self.report = Report()
        self.hosts = [self._host(n) for n in range(hosts)]
        weights = [1 / (n + 10) for n in range(hosts)]
        self.urls = [self._url(n, host, 0) for n, host in enumerate(self.chance.choices(self.hosts, weights, k=urls))]
        self.all = urls
        self.growth = round(urls * growth)

    def _host(self, number: int) -> Host:
        domain = f"d{number // 3}.test"  # hosts of three share a domain, so their bucket
        delay = self.chance.choice([2.0, 2.0, 5.0, 30.0])
        return Host(f"h{number}.{domain}", domain, bucket_of(domain, BUCKETS), delay)

    def _url(self, number: int, host: Host, now: int) -> Url:
        host.urls += 1
        score = self.chance.random() ** 2
        return Url(number, host, score, level(score, self.settings.levels), now, self.chance.randint(4, 60) * DAY)

    def run(self, days: int = 30) -> Report:
        for turn in range(2 * days):
            now = turn * HALF
            self._weather(now)
            opened = [self._open(turn, i, now) for i in (1, 2)]
            self._overlap_is_refused(turn, now)
            lists = [(segment, self._list(segment, now)) for segment in opened]
            for segment, listed in lists:
                self._close(segment, listed, now)
            self._growth(now)
            self.report.turns += 1
        return self.report

    # --- leases

    def _open(self, turn: int, i: int, now: int) -> SegmentId:
        segment = SegmentId(f"t{turn}", i, 2)
        span = segment.buckets(BUCKETS)
        for stale in segments.check_free(self.entries, str(segment), span.start, span.stop, now):
            self._append(replace(stale, state=State.EXPIRED))
            self.live = {url: held for url, held in self.live.items() if held != stale.segment}
            self.report.expired += 1
        self._append(Entry(0, str(segment), State.OPENED, now, span.start, span.stop, turn, now + HALF - 1, "vm:1"))
        return segment

    def _append(self, entry: Entry) -> None:
        self.entries.append(replace(entry, seq=len(self.entries) + 1))
        if len(self.entries) > 200:  # what is closed for long says nothing any more
            self.entries = self.entries[-100:]

    def _overlap_is_refused(self, turn: int, now: int) -> None:
        for rival in (SegmentId("rival"), SegmentId("rival", 2, 4)):
            span = rival.buckets(BUCKETS)
            try:
                segments.check_free(self.entries, str(rival), span.start, span.stop, now)
            except LeaseHeld:
                self.report.refused += 1
            else:
                raise AssertionError(f"turn {turn}: {rival} got a range that is owned")

    # --- one list

    def _list(self, segment: SegmentId, now: int) -> list[Url]:
        span = segment.buckets(BUCKETS)
        found = self._candidates(span, now)
        bins = [(c.level, c.url.fresh, int(min(20_000, -c.minus_score * 1000))) for c in found]
        cuts = selector.cuts(Counter(bins), self.settings)
        left = {of: cut.total for of, cut in cuts.items()}
        listed, passed_by = [], {}
        for candidate in sorted(found, key=lambda c: (c.minus_score, c.tie)):
            of = candidate.level, candidate.url.fresh
            if left.get(of, 0) > 0:
                left[of] -= 1
                listed.append(candidate)
                assert of not in passed_by, f"{segment}: a better one of {of} was passed by"
            else:
                passed_by[of] = candidate
        assert len(listed) == min(self.settings.list_size, len(found)), f"{segment}: the list is not full"
        self._check_list(segment, [c.url for c in listed], now)
        self._compare(found, listed, now)
        return [c.url for c in listed]

    def _candidates(self, span: range, now: int) -> list[Candidate]:
        of_host: dict[str, list[Candidate]] = defaultdict(list)
        levels = self.settings.levels
        for url in self.urls:
            if url.since <= now and url.host.bucket in span and url.host.backoff_until <= now:
                waited = now - url.since
                stands = aged_level(url.level, waited, STEP, levels)
                tie = (url.number * 2654435761 + now) & 0xFFFFFFFF
                score = aged_score(url.score, waited, STEP, levels)
                of_host[url.host.name].append(Candidate(stands, -score, tie, url))
        of_domain: dict[str, list[Candidate]] = defaultdict(list)
        for ranked in of_host.values():
            host = ranked[0].url.host
            of_domain[host.domain] += sorted(ranked)[: self._budget(host, now)]
        return [c for ranked in of_domain.values() for c in sorted(ranked)[: self.settings.domain_budget]]

    def _budget(self, host: Host, now: int) -> int:
        spent = host.fetched_today if host.day == now // DAY else 0
        return politeness.budget(WINDOW, host.delay, self.settings.host_budget, max(0, self.day_budget - spent))

    def _check_list(self, segment: SegmentId, listed: list[Url], now: int) -> None:
        numbers = [url.number for url in listed]
        assert len(set(numbers)) == len(numbers) and not self.live.keys() & set(numbers), f"{segment}: held twice"
        self.live |= dict.fromkeys(numbers, str(segment))
        of_host, of_domain = Counter(u.host.name for u in listed), Counter(u.host.domain for u in listed)
        assert max(of_domain.values(), default=0) <= self.settings.domain_budget, f"{segment}: domain budget"
        by_name = {url.host.name: url.host for url in listed}
        for name, count in of_host.items():
            assert count <= min(self.settings.host_budget, max(1, WINDOW / by_name[name].delay)), f"{segment}: {name}"
        loads = [selector.HostLoad(name, None, n, n * by_name[name].delay) for name, n in sorted(of_host.items())]
        tasks = selector.pack_tasks(loads, 4)
        seconds: Counter[int] = Counter()
        for load in loads:
            seconds[tasks[load.host]] += load.seconds  # type: ignore[assignment]
        longest = max([0.0, *(load.seconds for load in loads)])
        assert max(seconds.values(), default=0) <= max(1.1 * sum(seconds.values()) / 4, longest), f"{segment}: uneven"
        for url in listed:
            own = 2 * url.host.urls / min(self.day_budget, 2 * self._budget(url.host, -DAY)) * DAY
            self.report.longest_wait = max(self.report.longest_wait, now - url.since - own)

    def _compare(self, found: list[Candidate], listed: list[Candidate], now: int) -> None:
        """Our list beside strict priority and a round-robin over hosts, of the same length, by the levels URLs came
        with: where the list was cut, for elsewhere all three are the same."""
        self.report.listed += len(listed)
        self.report.by_level.update(c.url.level for c in listed)
        if len(found) == len(listed):
            return
        ours, strict = sum(c.level for c in listed), sum(sorted(c.level for c in found)[: len(listed)])
        turn_of: Counter[str] = Counter()
        places = []
        for candidate in sorted(found, key=lambda c: c.url.number):  # each host's URLs in the order they were found
            turn_of[candidate.url.host.name] += 1
            places.append((turn_of[candidate.url.host.name], candidate.url.number, candidate.level))
        round_robin = sum(place[2] for place in sorted(places)[: len(listed)])
        self.report.ours += ours
        self.report.strict += strict
        self.report.round_robin += round_robin
        self.report.cut.append((now // DAY, len(listed), ours, strict, round_robin))

    # --- what happens to it

    def _close(self, segment: SegmentId, listed: list[Url], now: int) -> None:
        if self.chance.random() < 0.05:
            return  # the turn died: its lease runs out, its URLs stay due
        for url in listed:
            host = url.host
            if host.day != now // DAY:
                host.day, host.fetched_today = now // DAY, 0
            host.fetched_today += 1
            assert host.fetched_today <= self.day_budget, f"{segment}: {host.name} spent more than its day"
            url.since, url.fresh = now + url.interval, False
            del self.live[url.number]
        owned = next(e for e in reversed(self.entries) if e.segment == str(segment))
        self._append(replace(owned, state=State.UPDATED))

    def _weather(self, now: int) -> None:
        for host in self.chance.sample(self.hosts, len(self.hosts) // 50):
            host.backoff_until = now + self.chance.randint(1, 2 * DAY)

    def _growth(self, now: int) -> None:
        """New URLs, all of them good ones: they must not keep the others waiting for ever."""
        for _ in range(self.growth):
            url = self._url(len(self.urls), self.chance.choice(self.hosts), now + HALF)
            url.score, url.level = 0.95, 1
            self.urls.append(url)

    def never_listed(self) -> int:
        """How many URLs of the first day no list has had."""
        return sum(url.fresh for url in self.urls[: self.all])

    def longest_still_waiting(self, now: int) -> float:
        """Seconds that the worst of those still due has waited, over what its host's budget explains."""
        waits = [0.0]
        for url in self.urls:
            own = 2 * url.host.urls / min(self.day_budget, 2 * self._budget(url.host, -DAY)) * DAY
            waits.append(now - url.since - own)
        return max(waits)
