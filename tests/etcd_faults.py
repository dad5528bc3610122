"""What tests do to members of a cluster, and how they look on."""

import asyncio
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import TypeVar

from federation.etcd.client import EtcdClient
from federation.etcd.endpoints import Timeouts, Tls, parse_endpoint
from federation.kv import (
    Put,
    StoreError,
    Txn,
    WatchEvent,
)
from tests.etcd_server import EtcdServer, Member

T = TypeVar("T")
Connect = Callable[..., EtcdClient]


def client_of(
    cluster: EtcdServer,
    members: Sequence[int],
    *,
    user: str = "root",
    timeouts: Timeouts | None = None,
) -> EtcdClient:
    assert cluster.authority is not None
    certificate, key = cluster.authority.issue(user)
    return EtcdClient(
        [parse_endpoint(cluster.members[index].client_url) for index in members],
        Tls.from_files(cluster.authority.ca_file, certificate, key),
        timeouts,
    )


def wake(member: Member) -> None:
    """Start or unfreeze a member, whatever was done to it."""
    if member.process is not None and member.process.poll() is not None:
        member.process = None
    if member.process is None:
        member.start()
    member.send(signal.SIGCONT)


def revive(cluster: EtcdServer, member: Member) -> None:
    wake(member)
    cluster.wait_healthy(member)


async def put(client: EtcdClient, key: str, value: bytes) -> int:
    return (await client.txn(Txn(then=(Put(key, value),)))).revision


async def put_surely(client: EtcdClient, key: str, value: bytes) -> None:
    """Write a key whatever happens; repeating the same value is harmless."""
    for _ in range(50):
        try:
            await put(client, key, value)
        except StoreError:
            await asyncio.sleep(0.1)
        else:
            return
    raise AssertionError(f"{key} could not be written")


class Watching:
    """Collects events of a prefix in the background."""

    def __init__(self, client: EtcdClient, prefix: str, from_revision: int) -> None:
        self.events: list[WatchEvent] = []
        self.half: list[int] = []
        self._last = 0
        self._task = asyncio.create_task(self._run(client, prefix, from_revision))

    async def _run(self, client: EtcdClient, prefix: str, from_revision: int) -> None:
        stream = client.watch(prefix, from_revision)
        async with aclosing(stream) as batches:  # type: ignore[type-var]
            async for batch in batches:
                if batch.events and batch.events[0].mod_revision <= self._last:
                    self.half.append(batch.events[0].mod_revision)
                self.events += batch.events
                self._last = batch.revision

    async def until(self, count: int, within_s: float = 20) -> None:
        """Wait for `count` events; fails with what the watch failed with."""
        deadline = time.monotonic() + within_s
        while len(self.events) < count and time.monotonic() < deadline:
            if self._task.done():
                self._task.result()
            await asyncio.sleep(0.02)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
