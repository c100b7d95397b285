"""What it costs to normalise and key the 60 links of a page, side by side with the libraries.

Run: `.venv/bin/python bench/urls.py`. CPU time, the best of many short runs (other loads on the machine only add).
The bar (issue 6): 60 links normalised and keyed in under 0.15 ms. Only Spindle's rows apply a policy (parameters,
order, escapes, hosts) and skip what is not http; the others resolve, and do less.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

import ada_url
import mmh3

from spindle import config
from spindle.defaults import default_layer
from spindle.urls import Normalizer, UrlRejected, url_key

BASE = "https://www.example.org/docs/guide/index.html"

#: The links of a page as our demo web and the Debian documentation have them: mostly clean, some not.
PAGE = (
    [f"/section/{i}/article-{i * 37}-some-title.html" for i in range(20)]
    + [f"/list.php?cat={i}&page={i * 3}" for i in range(8)]
    + [f"../other/page{i}.html" for i in range(8)]
    + [f"page{i}.html#section-{i}" for i in range(8)]
    + [f"https://cdn{i % 4}.example.com/a/b/{i}" for i in range(8)]
    + ["/", "#top", "//static.example.net/x", "mailto:info@example.org", "javascript:void(0)"]
    + ["/?utm_source=feed&id=3", "/caf%c3%a9/menu", "https://www.example.net"]
)

#: The other end: every link needs work.
HARD = [f"/статья/{i}/о-чём-то" for i in range(30)] + [f"/p/{i}?b=2&a=1&utm_source=x" for i in range(30)]


def by_urllib(href: str) -> str:
    parts = urlsplit(urljoin(BASE, href))
    return urlunsplit(parts._replace(path=quote(parts.path, safe="%/:=&?~#+!$,;'@()*[]"), fragment=""))


def one_by_one(normalizer: Normalizer, hrefs: list[str]) -> None:
    for href in hrefs:
        with contextlib.suppress(UrlRejected):
            url_key(normalizer.by_the_law(href, BASE))


def milliseconds(work: Callable[[], object]) -> float:
    def once() -> float:
        started = time.process_time_ns()
        for _ in range(20):
            work()
        return (time.process_time_ns() - started) / 20e6

    return min(once() for _ in range(150))


def main() -> None:
    normalizer = Normalizer(config.build([default_layer()]).url)
    print(f"{'ms for 60 links, resolved and keyed':44} {'page':>8} {'hard':>8}")
    ways: dict[str, Callable[[list[str]], object]] = {
        "spindle: Normalizer.links": lambda hrefs: normalizer.links(hrefs, BASE),
        "spindle: by the law, one by one": lambda hrefs: one_by_one(normalizer, hrefs),
        "ada_url.join_url": lambda hrefs: [mmh3.hash64(ada_url.join_url(BASE, href))[0] for href in hrefs],
        "urllib: urljoin, urlsplit, quote, urlunsplit": lambda hrefs: [mmh3.hash64(by_urllib(h))[0] for h in hrefs],
    }
    for name, way in ways.items():
        page, hard = (milliseconds(lambda way=way, hrefs=hrefs: way(hrefs)) for hrefs in (PAGE, HARD))  # type: ignore[misc]
        print(f"{name:44} {page:8.3f} {hard:8.3f}")


if __name__ == "__main__":
    assert len(PAGE) == len(HARD) == 60
    main()
