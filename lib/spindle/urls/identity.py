"""Names of a normalised URL: its key, host, origin, registered domain, bucket and SURT.

Alone decides how URLs are keyed and spread over buckets. Everything here takes URLs and hosts that are in normal form
already, and looks at nothing else.
"""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path

import mmh3
import publicsuffixlist

_DOMAINS_REMEMBERED = 100_000  # hosts, about 20 MB: a page's links go to few hosts


def url_key(url: str) -> int:
    """First 64 bits, signed, of mmh3 x64-128 (seed 0) over the UTF-8 of a normalised URL (DESIGN 2)."""
    return mmh3.hash64(url)[0]


def parts(url: str) -> tuple[str, str, str]:
    """Origin, host and the rest of a normalised URL."""
    start = url.index("://") + 3
    end = url.index("/", start)
    authority = url[start:end]
    host = authority if authority.endswith("]") else authority.rsplit(":", 1)[0]
    return url[:end], host, url[end:]


def host_of(url: str) -> str:
    """Host of a normalised URL, without the port; IPv6 in brackets."""
    return parts(url)[1]


def origin_of(url: str) -> str:
    """scheme://host[:port] of a normalised URL: what one robots.txt speaks for (RFC 9309 2.3)."""
    return parts(url)[0]


def surt(url: str) -> str:
    """Sort-friendly form of a normalised URL, Heritrix's without the scheme: `(org,example,www,:8080)/path?query`.

    Addresses are not turned round. CDXJ's key is this without "(" and with ")" for ",)".
    """
    origin, host, tail = parts(url)
    port = origin[origin.index("://") + 3 + len(host) :]
    turned = host if _is_address(host) else ",".join(reversed(host.split("."))) + ","
    return f"({turned}{port}){tail}"


@lru_cache(maxsize=_DOMAINS_REMEMBERED)
def registered_domain(host: str) -> str:
    """The public suffix (private part of the list included) and one label; `*` is the rule for unknown suffixes.

    Addresses, single labels and hosts that are themselves a public suffix are their own domain.
    """
    if "." not in host or _is_address(host):
        return host
    return _suffixes().privatesuffix(host) or host


@cache
def psl_version() -> str:
    """Version line of the public suffix list in use; frozen in the warehouse, since buckets follow domains."""
    with Path(publicsuffixlist.PSLFILE).open(encoding="utf-8") as lines:
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("// VERSION:"))


def bucket_of(domain: str, buckets: int) -> int:
    """Bucket 0..buckets-1 of a registered domain; doubling `buckets` splits each bucket in two (DESIGN 1)."""
    return (mmh3.hash(domain, 0, signed=False) * buckets) >> 32


@cache
def _suffixes() -> publicsuffixlist.PublicSuffixList:
    return publicsuffixlist.PublicSuffixList()


def _is_address(host: str) -> bool:
    """Whether a normalised host is IPv4 or IPv6: a last label of digits is IPv4 (WHATWG URL 3.5)."""
    return host.endswith("]") or host.rpartition(".")[2].isdecimal()
