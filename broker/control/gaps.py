"""What is kept for a gang is not idle meanwhile: who ends in time may use it (backfill).

After the main decision, what it left waiting is decided once more in the kept nodes alone: jobs
whose runtime is over before the gang's room is there, and those of a higher priority than it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from broker.control.build_problem import Waiting
from broker.decide.admission.holds import Hold
from broker.decide.admission.keeping import SLACK_S
from broker.model import problem as pm
from broker.model.plan import Plan, Unplaced
from federation.refusals import Refusal, RefusalCode


@dataclass(frozen=True, slots=True)
class Gap:
    """The second problem of a cycle, and who stands for whom in it."""

    problem: pm.Problem
    waiting: Mapping[str, Waiting]


@dataclass(frozen=True, slots=True)
class Candidate:
    """Copies of a job of the main problem: their own priority, and the longest they may run."""

    priority: int
    runtime_s: float


def gap_after(
    problem: pm.Problem,
    plan: Plan,
    waiting: Mapping[str, Waiting],
    candidates: Mapping[str, Candidate],
    kept: tuple[Sequence[pm.Pool], Sequence[Hold], int],
) -> Gap | None:
    """The problem of what may use the kept nodes; None where nothing may. `kept`: the nodes, the
    holds they are kept for, and now (UTC ms)."""
    parts, holds, now_ms = kept
    left = {unplaced.job: unplaced.count for unplaced in plan.unplaced}
    jobs: list[pm.Job] = []
    stands: dict[str, Waiting] = {}
    for job in problem.jobs:
        if job.id not in left:
            continue
        closed = _closed_to(candidates[job.id], parts, holds, now_ms)
        if any(p.cluster not in closed and p.accelerator in job.accelerators for p in parts):
            excluded = {**job.excluded, **closed} if closed else job.excluded
            jobs.append(replace(job, count=left[job.id], excluded=excluded))
            stands[job.id] = _rest(waiting[job.id], job.count - left[job.id])
    if not jobs:
        return None
    tenants = _after(problem, plan)
    return Gap(
        replace(problem, pools=tuple(parts), jobs=tuple(jobs), tenants=tenants, warm=None), stands
    )


def _closed_to(
    candidate: Candidate, parts: Sequence[pm.Pool], holds: Sequence[Hold], now_ms: int
) -> dict[str, Refusal]:
    """Clusters whose kept nodes a job may not use. Where a cluster keeps nodes for several, the
    strictest counts."""
    ends_ms = now_ms + (candidate.runtime_s + SLACK_S) * 1000
    closed: dict[str, Refusal] = {}
    clusters = {part.name: part.cluster for part in parts}
    for hold in holds:
        cluster = clusters.get(hold.pool)
        if cluster is None or candidate.priority > hold.priority or ends_ms <= hold.room_ms:
            continue
        closed[cluster] = Refusal(RefusalCode.CAPACITY_HELD, hold.pool)
    return closed


def _rest(waiting: Waiting, placed: int) -> Waiting:
    members = waiting.members[placed:]
    copies = len(members) if waiting.members else waiting.copies - placed
    return replace(waiting, members=members, copies=copies)


def _after(problem: pm.Problem, plan: Plan) -> tuple[pm.Tenant, ...]:
    """The tenants with what the main plan gave them taken off their limits."""
    jobs = {job.id: job for job in problem.jobs}
    clusters = {pool.name: pool.cluster for pool in problem.pools}
    used: dict[str, dict[str, int]] = {}
    for assignment in plan.assignments:
        job = jobs[assignment.job]
        mine = used.setdefault(job.tenant, {})
        cluster = clusters[assignment.pool]
        mine[cluster] = mine.get(cluster, 0) + assignment.count * job.gang_accelerators
    found = []
    for tenant in problem.tenants:
        mine, most = used.get(tenant.name, {}), tenant.quota_accelerators
        found.append(
            replace(
                tenant,
                quota_accelerators=None if most is None else max(most - sum(mine.values()), 0),
                cluster_quota={
                    c: max(n - mine.get(c, 0), 0) for c, n in tenant.cluster_quota.items()
                },
            )
        )
    return tuple(found)


def without(unplaced: Sequence[Unplaced], placed: Plan | None) -> tuple[Unplaced, ...]:
    """What still waits once the gap's plan is carried out as well."""
    given: dict[str, int] = {}
    for assignment in placed.assignments if placed else ():
        given[assignment.job] = given.get(assignment.job, 0) + assignment.count
    return tuple(
        each if each.job not in given else replace(each, count=each.count - given[each.job])
        for each in unplaced
        if each.count > given.get(each.job, 0)
    )
