"""The accelerator of a pool must be one that the job runs on."""

from __future__ import annotations

from dataclasses import replace

from broker.decide.constraints.constraint import Change, Grain, PairConstraint
from broker.decide.pairs import Booleans, PairFigures
from broker.decide.terms import Geography
from broker.model.problem import Job, Pool, Problem
from federation.refusals import Refusal, RefusalCode


def _mask(pairs: PairFigures) -> Booleans:
    return pairs.speed > 0


def _check(_where: Geography, job: Job, pool: Pool) -> bool:
    return pool.accelerator in job.accelerators


def _refusal(_where: Geography, job: Job, pool: Pool) -> Refusal:
    wanted = " or ".join(sorted(job.accelerators)) or "no model at all"
    return Refusal(RefusalCode.WRONG_ACCELERATOR, pool.name, wanted, pool.accelerator)


def _undo(problem: Problem, refusal: Refusal) -> tuple[Problem, Change]:
    job, pool = problem.jobs[0], problem.pools[0]
    speeds = {**job.accelerators, pool.accelerator: min(job.accelerators.values(), default=1.0)}
    change = Change(refusal.code, f"allow accelerator {pool.accelerator}", "", "", 1.0)
    return replace(problem, jobs=(replace(job, accelerators=speeds),)), change


MODEL = PairConstraint(
    "model",
    frozenset({RefusalCode.WRONG_ACCELERATOR}),
    Grain.SORT,
    _mask,
    _check,
    _refusal,
    _undo,
)
