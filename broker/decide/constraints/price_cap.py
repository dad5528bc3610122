"""The price of a pool, on average over the run, must not be over what a job allows by accelerator
and hour."""

from __future__ import annotations

from dataclasses import replace

from broker.decide.constraints.constraint import Change, Grain, PairConstraint, raised
from broker.decide.pairs import Booleans, PairFigures
from broker.decide.terms import Geography, rounded_up, within
from broker.model.problem import Job, Pool, Problem
from federation.refusals import Refusal, RefusalCode


def _mask(pairs: PairFigures) -> Booleans:
    return pairs.price <= pairs.limit("max_price_usd_per_accelerator_hour")


def _check(where: Geography, job: Job, pool: Pool) -> bool:
    cap_usd = job.max_price_usd_per_accelerator_hour
    return cap_usd is None or within(where.price_usd(job, pool), cap_usd)


def _refusal(where: Geography, job: Job, pool: Pool) -> Refusal:
    price_usd = where.price_usd(job, pool)
    cap_usd = job.max_price_usd_per_accelerator_hour or 0.0
    needed = f"at most {cap_usd:g} USD per accelerator hour"
    advice = f"price cap {cap_usd:g} -> {rounded_up(price_usd):g}"
    return Refusal(RefusalCode.PRICE_CAP, pool.name, needed, f"{price_usd:.4g} USD", advice)


def _undo(problem: Problem, refusal: Refusal) -> tuple[Problem, Change]:
    job, pool = problem.jobs[0], problem.pools[0]
    needed = rounded_up(Geography(problem).price_usd(job, pool))
    given = job.max_price_usd_per_accelerator_hour or 0.0
    wider = replace(job, max_price_usd_per_accelerator_hour=needed)
    return replace(problem, jobs=(wider,)), raised(refusal, "price cap", given, needed)


PRICE_CAP = PairConstraint(
    "price cap",
    frozenset({RefusalCode.PRICE_CAP}),
    Grain.PAIR,
    _mask,
    _check,
    _refusal,
    _undo,
)
