"""Fixtures that several test files share. Spark tests use one session for the whole run."""

from __future__ import annotations

import pytest

from spindle import config
from spindle.defaults import default_layer


@pytest.fixture(scope="session")
def settings() -> config.Settings:
    """The shipped defaults."""
    return config.build([default_layer()])
