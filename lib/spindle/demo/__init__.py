"""The demo web: a web of many hosts on loopback, made from a seed, that knows the truth about itself.

    world = build_world(seed=1)                          pure: hosts, pages, links, oddities, traps
    truth.expectation(world, url), truth.reachable(world, world.seeds)
    with start_in_process(folder) as demo: ...           the sockets, in a child process
    log.gaps(log.read_log(demo.log_path))                politeness, seen from the server's side

It must not know the crawler: expectations come from here.
"""

from spindle.demo.child import DemoProcess, launch, run, start_in_process
from spindle.demo.log import Entry, gaps, overlaps, read_log
from spindle.demo.model import World
from spindle.demo.server import Server, serve
from spindle.demo.truth import Expectation, Fate, Policy, expectation, fates, reachable
from spindle.demo.world import build_world

__all__ = [
    "DemoProcess",
    "Entry",
    "Expectation",
    "Fate",
    "Policy",
    "Server",
    "World",
    "build_world",
    "expectation",
    "fates",
    "gaps",
    "launch",
    "overlaps",
    "reachable",
    "read_log",
    "run",
    "serve",
    "start_in_process",
]
