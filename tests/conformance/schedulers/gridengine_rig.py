"""A real Grid Engine under the conformance suite."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from federation.system import SystemClock
from regional_agent.act.schedulers.batch.scheduler import CRASH_POINTS, BatchScheduler
from regional_agent.act.schedulers.gridengine import GridEngine
from regional_agent.act.schedulers.port import LaunchOrder, LocalScheduler
from regional_agent.clients import Answer
from regional_agent.conformance.files import SharedFiles, shell_order
from regional_agent.conformance.rig import Ability, Break, Crashed, Program
from regional_agent.gridengine.site import GridEngineSite
from tests.conformance.schedulers.slurm_rig import batch_settings
from tests.schedulers import gridengine_cluster


class _StrangeGridEngine(GridEngine):
    """The real one, in whose answers a state may be one that no manual knows."""

    strange = False

    async def _run(self, argv: Sequence[str]) -> Answer:
        answer = await super()._run(argv)
        if self.strange and argv[0] == "qstat":
            out = answer.out.replace("<state>r</state>", "<state>zz</state>")
            return Answer(answer.code, out, answer.err, answer.took_s)
        return answer


class GridEngineRig:
    """One queue on one host."""

    kind = "gridengine"
    patience_s = 20.0
    isolation = "shared-uid"
    crash_points = CRASH_POINTS

    def __init__(self, cell: gridengine_cluster.GridEngine, state: Path) -> None:
        self.cell, self.state = cell, state
        state.mkdir(parents=True, exist_ok=True)
        self.files = SharedFiles(state)
        self.files.hide_secrets()
        site = GridEngineSite(client_env=cell.env, prefix=cell.inside, owner="root")
        self.system = _StrangeGridEngine(site)
        self._scheduler: BatchScheduler | None = None
        self._broken: list[str] = []

    async def open(self, crash_at: str = "") -> LocalScheduler:
        if self._scheduler is not None:
            await self._scheduler.close()

        def reached(point: str) -> None:
            if point == crash_at:
                raise Crashed(point)

        self._scheduler = BatchScheduler(
            batch_settings(self.state), self.system, SystemClock(), reached
        )
        return self._scheduler

    def order(self, uid: str, program: Program, **changes: object) -> LaunchOrder | None:
        return shell_order(uid, program, **changes)

    async def begun(self, uid: str) -> Counter[str]:
        return await self.files.begun(uid)

    @property
    def secrets(self) -> tuple[str, ...]:
        return self.files.secrets

    @property
    def abilities(self) -> Mapping[Ability, Break]:
        return {
            Ability.REMOVE: self._remove,
            Ability.UNKNOWN_STATE: self._be_strange,
            Ability.NAMESAKE: self._namesake,
            Ability.FILL: self._fill,
        }

    async def _be_strange(self, uid: str) -> None:
        self.system.strange = True

    async def heal(self) -> None:
        self.system.strange = False
        for broken in self._broken:
            if broken == "main.q":
                await self._as_admin("qmod", "-e", broken)
            else:
                await self._as_admin("qdel", broken)
        self._broken.clear()

    async def _remove(self, uid: str) -> None:
        assert self._scheduler is not None
        local_id = await self._scheduler.find(uid)
        await self._as_admin("qdel", str(local_id))

    async def _namesake(self, uid: str) -> None:
        words = ("qsub", "-terse", "-N", uid, "-o", "/dev/null", "-j", "y", "-b", "y")
        self._broken.append(await self._as_admin(*words, "/bin/sleep", "300"))

    async def _fill(self, uid: str) -> None:
        """A queue that starts nothing does as well as one that is full."""
        await self._as_admin("qmod", "-d", "main.q")
        self._broken.append("main.q")

    async def _as_admin(self, *argv: str) -> str:
        return await asyncio.to_thread(self.cell.run, *argv)

    async def close(self) -> None:
        if self._scheduler is not None:
            await self._scheduler.close()
        await asyncio.to_thread(self.cell.run, "qdel", "-f", "-u", "root", ok=False)
