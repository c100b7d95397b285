"""One URL, or one robots.txt, asked as a fetch task would ask it, and told in full. Nothing is stored.

For people who want to know why a page does not come: the parts are those of a task, in a straight line.
"""

from __future__ import annotations

import asyncio
from typing import Any

from spindle import coding, urls
from spindle.config import Settings
from spindle.fetcher.addresses import AddressRule
from spindle.fetcher.answer import Answer
from spindle.fetcher.client import Client
from spindle.fetcher.gate import Gate, Probe, first_probe
from spindle.fetcher.listing import steady_clock
from spindle.fetcher.resolver import Resolver
from spindle.fetcher.rows import Origin, Page, describe, fetch_row, judge, redirect_target, robots_row, wanted_types
from spindle.outcome import Outcome
from spindle.politeness import gap_s

_NOWHERE = Origin("", 0, 0, None)
_SHOWN = (
    *("url", "outcome", "error", "http_status", "redirect_to", "content_type", "truncated", "started_at"),
    *("duration_ms", "ttfb_ms", "ip", "wire_bytes", "body_bytes", "content_hash", "etag", "last_modified"),
    *("x_robots_tag", "retry_after_s"),
)


async def fetch_one(url: str, settings: Settings) -> dict[str, Any]:
    """What fetching a normalised URL gives: the row's columns that say something, and `body` (content-decoded).

    robots.txt first, then the host's gap, then the page. A redirect is told, not followed.
    """
    async with _client(settings) as client:
        gate = _gate(settings)
        robots = await _ask_robots(client, gate, url, settings)
        refusal = gate.refusal(urls.origin_of(url), url)
        if refusal is not None:
            return {"url": url, "outcome": refusal.value, "error": robots["error"], "robots": robots["verdict"]}
        await asyncio.sleep(_gap(settings, robots["crawl_delay_s"]))
        limits = settings.fetch
        answer = await client.get(url, max_bytes=limits.max_body_bytes, wanted=wanted_types(limits), last=True)
    told = _told(url, answer, settings)
    return {**told, "robots": robots["verdict"], "body": _plain(answer, settings)}


async def fetch_robots(url: str, settings: Settings) -> dict[str, Any]:
    """What the robots.txt in force for a normalised URL says: `allowed`, the verdict, delay, sitemaps and its text."""
    async with _client(settings) as client:
        gate = _gate(settings)
        row = await _ask_robots(client, gate, url, settings)
    shown = ("origin", "verdict", "http_status", "error", "crawl_delay_s", "sitemaps", "expires_at", "body_hash")
    refusal = gate.refusal(urls.origin_of(url), url)
    told = {"url": url, "allowed": refusal is None, "agent": settings.agent.token}
    return {**told, **{name: row[name] for name in shown}, "body": (row["body"] or "").encode()}


async def _ask_robots(client: Client, gate: Gate, url: str, settings: Settings) -> dict[str, Any]:
    origin, host = urls.origin_of(url), urls.host_of(url)
    probe: Probe | None = first_probe(origin, host, 0)
    while probe is not None:
        answer = await client.get(probe.url, max_bytes=settings.robots.max_bytes)
        last, probe = probe, gate.next_probe(probe, answer)
        if probe is not None:
            await asyncio.sleep(_gap(settings, None))
    row = robots_row(_NOWHERE, origin, host, 0, answer.started_at)
    gate.learn(last, answer, row)
    return row


def _told(url: str, answer: Answer, settings: Settings) -> dict[str, Any]:
    page = Page(urls.url_key(url), url, urls.host_of(url), 0, None, None)
    content = judge(answer, page, settings.fetch)
    row = fetch_row(_NOWHERE, page, content.outcome, content.error)
    describe(row, answer, content)
    if content.outcome is Outcome.REDIRECT:
        row["redirect_to"], row["error"] = redirect_target(answer, urls.Normalizer(settings.url))
    return {name: row[name] for name in _SHOWN}


def _plain(answer: Answer, settings: Settings) -> bytes:
    limits = settings.fetch
    encoding = answer.header(b"content-encoding")
    return coding.decode(answer.body, encoding, limits.max_decoded_bytes, limits.max_decode_ratio).body


def _gap(settings: Settings, crawl_delay_s: float | None) -> float:
    return gap_s(settings.politeness, crawl_delay_s=crawl_delay_s)


def _gate(settings: Settings) -> Gate:
    normalizer = urls.Normalizer(settings.url)
    return Gate(settings.robots, settings.agent.token, normalizer, settings.fetch.max_decode_ratio)


def _client(settings: Settings) -> Client:
    rule = AddressRule(settings.network.allow_addresses, settings.network.deny_addresses)
    resolver = Resolver(settings.network, rule, timeout_s=settings.fetch.connect_timeout_s)
    return Client(settings, resolver, rule, steady_clock())
