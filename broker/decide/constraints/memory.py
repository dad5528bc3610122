"""The memory of a pool as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter

from broker.decide.constraints.constraint import Beside, Change, Placed, SharedConstraint, needs
from broker.decide.constraints.pool_total import lacking, over
from broker.decide.pairs import Floats, PairFigures, floats, times
from broker.decide.terms import rounded_up
from broker.decide.violations import ViolationKind
from broker.model.problem import Job, Problem
from federation.refusals import Refusal, RefusalCode


def _needed_gib(job: Job) -> float:
    return job.replica_memory_gib * job.replicas


def _most(pairs: PairFigures) -> Floats:
    needed = floats(map(_needed_gib, pairs.rows.jobs))
    return times(pairs.pools.memory_gib[pairs.pool], pairs.by_row(needed))


def _check(placed: Placed) -> Iterator[str]:
    each = attrgetter("replica_memory_gib")
    yield from over(placed, attrgetter("free_memory_gib"), each, "GiB of memory")


def _refusals(beside: Beside) -> Iterator[Refusal]:
    needed = _needed_gib(beside.job)
    yield from lacking(beside, RefusalCode.NO_MEMORY, needed, beside.memory_gib, "GiB")


def _undo(problem: Problem, refusal: Refusal) -> tuple[Problem, Change]:
    pool, needed = problem.pools[0], _needed_gib(problem.jobs[0])
    missing = needed - (pool.free_memory_gib or 0.0)
    what = f"{rounded_up(missing):g} more GiB of memory free in {pool.name}"
    change = Change(refusal.code, what, "", "", missing)
    return replace(problem, pools=(replace(pool, free_memory_gib=needed),)), change


MEMORY = SharedConstraint(
    "memory",
    frozenset({RefusalCode.NO_MEMORY}),
    ViolationKind.CAPACITY,
    _most,
    _check,
    _refusals,
    _undo,
    same_for=needs,
)
