"""Fetching ahead for jobs that are expected here: one after the other, and only while no attempt
is being staged. Whatever goes wrong costs nothing but the time it was to save."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from federation.refusals import Refusal
from regional_agent.act.backends.https_blobs import HttpsBlobs
from regional_agent.act.schedulers.port import LocalScheduler, Prefetching, SchedulerUnavailable
from regional_agent.act.stage import Stager
from regional_agent.session.actions import Warm

CAPABILITY = "prepare"
"""What an agent that does this says of itself."""
WAITING_MAX = 32
LOOK_S = 0.1
_log = logging.getLogger(__name__)


class Warming:
    """Carries `Warm` out. `quiet` says that nothing more urgent is being fetched."""

    def __init__(
        self,
        stager: Stager,
        blobs: HttpsBlobs,
        scheduler: LocalScheduler,
        quiet: Callable[[], bool],
    ) -> None:
        self._stager = stager
        self._scheduler = scheduler
        self._blobs = blobs
        self._quiet = quiet
        self._waiting: deque[Warm] = deque()
        self._now: Warm | None = None
        self._running = False
        self.tasks: set[asyncio.Task[None]] = set()

    def begin(self, warm: Warm) -> None:
        """Fetch these some time; one job is waited for once, and only so many are."""
        known = {waiting.job for waiting in self._waiting}
        if self._now is not None:
            known.add(self._now.job)
        if warm.job in known or len(self._waiting) >= WAITING_MAX:
            return
        self._waiting.append(warm)
        if not self._running:
            self._running = True
            task = asyncio.create_task(self._run())
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    def overtaken(self, job: str) -> None:
        """The job itself is here: what of it is not under way its own staging fetches."""
        self._waiting = deque(warm for warm in self._waiting if warm.job != job)
        if self._now is not None and self._now.job == job:
            self._now = None

    def close(self) -> None:
        """End it."""
        self._waiting.clear()
        for task in self.tasks:
            task.cancel()

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._one(self._waiting.popleft())
        finally:
            self._running = False

    async def _one(self, warm: Warm) -> None:
        digests = [sha256 for sha256, _ in warm.blobs]
        self._now = warm
        self._blobs.grant(digests, warm.ticket)
        try:
            await self._warm(warm)
        finally:
            self._blobs.revoke(digests, warm.ticket)
            self._now = None

    async def _warm(self, warm: Warm) -> None:
        for sha256, size_bytes in warm.blobs:
            if not await self._turn(warm):
                return
            done = await self._stager.warm(sha256, size_bytes)
            if isinstance(done, Refusal):
                _log.info("nothing more is fetched ahead for %s: %s", warm.job, done.text)
                return
        if warm.image and isinstance(self._scheduler, Prefetching) and await self._turn(warm):
            await self._image(warm)

    async def _turn(self, warm: Warm) -> bool:
        """Wait until nothing else is fetched; whether it is still wanted then."""
        while not self._quiet():
            await asyncio.sleep(LOOK_S)
        return self._now is warm

    async def _image(self, warm: Warm) -> None:
        assert isinstance(self._scheduler, Prefetching), "looked at before"
        try:
            trouble = await self._scheduler.prefetch(warm.image)
        except SchedulerUnavailable as problem:
            trouble = str(problem)
        if trouble:
            _log.info("the image of %s is not fetched ahead: %s", warm.job, trouble)
