"""The memory of each accelerator must be known to be enough."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from broker.decide.constraints.constraint import Change, Grain, PairConstraint, raised
from broker.decide.pairs import Booleans, PairFigures, floats
from broker.decide.terms import SLACK, Geography, within
from broker.model.problem import Job, Pool, Problem
from federation.refusals import Refusal, RefusalCode


def _mask(pairs: PairFigures) -> Booleans:
    needed_gib = pairs.rows.column("accelerator_memory_gib")
    if not needed_gib.any():
        return np.ones(1, dtype=np.bool_)
    has_gib = floats(pool.accelerator_memory_gib or 0.0 for pool in pairs.pools.pools)
    found: Booleans = pairs.by_row(needed_gib) <= has_gib[pairs.pool] * (1 + SLACK)
    return found


def _check(_where: Geography, job: Job, pool: Pool) -> bool:
    return within(job.accelerator_memory_gib, pool.accelerator_memory_gib or 0.0)


def _refusal(_where: Geography, job: Job, pool: Pool) -> Refusal:
    known = pool.accelerator_memory_gib
    needed = f"{job.accelerator_memory_gib:g} GiB on each accelerator"
    has = "memory that nobody has told" if known is None else f"{known:g} GiB"
    return Refusal(RefusalCode.ACCELERATOR_MEMORY, pool.name, needed, has)


def _undo(problem: Problem, refusal: Refusal) -> tuple[Problem, Change]:
    job, pool = problem.jobs[0], problem.pools[0]
    enough = pool.accelerator_memory_gib or 0.0
    what, before = "accelerator_memory_gib", job.accelerator_memory_gib
    change = replace(raised(refusal, what, before, enough), size=1 - enough / before)
    return replace(problem, jobs=(replace(job, accelerator_memory_gib=enough),)), change


ACCELERATOR_MEMORY = PairConstraint(
    "accelerator memory",
    frozenset({RefusalCode.ACCELERATOR_MEMORY}),
    Grain.PAIR,
    _mask,
    _check,
    _refusal,
    _undo,
)
