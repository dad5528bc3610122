"""The round trip from a job's users to the pool has an upper limit."""

from __future__ import annotations

from dataclasses import replace

from broker.decide.constraints.constraint import Change, Grain, PairConstraint, raised
from broker.decide.pairs import Booleans, PairFigures
from broker.decide.terms import Geography, rounded_up, within
from broker.model.problem import Job, Pool, Problem
from federation.refusals import Refusal, RefusalCode


def _mask(pairs: PairFigures) -> Booleans:
    return pairs.rtt_ms <= pairs.limit("max_rtt_ms")


def _check(where: Geography, job: Job, pool: Pool) -> bool:
    return job.max_rtt_ms is None or within(where.rtt_ms(job, pool), job.max_rtt_ms)


def _refusal(where: Geography, job: Job, pool: Pool) -> Refusal:
    rtt_ms = where.rtt_ms(job, pool)
    needed = f"at most {job.max_rtt_ms or 0.0:g} ms"
    advice = f"max_rtt_ms {rounded_up(rtt_ms):g}"
    code = RefusalCode.ROUND_TRIP_TOO_LONG
    return Refusal(code, pool.name, needed, f"{rtt_ms:.4g} ms", advice)


def _undo(problem: Problem, refusal: Refusal) -> tuple[Problem, Change]:
    job, pool = problem.jobs[0], problem.pools[0]
    needed = rounded_up(Geography(problem).rtt_ms(job, pool))
    change = raised(refusal, "max_rtt_ms", job.max_rtt_ms or 0.0, needed)
    return replace(problem, jobs=(replace(job, max_rtt_ms=needed),)), change


ROUND_TRIP = PairConstraint(
    "round trip",
    frozenset({RefusalCode.ROUND_TRIP_TOO_LONG}),
    Grain.SORT,
    _mask,
    _check,
    _refusal,
    _undo,
)
