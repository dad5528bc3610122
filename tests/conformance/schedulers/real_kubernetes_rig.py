"""The conformance suite against a real API server, named by `TRADEWIND_TEST_KUBECONFIG`.

Its nodes must see the scratch directory of the tests under the same path (a cluster on this
machine), and have an image with a shell (`TRADEWIND_TEST_KUBE_IMAGE`, else debian:12-slim). Where
the control plane has no nodes, `TRADEWIND_TEST_KUBE_NODE=process` gives it one whose pods are
processes of this host."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from federation.system import SystemClock
from regional_agent.act.schedulers.batch.scheduler import (
    CRASH_POINTS,
    BatchScheduler,
    BatchSettings,
)
from regional_agent.act.schedulers.kubernetes import Kubernetes
from regional_agent.act.schedulers.port import LaunchOrder, LocalScheduler
from regional_agent.conformance.files import SharedFiles, shell_order
from regional_agent.conformance.rig import Ability, Break, Crashed, Program
from regional_agent.kubernetes.api import Conflict, KubernetesApi
from regional_agent.kubernetes.kubeconfig import read_kubeconfig
from regional_agent.kubernetes.site import KubernetesSite
from tests.conformance.schedulers.kubernetes_rig import QUICK
from tests.schedulers.kubernetes_node import Node

NAMESPACE = "tradewind-conformance"


class RealKubernetesRig:
    """Attempts of one case; the cluster outlives it."""

    kind = "kubernetes-server"
    patience_s = 60.0
    isolation = "shared-uid"
    crash_points = CRASH_POINTS

    def __init__(self, state: Path, kubeconfig: Path) -> None:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.state, self._kubeconfig = state, kubeconfig
        self.files = SharedFiles(state)
        self.files.hide_secrets()
        access = read_kubeconfig(kubeconfig, "", state / "kubernetes")
        self.site = KubernetesSite(
            url=access.url, namespace=NAMESPACE, mount=state, host_path=str(state),
            image=os.environ.get("TRADEWIND_TEST_KUBE_IMAGE", "debian:12-slim"),
            ca_file=access.ca_file, token_file=access.token_file, cert_file=access.cert_file,
            key_file=access.key_file,
        )  # fmt: skip
        self._scheduler: BatchScheduler | None = None
        self._system: Kubernetes | None = None
        self._node: asyncio.Task[None] | None = None
        self._kubelet: Node | None = None

    async def _begin(self) -> None:
        api = KubernetesApi(self.site)
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        try:
            await api.ask("POST", "/api/v1/namespaces", space)
        except Conflict:
            pass
        finally:
            await api.close()
        if os.environ.get("TRADEWIND_TEST_KUBE_NODE") == "process":
            self._kubelet = Node(self._kubeconfig)
            self._node = asyncio.create_task(self._kubelet.run())

    async def open(self, crash_at: str = "") -> LocalScheduler:
        if self._system is None:
            await self._begin()
        if self._scheduler is not None and self._system is not None:
            await self._scheduler.close()
            await self._system.close()

        def reached(point: str) -> None:
            if point == crash_at:
                raise Crashed(point)

        settings = BatchSettings(self.state, (("PATH", "/usr/bin:/bin"),), QUICK)
        self._system = Kubernetes(KubernetesApi(self.site))
        self._scheduler = BatchScheduler(settings, self._system, SystemClock(), reached)
        self._system.news = self._scheduler.look_soon
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
        return {Ability.REMOVE: self._remove}

    async def _remove(self, uid: str) -> None:
        """By `kubectl delete job`."""
        assert self._scheduler is not None and self._system is not None
        local_id = await self._scheduler.find(uid)
        assert local_id is not None
        await self._system.api.delete_job(local_id)

    async def heal(self) -> None:
        pass

    async def close(self) -> None:
        if self._scheduler is not None and self._system is not None:
            await self._scheduler.shut_down(kill=True)
            await self._scheduler.close()
            for uid in await self._scheduler.attempts():
                await self._system.remove(uid)
            await self._system.close()
        if self._node is not None and self._kubelet is not None:
            self._node.cancel()
            await asyncio.gather(self._node, return_exceptions=True)
            await self._kubelet.close()
