"""The agent's side of the log stream: the broker asks by offset, pieces go up.

Long polls wait here, so that a quiet log costs no traffic.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol

from google.protobuf.message import DecodeError

from federation.task_group import TaskGroup
from federation.wire import session as pb
from regional_agent.act.schedulers.port import LocalScheduler, LogSlice, SchedulerUnavailable

PIECE_BYTES_MAX = 1024 * 1024
WAIT_MS_MAX = 60_000
POLL_FIRST_S = 0.05
POLL_MAX_S = 0.5
AT_ONCE = 32


class LogFrames(Protocol):
    """A stream of raw frames."""

    async def write(self, data: bytes) -> None:
        """Send a frame."""

    def frames(self) -> AsyncIterator[bytes]:
        """Frames until the stream ends."""


class LogServer:
    """Answers log requests from what the local scheduler keeps."""

    def __init__(self, scheduler: LocalScheduler) -> None:
        self._scheduler = scheduler

    async def serve(self, cluster: str, stream: LogFrames) -> None:
        """Open the stream and answer until it ends."""
        await stream.write(pb.LogReply(request=0, cluster=cluster).SerializeToString())
        gate = asyncio.Semaphore(AT_ONCE)
        writing = asyncio.Lock()
        async with TaskGroup() as answers:
            async for raw in stream.frames():
                try:
                    request = pb.LogRequest.FromString(raw)
                except DecodeError:
                    continue
                await gate.acquire()
                task = answers.create_task(self._answer(request, stream, writing))
                task.add_done_callback(lambda _: gate.release())

    async def _answer(
        self, request: pb.LogRequest, stream: LogFrames, writing: asyncio.Lock
    ) -> None:
        try:
            piece = await self._piece(request)
            reply = pb.LogReply(
                request=request.request,
                data=piece.data,
                offset=piece.offset,
                total_bytes=piece.total,
                complete=piece.complete,
            )
        except (ValueError, OSError, SchedulerUnavailable) as problem:
            reply = pb.LogReply(request=request.request, error=str(problem) or "unreadable")
        async with writing:  # one write at a time, as gRPC wants it
            await stream.write(reply.SerializeToString())

    async def _piece(self, request: pb.LogRequest) -> LogSlice:
        limit = max(1, min(request.limit_bytes, PIECE_BYTES_MAX))
        loop = asyncio.get_running_loop()
        until_s = loop.time() + min(max(0, request.wait_ms), WAIT_MS_MAX) / 1000
        pause_s = POLL_FIRST_S
        while True:
            piece = await self._scheduler.read_log(
                request.uid, request.stream, request.offset, limit
            )
            if piece.data or piece.complete or loop.time() >= until_s:
                return piece
            await asyncio.sleep(min(pause_s, max(0.0, until_s - loop.time())))
            pause_s = min(2 * pause_s, POLL_MAX_S)
