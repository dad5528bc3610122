import asyncio
from dataclasses import dataclass

import pytest

from federation.system import SystemClock
from regional_agent.feedback.logs import MAX_READ_BYTES, LogReader, Tail
from regional_agent.feedback.usage import Metered, metered, total


@dataclass(frozen=True)
class Cut:
    data: bytes
    offset: int
    total: int
    complete: bool


class Shown:
    """A log source with one growing text per stream."""

    def __init__(self) -> None:
        self.texts: dict[str, bytes] = {}
        self.complete = False
        self.limits: list[int] = []

    async def read_log(self, uid: str, stream: str, offset: int, limit: int) -> Cut:
        self.limits.append(limit)
        text = self.texts.get(stream, b"")
        start = max(0, len(text) + offset) if offset < 0 else offset
        return Cut(text[start : start + limit], start, len(text), self.complete)


async def test_a_follower_is_answered_when_there_is_more() -> None:
    shown = Shown()
    reader = LogReader(shown, SystemClock())
    waiting = asyncio.create_task(reader.read("job-1", "output", 0, 100, wait_s=5))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    shown.texts["output"] = b"hello"
    assert (await asyncio.wait_for(waiting, 2)).data == b"hello"


async def test_a_follower_is_answered_at_the_end_and_in_time() -> None:
    shown = Shown()
    reader = LogReader(shown, SystemClock())
    assert (await reader.read("job-1", "output", 0, 100, wait_s=0.1)).data == b""
    shown.complete = True
    end = await asyncio.wait_for(reader.read("job-1", "output", 0, 100, wait_s=9), 1)
    assert (end.data, end.complete) == (b"", True)


async def test_nobody_gets_all_at_once() -> None:
    shown = Shown()
    await LogReader(shown, SystemClock()).read("job-1", "output", 0, 10**9)
    assert shown.limits == [MAX_READ_BYTES]


async def test_tails_of_what_was_said() -> None:
    shown = Shown()
    shown.texts = {"task-1": b"x" * 70_000, "task-2": b"short"}
    tails = await LogReader(shown, SystemClock()).tails("job-1", ["task-1", "task-2", "task-3"])
    assert tails[0] == Tail("task-1", 70_000 - 65_536, b"x" * 65_536, 70_000)
    assert [t.stream for t in tails] == ["task-1", "task-2"]


def test_usage_is_charged_by_card_and_time() -> None:
    one = metered(wall_ms=1000, cpu_ms=500, max_rss_bytes=7, cards_per_task=8)
    assert one.accelerator_ms == 8000
    assert total([one, metered(10, 20, 3, 0)]) == Metered(1010, 520, 7, 8000)
    with pytest.raises(ValueError, match="negative"):
        metered(-1, 0, 0, 0)
