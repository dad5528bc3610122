"""A real Ray head under the conformance suite."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from regional_agent.act.schedulers.ray import Ray
from regional_agent.conformance.rig import Ability, Break
from regional_agent.ray.api import RayApi, RayJob
from tests.conformance.schedulers.batch_rig import BatchRig
from tests.schedulers.ray_head import RayHead


class _StrangeApi(RayApi):
    """The real one, in whose answers a state may be called what no manual knows."""

    strange = False

    async def jobs(self) -> tuple[RayJob, ...]:
        found = await super().jobs()
        if not self.strange:
            return found
        return tuple(replace(j, status="HOVERING") if j.status == "RUNNING" else j for j in found)


class RayRig(BatchRig):
    """One head, whose jobs find its Python on their PATH."""

    kind = "ray"
    patience_s = 30.0
    env = ()

    def __init__(self, head: RayHead, state: Path) -> None:
        super().__init__(state)
        self.head = head
        self.api = _StrangeApi(head.url)

    async def connect(self) -> Ray:
        return Ray(self.api)

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
        for name in self.broken:
            await self.api.stop(name)
        for name in self.broken:
            await self._until_ended(name)
        self.broken.clear()

    async def _until_ended(self, name: str) -> None:
        for _ in range(100):
            job = await self.api.job(name)
            if job is None or job.ended:
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"{name} does not end")

    async def _remove(self, uid: str) -> None:
        await self.api.stop(await self.local_id(uid))

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
        self.broken.append(name)

    async def close(self) -> None:
        await super().close()
        await self.api.close()
