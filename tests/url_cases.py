"""What of ../shared/cases/url_normalize.jsonl binds us, and every case that does not, with the reason.

The file holds the tests of 33 normalisers, each with a policy of its own. Ours is in spindle/urls/policy.py.
"""

from __future__ import annotations

#: Profiles whose policy ours is, but for the tags and cases named below.
MATCHED = {
    "cc-basic": "crawler-commons: the nearest to ours",
    "nutch-basic": "Nutch",
    "nutch-regex-default": "Nutch: session ids",
    "nutch-querystring": "Nutch: sorting",
    "nutch-urlutil-idn": "Nutch: punycode",
    "resolve": "relative URLs, of several projects",
    "dot-segments-only": "urlcanon, yarl",
    "ipv4-forms": "urlcanon",
    "urlcanon-whatwg": "the WHATWG step",
    "w3lib-canonicalize": "Scrapy: the key of a request",
    "w3lib-safe": "Scrapy: escapes",
    "w3lib-download": "Scrapy",
    "bubing-burl": "BUbiNG",
    "heritrix-usableuri": "Heritrix",
    "stormcrawler-basic": "StormCrawler",
    "url-normalize": "Python's url-normalize",
    "courlan-normalize": "courlan",
    "ia-ordinary": "Internet Archive",
}

#: Profiles with another aim.
UNMATCHED = {
    "google-safebrowsing": "unescapes until nothing changes, so that %2561 and a are one: for matching, not fetching",
    "urlcanon-semantic-precise": "unescapes until nothing changes, and keeps the fragment",
    "urlcanon-aggressive": "http for https, no www., lower-case path: a key, not an address",
    "ia-aggressive": "no www., lower-case path: a key, not an address",
    "wayback-aggressive-key": "a key without scheme",
    "wayback-surt-key": "a key turned round, lower-case path",
    "heritrix-FixupQueryString": "a rule for the query alone: the host stays as it came",
    "nutch-slash": "a rule per host, from a file",
    "nutch-host": "a rule per host, from a file",
    "nutch-protocol": "a rule per host, from a file",
    "nutch-regex-domain-only": "one page a domain",
    "nutch-ajax": "#! of 2009, which Google gave up in 2015",
    "courlan-clean": "cuts text around a URL, not a URL",
    "courlan-scrub": "cuts text around a URL, not a URL",
    "w3lib-query-cleaner": "a function with the parameters as arguments",
}

#: Of the matched profiles, cases with these tags are left out.
UNMATCHED_TAGS = {
    "non-http": "ftp, file and mailto are refused",
    "idn_to_unicode": "a host is punycode in keys and on the wire",
    "collapse_slashes": "servers tell // from /: web.archive.org/web/2013/https://x.org/",
    "drop_index_page": "/index.html may be another page than /",
    "add_scheme": "inject decides what a line without a scheme is",
}

