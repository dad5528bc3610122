"""Bringing the input of a copy to where it runs."""

from __future__ import annotations

from broker.decide.objective.term import Term
from broker.decide.pairs import Floats, PairFigures
from broker.decide.terms import Geography
from broker.model.problem import Job, Pool


def _column(pairs: PairFigures) -> Floats:
    return pairs.egress_usd


def _amount(where: Geography, job: Job, pool: Pool) -> float:
    return where.egress_usd(job, pool)


EGRESS = Term("egress_usd", _column, _amount)
