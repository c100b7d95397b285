"""What a robots.txt allows us, and what its absence or silence allows: RFC 9309, and nothing of how it was fetched.

`parser` reads the octets of a file into the `Rules` (`rules`) of one crawler; `verdict` turns what is known of a file
(last answer, age of the last good copy, length of the outage) into a `Verdict`, by one table. All of it is pure.

The matcher is ours and not protego behind a repair. protego 0.7.0 is wrong in kinds that sit in its parser (a BOM hides
the first group; unknown lines and Crawl-delay end a group; it matches the whole User-agent value, and prefixes of it)
and in kinds that sit in its matcher, where nothing put in front can help ("/x/index.html" allows "/x/"; reserved
escapes are decoded; absolute URLs as rules match). A repair in front would have been this parser anyway.
"""

from __future__ import annotations

from spindle.robots.parser import MAX_BYTES, MAX_CRAWL_DELAY_S, parse, product_token
from spindle.robots.rules import Rules
from spindle.robots.verdict import VERDICTS, Copy, State, Verdict, decide, expires_at, robots_state

__all__ = [
    "MAX_BYTES",
    "MAX_CRAWL_DELAY_S",
    "VERDICTS",
    "Copy",
    "Rules",
    "State",
    "Verdict",
    "decide",
    "expires_at",
    "parse",
    "product_token",
    "robots_state",
]
