"""A node for a real API server: its pods run as processes of this host, with the command and the
environment of their container. For `TRADEWIND_TEST_KUBECONFIG` where there is a control plane and
no machine behind it: `python -m tests.schedulers.kubernetes_node KUBECONFIG`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from regional_agent.kubernetes.api import MERGE, KubernetesApi, NotThere
from regional_agent.kubernetes.kubeconfig import read_kubeconfig
from regional_agent.kubernetes.site import KubernetesSite
from tests.schedulers.kubernetes_cluster import (
    GPU,
    TERMINAL,
    Object,
    field,
    kill_tree,
    now,
    quantity,
    rss,
)

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
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._told: set[str] = set()
        self._why: dict[str, str] = {}
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
        for pod in self._processes:
            kill_tree(pod)
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
        process = self._processes.get(name)
        if "deletionTimestamp" in pod["metadata"] and process is not None:
            self._stop(pod, process)
        if process is not None:
            await self._watch(path, pod, process)
        elif "deletionTimestamp" in pod["metadata"]:
            await self._ask("DELETE", path, {"gracePeriodSeconds": 0})
        elif phase not in TERMINAL and name not in self._told:
            await self._start(path, pod)

    def _stop(self, pod: Object, process: asyncio.subprocess.Process) -> None:
        name = pod["metadata"]["name"]
        if name not in self._kill_at:
            grace_s = pod["metadata"].get("deletionGracePeriodSeconds", 30)
            self._kill_at[name] = time.monotonic() + grace_s
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        elif time.monotonic() > self._kill_at[name]:
            kill_tree(name)

    async def _start(self, path: str, pod: Object) -> None:
        name = pod["metadata"]["name"]
        (container,) = pod["spec"]["containers"]
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOSTNAME": name}
        for each in container["env"]:
            env[each["name"]] = each["value"] if "value" in each else field(pod, each)
        self._told.add(name)
        self._processes[name] = await asyncio.create_subprocess_exec(
            *container["command"], env=env, cwd=container["workingDir"], start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        running = {"name": container["name"], "image": container["image"], "imageID": "",
                   "ready": True, "restartCount": 0, "state": {"running": {"startedAt": now()}}}
        status = {"phase": "Running", "startTime": now(), "containerStatuses": [running]}
        await self._ask("PATCH", f"{path}/status", {"status": status}, MERGE)

    async def _watch(self, path: str, pod: Object, process: asyncio.subprocess.Process) -> None:
        name = pod["metadata"]["name"]
        (container,) = pod["spec"]["containers"]
        limits = container["resources"].get("limits") or {}
        if "memory" in limits and rss(name) > quantity(limits["memory"]):
            self._why[name] = "OOMKilled"
            kill_tree(name)
        if process.returncode is None:
            return
        kill_tree(name)
        del self._processes[name]
        code = process.returncode if process.returncode >= 0 else 128 - process.returncode
        reason = self._why.pop(name, "Error" if code else "Completed")
        state = {"terminated": {"exitCode": code, "reason": reason, "finishedAt": now(),
                                "startedAt": pod["status"].get("startTime") or now()}}
        ended = {"name": container["name"], "image": container["image"], "imageID": "",
                 "ready": False, "restartCount": 0, "state": state}  # fmt: skip
        status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [ended]}
        await self._ask("PATCH", f"{path}/status", {"status": status}, MERGE)


if __name__ == "__main__":
    asyncio.run(Node(Path(sys.argv[1])).run())
