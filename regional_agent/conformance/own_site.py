"""The suite on a site of one's own: the scheduler of the settings, beside the agent that runs.

Attempts of the suite lie in a directory of their own below the agent's state, and under names no
job of the federation has. What would break the site for others is not tried.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from federation.environment import Clock
from regional_agent.act.schedulers.batch.scheduler import CRASH_POINTS
from regional_agent.act.schedulers.port import LaunchOrder, LocalScheduler
from regional_agent.conformance.files import SharedFiles, shell_order
from regional_agent.conformance.rig import Ability, Break, Crashed, Program
from regional_agent.settings import AgentSettings
from regional_agent.site_scheduler import SiteScheduler, local_site

DIRECTORY = "conformance"
QUICK_POLL_S = 2.0
PATIENCE_S = 120.0


class OwnSite:
    """A rig of this site."""

    patience_s = PATIENCE_S
    secrets: tuple[str, ...]

    def __init__(self, settings: AgentSettings, clock: Clock) -> None:
        self.kind = settings.batch or ("ray" if settings.ray else "process")
        self.crash_points: tuple[str, ...] = CRASH_POINTS if settings.batch else ()
        state = settings.state_dir / DIRECTORY
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._settings = replace(settings, state_dir=state, poll_s=QUICK_POLL_S)
        self._clock = clock
        self._files = SharedFiles(state)
        self._files.hide_secrets()
        self.secrets = self._files.secrets
        self._scheduler: SiteScheduler | None = None
        self.isolation = local_site(self._settings, clock).isolation.grade

    async def open(self, crash_at: str = "") -> LocalScheduler:
        """See the rig."""
        if self._scheduler is not None:
            await self._scheduler.close()

        def reached(point: str) -> None:
            if point == crash_at:
                raise Crashed(point)

        self._scheduler = local_site(self._settings, self._clock, reached=reached).scheduler
        return self._scheduler

    def order(self, uid: str, program: Program, **changes: object) -> LaunchOrder | None:
        """See the rig."""
        return shell_order(uid, program, **changes)

    async def begun(self, uid: str) -> Counter[str]:
        """See the rig."""
        return await self._files.begun(uid)

    @property
    def abilities(self) -> Mapping[Ability, Break]:
        """Nothing is broken on a site others use."""
        return {}

    async def heal(self) -> None:
        """Nothing was broken."""

    async def close(self) -> None:
        """End what is left, and take its files away."""
        if self._scheduler is not None:
            await self._scheduler.shut_down(kill=True)
            await self._scheduler.close()
        shutil.rmtree(self._settings.state_dir, ignore_errors=True)
