"""The terms of the cost of one copy, one module each, and the one list of them. Fragmentation is
charged by pool, not by copy: it is in `finish`."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from broker.decide.objective.cold_start import COLD_START
from broker.decide.objective.compute import COMPUTE
from broker.decide.objective.egress import EGRESS
from broker.decide.objective.latency import LATENCY
from broker.decide.objective.lost_work import LOST_WORK
from broker.decide.objective.migration import MIGRATION
from broker.decide.objective.preemption import PREEMPTION
from broker.decide.objective.start_delay import START_DELAY
from broker.decide.objective.term import Term
from broker.decide.objective.topology import TOPOLOGY
from broker.decide.terms import Geography
from broker.model.problem import Job, Pool

TERMS: tuple[Term, ...] = (
    COMPUTE,
    COLD_START,
    EGRESS,
    LATENCY,
    START_DELAY,
    MIGRATION,
    LOST_WORK,
    PREEMPTION,
    TOPOLOGY,
)


@dataclass(frozen=True, slots=True)
class CostTerms:
    """The cost of one copy in USD, fragmentation apart."""

    compute_usd: float
    cold_start_usd: float
    egress_usd: float
    latency_usd: float
    start_delay_usd: float
    migration_usd: float
    lost_work_usd: float
    preemption_usd: float
    topology_usd: float = 0.0

    @property
    def total_usd(self) -> float:
        """The sum of the terms."""
        return math.fsum(getattr(self, field.name) for field in fields(self))


def cost_terms(where: Geography, job: Job, pool: Pool) -> CostTerms:
    """The terms for a pair. Raises KeyError when the job does not run on the pool's model."""
    return CostTerms(**{term.name: term.amount(where, job, pool) for term in TERMS})
