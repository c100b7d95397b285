"""Try-out tools: one URL fetched, one robots.txt asked, one page parsed, the demo web served. No warehouse, no JVM."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spindle import html, runner, sitemap, urls
from spindle.errors import InputError


def fetch_one(argv: Sequence[str]) -> int:
    parser = _parser("fetch-one", "Fetch one URL as the crawler would (robots.txt first), and show what came.")
    parser.add_argument("url", metavar="URL")
    return runner.main("fetch-one", parser, _fetch_one, argv)


def _fetch_one(options: argparse.Namespace) -> int:
    from spindle.fetcher import tryout

    told = asyncio.run(tryout.fetch_one(runner.url_of(options.url), runner.settings_of(options)))
    _show(told)
    return 0 if told.get("outcome") == "ok" else 1


def robots(argv: Sequence[str]) -> int:
    parser = _parser("robots", "What a site's robots.txt says of a URL.")
    parser.add_argument("url", metavar="URL")
    parser.add_argument("--agent", metavar="TOKEN", help="product token to ask for (default: agent.token)")
    return runner.main("robots", parser, _robots, argv)


def _robots(options: argparse.Namespace) -> int:
    from spindle.fetcher import tryout

    settings = runner.settings_of(options)
    if options.agent:
        settings = dataclasses.replace(settings, agent=dataclasses.replace(settings.agent, token=options.agent))
    told = asyncio.run(tryout.fetch_robots(runner.url_of(options.url), settings))
    _show(told)
    return 0 if told.get("allowed") else 1


def parse_one(argv: Sequence[str]) -> int:
    parser = _parser("parse-one", "Show what is understood of a page.")
    parser.add_argument("source", metavar="URL-or-FILE")
    parser.add_argument("--url", metavar="URL", default="http://localhost/", help="the address a file is taken to have")
    parser.add_argument("--content-type", metavar="TYPE", help="the Content-Type header a file is taken to have")
    parser.add_argument("--kind", choices=("page", "sitemap", "feed"), default="page", help="what it is (default page)")
    return runner.main("parse-one", parser, _parse_one, argv)


def _parse_one(options: argparse.Namespace) -> int:
    settings = runner.settings_of(options)
    url, headers, body = _source(options, settings)
    if options.kind != "page":
        return _show_sitemap(body, url)
    told = (settings.parse, settings.agent.token, headers.get("x_robots_tag"), urls.Normalizer(settings.url))
    page = html.parse_page(body, url, headers.get("content_type"), *told)
    _show({field.name: getattr(page, field.name) for field in dataclasses.fields(page) if field.name != "links"})
    for link in page.links:
        place = link.position or ""
        print(f"  {link.rel:9} {place:10} {'nofollow ' if link.nofollow else ''}{link.url}  {_line(link.anchor or '')}")
    return 0


def _show_sitemap(body: bytes, url: str) -> int:
    try:
        told = sitemap.parse(body, url)
    except sitemap.SitemapError as error:
        raise InputError(f"{url}: not a sitemap or feed ({error})") from None
    _show({"kind": told.kind, "rejected": told.rejected, "cut": told.cut, "truncated": told.truncated})
    for child in told.sitemaps:
        print(f"  sitemap   {child}")
    for entry in told.urls:
        print(f"  {entry.lastmod or '':25} {entry.loc}")
    return 0


def _source(options: argparse.Namespace, settings: Any) -> tuple[str, dict[str, Any], bytes]:
    """URL, headers and body of a file or of what a server answers."""
    if "://" not in options.source:
        try:
            return runner.url_of(options.url), {"content_type": options.content_type}, Path(options.source).read_bytes()
        except OSError as error:
            raise InputError(f"{options.source}: {error.strerror}") from None
    from spindle.fetcher import tryout

    told = asyncio.run(tryout.fetch_one(runner.url_of(options.source), settings))
    if told.get("outcome") != "ok":
        why = told.get("error") or told.get("redirect_to") or told.get("http_status")
        raise InputError(f"{options.source}: {told.get('outcome')}: {why}")
    return runner.url_of(options.source), told, told["body"]


def demo_web(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="spindle demo-web", description="Serve the loopback demo web until Ctrl-C.")
    parser.add_argument(
        "--folder", default="var/demo-web", help="where its hosts file and log go (default var/demo-web)"
    )
    parser.add_argument("--hosts", type=int, default=200, metavar="N", help="number of hosts (default 200)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="the same seed makes the same web")
    return runner.main("demo-web", parser, _demo_web, argv)


def _demo_web(options: argparse.Namespace) -> int:
    from spindle.demo.child import start_in_process

    with start_in_process(Path(options.folder).absolute(), options.seed, options.hosts) as web:
        seeds = web.hosts_file.with_name("seeds.txt")
        seeds.write_text("\n".join(web.seeds) + "\n")
        print(f"{options.hosts} hosts on loopback; Ctrl-C ends it\nseeds {seeds}\nlog   {web.log_path}")
        own = f"network.hosts_file={web.hosts_file}"
        print(f"crawl it: spindle crawl {seeds} --warehouse var/crawl --set agent.contact=me@example.org \\")
        print(f"    --set {own} --set 'network.allow_addresses=[\"127.0.0.0/8\"]'")
        try:
            web.process.wait()
        except KeyboardInterrupt:
            print()
    return 0


def _parser(name: str, description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"spindle {name}", description=description)
    runner.add_settings(parser)
    return parser


def _show(values: dict[str, Any]) -> None:
    for name, value in values.items():
        if isinstance(value, bytes):
            print(f"{name:16} {len(value):,} bytes")
        elif value not in (None, "", [], {}, ()):
            text = value if isinstance(value, str) else json.dumps(value, default=str)
            print(f"{name:16} {_line(text)}")


def _line(text: str, most: int = 300) -> str:
    """One line, controls made visible: what a page says must not break the terminal."""
    cut = text if len(text) <= most else text[:most] + "..."
    return "".join(char if char.isprintable() else " " for char in cut)
