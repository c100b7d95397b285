"""What the demo web answers to a request: status, headers, body, and how the wire should misbehave.

Decides, and does nothing: `visits` (requests so far by host and path) and `tick` come in, an `Answer` goes out. It
knows neither sockets nor clocks. Conditional requests follow RFC 9110 section 13: a 304 is given only when the body
that a 200 would carry is the one that the validator names.
"""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import format_datetime, parsedate_to_datetime

from spindle.demo import render, traps
from spindle.demo.model import TRACKING, UTF8, Host, Kind, Link, Resource, World

Headers = list[tuple[str, str]]
Visits = Counter[tuple[str, str]]
_HTML = "text/html; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Request:
    """A request as the server read it: header names in lower case, `target` as sent."""

    method: str
    host: str
    target: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer. `cut`: promise the whole length, send half, close."""

    status: int
    headers: Headers = field(default_factory=list)
    body: bytes = b""
    delay_s: float = 0.0
    cut: bool = False
    chunked: bool = False


def respond(world: World, visits: Visits, request: Request, tick: int) -> Answer:
    """The answer to a request. Counts it in `visits`, which pages that heal and session ids depend on."""
    host = world.hosts.get(request.host)
    if host is None:
        return _farm(world, request)
    path = plain(request.target)
    visits[host.name, path] += 1
    visits[host.name, ""] += 1
    answer = _of_path(world, host, visits, request, path, tick)
    return _dressed(host, answer, request)


def plain(target: str) -> str:
    """The path and query that name a resource: no fragment, no tracking parameters, the query sorted."""
    path, _, query = target.partition("#")[0].partition("?")
    kept = sorted(pair for pair in query.split("&") if pair and pair.partition("=")[0] not in TRACKING)
    return f"{path}?{'&'.join(kept)}" if kept else path


def _farm(world: World, request: Request) -> Answer:
    root = next(iter(world.hosts.values()))
    if not world.farm or not request.host.endswith("." + world.farm):
        return _text(421, f"no host {request.host!r} here")
    if request.target == "/robots.txt":
        return _text(404, "not found")
    return Answer(200, [("Content-Type", _HTML)], traps.farm_page(world, root, request.host).encode())


def _of_path(world: World, host: Host, visits: Visits, request: Request, path: str, tick: int) -> Answer:
    if path == "/robots.txt":
        return _robots(host)
    resource = host.resources.get(path)
    if resource is None:
        return _trap_or_missing(world, host, path, tick, visits[host.name, ""])
    if resource.born > tick:
        return _missing(host, 404)
    if not resource.alive(tick):
        return _missing(host, 410)
    if visits[host.name, path] <= resource.failing:
        return _failing(resource)
    if resource.kind is Kind.REDIRECT and resource.location:
        return _redirect(host, resource, resource.location)
    if resource.status != 200:
        return _failing(resource) if resource.status >= 500 else _missing(host, resource.status)
    return _content(world, host, resource, request, tick, visits[host.name, ""])


def _content(world: World, host: Host, resource: Resource, request: Request, tick: int, visit: int) -> Answer:
    validators = _validators(world, host, resource, tick)
    if _is_current(request.headers, dict(validators)):
        return Answer(304, validators)
    headers = [("Content-Type", _content_type(world, host, resource)), *validators]
    if resource.x_robots_tag:
        headers.append(("X-Robots-Tag", resource.x_robots_tag))
    return Answer(200, headers, render.body(world, host, resource, tick, visit), cut=resource.cut)


def _content_type(world: World, host: Host, resource: Resource) -> str:
    if resource.content_type:
        return resource.content_type
    if resource.kind is Kind.SITEMAP:
        return "application/gzip" if resource.path.endswith(".gz") else "application/xml"
    if resource.copy_of:
        return _content_type(world, *world.resource(resource.copy_of))
    coding = resource.coding or host.coding
    return f"text/html; charset={coding.header}" if coding.header else "text/html"


def _validators(world: World, host: Host, resource: Resource, tick: int) -> Headers:
    """ETag and Last-Modified as the host gives them; none where an answer differs at each visit, or with the clock."""
    if resource.trap in (traps.SESSION_TRAP, traps.PATH_SESSION) or resource.kind is Kind.SITEMAP:
        return []
    changed = world.changed_at(resource, tick)
    name = zlib.crc32(f"{world.seed}/{host.name}{resource.path}".encode())
    headers = [] if host.validators in ("none", "modified") else [("ETag", f'"{changed}-{name:08x}"')]
    if host.validators in ("both", "modified"):
        headers.append(("Last-Modified", format_datetime(render.modified(changed), usegmt=True)))
    return headers


def _is_current(asked: Mapping[str, str], validators: dict[str, str]) -> bool:
    """If-None-Match decides alone where it is given (RFC 9110 13.2.2); comparison is weak (13.1.2)."""
    if "if-none-match" in asked:
        given = {tag.strip().removeprefix("W/") for tag in asked["if-none-match"].split(",")}
        return "ETag" in validators and bool({"*", validators["ETag"]} & given)
    if "if-modified-since" not in asked or "Last-Modified" not in validators:
        return False
    since, known = _http_date(asked["if-modified-since"]), _http_date(validators["Last-Modified"])
    return since is not None and known is not None and known <= since


def _http_date(text: str) -> datetime | None:
    """An HTTP date, or None where the text is none: RFC 9110 13.1.3 has a bad one ignored."""
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    return date if date.tzinfo else None


def _robots(host: Host) -> Answer:
    if host.robots.moved_to:
        return Answer(301, [("Location", host.robots.moved_to)])
    if host.robots.status != 200:
        return _text(host.robots.status, "no robots.txt")
    return Answer(200, [("Content-Type", "text/plain")], render.robots_txt(host, host.robots))


def _trap_or_missing(world: World, host: Host, path: str, tick: int, visit: int) -> Answer:
    if host.robots.moved_to and path == host.robots.moved_to:
        return Answer(200, [("Content-Type", "text/plain")], render.robots_txt(host, host.robots))
    html = traps.trap_page(world, host, *path.partition("?")[::2], tick, visit)
    if html is None:
        return _missing(host, 404)
    return Answer(200, [("Content-Type", _HTML)], html.encode())


def _redirect(host: Host, resource: Resource, to: Link) -> Answer:
    location = to.path if resource.relative_location and to.host == host.name else to.href or to.url
    return Answer(resource.status, [("Location", location), ("Content-Type", _HTML)], b"<p>Moved.</p>\n")


def _failing(resource: Resource) -> Answer:
    answer = _text(resource.failing_status if resource.failing else resource.status, "try again later")
    if resource.retry_after:
        answer.headers.append(("Retry-After", resource.retry_after))
    return answer


def _missing(host: Host, status: int) -> Answer:
    words = {404: "Not found", 410: "Gone"}.get(status, "No")
    html = render.document(host, Resource("", title=f"{words}: {host.title}", coding=UTF8), f"<h1>{words}</h1>\n")
    return Answer(status, [("Content-Type", _HTML)], html.encode())


def _text(status: int, text: str) -> Answer:
    return Answer(status, [("Content-Type", "text/plain; charset=utf-8")], f"{text}\n".encode())


def _dressed(host: Host, answer: Answer, request: Request) -> Answer:
    """The answer as this host sends it: late, compressed or in chunks."""
    squeeze = host.gzip and answer.body and "gzip" in request.headers.get("accept-encoding", "")
    body = gzip.compress(answer.body, 5, mtime=0) if squeeze else answer.body
    headers = [*answer.headers, ("Vary", "Accept-Encoding")] if host.gzip else answer.headers
    headers = [*headers, ("Content-Encoding", "gzip")] if squeeze else headers
    chunked = host.chunked and answer.status == 200 and not answer.cut
    return Answer(answer.status, headers, body, host.slow_s, answer.cut, chunked)
