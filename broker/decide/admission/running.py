"""What runs, as admission sees it: who holds what, until when, and what stopping it would lose."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Running:
    """A live attempt. `replicas` counts those of all its copies; `pool` is the name within the
    federation. `ends_ms`: when its runtime is over at the latest. `stopping`: it is on its way
    out already. `kept_s`: seconds of work between two checkpoints, 0 = it keeps none. `queued`:
    it waits in the queue of its site, counts against quotas only, and is in no `pool`."""

    uid: str
    job: str
    tenant: str
    priority: int
    pool: str
    accelerator: str
    replicas: int
    accelerators_per_replica: int
    started_ms: int
    ends_ms: int
    nodes: tuple[str, ...] = ()
    cpus: float = 0.0
    memory_gib: float = 0.0
    grace_s: int = 30
    kept_s: int = 0
    stopping: bool = False
    is_slice: bool = False
    queued: bool = False

    @property
    def accelerators(self) -> int:
        """Accelerators (or CPU slots) it holds."""
        return self.replicas * self.accelerators_per_replica

    def lost_work(self, now_ms: int) -> float:
        """Accelerator seconds that are done and would have to be done again, with those of the
        grace it is given to end."""
        if not self.started_ms:
            return 0.0
        ran_s = max(now_ms - self.started_ms, 0) / 1000
        redone_s = min(ran_s, self.kept_s) if self.kept_s else ran_s
        return self.accelerators * (redone_s + self.grace_s)
