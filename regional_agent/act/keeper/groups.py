"""Control groups, v1 or v2: one per process of a task and all it starts.

They bound memory, processes and CPU time, hold everything a process ever started, and so make a
kill that nothing escapes. Names follow from attempt, task and rank: a keeper that starts anew
finds them again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
V1_CONTROLLERS = ("memory", "pids", "cpu", "freezer")
V2_CONTROLLERS = ("memory", "pids", "cpu")
PIDS_MAX = 16_384
"""Processes and threads of one process of a task: far above any honest program, far below what
stops a machine."""
CPU_PERIOD_US = 100_000
CPU_QUOTA_MIN_US = 1_000
KILL_PASSES = 50
KILL_LOOK_S = 0.002


@dataclass(frozen=True, slots=True)
class Limits:
    """0 = none."""

    memory_bytes: int
    cpus_milli: int


class Groups:
    """All groups below one of our own. Made by `find_groups`."""

    def __init__(self, parents: dict[str, Path], *, unified: bool) -> None:
        """`parents`: a directory per controller; all the same one where the tree is unified."""
        self._parents = parents
        self._unified = unified

    @property
    def version(self) -> int:
        """1 or 2."""
        return 2 if self._unified else 1

    def make(self, name: str, limits: Limits) -> None:
        """Make a group with these limits. Raises OSError."""
        for directory in self._directories(name):
            directory.mkdir(parents=True, exist_ok=True)
        self._write(name, "pids", "pids.max", str(PIDS_MAX))
        if limits.memory_bytes:
            self._limit_memory(name, limits.memory_bytes)
        if limits.cpus_milli:
            quota_us = max(CPU_QUOTA_MIN_US, CPU_PERIOD_US * limits.cpus_milli // 1000)
            if self._unified:
                self._write(name, "cpu", "cpu.max", f"{quota_us} {CPU_PERIOD_US}")
            else:
                self._write(name, "cpu", "cpu.cfs_period_us", str(CPU_PERIOD_US))
                self._write(name, "cpu", "cpu.cfs_quota_us", str(quota_us))

    def add(self, name: str, pid: int) -> None:
        """Move a process in; what it starts from now on is born there. Raises OSError."""
        for directory in self._directories(name):
            (directory / "cgroup.procs").write_text(str(pid))

    def kill(self, name: str) -> None:
        """SIGKILL everything in the group; nothing can start in the meantime."""
        if self._unified:
            with contextlib.suppress(OSError):
                self._write(name, "", "cgroup.kill", "1")
                return
        self._freeze(name, frozen=True)
        try:
            for pid in self.members(name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        finally:
            self._freeze(name, frozen=False)

    def members(self, name: str) -> list[int]:
        """Processes in the group, zombies left out by the kernel."""
        key = "" if self._unified else "freezer"
        try:
            return [int(pid) for pid in self._path(name, key, "cgroup.procs").read_text().split()]
        except OSError:
            return []

    def ran_out_of_memory(self, name: str) -> bool:
        """Whether the kernel killed something in the group because of its limit."""
        file = "memory.events" if self._unified else "memory.oom_control"
        try:
            text = self._path(name, "memory", file).read_text()
        except OSError:
            return False
        counts = dict(line.split(None, 1) for line in text.splitlines() if " " in line)
        return int(counts.get("oom_kill", 0)) > 0

    def remove(self, name: str) -> None:
        """Kill what is left and take the group away."""
        if not any(directory.exists() for directory in self._directories(name)):
            return
        for _ in range(KILL_PASSES):
            if self.members(name):
                self.kill(name)
            if all(_removed(directory) for directory in self._directories(name)):
                return
            time.sleep(KILL_LOOK_S)  # the dead leave the group a moment later

    def leave(self) -> None:
        """Take away what is ours and empty."""
        for parent in set(self._parents.values()):
            _removed(parent)

    def of(self, uid: str) -> list[str]:
        """The groups there are of an attempt."""
        found = {d.name for p in set(self._parents.values()) for d in p.glob(f"{uid}.*")}
        return sorted(found)

    def _limit_memory(self, name: str, limit_bytes: int) -> None:
        if self._unified:
            self._write(name, "memory", "memory.max", str(limit_bytes))
            with contextlib.suppress(OSError):
                self._write(name, "memory", "memory.swap.max", "0")
            return
        self._write(name, "memory", "memory.limit_in_bytes", str(limit_bytes))
        with contextlib.suppress(OSError):  # where the kernel accounts for swap at all
            self._write(name, "memory", "memory.memsw.limit_in_bytes", str(limit_bytes))

    def _freeze(self, name: str, *, frozen: bool) -> None:
        with contextlib.suppress(OSError):
            if self._unified:
                self._write(name, "", "cgroup.freeze", "1" if frozen else "0")
                return
            state = "FROZEN" if frozen else "THAWED"
            for _ in range(KILL_PASSES):
                self._write(name, "freezer", "freezer.state", state)
                if self._path(name, "freezer", "freezer.state").read_text().strip() == state:
                    return

    def _directories(self, name: str) -> set[Path]:
        return {parent / name for parent in self._parents.values()}

    def _path(self, name: str, controller: str, file: str) -> Path:
        parent = self._parents.get(controller) or next(iter(self._parents.values()))
        return parent / name / file

    def _write(self, name: str, controller: str, file: str, text: str) -> None:
        self._path(name, controller, file).write_text(text)


def group_name(uid: str, task: int, rank: int) -> str:
    """The group of one process of a task."""
    return f"{uid}.{task}.{rank}"


def find_groups(parent: str, root: Path = ROOT) -> Groups | str:
    """Groups below `parent` in our own control group, or why there are none."""
    try:
        own = _own_groups(Path("/proc/self/cgroup").read_text())
    except (OSError, ValueError) as error:
        return f"/proc/self/cgroup: {error}"
    unified = (root / "cgroup.controllers").exists()
    try:
        found = _unified(own, parent, root) if unified else _separate(own, parent, root)
        groups = Groups(found, unified=unified)
        groups.make("probe", Limits(2**24, 100))
        groups.remove("probe")
    except OSError as error:
        return f"cannot be written: {error}"
    return groups


def _own_groups(text: str) -> dict[str, str]:
    own: dict[str, str] = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            own[controller] = path
    return own


def _separate(own: dict[str, str], parent: str, root: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for controller in V1_CONTROLLERS:
        if controller not in own:
            raise OSError(f"no controller {controller}")
        base = root / controller / own[controller].lstrip("/")
        # A container shows its own part of the tree as the whole of it.
        base = base if base.is_dir() else root / controller
        found[controller] = base / parent
        found[controller].mkdir(exist_ok=True)
    return found


def _unified(own: dict[str, str], parent: str, root: Path) -> dict[str, Path]:
    """Only what is delegated to us (systemd: `Delegate=yes`) can be written. A group with
    controllers for its children has no processes of its own: ours go into one beside them."""
    base = root / own[""].lstrip("/")
    base = base.parent if base.name == "keeper" else base
    if base.suffix != ".service" and base != root:
        # Others may live there, a login for one, and would be moved about.
        raise OSError(f"{base.name} is no service of our own; see docs/isolation.md")
    aside = base / "keeper"
    aside.mkdir(exist_ok=True)
    for pid in (base / "cgroup.procs").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            (aside / "cgroup.procs").write_text(pid)
    wanted = " ".join(f"+{controller}" for controller in V2_CONTROLLERS)
    (base / "cgroup.subtree_control").write_text(wanted)
    inner = base / parent
    inner.mkdir(exist_ok=True)
    (inner / "cgroup.subtree_control").write_text(wanted)
    return dict.fromkeys(V2_CONTROLLERS, inner)


def _removed(directory: Path) -> bool:
    try:
        directory.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
