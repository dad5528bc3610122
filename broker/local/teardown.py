"""Stopping a local federation for certain: no service, keeper or job is left."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from broker.local import processes
from broker.local.layout import Home
from broker.local.processes import Process
from broker.local.record import read_record, remove_record

SUPERVISOR_GRACE_S = 30.0
SERVICE_GRACE_S = 5.0
JOB_GRACE_S = 2.0
PASSES_MAX = 20


class NotStopped(RuntimeError):
    """Some processes will not end, not even by SIGKILL; the text names them."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """What was ended."""

    services: int = 0
    keepers: int = 0
    jobs: int = 0
    supervised: bool = False

    def __bool__(self) -> bool:
        return self.supervised or bool(self.services or self.keepers or self.jobs)


def take_down(home: Home) -> Stopped:
    """Stop whatever runs of the federation in `home`, its supervisor first.

    What users stored stays. Raises NotStopped.
    """
    record = read_record(home)
    supervisor = record.supervisor if record else None
    before = processes.find(home.root, home.agents)
    supervised = supervisor is not None and supervisor.send(signal.SIGTERM)
    if supervised and supervisor is not None:
        supervisor.send(signal.SIGCONT)
        if processes.wait_ended([supervisor], SUPERVISOR_GRACE_S):
            processes.kill([supervisor])
    sweep(home)
    return Stopped(len(before.services), len(before.keepers), len(before.jobs), supervised)


def sweep(home: Home) -> None:
    """End what is there without asking anybody. Raises NotStopped.

    Jobs that run are ended by us and not by themselves: their keepers go first, so that they do
    not record that as the jobs' own failure; the next start finds them lost, and their retry
    policy decides.
    """
    processes.end(processes.find(home.root, home.agents).services, SERVICE_GRACE_S)
    for _ in range(PASSES_MAX):
        found = processes.find(home.root, home.agents)
        if not found.all:
            remove_record(home)
            return
        processes.kill((*found.services, *found.keepers))
        processes.end(found.jobs, JOB_GRACE_S)
    raise NotStopped(f"still running: {_names(processes.find(home.root, home.agents).all)}")


def _names(left: tuple[Process, ...]) -> str:
    return ", ".join(f"pid {process.pid}" for process in left)
