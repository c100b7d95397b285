"""Finds the files that ship with Spindle (configuration, SQL), in a checkout, a wheel or the `--py-files` zip."""

from __future__ import annotations

from importlib import resources

from spindle.config import Layer, parse_toml


def shipped_text(name: str) -> str:
    """Text of a shipped file, for example `conf/spindle.toml` or `sql/hosts.sql`."""
    return resources.files("spindle").joinpath(name).read_text(encoding="utf-8")


def shipped_names(folder: str) -> list[str]:
    """Names of the files in a shipped folder, sorted."""
    return sorted(entry.name for entry in resources.files("spindle").joinpath(folder).iterdir() if entry.is_file())


def default_layer() -> Layer:
    """The first layer of any configuration: the defaults with their reasons."""
    return parse_toml(shipped_text("conf/spindle.toml"), "conf/spindle.toml")
