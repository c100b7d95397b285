"""The independent test data of ../shared: found, read, or (for a user who lacks it) a reason to skip."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(os.environ.get("SPINDLE_SHARED", Path(__file__).resolve().parents[2] / "shared"))


def shared_file(name: str) -> Path:
    """A file of the shared cases. Absent: skipped for a user, a failure in CI, where nothing is skipped in silence."""
    path = SHARED / "cases" / name
    if not path.exists():
        text = f"shared test data is not here: {path}"
        if os.environ.get("CI") == "true":
            pytest.fail(text)
        pytest.skip(text, allow_module_level=True)
    return path


def jsonl(name: str) -> list[dict[str, Any]]:
    """The rows of a JSON-lines file of the shared cases."""
    with shared_file(name).open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
