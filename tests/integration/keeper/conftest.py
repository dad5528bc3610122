from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.keeper_site import Site, isolation_is_possible

NO_SANDBOX = isolation_is_possible()


@pytest.fixture(params=["plain", "isolated"], autouse=True)
def isolation(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Everything the keeper promises holds with and without sandboxes and control groups."""
    if request.param == "isolated" and NO_SANDBOX:
        pytest.skip(f"needs bubblewrap: {NO_SANDBOX}")
    Site.isolated = request.param == "isolated"
    yield Site.isolated
    Site.isolated = False


@pytest.fixture
async def site(tmp_path: Path, isolation: bool) -> AsyncIterator[Site]:
    site = Site(tmp_path / "state")
    yield site
    await site.close()
