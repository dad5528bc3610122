"""What a group of tasks leaves behind on the task it ran in."""

from __future__ import annotations

import asyncio

import pytest

from federation.task_group import TaskGroup


class Broken(Exception):
    """What a child raises."""


async def _fails(after_s: float = 0.0) -> None:
    await asyncio.sleep(after_s)
    raise Broken


def _current() -> asyncio.Task[object]:
    task = asyncio.current_task()
    assert task is not None
    return task


@pytest.mark.parametrize("block_s", [0.0, 0.05])  # the child fails at the end, in the block
def test_no_request_to_cancel_is_left_of_a_child_that_fails(block_s: float) -> None:
    async def around() -> None:
        with pytest.raises(ExceptionGroup):
            async with TaskGroup() as group:
                group.create_task(_fails(0.01))
                await asyncio.sleep(block_s)
        assert _current().cancelling() == 0
        with pytest.raises(TimeoutError):  # and not CancelledError
            async with asyncio.timeout(0.001):
                await asyncio.sleep(1)

    asyncio.run(around())


def test_a_failure_in_a_group_inside_a_group_leaves_none_either() -> None:
    async def inner() -> None:
        async with TaskGroup() as group:
            group.create_task(_fails(0.01))

    async def around() -> None:
        for _ in range(3):
            with pytest.raises(ExceptionGroup):
                async with TaskGroup() as group:
                    group.create_task(inner())
                    group.create_task(asyncio.sleep(1))
        assert _current().cancelling() == 0

    asyncio.run(around())


def test_a_cancellation_that_meets_a_failing_child_ends_the_loop_around_the_group() -> None:
    async def stubborn() -> None:
        try:
            await asyncio.sleep(1)
        finally:
            raise Broken

    async def standing() -> None:
        while True:
            try:
                async with TaskGroup() as group:
                    group.create_task(stubborn())
            except* Broken:
                pass
            await asyncio.sleep(0.01)

    async def around() -> None:
        task = asyncio.create_task(standing())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 1.0)

    asyncio.run(around())


def test_a_group_in_the_clearing_up_of_a_cancelled_task_waits_for_its_tasks() -> None:
    done: list[int] = []

    async def one() -> None:
        await asyncio.sleep(0.01)
        done.append(1)

    async def clearing() -> None:
        try:
            await asyncio.sleep(1)
        finally:
            with pytest.raises(ExceptionGroup):
                async with TaskGroup() as group:
                    group.create_task(_fails())
            async with TaskGroup() as group:  # not cut short by what was answered already
                group.create_task(one())

    async def around() -> None:
        task = asyncio.create_task(clearing())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(around())
    assert done == [1]
