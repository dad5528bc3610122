"""The conformance suite against a real API server, named by `TRADEWIND_TEST_KUBECONFIG`.

Its nodes must see the scratch directory of the tests under the same path (a cluster on this
machine), and have an image with a shell (`TRADEWIND_TEST_KUBE_IMAGE`, else debian:12-slim). Where
the control plane has no nodes, `TRADEWIND_TEST_KUBE_NODE=process` gives it one whose pods are
processes of this host. `TRADEWIND_TEST_KUBE_FILES=carry` shares no directory with them."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from regional_agent.conformance.rig import LOOK_S, Ability, Break
from regional_agent.kubernetes.api import Conflict, KubernetesApi, NotThere
from regional_agent.kubernetes.kubeconfig import read_kubeconfig
from regional_agent.kubernetes.site import KubernetesSite
from tests.conformance.schedulers.kubernetes_rig import PodsRig, carry_on_loopback
from tests.schedulers.kubernetes_node import Node

NAMESPACE = "tradewind-conformance"


class RealKubernetesRig(PodsRig):
    """Attempts of one case; the cluster outlives it."""

    kind = "kubernetes-server"
    patience_s = 60.0

    def __init__(self, state: Path, kubeconfig: Path) -> None:
        super().__init__(state)
        self._kubeconfig = kubeconfig
        access = read_kubeconfig(kubeconfig, "", state / "kubernetes")
        self.site = KubernetesSite(
            url=access.url, namespace=NAMESPACE, mount=state, host_path=str(state),
            image=os.environ.get("TRADEWIND_TEST_KUBE_IMAGE", "debian:12-slim"),
            ca_file=access.ca_file, token_file=access.token_file, cert_file=access.cert_file,
            key_file=access.key_file,
        )  # fmt: skip
        if os.environ.get("TRADEWIND_TEST_KUBE_FILES") == "carry":
            self.site = replace(self.site, host_path="", carry=carry_on_loopback())
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

    async def reach(self) -> KubernetesApi:
        if self.system is None:
            await self._begin()
        return KubernetesApi(self.site)

    async def begun(self, uid: str) -> Counter[str]:
        """See the rig; where files are carried, from the directories of pods of our own node."""
        if self.site.carry is None or self._kubelet is None:
            return await super().begun(uid)
        found: Counter[str] = Counter()
        for path in self._kubelet.scratch.glob(f"{uid}-*/*/work/began.*"):
            found[path.name.removeprefix("began.")] += path.read_text().count("x")
        return found

    @property
    def abilities(self) -> Mapping[Ability, Break]:
        own: dict[Ability, Break] = {Ability.FILL: self._close} if self._kubelet else {}
        return {Ability.REMOVE: self._remove, **own}

    async def _close(self, uid: str) -> None:
        """The node of the tests takes nothing new, as if it were full."""
        await self._set_closed(closed=True)

    async def heal(self) -> None:
        if self._kubelet is not None:
            await self._set_closed(closed=False)

    async def _set_closed(self, *, closed: bool) -> None:
        assert self.system is not None and self._kubelet is not None
        path = f"/api/v1/nodes/{self._kubelet.name}"
        change = {"spec": {"unschedulable": closed}}
        async with asyncio.timeout(self.patience_s):
            while True:
                try:
                    await self.system.api.ask("PATCH", path, change, "application/merge-patch+json")
                except NotThere:  # it has not joined yet
                    await asyncio.sleep(LOOK_S)
                else:
                    return

    async def _remove(self, uid: str) -> None:
        """By `kubectl delete job`, which deletes in the background."""
        assert self.system is not None
        path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{await self.local_id(uid)}"
        how = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        await self.system.api.ask("DELETE", path, how)

    async def close(self) -> None:
        if self.system is not None:
            await self.scheduler.shut_down(kill=True)
            for uid in await self.scheduler.attempts():
                await self.system.remove(uid)
        await super().close()
        if self._node is not None and self._kubelet is not None:
            self._node.cancel()
            await asyncio.gather(self._node, return_exceptions=True)
            await self._kubelet.close()
