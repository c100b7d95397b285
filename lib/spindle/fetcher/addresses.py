"""Which addresses may be connected to: the public internet, and what the configuration names.

This file alone decides; values in, values out. Whoever resolves a name or opens a socket asks here, so a name that
answers differently the second time (rebinding) gains nothing.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache

from spindle.errors import ConfigError

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network

#: Not for the public, by the IANA special-purpose registries. `is_global` of the standard library knows most of them,
#: but which ones depends on its patch level; the list makes the verdict the same everywhere.
_SPECIAL_TEXT = """
    0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24
    192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4
    ::/128 ::1/128 64:ff9b:1::/48 100::/64 2001::/23 2001:db8::/32 3fff::/20 5f00::/16 fc00::/7 fe80::/10
    fec0::/10 ff00::/8"""
_SPECIAL = tuple(ipaddress.ip_network(text) for text in _SPECIAL_TEXT.split())
_NAT64 = ipaddress.ip_network("64:ff9b::/96")  # RFC 6052
_TRANSLATED = ipaddress.ip_network("::/96")  # IPv4-compatible, deprecated (RFC 4291 2.5.5.1)


class AddressRule:
    """The rule of one configuration. `allowed` and `denied` are networks in CIDR form; what is denied wins.

    Raises:
        ConfigError: a text that is no network.
    """

    def __init__(self, allowed: Iterable[str], denied: Iterable[str] = ()) -> None:
        self._allowed = tuple(_network(text, "allow_addresses") for text in allowed)
        self._denied = tuple(_network(text, "deny_addresses") for text in denied)
        self.permits = lru_cache(65536)(self._permits)  # asked once a connection, mostly about the same few

    def _permits(self, address: str) -> bool:
        """Whether a connection to this address (text, a zone id aside) may be opened."""
        try:
            ip = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        candidates = (ip, *_embedded(ip))
        if any(one in network for one in candidates for network in self._denied):
            return False
        if any(one in network for one in candidates for network in self._allowed):
            return True
        return all(one.is_global and not any(one in network for network in _SPECIAL) for one in candidates)


def _embedded(ip: _Address) -> tuple[_Address, ...]:
    """IPv4 addresses that an IPv6 address stands for: mapped, compatible, NAT64, 6to4, Teredo."""
    if isinstance(ip, ipaddress.IPv4Address):
        return ()
    found: list[_Address] = []
    if ip.ipv4_mapped:
        return (ip.ipv4_mapped,)
    if ip in _NAT64 or ip in _TRANSLATED:
        found.append(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF))
    if ip.sixtofour:
        found.append(ip.sixtofour)
    if ip.teredo:
        found.extend(ip.teredo)
    return tuple(found)


def _network(text: str, key: str) -> _Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise ConfigError(f"network.{key}: {text!r} is not a network such as 10.0.0.0/8 ({error})") from None
