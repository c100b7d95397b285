"""From a stored record to rows: the page's row of `pages`, its links as rows of `links`, and what was left out and why.

Pure. It decides which understood links are worth a row (scope, traps) and how they are keyed; understanding the bytes
is `html`'s and `sitemap`'s, reading them is the parse job's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spindle import coding, fingerprint, html, links, sitemap, urls, warc
from spindle.config import Settings
from spindle.errors import UrlRejected
from spindle.schema import columns
from spindle.scope import Scope, trap_reason

Row = dict[str, Any]
Read = Callable[[str, int, int], bytes]  # file below the warehouse, offset, length

_PAGE = dict.fromkeys(columns("pages"))


@dataclass(slots=True)
class Extract:
    """What one fetched URL gave."""

    page: Row | None
    links: list[Row] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for all pages of a segment."""

    settings: Settings
    scope: Scope
    normalizer: urls.Normalizer
    buckets: int
    segment: str
    month: str
    parse_version: int


def of_record(fetch: Mapping[str, Any], read: Read, rules: Rules) -> Extract:
    """Rows of one fetched page from its WARC record; a record that cannot be read is a row with an error."""
    page = {**_PAGE, **_identity(fetch, rules)}
    limits = rules.settings.fetch
    try:
        message = _message(fetch, read)
    except (warc.WarcError, FileNotFoundError) as error:
        return Extract(failed(fetch, f"record: {error}", rules))
    encoding = _header(message, b"content-encoding")
    body = coding.decode(message.body, encoding, limits.max_decoded_bytes, limits.max_decode_ratio).body
    if fetch["kind"] in ("sitemap", "feed"):
        return _of_sitemap(fetch, body, page, rules)
    return _of_page(fetch, body, _header(message, b"content-type"), page, rules)


def failed(fetch: Mapping[str, Any], error: str, rules: Rules) -> Row:
    """The row of a page that could not be parsed, and why."""
    return {**_PAGE, **_identity(fetch, rules), "error": error}


def _message(fetch: Mapping[str, Any], read: Read) -> warc.HttpMessage:
    """The HTTP message that holds the body; a revisit's body lies where it points."""
    record = warc.read_record(read(fetch["warc_file"], fetch["warc_offset"], fetch["warc_length"]))
    if record.type != "revisit" or record.location is None:
        return record.http
    file, offset, length = record.location
    original = warc.read_record(read(file, offset, length)).http
    return warc.HttpMessage(record.http.status_line, original.headers, original.body)


def _identity(fetch: Mapping[str, Any], rules: Rules) -> Row:
    same = {name: fetch[name] for name in ("url_key", "bucket", "url", "host")}
    here = {"segment": rules.segment, "month": rules.month, "parse_version": rules.parse_version}
    return {**same, **here, "kind": fetch["kind"] or "page"}


def _header(message: warc.HttpMessage, name: bytes) -> str | None:
    values = [value for key, value in message.headers if key.lower() == name]
    return values[0].decode("latin-1").strip() if values else None


def _of_page(fetch: Mapping[str, Any], body: bytes, content_type: str | None, page: Row, rules: Rules) -> Extract:
    settings = rules.settings.parse
    token, flags = rules.settings.agent.token, fetch["x_robots_tag"]
    told = html.parse_page(body, fetch["url"], content_type, settings, token, flags, rules.normalizer)
    same = ("title", "description", "language", "charset", "charset_source", "canonical", "noindex", "nofollow")
    more = (
        "noarchive",
        "published_at",
        "modified_at",
        "text_hash",
        "word_count",
        "needs_js",
        "links_cut",
        "schema_type",
    )
    page |= {name: getattr(told, name) for name in (*same, *more)}
    page["robots"], page["open_graph"] = list(told.robots), told.open_graph
    page["text"] = None if told.noindex or told.noarchive else told.text  # a page may forbid to keep its words
    page["simhash"] = None if told.simhash is None else fingerprint.to_signed(told.simhash)
    made = Extract(page, rejected=Counter(told.rejected))
    made.rejected += Counter(links_cut=told.links_cut)
    for link in told.links:
        if link.url in told.feeds:
            continue  # it gets its row as a feed below
        if link.nofollow and not settings.follow_nofollow:
            made.rejected["nofollow"] += 1
            continue
        _add(made, fetch, rules, link, link.rel, anchor=link.anchor, nofollow=link.nofollow)
    for feed in told.feeds:
        _add(made, fetch, rules, feed, "feed", kind="feed")
    page["links"] = len(made.links)
    return made


