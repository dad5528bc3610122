"""The cpus of a pool as a whole."""

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


def _needed(job: Job) -> float:
    return job.replica_cpus * job.replicas


def _most(pairs: PairFigures) -> Floats:
    needed = floats(map(_needed, pairs.rows.jobs))
    return times(pairs.pools.cpus[pairs.pool], pairs.by_row(needed))


def _check(placed: Placed) -> Iterator[str]:
    yield from over(placed, attrgetter("free_cpus"), attrgetter("replica_cpus"), "cpus")


def _refusals(beside: Beside) -> Iterator[Refusal]:
    yield from lacking(beside, RefusalCode.NO_CPUS, _needed(beside.job), beside.cpus, "cpus")


def _undo(problem: Problem, refusal: Refusal) -> tuple[Problem, Change]:
    pool, needed = problem.pools[0], _needed(problem.jobs[0])
    missing = needed - (pool.free_cpus or 0.0)
    what = f"{rounded_up(missing):g} more cpus free in {pool.name}"
    change = Change(refusal.code, what, "", "", missing)
    return replace(problem, pools=(replace(pool, free_cpus=needed),)), change


CPUS = SharedConstraint(
    "cpus",
    frozenset({RefusalCode.NO_CPUS}),
    ViolationKind.CAPACITY,
    _most,
    _check,
    _refusals,
    _undo,
    same_for=needs,
)
