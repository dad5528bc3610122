"""The accelerator of a pool must be one that the job runs on."""

from __future__ import annotations

from dataclasses import replace

from broker.decide.constraints.constraint import Change, Grain, PairConstraint
from broker.decide.pairs import Booleans, PairFigures
from broker.decide.terms import Geography
from broker.model.problem import Job, Pool, Problem
from federation.refusals import Refusal, RefusalCode

_NONE_AT_ALL = "CPU"
"""What a pool of slots without accelerators is called (docs/planning-problem.md)."""


def _mask(pairs: PairFigures) -> Booleans:
    return pairs.speed > 0


def _check(_where: Geography, job: Job, pool: Pool) -> bool:
    return pool.accelerator in job.accelerators


def _refusal(_where: Geography, job: Job, pool: Pool) -> Refusal:
    wanted = " or ".join(sorted(job.accelerators)) or "no model at all"
    return Refusal(RefusalCode.WRONG_ACCELERATOR, pool.name, wanted, pool.accelerator)


def _undo(problem: Problem, refusal: Refusal) -> tuple[Problem, Change] | None:
    """A program for accelerators does not run without any, nor the other way round: between these
    there is no change that a person could make."""
    job, pool = problem.jobs[0], problem.pools[0]
    if (pool.accelerator == _NONE_AT_ALL) != (_NONE_AT_ALL in job.accelerators):
        return None
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
