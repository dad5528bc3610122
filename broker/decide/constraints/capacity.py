"""Every replica sits on a concrete node that holds it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from broker.decide.constraints.constraint import (
    Beside,
    Change,
    Placed,
    SharedConstraint,
    counted,
    needs,
    slots,
)
from broker.decide.pairs import Floats, PairFigures
from broker.decide.shapes import places
from broker.decide.violations import ViolationKind
from broker.model.problem import NodeGroup, Problem
from federation.refusals import Refusal, RefusalCode


def _most(pairs: PairFigures) -> Floats:
    rows = pairs.rows
    slots = rows.room.slots[pairs.by_row(rows.room.kind), pairs.pool]
    found: Floats = np.floor(slots / pairs.by_row(rows.column("replicas")))
    return found


def _check(placed: Placed) -> Iterator[str]:
    yield from placed.nodes.packing


def _refusals(beside: Beside) -> Iterator[Refusal]:
    job, size = beside.job, beside.job.accelerators_per_replica
    if beside.too_large or beside.places >= job.replicas:
        return
    missing = counted(job.replicas - beside.places, "more place")
    advice = f"{missing} of {slots(size, job)}"
    needed, has = f"{job.replicas} x {size} free", f"{beside.places} x {size}"
    yield Refusal(RefusalCode.NO_CAPACITY, beside.pool.name, needed, has, advice)


def _undo(problem: Problem, refusal: Refusal) -> tuple[Problem, Change] | None:
    job, pool = problem.jobs[0], problem.pools[0]
    missing = job.replicas - places(job, pool.nodes)
    if missing <= 0 or job.accelerators_per_replica > pool.accelerators_per_node:
        return None
    size = job.accelerators_per_replica
    cpus, memory = job.replica_cpus, job.replica_memory_gib
    nodes = (*pool.nodes, NodeGroup(missing, size, cpus, memory))
    what = f"{counted(missing, 'more free place')} of {size} {pool.accelerator} on one node"
    change = Change(refusal.code, what, "", "", float(missing * size))
    return replace(problem, pools=(replace(pool, nodes=nodes),)), change


CAPACITY = SharedConstraint(
    "capacity",
    frozenset({RefusalCode.NO_CAPACITY}),
    ViolationKind.PACKING,
    _most,
    _check,
    _refusals,
    _undo,
    same_for=needs,
)