#: Reason -> cases that differ from ours; each must really differ.
EXCEPTIONS = {
    "the source keeps the fragment, or makes something of it": """
        nutch-nutch-querystring-004 nutch-nutch-querystring-005 nutch-resolve-008 nutch-resolve-009 nutch-resolve-013
        nutch-nutch-urlutil-idn-013 nutch-nutch-regex-default-058 storm-stormcrawler-basic-002
        w3lib-w3lib-canonicalize-061 w3lib-w3lib-safe-117 w3lib-w3lib-safe-119 w3lib-w3lib-safe-131
        w3lib-w3lib-safe-133 w3lib-w3lib-safe-149 courlan-resolve-021 courlan-courlan-normalize-003
        courlan-courlan-normalize-004 courlan-courlan-normalize-023 courlan-courlan-normalize-024
        unorm-url-normalize-034""",
    "the source keeps name and password": """
        cc-resolve-003 w3lib-w3lib-safe-033 w3lib-w3lib-safe-035 w3lib-w3lib-safe-036 w3lib-w3lib-safe-037
        w3lib-w3lib-canonicalize-034 w3lib-w3lib-canonicalize-035 w3lib-w3lib-canonicalize-050 w3lib-w3lib-safe-039
        w3lib-w3lib-safe-040 w3lib-w3lib-safe-042 w3lib-w3lib-safe-047 unorm-url-normalize-035""",
    "the source keeps the order of the query": """
        nutch-nutch-basic-015 nutch-nutch-basic-081 nutch-nutch-regex-default-009 nutch-nutch-regex-default-016
        cc-resolve-002 unorm-url-normalize-054 wac-resolve-003""",
    "the source leaves the path empty; by WHATWG it is /": """
        nutch-resolve-005 nutch-nutch-urlutil-idn-011 w3lib-w3lib-safe-060 w3lib-w3lib-safe-107 w3lib-w3lib-safe-145
        courlan-resolve-016 courlan-resolve-017 courlan-resolve-018 courlan-courlan-normalize-012""",
    "a relative URL without a base is refused": """
        bubing-bubing-burl-018 bubing-bubing-burl-022 w3lib-w3lib-safe-003 w3lib-w3lib-safe-004 w3lib-w3lib-safe-006
        w3lib-w3lib-safe-017 w3lib-w3lib-canonicalize-040 w3lib-w3lib-canonicalize-041""",
    "a scheme that is refused, though the case is not tagged so": """
        w3lib-w3lib-canonicalize-046 unorm-url-normalize-016 unorm-url-normalize-017""",
    "the source leaves the host in Unicode": """
        nutch-nutch-basic-019 nutch-nutch-basic-028 nutch-nutch-basic-111""",
    "IDNA 2003; WHATWG keeps the German sharp s": "nutch-nutch-basic-094",
    "no host that DNS can hold: a missing '?', an empty label, a space, a '%'": """
        storm-stormcrawler-basic-009 storm-stormcrawler-basic-012 wac-heritrix-usableuri-002 w3lib-w3lib-safe-018
        cc-cc-basic-064 urlcanon-urlcanon-whatwg-040 urlcanon-urlcanon-whatwg-050 urlcanon-urlcanon-whatwg-053""",
    "dots alone are no host; urlcanon takes them for 0.0.0.0": """
        urlcanon-urlcanon-whatwg-059 urlcanon-urlcanon-whatwg-061 urlcanon-urlcanon-whatwg-064
        urlcanon-urlcanon-whatwg-065 urlcanon-urlcanon-whatwg-067 urlcanon-urlcanon-whatwg-068
        urlcanon-urlcanon-whatwg-069""",
    "09 is a bad number, so no host by today's WHATWG": "urlcanon-urlcanon-whatwg-004",
    "IPv6 in hexadecimal by WHATWG": "cc-cc-basic-125",
    "the policy goes beyond WHATWG: unreserved characters bare, a stray % escaped": """
        urlcanon-urlcanon-whatwg-017 urlcanon-urlcanon-whatwg-023 urlcanon-urlcanon-whatwg-024
        urlcanon-urlcanon-whatwg-026 urlcanon-urlcanon-whatwg-032 urlcanon-urlcanon-whatwg-033
        urlcanon-urlcanon-whatwg-034 urlcanon-urlcanon-whatwg-036""",
    "an empty query goes with its '?'": "urlcanon-urlcanon-whatwg-044 w3lib-w3lib-safe-125",
    "default ports go": "w3lib-w3lib-safe-108 w3lib-w3lib-safe-019",
    "a parameter without a name is kept": "cc-cc-basic-103 cc-cc-basic-104",
    "sid is dropped where its value looks like an id": "nutch-nutch-regex-default-010",
    "parameters without a value are kept": "w3lib-w3lib-canonicalize-012",
    "'+' and '%20' are kept apart": "w3lib-w3lib-canonicalize-015 w3lib-w3lib-canonicalize-017",
    "';' separates no parameters (WHATWG URL 5.1)": "w3lib-w3lib-canonicalize-006",
    "what a charset lacks is escaped as in browsers": "w3lib-w3lib-canonicalize-022 w3lib-w3lib-canonicalize-023",
    "{ } are escaped, as RFC 3986 asks": "wac-heritrix-usableuri-010",
    "U+00A0 is no white space to WHATWG": "wac-heritrix-usableuri-013 bubing-bubing-burl-040",
    "tab and line ends vanish by WHATWG": "bubing-bubing-burl-004 bubing-bubing-burl-038",
    "brackets hold IPv6 only": "w3lib-w3lib-safe-062",
    "a parameter on no list of ours (an option of the test, or a list of names that may be a page's)": """
        storm-stormcrawler-basic-006 storm-stormcrawler-basic-008 storm-stormcrawler-basic-010
        courlan-courlan-normalize-017 courlan-courlan-normalize-029 unorm-url-normalize-057""",
    "no Unicode composition: two spellings may be two pages": "unorm-url-normalize-029",
}
