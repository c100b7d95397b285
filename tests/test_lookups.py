"""Hosts of a list are looked up before it is packed: at once, in bounded time, by the rule of addresses."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from rows import settings_of
from spindle import selector
from spindle.fetcher.lookups import addresses_of
from spindle.jobs import generate

SETTINGS = settings_of(network={"hosts_file_only": False, "allow_addresses": ["127.0.0.0/8", "192.0.2.0/24"]})
ANSWERS = {
    "a.test": ["192.0.2.2", "192.0.2.1"],
    "b.test": ["10.0.0.1", "192.0.2.3"],
    "inside.test": ["10.0.0.1"],
    "nowhere.test": [],
}


def script(name: str) -> list[str]:
    if name not in ANSWERS:
        raise OSError("no such name")
    return ANSWERS[name]


def test_what_is_found_is_an_address_that_may_be_connected_to() -> None:
    found = addresses_of([*ANSWERS, "unknown.test", "127.0.0.7", "[::1]"], SETTINGS, script)
    assert found == {"a.test": "192.0.2.1", "b.test": "192.0.2.3", "127.0.0.7": "127.0.0.7", "[::1]": "::1"}
    assert addresses_of([], SETTINGS, script) == {}


def test_names_of_the_hosts_file_are_not_asked(tmp_path_factory: object) -> None:
    asked: list[str] = []
    quiet = settings_of(network={"hosts_file_only": True})
    assert addresses_of(["a.test"], quiet, lambda name: asked.append(name) or ["192.0.2.1"]) == {}
    assert asked == []


def test_a_dead_name_server_costs_its_own_names_and_a_bounded_time() -> None:
    """Two hundred names never answer: the others are found, and it is over after `resolve_s`."""
    done = threading.Event()

    def slow(name: str) -> list[str]:
        if name.startswith("dead"):
            done.wait(30)
        return ["192.0.2.1"]

    hurried = replace(SETTINGS, generate=replace(SETTINGS.generate, resolve_s=1.0))
    begun = time.monotonic()
    found = addresses_of([f"dead{n}.test" for n in range(200)] + ["a.test", "b.test"], hurried, slow)
    done.set()
    assert found == {"a.test": "192.0.2.1", "b.test": "192.0.2.1"}
    assert time.monotonic() - begun < 25, "not until the dead ones have answered"


def test_those_with_most_to_do_are_asked_and_no_more_than_the_limit(monkeypatch: object) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(generate, "addresses_of", lambda hosts, _: asked.append(list(hosts)) or {})  # type: ignore[attr-defined]
    loads = [selector.HostLoad(f"h{n}.test", None, n, float(n)) for n in range(5)]
    loads.append(selector.HostLoad("known.test", "192.0.2.9", 99, 99.0))
    for limit in (2, 0, 9):
        assert generate.looked_up(loads, settings_of(generate={"resolve_hosts": limit})) == {}
    assert asked == [["h4.test", "h3.test"], [f"h{n}.test" for n in (4, 3, 2, 1, 0)]]
