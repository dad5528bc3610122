"""Group commit: one bad change fails alone, order holds, a lost epoch stops everything."""

from __future__ import annotations

import asyncio

import pytest

from broker.state.backends.memory import MemoryStore
from broker.state.group_commit import GroupCommitter, GuardFailed
from federation.kv import Absent, Get, Put, Txn, ValueIs
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
