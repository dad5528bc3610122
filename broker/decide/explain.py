"""Why a job is where it is, or why it waits: the candidate table, the reason per cluster, and the
smallest change that would start it. Values only; rendering is for others."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from enum import StrEnum

from broker.decide.against import Against
from broker.decide.changes import Advice, advise, can_start
from broker.decide.constraints.one_per_node import nodes_taken
from broker.decide.objective import CostTerms, cost_terms
from broker.decide.reasons import distance, unheard
from broker.decide.remaining import alone, left_over, nodes_closed_to, without_its_places
from broker.decide.shapes import places
from broker.decide.terms import Geography
from broker.model.plan import Plan
from broker.model.problem import Job, Pool, Problem
from broker.model.topology import Topology
from federation.refusals import Refusal, RefusalCode

_ADVISED_POOLS = 40
"""Pools, those nearest to a start, for which a change is looked for."""


class Standing(StrEnum):
    """How a waiting job stands with a cluster."""

    NEVER_FITS = "never fits"
    FITS_WHEN_EMPTY = "fits when empty"
    QUOTA = "waiting for quota"
    DATA = "data"
    POLICY = "policy"
    PRICE = "price"
    TIME = "deadline"
    MAINTENANCE = "maintenance"
    UNREACHABLE = "cluster unreachable"
    COULD_START = "could start"
    CHEAPER_LATER = "cheaper later"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One pool for one job. `terms` is the cost of a copy (None where the model is not accepted),
    `refusals` all that stands against it, empty when it could go there. `chosen` counts the copies
    that the plan put there. `queued`: not the pool but its queue; `later_h`: the hours until a
    start to come that is meant."""

    pool: str
    cluster: str
    region: str
    accelerator: str
    spot: bool
    rate_usd_per_h: float
    hours: float | None
    start_s: float
    rtt_ms: float
    terms: CostTerms | None
    refusals: tuple[Refusal, ...]
    chosen: int = 0
    queued: bool = False
    later_h: float = 0.0

    @property
    def feasible(self) -> bool:
        """Whether nothing stands against it."""
        return not self.refusals

    @property
    def text(self) -> str:
        """One line for people."""
        total = "" if self.terms is None else f", {self.terms.total_usd:.2f} USD a copy"
        line = f"{self.pool} ({self.cluster}, {self.region}){total}"
        if self.chosen:
            return f"{line}: CHOSEN for {self.chosen}"
        return f"{line}: {self.refusals[0].text}" if self.refusals else line


