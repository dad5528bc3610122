"""Streams between an agent and a broker in one process, for simulation: no socket, no thread.

A line delivers in order after a delay, may be stalled for a while as TCP is by a partition
(nothing is lost then), and breaks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from federation.wire import session as pb

_F = TypeVar("_F")
_APART_S = 1e-6


class Way(Generic[_F]):
    """One direction of a line."""

    def __init__(self, delay_s: Callable[[], float]) -> None:
        self._delay_s = delay_s
        self._last_s = 0.0
        self._arrived: asyncio.Queue[_F | None] = asyncio.Queue()
        self._held: list[_F | None] | None = None

    def send(self, frame: _F | None) -> None:
        """Let it arrive after everything sent before; None ends the direction."""
        loop = asyncio.get_running_loop()
        self._last_s = max(self._last_s + _APART_S, loop.time() + self._delay_s())
        loop.call_at(self._last_s, self._arrive, frame)

    async def receive(self) -> _F | None:
        """The next frame; None at the end."""
        return await self._arrived.get()

    def cut(self) -> None:
        """The receiver sees the end at once; what is on its way never comes."""
        self._arrived = _over(self._arrived)
        self._held = []

    def stall(self) -> None:
        """Nothing arrives until `flow`; nothing is lost either."""
        if self._held is None:
            self._held = []

    def flow(self) -> None:
        """What was held arrives now, in order."""
        held, self._held = self._held or [], None
        for frame in held:
            self._arrived.put_nowait(frame)

    def _arrive(self, frame: _F | None) -> None:
        if self._held is not None:
            self._held.append(frame)
        else:
            self._arrived.put_nowait(frame)


def _over(queue: asyncio.Queue[_F | None]) -> asyncio.Queue[_F | None]:
    while not queue.empty():
        queue.get_nowait()
    queue.put_nowait(None)
    return queue


class Line:
    """A stream between an agent (which sends `up`) and the broker at `address` (`down`)."""

    def __init__(self, address: str, delay_s: Callable[[], float]) -> None:
        self.address = address
        self.up: Way[pb.AgentFrame] = Way(delay_s)
        self.down: Way[pb.BrokerFrame] = Way(delay_s)

    def cut(self) -> None:
        """Broken: both sides see the end."""
        self.up.cut()
        self.down.cut()

    def stall(self) -> None:
        """As in a partition."""
        self.up.stall()
        self.down.stall()

    def flow(self) -> None:
        """The partition is over."""
        self.up.flow()
        self.down.flow()
