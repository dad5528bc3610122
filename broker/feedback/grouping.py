"""Group writing: many small writes of the event loop become few visits to one thread.

While a group is being written, what arrives waits and forms the next group. So a quiet system
writes at once, a busy one pays one thread hop (and one commit) for hundreds of items, and the
event loop never blocks on a disk.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Generic, TypeVar

from broker.feedback.ports import FeedbackUnavailable

Item = TypeVar("Item")
Result = TypeVar("Result")

GROUP_MAX: Final = 512


class GroupWriter(Generic[Item, Result]):
    """Feeds `write` in its own single thread, in order of submission.

    `write` gets 1..`GROUP_MAX` items and returns as many outcomes; an exception among them is
    raised to that item's submitter alone, one raised by `write` itself to all of the group.
    """

    def __init__(
        self, write: Callable[[Sequence[Item]], Sequence[Result | Exception]], *, thread: str
    ) -> None:
        self._write = write
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=thread)
        self._waiting: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self._drain: asyncio.Task[None] | None = None
        self._closed = False

    async def submit(self, item: Item) -> Result:
        """Have the item written; returns its result. A cancelled caller does not unwrite it."""
        if self._closed:
            raise FeedbackUnavailable("the store is closed")
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._drain is None:
            self._drain = asyncio.create_task(self._drain_all())
        return await future

    async def close(self) -> None:
        """Finish what was submitted and end the thread."""
        self._closed = True
        if self._drain is not None:
            await asyncio.wait([self._drain])
        self._executor.shutdown(wait=False)

    async def _drain_all(self) -> None:
        try:
            while self._waiting:
                size = min(len(self._waiting), GROUP_MAX)
                await self._write_group([self._waiting.popleft() for _ in range(size)])
        finally:
            self._drain = None

    async def _write_group(self, group: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        items = [item for item, _ in group]
        done = asyncio.get_running_loop().run_in_executor(self._executor, self._write, items)
        # wait() does not raise what the write raised: every submitter must hear of it instead.
        await asyncio.wait([done])
        error = done.exception()
        outcomes = [error] * len(group) if error is not None else done.result()
        for (_, future), outcome in zip(group, outcomes, strict=True):
            if future.done():
                continue
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
