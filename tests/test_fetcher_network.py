"""Addresses and names: where a connection may go, and how a name becomes an address."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from pathlib import Path

import pytest

from spindle.config import NetworkSettings, Settings
from spindle.errors import ConfigError
from spindle.fetcher.addresses import AddressRule
from spindle.fetcher.resolver import BlockedAddress, HostsFile, Lookup, NameNotFound, Resolver


@pytest.mark.parametrize(
    ("address", "public", "why"),
    [
        ("93.184.216.34", True, "an ordinary address"),
        ("2606:2800:220:1:248:1893:25c8:1946", True, "an ordinary IPv6 address"),
        ("127.0.0.1", False, "loopback"),
        ("127.255.0.9", False, "all of 127/8 is loopback"),
        ("0.0.0.0", False, "this host: connects to loopback on Linux"),
        ("10.1.2.3", False, "private"),
        ("172.31.255.255", False, "private"),
        ("192.168.1.1", False, "private"),
        ("100.64.0.1", False, "carrier-grade NAT (RFC 6598)"),
        ("169.254.169.254", False, "metadata of cloud providers"),
        ("192.0.0.192", False, "metadata of another"),
        ("198.18.0.1", False, "benchmarks"),
        ("224.0.0.1", False, "multicast"),
        ("255.255.255.255", False, "broadcast"),
        ("::1", False, "loopback"),
        ("::", False, "unspecified"),
        ("fe80::1%eth0", False, "link-local with a zone"),
        ("fd00:ec2::254", False, "metadata over IPv6: unique local"),
        ("fec0::1", False, "site-local, deprecated"),
        ("ff02::1", False, "multicast"),
        ("2001:db8::1", False, "documentation"),
        ("::ffff:127.0.0.1", False, "mapped IPv4"),
        ("::ffff:7f00:1", False, "the same in another spelling"),
        ("::ffff:93.184.216.34", True, "mapped, but public"),
        ("::127.0.0.1", False, "IPv4-compatible"),
        ("64:ff9b::7f00:1", False, "NAT64 to loopback"),
        ("64:ff9b::5db8:d822", True, "NAT64 to a public address"),
        ("64:ff9b:1::1", False, "NAT64 of a local network (RFC 8215)"),
        ("2002:7f00:1::", False, "6to4 around loopback"),
        ("2001:0:7f00:1::", False, "Teredo"),
        ("2130706433", False, "a number is no address here; the name layer has turned it into one"),
        ("nonsense", False, "what is no address is not connected to"),
    ],
)
def test_only_public_addresses(address: str, public: bool, why: str) -> None:
    assert AddressRule(()).permits(address) is public, why


def test_the_configuration_may_name_more() -> None:
    rule = AddressRule(["127.0.0.0/8", "fd00::/8", "192.168.7.1"])
    assert [rule.permits(a) for a in ("127.0.0.1", "::ffff:127.0.0.1", "fd00::1", "192.168.7.1")] == [True] * 4
    assert [rule.permits(a) for a in ("10.0.0.1", "192.168.7.2", "::1")] == [False] * 3
    with pytest.raises(ConfigError, match="allow_addresses: 'intranet'"):
        AddressRule(["intranet"])
    denying = AddressRule(["127.0.0.0/8"], ["127.9.0.0/16", "93.184.0.0/16"])
    asked = ("127.0.0.1", "127.9.0.1", "93.184.216.34", "::ffff:93.184.216.34", "1.1.1.1")
    assert [denying.permits(address) for address in asked] == [True, False, False, False, True]
    with pytest.raises(ConfigError, match=r"network\.deny_addresses: 'x'"):
        AddressRule([], ["x"])


HOSTS = """
# the world of a test
127.0.0.1:8080 a.test B.TEST
127.0.0.2      *.wild.test   # every name below
[::1]:81 six.test
::1 seven.test
"""


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("a.test", ("127.0.0.1", 8080)),
        ("b.test", ("127.0.0.1", 8080)),
        ("x.wild.test", ("127.0.0.2", None)),
        ("y.x.wild.test", ("127.0.0.2", None)),
        ("wild.test", None),
        ("six.test", ("::1", 81)),
        ("seven.test", ("::1", None)),
        ("other.test", None),
    ],
)
def test_hosts_file(name: str, target: tuple[str, int | None] | None) -> None:
    assert HostsFile.parse(HOSTS, "hosts").find(name) == target


@pytest.mark.parametrize("line", ["a.test 127.0.0.1", "127.0.0.1", "127.0.0.1:99999 a", "127.0.0.1:x a", "[::1 a"])
def test_a_hosts_file_that_makes_no_sense_names_its_line(line: str) -> None:
    with pytest.raises(ConfigError, match="my-hosts, line 2"):
        HostsFile.parse(f"127.0.0.1 ok\n{line}\n", "my-hosts")


def network(settings: Settings, **changes: object) -> NetworkSettings:
    return dataclasses.replace(settings.network, **changes)  # type: ignore[arg-type]


def resolve(
    names: list[str], settings: NetworkSettings, lookup: Lookup, now: list[float] | None = None
) -> list[object]:
    """What each name resolves to, one after the other: addresses, or the class of the error."""
    moments = iter(now or [0.0] * 1000)
    moment = [0.0]

    async def run() -> list[object]:
        rule = AddressRule(settings.allow_addresses)
        resolver = Resolver(settings, rule, timeout_s=0.2, lookup=lookup, now=lambda: moment[0])
        found: list[object] = []
        for name in names:
            moment[0] = next(moments)
            try:
                found.append([answer["host"] for answer in await resolver.resolve(name, 80)])
            except OSError as error:
                found.append(type(error))
        return found

    return asyncio.run(run())


def test_answers_and_failures_are_remembered_for_their_time(settings: Settings) -> None:
    asked: list[str] = []

    def lookup(name: str) -> list[str]:
        asked.append(name)
        if name == "none.example":
            raise OSError("no such name")
        return ["93.184.216.34"]

    limits = network(settings, dns_ttl_s=100.0, dns_negative_ttl_s=10.0)
    names = ["a.example", "A.example.", "none.example", "none.example", "none.example", "a.example", "a.example"]
    found = resolve(names, limits, lookup, [0, 50, 50, 55, 61, 99, 100])
    assert found == [["93.184.216.34"]] * 2 + [NameNotFound] * 3 + [["93.184.216.34"]] * 2
    assert asked == ["a.example", "none.example", "none.example", "a.example"]


def test_the_cache_is_bounded(settings: Settings) -> None:
    """aio-libs/aiohttp#3684: on a broad crawl the cache only grew. Here the oldest name leaves first."""
    asked: list[str] = []

    def lookup(name: str) -> list[str]:
        asked.append(name)
        return ["93.184.216.34"]

    names = [f"h{n}.example" for n in (1, 2, 3, 2, 3, 1)]
    resolve(names, network(settings, dns_max_entries=2), lookup)
    assert asked == ["h1.example", "h2.example", "h3.example", "h1.example"]


