"""What the rigs of all batch systems have in common."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path

from federation.system import SystemClock
from regional_agent.act.schedulers.batch.following import Pace
from regional_agent.act.schedulers.batch.scheduler import (
    CRASH_POINTS,
    BatchScheduler,
    BatchSettings,
)
from regional_agent.act.schedulers.batch.system import BatchSystem
from regional_agent.act.schedulers.port import LocalScheduler
from regional_agent.conformance.files import SharedFiles
from regional_agent.conformance.rig import crashing

QUICK = Pace(look_s=0.1, poll_s=1.0, soon_s=0.3, gone_s=8.0, account_s=3.0)
ENV = (("PATH", "/usr/bin:/bin"), ("LANG", "C.UTF-8"))


class BatchRig(SharedFiles):
    """Crash points raise in the adapter: between any two of them a kill leaves the same. `broken`:
    what `heal` has to undo, by the site's own names. Of a kind of batch system remains how it is
    reached and how it is broken."""

    kind: str
    patience_s = 20.0
    crash_points = CRASH_POINTS
    env: tuple[tuple[str, str], ...] = ENV
    pace = QUICK

    def __init__(self, state: Path) -> None:
        super().__init__(state)
        self.broken: list[str] = []
        self._scheduler: BatchScheduler | None = None

    @abstractmethod
    async def connect(self) -> BatchSystem:
        """The batch system, as a newly started agent reaches it."""

    async def open(self, crash_at: str = "") -> LocalScheduler:
        """See the rig."""
        if self._scheduler is not None:
            await self._scheduler.close()
        system = await self.connect()
        settings = BatchSettings(self.state, self.env, self.pace)
        self._scheduler = BatchScheduler(settings, system, SystemClock(), crashing(crash_at))
        return self._scheduler

    @property
    def scheduler(self) -> BatchScheduler:
        """The one opened last."""
        assert self._scheduler is not None
        return self._scheduler

    async def local_id(self, uid: str) -> str:
        """What the batch system calls an attempt that it has."""
        found = await self.scheduler.find(uid)
        assert found is not None
        return found

    async def close(self) -> None:
        """Let go of it; jobs are left to the rig of the kind."""
        if self._scheduler is not None:
            await self._scheduler.close()
