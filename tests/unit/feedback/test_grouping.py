from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from broker.feedback.grouping import GROUP_MAX, GroupWriter
from broker.feedback.ports import FeedbackUnavailable

DISK_FULL = 1_000_000


class Recorder:
    """Writes items to a list; waits at a gate so that a test can pile items up."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.threads: set[str] = set()
        self.gate = threading.Event()
        self.gate.set()

    def write(self, items: Sequence[int]) -> Sequence[int | Exception]:
        self.gate.wait(10)
        self.groups.append(list(items))
        self.threads.add(threading.current_thread().name)
        if DISK_FULL in items:
            raise OSError("disk full")
        return [ValueError(str(item)) if item < 0 else item * 2 for item in items]


async def piled_up(writer: GroupWriter[int, int], recorder: Recorder, count: int) -> list[int]:
    recorder.gate.clear()
    tasks = [asyncio.create_task(writer.submit(number)) for number in range(count)]
    await asyncio.sleep(0.02)
    recorder.gate.set()
    return await asyncio.gather(*tasks)


async def test_what_arrives_during_a_write_becomes_one_group() -> None:
    recorder = Recorder()
    writer = GroupWriter(recorder.write, thread="test-group")
    assert await piled_up(writer, recorder, 200) == [number * 2 for number in range(200)]
    assert sum(recorder.groups, []) == list(range(200))
    assert len(recorder.groups) <= 2
    assert recorder.threads == {"test-group_0"}
    await writer.close()


async def test_a_group_has_a_bound() -> None:
    recorder = Recorder()
    writer = GroupWriter(recorder.write, thread="test-group")
    await piled_up(writer, recorder, GROUP_MAX * 2 + 10)
    assert max(len(group) for group in recorder.groups) == GROUP_MAX
    await writer.close()


async def test_an_item_fails_alone_a_write_fails_all() -> None:
    recorder = Recorder()
    writer = GroupWriter(recorder.write, thread="test-group")
    good, bad = await asyncio.gather(writer.submit(4), writer.submit(-4), return_exceptions=True)
    assert good == 8 and isinstance(bad, ValueError)
    outcomes = await asyncio.gather(
        writer.submit(1), writer.submit(DISK_FULL), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [OSError, OSError]
    assert await writer.submit(5) == 10
    await writer.close()


async def test_a_cancelled_caller_harms_nobody() -> None:
    recorder = Recorder()
    writer = GroupWriter(recorder.write, thread="test-group")
    recorder.gate.clear()
    gone, stays = (asyncio.create_task(writer.submit(number)) for number in (1, 2))
    await asyncio.sleep(0.01)
    gone.cancel()
    await asyncio.sleep(0)
    recorder.gate.set()
    assert await stays == 4
    assert sum(recorder.groups, []) == [1, 2]
    await writer.close()


async def test_closing_finishes_what_was_accepted_and_takes_no_more() -> None:
    recorder = Recorder()
    writer = GroupWriter(recorder.write, thread="test-group")
    tasks = [asyncio.create_task(writer.submit(number)) for number in range(5)]
    await asyncio.sleep(0)
    await writer.close()
    assert await asyncio.gather(*tasks) == [0, 2, 4, 6, 8]
    with pytest.raises(FeedbackUnavailable, match="closed"):
        await writer.submit(1)
