"""A cluster of three with mutual TLS, whole again before each test that uses it."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack

import pytest

from federation.etcd.client import EtcdClient
from federation.etcd.endpoints import Timeouts
from tests.etcd_faults import Connect, client_of, wake
from tests.etcd_server import EtcdServer, require_binary

# Members lose patience with each other twice as soon as they would by default.
FAST_ELECTIONS = ("--heartbeat-interval=50", "--election-timeout=500")
KEEPALIVE_OFTEN = "--grpc-keepalive-min-time=500ms"


@pytest.fixture(scope="module")
def cluster() -> Iterator[EtcdServer]:
    server = EtcdServer(
        require_binary(), members=3, tls=True, flags=[KEEPALIVE_OFTEN, *FAST_ELECTIONS]
    )
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture
async def connect(cluster: EtcdServer) -> AsyncIterator[Connect]:
    """Makes clients of the cluster; `members` picks endpoints, in order."""
    async with AsyncExitStack() as stack:

        def make(
            members: Sequence[int] = (0, 1, 2),
            *,
            user: str = "root",
            timeouts: Timeouts | None = None,
        ) -> EtcdClient:
            client = client_of(cluster, members, user=user, timeouts=timeouts)
            stack.push_async_callback(client.close)
            return client

        yield make


@pytest.fixture
def whole(cluster: EtcdServer) -> Iterator[None]:
    """Every test begins with three members that serve."""
    for member in cluster.members:
        wake(member)
    for member in cluster.members:
        cluster.wait_healthy(member)
    yield
