"""A group of tasks that leaves the cancellations of the task it runs in as they were."""

from __future__ import annotations

import asyncio
import sys
from types import TracebackType
from typing import Self


class TaskGroup(asyncio.TaskGroup):
    """`asyncio.TaskGroup` with what Python 3.13 made of its end (cpython issue 116720).

    Before that, a group whose child fails while the block already waits for its end leaves a
    request to cancel on the task around it. `asyncio.timeout` of a Python before 3.11.3 takes
    every later timeout in that task for this cancellation: a loop that stands again after a
    failure ends instead, and nobody hears of it. The other way round, a cancellation from
    outside that meets a failing child was lost: what loops over failures never stopped.
    """

    async def __aenter__(self) -> Self:
        """Enter; raises RuntimeError outside a task."""
        await super().__aenter__()
        self._cancelled_before = _here().cancelling()
        return self

    async def __aexit__(
        self,
        et: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """Wait for the tasks. Raises an ExceptionGroup of what they and the block raised."""
        task, in_block = _here(), self._asked
        try:
            await super().__aexit__(et, exc, tb)
        except BaseExceptionGroup:
            if sys.version_info < (3, 13):
                if self._asked and not in_block:
                    task.uncancel()
                if task.cancelling() > self._cancelled_before:  # by others: at its next wait
                    task.uncancel()
                    task.cancel()
            raise

    @property
    def _asked(self) -> bool:
        """Whether the group cancelled the task around it, to end its block."""
        return bool(vars(self)["_parent_cancel_requested"])


def _here() -> asyncio.Task[object]:
    task = asyncio.current_task()
    assert task is not None  # __aenter__ of asyncio saw to it
    return task
