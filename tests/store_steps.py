"""Steps that tests of the store's backends share, and the machine's clock."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing

from broker.state.store import Store
from federation.kv import (
    Op,
    Txn,
    WatchBatch,
    WatchEvent,
)


class RealClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return int(time.time() * 1000)

    def monotonic_s(self) -> float:
        return time.monotonic()


async def do(store: Store, *ops: Op) -> int:
    """Run operations without compares; returns the revision after."""
    return (await store.txn(Txn(then=ops))).revision


async def value(store: Store, key: str) -> bytes | None:
    kv = await store.get(key)
    return kv.value if kv else None


async def collect(
    store: Store, prefix: str, from_revision: int, events: int
) -> list[WatchBatch]:
    """Batches until `events` events came."""
    batches: list[WatchBatch] = []
    async with asyncio.timeout(15), aclosing(store.watch(prefix, from_revision)) as stream:  # type: ignore[type-var]
        async for batch in stream:
            batches.append(batch)
            if sum(len(each.events) for each in batches) >= events:
                break
    return batches


def flat(batches: Sequence[WatchBatch]) -> list[WatchEvent]:
    return [event for batch in batches for event in batch.events]
