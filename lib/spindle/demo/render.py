"""From a resource to its bytes at a tick: HTML pages, sitemaps, robots.txt, files.

Decides what a body looks like; not when it is sent, nor under which status (`respond`). Pure: the same world, resource
and tick give the same bytes, so a validator made of (resource, time of last change) is honest.
"""

from __future__ import annotations

import gzip
import random
from datetime import UTC, datetime, timedelta
from html import escape

from spindle.demo import words
from spindle.demo.model import Coding, Host, Kind, Link, Resource, Robots, World

#: Tick 0 of every world; a tick is an hour in `Last-Modified` and `lastmod`, whatever it is on the server's clock.
EPOCH = datetime(2024, 1, 1, tzinfo=UTC)
_STYLE = "body{max-width:46em;margin:auto;font:17px/1.5 serif}nav li{display:inline;margin-right:1em}"
_INLINE_LINKS = 4  # so many links stand in the text of an article, the rest in the list below it
_FILES = {"application/pdf": b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n", "image/png": b"\x89PNG\r\n\x1a\n"}


def modified(changed_at: int) -> datetime:
    """When a content that dates from this tick was last modified."""
    return EPOCH + timedelta(hours=changed_at)


def body(world: World, host: Host, resource: Resource, tick: int, visit: int = 0) -> bytes:
    """The body of a 200 answer, before any content coding. `visit` counts requests: session ids are made of it."""
    if resource.copy_of:
        source_host, source = world.resource(resource.copy_of)
        return body(world, source_host, source, tick, visit)
    if resource.empty:
        return b""
    if resource.kind is Kind.FILE:
        return _FILES.get(resource.content_type, b"").ljust(resource.size, b"\n")
    if resource.kind is Kind.SITEMAP:
        return sitemap(world, host, resource, tick)
    return (resource.coding or host.coding).encode(page(world, host, resource, tick, visit))


def page(world: World, host: Host, resource: Resource, tick: int, visit: int = 0) -> str:
    """The HTML of a page, as text."""
    links = world.outlinks(host, resource, tick)[len(host.nav) :]
    if resource.trap in ("session", "path_session"):
        links = [_with_session(link, resource.trap, session_id(world, host, visit, i)) for i, link in enumerate(links)]
    article = _article(host.name, _text(world, host, resource, tick), links)
    if resource.period:
        article += f'<p class="stamp">Updated in hour {resource.changed_at(tick)}.</p>\n'
    heading = f"<h1>{escape(resource.title)}</h1>\n<p class=byline>{escape(host.title)}, {EPOCH:%d %B %Y}</p>\n"
    return document(host, resource, f"<article>\n{heading}{article}</article>\n")


def document(host: Host, resource: Resource, main: str) -> str:
    """A whole document: head, navigation, `main`, footer."""
    nav = "".join(f"<li>{anchor(host.name, link)}</li>" for link in host.nav)
    return (
        f'<!DOCTYPE html>\n<html lang="{host.lang}">\n<head>\n{_head(host, resource)}</head>\n<body>\n'
        f'<header><p class="logo">{escape(host.title)}</p>\n<nav><ul>{nav}</ul></nav></header>\n'
        f"<main>\n{main}</main>\n"
        f'<footer><p>{escape(host.title)} <a href="mailto:editor@{host.name}">Write to us</a> '
        '<a href="javascript:window.print()">Print</a> <a href="#top">Top</a></p></footer>\n</body>\n</html>\n'
    )


def anchor(own_host: str, link: Link) -> str:
    """The `a` element of a link: root-relative on its own host, so that a mirror's bytes can be the same."""
    href = link.href or (link.path if link.host == own_host else link.url)
    rel = ' rel="nofollow"' if link.nofollow else ""
    return f'<a href="{escape(href)}"{rel}>{escape(link.anchor)}</a>'


def session_id(world: World, host: Host, visit: int, position: int) -> str:
    """A session id that no other answer of this host has: 16 hexadecimal digits."""
    return f"{random.Random(f'{world.seed}/{host.name}/{visit}/{position}').getrandbits(64):016x}"


def _with_session(link: Link, trap: str, session: str) -> Link:
    """The link with a new session in it: as a parameter, or as the first two segments of the path."""
    href = f"{link.path}?sid={session}" if trap == "session" else f"/s/{session}{link.path}"
    return Link(link.host, link.path, link.anchor, href, link.nofollow)


def _head(host: Host, resource: Resource) -> str:
    coding: Coding = resource.coding or host.coding
    lines = []
    if coding.meta and coding.http_equiv:
        lines.append(f'<meta http-equiv="Content-Type" content="text/html; charset={coding.meta}">')
    elif coding.meta:
        lines.append(f'<meta charset="{coding.meta}">')
    lines.append(f"<title>{escape(resource.title)}</title>")
    lines.append(f'<meta name="description" content="{escape(resource.description)}">')
    lines += [f'<meta name="{name}" content="{content}">' for name, content in resource.meta_robots]
    lines += [f'<link rel="canonical" href="{escape(resource.canonical)}">'] if resource.canonical else []
    return "\n".join([*lines, f"<style>{_STYLE}</style>", ""])


def _text(world: World, host: Host, resource: Resource, tick: int) -> list[str]:
    """The paragraphs. A near copy has its source's, with one word replaced in each of the first `edits`."""
    if resource.near_of:
        texts = _text(world, *world.resource(resource.near_of), tick)
        rng = random.Random(f"{world.seed}/{host.name}{resource.path}/edits")
        return [words.edited(text, rng, 1) if i < resource.edits else text for i, text in enumerate(texts)]
    version = 0 if resource.stamp_only else resource.changed_at(tick)
    rng = random.Random(f"{world.seed}/{host.name}{resource.path}/{version}")
    return words.paragraphs(rng, host.lang, resource.paragraphs)


def _article(own_host: str, texts: list[str], links: list[Link]) -> str:
    """Paragraphs with the first links inside them, and the other links as a list."""
    inline = links[: min(_INLINE_LINKS, len(texts))] if len(texts) > 1 else []
    tails = [f" ({anchor(own_host, link)})" for link in inline] + [""] * len(texts)
    prose = "".join(f"<p>{escape(text, quote=False)}{tail}</p>\n" for text, tail in zip(texts, tails, strict=False))
    rest = "".join(f"<li>{anchor(own_host, link)}</li>\n" for link in links[len(inline) :])
    return prose + (f"<aside><ul>\n{rest}</ul></aside>\n" if rest else "")


def sitemap(world: World, host: Host, resource: Resource, tick: int) -> bytes:
    """A urlset or a sitemap index, gzip'd when its path ends in `.gz` (sitemaps.org protocol 0.9)."""
    outer, inner = ("sitemapindex", "sitemap") if resource.sitemap_index else ("urlset", "url")
    lines = [f'<?xml version="1.0" encoding="UTF-8"?>\n<{outer} xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">']
    for path in resource.lists:
        listed = host.resources[path]
        lastmod = modified(world.changed_at(listed, tick)).isoformat().replace("+00:00", "Z")
        location = escape(f"http://{host.name}{path}")
        if listed.alive(tick):
            lines.append(f"<{inner}><loc>{location}</loc><lastmod>{lastmod}</lastmod></{inner}>")
    text = "\n".join([*lines, f"</{outer}>", ""]).encode()
    return gzip.compress(text, 6, mtime=0) if resource.path.endswith(".gz") else text


def robots_txt(host: Host, robots: Robots) -> bytes:
    """The text of robots.txt (RFC 9309 2.2; Crawl-delay and Sitemap are common extensions)."""
    lines = [f"# robots.txt of {host.name}"]
    for group in robots.groups:
        lines += ["", *(f"User-agent: {agent}" for agent in group.agents)]
        lines += [f"{'Allow' if allow else 'Disallow'}: {pattern}" for allow, pattern in group.rules]
        lines += [f"Crawl-delay: {group.crawl_delay_s:g}"] if group.crawl_delay_s is not None else []
    lines += ["", *(f"Sitemap: http://{host.name}{path}" for path in robots.sitemaps)]
    return "\n".join([*lines, ""]).encode()
