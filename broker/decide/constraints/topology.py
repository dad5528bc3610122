"""All replicas of a copy on one node, where the job says so or pays for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from broker.decide.constraints.constraint import Beside, Change, Placed, SharedConstraint
from broker.decide.pairs import Floats, PairFigures
from broker.decide.same_node import as_asked, as_one
from broker.decide.shapes import places
from broker.decide.violations import ViolationKind
from broker.model.problem import Job, Problem
from broker.model.topology import Topology
from federation.refusals import Refusal, RefusalCode


def _most(_pairs: PairFigures) -> Floats:
    # A gang that shares a node is one replica by now: that it fits is seen to by its size.
    return np.full(1, np.inf)


def _check(placed: Placed) -> Iterator[str]:
    yield from placed.nodes.together
    gangs = {share.job.id: share.job.replicas for share in placed.shares if _asks(share.job)}
    for fill in placed.fills:
        for name, replicas in fill.contents:
            if replicas % gangs.get(name, 1):
                where = f"node {fill.first_node} of {fill.pool}"
                yield f"{name}: {replicas} replicas on {where}, {gangs[name]} belong together"
    for share in placed.shares:
        empty = share.pool.when_empty if share.pool.queue_of else ()
        if empty and _asks(share.job) and not places(as_one(share.job), empty):
            yield f"{share.text}: no node could hold it empty"


def _asks(job: Job) -> bool:
    return job.topology is Topology.NODE


def _refusals(beside: Beside) -> Iterator[Refusal]:
    job, pool = beside.job, beside.pool
    if job.together == 1 or places(job, pool.nodes):
        return
    asked = as_asked(job)
    if places(asked, pool.nodes) >= asked.replicas:
        needed = f"{asked.replicas} x {asked.accelerators_per_replica} on one node"
        has = "them on several nodes"
        yield Refusal(RefusalCode.TOPOLOGY, pool.name, needed, has, "topology cluster")


def _undo(problem: Problem, refusal: Refusal) -> tuple[Problem, Change]:
    job = replace(problem.jobs[0], topology=Topology.CLUSTER)
    return replace(problem, jobs=(job,)), Change(refusal.code, "topology", "node", "cluster", 1.0)


TOPOLOGY = SharedConstraint(
    "topology",
    frozenset({RefusalCode.TOPOLOGY}),
    ViolationKind.PACKING,
    _most,
    _check,
    _refusals,
    _undo,
)
