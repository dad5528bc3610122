"""What a plan gains over the greedy floor of the same problem, on the same work. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from broker.decide.later_starts import pool_of
from broker.decide.objective import cost_terms
from broker.decide.terms import Geography
from broker.model.plan import Plan
from broker.model.problem import Problem


@dataclass(frozen=True, slots=True)
class Gain:
    """A plan beside the floor. Copies and accelerators that each places; `more_copies` only the
    plan places now, `fewer_copies` only the floor does. Of the copies that both place,
    `saved_usd` is what they cost less by the plan, `sooner_s` how much sooner they are expected to
    start, added up (both negative where the plan is worse in it, for the sake of more work)."""

    copies: int
    floor_copies: int
    accelerators: int
    floor_accelerators: int
    more_copies: int
    fewer_copies: int
    cost_usd: float
    floor_cost_usd: float
    saved_usd: float
    sooner_s: float


@dataclass(slots=True)
class _Share:
    """What one plan does with one job: copies, and their cost and start delays added up."""

    copies: int = 0
    cost_usd: float = 0.0
    start_s: float = 0.0


def gain_over(problem: Problem, plan: Plan, floor: Plan) -> Gain:
    """The plan beside the floor. Of a job that they place in different numbers of copies the mean
    of each stands for those that both place."""
    ours, theirs = _shares(problem, plan), _shares(problem, floor)
    saved_usd = sooner_s = 0.0
    more = fewer = 0
    for job in ours.keys() | theirs.keys():
        a, b = ours.get(job, _Share()), theirs.get(job, _Share())
        both = min(a.copies, b.copies)
        more += a.copies - both
        fewer += b.copies - both
        if both:
            saved_usd += both * (b.cost_usd / b.copies - a.cost_usd / a.copies)
            sooner_s += both * (b.start_s / b.copies - a.start_s / a.copies)
    return Gain(
        copies=sum(share.copies for share in ours.values()),
        floor_copies=sum(share.copies for share in theirs.values()),
        accelerators=sum(plan.placed.values()),
        floor_accelerators=sum(floor.placed.values()),
        more_copies=more,
        fewer_copies=fewer,
        cost_usd=plan.cost_usd,
        floor_cost_usd=floor.cost_usd,
        saved_usd=saved_usd,
        sooner_s=sooner_s,
    )


def _shares(problem: Problem, plan: Plan) -> dict[str, _Share]:
    where = Geography(problem)
    pools = {pool.name: pool for pool in problem.pools}
    jobs = {job.id: job for job in problem.jobs}
    shares: dict[str, _Share] = defaultdict(_Share)
    for item in plan.assignments:
        job, pool, share = jobs[item.job], pools[item.pool], shares[item.job]
        pool = pool_of(pool, item)
        share.copies += item.count
        share.cost_usd += item.count * cost_terms(where, job, pool).total_usd
        share.start_s += item.count * where.start_s(job, pool)
    return shares
