"""The state store as one broker process reaches it: a way that takes time, and bad weather.

The store itself is the memory twin that passes the conformance suite. Each process has a handle
of its own, so that one which is killed hears nothing any more, whatever was on its way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeVar, cast

from broker.state.backends.memory import MemoryStore
from federation.environment import Rng
from federation.kv import (
    AmbiguousCommit,
    Get,
    KeyValue,
    RangeResult,
    StoreUnavailable,
    Txn,
    TxnResult,
    WatchBatch,
)

_T = TypeVar("_T")
WAY_S = (0.0005, 0.004)
LOST_ANSWER_S = 2.0


@dataclass(slots=True)
class Weather:
    """How the store is reached now: `slow` multiplies the way, `ambiguous` is the share of
    commits whose answer is lost (half of them were applied)."""

    down: bool = False
    slow: float = 1.0
    ambiguous: float = 0.0


class StoreHandle:
    """`Store` of one process. `on_commit` is called before (`commit`) and after (`committed`)
    every commit of this process with its number; it may kill the process. `cut_off`: the
    store is not reached from here, whoever else reaches it."""

    def __init__(self, inner: MemoryStore, weather: Weather, rng: Rng) -> None:
        self._inner = inner
        self._weather = weather
        self._rng = rng
        self._commits = 0
        self.dead = False
        self.cut_off = False
        self.on_commit: Callable[[str, int], None] = lambda what, number: None

    async def get(self, key: str) -> KeyValue | None:
        """See `Store.get`."""
        return await self._read(lambda: self._inner.get(key))

    async def range(
        self, prefix: str, *, after: str = "", limit: int = 0, revision: int = 0
    ) -> RangeResult:
        """See `Store.range`."""
        return await self._read(
            lambda: self._inner.range(prefix, after=after, limit=limit, revision=revision)
        )

    async def txn(self, txn: Txn) -> TxnResult:
        """See `Store.txn`; one that only reads is never ambiguous."""
        if not _writes(txn):
            return await self._read(lambda: self._inner.txn(txn))
        await self._way()
        self._commits += 1
        number = self._commits
        self.on_commit("commit", number)
        await self._alive()
        lost = self._rng.uniform(0, 1) < self._weather.ambiguous
        if lost and self._rng.uniform(0, 1) < 0.5:
            await asyncio.sleep(LOST_ANSWER_S)
            raise AmbiguousCommit("the answer was lost (it was not applied)")
        result = await self._inner.txn(txn)
        self.on_commit("committed", number)
        await self._alive()
        if lost:
            await asyncio.sleep(LOST_ANSWER_S)
            raise AmbiguousCommit("the answer was lost (it was applied)")
        await asyncio.sleep(self._delay_s())
        await self._alive()
        return result

    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[WatchBatch]:
        """See `Store.watch`; silent while the store is down."""
        await self._way()
        watching = cast(
            "AsyncGenerator[WatchBatch, None]", self._inner.watch(prefix, from_revision)
        )
        async with aclosing(watching) as batches:
            async for batch in batches:
                await asyncio.sleep(self._delay_s())
                while self._unreached:
                    await asyncio.sleep(0.1)
                await self._alive()
                yield batch

    async def grant(self, ttl_s: int) -> int:
        """See `Store.grant`."""
        return await self._read(lambda: self._inner.grant(ttl_s))

    async def keep(self, lease: int) -> int:
        """See `Store.keep`."""
        return await self._read(lambda: self._inner.keep(lease))

    async def revoke(self, lease: int) -> None:
        """See `Store.revoke`."""
        await self._read(lambda: self._inner.revoke(lease))

    async def compact(self, revision: int) -> None:
        """See `Store.compact`."""
        await self._read(lambda: self._inner.compact(revision))

    async def close(self) -> None:
        """The process is gone; the store stays."""
        self.dead = True

    async def _read(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        await self._way()
        found = await ask()
        await asyncio.sleep(self._delay_s())
        await self._alive()
        return found

    @property
    def _unreached(self) -> bool:
        return self._weather.down or self.cut_off

    async def _way(self) -> None:
        await self._alive()
        await asyncio.sleep(self._delay_s())
        await self._alive()
        if self._unreached:
            raise StoreUnavailable("the store is not reached", retry_after_s=0.5)

    async def _alive(self) -> None:
        """A dead process goes no further: its calls never return."""
        if self.dead:
            await asyncio.get_running_loop().create_future()

    def _delay_s(self) -> float:
        return self._rng.uniform(*WAY_S) * self._weather.slow


def _writes(txn: Txn) -> bool:
    return any(
        _writes(op) if isinstance(op, Txn) else not isinstance(op, Get)
        for op in (*txn.then, *txn.orelse)
    )
