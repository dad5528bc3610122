"""Virtual time: an event loop that never waits, and the clock, dice and ids that go with it; the
twin of `federation.system` for simulations and tests.

Ready callbacks run first in, first out, as asyncio documents; what is random comes from seeded
latencies at the ports. `explorer` shuffles ready callbacks: a search for hidden order, opt-in.
Nothing leaves the loop: threads and sockets raise, and having nothing left to do is an error.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import selectors
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from federation.ids import RANDOM_BITS, JobId, make_job_id

EPOCH_MS = 1_767_600_000_000
"""UTC instant at which every simulation begins: 2026-01-05T08:00:00Z, a Monday."""

_MASK = (1 << 64) - 1


class Deadlock(RuntimeError):
    """Nothing is ready and no timer is set: everybody waits for somebody."""


class OutsideSimulation(RuntimeError):
    """Something asked for a thread or a socket: its result would depend on this machine."""


class SimRng:
    """`Rng` by splitmix64: the same seed gives the same numbers on every Python."""

    def __init__(self, seed: int | str) -> None:
        digest = hashlib.sha256(str(seed).encode()).digest()
        self._state = int.from_bytes(digest[:8], "big")
        self._name = str(seed)

    def fork(self, name: str) -> SimRng:
        """Dice of their own, so that one more throw here shifts nothing there."""
        return SimRng(f"{self._name}/{name}")

    def random_bits(self, n: int) -> int:
        """See the port."""
        found = 0
        for _ in range(-(-n // 64)):
            found = found << 64 | self._next()
        return found >> (-n % 64)

    def uniform(self, lo: float, hi: float) -> float:
        """See the port."""
        return lo + (hi - lo) * (self._next() >> 11) / (1 << 53)

    def below(self, n: int) -> int:
        """An integer in [0, n)."""
        return int(self.uniform(0, n))

    def _next(self) -> int:
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        z = self._state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
        return z ^ z >> 31


class _NoWaiting(selectors.BaseSelector):
    """Where a selector would wait, time passes instead."""

    def __init__(self, advance: Callable[[float], None]) -> None:
        self._advance = advance
        self._map: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Known, never ready: the loop's own wake-up pipe."""
        key = selectors.SelectorKey(fileobj, 0, events, data)
        self._map[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Known no more."""
        return self._map.pop(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """All registered."""
        return self._map

    def close(self) -> None:
        """Forget everything."""
        self._map.clear()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Let `timeout` seconds pass. Raises Deadlock for a wait without end."""
        if timeout is None:
            raise Deadlock("nothing is ready and no timer is set")
        if timeout > 0:
            self._advance(timeout)
        return []


class _SimTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address."""

    def __init__(self, serial: int, coro: Any, **options: Any) -> None:
        self._serial = serial
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._serial


class _SimFuture(asyncio.Future[Any]):
    def __init__(self, serial: int, loop: asyncio.AbstractEventLoop) -> None:
        self._serial = serial
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._serial


class SimLoop(asyncio.SelectorEventLoop):
    """See the module. `time()` is virtual seconds since the beginning."""

    def __init__(self, explorer: SimRng | None = None) -> None:
        self._now_s = 0.0
        self._serials = itertools.count(1)
        self._explorer = explorer
        super().__init__(_NoWaiting(self._pass))
        self._clock_resolution = 1e-6  # finer, and a float of years is no longer told apart
        self.set_task_factory(self._make_task)

    def time(self) -> float:
        """Virtual now."""
        return self._now_s

    def run_in_executor(  # type: ignore[override]  # no caller gets an answer
        self, executor: Any, func: Any, *args: Any
    ) -> Any:
        """Raises OutsideSimulation: a thread keeps no virtual time."""
        raise OutsideSimulation(f"a thread was asked for: {func}")

    def create_future(self) -> asyncio.Future[Any]:
        """A future with a place of its own in every set."""
        return _SimFuture(next(self._serials), self)

    def _pass(self, seconds: float) -> None:
        self._now_s += seconds

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any
    ) -> asyncio.Task[Any]:
        return _SimTask(next(self._serials), coro, loop=loop, **options)

    def _run_once(self) -> None:
        ready = self._ready  # type: ignore[attr-defined]  # asyncio's own queue
        if self._explorer is not None and len(ready) > 1:
            callbacks = list(ready)
            ready.clear()
            while callbacks:
                ready.append(callbacks.pop(self._explorer.below(len(callbacks))))
        super()._run_once()  # type: ignore[misc]


class SimClock:
    """`Clock` of one machine: virtual time, off by `skew_ms` as real clocks are."""

    def __init__(self, loop: asyncio.AbstractEventLoop, skew_ms: int = 0) -> None:
        self._loop = loop
        self._skew_ms = skew_ms

    def now_ms(self) -> int:
        """See the port."""
        return EPOCH_MS + self._skew_ms + int(self._loop.time() * 1000)

    def monotonic_s(self) -> float:
        """See the port."""
        return self._loop.time()


class SimIds:
    """`Ids` from seeded dice."""

    def __init__(self, rng: SimRng) -> None:
        self._rng = rng

    def job_id(self, now_ms: int) -> JobId:
        """See the port."""
        return make_job_id(now_ms, self._rng.random_bits(RANDOM_BITS))

    def token_bytes(self, n: int) -> bytes:
        """See the port."""
        return self._rng.random_bits(8 * n).to_bytes(n, "big")


class Chores:
    """Tasks kept alive until they are done, and ended together."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Begin; the task is forgotten when it is done, and the loop told when it failed."""
        task = asyncio.create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        fault = None if task.cancelled() else task.exception()
        if fault is not None:
            context = {"message": task.get_name(), "exception": fault, "task": task}
            task.get_loop().call_exception_handler(context)

    async def end(self) -> None:
        """Cancel all and see them gone."""
        await ended(tuple(self._tasks))


async def ended(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until they are gone, whatever they say."""
    waiting = [task for task in tasks if not task.done()]
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
