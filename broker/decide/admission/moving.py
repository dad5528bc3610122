"""Which running jobs move to a better place: those that gain more by it than it costs. Pure.

What runs stays unless its job allows a move. Of an array only what has not begun goes elsewhere:
its slice gets no further tasks, and nothing is stopped or lost. The moves are a problem of their
own, in what the queue has left free: scalar, and leaving a job unplaced in it means that it stays.
What a copy is worth there is what going on costs where it is, less what the move has to bring at
least; so its objective is what all moves together save beyond that, and `decide` proves and
verifies it like any other. Nothing moves into a place that another has yet to leave, so no move
waits for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from broker.decide.admission.running import Running
from broker.decide.objective import CostTerms, cost_terms
from broker.decide.terms import Geography
from broker.model.admission import MovingRules
from broker.model.plan import Plan
from broker.model.problem import Job, Mode, Objective, Pool, Problem
from broker.model.topology import Topology

LOOKED_AT_MAX = 200
"""Jobs in one problem of moves: those with most to save. The others come at a later look."""


@dataclass(frozen=True, slots=True)
class Mover:
    """A running job that may move. `job` is the whole of it as it would be planned anew, alone and
    by the name it has there; `spent_usd` what it has cost up to now. For a slice of an array `job`
    is all its places at once (`as_one`), and each of them has `ahead_h` hours (at speed 1) of
    tasks that no site has yet."""

    attempt: Running
    job: Job
    spent_usd: float = 0.0
    ahead_h: float = 0.0


@dataclass(frozen=True, slots=True)
class Move:
    """A job that is to go on in `pool`. All USD: `stay_usd` is what the rest of the run costs where
    it is, `there_usd` what it costs there; `lost_usd` the work done again, and what it and the
    grace take of its time and of the old place; `start_usd` egress, cold start, and waiting for
    it."""

    mover: Mover
    pool: str
    stay_usd: float
    there_usd: float
    lost_usd: float
    start_usd: float

    @property
    def gain_usd(self) -> float:
        """What the better place saves, were the move free."""
        return self.stay_usd - self.there_usd

    @property
    def restart_usd(self) -> float:
        """What the move itself costs."""
        return self.lost_usd + self.start_usd

    @property
    def saved_usd(self) -> float:
        """What is left of the gain."""
        return self.gain_usd - self.restart_usd

    @property
    def text(self) -> str:
        """One line for people."""
        if self.mover.ahead_h:
            return (
                f"gets no further tasks in {self.mover.attempt.pool}: the rest of the array costs "
                f"{self.there_usd:.2f} instead of {self.stay_usd:.2f} USD in {self.pool}, starting "
                f"there {self.start_usd:.2f}; saves {self.saved_usd:.2f} USD"
            )
        return (
            f"moves from {self.mover.attempt.pool} to {self.pool}: the rest costs "
            f"{self.there_usd:.2f} instead of {self.stay_usd:.2f} USD, restarting "
            f"{self.restart_usd:.2f} (lost work {self.lost_usd:.2f}, start {self.start_usd:.2f}); "
            f"saves {self.saved_usd:.2f} USD"
        )


@dataclass(frozen=True, slots=True)
class _Rest:
    """What is left of a job. `job` as it would go on elsewhere, the work that is lost included;
    `left_h` without that, at speed 1; `stay_usd` where it is; `grace_usd` what stopping takes, and
    the value of the time lost; `bar_usd` what a copy elsewhere may cost at most."""

    mover: Mover
    job: Job
    left_h: float
    stay_usd: float
    grace_usd: float
    bar_usd: float


@dataclass(frozen=True, slots=True)
class Moving:
    """A problem of moves, and what stands behind its jobs."""

    problem: Problem
    rests: Sequence[_Rest]

    def moves(self, plan: Plan, rules: MovingRules) -> tuple[Move, ...]:
        """What a plan of the problem moves, what saves most first, and no more than may."""
        where, pools = Geography(self.problem), {p.name: p for p in self.problem.pools}
        by_name = {rest.job.id: rest for rest in self.rests}
        found = [
            _move(where, by_name[item.job], pools[item.pool])
            for item in plan.assignments
            if not item.queued and item.pool != by_name[item.job].mover.attempt.pool
        ]
        found.sort(key=lambda move: (-move.saved_usd, move.mover.attempt.uid))
        return tuple(found[: rules.most])


def as_one(job: Job, copies: int) -> Job | None:
    """All places of a slice as one job, so that all or none of them are looked for elsewhere; None
    where its copies must not be side by side, or each of them in one rack."""
    racked = job.replicas > 1 and job.topology is not Topology.CLUSTER
    if copies > 1 and (job.apart or job.apart_region or racked):
        return None
    return replace(
        job,
        count=1,
        replicas=job.replicas * copies,
        topology=Topology.CLUSTER,
        topology_usd={},
        input_gb=job.input_gb * copies,
        latency_usd_per_ms=job.latency_usd_per_ms * copies,
        value_of_time_usd_per_h=job.value_of_time_usd_per_h * copies,
        budget_usd=None if job.budget_usd is None else job.budget_usd * copies,
    )


def moving(
    problem: Problem, movers: Sequence[Mover], rules: MovingRules, now_ms: int
) -> Moving | None:
    """The problem of these moves in the places that `problem` has free; None where none can bring
    enough. Jobs of `problem` are left out, and of quotas those over all clusters: what moves holds
    its own already."""
    where, pools = Geography(problem), {pool.name: pool for pool in problem.pools}
    found: list[_Rest] = []
    for mover in movers:
        pool = pools.get(mover.attempt.pool)
        rest = _rest(where, mover, pool, (rules, now_ms)) if pool is not None else None
        if rest is not None:
            found.append(rest)
    found.sort(key=lambda rest: (-rest.bar_usd, rest.mover.attempt.uid))
    rests = [
        replace(rest, job=replace(rest.job, priority=number))
        for number, rest in enumerate(found[:LOOKED_AT_MAX])
    ]
    if not rests:
        return None
    objective = Objective(
        mode=Mode.SCALAR,
        value_usd_per_accelerator={
            rest.job.priority: rest.bar_usd / rest.job.gang_accelerators for rest in rests
        },
        fragmentation_usd_per_node=problem.objective.fragmentation_usd_per_node,
    )
    tenants = tuple(replace(tenant, quota_accelerators=None) for tenant in problem.tenants)
    jobs = tuple(rest.job for rest in rests)
    asked = replace(problem, jobs=jobs, objective=objective, tenants=tenants, warm=None)
    return Moving(asked, rests)


def _rest(
    where: Geography, mover: Mover, pool: Pool, rules_now: tuple[MovingRules, int]
) -> _Rest | None:
    """What is left of a job, and what elsewhere may cost; None where no place can be worth it."""
    rules, now_ms = rules_now
    attempt, whole = mover.attempt, mover.job
    speed = whole.accelerators.get(pool.accelerator, 0.0)
    ran_h = max(now_ms - attempt.started_ms, 0) / 3_600_000
    left_h = whole.runtime_h - ran_h * speed
    grace_h = attempt.grace_s / 3600
    redone_h = min(ran_h, attempt.kept_s / 3600) if attempt.kept_s else ran_h
    if mover.ahead_h:  # nothing is stopped
        left_h, grace_h, redone_h = mover.ahead_h, 0.0, 0.0
    if not attempt.started_ms or speed <= 0 or left_h <= 0:
        return None  # beyond what it said: nobody knows what is left
    lost_h = redone_h * speed
    here = replace(whole, runtime_h=left_h, current_pool=pool.name)
    stay_usd = cost_terms(where, here, pool).total_usd
    rate_usd = whole.gang_accelerators * where.price_usd(here, pool)
    grace_usd = grace_h * rate_usd + whole.value_of_time_usd_per_h * (grace_h + redone_h)
    least_usd = max(rules.saving_min_usd, rules.saving_share * stay_usd)
    bar_usd = stay_usd - grace_usd - least_usd
    if bar_usd <= 0:
        return None
    deadline_h, budget_usd = whole.deadline_h, whole.budget_usd
    if mover.ahead_h and budget_usd is not None:
        budget_usd *= mover.ahead_h / whole.runtime_h  # of each task that runs there
    elsewhere = replace(
        whole,
        max_queue_s=0.0,
        runtime_h=left_h + lost_h,
        deadline_h=None if deadline_h is None else max(deadline_h - grace_h, 0.0),
        budget_usd=None if budget_usd is None else max(budget_usd - mover.spent_usd, 0.0),
    )
    return _Rest(mover, elsewhere, left_h, stay_usd, grace_usd, bar_usd)


def _move(where: Geography, rest: _Rest, pool: Pool) -> Move:
    whole = cost_terms(where, rest.job, pool)
    alone = cost_terms(where, replace(rest.job, runtime_h=rest.left_h), pool)
    start_usd = _start_usd(whole)
    there_usd = alone.total_usd - _start_usd(alone)
    again_usd = whole.total_usd - start_usd - there_usd
    return Move(
        rest.mover, pool.name, rest.stay_usd, there_usd, again_usd + rest.grace_usd, start_usd
    )


def _start_usd(terms: CostTerms) -> float:
    return terms.egress_usd + terms.cold_start_usd + terms.start_delay_usd
