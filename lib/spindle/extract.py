"""From a stored record to rows: the page's row of `pages`, its links as rows of `links`, and what was left out and why.

Pure. It decides which understood links are worth a row (scope, traps) and how they are keyed; understanding the bytes
is `html`'s and `sitemap`'s, reading them is the parse job's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from spindle import coding, fingerprint, html, sitemap, urls, warc
from spindle.config import Settings
from spindle.errors import UrlRejected
from spindle.schema import LINK_SOURCE, columns
from spindle.scope import Scope, trap_reason, trap_reasoner

Row = dict[str, Any]
Read = Callable[[str, int, int], bytes]  # file below the warehouse, offset, length

_PAGE = dict.fromkeys(columns("pages"))
TARGET = tuple(name for name in columns("links") if name not in LINK_SOURCE)

#: Values of TARGET: rel, key, bucket, URL, host, domain, kind, anchor, position, nofollow, depth, seed's priority,
#: lastmod. A plain tuple, since it is made, sent and taken in for each link of each page.
Target = tuple[
    str, int, int, str, str, str, str, str | None, str | None, bool, int, float | None, str | None
]  # fmt: skip


@dataclass(slots=True)
class Extract:
    """What one fetched URL gave. `source`: the part of its links' rows that is the same in all."""

    page: Row | None
    source: Row = field(default_factory=dict)
    targets: list[Target] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)

    @property
    def links(self) -> list[Row]:
        """The rows of `links`, whole."""
        return [self.source | dict(zip(TARGET, target, strict=True)) for target in self.targets]


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
    made = Extract(page, _source(fetch, rules), rejected=Counter(told.rejected))
    if told.links_cut:
        made.rejected["links_cut"] = told.links_cut
    _add_links(made, told, (fetch["depth"] or 0) + 1, rules)
    for feed in told.feeds:
        _add(made, fetch, rules, feed, "feed", kind="feed")
    page["links"] = len(made.targets)
    return made


def _of_sitemap(fetch: Mapping[str, Any], body: bytes, page: Row, rules: Rules) -> Extract:
    try:
        told = sitemap.parse(body, fetch["url"])
    except sitemap.SitemapError as error:
        return Extract({**page, "error": f"sitemap: {error}"})
    made = Extract(
        page, _source(fetch, rules), rejected=Counter({f"sitemap_{reason}": n for reason, n in told.rejected.items()})
    )
    made.rejected += Counter(sitemap_cut=told.cut)
    for entry in told.urls:
        claim = entry.lastmod if entry.located else None  # of other places it may list URLs, as any page may; no more
        _add(made, fetch, rules, entry.loc, "sitemap", lastmod=claim)
    for child in told.sitemaps:
        _add(made, fetch, rules, child, "sitemap", kind="sitemap", depth=fetch["depth"] or 0)
    page["links"] = len(made.targets)
    return made


def of_redirect(fetch: Mapping[str, Any], rules: Rules) -> Extract:
    """The link that a redirect is: its target inherits kind, depth and the seed's priority."""
    made, kind = Extract(None, _source(fetch, rules)), fetch["kind"] or "page"
    _add(made, fetch, rules, fetch["redirect_to"], "redirect", kind=kind, depth=fetch["depth"] or 0)
    return made


def of_robots(origin: str, sitemaps: list[str], rules: Rules) -> Extract:
    """The links to the sitemaps that a robots.txt names."""
    source = f"{origin}/robots.txt"
    fetch = {"url_key": urls.url_key(source), "url": source, "host": urls.host_of(source), "depth": 0}
    made = Extract(None, _source(fetch, rules))
    for url in sitemaps:
        _add(made, fetch, rules, url, "sitemap", kind="sitemap", depth=0)
    return made


def _source(fetch: Mapping[str, Any], rules: Rules) -> Row:
    here = (rules.segment, rules.parse_version, fetch["url_key"], fetch["url"], fetch["host"])
    return dict(zip(LINK_SOURCE, here, strict=True))


def _add_links(made: Extract, told: html.Page, depth: int, rules: Rules) -> None:
    """Rows for the links of a page, which are normalised and keyed already; longer than need be, since it is the
    path of every link."""
    usual, buckets, ask = rules.settings.trap, rules.buckets, rules.scope.verdict
    usually = trap_reasoner(usual)
    sheets = rules.scope.sheets or None  # asked once: an empty one is none
    takes_all = rules.scope.takes_all()  # links are http(s) URLs by their normal form
    follow_nofollow, feeds, rejected, targets = (
        rules.settings.parse.follow_nofollow,
        told.feeds,
        made.rejected,
        made.targets,
    )
    for url, anchor, nofollow, rel, key, host, position in told.links:
        if feeds and url in feeds:
            continue  # it gets its row as a feed
        if nofollow and not follow_nofollow:
            rejected["nofollow"] += 1
            continue
        domain, bucket = _owner(host, buckets)
        why = usually if sheets is None else trap_reasoner(sheets.traps(url, host, usual))
        if (reason := why(url, depth)) is not None:
            rejected[f"trap_{reason}"] += 1
        elif not takes_all and not (verdict := ask(url, host, domain))[0]:
            rejected[f"scope_{verdict.rule}"] += 1
        else:
            targets.append(
                (rel, key, bucket, url, host, domain, "page", anchor or None, position, nofollow, depth, None, None)
            )


@lru_cache(100_000)
def _owner(host: str, buckets: int) -> tuple[str, int]:
    """Registered domain and bucket of a host."""
    domain = urls.registered_domain(host)
    return domain, urls.bucket_of(domain, buckets)


def _add(
    made: Extract,
    fetch: Mapping[str, Any],
    rules: Rules,
    link: str,
    rel: str,
    *,
    kind: str = "page",
    depth: int | None = None,
    lastmod: Any = None,
) -> None:
    """A row for a URL that is no link of a page's text, or its reason under `rejected`."""
    deep = (fetch["depth"] or 0) + 1 if depth is None else depth
    try:
        url = rules.normalizer.normalize(link)
    except UrlRejected as error:
        made.rejected[error.reason] += 1
        return
    host = urls.host_of(url)
    domain, bucket = _owner(host, rules.buckets)
    if reason := trap_reason(url, deep, rules.scope.sheets.traps(url, host, rules.settings.trap)):
        made.rejected[f"trap_{reason}"] += 1
        return
    if not (verdict := rules.scope.verdict(url, host, domain)).allowed:
        made.rejected[f"scope_{verdict.rule}"] += 1
        return
    priority = fetch["seed_priority"] if rel == "redirect" else None
    claim = None if lastmod is None else str(lastmod)
    key = urls.url_key(url)
    made.targets.append((rel, key, bucket, url, host, domain, kind, None, None, False, deep, priority, claim))
