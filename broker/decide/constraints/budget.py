"""Run time and egress of a copy must not cost more than its budget."""

from __future__ import annotations

from dataclasses import replace

from broker.decide.constraints.constraint import Change, Grain, PairConstraint, raised
from broker.decide.pairs import Booleans, PairFigures
from broker.decide.terms import Geography, rounded_up, within
from broker.model.problem import Job, Pool, Problem
from federation.refusals import Refusal, RefusalCode


def _mask(pairs: PairFigures) -> Booleans:
    return pairs.compute_usd + pairs.egress_usd <= pairs.limit("budget_usd")


def _spending_usd(where: Geography, job: Job, pool: Pool) -> float:
    speed = job.accelerators.get(pool.accelerator, 0.0)
    if not speed:
        return float("inf")
    hours = job.runtime_h / speed
    rate_usd = job.gang_accelerators * where.price_usd(job, pool)
    return rate_usd * hours + where.egress_usd(job, pool)


def _check(where: Geography, job: Job, pool: Pool) -> bool:
    return job.budget_usd is None or within(_spending_usd(where, job, pool), job.budget_usd)


def _refusal(where: Geography, job: Job, pool: Pool) -> Refusal:
    spending_usd = _spending_usd(where, job, pool)
    needed = f"at most {job.budget_usd or 0.0:g} USD"
    advice = f"budget_usd {rounded_up(spending_usd):.10g}"
    return Refusal(RefusalCode.OVER_BUDGET, pool.name, needed, f"{spending_usd:.4g} USD", advice)


def _undo(problem: Problem, refusal: Refusal) -> tuple[Problem, Change]:
    job, pool = problem.jobs[0], problem.pools[0]
    needed = rounded_up(_spending_usd(Geography(problem), job, pool))
    change = raised(refusal, "budget_usd", job.budget_usd or 0.0, needed)
    return replace(problem, jobs=(replace(job, budget_usd=needed),)), change


BUDGET = PairConstraint(
    "budget",
    frozenset({RefusalCode.OVER_BUDGET}),
    Grain.PAIR,
    _mask,
    _check,
    _refusal,
    _undo,
)
