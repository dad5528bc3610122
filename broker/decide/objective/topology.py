"""What a copy pays for how near to each other its replicas are, where it says so."""

from __future__ import annotations

import numpy as np

from broker.decide.objective.term import Term
from broker.decide.pairs import Floats, PairFigures
from broker.decide.terms import Geography
from broker.model.problem import Job, Pool


def _column(pairs: PairFigures) -> Floats:
    if not any(job.level_usd for job in pairs.rows.jobs):
        return np.zeros(1)
    return pairs.of_class("level_usd")


def _amount(_where: Geography, job: Job, _pool: Pool) -> float:
    return job.level_usd


TOPOLOGY = Term("topology_usd", _column, _amount)
