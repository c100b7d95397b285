"""Where the hosts of a list are, asked before it is packed: many names at once and within a span of time.

What is not known in time counts as unknown; a fetch asks again. How one name is asked is `resolver`'s business.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import Iterable

from spindle.config import Settings
from spindle.fetcher.addresses import AddressRule
from spindle.fetcher.resolver import Lookup, Resolver


def addresses_of(hosts: Iterable[str], settings: Settings, lookup: Lookup | None = None) -> dict[str, str]:
    """Host -> one address that may be connected to: of several the smallest, so that their order does not matter.

    Hosts without an answer within `generate.resolve_s`, and those with none that is allowed, are left out.
    """
    rule = AddressRule(settings.network.allow_addresses, settings.network.deny_addresses)
    resolver = Resolver(settings.network, rule, timeout_s=settings.fetch.connect_timeout_s, lookup=lookup)
    return asyncio.run(_asked(list(hosts), resolver, settings.generate.resolve_s))


async def _asked(hosts: list[str], resolver: Resolver, within_s: float) -> dict[str, str]:
    found: dict[str, str] = {}

    async def ask(host: str) -> None:
        with contextlib.suppress(OSError):  # no such name, or at no address that is allowed
            found[host] = min(answer["host"] for answer in await resolver.resolve(host))

    asked = []
    for host in hosts:
        if (literal := _literal(host)) is not None:
            found[host] = literal
        else:
            asked.append(asyncio.create_task(ask(host)))
    if asked:
        _, late = await asyncio.wait(asked, timeout=within_s)
        for one in late:
            one.cancel()
        await asyncio.gather(*late, return_exceptions=True)
    await resolver.close()
    return found


def _literal(host: str) -> str | None:
    """The address that a host is spelled as, such as 192.0.2.1 or [::1]."""
    try:
        return str(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        return None
