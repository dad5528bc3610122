"""A node for a real API server: its pods run as processes of this host, with the command and the
environment of their container. For `TRADEWIND_TEST_KUBECONFIG` where there is a control plane and
no machine behind it: `python -m tests.schedulers.kubernetes_node KUBECONFIG`."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from regional_agent.kubernetes.api import MERGE, KubernetesApi, NotThere
from regional_agent.kubernetes.kubeconfig import read_kubeconfig
from regional_agent.kubernetes.site import KubernetesSite
from tests.schedulers.kubernetes_pods import GPU, TERMINAL, Object, PodRun, now

LOOK_S = 0.15
BEAT_S = 5.0
STRATEGIC = "application/strategic-merge-patch+json"


class Node:
    """One node, and the kubelet of it."""

    def __init__(self, kubeconfig: Path, name: str = "tradewind-test", cpus: int = 8) -> None:
        self.name, self.cpus = name, cpus
        self._kept = tempfile.TemporaryDirectory()
        access = read_kubeconfig(kubeconfig, "", Path(self._kept.name))
        self._api = KubernetesApi(
            KubernetesSite(
                url=access.url, namespace="", image="", mount=Path("/"), ca_file=access.ca_file,
                token_file=access.token_file, cert_file=access.cert_file, key_file=access.key_file,
            )  # fmt: skip
        )
        self.scratch = Path(self._kept.name) / "pods"
        self._runs: dict[str, PodRun] = {}
        self._told: set[str] = set()
        self._kill_at: dict[str, float] = {}
        self._beat_at = 0.0

    async def run(self) -> None:
        await self._join()
        while True:
            await self._beat()
            found = await self._ask("GET", f"/api/v1/pods?fieldSelector=spec.nodeName={self.name}")
            for pod in found["items"]:
                with contextlib.suppress(NotThere):
                    await self._keep(pod)
            await asyncio.sleep(LOOK_S)

    async def close(self) -> None:
        for run in self._runs.values():
            run.kill()
        with contextlib.suppress(NotThere):
            await self._ask("DELETE", f"/api/v1/nodes/{self.name}")
        await self._api.close()
        self._kept.cleanup()

    async def _ask(
        self, method: str, path: str, body: Object | None = None, kind: str = "application/json"
    ) -> Any:
        return await self._api.ask(method, path, body, kind)

    async def _join(self) -> None:
        labels = {f"{GPU}.product": "NVIDIA-H100-80GB-HBM3", "kubernetes.io/hostname": self.name}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name,
                "labels": labels}}  # fmt: skip
        with contextlib.suppress(NotThere):
            await self._ask("DELETE", f"/api/v1/nodes/{self.name}")
        await self._ask("POST", "/api/v1/nodes", body)

    async def _beat(self) -> None:
        if time.monotonic() < self._beat_at:
            return
        self._beat_at = time.monotonic() + BEAT_S
        amounts = {"cpu": str(self.cpus), "memory": "64Gi", GPU: "8", "pods": "110"}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
                 "lastHeartbeatTime": now()}  # fmt: skip
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
        path = f"/api/v1/nodes/{self.name}/status"
        await self._ask("PATCH", path, {"status": status}, STRATEGIC)

    async def _keep(self, pod: Object) -> None:
        name, phase = pod["metadata"]["name"], pod["status"]["phase"]
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{name}"
        run = self._runs.get(name)
        if "deletionTimestamp" in pod["metadata"] and run is not None:
            self._stop(pod, run)
        if run is not None:
            await self._watch(path, pod, run)
        elif "deletionTimestamp" in pod["metadata"]:
            await self._ask("DELETE", path, {"gracePeriodSeconds": 0})
        elif phase not in TERMINAL and name not in self._told:
            await self._start(path, pod)

    def _stop(self, pod: Object, run: PodRun) -> None:
        name = pod["metadata"]["name"]
        if name not in self._kill_at:
            grace_s = pod["metadata"].get("deletionGracePeriodSeconds", 30)
            self._kill_at[name] = time.monotonic() + grace_s
            run.stop()
        elif time.monotonic() > self._kill_at[name]:
            run.kill()

    async def _start(self, path: str, pod: Object) -> None:
        name = pod["metadata"]["name"]
        self._told.add(name)
        run = self._runs[name] = PodRun(pod, self.scratch)
        await run.start()
        status = {"phase": "Running", "startTime": now(), "containerStatuses": run.statuses}
        await self._ask("PATCH", f"{path}/status", {"status": status}, MERGE)

    async def _watch(self, path: str, pod: Object, run: PodRun) -> None:
        if not run.look() and run.phase == "Running":
            return
        if run.phase != "Running":
            del self._runs[pod["metadata"]["name"]]
        status = {"phase": run.phase, "containerStatuses": run.statuses}
        await self._ask("PATCH", f"{path}/status", {"status": status}, MERGE)


if __name__ == "__main__":
    asyncio.run(Node(Path(sys.argv[1])).run())
