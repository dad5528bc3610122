"""The time before a copy runs, paid for or not, at what an hour of waiting costs the job."""

from __future__ import annotations

from broker.decide.objective.term import Term
from broker.decide.pairs import Floats, PairFigures
from broker.decide.terms import Geography
from broker.model.problem import Job, Pool


def _column(pairs: PairFigures) -> Floats:
    return pairs.of_class("value_of_time_usd_per_h") * pairs.start_h


def _amount(where: Geography, job: Job, pool: Pool) -> float:
    return job.value_of_time_usd_per_h * where.start_s(job, pool) / 3600


START_DELAY = Term("start_delay_usd", _column, _amount)
