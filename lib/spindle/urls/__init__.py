"""What a URL is to Spindle: its one spelling, its key, its host, domain and bucket.

These four files alone decide which spellings are one URL and which are none. They know nothing of what is in scope,
allowed by robots.txt or worth fetching. `whatwg` does what a browser does, `policy` what a crawler adds to it,
`normalizer` both of them fast, `identity` names what is normal: keys, hosts, domains, buckets.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from spindle import config
from spindle.defaults import default_layer
from spindle.errors import UrlRejected
from spindle.urls.identity import (
    bucket_of,
    host_of,
    origin_of,
    psl_version,
    registered_domain,
    surt,
    url_key,
)
from spindle.urls.normalizer import Normalizer, Target
from spindle.urls.policy import NORMALIZATION_VERSION, normalize_host, policy_digest
from spindle.urls.whatwg import REJECT_REASONS, escape_bytes, resolve

__all__ = [
    "NORMALIZATION_VERSION",
    "REJECT_REASONS",
    "Normalizer",
    "Target",
    "UrlRejected",
    "bucket_of",
    "escape_bytes",
    "host_of",
    "normalize",
    "normalize_host",
    "normalize_links",
    "origin_of",
    "policy_digest",
    "psl_version",
    "registered_domain",
    "resolve",
    "surt",
    "url_key",
]


@cache
def _shipped() -> Normalizer:
    return Normalizer(config.build([default_layer()]).url)


def normalize(url: str, base: str | None = None) -> str:
    """`Normalizer.normalize` under the shipped defaults.

    Raises:
        UrlRejected: with one of REJECT_REASONS.
    """
    return _shipped().normalize(url, base)


def normalize_links(hrefs: Sequence[str], base: str, encoding: str = "utf-8") -> list[Target | UrlRejected]:
    """`Normalizer.links` under the shipped defaults."""
    return _shipped().links(hrefs, base, encoding)
