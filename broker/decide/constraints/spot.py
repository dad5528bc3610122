"""Spot pools take only jobs that allow spot."""

from __future__ import annotations

from dataclasses import replace

from broker.decide.constraints.constraint import Change, Grain, PairConstraint
from broker.decide.pairs import Booleans, PairFigures, truths
from broker.decide.terms import Geography
from broker.model.problem import Job, Pool, Problem
from federation.refusals import Refusal, RefusalCode


def _mask(pairs: PairFigures) -> Booleans:
    spot_ok = truths(job.spot_ok for job in pairs.rows.jobs)
    found: Booleans = pairs.by_row(spot_ok) | ~pairs.pools.spot[pairs.pool]
    return found


def _check(_where: Geography, job: Job, pool: Pool) -> bool:
    return job.spot_ok or not pool.spot


def _refusal(_where: Geography, _job: Job, pool: Pool) -> Refusal:
    return Refusal(RefusalCode.SPOT_NOT_ALLOWED, pool.name, "on-demand", "spot", "allow spot")


def _undo(problem: Problem, refusal: Refusal) -> tuple[Problem, Change]:
    job = replace(problem.jobs[0], spot_ok=True)
    return replace(problem, jobs=(job,)), Change(refusal.code, "allow spot", "", "", 0.0)


SPOT = PairConstraint(
    "spot",
    frozenset({RefusalCode.SPOT_NOT_ALLOWED}),
    Grain.SORT,
    _mask,
    _check,
    _refusal,
    _undo,
)
