"""The brake: what forms URLs have, when a form shows one content, and what that makes of traps that have no end."""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rows import NOW, ago, settings_of
from spindle import brakes, fingerprint, html, urls
from spindle.brakes import Form, NewPage, braked, forms_of, learned, pattern_of, reason
from spindle.demo import build_world
from spindle.demo.model import Host, World
from spindle.demo.traps import trap_of, trap_page

RULES = settings_of().brake
HOST = "h.test"

FORMS = [
    ("/", ("/",)),
    ("/about", ("/about",)),
    ("/?id=3", ("/?",)),
    ("/calendar/2024/01", ("/calendar/#/#", "/calendar/*")),
    ("/calendar/2024/01?view=2", ("/calendar/#/#?", "/calendar/*")),
    ("/browse?brand=1&size=2", ("/browse?",)),
    ("/2024/01/an-article", ("/#/#/an-article",)),
    ("/s/8f3a9c/page", ("/s/#/page", "/s/*")),
    ("/a/b/c/d", ("/a/b/c/d", "/a/*")),
    ("/item-17.html", ("/#",)),
    ("/blog/", ("/blog/", "/blog/*")),
]


@pytest.mark.parametrize(("path", "forms"), FORMS)
def test_forms(path: str, forms: tuple[str, ...]) -> None:
    for start in ("http://h.test", "https://h.test:8443"):
        assert forms_of(f"{start}{path}") == forms


MATCHES = [
    ("/calendar/#/#", "/calendar/1/2", True),
    ("/calendar/#/#", "/calendar/1/2?x=1", False),
    ("/calendar/#/#", "/calendar/1/2/3", False),
    ("/calendar/#/#", "/calendar/a/2", False),
    ("/calendar/#/#", "/x/calendar/1/2", False),
    ("/browse?", "/browse?a", True),
    ("/browse?", "/browse", False),
    ("/calendar/*", "/calendar/", True),
    ("/calendar/*", "/calendars/1", False),
    ("/a.b+c", "/a.b+c", True),
    ("/a.b+c", "/aXb+c", False),
]


@pytest.mark.parametrize(("form", "path", "matches"), MATCHES)
def test_patterns(form: str, path: str, matches: bool) -> None:
    assert bool(re.search(pattern_of(form), f"http://h.test:80{path}")) == matches


@given(st.lists(st.text("ab1-._~%$+", max_size=4), max_size=5), st.none() | st.text("a=1&", max_size=5))
def test_a_url_matches_the_patterns_of_its_own_forms(segments: list[str], query: str | None) -> None:
    url = f"http://h.test/{'/'.join(segments)}" + ("" if query is None else f"?{query}")
    for form in forms_of(url):
        assert re.search(pattern_of(form), url), form


# --- the law


def pages_of(count: int, simhash: Callable[[int], int | None], copies: int = 0, path: str = "/x/{n}") -> list[NewPage]:
    """`copies`: so many have the bytes of a page before them."""
    contents = ["same" if n <= copies and copies else f"c{n}" for n in range(count)]
    return [NewPage(HOST, 0, f"http://h.test{path.format(n=100 + n)}", simhash(n), contents[n]) for n in range(count)]


def far(number: int) -> int:
    """SimHashes at 32 bits of each other, as those of different pages are."""
    return fingerprint.simhash(f"words of page {number} that no other page of {number * 7919} has said in {number}")


LAW = [
    # new pages, their SimHashes, exact copies; pages and copies noted (None: nothing); braked; why
    (30, lambda n: 5, 0, (30, 29), True, "thirty pages of one content"),
    (20, lambda n: 5, 0, (20, 19), True, "just enough"),
    (19, lambda n: 5, 0, (19, 18), False, "one page less than `brake.pages`"),
    (30, lambda n: 0xFF if n % 2 else 0, 0, (30, 29), True, "eight bits apart: a date and an advertisement"),
    (30, lambda n: None, 29, (30, 29), True, "too short for a SimHash, but the same bytes"),
    (30, lambda n: None, 0, None, False, "short texts all look alike: no proof of anything"),
    (30, far, 0, None, False, "thirty different pages"),
    (30, far, 20, (30, 20), False, "a third of them is new"),
    (30, far, 21, (30, 21), True, "seven in ten are copies"),
    (5, lambda n: 5, 0, None, False, "too few to be noted"),
]


@pytest.mark.parametrize(("count", "simhash", "copies", "noted", "held", "why"), LAW)
def test_the_law(
    count: int,
    simhash: Callable[[int], int | None],
    copies: int,
    noted: tuple[int, int] | None,
    held: bool,
    why: str,
) -> None:
    found = learned([], pages_of(count, simhash, copies), RULES, "a.1of1", NOW)
    assert {(form.form, form.pages, form.copies) for form in found} == (
        set() if noted is None else {("/x/#", *noted), ("/x/*", *noted)}
    ), why
    assert set(braked(found, RULES, NOW)) == ({HOST} if held else set()), why


def test_different_pages_are_far_apart() -> None:
    """The ground under `far` and `brake.bits`."""
    hashes = [far(n) for n in range(30)]
    assert min(fingerprint.distance(a, b) for a in hashes for b in hashes if a != b) > RULES.bits


