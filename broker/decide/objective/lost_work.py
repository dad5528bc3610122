"""The work that a running copy loses when it goes elsewhere."""

from __future__ import annotations

from broker.decide.objective.term import Term, moved
from broker.decide.pairs import Floats, PairFigures
from broker.decide.terms import Geography
from broker.model.problem import Job, Pool


def _column(pairs: PairFigures) -> Floats:
    return pairs.if_moved("lost_work_usd")


def _amount(_where: Geography, job: Job, pool: Pool) -> float:
    return job.lost_work_usd if moved(job, pool) else 0.0


LOST_WORK = Term("lost_work_usd", _column, _amount)
