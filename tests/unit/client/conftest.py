from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.client.speaking_server import SpeakingServer, serving


@pytest.fixture
def server() -> Iterator[SpeakingServer]:
    with serving() as running:
        yield running
