"""A cluster that is closed to one job: its reason is the caller's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from broker.decide.constraints.constraint import Change, Grain, PairConstraint
from broker.decide.constraints.usable import ended
from broker.decide.pairs import Booleans, PairFigures
from broker.decide.terms import Geography
from broker.model.problem import Job, Pool, Problem
from federation.refusals import Refusal, RefusalCode


def _mask(pairs: PairFigures) -> Booleans:
    jobs, clusters = pairs.rows.jobs, pairs.rows.problem.clusters
    if not any(job.excluded for job in jobs):
        return np.ones((1,) * np.ndim(pairs.row), dtype=np.bool_)
    index = {cluster.name: i for i, cluster in enumerate(clusters)}
    open_to = np.ones((len(jobs), len(clusters)), dtype=np.bool_)
    for row, job in enumerate(jobs):
        open_to[row, [index[name] for name in job.excluded if name in index]] = False
    found: Booleans = open_to[pairs.row, pairs.cluster]
    return found


def _check(_where: Geography, job: Job, pool: Pool) -> bool:
    return pool.cluster not in job.excluded


def _refusal(_where: Geography, job: Job, pool: Pool) -> Refusal:
    return job.excluded.get(pool.cluster) or Refusal(RefusalCode.CLUSTER_NOT_ALLOWED, pool.cluster)


def _undo(problem: Problem, refusal: Refusal) -> tuple[Problem, Change]:
    job = problem.jobs[0]
    kept = {cluster: why for cluster, why in job.excluded.items() if why != refusal}
    return replace(problem, jobs=(replace(job, excluded=kept),)), ended(refusal)


EXCLUSION = PairConstraint("exclusion", frozenset(), Grain.POOL, _mask, _check, _refusal, _undo)
