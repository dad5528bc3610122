"""How many copies of one job may be in one cluster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from broker.decide.constraints.by_cluster import tally_by_cluster
from broker.decide.constraints.constraint import (
    Beside,
    Change,
    Placed,
    SharedConstraint,
    raised,
)
from broker.decide.pairs import Floats, PairFigures, floats, limit
from broker.decide.tallies import Tally
from broker.decide.violations import ViolationKind
from broker.model.problem import Job, Problem
from federation.refusals import Refusal, RefusalCode


def _most(pairs: PairFigures) -> Floats:
    most = floats(limit(job.spread_max_per_cluster) * job.members for job in pairs.rows.jobs)
    return pairs.by_row(most) if np.isfinite(most).any() else np.full(1, np.inf)


def _tallies(pairs: PairFigures) -> Iterator[Tally]:
    jobs = pairs.rows.jobs
    if any(job.spread_max_per_cluster is not None for job in jobs):
        # Jobs that spread are classes of their own; all forms of one count together.
        groups = [_group(job) for job in jobs]
        units = [job.units if job.form_of else 1 for job in jobs]
        limits = [
            (job.spread_max_per_cluster or 0) * n * (job.members if job.form_of else 1)
            for job, n in zip(jobs, units, strict=True)
        ]
        yield tally_by_cluster(pairs, SPREAD.name, (groups, limits, units))


def _group(job: Job) -> str | None:
    return None if job.spread_max_per_cluster is None else job.form_of or job.id


def _check(placed: Placed) -> Iterator[str]:
    used: dict[tuple[str, str], int] = defaultdict(int)
    for share in placed.shares:
        most = share.job.spread_max_per_cluster
        key = share.job.id, share.pool.cluster
        used[key] += share.copies
        if most is not None and used[key] > most:
            yield f"{share.job.id}: {used[key]} copies in {share.pool.cluster}, at most {most}"


def _refusals(beside: Beside) -> Iterator[Refusal]:
    most = beside.job.spread_max_per_cluster
    if most is not None and beside.left.get(SPREAD.name, most) < 1:
        yield spread_out(beside.pool.cluster, most)


def spread_out(cluster: str, most: int) -> Refusal:
    """Why no more copies of a job go to a cluster."""
    advice = f"spread_max_per_cluster {most} -> {most + 1}"
    has = f"{most} of its copies, as many as may"
    return Refusal(RefusalCode.SPREAD_LIMIT, cluster, available=has, advice=advice)


def _undo(problem: Problem, refusal: Refusal) -> tuple[Problem, Change]:
    job = problem.jobs[0]
    most = job.spread_max_per_cluster or 0
    change = raised(refusal, "spread_max_per_cluster", most, most + 1)
    return replace(problem, jobs=(replace(job, spread_max_per_cluster=most + 1),)), change


SPREAD = SharedConstraint(
    "spread",
    frozenset({RefusalCode.SPREAD_LIMIT}),
    ViolationKind.CAPACITY,
    _most,
    _check,
    _refusals,
    _undo,
    _tallies,
)
