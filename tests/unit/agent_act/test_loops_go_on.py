"""What follows attempts and objects for ever outlives a fault that nobody foresaw, says so, and
ends when it is told to, also when there is news at that very moment."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from regional_agent.act.schedulers.batch.following import Follower, Pace
from regional_agent.kubernetes.api import KubernetesSilent, Object
from regional_agent.kubernetes.watched import Watched

WITHIN_S = 5.0


async def test_a_batch_system_that_is_misread_once_is_followed_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nothing: Any = None
    follower = Follower(nothing, Pace(look_s=0.01), nothing, nothing, nothing)
    follower.attempts["a-1"] = SimpleNamespace(outcome=None)  # type: ignore[assignment]
    looks = 0

    async def step() -> None:
        nonlocal looks
        looks += 1
        if looks < 3:
            raise KeyError("no such field")

    follower.step = step  # type: ignore[method-assign]
    with caplog.at_level(logging.WARNING):
        task = asyncio.create_task(follower.run())
        async with asyncio.timeout(WITHIN_S):
            while looks < 5:
                await asyncio.sleep(0.01)
    assert not task.done()
    assert len(caplog.records) == 1 and "KeyError" in caplog.text
    follower.wake()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


class OneBadEvent:
    """A collection whose first watch tells what cannot be read."""

    def __init__(self) -> None:
        self.lists = 0

    async def listed(self) -> tuple[list[Object], str]:
        self.lists += 1
        return [{"metadata": {"name": f"job-{self.lists}"}}], str(self.lists)

    async def watch(self, version: str) -> AsyncIterator[Object]:
        if version == "1":
            yield {"type": "ADDED", "object": {"kind": "no metadata"}}
        await asyncio.sleep(WITHIN_S)


async def test_an_object_that_cannot_be_read_is_no_end_of_the_watch() -> None:
    """While it is not followed nothing old is told; then everything is listed anew."""
    watched = Watched(OneBadEvent(), lambda: None)
    names: list[str] = []
    async with asyncio.timeout(WITHIN_S):
        while names != ["job-2"]:
            try:
                names = [str(each["metadata"]["name"]) for each in await watched.items()]
            except KubernetesSilent as silent:
                assert "KeyError" in str(silent)
            await asyncio.sleep(0.01)
    await watched.close()
