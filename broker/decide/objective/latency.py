"""The round trip to a job's users, at what a millisecond costs it."""

from __future__ import annotations

from broker.decide.objective.term import Term
from broker.decide.pairs import Floats, PairFigures
from broker.decide.terms import Geography
from broker.model.problem import Job, Pool


def _column(pairs: PairFigures) -> Floats:
    return pairs.of_class("latency_usd_per_ms") * pairs.rtt_ms


def _amount(where: Geography, job: Job, pool: Pool) -> float:
    if not job.latency_usd_per_ms:
        return 0.0
    return job.latency_usd_per_ms * where.rtt_ms(job, pool)


LATENCY = Term("latency_usd", _column, _amount)
