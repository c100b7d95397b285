"""Processes that a test started, found by what their command lines say; a test kills by id, and only its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def descendants(root: int, words: str) -> list[int]:
    """Processes below `root` whose command line has `words`, and all below them."""
    below: dict[int, list[int]] = {}
    lines: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            lines[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue  # it has ended meanwhile
        below.setdefault(parent, []).append(int(folder.name))

    def family(process: int, taken: bool) -> Iterator[int]:
        taken = taken or words in lines.get(process, "")
        if taken:
            yield process
        for child in below.get(process, []):
            yield from family(child, taken)

    return [process for child in below.get(root, []) for process in family(child, False)]