def test_a_name_server_that_never_answers_costs_only_its_own_names(settings: Settings) -> None:
    release = threading.Event()

    def lookup(name: str) -> list[str]:
        if name.startswith("dead"):
            release.wait(20)
        return ["93.184.216.34"]

    async def run() -> list[object]:
        resolver = Resolver(settings.network, AddressRule(()), timeout_s=0.5, lookup=lookup)
        names = [f"dead{n}.example" for n in range(100)] + [f"alive{n}.example" for n in range(50)]
        return await asyncio.gather(*(resolver.resolve(name, 80) for name in names), return_exceptions=True)

    try:
        found = asyncio.run(run())
    finally:
        release.set()
    assert [type(one) for one in found[:100]] == [NameNotFound] * 100
    assert [type(one) for one in found[100:]] == [list] * 50


@pytest.mark.parametrize(
    ("answers", "found", "why"),
    [
        (["10.0.0.1"], BlockedAddress, "a public name for a private address"),
        (["10.0.0.1", "93.184.216.34"], ["93.184.216.34"], "only the public one of two is used"),
        (["::ffff:169.254.169.254"], BlockedAddress, "metadata in disguise"),
        ([], NameNotFound, "no address"),
    ],
)
def test_what_a_name_answers_is_checked(settings: Settings, answers: list[str], found: object, why: str) -> None:
    assert resolve(["h.example"], settings.network, lambda _: answers) == [found], why


def test_a_label_that_idna_refuses_does_not_resolve(settings: Settings) -> None:
    """The system's resolver raises UnicodeError for it; that is no crash (C locale, label of 64 characters)."""

    def lookup(name: str) -> list[str]:
        raise UnicodeError("label too long")

    assert resolve(["a" * 64 + ".example"], settings.network, lookup) == [NameNotFound]


def test_the_hosts_file_goes_first_and_may_be_the_whole_world(settings: Settings, tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("93.184.216.35 a.example\n127.0.0.1 here.example\n", encoding="utf-8")
    lookups: list[str] = []

    def lookup(name: str) -> list[str]:
        lookups.append(name)
        return ["93.184.216.34"]

    names = ["a.example", "b.example", "here.example"]
    assert resolve(names, network(settings, hosts_file=str(path)), lookup) == [
        ["93.184.216.35"],
        ["93.184.216.34"],
        BlockedAddress,
    ]
    only = network(settings, hosts_file=str(path), hosts_file_only=True)
    assert resolve(names, only, lookup)[1] is NameNotFound
    assert lookups == ["b.example"]
    with pytest.raises(ConfigError, match="cannot read"):
        resolve(["a.example"], network(settings, hosts_file=str(tmp_path / "none")), lookup)
