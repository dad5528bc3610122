"""Copies that must not share a region: at most one of all jobs that name the same group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from broker.decide.constraints.by_cluster import one_copy, tally_by_region
from broker.decide.constraints.constraint import Beside, Change, Placed, SharedConstraint
from broker.decide.pairs import Floats, PairFigures, floats
from broker.decide.tallies import Tally
from broker.decide.violations import ViolationKind
from broker.model.problem import Problem
from federation.refusals import Refusal, RefusalCode


def _most(pairs: PairFigures) -> Floats:
    jobs = pairs.rows.jobs
    if not any(job.apart_region for job in jobs):
        return np.full(1, np.inf)
    return pairs.by_row(floats(np.inf if job.apart_region is None else job.members for job in jobs))


def _tallies(pairs: PairFigures) -> Iterator[Tally]:
    groups = [job.apart_region for job in pairs.rows.jobs]
    if any(groups):
        yield tally_by_region(pairs, APART_REGION.name, one_copy(pairs.rows.jobs, groups))


def _check(placed: Placed) -> Iterator[str]:
    regions = {cluster.name: cluster.region for cluster in placed.problem.clusters}
    used: dict[tuple[str, str], int] = defaultdict(int)
    for share in placed.shares:
        if share.job.apart_region is not None:
            key = share.job.apart_region, regions[share.pool.cluster]
            used[key] += share.copies
            if used[key] > 1:
                yield f"{share.text}: {used[key]} copies of {key[0]} in {key[1]}, at most 1"


def _refusals(beside: Beside) -> Iterator[Refusal]:
    group = beside.job.apart_region
    if group is not None and beside.left.get(APART_REGION.name, 1) < 1:
        yield kept_out_of_region(beside.pool.cluster, group)


def kept_out_of_region(cluster: str, group: str) -> Refusal:
    """Why no more copies of a group go to the region of a cluster."""
    has, advice = f"a copy of {group} in its region", f"take the job out of {group}"
    return Refusal(RefusalCode.REGION_TAKEN, cluster, available=has, advice=advice)


def _undo(problem: Problem, refusal: Refusal) -> tuple[Problem, Change] | None:
    job = problem.jobs[0]
    change = Change(refusal.code, f"take the job out of {job.apart_region}", "", "", 1.0)
    return replace(problem, jobs=(replace(job, apart_region=None),)), change


APART_REGION = SharedConstraint(
    "apart region",
    frozenset({RefusalCode.REGION_TAKEN}),
    ViolationKind.CAPACITY,
    _most,
    _check,
    _refusals,
    _undo,
    _tallies,
)
