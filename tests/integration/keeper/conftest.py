from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.keeper_site import Site


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    site = Site(tmp_path / "state")
    yield site
    await site.close()
