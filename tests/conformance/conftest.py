"""The backends of the store under the conformance suite."""

import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from broker.state.backends.etcd import open_store
from broker.state.backends.memory import MemoryStore
from broker.state.store import Store
from tests.etcd_server import EtcdServer, require_binary
from tests.store_steps import RealClock


@pytest.fixture(scope="module")
def etcd() -> Iterator[EtcdServer]:
    server = EtcdServer(require_binary())
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture(params=["memory", pytest.param("etcd", marks=pytest.mark.etcd)])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    opened: Store
    if request.param == "memory":
        opened = MemoryStore(RealClock())
    else:
        opened = open_store(request.getfixturevalue("etcd").urls)
    yield opened
    await opened.close()


@pytest.fixture
def base() -> str:
    """A prefix of the test's own: etcd is shared by the module."""
    return f"/{uuid.uuid4().hex}/"
