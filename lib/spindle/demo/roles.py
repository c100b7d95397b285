"""What sets a whole host apart: charset, robots.txt, speed, validators, transfer, traps, a shared address.

Decides which hosts have which role (one role a host at most, spread over the ranks) and what the role does to it.
Every role exists in every world, whatever its size.
"""

from __future__ import annotations

from spindle.demo import traps
from spindle.demo.model import Coding, Group, Host, Link, Resource, Robots

#: Role -> language and coding. `undeclared` has no declaration: detection alone can tell.
CODINGS: dict[str, tuple[str, Coding]] = {
    "utf8_meta_only": ("fr", Coding(header=None)),
    "utf8_bom": ("de", Coding(header=None, meta=None, bom=b"\xef\xbb\xbf")),
    "windows_1252": ("de", Coding("cp1252", "windows-1252", "windows-1252", None)),
    "latin1_meta": ("fr", Coding("cp1252", "windows-1252", None, "iso-8859-1")),  # the label means windows-1252
    "shift_jis": ("ja", Coding("cp932", "shift_jis", "Shift_JIS", None)),
    "sjis_meta": ("ja", Coding("cp932", "shift_jis", None, "x-sjis")),
    "koi8_r": ("ru", Coding("koi8-r", "koi8-r", "KOI8-R", None)),
    "koi8_meta": ("ru", Coding("koi8-r", "koi8-r", None, "koi8-r", http_equiv=True)),
    "utf16_bom": ("de", Coding("utf-16-le", "utf-16le", "utf-8", None, bom=b"\xff\xfe")),  # the BOM beats the header
    "wrong_header": ("fr", Coding("cp1252", "utf-8", "utf-8", None)),
    "wrong_meta": ("ru", Coding("utf-8", "utf-8", "utf-8", "iso-8859-1")),  # the header beats the meta
    "undeclared": ("ru", Coding("koi8-r", "", None, None)),
}
_ROBOTS = {
    "no_robots": Robots(404),
    "robots_500": Robots(500),
    "robots_403": Robots(403),
    "robots_denies_all": Robots(200, (Group(("*",), ((False, "/"),)),)),
}
_DELAYS = {"delay_1s": 1.0, "delay_2s": 2.0}
_SLOW = {"slow_300ms": 0.3, "slow_600ms": 0.6, "slow_1s": 1.0}
_VALIDATORS = {"etag_only": "etag", "modified_only": "modified", "no_validators": "none"}
_OTHERS = ("robots_moved", "gzip", "chunked", "shares_address", "shares_address_too", "mirror")
ROLES = (*CODINGS, *_ROBOTS, *_DELAYS, *_SLOW, *_VALIDATORS, *traps.ENTRIES, *_OTHERS)
#: The first hosts are plain, so that every crawl starts well and there is something to mirror.
FIRST_RANK = 3
MIN_HOSTS = FIRST_RANK + len(ROLES)

_RULES = ((False, "/private/"), (True, "/private/open/"), (False, "/search"), (False, "/*.bak$"))
_OWN_RULES = ((False, "/not-for-spindle/"), *_RULES)


def ranks(hosts: int) -> dict[str, int]:
    """Which host has which role. Roles come in the order of ROLES, evenly spread over the ranks."""
    step = (hosts - FIRST_RANK) / len(ROLES)
    return {role: FIRST_RANK + int(i * step) for i, role in enumerate(ROLES)}


def is_small(role: str) -> bool:
    """Hosts that take long for each page have few of them."""
    return role in _SLOW or role in _DELAYS


def assign(host: Host, role: str, rank: int, before: Host) -> None:
    """Make the host what its role says, before it has pages. `before` is the host of the rank above."""
    host.robots = _robots(role, rank)
    host.lang, host.coding = CODINGS.get(role, (host.lang, host.coding))
    host.slow_s = _SLOW.get(role, 0.0)
    host.validators = _VALIDATORS.get(role, "both")
    host.gzip, host.chunked = role == "gzip", role == "chunked"
    host.traps = (role,) if role in traps.ENTRIES else ()
    if role.startswith("shares_address"):
        host.place = before.place


def _robots(role: str, rank: int) -> Robots:
    if role in _ROBOTS:
        return _ROBOTS[role]
    if not role and rank % 11 == 5:
        return Robots(404)
    delay = _DELAYS.get(role, 0.5 if rank % 13 == 6 else None)
    groups = [Group(("*",), _RULES, delay)]
    groups += [Group(("badbot", "worsebot"), ((False, "/"),))] * (rank % 3 == 0)
    groups += [Group(("spindle",), _OWN_RULES, delay)] * (rank % 5 == 0)
    return Robots(200, tuple(groups), moved_to="/robots-moved.txt" if role == "robots_moved" else "")


def lay_trap(host: Host, trap: str) -> str:
    """Give the host the page through which the trap is entered, with a link in its navigation; the URL of that page."""
    path = traps.ENTRIES[trap]
    entry = host.resources[path] = Resource(path, title=f"The {trap.replace('_', ' ')}", trap=trap)
    entry.links += traps.entry_links(host, trap)
    rooms = [path.rstrip("/") + room for room in ("/orders", "/help")] if "session" in trap else []
    for room in rooms:
        host.resources[room] = Resource(room, title=f"Yours: {room}", trap=trap)
    doors = [Link(host.name, room, room) for room in (path, *rooms)] if rooms else []
    for room in (path, *rooms):
        host.resources[room].links += doors
    host.nav.append(Link(host.name, path, entry.title))
    return f"http://{host.name}{path}"
