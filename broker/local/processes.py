"""Processes of this machine, read from /proc: which are ours, and ending them for certain.

A pid is reused sooner or later. Together with the start time in clock ticks since boot, and the
boot, it names one process for ever; nothing here signals a pid whose start time does not fit.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MARK = "TRADEWIND_UP"
"""Variable in the environment of every process started for a local federation; its directory."""
ATTEMPT_MARK = "TRADEWIND_ATTEMPT"
"""Variable in the environment of every process of a job."""
KEEPER_MODULE = "regional_agent.act.keeper"
POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Process:
    """One process for ever. `ticks`: its start in clock ticks since the boot named `boot`."""

    pid: int
    ticks: int
    boot: str

    def as_json(self) -> dict[str, Any]:
        """For a file."""
        return {"pid": self.pid, "ticks": self.ticks, "boot": self.boot}

    @property
    def alive(self) -> bool:
        """Whether it runs still; a zombie does not."""
        return self.boot == boot_id() and start_ticks(self.pid) == self.ticks

    def send(self, number: int) -> bool:
        """Signal it; False if it has ended."""
        if not self.alive:
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True


def boot_id() -> str:
    """Names this boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def process_of(pid: int) -> Process | None:
    """The process with this pid now; None if there is none."""
    ticks = start_ticks(pid)
    return None if ticks is None else Process(pid, ticks, boot_id())


def process_from(value: object) -> Process | None:
    """The process a file names; None if the text names none."""
    if not isinstance(value, Mapping):
        return None
    pid, ticks, boot = value.get("pid"), value.get("ticks"), value.get("boot")
    if isinstance(pid, int) and isinstance(ticks, int) and isinstance(boot, str) and pid > 0:
        return Process(pid, ticks, boot)
    return None


def _stat(pid: int) -> list[bytes] | None:
    """Fields of /proc/<pid>/stat from the third (state) on."""
    try:
        data = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The second field is the command in brackets and may hold anything, brackets too.
    return data[data.rindex(b")") + 2 :].split()


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None if it has ended."""
    fields = _stat(pid)
    if fields is None or fields[0] in (b"Z", b"X"):
        return None
    return int(fields[19])


def _environment(pid: int) -> dict[bytes, bytes]:
    try:
        data = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    return dict(entry.split(b"=", 1) for entry in data.split(b"\0") if b"=" in entry)


def _arguments(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
    except OSError:
        return []


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


@dataclass(frozen=True, slots=True)
class Found:
    """Processes of one federation, by what they are."""

    services: tuple[Process, ...] = ()
    keepers: tuple[Process, ...] = ()
    jobs: tuple[Process, ...] = ()

    @property
    def all(self) -> tuple[Process, ...]:
        """Everything."""
        return (*self.services, *self.keepers, *self.jobs)


def find(home: Path, agents: Path) -> Found:
    """Every process that belongs to the federation of `home`, but for this one and its parents.

    Services carry a mark in their environment, keepers name a state directory below `agents` on
    their command line, jobs have both an attempt and a home below it in their environment; and
    whatever descends from a keeper or a job is of a job too, whatever it did to its environment.
    """
    spared = _own_line()
    parents: dict[int, int] = {}
    kinds: dict[int, str] = {}
    for pid in _pids():
        fields = _stat(pid)
        if fields is None or fields[0] in (b"Z", b"X"):
            continue
        parents[pid] = int(fields[1])
        if pid not in spared:
            kinds[pid] = _kind(pid, home, agents)
    for pid in kinds:
        if not kinds[pid] and _descends(pid, parents, kinds):
            kinds[pid] = "job"
    named = {kind: _processes(p for p, k in kinds.items() if k == kind) for kind in _KINDS}
    return Found(named["service"], named["keeper"], named["job"])


_KINDS = ("service", "keeper", "job")


def _processes(pids: Iterable[int]) -> tuple[Process, ...]:
    found = (process_of(pid) for pid in sorted(pids))
    return tuple(process for process in found if process is not None)


def _kind(pid: int, home: Path, agents: Path) -> str:
    words = _arguments(pid)
    below = os.fsencode(agents) + b"/"
    if KEEPER_MODULE.encode() in words and any(word.startswith(below) for word in words):
        return "keeper"
    environment = _environment(pid)
    if ATTEMPT_MARK.encode() in environment:
        return "job" if environment.get(b"HOME", b"").startswith(below) else ""
    return "service" if environment.get(MARK.encode()) == os.fsencode(home) else ""


def _descends(pid: int, parents: Mapping[int, int], kinds: Mapping[int, str]) -> bool:
    seen = {pid}
    while (pid := parents.get(pid, 0)) > 1 and pid not in seen:
        seen.add(pid)
        if kinds.get(pid) in ("keeper", "job"):
            return True
    return False


def _own_line() -> set[int]:
    """This process and all it descends from."""
    line, pid = {os.getpid()}, os.getppid()
    while pid > 0 and pid not in line:
        line.add(pid)
        fields = _stat(pid)
        pid = int(fields[1]) if fields else 0
    return line


def end(processes: Iterable[Process], grace_s: float) -> None:
    """SIGTERM, and SIGKILL for those that are there still after the grace; returns when all ended.

    Stopped ones are continued, or they would not hear the first signal.
    """
    left = [process for process in processes if process.send(signal.SIGTERM)]
    for process in left:
        process.send(signal.SIGCONT)
    left = wait_ended(left, grace_s)
    for process in left:
        process.send(signal.SIGKILL)
    wait_ended(left, 10.0)


def kill(processes: Iterable[Process]) -> None:
    """SIGKILL, and wait until they have ended."""
    wait_ended([process for process in processes if process.send(signal.SIGKILL)], 10.0)


def wait_ended(processes: Iterable[Process], within_s: float) -> list[Process]:
    """Wait until these have ended; those that have not in time."""
    left = list(processes)
    deadline = time.monotonic() + within_s
    while left:
        left = [process for process in left if process.alive]
        if not left or time.monotonic() >= deadline:
            break
        time.sleep(POLL_S)
    return left

