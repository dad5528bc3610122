import pytest

from tests.integration.session.federation_site import Broker, end_keeper


@pytest.fixture
async def broker():
    made = Broker()
    await made.start()
    yield made
    await made.close()


@pytest.fixture
async def state(tmp_path):
    """A state directory whose keeper is ended afterwards."""
    yield tmp_path / "agent"
    await end_keeper(tmp_path / "agent")
