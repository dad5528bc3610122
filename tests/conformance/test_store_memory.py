"""What only the memory store promises: a clock from outside, determinism, progress on demand."""

import asyncio
import selectors
from collections.abc import Mapping
from contextlib import aclosing

import pytest

from broker.state.backends.memory import MemoryStore
from federation.kv import Delete, LeaseNotFound, Put, StoreUnavailable, Txn, WatchBatch


class SetClock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic_s(self) -> float:
        return self.seconds


class LoopClock:
    """The clock of the running loop."""

    def now_ms(self) -> int:
        return int(self.monotonic_s() * 1000)

    def monotonic_s(self) -> float:
        return asyncio.get_running_loop().time()


class _NoWait(selectors.BaseSelector):
    """Skips waiting: time moves to the next timer instead. Nothing to wait for is a deadlock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._keys: dict[int, selectors.SelectorKey] = {}

    def register(self, fileobj, events, data=None):  # type: ignore[no-untyped-def]
        key = selectors.SelectorKey(fileobj, 0, events, data)
        self._keys[id(fileobj)] = key
        return key

    def unregister(self, fileobj):  # type: ignore[no-untyped-def]
        return self._keys.pop(id(fileobj))

    def get_map(self) -> Mapping[int, selectors.SelectorKey]:  # type: ignore[override]
        return self._keys

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("deadlock: nothing is ready and no timer is set")
        self.now_s += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is counted, not waited for."""

    def __init__(self) -> None:
        self._no_wait = _NoWait()
        super().__init__(self._no_wait)

    def time(self) -> float:
        return self._no_wait.now_s


async def test_leases_end_by_the_clock_given_oldest_first() -> None:
    clock = SetClock()
    store = MemoryStore(clock)
    long, short = await store.grant(30), await store.grant(10)
    written = await store.txn(Txn(then=(Put("l", b"", long), Put("s", b"", short))))
    clock.seconds += 9.9
    assert await store.keep(short) == 10
    clock.seconds += 9.9
    assert await store.get("s") is not None
    clock.seconds += 30
    assert await store.get("s") is None
    assert store.revision == written.revision + 2, "each expiry is a revision of its own"
    past = await store.range("", revision=written.revision + 1)
    assert [kv.key for kv in past.kvs] == ["l"]
    with pytest.raises(LeaseNotFound):
        await store.keep(short)


async def test_a_clock_that_stands_still_costs_nothing() -> None:
    store = MemoryStore(SetClock())
    lease = await store.grant(2)
    await store.txn(Txn(then=(Put("k", b"", lease),)))
    await asyncio.sleep(0.05)
    assert await store.get("k") is not None
    await store.close()


def test_a_day_of_virtual_time_with_a_watcher_and_a_lease() -> None:
    """Expiry reaches a watcher without any call, on a loop that waits for nothing real."""

    async def day() -> list[tuple[float, int, int]]:
        loop = asyncio.get_running_loop()
        store = MemoryStore(LoopClock())
        seen: list[tuple[float, int, int]] = []

        async def look() -> None:
            async with aclosing(store.watch("", 1)) as stream:
                async for batch in stream:
                    seen.append((loop.time(), batch.revision, len(batch.events)))

        looking = asyncio.create_task(look())
        for hour in range(24):
            lease = await store.grant(60 + hour)
            await store.txn(Txn(then=(Put("a", b"", lease), Put("b", b"", lease))))
            await asyncio.sleep(3600)
        looking.cancel()
        return seen

    def run() -> list[tuple[float, int, int]]:
        loop = VirtualLoop()
        try:
            return loop.run_until_complete(day())
        finally:
            loop.close()

    seen = run()
    assert [revision for _, revision, _ in seen] == list(range(2, 50))
    assert {count for _, _, count in seen} == {2}
    waits = [gone - put for (put, _, _), (gone, _, _) in zip(seen[::2], seen[1::2], strict=True)]
    assert waits == pytest.approx([60 + hour for hour in range(24)])
    assert run() == seen


async def test_progress_tells_every_watcher_how_far_it_is() -> None:
    store = MemoryStore(SetClock())
    await store.txn(Txn(then=(Put("other", b""),)))
    async with aclosing(store.watch("mine/", 1)) as stream:
        step = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        store.report_progress()
        assert await step == WatchBatch(2, ())


async def test_closing_ends_watches() -> None:
    store = MemoryStore(SetClock())
    stream = store.watch("", 1)
    step = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    await store.close()
    with pytest.raises(StoreUnavailable):
        await step
    with pytest.raises(StoreUnavailable):
        await store.get("k")


async def test_a_slow_watcher_loses_nothing_to_compaction() -> None:
    store = MemoryStore(SetClock())
    async with aclosing(store.watch("", 1)) as stream:
        step = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        for number in range(5):
            await store.txn(Txn(then=(Put("k", b"%d" % number),)))
        await store.compact(store.revision)
        batches = [await step] + [await anext(stream) for _ in range(4)]
    assert [batch.revision for batch in batches] == [2, 3, 4, 5, 6]


async def test_compaction_frees_what_nobody_can_read() -> None:
    store = MemoryStore(SetClock())
    for number in range(50):
        await store.txn(Txn(then=(Put("k", b"%d" % number), Put(f"gone/{number}", b""))))
        await store.txn(Txn(then=(Delete(f"gone/{number}"),)))
    await store.compact(store.revision)
    history = store._history
    assert {key: len(versions) for key, versions in history._versions.items()} == {"k": 1}
    assert (history._index, history._log) == (["k"], [])
