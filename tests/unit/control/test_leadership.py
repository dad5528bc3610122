"""Leadership rests on epoch and beat: one leader acts at a time, whatever dies or freezes.

In virtual time: no beat comes late because the machine is busy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from broker.control.leadership import Candidate, Leadership, LeadershipLost
from broker.state import keys
from broker.state.backends.memory import MemoryStore
from federation.kv import Put, Txn
from federation.virtual_time import SimClock, SimLoop

TTL_S = 3.0


class SteppedClock(SimClock):
    """A monotonic clock that can be made to jump, as after a suspend."""

    jump_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.jump_s


def play(story: Callable[[SteppedClock], Coroutine[None, None, None]]) -> None:
    """Run a story in virtual time."""
    loop = SimLoop()
    try:
        loop.run_until_complete(story(SteppedClock(loop)))
    finally:
        loop.close()


def a_candidate(store: MemoryStore, name: str, clock: SteppedClock) -> Leadership:
    return Leadership(store, clock, Candidate(name, ("api",), ("s",)), ttl_s=TTL_S)


def test_the_first_wins_at_once_and_a_second_waits() -> None:
    async def story(clock: SteppedClock) -> None:
        store = MemoryStore(clock)
        first, second = a_candidate(store, "a", clock), a_candidate(store, "b", clock)
        await first.win()
        beating = asyncio.create_task(first.keep())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3 * TTL_S):
                await second.win()
        assert first.valid() and first.epoch == 1
        beating.cancel()
        await second.win()
        assert second.epoch == 2

    play(story)


def test_a_superseded_leader_can_write_nothing_and_is_told() -> None:
    async def story(clock: SteppedClock) -> None:
        store = MemoryStore(clock)
        first, second = a_candidate(store, "a", clock), a_candidate(store, "b", clock)
        await first.win()
        await second.win()
        late = await store.txn(Txn(first.guard, (Put("/x", b"1"),)))
        assert not late.succeeded
        with pytest.raises(LeadershipLost):
            await first.keep()

    play(story)


def test_a_leader_that_slept_stops_acting_before_it_asks_anybody() -> None:
    async def story(clock: SteppedClock) -> None:
        first = a_candidate(MemoryStore(clock), "a", clock)
        await first.win()
        assert first.valid()
        clock.jump_s = 0.81 * TTL_S
        assert not first.valid()
        with pytest.raises(LeadershipLost):
            first.require()

    play(story)


def test_resigning_lets_the_next_lead_without_waiting() -> None:
    async def story(clock: SteppedClock) -> None:
        store = MemoryStore(clock)
        first, second = a_candidate(store, "a", clock), a_candidate(store, "b", clock)
        await first.win()
        await first.resign()
        assert not first.valid()
        async with asyncio.timeout(TTL_S / 2):
            await second.win()
        assert second.epoch == 2

    play(story)


def test_two_that_stand_together_never_lead_under_one_epoch() -> None:
    async def story(clock: SteppedClock) -> None:
        store = MemoryStore(clock)
        rivals = [a_candidate(store, f"b{i}", clock) for i in range(5)]
        standing = [asyncio.create_task(rival.win()) for rival in rivals]
        await asyncio.sleep(4 * TTL_S)
        for task in standing:
            task.cancel()
        await asyncio.gather(*standing, return_exceptions=True)
        epochs = [rival.epoch for rival in rivals if rival.epoch]
        assert epochs and len(set(epochs)) == len(epochs)
        assert sum(rival.valid() for rival in rivals) <= 1
        found = await store.get(keys.EPOCH)
        assert found is not None

    play(story)
