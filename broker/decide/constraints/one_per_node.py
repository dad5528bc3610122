"""Replicas of a job on different nodes, where it says so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from broker.decide.constraints.constraint import Beside, Change, Placed, SharedConstraint
from broker.decide.pairs import Floats, PairFigures
from broker.decide.shapes import places
from broker.decide.violations import ViolationKind
from broker.model.problem import Job, Problem
from broker.model.topology import Topology
from federation.refusals import Refusal, RefusalCode


def _most(_pairs: PairFigures) -> Floats:
    # A node has one place for such replicas: that is seen to where places are counted.
    return np.full(1, np.inf)


def _check(placed: Placed) -> Iterator[str]:
    most = {s.job.id: _on_a_node(s.job) for s in placed.shares if s.job.one_per_node}
    for fill in placed.fills if most else ():
        for name, replicas in fill.contents:
            if replicas > most.get(name, replicas):
                where = f"node {fill.first_node} of {fill.pool}"
                yield f"{name}: {replicas} replicas on {where}, at most {most[name]}"


def _on_a_node(job: Job) -> int:
    """Replicas that may be on one node: those of one copy where they share it."""
    return job.replicas if job.topology is Topology.NODE else 1


def _refusals(beside: Beside) -> Iterator[Refusal]:
    job, pool = beside.job, beside.pool
    if not job.one_per_node or beside.too_large or beside.places >= job.replicas:
        return
    if places(replace(job, one_per_node=False), pool.nodes) >= job.replicas:
        yield nodes_taken(job, pool.name, beside.places)


def nodes_taken(job: Job, pool: str, free: int) -> Refusal:
    """Why a copy does not start where its replicas might, could they share nodes."""
    needed = "a node" if job.replicas == 1 else f"{job.replicas} nodes"
    needed += " without another of its replicas"
    return Refusal(RefusalCode.NODES_TAKEN, pool, needed, f"{free}", "let them share nodes")


def _undo(problem: Problem, refusal: Refusal) -> tuple[Problem, Change]:
    job = replace(problem.jobs[0], one_per_node=False)
    change = Change(refusal.code, "one_per_node", "true", "false", 1.0)
    return replace(problem, jobs=(job,)), change


ONE_PER_NODE = SharedConstraint(
    "one per node",
    frozenset({RefusalCode.NODES_TAKEN}),
    ViolationKind.PACKING,
    _most,
    _check,
    _refusals,
    _undo,
)
