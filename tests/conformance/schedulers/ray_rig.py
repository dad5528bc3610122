"""A real Ray head under the conformance suite."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from federation.system import SystemClock
from regional_agent.act.schedulers.batch.following import Pace
from regional_agent.act.schedulers.batch.scheduler import (
    CRASH_POINTS,
    BatchScheduler,
    BatchSettings,
)
from regional_agent.act.schedulers.port import LaunchOrder, LocalScheduler
from regional_agent.act.schedulers.ray import Ray
from regional_agent.conformance.files import SharedFiles, shell_order
from regional_agent.conformance.rig import Ability, Break, Crashed, Program
from regional_agent.ray.api import RayApi, RayJob
from tests.schedulers.ray_head import RayHead

QUICK = Pace(look_s=0.1, poll_s=1.0, soon_s=0.3, gone_s=8.0, account_s=3.0)


class _StrangeApi(RayApi):
    """The real one, in whose answers a state may be called what no manual knows."""

    strange = False

    async def jobs(self) -> tuple[RayJob, ...]:
        found = await super().jobs()
        if not self.strange:
            return found
        return tuple(replace(j, status="HOVERING") if j.status == "RUNNING" else j for j in found)


class RayRig:
    """Crash points raise in the adapter: between any two of them a kill leaves the same."""

    kind = "ray"
    patience_s = 30.0
    isolation = "shared-uid"
    crash_points = CRASH_POINTS

    def __init__(self, head: RayHead, state: Path) -> None:
        self.head, self.state = head, state
        state.mkdir(parents=True, exist_ok=True)
        self.files = SharedFiles(state)
        self.files.hide_secrets()
        self.api = _StrangeApi(head.url)
        self._scheduler: BatchScheduler | None = None
        self._others: list[str] = []

    async def open(self, crash_at: str = "") -> LocalScheduler:
        if self._scheduler is not None:
            await self._scheduler.close()

        def reached(point: str) -> None:
            if point == crash_at:
                raise Crashed(point)

        settings = BatchSettings(self.state, (), QUICK)
        self._scheduler = BatchScheduler(settings, Ray(self.api), SystemClock(), reached)
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

    async def heal(self) -> None:
        self.api.strange = False
        for name in self._others:
            await self.api.stop(name)
        for name in self._others:
            await self._until_ended(name)
        self._others.clear()

    async def _until_ended(self, name: str) -> None:
        for _ in range(100):
            job = await self.api.job(name)
            if job is None or job.ended:
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"{name} does not end")

    async def _remove(self, uid: str) -> None:
        assert self._scheduler is not None
        local_id = await self._scheduler.find(uid)
        assert local_id is not None
        await self.api.stop(local_id)

    async def _be_strange(self, uid: str) -> None:
        self.api.strange = True

    async def _namesake(self, uid: str) -> None:
        await self._submit_other(uid, 1)

    async def _fill(self, uid: str) -> None:
        name = f"others-{uid}"
        await self._submit_other(name, self.head.cpus)
        for _ in range(300):
            job = await self.api.job(name)
            if job is not None and job.status == "RUNNING":
                return
            await asyncio.sleep(0.1)
        raise AssertionError("the site is not full")

    async def _submit_other(self, name: str, cpus: int) -> None:
        body = {"submission_id": name, "entrypoint": "sleep 300", "entrypoint_num_cpus": cpus}
        await self.api.submit(body)
        self._others.append(name)

    async def close(self) -> None:
        if self._scheduler is not None:
            await self._scheduler.close()
        await self.api.close()
