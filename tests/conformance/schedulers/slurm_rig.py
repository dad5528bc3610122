"""A real Slurm cluster under the conformance suite."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from regional_agent.act.schedulers.slurm import Slurm
from regional_agent.act.schedulers.slurm_rest import RestSlurm
from regional_agent.clients import Answer
from regional_agent.conformance.rig import Ability, Break
from regional_agent.slurm.queue import QueueRow
from regional_agent.slurm.site import SlurmSite
from tests.conformance.schedulers.batch_rig import QUICK, BatchRig
from tests.schedulers.slurm_cluster import SlurmCluster, until


class _StrangeSlurm(Slurm):
    """The real one, in whose answers a state may be called what no manual knows."""

    strange = False

    async def _run(self, argv: Sequence[str], env: Mapping[str, str]) -> Answer:
        answer = await super()._run(argv, env)
        if self.strange and argv[0] in ("squeue", "sacct"):
            out = answer.out.replace("RUNNING", "HOVERING")
            return Answer(answer.code, out, answer.err, answer.took_s)
        return answer


class _StrangeRest(RestSlurm):
    """As `_StrangeSlurm`."""

    strange = False

    async def _run(self, argv: Sequence[str], env: Mapping[str, str]) -> Answer:
        answer = await super()._run(argv, env)
        if self.strange and argv[0] == "sacct":
            out = answer.out.replace("RUNNING", "HOVERING")
            return Answer(answer.code, out, answer.err, answer.took_s)
        return answer

    async def _jobs(self) -> tuple[QueueRow, ...]:
        rows = await super()._jobs()
        if not self.strange:
            return rows
        return tuple(replace(r, state=r.state.replace("RUNNING", "HOVERING")) for r in rows)


class SlurmRig(BatchRig):
    """One cluster with accounting."""

    kind = "slurm"
    pace = replace(QUICK, account_s=1.5)

    def __init__(self, cluster: SlurmCluster, state: Path) -> None:
        super().__init__(state)
        self.cluster = cluster
        self.system = self.made_system()

    def made_system(self) -> _StrangeSlurm | _StrangeRest:
        """How the cluster is reached."""
        return _StrangeSlurm(SlurmSite(client_env=self.cluster.env))

    async def connect(self) -> Slurm:
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

    async def heal(self) -> None:
        self.system.strange = False
        for broken in self.broken:
            if broken in self.cluster.nodes:
                self.cluster.start_node(broken)  # by the thread that lives as long as the test run
        await asyncio.to_thread(self._heal)

    def _heal(self) -> None:
        for broken in self.broken:
            if broken in self.cluster.nodes:
                self.cluster.run("scontrol", "update", f"nodename={broken}", "state=resume")
                until(lambda node=broken: self._takes_jobs(node), f"{broken} is back")  # type: ignore[misc]
            else:
                self.cluster.run("scancel", broken)
        self.broken.clear()

    def _takes_jobs(self, node: str) -> bool:
        state = self.cluster.run("sinfo", "-h", "-p", "main", "-n", node, "-o", "%T")
        words = ("timeout", "5", "srun", "--time=1", "-w", node, "hostname")
        return state in ("idle", "mixed") and bool(self.cluster.run(*words, ok=False))

    async def _requeue(self, uid: str) -> None:
        """Against the job's own wish, as only an administrator can."""
        job = await self.local_id(uid)
        await self._as_admin("scontrol", "update", f"jobid={job}", "requeue=1")
        await self._as_admin("scontrol", "requeue", job)

    async def _node_dies(self, uid: str) -> None:
        node = await self._as_admin("squeue", "-h", "-o", "%N", "-j", await self.local_id(uid))
        self.broken.append(node)
        await asyncio.to_thread(self.cluster.kill_node, node)
        await self._as_admin(
            "scontrol", "update", f"nodename={node}", "state=down", "reason=power"
        )

    async def _remove(self, uid: str) -> None:
        await self._as_admin("scancel", await self.local_id(uid))

    async def _be_strange(self, uid: str) -> None:
        self.system.strange = True

    async def _namesake(self, uid: str) -> None:
        self.broken.append(await self._others(f"--job-name={uid}", "--cpus-per-task=1"))

    async def _fill(self, uid: str) -> None:
        count = len(self.cluster.nodes)
        job = await self._others(f"--nodes={count}", "--exclusive", "--job-name=others")
        self.broken.append(job)
        await asyncio.to_thread(
            until, lambda: self.cluster.run("squeue", "-h", "-o", "%T", "-j", job) == "RUNNING",
            "the site is full",
        )  # fmt: skip

    async def _others(self, *arguments: str) -> str:
        words = ("sbatch", "--parsable", "--output=/dev/null", "--time=10", *arguments)
        return await self._as_admin(*words, "--chdir=/tmp", "--wrap=sleep 300")

    async def _as_admin(self, *argv: str) -> str:
        return await asyncio.to_thread(self.cluster.run, *argv)

    async def close(self) -> None:
        await super().close()
        await asyncio.to_thread(
            subprocess.run, ["scancel", "--user=root"], env=self.cluster.env, check=False
        )


class SlurmRestRig(SlurmRig):
    """The same cluster by slurmrestd."""

    kind = "slurmrestd"

    def made_system(self) -> _StrangeRest:
        address = f"unix:{self.cluster.rest_socket}"
        return _StrangeRest(SlurmSite(client_env=self.cluster.env, rest=address))

    async def close(self) -> None:
        await super().close()
        assert isinstance(self.system, RestSlurm)
        await self.system.close()
