"""Kubernetes under the conformance suite: the contract server, whose pods are processes."""

from __future__ import annotations

import asyncio
import socket
from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from federation.system import SystemClock
from regional_agent.act.carry.server import CarryServer
from regional_agent.act.schedulers.kubernetes import Kubernetes
from regional_agent.act.schedulers.port import LocalScheduler
from regional_agent.conformance.rig import Ability, Break
from regional_agent.kubernetes.api import LABEL_ATTEMPT, KubernetesApi
from regional_agent.kubernetes.manifest import JobWanted, manifest
from regional_agent.kubernetes.site import Carry, KubernetesSite
from tests.conformance.schedulers.batch_rig import BatchRig
from tests.schedulers.kubernetes_cluster import JOB_LABEL, Cluster
from tests.schedulers.kubernetes_pods import OWN_IMAGE
from tests.schedulers.kubernetes_server import NAMESPACE, TOKEN, KubernetesServer


def contract_site(state: Path, url: str) -> KubernetesSite:
    token = state / "token"
    token.write_text(TOKEN + "\n")
    return KubernetesSite(
        url=url, namespace=NAMESPACE, image="jobs:1", mount=state, host_path=str(state),
        token_file=str(token),
    )  # fmt: skip


def carried_site(state: Path, url: str) -> KubernetesSite:
    """No volume is shared: files are carried."""
    return replace(contract_site(state, url), host_path="", carry=carry_on_loopback())


def carry_on_loopback() -> Carry:
    """By way of an agent on this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return Carry(OWN_IMAGE, f"https://127.0.0.1:{port}", f"127.0.0.1:{port}")


class PodsRig(BatchRig):
    """Whatever the API server: what changes there is looked at soon."""

    env = (("PATH", "/usr/bin:/bin"),)

    def __init__(self, state: Path) -> None:
        super().__init__(state)
        self.system: Kubernetes | None = None

    @abstractmethod
    async def reach(self) -> KubernetesApi:
        """The API server, for a newly started agent."""

    async def connect(self) -> Kubernetes:
        if self.system is not None:
            await self.system.close()
        api = await self.reach()
        self.system = Kubernetes(api, self.carrying(api))
        return self.system

    def carrying(self, api: KubernetesApi) -> CarryServer | None:
        """What serves pods their files, where those share no volume with the agent."""
        return api.site.carry and CarryServer(self.state, api.site.carry, SystemClock())

    async def open(self, crash_at: str = "") -> LocalScheduler:
        opened = await super().open(crash_at)
        assert self.system is not None
        self.system.news = self.scheduler.look_soon
        return opened

    async def close(self) -> None:
        await super().close()
        if self.system is not None:
            await self.system.close()


class KubernetesRig(PodsRig):
    """The contract server."""

    kind = "kubernetes"

    def __init__(self, state: Path) -> None:
        super().__init__(state)
        self.server = KubernetesServer(Cluster())
        self.api: KubernetesApi | None = None

    async def reach(self) -> KubernetesApi:
        if self.api is None:
            await self.server.start()
            self.api = KubernetesApi(self.site())
        return self.api

    def site(self) -> KubernetesSite:
        return contract_site(self.state, self.server.url)

    @property
    def abilities(self) -> Mapping[Ability, Break]:
        return {
            Ability.REMOVE: self._remove,
            Ability.REQUEUE: self._suspend,
            Ability.UNKNOWN_STATE: self._be_strange,
            Ability.NAMESAKE: self._namesake,
            Ability.FILL: self._fill,
            Ability.NODE_DIES: self._node_dies,
        }

    async def heal(self) -> None:
        self.server.cluster.strange = False
        if not self.server.cluster.store.nodes:
            self.server.cluster.add_node()
        for job in self.server.cluster.store.jobs.values():
            job["spec"]["suspend"] = False
        for name in self.broken:
            job = self.server.cluster.store.jobs.get(name)
            if job is not None:
                job["metadata"]["finalizers"] = []
                self.server.cluster.delete_job(job, "Background")
                for pod in self.server.cluster.pods_of(job):
                    self.server.cluster.delete_pod(pod, 0)
        self.broken.clear()

    async def _remove(self, uid: str) -> None:
        """By `kubectl delete job`."""
        job = self.server.cluster.store.jobs[await self.local_id(uid)]
        self.server.cluster.delete_job(job, "Background")

    async def _suspend(self, uid: str) -> None:
        """As Kueue does to what it preempts; it lets it go again by itself."""
        job = self.server.cluster.store.jobs[await self.local_id(uid)]
        job["spec"]["suspend"] = True
        await asyncio.sleep(0.5)
        job["spec"]["suspend"] = False

    async def _be_strange(self, uid: str) -> None:
        self.server.cluster.strange = True

    async def _node_dies(self, uid: str) -> None:
        local_id = await self.local_id(uid)
        for pod in self.server.cluster.store.pods.values():
            if pod["metadata"]["labels"][JOB_LABEL] == local_id:
                await self.server.cluster.node_dies(pod["spec"]["nodeName"])
                return

    async def _namesake(self, uid: str) -> None:
        await self._submit_other(uid, 1)

    async def _fill(self, uid: str) -> None:
        name = f"others-{uid}"
        await self._submit_other(name, self.server.cluster.cpus)
        for _ in range(300):
            pods = self.server.cluster.pods_of(self.server.cluster.store.jobs[name])
            if pods and pods[0]["status"]["phase"] == "Running":
                return
            await asyncio.sleep(0.1)
        raise AssertionError("the site is not full")

    async def _submit_other(self, name: str, cpus: int) -> None:
        assert self.api is not None
        wanted = JobWanted(
            name, "somebody", "others", self.state / "others.sh", self.state, 0, 0,
            cpus_milli=cpus * 1000,
        )  # fmt: skip
        (self.state / "others.sh").write_text("sleep 300\n")
        body = manifest(contract_site(self.state, self.server.url), wanted)
        body["metadata"]["labels"] = body["spec"]["template"]["metadata"]["labels"] = {}
        await self.api.create_job(body)
        self.broken.append(name)

    async def close(self) -> None:
        await super().close()
        await self.server.stop()
        assert not self.server.refused, self.server.refused


class CarriedKubernetesRig(KubernetesRig):
    """The same without a volume that agent and pods share."""

    kind = "kubernetes-carried"

    def site(self) -> KubernetesSite:
        return carried_site(self.state, self.server.url)

    async def begun(self, uid: str) -> Counter[str]:
        """From the pods' own directories: what each of them ran."""
        return await asyncio.to_thread(self._ran, uid)

    def _ran(self, uid: str) -> Counter[str]:
        found: Counter[str] = Counter()
        for pod in self.server.cluster.store.pods_made:
            if pod["metadata"]["labels"].get(LABEL_ATTEMPT) == uid:
                place = self.server.cluster.scratch / pod["metadata"]["name"]
                for path in place.glob("*/work/began.*"):
                    found[path.name.removeprefix("began.")] += path.read_text().count("x")
        return found
