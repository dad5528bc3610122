"""Pods as processes of this host: each container with its command and environment, an empty
directory bound to where the pod mounts it (bubblewrap)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

Object = dict[str, Any]
GPU = "nvidia.com/gpu"
MIB, GIB = 2**20, 2**30
TERMINAL = ("Succeeded", "Failed")
MARK = "TW_TEST_CONTAINER"
OWN_IMAGE = "tradewind:test"
"""The image with this program."""


def empty_directories_missing() -> str:
    """Why pods cannot have directories of their own here; empty if they can."""
    missing = shutil.which("bwrap") is None
    return "pods with directories of their own: bubblewrap is not installed" if missing else ""


def now() -> str:
    """As the API writes it: whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def quantity(said: str) -> float:
    """An amount such as `500m`, `2Gi`, `4`."""
    for suffix, factor in (("m", 1e-3), ("Ki", 2**10), ("Mi", MIB), ("Gi", GIB)):
        if said.endswith(suffix):
            return float(said.removesuffix(suffix)) * factor
    return float(said)


class ContainerRun:
    """One container."""

    def __init__(self, pod: Object, container: Object, scratch: Path) -> None:
        self.name = container["name"]
        self.mark = f"{pod['metadata']['name']}/{self.name}"
        self._pod, self._said, self._scratch = pod, container, scratch
        limits = container["resources"].get("limits") or {}
        self._limit = quantity(limits.get("memory", "0"))
        self._process: asyncio.subprocess.Process | None = None
        self.started = now()
        self.why = ""
        self.terminated: Object | None = None

    async def start(self) -> None:
        said = self._said
        own = str(Path(sys.executable).parent) + ":" if said["image"] == OWN_IMAGE else ""
        env = {"PATH": f"{own}/usr/local/bin:/usr/bin:/bin", MARK: self.mark,
               "HOSTNAME": self._pod["metadata"]["name"]}  # fmt: skip
        for each in said["env"]:
            env[each["name"]] = each["value"] if "value" in each else field(self._pod, each)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._bound(), *said["command"], env=env, cwd=said.get("workingDir", "/"),
                start_new_session=True, stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
        except OSError:
            self.terminated = ended_as({"exitCode": 128, "reason": "StartError"}, self.started)

    def _bound(self) -> list[str]:
        empty = {v["name"] for v in self._pod["spec"].get("volumes") or () if "emptyDir" in v}
        binds = []
        for mount in self._said.get("volumeMounts") or ():
            if mount["name"] in empty:
                place = self._scratch / self._pod["metadata"]["name"] / mount["name"]
                place.mkdir(parents=True, exist_ok=True)
                binds += ["--bind", str(place), mount["mountPath"]]
        cwd = self._said.get("workingDir", "/")
        return ["bwrap", "--dev-bind", "/", "/", *binds, "--chdir", cwd] if binds else []

    def stop(self) -> None:
        """SIGTERM to its first process, which bubblewrap is not."""
        if self._process is None or self.terminated is not None:
            return
        pid = self._process.pid
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == "bwrap":
                pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
            os.kill(pid, signal.SIGTERM)

    def kill(self, why: str = "") -> None:
        self.why = self.why or why
        kill_tree(self.mark)

    def look(self) -> bool:
        """Whether it has just ended."""
        if self.terminated is not None or self._process is None:
            return False
        if self._limit and rss(self.mark) > self._limit:
            self.kill("OOMKilled")
        if self._process.returncode is None:
            return False
        kill_tree(self.mark)  # a container ends with its first process
        code = self._process.returncode
        code = 128 - code if code < 0 else code
        reason = "OOMKilled" if self.why == "OOMKilled" else "Error" if code else "Completed"
        self.terminated = ended_as({"exitCode": code, "reason": reason}, self.started)
        return True

    async def wait(self) -> None:
        if self._process is not None:
            await self._process.wait()

    @property
    def status(self) -> Object:
        state = {"terminated": self.terminated} if self.terminated else {
            "running": {"startedAt": self.started}
        }  # fmt: skip
        return {"name": self.name, "image": self._said["image"], "imageID": "",
                "ready": not self.terminated, "restartCount": 0, "state": state}  # fmt: skip


class PodRun:
    """The containers of one pod. It has ended when the last of them has."""

    def __init__(self, pod: Object, scratch: Path) -> None:
        self.containers = [ContainerRun(pod, c, scratch) for c in pod["spec"]["containers"]]

    async def start(self) -> None:
        for each in self.containers:
            await each.start()

    def stop(self) -> None:
        for each in self.containers:
            each.stop()

    def kill(self, why: str = "") -> None:
        for each in self.containers:
            each.kill(why)

    def look(self) -> bool:
        """Whether there is news."""
        return any([each.look() for each in self.containers])

    async def wait(self) -> None:
        for each in self.containers:
            await each.wait()

    @property
    def phase(self) -> str:
        codes = [c.terminated["exitCode"] if c.terminated else None for c in self.containers]
        if None in codes:
            return "Running"
        return "Failed" if any(codes) else "Succeeded"

    @property
    def statuses(self) -> list[Object]:
        return [each.status for each in self.containers]


def ended_as(how: Object, started: str) -> Object:
    return {**how, "startedAt": started, "finishedAt": now()}


def field(pod: Object, said: Object) -> str:
    path = said["valueFrom"]["fieldRef"]["fieldPath"]
    known = {"metadata.name": pod["metadata"]["name"], "spec.nodeName": pod["spec"]["nodeName"]}
    if path.startswith("metadata.annotations['"):
        return str(pod["metadata"]["annotations"][path.split("'")[1]])
    return str(known[path])


def _members(mark: str) -> Iterator[int]:
    """Processes of a container, by their environment."""
    said = f"\0{MARK}={mark}\0".encode()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if said in b"\0" + Path(f"/proc/{entry}/environ").read_bytes():
                    yield int(entry)


def kill_tree(mark: str) -> None:
    for _ in range(3):
        for pid in _members(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def rss(mark: str) -> int:
    total = 0
    for pid in _members(mark):
        with contextlib.suppress(OSError, IndexError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return total * os.sysconf("SC_PAGE_SIZE")
