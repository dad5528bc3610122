"""The log stream of one agent: requests down by number, pieces of logs up."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from broker.act.gateway import LogPart, SiteSilent
from federation.wire import session as pb

ANSWER_WAIT_S = 15.0
LOG_PART_BYTES_MAX = 1024 * 1024


class LogStream:
    """Requests and replies over one stream; requests may overlap."""

    def __init__(
        self, cluster: str, context: grpc.aio.ServicerContext[bytes, bytes]
    ) -> None:
        self._cluster = cluster
        self._context = context
        self._requests: asyncio.Queue[bytes] = asyncio.Queue()
        self._waiting: dict[int, asyncio.Future[pb.LogReply]] = {}
        self._last = 0
        self._over: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def read(
        self, which: tuple[str, str], offset: int, limit: int, *, wait_ms: int
    ) -> LogPart:
        """Ask for a piece of stream `which[1]` of attempt `which[0]`.

        Raises SiteSilent when no answer comes, LookupError for what the site does not have.
        """
        if self._over.done():
            raise SiteSilent(f"cluster {self._cluster}: {self._over.result()}")
        self._last += 1
        number = self._last
        answer: asyncio.Future[pb.LogReply] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        request = pb.LogRequest(
            request=number,
            uid=which[0],
            stream=which[1],
            offset=offset,
            limit_bytes=max(1, min(limit, LOG_PART_BYTES_MAX)),
            wait_ms=wait_ms,
        )
        self._requests.put_nowait(request.SerializeToString())
        try:
            reply = await asyncio.wait_for(answer, wait_ms / 1000 + ANSWER_WAIT_S)
        except TimeoutError:
            raise SiteSilent(f"cluster {self._cluster} did not answer for a log") from None
        finally:
            self._waiting.pop(number, None)
        if reply.error:
            raise LookupError(reply.error)
        return LogPart(reply.data, reply.offset, reply.total_bytes, reply.complete)

    def end(self, why: str) -> None:
        """End the stream; whoever waits for an answer is told."""
        if not self._over.done():
            self._over.set_result(why)
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(SiteSilent(f"cluster {self._cluster}: {why}"))

    async def run(self) -> None:
        """Serve until the agent or `end` ends it."""
        tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._write())]
        ends: list[asyncio.Future[Any]] = [self._over, *tasks]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.end("the log stream ended")
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _write(self) -> None:
        while True:
            await self._context.write(await self._requests.get())

    async def _read(self) -> None:
        while True:
            raw = await self._context.read()
            if not isinstance(raw, bytes):  # the end of the stream
                return
            # A reply that cannot be read is a request that is never answered.
            with contextlib.suppress(DecodeError):
                reply = pb.LogReply.FromString(raw)
                answer = self._waiting.get(reply.request)
                if answer is not None and not answer.done():
                    answer.set_result(reply)
