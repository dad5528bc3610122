"""The time before a copy runs, paid for or not, at what an hour of waiting costs the job; in a
queue also one that does not say."""

from __future__ import annotations

from broker.decide.objective.term import Term
from broker.decide.pairs import Floats, PairFigures
from broker.decide.terms import Geography
from broker.model.problem import Job, Pool


def _column(pairs: PairFigures) -> Floats:
    return pairs.delay_usd_per_h * pairs.start_h


def _amount(where: Geography, job: Job, pool: Pool) -> float:
    hourly_usd = job.value_of_time_usd_per_h
    if not hourly_usd and pool.queue_of and pool.queue is not None:
        hourly_usd = job.gang_accelerators * pool.queue.waiting_usd_per_accelerator_h
    return hourly_usd * where.start_s(job, pool) / 3600 if hourly_usd else 0.0


START_DELAY = Term("start_delay_usd", _column, _amount)
