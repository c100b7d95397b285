"""Fixtures that several test files share, and the rule of the marker `spark`: who asks for the session carries it.

One session for the whole run, opened by the first test that asks. Where Spark does not start (no `make setup` yet)
such tests are skipped for a user and fail in CI, where nothing is skipped in silence.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import hypothesis
import pytest

from spindle import config
from spindle.defaults import default_layer
from spindle.errors import SpindleError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


hypothesis.settings.register_profile("spindle", deadline=None)  # a busy machine is slow; no test asserts a time
hypothesis.settings.load_profile("spindle")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`-m "not spark"` must never open a JVM, so the marker follows from the fixture."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def settings() -> config.Settings:
    """The shipped defaults."""
    return config.build([default_layer()])


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two cores, two shuffle partitions, a JVM tuned for a short life."""
    from spindle.session import open_session

    layers = [default_layer(), ("tests", {"spark": {"shuffle_partitions": 2}})]
    try:
        session = open_session("spindle tests", config.build(layers).spark, master="local[2]", quick=True)
    except SpindleError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"no Spark: {error}")
    yield session
    session.stop()
