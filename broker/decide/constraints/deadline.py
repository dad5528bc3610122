"""A copy must end by the deadline: run time there, and all that passes before it starts."""

from __future__ import annotations

from dataclasses import replace

from broker.decide.constraints.constraint import Change, Grain, PairConstraint, raised, span
from broker.decide.pairs import Booleans, PairFigures
from broker.decide.terms import Geography, rounded_up, within
from broker.model.problem import Job, Pool, Problem
from federation.refusals import Refusal, RefusalCode


def _mask(pairs: PairFigures) -> Booleans:
    return pairs.hours + pairs.start_h <= pairs.limit("deadline_h")


def _end_h(where: Geography, job: Job, pool: Pool) -> float:
    """Hours until a copy ends; infinite where the job does not run at all."""
    speed = job.accelerators.get(pool.accelerator, 0.0)
    return job.runtime_h / speed + where.start_s(job, pool) / 3600 if speed else float("inf")


def _check(where: Geography, job: Job, pool: Pool) -> bool:
    return job.deadline_h is None or within(_end_h(where, job, pool), job.deadline_h)


def _refusal(where: Geography, job: Job, pool: Pool) -> Refusal:
    end_h = _end_h(where, job, pool)
    needed = f"an end within {span(job.deadline_h or 0.0)}"
    advice = f"deadline_h {rounded_up(end_h):g}"
    has = f"an end in {span(end_h)}"
    return Refusal(RefusalCode.DEADLINE_TOO_SOON, pool.name, needed, has, advice)


def _undo(problem: Problem, refusal: Refusal) -> tuple[Problem, Change]:
    job, pool = problem.jobs[0], problem.pools[0]
    needed = rounded_up(_end_h(Geography(problem), job, pool))
    change = raised(refusal, "deadline_h", job.deadline_h or 0.0, needed)
    return replace(problem, jobs=(replace(job, deadline_h=needed),)), change


DEADLINE = PairConstraint(
    "deadline",
    frozenset({RefusalCode.DEADLINE_TOO_SOON}),
    Grain.PAIR,
    _mask,
    _check,
    _refusal,
    _undo,
)
