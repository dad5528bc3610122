"""What a term of the cost of one copy consists of. Each is a module here; `broker.decide.objective`
lists them. The column is for all pairs at once, the amount scalar and computed on its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker.decide.pairs import Floats, PairFigures
from broker.decide.terms import Geography, stays
from broker.model.problem import Job, Pool


@dataclass(frozen=True, slots=True)
class Term:
    """USD of one copy, for pairs at once and for one. `amount` raises KeyError where the job does
    not run on the pool's model."""

    name: str
    column: Callable[[PairFigures], Floats]
    amount: Callable[[Geography, Job, Pool], float]


def rate_usd(where: Geography, job: Job, pool: Pool) -> float:
    """USD per hour of one copy."""
    return job.replicas * job.accelerators_per_replica * where.price_usd(job, pool)


def moved(job: Job, pool: Pool) -> bool:
    """Whether a copy that runs somewhere now would go elsewhere."""
    return job.current_pool is not None and not stays(job, pool)