@dataclass(frozen=True, slots=True)
class ClusterReason:
    """Why one more copy does not start in a cluster: the reasons of its nearest pool. `pool` is
    empty where none is known. `advice` is the smallest change that would start a copy in this
    cluster, confirmed by deciding again; None where none is known, or none was looked for."""

    cluster: str
    pool: str
    standing: Standing
    refusals: tuple[Refusal, ...]
    advice: Advice | None = None

    @property
    def text(self) -> str:
        """One line for people."""
        return f"{self.cluster}: {self.standing}: {self.refusals[0].text}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why copies of a job wait, by cluster in the problem's order, and the smallest change that
    would start one (None when no change known here would). `advice` is confirmed by deciding that
    one job again, with the change, beside all that the plan placed."""

    job: str
    waiting: int
    reasons: tuple[ClusterReason, ...]
    advice: Advice | None


def candidates(problem: Problem, job: Job, plan: Plan | None = None) -> tuple[Candidate, ...]:
    """Every pool, queue and start to come for a copy of a job, in the problem or not, the cheapest
    that could take it first. With a plan, what the plan placed counts as taken, apart from where it
    put this job."""
    left = problem if plan is None else left_over(problem, plan)
    job = job if plan is None else without_its_places(problem, plan, job)
    left = left if plan is None else nodes_closed_to(job, left, plan)
    placed = () if plan is None else plan.assignments
    chosen: Counter[tuple[str, bool, float]] = Counter()
    levels: dict[tuple[str, bool, float], Topology | None] = {}
    for item in placed:
        for pool_name in {part.pool for part in item.parts} or {item.pool}:
            if item.job == job.id:
                place = (pool_name, *item.place[1:])
                chosen[place] += item.count
                levels.setdefault(place, item.level)
    where, against = Geography(problem), Against(left, job)
    pays = bool(job.topology_usd) and job.replicas > 1
    table = []
    for index, pool in enumerate(against.pools):
        one = job
        if pays:
            level = levels.get(pool.place) or against.level(index) or job.topology
            one = replace(job, level_usd=job.topology_usd.get(level, 0.0))
        table.append(_candidate(where, one, pool, against.pool(index), chosen[pool.place]))
    return tuple(sorted(table, key=_candidate_order))


def explain_unplaced(problem: Problem, plan: Plan, job_id: str) -> Explanation:
    """Why copies of a job are not in a plan. Raises KeyError for a job not in the problem."""
    return explain_copy(problem, plan, {job.id: job for job in problem.jobs}[job_id])


def explain_copy(problem: Problem, plan: Plan, job: Job) -> Explanation:
    """Why one more copy of a job, in the problem or not, does not start beside a plan."""
    waiting = sum(item.count for item in plan.unplaced if item.job == job.id)
    left, job = left_over(problem, plan), without_its_places(problem, plan, job)
    shared, left = left, nodes_closed_to(job, left, plan)
    against = Against(left, job)
    by_cluster: dict[str, list[tuple[ClusterReason, Pool]]] = {c.name: [] for c in left.clusters}
    queues = against.pools[len(left.pools) :]
    for index, pool in enumerate(against.pools):
        original = (*problem.pools, *queues)[index]
        refusals = against.pool(index)
        if index < len(left.pools):
            refusals = _by_own_nodes(job, (shared.pools[index], pool), refusals)
        reason = _reason(left, job, refusals, original)
        by_cluster[pool.cluster].append((reason, pool))
    of_cluster = {
        name: min((reason for reason, _ in found), key=_nearness)
        for name, found in by_cluster.items()
        if found
    }
    for cluster, refusals in unheard(Geography(left), job):
        standing = _STANDINGS.get(refusals[0].code, Standing.POLICY)
        of_cluster[cluster.name] = ClusterReason(cluster.name, "", standing, refusals)
    found = _changes(left, job, [pair for pairs in by_cluster.values() for pair in pairs])
    nearest = [
        replace(of_cluster[name], advice=found.get(name))
        for name in by_cluster
        if name in of_cluster
    ]
    advice = min(found.values(), key=_rank, default=None)
    return Explanation(job.id, waiting, tuple(nearest), advice)


def _candidate(
    where: Geography, job: Job, pool: Pool, against: tuple[Refusal, ...], chosen: int
) -> Candidate:
    known = pool.accelerator in job.accelerators
    could_start = chosen or against[0].code is RefusalCode.NOT_CHOSEN
    return Candidate(
        pool=pool.name,
        cluster=pool.cluster,
        region=where.region(pool),
        accelerator=pool.accelerator,
        spot=pool.spot,
        rate_usd_per_h=job.gang_accelerators
        * (where.price_usd(job, pool) if known else pool.price_usd_per_accelerator_hour),
        hours=job.runtime_h / job.accelerators[pool.accelerator] if known else None,
        start_s=where.start_s(job, pool),
        rtt_ms=where.rtt_ms(job, pool),
        terms=cost_terms(where, job, pool) if known else None,
        refusals=() if could_start else against,
        chosen=chosen,
        queued=pool.place[1],
        later_h=pool.starts_h,
    )


def _candidate_order(candidate: Candidate) -> tuple[bool, bool, float, str]:
    total = float("inf") if candidate.terms is None else candidate.terms.total_usd
    return (not candidate.chosen, not candidate.feasible, total, candidate.pool)


def _by_own_nodes(
    job: Job, pools: tuple[Pool, Pool], found: tuple[Refusal, ...]
) -> tuple[Refusal, ...]:
    """The reasons of a pool, given as it is and without the nodes where the job is: whether there
    would be room on those."""
    shared, closed = pools
    if shared.nodes == closed.nodes or found[0].code is not RefusalCode.NO_CAPACITY:
        return found
    if places(replace(job, one_per_node=False), shared.nodes) < job.replicas:
        return found
    return (nodes_taken(job, closed.name, places(job, closed.nodes)), *found)


def _reason(left: Problem, job: Job, found: tuple[Refusal, ...], original: Pool) -> ClusterReason:
    """The reasons of one pool. `original` is the pool before the plan took its share."""
    standing = _STANDINGS.get(found[0].code, Standing.POLICY)
    if found[0].code in _WHEN_EMPTY:
        unlimited = replace(original, free_cpus=None, free_memory_gib=None)
        original = replace(original, queue=None)
        variants = [original, replace(unlimited, nodes=original.when_empty)]
        empty = any(can_start(replace(alone(left, job, pool), tenants=())) for pool in variants)
        standing = Standing.FITS_WHEN_EMPTY if empty else Standing.NEVER_FITS
    return ClusterReason(original.cluster, original.name, standing, found)


_WHEN_EMPTY = (
    RefusalCode.NO_CAPACITY,
    RefusalCode.NO_CPUS,
    RefusalCode.NO_MEMORY,
    RefusalCode.RACK_TOO_SMALL,
    RefusalCode.NODES_TAKEN,
)
"""Reasons that end when others do, if the pool is large enough at all."""


def _nearness(reason: ClusterReason) -> tuple[int, tuple[int, str], int, str]:
    found = reason.refusals
    standing = _NEAREST_FIRST.index(reason.standing)
    return (standing, distance(found[0]), len(found), reason.pool)


def _changes(left: Problem, job: Job, pairs: list[tuple[ClusterReason, Pool]]) -> dict[str, Advice]:
    """The smallest change by cluster, looked for in the nearest pools."""
    ranked = sorted(pairs, key=lambda pair: _nearness(pair[0]))
    found: dict[str, Advice] = {}
    for reason, pool in ranked[:_ADVISED_POOLS]:
        advice = advise(alone(left, job, pool))
        best = found.get(reason.cluster)
        if advice is not None and (best is None or advice.rank < best.rank):
            found[reason.cluster] = advice
    return found


def _rank(advice: Advice) -> tuple[int, int, float, str]:
    return advice.rank


_NEAREST_FIRST = (
    Standing.COULD_START,
    Standing.CHEAPER_LATER,
    Standing.QUOTA,
    Standing.FITS_WHEN_EMPTY,
    Standing.PRICE,
    Standing.TIME,
    Standing.POLICY,
    Standing.DATA,
    Standing.MAINTENANCE,
    Standing.UNREACHABLE,
    Standing.NEVER_FITS,
)
# A reason that is not here is one of policy, or of a site's rules.
_STANDINGS = {
    RefusalCode.NOT_CHOSEN: Standing.COULD_START,
    RefusalCode.WRONG_ACCELERATOR: Standing.NEVER_FITS,
    RefusalCode.MISSING_FEATURES: Standing.NEVER_FITS,
    RefusalCode.REPLICA_TOO_LARGE: Standing.NEVER_FITS,
    RefusalCode.GANG_TOO_LARGE: Standing.NEVER_FITS,
    RefusalCode.RACK_TOO_SMALL: Standing.FITS_WHEN_EMPTY,
    RefusalCode.POOL_TOO_SMALL: Standing.FITS_WHEN_EMPTY,
    RefusalCode.NODES_TAKEN: Standing.FITS_WHEN_EMPTY,
    RefusalCode.DEADLINE_TOO_SOON: Standing.TIME,
    RefusalCode.RUNTIME_TOO_LONG: Standing.TIME,
    RefusalCode.DEFERRED: Standing.CHEAPER_LATER,
    RefusalCode.OVER_BUDGET: Standing.PRICE,
    RefusalCode.PRICE_CAP: Standing.PRICE,
    RefusalCode.PRICE_UNKNOWN: Standing.PRICE,
    RefusalCode.VALUE_BELOW_COST: Standing.PRICE,
    RefusalCode.TENANT_QUOTA: Standing.QUOTA,
    RefusalCode.CLUSTER_QUOTA: Standing.QUOTA,
    RefusalCode.NO_EXTRAS: Standing.FITS_WHEN_EMPTY,
    RefusalCode.QUEUE_FULL: Standing.FITS_WHEN_EMPTY,
    RefusalCode.LATER_FULL: Standing.FITS_WHEN_EMPTY,
    RefusalCode.DATA_MISSING: Standing.DATA,
    RefusalCode.DATA_RESIDENCY: Standing.DATA,
    RefusalCode.MAINTENANCE: Standing.MAINTENANCE,
    RefusalCode.DRAINING: Standing.MAINTENANCE,
    RefusalCode.PAUSED: Standing.MAINTENANCE,
    RefusalCode.BLACKOUT: Standing.MAINTENANCE,
    RefusalCode.CLUSTER_UNREACHABLE: Standing.UNREACHABLE,
    RefusalCode.CAPACITY_STALE: Standing.UNREACHABLE,
    RefusalCode.CAPACITY_UNKNOWN: Standing.UNREACHABLE,
}
