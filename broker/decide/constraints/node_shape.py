"""A replica sits on one node, and a gang on the nodes of one pool: whether they are large enough
with nothing running on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from broker.decide.constraints.constraint import Beside, Change, Placed, SharedConstraint, needs
from broker.decide.pairs import Floats, PairFigures
from broker.decide.shapes import places
from broker.decide.violations import ViolationKind
from broker.model.problem import Job, Pool, Problem
from federation.refusals import Refusal, RefusalCode


def _most(pairs: PairFigures) -> Floats:
    size = pairs.rows.column("accelerators_per_replica")
    if size.max(initial=0) <= pairs.pools.node_size.min(initial=np.inf):
        return np.full(1, np.inf)
    small_enough = pairs.by_row(size) <= pairs.pools.node_size[pairs.pool]
    return np.where(small_enough, np.inf, 0.0)


def _check(placed: Placed) -> Iterator[str]:
    for share in placed.shares:
        size = share.job.accelerators_per_replica
        node = share.pool.accelerators_per_node
        if size > node:
            yield f"{share.text}: {size} accelerators on a node of {node}"


def too_large(job: Job, pool: Pool) -> tuple[Refusal, ...]:
    """Why the pool would be too small with nothing running at all; empty where it would not."""
    size = job.accelerators_per_replica
    if size > pool.accelerators_per_node:
        needed, has = f"{size} accelerators on one node", f"{pool.accelerators_per_node}"
        return (Refusal(RefusalCode.REPLICA_TOO_LARGE, pool.name, needed, has),)
    if not pool.when_empty:
        return ()
    most = places(job, pool.when_empty)
    if most == 0:
        largest = max(group.free_accelerators for group in pool.when_empty)
        needed = f"{size} accelerators, {job.replica_cpus:g} cpus and "
        needed += f"{job.replica_memory_gib:g} GiB on one node"
        has = f"nodes of at most {largest} accelerators"
        return (Refusal(RefusalCode.REPLICA_TOO_LARGE, pool.name, needed, has),)
    if most < job.replicas:
        needed, has = f"{job.replicas} x {size} accelerators", f"{most} x {size} when empty"
        needed += " on nodes of their own" if job.one_per_node else ""
        return (Refusal(RefusalCode.GANG_TOO_LARGE, pool.name, needed, has),)
    return ()


def _refusals(beside: Beside) -> Iterator[Refusal]:
    yield from beside.too_large


def _undo(problem: Problem, refusal: Refusal) -> tuple[Problem, Change] | None:
    if refusal.code is RefusalCode.GANG_TOO_LARGE:
        return _smaller_gang(problem, refusal)
    job, pool = problem.jobs[0], problem.pools[0]
    nodes = pool.when_empty or pool.nodes
    largest = max((group.free_accelerators for group in nodes if group.count), default=0)
    if largest < 1 or largest >= job.accelerators_per_replica:
        return None
    replicas = -(-job.gang_accelerators // largest)
    smaller = replace(job, replicas=replicas, accelerators_per_replica=largest)
    before = f"{job.replicas} x {job.accelerators_per_replica}"
    what, after = "replicas x accelerators", f"{replicas} x {largest}"
    return replace(problem, jobs=(smaller,)), Change(refusal.code, what, before, after, replicas)


def _smaller_gang(problem: Problem, refusal: Refusal) -> tuple[Problem, Change] | None:
    job, pool = problem.jobs[0], problem.pools[0]
    most = places(job, pool.when_empty or pool.nodes)
    if not 1 <= most < job.replicas:
        return None
    change = Change(refusal.code, "replicas", f"{job.replicas}", f"{most}", job.replicas - most)
    return replace(problem, jobs=(replace(job, replicas=most),)), change


NODE_SHAPE = SharedConstraint(
    "node shape",
    frozenset({RefusalCode.REPLICA_TOO_LARGE, RefusalCode.GANG_TOO_LARGE}),
    ViolationKind.PACKING,
    _most,
    _check,
    _refusals,
    _undo,
    same_for=needs,
)
