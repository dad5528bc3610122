"""Reading logs for those who follow them: by offset, waiting a while for more, and tails.

The scheduler is seen through the two protocols here; `act.schedulers.port` satisfies them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from federation.environment import Clock

TAIL_BYTES = 64 * 2**10
MAX_READ_BYTES = 2**20
FIRST_LOOK_S = 0.05
MAX_LOOK_S = 1.0


class Slice(Protocol):
    """Bytes of a stream from `offset`; `complete`: it will not grow beyond `total`."""

    @property
    def data(self) -> bytes: ...  # noqa: D102
    @property
    def offset(self) -> int: ...  # noqa: D102
    @property
    def total(self) -> int: ...  # noqa: D102
    @property
    def complete(self) -> bool: ...  # noqa: D102


class LogSource(Protocol):
    """Where logs are read from."""

    async def read_log(self, uid: str, stream: str, offset: int, limit: int) -> Slice:
        """At most `limit` bytes; a negative offset counts from the end."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a stream."""

    stream: str
    offset: int
    data: bytes
    total: int


class LogReader:
    """Answers requests for logs."""

    def __init__(self, source: LogSource, clock: Clock) -> None:
        self._source = source
        self._clock = clock

    async def read(
        self, uid: str, stream: str, offset: int, limit: int, wait_s: float = 0.0
    ) -> Slice:
        """What there is from `offset`; if there is nothing yet, waits up to `wait_s` for more.

        Raises ValueError for a name that is no stream, and what the source raises.
        """
        deadline_s = self._clock.monotonic_s() + wait_s
        limit = max(1, min(limit, MAX_READ_BYTES))
        look_s = FIRST_LOOK_S
        while True:
            found = await self._source.read_log(uid, stream, offset, limit)
            left_s = deadline_s - self._clock.monotonic_s()
            if found.data or found.complete or left_s <= 0:
                return found
            await asyncio.sleep(min(look_s, left_s))
            # Someone who follows a silent program need not be answered within milliseconds.
            look_s = min(look_s * 1.5, MAX_LOOK_S)

    async def tails(self, uid: str, streams: Sequence[str]) -> tuple[Tail, ...]:
        """The last `TAIL_BYTES` of each stream that is not empty."""
        found = []
        for stream in streams:
            end = await self._source.read_log(uid, stream, -TAIL_BYTES, TAIL_BYTES)
            if end.data:
                found.append(Tail(stream, end.offset, end.data, end.total))
        return tuple(found)
