"""Accelerators that are paid for while the image starts."""

from __future__ import annotations

from broker.decide.objective.term import Term, rate_usd
from broker.decide.pairs import Floats, PairFigures
from broker.decide.terms import Geography
from broker.model.problem import Job, Pool


def _column(pairs: PairFigures) -> Floats:
    return pairs.rate_usd * pairs.cold_s / 3600


def _amount(where: Geography, job: Job, pool: Pool) -> float:
    cold_s = where.cold_start_s(job, pool)
    return rate_usd(where, job, pool) * cold_s / 3600 if cold_s else 0.0


COLD_START = Term("cold_start_usd", _column, _amount)