def _of_sitemap(fetch: Mapping[str, Any], body: bytes, page: Row, rules: Rules) -> Extract:
    try:
        told = sitemap.parse(body, fetch["url"])
    except sitemap.SitemapError as error:
        return Extract({**page, "error": f"sitemap: {error}"})
    made = Extract(page, rejected=Counter({f"sitemap_{reason}": n for reason, n in told.rejected.items()}))
    made.rejected += Counter(sitemap_cut=told.cut)
    for entry in told.urls:
        claim = entry.lastmod if entry.located else None  # of other places it may list URLs, as any page may; no more
        _add(made, fetch, rules, entry.loc, "sitemap", lastmod=claim)
    for child in told.sitemaps:
        _add(made, fetch, rules, child, "sitemap", kind="sitemap", depth=fetch["depth"] or 0)
    page["links"] = len(made.links)
    return made


def of_redirect(fetch: Mapping[str, Any], rules: Rules) -> Extract:
    """The link that a redirect is: its target inherits kind, depth and the seed's priority."""
    made, kind = Extract(None), fetch["kind"] or "page"
    _add(made, fetch, rules, fetch["redirect_to"], "redirect", kind=kind, depth=fetch["depth"] or 0)
    return made


def of_robots(origin: str, sitemaps: list[str], rules: Rules) -> Extract:
    """The links to the sitemaps that a robots.txt names."""
    source = f"{origin}/robots.txt"
    fetch = {
        "url_key": urls.url_key(source),
        "url": source,
        "host": urls.host_of(source),
        "depth": 0,
        "seed_priority": None,
    }
    made = Extract(None)
    for url in sitemaps:
        _add(made, fetch, rules, url, "sitemap", kind="sitemap", depth=0)
    return made


def _add(
    made: Extract,
    fetch: Mapping[str, Any],
    rules: Rules,
    link: str | links.Link,
    rel: str,
    *,
    anchor: str | None = None,
    nofollow: bool = False,
    kind: str = "page",
    depth: int | None = None,
    lastmod: Any = None,
) -> None:
    """A row for a link, or its reason under `rejected`. A link of a page is normalised and keyed already."""
    deep = (fetch["depth"] or 0) + 1 if depth is None else depth
    if isinstance(link, str):
        try:
            target = rules.normalizer.normalize(link)
        except UrlRejected as error:
            made.rejected[error.reason] += 1
            return
        host, key = urls.host_of(target), urls.url_key(target)
    else:
        target, host, key = link.url, link.host, link.key
    domain = urls.registered_domain(host)
    if reason := trap_reason(target, deep, rules.scope.sheets.traps(target, host, rules.settings.trap)):
        made.rejected[f"trap_{reason}"] += 1
        return
    if not (verdict := rules.scope.verdict(target, host, domain)).allowed:
        made.rejected[f"scope_{verdict.rule}"] += 1
        return
    made.links.append(
        {
            "segment": rules.segment,
            "parse_version": rules.parse_version,
            "src_key": fetch["url_key"],
            "src_url": fetch["url"],
            "src_host": fetch["host"],
            "rel": rel,
            "dst_key": key,
            "dst_bucket": urls.bucket_of(domain, rules.buckets),
            "dst_url": target,
            "dst_host": host,
            "dst_domain": domain,
            "dst_kind": kind,
            "anchor": anchor or None,
            "position": None if isinstance(link, str) else link.position,
            "nofollow": nofollow,
            "depth": deep,
            "seed_priority": fetch.get("seed_priority") if rel == "redirect" else None,
            "lastmod": None if lastmod is None else str(lastmod),
        }
    )
