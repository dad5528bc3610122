"""Residency: the region of a pool must be one of those allowed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from broker.decide.constraints.constraint import Change, Grain, PairConstraint
from broker.decide.pairs import Booleans, PairFigures, integers
from broker.decide.terms import Geography
from broker.model.problem import Job, Pool, Problem
from federation.refusals import Refusal, RefusalCode


def _mask(pairs: PairFigures) -> Booleans:
    jobs = pairs.rows.jobs
    names = {name: i for i, name in enumerate(pairs.rows.problem.regions)}
    lists = {regions: i for i, regions in enumerate(dict.fromkeys(job.regions for job in jobs))}
    allowed = np.zeros((len(lists), len(names)), dtype=np.bool_)
    for regions, row in lists.items():
        where = slice(None) if regions is None else [names[name] for name in regions]
        allowed[row, where] = True
    of_job = integers(lists[job.regions] for job in jobs)
    found: Booleans = allowed[pairs.by_row(of_job), pairs.region]
    return found


def _check(where: Geography, job: Job, pool: Pool) -> bool:
    return job.regions is None or where.region(pool) in job.regions


def _refusal(where: Geography, job: Job, pool: Pool) -> Refusal:
    region = where.region(pool)
    wanted = " or ".join(job.regions or ()) or "no region at all"
    advice = f"allow {region}"
    return Refusal(RefusalCode.REGION_NOT_ALLOWED, pool.name, wanted, region, advice)


def _undo(problem: Problem, refusal: Refusal) -> tuple[Problem, Change]:
    job, pool, where = problem.jobs[0], problem.pools[0], Geography(problem)
    region = where.region(pool)
    change = Change(refusal.code, f"allow {region}", "", "", where.rtt_ms(job, pool))
    wider = replace(job, regions=(*(job.regions or ()), region))
    return replace(problem, jobs=(wider,)), change


REGION = PairConstraint(
    "region",
    frozenset({RefusalCode.REGION_NOT_ALLOWED}),
    Grain.SORT,
    _mask,
    _check,
    _refusal,
    _undo,
)
