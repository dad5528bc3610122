"""All replicas of a copy in one rack, where the job says so: only where racks are known at all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from broker.decide.constraints.constraint import Change, Grain, PairConstraint
from broker.decide.pairs import Booleans, PairFigures
from broker.decide.terms import Geography
from broker.model.problem import Job, Pool, Problem
from broker.model.topology import Topology
from federation.refusals import Refusal, RefusalCode


def _mask(pairs: PairFigures) -> Booleans:
    jobs = pairs.rows.jobs
    if not any(job.topology is Topology.RACK for job in jobs):
        return np.ones(1, dtype=np.bool_)
    asks = np.array([job.topology is Topology.RACK and job.replicas > 1 for job in jobs])
    in_one = np.array([bool(pool.domain) for pool in pairs.pools.pools])
    found: Booleans = ~pairs.by_row(asks) | in_one[pairs.pool]
    return found


def _check(_where: Geography, job: Job, pool: Pool) -> bool:
    return job.topology is not Topology.RACK or job.replicas == 1 or any(pool.racks)


def _refusal(_where: Geography, _job: Job, pool: Pool) -> Refusal:
    needed, has = "all replicas in one rack", "nodes of which nobody said that they share one"
    return Refusal(RefusalCode.NO_RACK, pool.name, needed, has, "topology cluster")


def _undo(problem: Problem, refusal: Refusal) -> tuple[Problem, Change]:
    job = replace(problem.jobs[0], topology=Topology.CLUSTER)
    return replace(problem, jobs=(job,)), Change(refusal.code, "topology", "rack", "cluster", 1.0)


RACK = PairConstraint(
    "rack",
    frozenset({RefusalCode.NO_RACK}),
    Grain.PAIR,
    _mask,
    _check,
    _refusal,
    _undo,
)
