"""What simpler rules would have done with the same jobs on the same pools. Pure.

A replay by events: a job that came and the end of one are instants; at each of them the jobs that
wait are looked at by priority, then age, and each goes where the rule says if there is room, whole
replicas on nodes. Runtimes are those that were measured; the rules pay no overhead and suffer no
dead region, so they are shown from their better side.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean


@dataclass(frozen=True, slots=True)
class ReplayPool:
    """Alike nodes. `usd_per_hour` per accelerator."""

    name: str
    region: str
    accelerator: str
    nodes: int
    per_node: int
    usd_per_hour: float
    spot: bool = False


@dataclass(frozen=True, slots=True)
class ReplayJob:
    """`copies` alike gangs of `replicas` with `per_replica` accelerators, each running `run_s`,
    `at_once` of them at most."""

    name: str
    arrived_s: float
    run_s: float
    models: tuple[str, ...]
    home: str
    per_replica: int = 1
    replicas: int = 1
    copies: int = 1
    at_once: int | None = None
    priority: int = 100
    regions: tuple[str, ...] = ()
    spot: bool = False


Taken = tuple[tuple[int, int], ...]
"""Nodes of a pool with the accelerators taken of each."""

Rule = Callable[[ReplayJob, Sequence[ReplayPool]], list[ReplayPool]]
"""The pools a job may go to under a rule, the preferred first."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """Waits are from a job's arrival to the start of its first copy, over the jobs that ran;
    `end_s` is when the last copy ended."""

    paid_usd: float
    jobs_ran: int
    copies_ran: int
    mean_wait_s: float
    longest_wait_s: float
    end_s: float
    never: tuple[str, ...] = ()


def cheapest_first(job: ReplayJob, pools: Sequence[ReplayPool]) -> list[ReplayPool]:
    """The pool with the lowest price that takes the job now."""
    return sorted((p for p in pools if allowed(job, p)), key=lambda p: (p.usd_per_hour, p.name))


def home_only(job: ReplayJob, pools: Sequence[ReplayPool]) -> list[ReplayPool]:
    """As `cheapest_first`, in the region of who submitted."""
    return [pool for pool in cheapest_first(job, pools) if pool.region == job.home]


def allowed(job: ReplayJob, pool: ReplayPool) -> bool:
    """Whether the job could ever run in that pool."""
    return (
        pool.accelerator in job.models
        and (not job.regions or pool.region in job.regions)
        and (job.spot or not pool.spot)
        and job.per_replica <= pool.per_node
        and job.replicas <= pool.nodes * (pool.per_node // job.per_replica)
    )


@dataclass
class _State:
    free: dict[str, list[int]]
    ends: list[tuple[float, int, str, str, Taken]] = field(default_factory=list)
    waits_s: dict[str, float] = field(default_factory=dict)
    running: Counter[str] = field(default_factory=Counter)
    paid_usd: float = 0.0
    end_s: float = 0.0
    serial: int = 0

    def start(self, job: ReplayJob, pool: ReplayPool, now_s: float) -> bool:
        """Start one copy there if there is room and the job may have one more."""
        if job.at_once is not None and self.running[job.name] >= job.at_once:
            return False
        taken = _fit(self.free[pool.name], job)
        if taken is None:
            return False
        for node, count in taken:
            self.free[pool.name][node] -= count
        end_s = now_s + job.run_s
        self.serial += 1
        heapq.heappush(self.ends, (end_s, self.serial, job.name, pool.name, taken))
        self.running[job.name] += 1
        self.waits_s.setdefault(job.name, now_s - job.arrived_s)
        self.paid_usd += job.per_replica * job.replicas * pool.usd_per_hour * job.run_s / 3600
        self.end_s = max(self.end_s, end_s)
        return True

    def end_until(self, now_s: float) -> None:
        """Give back what copies that have ended held."""
        while self.ends and self.ends[0][0] <= now_s:
            _, _, job, pool, taken = heapq.heappop(self.ends)
            self.running[job] -= 1
            for node, count in taken:
                self.free[pool][node] += count


def _fit(free: list[int], job: ReplayJob) -> Taken | None:
    """Nodes for every replica, the fullest that do first; None without room."""
    left, taken = list(free), []
    for _ in range(job.replicas):
        fitting = [node for node, room in enumerate(left) if room >= job.per_replica]
        if not fitting:
            return None
        node = min(fitting, key=lambda n: left[n])
        left[node] -= job.per_replica
        taken.append((node, job.per_replica))
    return tuple(taken)


def replay(jobs: Sequence[ReplayJob], pools: Sequence[ReplayPool], rule: Rule) -> Replayed:
    """Run all jobs under a rule. A job no pool of which the rule allows is never run."""
    choices = {job.name: rule(job, pools) for job in jobs}
    never = [job for job in jobs if not choices[job.name]]
    coming = sorted((j for j in jobs if choices[j.name]), key=lambda j: j.arrived_s)
    waiting: list[tuple[ReplayJob, int]] = []
    state = _State({pool.name: [pool.per_node] * pool.nodes for pool in pools})
    while coming or waiting:
        now_s = _next_instant(coming, state)
        while coming and coming[0].arrived_s <= now_s:
            job = coming.pop(0)
            waiting.append((job, job.copies))
        state.end_until(now_s)
        waiting.sort(key=lambda entry: (-entry[0].priority, entry[0].arrived_s))
        waiting = _start_all(waiting, choices, state, now_s)
    return Replayed(
        paid_usd=state.paid_usd,
        jobs_ran=len(state.waits_s),
        copies_ran=state.serial,
        mean_wait_s=fmean(state.waits_s.values()) if state.waits_s else 0.0,
        longest_wait_s=max(state.waits_s.values(), default=0.0),
        end_s=state.end_s,
        never=tuple(job.name for job in never),
    )


def _next_instant(coming: list[ReplayJob], state: _State) -> float:
    instants = [coming[0].arrived_s] if coming else []
    instants += [state.ends[0][0]] if state.ends else []
    return min(instants)


def _start_all(
    waiting: list[tuple[ReplayJob, int]],
    choices: dict[str, list[ReplayPool]],
    state: _State,
    now_s: float,
) -> list[tuple[ReplayJob, int]]:
    left: list[tuple[ReplayJob, int]] = []
    for job, copies in waiting:
        while copies and any(state.start(job, pool, now_s) for pool in choices[job.name]):
            copies -= 1
        if copies:
            left.append((job, copies))
    return left
