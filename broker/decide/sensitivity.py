"""Whether the order of clusters by cost survives other weights. Pure.

Weights are what time and distance are worth, which somebody made up. Where half or twice as much
gives the same order, it does not matter much what exactly was made up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from broker.decide.classes import group_jobs
from broker.decide.constraints import refusals
from broker.decide.objective import cost_terms
from broker.decide.terms import Geography
from broker.model.problem import Job, Problem

WEIGHTS = ("value_of_time_usd_per_h", "latency_usd_per_ms")
FACTORS = (0.5, 2.0)
CLASSES_MAX = 200
"""Kinds of jobs that are looked at, the oldest first: each costs a look at every pool."""


@dataclass(frozen=True, slots=True)
class Shift:
    """One kind of job whose cheapest cluster is another under one weight times `factor`. `more_usd`
    is what the first choice of today costs more than that, with the weight changed."""

    job: str
    copies: int
    weight: str
    factor: float
    first: str
    then: str
    more_usd: float


@dataclass(frozen=True, slots=True)
class Trial:
    """One weight times one factor: kinds of jobs that have it, those whose first cluster is
    another, and those whose order differs anywhere."""

    weight: str
    factor: float
    classes: int
    first_differs: int
    order_differs: int
    shifts: tuple[Shift, ...]


def sensitivity(problem: Problem) -> tuple[Trial, ...]:
    """Every weight times every factor, one at a time; how full places are is not looked at."""
    where = Geography(problem)
    classes = group_jobs(problem.jobs)
    trials = []
    for weight in WEIGHTS:
        having = [item for item in classes if getattr(item.job, weight) > 0][:CLASSES_MAX]
        orders = [(item, _costs(where, problem, item.job)) for item in having]
        for factor in FACTORS:
            shifts, differs = [], 0
            for item, today in orders:
                scaled = replace(item.job, **{weight: getattr(item.job, weight) * factor})
                changed = _costs(where, problem, scaled)
                before, after = _order(today), _order(changed)
                differs += before != after
                if before and before[0] != after[0]:
                    more_usd = changed[before[0]] - changed[after[0]]
                    shifts.append(
                        Shift(
                            item.job.id, item.count, weight, factor, before[0], after[0], more_usd
                        )
                    )
            shifts.sort(key=lambda shift: -shift.more_usd)
            trials.append(
                Trial(weight, factor, len(orders), len(shifts), differs, tuple(shifts))
            )
    return tuple(trials)


def _costs(where: Geography, problem: Problem, job: Job) -> dict[str, float]:
    """USD of a copy in the cheapest pool of each cluster it may go to."""
    costs: dict[str, float] = {}
    for pool in problem.pools:
        if pool.accelerator in job.accelerators and not any(refusals(where, job, pool)):
            usd = cost_terms(where, job, pool).total_usd
            costs[pool.cluster] = min(usd, costs.get(pool.cluster, usd))
    return costs


def _order(costs: dict[str, float]) -> Sequence[str]:
    """Clusters, the cheapest first; equal ones by name."""
    return sorted(costs, key=lambda name: (round(costs[name], 9), name))
