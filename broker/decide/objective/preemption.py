"""What is lost on average when a copy is thrown out: half the time from one checkpoint to the next,
paid for and waited for once more."""

from __future__ import annotations

import numpy as np

from broker.decide.objective.term import Term, rate_usd
from broker.decide.pairs import Floats, PairFigures, floats
from broker.decide.terms import Geography
from broker.model.problem import Job, Pool


def _column(pairs: PairFigures) -> Floats:
    risk = floats(pool.preemptions_per_h for pool in pairs.pools.pools)
    if not risk.any():
        return np.zeros(1)
    between_h = pairs.by_row(
        floats(np.inf if job.checkpoint_h is None else job.checkpoint_h for job in pairs.rows.jobs)
    )
    lost_h = np.minimum(between_h, pairs.hours) / 2
    hourly_usd = pairs.rate_usd + pairs.of_class("value_of_time_usd_per_h")
    found: Floats = risk[pairs.pool] * pairs.hours * lost_h * hourly_usd
    return np.where(risk[pairs.pool] > 0, found, 0.0)


def _amount(where: Geography, job: Job, pool: Pool) -> float:
    if not pool.preemptions_per_h:
        return 0.0
    hours = job.runtime_h / job.accelerators[pool.accelerator]
    between_h = hours if job.checkpoint_h is None else min(job.checkpoint_h, hours)
    hourly_usd = rate_usd(where, job, pool) + job.value_of_time_usd_per_h
    return pool.preemptions_per_h * hours * between_h / 2 * hourly_usd


PREEMPTION = Term("preemption_usd", _column, _amount)
