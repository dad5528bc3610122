"""Leadership rests on epoch and beat: one leader acts at a time, whatever dies or freezes."""

from __future__ import annotations

import asyncio

import pytest

from broker.control.leadership import Candidate, Leadership, LeadershipLost
from broker.state import keys
from broker.state.backends.memory import MemoryStore
from federation.kv import Put, Txn
from federation.system import SystemClock


class SteppedClock(SystemClock):
    """A monotonic clock that can be made to jump, as after a suspend."""

    jump_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.jump_s


def a_candidate(store: MemoryStore, name: str, clock: SystemClock | None = None) -> Leadership:
    return Leadership(store, clock or SystemClock(), Candidate(name, ("api",), ("s",)), ttl_s=0.3)


async def test_the_first_wins_at_once_and_a_second_waits() -> None:
    store = MemoryStore(SystemClock())
    first, second = a_candidate(store, "a"), a_candidate(store, "b")
    await first.win()
    beating = asyncio.create_task(first.keep())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.8):
            await second.win()
    assert first.valid() and first.epoch == 1
    beating.cancel()
    await second.win()
    assert second.epoch == 2


async def test_a_superseded_leader_can_write_nothing_and_is_told() -> None:
    store = MemoryStore(SystemClock())
    first, second = a_candidate(store, "a"), a_candidate(store, "b")
    await first.win()
    await second.win()
    late = await store.txn(Txn(first.guard, (Put("/x", b"1"),)))
    assert not late.succeeded
    with pytest.raises(LeadershipLost):
        await first.keep()


async def test_a_leader_that_slept_stops_acting_before_it_asks_anybody() -> None:
    clock = SteppedClock()
    first = a_candidate(MemoryStore(clock), "a", clock)
    await first.win()
    assert first.valid()
    clock.jump_s = 0.25
    assert not first.valid()
    with pytest.raises(LeadershipLost):
        first.require()


async def test_resigning_lets_the_next_lead_without_waiting() -> None:
    store = MemoryStore(SystemClock())
    first, second = a_candidate(store, "a"), a_candidate(store, "b")
    await first.win()
    await first.resign()
    assert not first.valid()
    async with asyncio.timeout(0.25):
        await second.win()
    assert second.epoch == 2


async def test_two_that_stand_together_never_lead_under_one_epoch() -> None:
    store = MemoryStore(SystemClock())
    rivals = [a_candidate(store, f"b{i}") for i in range(5)]
    standing = [asyncio.create_task(rival.win()) for rival in rivals]
    await asyncio.sleep(1.2)
    for task in standing:
        task.cancel()
    await asyncio.gather(*standing, return_exceptions=True)
    epochs = [rival.epoch for rival in rivals if rival.epoch]
    assert epochs and len(set(epochs)) == len(epochs)
    assert sum(rival.valid() for rival in rivals) <= 1
    found = await store.get(keys.EPOCH)
    assert found is not None
