"""Understanding a page: from the bytes of a body to a `Page`, whatever the bytes are.

This file alone decides the order of the steps and what the robots flags of a page take away: nofollow its links,
noindex and noarchive its text (`noindex` is a request to keep the words out of any index, and ours is for indexes).
How each thing is read is the business of `charset`, `htmltree`, `links`, `pagefacts`, `pagerobots`, `pagetext`,
`fingerprint`. It knows nothing of records, jobs, scope or tables.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cache

from selectolax.lexbor import LexborHTMLParser

from spindle import charset, config, fingerprint, htmltree, links, pagefacts, pagetext, urls
from spindle.config import ParseSettings
from spindle.defaults import default_layer
from spindle.errors import UrlRejected
from spindle.htmltree import Element
from spindle.links import Candidate, Found, Link, LinkRules
from spindle.pagefacts import MIN_WORDS_WITHOUT_JS
from spindle.pagerobots import RobotsFlags, flags

#: Raised with every change that gives any page another text, links or fingerprint; `pages.parse_version` has it.
PARSE_RULES = 1

_FRAME = re.compile(r"<frame(?=[\s/])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Page:
    """What a page says. Texts have their white space folded and hold no NUL.

    links: in page order, each URL once, without the page itself; with `feeds` empty when the page says nofollow. A
    feed stands in both.
    text: the page's own words without what its site repeats; empty when the page says noindex or noarchive.
    text_hash, simhash, word_count: of that text, whether it is kept or not; simhash (unsigned) is None when short.
    links_cut: links not looked at because the page had `max_links`. rejected: every other link that is not in
    `links`, under its reason. robots: the directives obeyed. Dates are as `webdate.normal_date` writes them.
    """

    url: str
    links: tuple[Link, ...] = ()
    title: str | None = None
    text: str = ""
    canonical: str | None = None
    noindex: bool = False
    nofollow: bool = False
    noarchive: bool = False
    robots: tuple[str, ...] = ()
    description: str | None = None
    language: str | None = None
    charset: str = charset.DEFAULT
    charset_source: str = "default"
    published_at: str | None = None
    modified_at: str | None = None
    open_graph: dict[str, str] = field(default_factory=dict)
    schema_type: str | None = None
    word_count: int = 0
    text_hash: str | None = None
    simhash: int | None = None
    needs_js: bool = False
    links_cut: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    feeds: tuple[str, ...] = ()


def parse_page(
    body: bytes,
    url: str,
    content_type: str | None,
    settings: ParseSettings | None = None,
    agent_token: str = "spindle",
    x_robots_tag: str | None = None,
    normalizer: urls.Normalizer | None = None,
) -> Page:
    """The page at `url` (absolute, the one that answered); never raises for any body or header.

    `settings` and `normalizer` default to the shipped configuration.
    """
    settings = settings or default_settings()
    decoded = charset.decode(body, content_type)
    plain = _is_plain_text(content_type)
    tree = htmltree.parse("" if plain else decoded.text, charset.is_xml(content_type))
    elements = htmltree.elements(tree)
    others = [element for element in elements if element[0] != "a"]  # few, and looked through again and again
    said = pagefacts.metas_of(others)
    metas = pagefacts.by_name(said)
    robots = flags(said if settings.meta_robots else [], x_robots_tag if settings.x_robots_tag else None, agent_token)
    rules = LinkRules(normalizer or _normalizer(), settings.max_links, settings.anchor_chars, settings.follow_forms)
    found = _links(elements, others, decoded, url, rules)
    linked = pagefacts.linked_data(tree) if any(name == "script" for name, _ in others) else {}
    title = pagefacts.title_of(others, metas) or linked.get("headline")
    language = pagefacts.declared_language(tree, metas)
    text, needs_js = _plain_text(decoded.text) if plain else _text(tree, others, decoded.text)
    made = fingerprint.of_text(text, settings.simhash_min_words)
    return Page(
        url=url,
        links=() if robots.nofollow else tuple(found.links.values()),
        title=title,
        text="" if robots.noindex or robots.noarchive else text[: settings.text_chars],
        canonical=found.canonical,
        noindex=robots.noindex,
        nofollow=robots.nofollow,
        noarchive=robots.noarchive,
        robots=robots.said,
        description=pagefacts.first(metas, "description", "og:description", "twitter:description"),
        language=language or _detected_language(text, settings),
        charset=decoded.name,
        charset_source=decoded.source,
        published_at=pagefacts.published(metas, linked),
        modified_at=pagefacts.modified(metas, linked),
        open_graph=pagefacts.open_graph(metas),
        schema_type=linked.get("@type"),
        word_count=made.word_count,
        text_hash=made.text_hash,
        simhash=made.simhash,
        needs_js=needs_js,
        links_cut=found.cut,
        rejected=_rejected(found, robots),
        feeds=() if robots.nofollow else tuple(found.feeds),
    )


def _is_plain_text(content_type: str | None) -> bool:
    return (content_type or "").split(";")[0].strip().lower() == "text/plain"


def _links(
    elements: list[Element], others: list[Element], decoded: charset.Decoded, url: str, rules: LinkRules
) -> Found:
    candidates = [*links.candidates(elements, rules.forms), *_stray_frames(others, decoded.text)]
    base = links.base_of(others, url)
    try:
        own = rules.normalizer.normalize(url)
    except UrlRejected:
        own = url
    return links.collect(candidates, base, own, decoded.name, rules)


def _stray_frames(elements: list[Element], text: str) -> list[Candidate]:
    """Frames outside a frameset: the tree rules ignore them (HTML 13.2.6.4.7), a crawler should not."""
    if not _FRAME.search(text) or any(name == "frame" for name, _ in elements):
        return []
    tree = htmltree.parse(_FRAME.sub("<embed", text))  # an element with a src that may stand anywhere
    found = (node.attributes.get("src") for node in tree.css("embed[src]"))
    return [Candidate(src, "frame", False, None) for src in found if src]


def _plain_text(text: str) -> tuple[str, bool]:
    return pagetext.fold(text.replace("\0", " ")), False


def _text(tree: LexborHTMLParser, elements: list[Element], source: str) -> tuple[str, bool]:
    """The page's text, and whether only a browser would show it. Takes the tree apart: nothing may follow."""
    text = pagetext.content(tree, elements, source)
    if len(text.split(None, MIN_WORDS_WITHOUT_JS)) >= MIN_WORDS_WITHOUT_JS:
        return text, False
    whole = htmltree.parse(source)  # few pages have so few words
    needs_js = pagefacts.needs_js(whole)
    visible = pagetext.visible(whole, htmltree.elements(whole))
    few = len(visible.split(None, MIN_WORDS_WITHOUT_JS)) < MIN_WORDS_WITHOUT_JS
    return text or visible, few and needs_js


def _rejected(found: Found, robots: RobotsFlags) -> dict[str, int]:
    reasons = Counter(found.rejected)
    if robots.nofollow and found.links:
        reasons["page_nofollow"] = len(found.links)
    return dict(reasons)


def _detected_language(text: str, settings: ParseSettings) -> str | None:
    return pagefacts.detected_language(text) if settings.detect_language else None


def default_settings() -> ParseSettings:
    """The shipped [parse] settings."""
    return _shipped().parse


@cache
def _shipped() -> config.Settings:
    return config.build([default_layer()])


@cache
def _normalizer() -> urls.Normalizer:
    return urls.Normalizer(_shipped().url)
