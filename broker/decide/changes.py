"""The smallest change that would start a copy: found by undoing reasons one after another in the
problem of one job and one pool, and confirmed by deciding that problem again."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from broker.decide.case import build_case
from broker.decide.greedy import Floor, greedy
from broker.decide.reasons import Reasons, counted, places
from broker.decide.terms import Geography, rounded_up
from broker.model.problem import Job, NodeGroup, Pool, Problem, Tenant
from federation.refusals import Refusal, RefusalCode

_ROUNDS = 8
"""Most reasons that are undone one after another."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing to change: `what` names it in the words of the problem format, `before` and `after`
    are its values as text. `size` compares changes of the same kind: smaller is less."""

    code: RefusalCode
    what: str
    before: str
    after: str
    size: float

    @property
    def text(self) -> str:
        """One line for people."""
        return f"{self.what} {self.before} -> {self.after}" if self.before else self.what


@dataclass(frozen=True, slots=True)
class Advice:
    """Changes that together start one copy in a pool; confirmed by deciding again."""

    pool: str
    cluster: str
    changes: tuple[Change, ...]

    @property
    def text(self) -> str:
        """One line for people."""
        what = " and ".join(change.text for change in self.changes)
        return f"{what}: then a copy starts in {self.pool} ({self.cluster})"

    @property
    def rank(self) -> tuple[int, int, float, str]:
        """Order of advice, the smallest first: few changes, then those a user can make alone."""
        worst = max(_EFFORT.index(change.code) for change in self.changes)
        return (len(self.changes), worst, sum(c.size for c in self.changes), self.pool)


def can_start(problem: Problem) -> bool:
    """Whether the one job of a problem gets at least one copy placed, by itself."""
    case = build_case(problem)
    return bool(greedy(case, range(len(case.classes))).counts.any())


def advise(problem: Problem) -> Advice | None:
    """What to change so that the one job of a problem with one pool starts there; None when no
    change known here is enough, or none is needed."""
    pool, cluster = problem.pools[0].name, problem.pools[0].cluster
    changes: list[Change] = []
    for _ in range(_ROUNDS):
        if can_start(problem):
            return Advice(pool, cluster, tuple(changes)) if changes else None
        case = build_case(problem)
        refusal = Reasons(case, Floor(case)).against(0, 0)[0]
        undo = _UNDO.get(refusal.code, _lift)
        changed = undo(problem, refusal)
        if changed is None:
            return None
        problem, change = changed
        changes = [c for c in changes if c.what != change.what] + [change]
    return None


Undo = Callable[[Problem, Refusal], tuple[Problem, Change] | None]


def _parts(problem: Problem) -> tuple[Job, Pool, Geography]:
    return problem.jobs[0], problem.pools[0], Geography(problem)


def _with_job(problem: Problem, job: Job, change: Change) -> tuple[Problem, Change]:
    return replace(problem, jobs=(job,)), change


def _accelerator(problem: Problem, refusal: Refusal) -> tuple[Problem, Change]:
    job, pool, _ = _parts(problem)
    speeds = {**job.accelerators, pool.accelerator: min(job.accelerators.values(), default=1.0)}
    change = Change(refusal.code, f"allow accelerator {pool.accelerator}", "", "", 1.0)
    return _with_job(problem, replace(job, accelerators=speeds), change)


def _spot(problem: Problem, refusal: Refusal) -> tuple[Problem, Change]:
    change = Change(refusal.code, "allow spot", "", "", 0.0)
    return _with_job(problem, replace(problem.jobs[0], spot_ok=True), change)


def _region(problem: Problem, refusal: Refusal) -> tuple[Problem, Change]:
    job, pool, where = _parts(problem)
    region = where.region(pool)
    change = Change(refusal.code, f"allow {region}", "", "", where.rtt_ms(job, pool))
    return _with_job(problem, replace(job, regions=(*(job.regions or ()), region)), change)


def _rtt(problem: Problem, refusal: Refusal) -> tuple[Problem, Change]:
    job, pool, where = _parts(problem)
    needed = rounded_up(where.rtt_ms(job, pool))
    change = _raised(refusal, "max_rtt_ms", job.max_rtt_ms or 0.0, needed)
    return _with_job(problem, replace(job, max_rtt_ms=needed), change)


def _deadline(problem: Problem, refusal: Refusal) -> tuple[Problem, Change]:
    job, pool, where = _parts(problem)
    start_s = where.cold_start_s(job, pool) + where.start_delay_s(job, pool)
    needed = rounded_up(job.runtime_h / job.accelerators[pool.accelerator] + start_s / 3600)
    change = _raised(refusal, "deadline_h", job.deadline_h or 0.0, needed)
    return _with_job(problem, replace(job, deadline_h=needed), change)


def _budget(problem: Problem, refusal: Refusal) -> tuple[Problem, Change]:
    job, pool, where = _parts(problem)
    hours = job.runtime_h / job.accelerators[pool.accelerator]
    spending = job.gang_accelerators * pool.price_usd_per_accelerator_hour * hours
    needed = rounded_up(spending + where.egress_usd(job, pool))
    change = _raised(refusal, "budget_usd", job.budget_usd or 0.0, needed)
    return _with_job(problem, replace(job, budget_usd=needed), change)


def _price_cap(problem: Problem, refusal: Refusal) -> tuple[Problem, Change]:
    job, pool, _ = _parts(problem)
    needed = rounded_up(pool.price_usd_per_accelerator_hour)
    given = job.max_price_usd_per_accelerator_hour or 0.0
    change = _raised(refusal, "price cap", given, needed)
    return _with_job(problem, replace(job, max_price_usd_per_accelerator_hour=needed), change)


def _quota(problem: Problem, refusal: Refusal) -> tuple[Problem, Change] | None:
    job, pool, _ = _parts(problem)
    needed = job.gang_accelerators
    for index, tenant in enumerate(problem.tenants):
        if tenant.name != job.tenant:
            continue
        if refusal.code is RefusalCode.TENANT_QUOTA:
            left = tenant.quota_accelerators or 0
            wider = replace(tenant, quota_accelerators=needed)
            what = f"{needed - left} more of quota for {tenant.name}"
        else:
            left = tenant.cluster_quota.get(pool.cluster, 0)
            wider = replace(tenant, cluster_quota={**tenant.cluster_quota, pool.cluster: needed})
            what = f"{needed - left} more of quota for {tenant.name} in {pool.cluster}"
        tenants = _swapped(problem.tenants, index, wider)
        change = Change(refusal.code, what, "", "", float(needed - left))
        return replace(problem, tenants=tenants), change
    return None


def _swapped(tenants: tuple[Tenant, ...], index: int, tenant: Tenant) -> tuple[Tenant, ...]:
    return (*tenants[:index], tenant, *tenants[index + 1 :])


def _capacity(problem: Problem, refusal: Refusal) -> tuple[Problem, Change] | None:
    job, pool, _ = _parts(problem)
    if job.accelerators_per_replica > pool.accelerators_per_node:
        return None
    missing = job.replicas - places(job, pool.nodes)
    if missing <= 0:
        return None
    size = job.accelerators_per_replica
    cpus, memory = job.replica_cpus, job.replica_memory_gib
    nodes = (*pool.nodes, NodeGroup(missing, size, cpus, memory))
    what = f"{counted(missing, 'more free place')} of {size} {pool.accelerator} on one node"
    change = Change(refusal.code, what, "", "", float(missing * size))
    return replace(problem, pools=(replace(pool, nodes=nodes),)), change


def _total(problem: Problem, refusal: Refusal) -> tuple[Problem, Change]:
    job, pool, _ = _parts(problem)
    if refusal.code is RefusalCode.NO_CPUS:
        needed, free = job.replica_cpus * job.replicas, pool.free_cpus or 0.0
        pool, unit = replace(pool, free_cpus=needed), "cpus"
    else:
        needed, free = job.replica_memory_gib * job.replicas, pool.free_memory_gib or 0.0
        pool, unit = replace(pool, free_memory_gib=needed), "GiB of memory"
    what = f"{rounded_up(needed - free):g} more {unit} free in {pool.name}"
    change = Change(refusal.code, what, "", "", needed - free)
    return replace(problem, pools=(pool,)), change


def _replica(problem: Problem, refusal: Refusal) -> tuple[Problem, Change] | None:
    job, pool, _ = _parts(problem)
    nodes = pool.when_empty or pool.nodes
    largest = max((group.free_accelerators for group in nodes if group.count), default=0)
    if largest < 1 or largest >= job.accelerators_per_replica:
        return None
    replicas = -(-job.gang_accelerators // largest)
    smaller = replace(job, replicas=replicas, accelerators_per_replica=largest)
    before = f"{job.replicas} x {job.accelerators_per_replica}"
    after = f"{replicas} x {largest}"
    return _with_job(
        problem, smaller, Change(refusal.code, "replicas x accelerators", before, after, replicas)
    )


def _gang(problem: Problem, refusal: Refusal) -> tuple[Problem, Change] | None:
    job, pool, _ = _parts(problem)
    most = places(job, pool.when_empty or pool.nodes)
    if not 1 <= most < job.replicas:
        return None
    change = Change(refusal.code, "replicas", f"{job.replicas}", f"{most}", job.replicas - most)
    return _with_job(problem, replace(job, replicas=most), change)


def _value(problem: Problem, refusal: Refusal) -> tuple[Problem, Change] | None:
    job, pool, _ = _parts(problem)
    case = build_case(problem)
    if not len(case.options):
        return None
    node_usd = problem.objective.fragmentation_usd_per_node * job.replicas
    cost = float(case.options.cost_usd[0]) + node_usd
    needed = rounded_up(cost / job.gang_accelerators * (1 + 1e-6) + 1e-6)
    values = problem.objective.value_usd_per_accelerator
    before = values.get(job.priority, 0.0)
    objective = replace(
        problem.objective, value_usd_per_accelerator={**values, job.priority: needed}
    )
    what = f"value_usd_per_accelerator of priority {job.priority}"
    change = _raised(refusal, what, before, needed)
    return replace(problem, objective=objective), change


def _lift(problem: Problem, refusal: Refusal) -> tuple[Problem, Change] | None:
    """Reasons that a caller gave: the pool is not usable, the job excluded from the cluster."""
    job, pool, _ = _parts(problem)
    advice = refusal.advice or f"{refusal.code.replace('_', ' ')} of {refusal.subject} ends"
    change = Change(refusal.code, advice, "", "", 0.0)
    if pool.unusable == refusal:
        return replace(problem, pools=(replace(pool, unusable=None),)), change
    if job.excluded.get(pool.cluster) == refusal:
        return _with_job(problem, replace(job, excluded={}), change)
    return None


def _raised(refusal: Refusal, what: str, before: float, after: float) -> Change:
    size = math.inf if before <= 0 else after / before - 1
    return Change(refusal.code, what, f"{before:g}", f"{after:.10g}", size)


_UNDO: dict[RefusalCode, Undo] = {
    RefusalCode.WRONG_ACCELERATOR: _accelerator,
    RefusalCode.SPOT_NOT_ALLOWED: _spot,
    RefusalCode.REGION_NOT_ALLOWED: _region,
    RefusalCode.ROUND_TRIP_TOO_LONG: _rtt,
    RefusalCode.DEADLINE_TOO_SOON: _deadline,
    RefusalCode.OVER_BUDGET: _budget,
    RefusalCode.PRICE_CAP: _price_cap,
    RefusalCode.TENANT_QUOTA: _quota,
    RefusalCode.CLUSTER_QUOTA: _quota,
    RefusalCode.NO_CAPACITY: _capacity,
    RefusalCode.NO_CPUS: _total,
    RefusalCode.NO_MEMORY: _total,
    RefusalCode.REPLICA_TOO_LARGE: _replica,
    RefusalCode.GANG_TOO_LARGE: _gang,
    RefusalCode.VALUE_BELOW_COST: _value,
}
_EFFORT = [
    RefusalCode.SPOT_NOT_ALLOWED,
    RefusalCode.OVER_BUDGET,
    RefusalCode.DEADLINE_TOO_SOON,
    RefusalCode.ROUND_TRIP_TOO_LONG,
    RefusalCode.REGION_NOT_ALLOWED,
    RefusalCode.TENANT_QUOTA,
    RefusalCode.CLUSTER_QUOTA,
    RefusalCode.VALUE_BELOW_COST,
    RefusalCode.NO_CPUS,
    RefusalCode.NO_MEMORY,
    RefusalCode.NO_CAPACITY,
    RefusalCode.REPLICA_TOO_LARGE,
    RefusalCode.GANG_TOO_LARGE,
    RefusalCode.WRONG_ACCELERATOR,
]
_EFFORT += [code for code in RefusalCode if code not in _EFFORT]
