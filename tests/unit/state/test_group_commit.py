"""Group commit: one bad change fails alone, order holds, a lost epoch stops everything."""

from __future__ import annotations

import asyncio

import pytest

from broker.state.backends.memory import MemoryStore
from broker.state.group_commit import ITEMS_MAX, GroupCommitter, GuardFailed, fill_first
from federation.kv import (
    Absent,
    Get,
    InvalidRequest,
    Put,
    RequestTooLarge,
    Txn,
    TxnResult,
    ValueIs,
)
from federation.system import SystemClock


def a_store() -> MemoryStore:
    return MemoryStore(SystemClock())


async def test_one_failed_compare_fails_only_its_item() -> None:
    store = a_store()
    await store.txn(Txn(then=(Put("/a", b"there"),)))
    lane = GroupCommitter(store)
    results = await asyncio.gather(
        lane.commit([Absent("/a")], [Put("/a", b"new")], [Get("/a")]),
        *(lane.commit([Absent(f"/k{i}")], [Put(f"/k{i}", b"x")]) for i in range(150)),
    )
    assert not results[0].succeeded and results[0].results[0].kv.value == b"there"
    assert all(r.succeeded for r in results[1:])


async def test_changes_of_one_key_keep_their_order() -> None:
    store = a_store()
    lane = GroupCommitter(store)
    await asyncio.gather(*(lane.commit([], [Put("/k", b"%d" % i)]) for i in range(100)))
    found = await store.get("/k")
    assert found is not None and found.value == b"99" and found.version == 100


async def test_a_foreign_epoch_stops_every_item() -> None:
    store = a_store()
    await store.txn(Txn(then=(Put("/epoch", b"2"),)))
    lane = GroupCommitter(store, guard=lambda: (ValueIs("/epoch", b"1"),))
    with pytest.raises(GuardFailed):
        await lane.commit([], [Put("/k", b"x")])
    assert await store.get("/k") is None


class BrokenStore(MemoryStore):
    """A store whose client raises what nobody foresaw, once."""

    broken = True

    async def txn(self, txn: Txn) -> TxnResult:
        if self.broken:
            self.broken = False
            raise RuntimeError("a bug in the client")
        return await super().txn(txn)


async def test_a_change_the_store_never_takes_fails_alone() -> None:
    store = a_store()
    lane = GroupCommitter(store, guard=lambda: ())
    huge = lane.enqueue(Txn(then=(Put("/huge", b"x" * 2_000_000),)))
    many = lane.enqueue(Txn(then=tuple(Put(f"/m{i}", b"") for i in range(200))))
    empty = lane.enqueue(Txn(then=(Put("", b"no key"),)))
    others = [lane.enqueue(Txn(then=(Put(f"/k{i}", b"x"),))) for i in range(100)]
    results = await asyncio.gather(huge, many, empty, *others, return_exceptions=True)
    assert isinstance(results[0], RequestTooLarge) and isinstance(results[1], RequestTooLarge)
    assert isinstance(results[2], InvalidRequest)
    assert all(isinstance(r, TxnResult) and r.succeeded for r in results[3:])


async def test_changes_of_many_operations_share_requests_as_far_as_the_limit_allows() -> None:
    lane = GroupCommitter(a_store(), guard=lambda: ())
    wide = [
        lane.enqueue(Txn(then=tuple(Put(f"/{i}/{n}", b"") for n in range(100))))
        for i in range(90)
    ]
    assert all(r.succeeded for r in await asyncio.gather(*wide))


async def test_a_lane_outlives_a_fault_of_the_client_and_leaves_nobody_waiting() -> None:
    lane = GroupCommitter(BrokenStore(SystemClock()))
    first = lane.enqueue(Txn(then=(Put("/a", b"1"),)))
    second = lane.enqueue(Txn(then=(Put("/a", b"2"),)))
    async with asyncio.timeout(1):
        answers = await asyncio.gather(first, second, return_exceptions=True)
    assert isinstance(answers[0], RuntimeError)
    assert isinstance(answers[1], TxnResult) and answers[1].succeeded


class CountingStore(MemoryStore):
    """Counts the requests it answers."""

    requests = 0

    async def txn(self, txn: Txn) -> TxnResult:
        self.requests += 1
        await asyncio.sleep(0)
        return await super().txn(txn)


async def test_a_second_lane_opens_only_when_a_group_is_full() -> None:
    store = CountingStore(SystemClock())
    lanes = [GroupCommitter(store), GroupCommitter(store)]
    chosen = []

    async def one(number: int) -> TxnResult:
        lane = fill_first(lanes)
        chosen.append(lanes.index(lane))
        return await lane.commit([], [Put(f"/k{number}", b"x")])

    await asyncio.gather(*(one(number) for number in range(ITEMS_MAX + 10)))
    assert chosen.count(0) == ITEMS_MAX and chosen.count(1) == 10
    assert store.requests == 2
