"""Scrapy on the same pages: robots.txt obeyed, nothing parsed, nothing stored. For `bench/fetch.py --scrapy PYTHON`.

Needs Scrapy in the interpreter that runs it, and nothing of Spindle. Cookies, retries, log and telnet console are off;
a host has one request at a time, as politeness has it, and its pages follow each other on one connection.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.resolver import dnscache

BLOCK = 100  # hosts whose pages come in turn: as many as may be open at once


class Reader(scrapy.Spider):
    name = "reader"
    told: dict[str, int]
    read = 0
    pages = 0

    async def start(self) -> AsyncIterator[Any]:
        hosts, each = self.told["hosts"], self.told["pages"] // self.told["hosts"]
        for first in range(0, hosts, BLOCK):
            for page in range(each):
                for host in range(first, min(first + BLOCK, hosts)):
                    yield scrapy.Request(f"http://h{host}.test:{self.told['port']}/p{host * each + page}")

    def parse(self, response: Any, **_: Any) -> None:
        type(self).read += len(response.body)
        type(self).pages += 1


def main() -> None:
    told = json.loads(sys.argv[1])
    Reader.told = told
    settings = {
        "ROBOTSTXT_OBEY": True,
        "CONCURRENT_REQUESTS": told["open"],
        "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
        "DOWNLOAD_DELAY": 0,
        "DNSCACHE_SIZE": told["hosts"] + 10,
        "USER_AGENT": "spindle-bench",
        **dict.fromkeys(("COOKIES_ENABLED", "RETRY_ENABLED", "TELNETCONSOLE_ENABLED", "LOG_ENABLED"), False),
    }
    process = CrawlerProcess(settings)
    dnscache.limit = told["hosts"] + 10
    for host in range(told["hosts"]):
        dnscache[f"h{host}.test"] = "127.0.0.1"
    began, start = time.perf_counter(), cpu()
    process.crawl(Reader)
    process.start()
    spent = cpu() - start
    assert Reader.pages == told["pages"], f"{Reader.pages} pages of {told['pages']}"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        json.dumps({"cpu_s": spent, "wall_s": time.perf_counter() - began, "bytes": Reader.read, "rss_mib": peak}),
    )


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
