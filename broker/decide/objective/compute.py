"""The run itself, at the price of the pool."""

from __future__ import annotations

from broker.decide.objective.term import Term, rate_usd
from broker.decide.pairs import Floats, PairFigures
from broker.decide.terms import Geography
from broker.model.problem import Job, Pool


def _column(pairs: PairFigures) -> Floats:
    return pairs.compute_usd


def _amount(where: Geography, job: Job, pool: Pool) -> float:
    return rate_usd(where, job, pool) * (job.runtime_h / job.accelerators[pool.accelerator])


COMPUTE = Term("compute_usd", _column, _amount)
