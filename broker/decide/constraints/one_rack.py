"""All replicas of a copy in one rack of a pool, where the job says so or pays for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from broker.decide.constraints.constraint import Beside, Change, Placed, Share, SharedConstraint
from broker.decide.pairs import Floats, PairFigures
from broker.decide.shapes import places
from broker.decide.violations import ViolationKind
from broker.model.problem import Pool, Problem
from broker.model.topology import Topology
from federation.refusals import Refusal, RefusalCode


def _most(_pairs: PairFigures) -> Floats:
    # A rack is a pool by now: that a gang fits there is seen to by its nodes.
    return np.full(1, np.inf)


def _check(placed: Placed) -> Iterator[str]:
    pools = {pool.name: pool for pool in placed.problem.pools}
    claimed: dict[tuple[str, str, str], int] = defaultdict(int)
    for share in placed.shares:
        if (share.level or share.job.topology) is Topology.RACK:
            yield from _of_share(share, pools)
        for part in share.parts:
            claimed[share.job.id, part.pool, part.rack] += share.copies * part.replicas
    found: dict[tuple[str, str, str], int] = defaultdict(int)
    jobs = {name for name, _, _ in claimed}
    for fill in placed.fills if jobs else ():
        contents = [(name, n) for name, n in fill.contents if name in jobs]
        for name, n in contents:
            for rack, nodes in _racks(pools[fill.pool], fill.first_node, fill.nodes):
                found[name, fill.pool, rack] += n * nodes
    for (name, pool, rack), replicas in claimed.items():
        if rack and found[name, pool, rack] < replicas:
            has = found[name, pool, rack]
            yield f"{name} in {pool}: {has} replicas in {rack}, not {replicas}"


def _of_share(share: Share, pools: dict[str, Pool]) -> Iterator[str]:
    """Whether the replicas of a copy that is said to be in one rack are."""
    if share.job.replicas == 1:
        return
    racks = {
        (pools[part.pool].cluster, part.rack or pools[part.pool].one_rack) for part in share.parts
    }
    if not share.parts:
        racks = {(share.pool.cluster, share.pool.one_rack)}
    if len(racks) > 1 or not all(rack for _, rack in racks):
        yield f"{share.text}: its replicas are not in one rack"


def _racks(pool: Pool, first: int, nodes: int) -> Iterator[tuple[str, int]]:
    """The racks of a run of nodes, and how many of them are in each."""
    start = 0
    for group in pool.nodes:
        inside = min(first + nodes, start + group.count) - max(first, start)
        if inside > 0:
            yield pool.rack(group), inside
        start += group.count


def _refusals(beside: Beside) -> Iterator[Refusal]:
    job, pool = beside.job, beside.pool
    if job.topology is not Topology.RACK or beside.places >= job.replicas or not pool.part_of:
        return
    if places(job, pool.around) >= job.replicas:
        needed = f"{job.replicas} x {job.accelerators_per_replica} in one rack"
        has = f"{beside.places} of them in {pool.domain}, the rest in other racks"
        yield Refusal(RefusalCode.RACK_TOO_SMALL, pool.part_of, needed, has, "topology cluster")


def _undo(problem: Problem, refusal: Refusal) -> tuple[Problem, Change]:
    job = replace(problem.jobs[0], topology=Topology.CLUSTER)
    return replace(problem, jobs=(job,)), Change(refusal.code, "topology", "rack", "cluster", 1.0)


ONE_RACK = SharedConstraint(
    "one rack",
    frozenset({RefusalCode.RACK_TOO_SMALL}),
    ViolationKind.PACKING,
    _most,
    _check,
    _refusals,
    _undo,
)
