"""Agents are told where every living broker is reached."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from broker.control.leadership import Candidate
from broker.control.replicas import Replicas
from broker.state.backends.memory import MemoryStore
from broker.state.projection import Projection
from federation.system import SystemClock
from tests.unit.control.federation import Federation, until

CLOCK = SystemClock()


@contextlib.asynccontextmanager
async def a_broker(store: MemoryStore, name: str) -> AsyncIterator[Replicas]:
    """One replica that follows the store and says where it is, until the block ends."""
    projection = Projection(store, on_unreadable=lambda text: None)
    own = Candidate(name, (f"https://{name}",), (f"{name}:8443",))
    replicas = Replicas(store, projection, own, ttl_s=3)
    tasks = [asyncio.create_task(projection.run()), asyncio.create_task(replicas.run())]
    try:
        yield replicas
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_every_living_broker_is_named_and_the_one_asked_first() -> None:
    store = MemoryStore(CLOCK)
    async with a_broker(store, "b2") as second:
        async with a_broker(store, "b1") as first, a_broker(store, "b3") as third:
            names = ("b1:8443", "b2:8443", "b3:8443")
            await until(lambda: set(third.session_addresses()) == set(names))
            await until(lambda: first.session_addresses() == names)
            await until(lambda: second.session_addresses() == ("b2:8443", "b1:8443", "b3:8443"))
        await until(lambda: second.session_addresses() == ("b2:8443",))


async def test_a_welcome_names_brokers_that_do_not_lead(tmp_path: Path) -> None:
    fed = await Federation.make(tmp_path)
    plane = await fed.start()
    try:
        async with a_broker(fed.store, "follower"):
            await until(lambda: "follower:8443" in plane.office.offer().addresses)
    finally:
        await fed.kill()
        await fed.sites.close()
