"""The suite on a site of one's own: the scheduler of the settings, beside the agent that runs.

Attempts of the suite lie in a directory of their own below the agent's state, and under names no
job of the federation has. What would break the site for others is not tried.
"""

from __future__ import annotations

import shutil
from dataclasses import replace

from federation.environment import Clock
from regional_agent.act.schedulers.batch.scheduler import CRASH_POINTS
from regional_agent.act.schedulers.port import LocalScheduler
from regional_agent.conformance.files import SharedFiles
from regional_agent.conformance.rig import crashing
from regional_agent.settings import AgentSettings, SettingsError
from regional_agent.site_scheduler import SiteScheduler, local_site

DIRECTORY = "conformance"
QUICK_POLL_S = 2.0
PATIENCE_S = 120.0


class OwnSite(SharedFiles):
    """A rig of this site. Nothing is broken on a site others use."""

    patience_s = PATIENCE_S

    def __init__(self, settings: AgentSettings, clock: Clock) -> None:
        if settings.kubernetes is not None and settings.kubernetes.carry is not None:
            raise SettingsError(
                "kubernetes.carry: the suite looks for what its programs leave while they run; "
                "try it with volume_claim or host_path"
            )
        self.kind = settings.batch or ("ray" if settings.ray else "process")
        self.crash_points = CRASH_POINTS if settings.batch else ()
        super().__init__(settings.state_dir / DIRECTORY)
        self._settings = replace(settings, state_dir=self.state, poll_s=QUICK_POLL_S)
        self._clock = clock
        self._scheduler: SiteScheduler | None = None
        self.isolation = local_site(self._settings, clock).isolation.grade

    async def open(self, crash_at: str = "") -> LocalScheduler:
        """See the rig."""
        if self._scheduler is not None:
            await self._scheduler.close()
        site = local_site(self._settings, self._clock, reached=crashing(crash_at))
        self._scheduler = site.scheduler
        return self._scheduler

    async def close(self) -> None:
        """End what is left, and take its files away."""
        if self._scheduler is not None:
            await self._scheduler.shut_down(kill=True)
            await self._scheduler.close()
        shutil.rmtree(self._settings.state_dir, ignore_errors=True)
