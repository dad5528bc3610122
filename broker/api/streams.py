"""Server-sent events: framing, keep-alives, and an end to those who do not read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import TypeVar

from aiohttp import web

from broker.api.problems import unavailable

WRITE_TIMEOUT_S = 30.0

_log = logging.getLogger(__name__)

Item = TypeVar("Item")


class Streams:
    """The streams open now: a bound on their number, and a way to end them all."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._open)

    async def close(self) -> None:
        """End every stream; their clients come back to another replica."""
        for task in list(self._open):
            task.cancel()

    async def serve(self, request: web.Request, events: AsyncIterator[Event | None]) -> Stream:
        """Send what `events` yields (None = keep-alive) until it ends or nobody listens.

        Raises Problem 503 when too many streams are open.
        """
        if len(self._open) >= self._most:
            raise unavailable("too_many_streams", "too many streams are open here", 5)
        stream = Stream()
        await stream.prepare(request)
        task = asyncio.create_task(_pump(stream, events))
        self._open.add(task)
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
            self._open.discard(task)
        if not task.cancelled() and task.exception() is not None:
            # The status is out, so this can only end the stream; the client comes back.
            _log.error("an event stream failed", exc_info=task.exception())
        return stream


class Event:
    """One server-sent event, framed. `data` must be one line (JSON)."""

    __slots__ = ("frame",)

    def __init__(self, name: str, data: bytes, event_id: str = "") -> None:
        head = f"event: {name}\n" + (f"id: {event_id}\n" if event_id else "")
        self.frame = head.encode() + b"data: " + data + b"\n\n"


class Stream(web.StreamResponse):
    """The response of an event stream."""

    def __init__(self) -> None:
        super().__init__(
            headers={
                "Content-Type": "text/event-stream",
                "Cache-Control": "no-store",
                "X-Accel-Buffering": "no",
            }
        )


async def _pump(stream: Stream, events: AsyncIterator[Event | None]) -> None:
    # A client that went away, or reads nothing for half a minute, ends its own stream.
    with suppress(ConnectionError, TimeoutError):
        async for event in events:
            frame = event.frame if event is not None else b": still here\n\n"
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await stream.write(frame)
        await stream.write_eof()


async def with_idle(
    items: AsyncGenerator[Item, None], idle_s: float
) -> AsyncIterator[Item | None]:
    """What `items` yields, and None each time nothing came for `idle_s` seconds."""
    step: asyncio.Task[Item] | None = None
    try:
        while True:
            if step is None:
                step = asyncio.ensure_future(anext(items))
            done, _ = await asyncio.wait([step], timeout=idle_s)
            if not done:
                yield None
                continue
            try:
                item = step.result()
            except StopAsyncIteration:
                return
            step = None
            yield item
    finally:
        if step is not None:
            step.cancel()
            await asyncio.wait([step])
        await items.aclose()
