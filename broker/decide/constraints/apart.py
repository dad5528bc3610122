"""Copies that must not share a cluster: at most one of all jobs that name the same group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from broker.decide.constraints.by_cluster import one_copy, tally_by_cluster
from broker.decide.constraints.constraint import Beside, Change, Placed, SharedConstraint
from broker.decide.pairs import Floats, PairFigures, floats
from broker.decide.tallies import Tally
from broker.decide.violations import ViolationKind
from broker.model.problem import Problem
from federation.refusals import Refusal, RefusalCode


def _most(pairs: PairFigures) -> Floats:
    jobs = pairs.rows.jobs
    if not any(job.apart for job in jobs):
        return np.full(1, np.inf)
    return pairs.by_row(floats(np.inf if job.apart is None else job.members for job in jobs))


def _tallies(pairs: PairFigures) -> Iterator[Tally]:
    groups = [job.apart for job in pairs.rows.jobs]
    if any(groups):
        yield tally_by_cluster(pairs, APART.name, one_copy(pairs.rows.jobs, groups))


def _check(placed: Placed) -> Iterator[str]:
    used: dict[tuple[str, str], int] = defaultdict(int)
    for share in placed.shares:
        if share.job.apart is not None:
            key = share.job.apart, share.pool.cluster
            used[key] += share.copies
            if used[key] > 1:
                yield f"{share.text}: {used[key]} copies of {key[0]} in {key[1]}, at most 1"


def _refusals(beside: Beside) -> Iterator[Refusal]:
    if beside.job.apart is not None and beside.left.get(APART.name, 1) < 1:
        yield kept_apart(beside.pool.cluster, beside.job.apart)


def kept_apart(cluster: str, group: str) -> Refusal:
    """Why no more copies of a group go to a cluster."""
    has, advice = f"a copy of {group}", f"take the job out of {group}"
    return Refusal(RefusalCode.KEPT_APART, cluster, available=has, advice=advice)


def _undo(problem: Problem, refusal: Refusal) -> tuple[Problem, Change]:
    job = problem.jobs[0]
    change = Change(refusal.code, f"take the job out of {job.apart}", "", "", 1.0)
    return replace(problem, jobs=(replace(job, apart=None),)), change


APART = SharedConstraint(
    "apart",
    frozenset({RefusalCode.KEPT_APART}),
    ViolationKind.CAPACITY,
    _most,
    _check,
    _refusals,
    _undo,
    _tallies,
)
