"""A replica sits on one node, and a gang on the nodes of one pool: whether they are large enough
with nothing running on them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from broker.decide.constraints.constraint import (
    Beside,
    Change,
    Placed,
    SharedConstraint,
    needs,
    slots,
)
from broker.decide.pairs import Floats, PairFigures
from broker.decide.shapes import places
from broker.decide.violations import ViolationKind
from broker.model.problem import CPU, Job, NodeGroup, Pool, Problem
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
        needed, has = f"{slots(size, job)} on one node", f"{pool.accelerators_per_node}"
        return (Refusal(RefusalCode.REPLICA_TOO_LARGE, pool.name, needed, has),)
    if not pool.when_empty:
        return ()
    most = places(job, pool.when_empty)
    if most == 0:
        largest = max(group.free_accelerators for group in pool.when_empty)
        needed = f"{slots(size, job)}, {job.replica_cpus:g} cpus and "
        needed += f"{job.replica_memory_gib:g} GiB on one node"
        has = f"nodes of at most {_room(job, pool.when_empty) or slots(largest, job)}"
        return (Refusal(RefusalCode.REPLICA_TOO_LARGE, pool.name, needed, has),)
    if most < job.replicas:
        unit = slots(2, job).partition(" ")[2]  # of all replicas: many
        needed, has = f"{job.replicas} x {size} {unit}", f"{most} x {size} when empty"
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
    if largest >= job.accelerators_per_replica:
        return _leaner(problem, refusal)
    if largest < 1:
        return None
    if set(job.accelerators) == {CPU}:
        cpus = min(job.replica_cpus, largest)
        fewer = replace(job, accelerators_per_replica=largest, cpus_per_replica=cpus)
        before, after = f"{job.accelerators_per_replica}", f"{largest}"
        size = job.accelerators_per_replica / largest - 1
        return replace(problem, jobs=(fewer,)), Change(refusal.code, "cpus", before, after, size)
    replicas = -(-job.gang_accelerators // largest)
    smaller = replace(job, replicas=replicas, accelerators_per_replica=largest)
    before = f"{job.replicas} x {job.accelerators_per_replica}"
    what, after = "replicas x accelerators", f"{replicas} x {largest}"
    return replace(problem, jobs=(smaller,)), Change(refusal.code, what, before, after, replicas)


def _roomiest(job: Job, nodes: Iterable[NodeGroup]) -> NodeGroup | None:
    """Of the nodes with enough accelerators those with most memory, then most cpus."""
    enough = (n for n in nodes if n.count and n.free_accelerators >= job.accelerators_per_replica)
    return max(enough, key=lambda n: (_limit(n.free_memory_gib), _limit(n.free_cpus)), default=None)


def _limit(free: float | None) -> float:
    return math.inf if free is None else free


def _room(job: Job, nodes: Iterable[NodeGroup]) -> str:
    """What the roomiest of these nodes has beside its accelerators; empty for no limit."""
    found = _roomiest(job, nodes)
    if found is None:
        return ""
    cpus = [] if found.free_cpus is None else [f"{found.free_cpus:g} cpus"]
    memory = [] if found.free_memory_gib is None else [f"{found.free_memory_gib:.4g} GiB"]
    return " and ".join(cpus + memory)


def _leaner(problem: Problem, refusal: Refusal) -> tuple[Problem, Change] | None:
    """Less memory, or else fewer cpus: what the roomiest node has of them."""
    job, pool = problem.jobs[0], problem.pools[0]
    found = _roomiest(job, pool.when_empty or pool.nodes)
    if found is None:
        return None
    memory, cpus = math.floor((found.free_memory_gib or 0) * 100) / 100, found.free_cpus or 0
    if 0 < memory < job.replica_memory_gib:
        leaner = replace(job, memory_gib_per_replica=memory)
        what, before, after = "memory", f"{job.replica_memory_gib:g} GiB", f"{memory:g} GiB"
        size = job.replica_memory_gib / memory - 1
    elif 0 < cpus < job.replica_cpus:
        leaner = replace(job, cpus_per_replica=cpus)
        what, before, after = "cpus", f"{job.replica_cpus:g}", f"{cpus:g}"
        size = job.replica_cpus / cpus - 1
    else:
        return None
    return replace(problem, jobs=(leaner,)), Change(refusal.code, what, before, after, size)


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
