"""A real Grid Engine under the conformance suite."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from regional_agent.act.schedulers.gridengine import GridEngine
from regional_agent.clients import Answer
from regional_agent.conformance.rig import Ability, Break
from regional_agent.gridengine.site import GridEngineSite
from tests.conformance.schedulers.batch_rig import BatchRig
from tests.schedulers import gridengine_cluster
from tests.schedulers.slurm_cluster import until

UNHEARD_S, ENDED_S = 5, 5
UNHEARD_USUAL_S = 59


class _StrangeGridEngine(GridEngine):
    """The real one, in whose answers a state may be one that no manual knows."""

    strange = False

    async def _run(self, argv: Sequence[str]) -> Answer:
        answer = await super()._run(argv)
        if self.strange and argv[0] == "qstat":
            out = answer.out.replace("<state>r</state>", "<state>zz</state>")
            return Answer(answer.code, out, answer.err, answer.took_s)
        return answer


class GridEngineRig(BatchRig):
    """One queue."""

    kind = "gridengine"

    def __init__(self, cell: gridengine_cluster.GridEngine, state: Path) -> None:
        super().__init__(state)
        self.cell = cell
        self.site = GridEngineSite(
            client_env=cell.env, prefix=cell.inside, owner="root", accelerator="L40S"
        )
        self.system = _StrangeGridEngine(self.site)

    async def connect(self) -> GridEngine:
        return self.system

    @property
    def abilities(self) -> Mapping[Ability, Break]:
        return {
            Ability.REQUEUE: self._requeue,
            Ability.NODE_DIES: self._node_dies,
            Ability.REMOVE: self._remove,
            Ability.UNKNOWN_STATE: self._be_strange,
            Ability.NAMESAKE: self._namesake,
            Ability.FILL: self._fill,
        }

    async def _requeue(self, uid: str) -> None:
        """Against the job's own wish, as only an administrator can."""
        job = await self.local_id(uid)
        await self._as_admin("qalter", "-r", "y", job)
        await self._as_admin("qmod", "-rj", job)

    async def _be_strange(self, uid: str) -> None:
        self.system.strange = True

    async def host_of(self, uid: str) -> str:
        """Where its script runs."""
        job = await self.local_id(uid)
        (host,) = [h for h in self.cell.hosts if f" {job} " in await self._jobs_on(h)]
        return host

    async def _jobs_on(self, host: str) -> str:
        return await self._as_admin("qstat", "-u", "*", "-q", f"main.q@{host}", "-s", "r")

    async def _node_dies(self, uid: str) -> None:
        """For good, on a site that ends what ran there when nothing is heard of it for seconds."""
        host = await self.host_of(uid)
        self.broken.append(host)
        await asyncio.to_thread(self.cell.give_up_hosts, UNHEARD_S, ENDED_S)
        await asyncio.to_thread(self.cell.kill_host, host)

    async def heal(self) -> None:
        self.system.strange = False
        dead = [broken for broken in self.broken if broken in self.cell.hosts]
        for host in dead:
            if not self.cell.children.runs(f"execd-{host}"):
                self.cell.start_execd(host)  # by the thread that lives as long as the test run
        if dead:
            await asyncio.to_thread(self.cell.give_up_hosts, UNHEARD_USUAL_S, 0)
            await asyncio.to_thread(until, self.cell.takes_jobs, "the hosts are back")
        for broken in [name for name in self.broken if name not in dead]:
            if broken == "main.q":
                await self._as_admin("qmod", "-e", broken)
            else:
                await self._as_admin("qdel", broken)
        self.broken.clear()

    async def _remove(self, uid: str) -> None:
        await self._as_admin("qdel", await self.local_id(uid))

    async def _namesake(self, uid: str) -> None:
        words = ("qsub", "-terse", "-N", uid, "-o", "/dev/null", "-j", "y", "-b", "y")
        self.broken.append(await self._as_admin(*words, "/bin/sleep", "300"))

    async def _fill(self, uid: str) -> None:
        """A queue that starts nothing does as well as one that is full."""
        await self._as_admin("qmod", "-d", "main.q")
        self.broken.append("main.q")

    async def _as_admin(self, *argv: str) -> str:
        return await asyncio.to_thread(self.cell.run, *argv)

    async def close(self) -> None:
        await super().close()
        await asyncio.to_thread(self.cell.run, "qdel", "-f", "-u", "root", ok=False)
