"""Virtual time itself: what passes, what raises, what is always the same."""

from __future__ import annotations

import asyncio
import time

import pytest

from federation.virtual_time import Deadlock, OutsideSimulation, SimClock, SimIds, SimLoop, SimRng


def run(main: object, explorer: SimRng | None = None) -> object:
    loop = SimLoop(explorer)
    try:
        return loop.run_until_complete(main)  # type: ignore[arg-type]
    finally:
        loop.close()


def test_a_year_passes_at_once() -> None:
    async def main() -> float:
        await asyncio.sleep(365 * 86_400)
        return asyncio.get_running_loop().time()

    began_s = time.monotonic()
    assert run(main()) == 365 * 86_400
    assert time.monotonic() - began_s < 1


def test_waiting_for_nobody_is_an_error() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock):
        run(main())


def test_a_thread_is_an_error() -> None:
    async def main() -> None:
        await asyncio.to_thread(time.monotonic)

    with pytest.raises(OutsideSimulation):
        run(main())


def test_timeouts_are_of_virtual_time() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.sleep(60)
        return asyncio.get_running_loop().time()

    assert run(main()) == 30


async def _order(count: int) -> list[int]:
    seen: list[int] = []
    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            tasks.create_task(_note(seen, number))
    return seen


async def _note(seen: list[int], number: int) -> None:
    await asyncio.sleep(0)
    seen.append(number)


def test_first_in_first_out_unless_explored() -> None:
    assert run(_order(20)) == list(range(20))
    shuffled = run(_order(20), SimRng(1))
    assert shuffled != list(range(20))
    assert shuffled == run(_order(20), SimRng(1))


def test_tasks_are_cancelled_in_the_order_they_were_made() -> None:
    """Sets of tasks, as asyncio keeps them, are not ordered by addresses here."""

    async def main() -> list[int]:
        gone: list[int] = []

        async def waits(number: int) -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                gone.append(number)

        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as tasks:
                for number in range(50):
                    tasks.create_task(waits(number))
                await asyncio.sleep(1)
                raise ValueError
        return gone

    assert run(main()) == run(main())


def test_dice_and_ids_repeat() -> None:
    one, two = SimRng("x"), SimRng("x")
    assert [one.random_bits(80) for _ in range(9)] == [two.random_bits(80) for _ in range(9)]
    assert SimRng("x").fork("a").uniform(0, 1) != SimRng("x").fork("b").uniform(0, 1)
    throws = [SimRng(n).uniform(2, 3) for n in range(500)]
    assert 2 <= min(throws) < 2.05 and 2.95 < max(throws) < 3
    assert SimIds(SimRng(1)).job_id(7) == SimIds(SimRng(1)).job_id(7)
    assert len(SimIds(SimRng(1)).token_bytes(5)) == 5


def test_clocks_may_differ_by_their_skew() -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()
        right, wrong = SimClock(loop), SimClock(loop, skew_ms=-1500)
        await asyncio.sleep(2)
        assert right.monotonic_s() == wrong.monotonic_s() == 2
        return right.now_ms() - wrong.now_ms()

    assert run(main()) == 1500
