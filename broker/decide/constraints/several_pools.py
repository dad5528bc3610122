"""A copy stays in one pool; over several pools of one cluster, with the same accelerator, it lies
only where the job says so. All of it, or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from broker.decide.constraints.constraint import Beside, Change, Placed, SharedConstraint
from broker.decide.pairs import Floats, PairFigures, integers
from broker.decide.tallies import Tally
from broker.decide.violations import ViolationKind
from broker.model.problem import Problem
from broker.model.topology import Topology
from federation.refusals import Refusal, RefusalCode


def _most(pairs: PairFigures) -> Floats:
    if not pairs.rows.by_member:
        return np.full(1, np.inf)
    names = [pool.name for pool in pairs.pools.pools]
    may = np.array(
        [[job.among is None or name in job.among for name in names] for job in pairs.rows.jobs]
    )
    return np.where(may[pairs.row, pairs.pool], np.inf, 0.0)


def _tallies(pairs: PairFigures) -> Iterator[Tally]:
    """The copies of all forms of a job, told in its replicas."""
    jobs = pairs.rows.jobs
    forms = list(dict.fromkeys(job.form_of for job in jobs if job.form_of))
    if forms:
        index = {name: i for i, name in enumerate(forms)}
        most = {c.job.form_of: c.count * c.job.units for c in pairs.rows.classes}
        row = pairs.by_row(integers(index.get(job.form_of, -1) for job in jobs))
        units = pairs.by_row(integers(job.units for job in jobs))
        yield Tally(SEVERAL_POOLS.name, tuple(most[name] for name in forms), row, units)


def _check(placed: Placed) -> Iterator[str]:
    pools = {pool.name: pool for pool in placed.problem.pools}
    for share in placed.shares:
        job, parts = share.job, share.parts
        if not parts:
            continue
        if sum(part.replicas for part in parts) != job.replicas or parts[0].pool != share.pool.name:
            yield f"{share.text}: not all of its {job.replicas} replicas have a place"
        if any(part.replicas < 1 for part in parts) or share.pool.queue_of:
            yield f"{share.text}: its parts are none"
        different = {part.pool for part in parts}
        if len(different) > 1 and not job.several_pools:
            yield f"{share.text}: it lies in {len(different)} pools"
        if len({(pools[name].cluster, pools[name].accelerator) for name in different}) > 1:
            yield f"{share.text}: its pools are of several clusters or accelerators"
        if job.topology is Topology.NODE and len(parts) > 1:
            yield f"{share.text}: it does not share a node"


def _refusals(beside: Beside) -> Iterator[Refusal]:
    job, pool = beside.job, beside.pool
    split = job.several_pools or job.topology is not Topology.CLUSTER
    if split or not 0 < beside.places < job.replicas or pool.queue_of:
        return
    if beside.places + beside.elsewhere >= job.replicas:
        needed = f"{job.replicas} x {job.accelerators_per_replica} in one pool"
        has = f"{beside.places} of them, and {beside.elsewhere} in other pools of {pool.cluster}"
        name = pool.part_of or pool.name
        yield Refusal(RefusalCode.POOL_TOO_SMALL, name, needed, has, "several_pools true")


def _undo(problem: Problem, refusal: Refusal) -> tuple[Problem, Change]:
    pool, *others = problem.pools
    opened = tuple(
        replace(other, unusable=None) if other.unusable == ONLY_TOGETHER else other
        for other in others
    )
    job = replace(problem.jobs[0], several_pools=True)
    change = Change(refusal.code, "several_pools", "false", "true", 1.0)
    return replace(problem, jobs=(job,), pools=(pool, *opened)), change


ONLY_TOGETHER = Refusal(RefusalCode.POOL_TOO_SMALL, "", "another pool", "", "several_pools true")
"""Why a pool takes nothing where one pool alone is looked at, and a gang might use both."""

SEVERAL_POOLS = SharedConstraint(
    "several pools",
    frozenset({RefusalCode.POOL_TOO_SMALL}),
    ViolationKind.PACKING,
    _most,
    _check,
    _refusals,
    _undo,
    _tallies,
)
