"""One cell of two hosts for all tests here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.schedulers.gridengine_cluster import GridEngine, missing


@pytest.fixture(scope="session")
def cell() -> Iterator[GridEngine]:
    if why := missing():
        pytest.skip(f"Grid Engine {why}")
    made = GridEngine(hosts=2).start()
    yield made
    made.stop()