def test_evidence_adds_up_over_turns_and_a_rerun_adds_nothing() -> None:
    first = learned([], pages_of(12, lambda n: 5), RULES, "a.1of1", ago(99))
    assert braked(first, RULES, NOW) == {}
    assert learned(first, pages_of(12, lambda n: 5), RULES, "a.1of1", ago(99)) == []
    second = learned(first, pages_of(9, lambda n: 6), RULES, "b.1of1", NOW)
    assert {(form.pages, form.copies, form.first_at, form.last_at) for form in second} == {(21, 20, ago(99), NOW)}
    [forms] = braked(second, RULES, NOW).values()
    assert reason(forms[0]) == (
        "20 of 21 new pages of h.test/x/# showed what another of them had shown since 2026-11-30, http://h.test/x/108 "
        "the last"
    )


def test_a_brake_runs_out_and_is_learned_anew() -> None:
    held = learned([], pages_of(30, lambda n: 5), RULES, "a.1of1", NOW)
    end = NOW + datetime.timedelta(seconds=RULES.keep_s)
    assert braked(held, RULES, end - datetime.timedelta(seconds=1)) and not braked(held, RULES, end)
    again = learned(held, pages_of(6, lambda n: 5), RULES, "b.1of1", end)
    assert {(form.pages, form.copies) for form in again} == {(6, 5)}


def test_no_brake_at_all() -> None:
    held = learned([], pages_of(30, lambda n: 5), RULES, "a.1of1", NOW)
    assert braked(held, dataclasses.replace(RULES, pages=0), NOW) == {}


def test_a_row_of_the_table_comes_back_as_it_was() -> None:
    [form, _] = learned([], pages_of(30, far, 25), RULES, "a.1of1", NOW)
    row = dataclasses.asdict(form)
    assert brakes.of_row({**row, "leaders": list(form.leaders)}) == form
    assert brakes.of_row({**row, "leaders": None, "first_at": None}) == dataclasses.replace(
        form, leaders=(), first_at=None
    )


# --- the traps of the demo web

BUDGET = 200  # URLs of the host a turn; in twelve turns a crawler without a brake loses 2,400 in a trap


def page_at(world: World, host: Host, url: str) -> str | None:
    path, _, query = url.removeprefix(f"http://{host.name}").partition("?")
    return trap_page(world, host, path, query, 0, 0)


def turn_by_turn(world: World, host: Host, entries: list[str], others: list[str], brake: bool) -> tuple[int, set[str]]:
    """Turns of a crawl of one host, best first by depth: how many pages inside its trap it costs, and which others it
    has fetched. `others` are pages that turn up one a turn, behind everything the trap has brought so far."""
    frontier, known, inside, fetched = list(entries), set(entries), 0, set()
    forms: dict[str, Form] = {}
    for turn in range(12):
        frontier += others[turn::12]
        now = NOW + datetime.timedelta(days=turn)
        held = [re.compile(pattern_of(f.form)) for f in braked(forms.values(), RULES, now).get(host.name, ())]
        wanted = [url for url in frontier if not (brake and any(pattern.search(url) for pattern in held))]
        batch, pages = wanted[:BUDGET], []
        frontier = [url for url in frontier if url not in set(batch)]
        for url in batch:
            fetched.add(url)
            body = page_at(world, host, url)
            text = f"a page like no other, {url}, " * 9 if body is None else ""
            page = None if body is None else html.parse_page(body.encode(), url, "text/html; charset=utf-8")
            inside += page is not None
            pages.append(NewPage(host.name, 0, url, fingerprint.simhash(page.text or "" if page else text), None))
            new = [link.url for link in (page.links if page else ()) if urls.host_of(link.url) == host.name]
            new = [url for url in new if trap_of(world, url) and url not in known]
            known |= set(new)
            frontier += new
        forms |= {form.form: form for form in learned(forms.values(), pages, RULES, f"t{turn}.1of1", now)}
    return inside, fetched


TRAPS = [
    # trap, where it is entered, fetches that a crawler without a brake loses there in twelve turns
    ("calendar", [f"/calendar/{year}/{month:02d}" for year in range(2025, 2033) for month in range(1, 13)], 97),
    ("facets", ["/browse?brand=1"], 2000),
]


@pytest.mark.parametrize(("trap", "entries", "lost"), TRAPS)
def test_an_endless_trap_costs_a_few_hundred_fetches_and_the_rest_goes_on(
    trap: str, entries: list[str], lost: int
) -> None:
    """Two traps whose URLs have no bad shape: months for ever (a sitemap names the first hundred), and 78,124 ways to
    combine facets."""
    world = build_world(seed=1)
    [host] = [host for host in world.hosts.values() if trap in host.traps]
    others = [f"http://{host.name}/other-{letter}" for letter in "abcdefghijklmnopqrstuvwx"]
    inside = [f"http://{host.name}{entry}" for entry in entries]
    cost, fetched = turn_by_turn(world, host, inside, others, brake=True)
    assert 20 <= cost <= 300
    assert set(others) <= fetched, "pages of other forms are fetched, however many URLs the trap had brought before"
    assert turn_by_turn(world, host, inside, others, brake=False)[0] >= max(lost, cost + 1)
