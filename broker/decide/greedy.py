"""The floors: greedy plans that are always feasible and always there, held outside every solver.

Class after class in some order, each to its cheapest pools first, as far as nodes, cpus, memory and
quotas last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from broker.decide.case import Case, Counts
from broker.decide.packing import Packer, Packing, pack
from broker.decide.shapes import Counting, Shape
from broker.decide.terms import SLACK

_SQUEEZES = 64
"""Most copies of one option that are made to fit by packing a pool anew."""


class Nodes(Protocol):
    """The nodes of one pool while a plan grows."""

    def capacity(self, kind: int) -> int:
        """Replicas of a kind that can be added."""

    def add(self, kind: int, replicas: int) -> bool:
        """Add replicas of a kind; False, with nothing changed, when they do not fit."""

    def remove(self, kind: int, replicas: int) -> None:
        """Take back what the last `add` added."""

    def whole_nodes(self) -> int:
        """Whole nodes given to smaller replicas so far."""


class LevelNodes:
    """Nodes counted by levels: exact, without saying which node."""

    def __init__(self, shape: Shape) -> None:
        full = shape.node_size
        self._sizes = [kind[0] for kind in shape.kinds]
        self._full = full
        self._levels = [(size, shape.part_blocks(size), full // size) for size in shape.levels]
        self._used = dict.fromkeys(shape.levels, 0)
        self._whole_left = shape.whole

    def capacity(self, kind: int) -> int:
        """Replicas of a kind that can be added."""
        size = self._sizes[kind]
        if size == self._full:
            return self._whole_left - self.whole_nodes()
        return max(
            0,
            min(
                (parts + self._whole_left * per_node - self._used[level]) // (size // level)
                for level, parts, per_node in self._levels
                if level <= size
            ),
        )

    def add(self, kind: int, replicas: int) -> bool:
        """Add replicas of a kind; False, with nothing changed, when they do not fit."""
        if replicas > self.capacity(kind):
            return False
        self._count(kind, replicas)
        return True

    def remove(self, kind: int, replicas: int) -> None:
        """Take back what the last `add` added."""
        self._count(kind, -replicas)

    def whole_nodes(self) -> int:
        """Whole nodes given to smaller replicas so far: the least that would do."""
        needed = (
            -(-(self._used[level] - parts) // per_node) for level, parts, per_node in self._levels
        )
        return max(0, *needed, 0)

    def _count(self, kind: int, replicas: int) -> None:
        size = self._sizes[kind]
        if size == self._full:
            self._whole_left -= replicas
            return
        for level in self._used:
            if level <= size:
                self._used[level] += replicas * (size // level)


class PackedNodes:
    """Nodes filled one by one; packs anew when a replica does not fit beside what lies there."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._packer = Packer(shape)
        self._before = self._packer.runs
        self._demand = [0] * len(shape.kinds)

    def capacity(self, kind: int) -> int:
        """Replicas of a kind that can be added without moving others."""
        return self._packer.capacity(kind)

    def add(self, kind: int, replicas: int) -> bool:
        """Add replicas of a kind; False, with nothing changed, when they are not made to fit."""
        before = list(self._packer.runs)
        self._demand[kind] += replicas
        if not self._packer.add(kind, replicas):
            anew = pack(self._shape, self._demand)
            if anew is None:
                self._demand[kind] -= replicas
                return False
            self._packer.runs = list(anew.runs)
        self._before = before
        return True

    def remove(self, kind: int, replicas: int) -> None:
        """Take back what the last `add` added."""
        self._demand[kind] -= replicas
        self._packer.runs = self._before

    def whole_nodes(self) -> int:
        """Whole nodes given to smaller replicas so far."""
        return self._packer.whole_nodes()

    def start(self, packing: Packing, demand: Sequence[int]) -> None:
        """Start from a packing of a demand."""
        self._packer.runs = list(packing.runs)
        self._demand = list(demand)

    def packing(self) -> Packing:
        """What lies where."""
        return self._packer.packing(least=False)


def nodes_of(shape: Shape) -> LevelNodes | PackedNodes:
    """The free nodes of a pool, nothing placed."""
    return LevelNodes(shape) if shape.counting is Counting.LEVELS else PackedNodes(shape)


class Floor:
    """A plan that grows: what is placed, and what is left of nodes, totals and quotas."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.counts: Counts = np.zeros(len(case.options), dtype=np.int64)
        self.nodes = [None if shape is None else nodes_of(shape) for shape in case.shapes]
        pools = case.problem.pools
        self._cpus = [_with_slack(pool.free_cpus) for pool in pools]
        self._memory = [_with_slack(pool.free_memory_gib) for pool in pools]
        self._quota_left = [quota.limit for quota in case.quotas]
        self._placed_first = frozenset(case.weighty_classes())
        self._used: dict[tuple[str, str | None], int] = {}

    def room(self, option: int, wanted: int) -> int:
        """How many copies of an option, at most `wanted`, pass quotas and pool totals."""
        case = self.case
        k, p = int(case.options.class_index[option]), int(case.options.pool_index[option])
        job = case.classes[k].job
        room = min(wanted, int(case.options.most[option]))
        for quota in case.quotas_of.get(option, ()):
            room = min(room, self._quota_left[quota] // case.gang[k])
        for left, need in (
            (self._cpus[p], job.replica_cpus * job.replicas),
            (self._memory[p], job.replica_memory_gib * job.replicas),
        ):
            if need * room > left:
                room = int(left // need)
        return max(0, room)

    def place(self, option: int, wanted: int) -> int:
        """Place up to `wanted` copies of an option; returns how many were."""
        case = self.case
        k, p = int(case.options.class_index[option]), int(case.options.pool_index[option])
        replicas, kind = case.classes[k].job.replicas, int(case.kind[option])
        nodes = self.nodes[p]
        room = self.room(option, wanted)
        if nodes is None or room == 0:
            return 0
        copies = min(room, nodes.capacity(kind) // replicas)
        opened = nodes.whole_nodes()
        if copies and not nodes.add(kind, copies * replicas):
            copies = 0
        if copies and not self._worth(option, copies, nodes.whole_nodes() - opened):
            nodes.remove(kind, copies * replicas)
            return 0
        self._take(option, copies)
        if copies < room and isinstance(nodes, PackedNodes):
            copies += self._squeeze(option, nodes, room - copies)
        return copies

    def _squeeze(self, option: int, nodes: PackedNodes, wanted: int) -> int:
        """Place more copies by packing the pool anew, one by one while it works."""
        case = self.case
        k = int(case.options.class_index[option])
        replicas, kind = case.classes[k].job.replicas, int(case.kind[option])
        copies = 0
        opened = nodes.whole_nodes()
        while copies < min(wanted, _SQUEEZES) and nodes.add(kind, replicas):
            if not self._worth(option, 1, nodes.whole_nodes() - opened):
                nodes.remove(kind, replicas)
                break
            opened = nodes.whole_nodes()
            copies += 1
        self._take(option, copies)
        return copies

    def _worth(self, option: int, copies: int, opened: int) -> bool:
        """Whether copies pay; in place_first placing always does, unless it weighs nothing."""
        case = self.case
        k = int(case.options.class_index[option])
        if k in self._placed_first:
            return True
        gain = copies * float(case.reward_usd[k] - case.options.cost_usd[option])
        return gain > opened * case.problem.objective.fragmentation_usd_per_node

    def _take(self, option: int, copies: int) -> None:
        case = self.case
        k, p = int(case.options.class_index[option]), int(case.options.pool_index[option])
        job = case.classes[k].job
        self.counts[option] += copies
        self._cpus[p] -= copies * job.replicas * job.replica_cpus
        self._memory[p] -= copies * job.replicas * job.replica_memory_gib
        for quota in case.quotas_of.get(option, ()):
            self._quota_left[quota] -= copies * case.gang[k]
        for cluster in (None, case.problem.pools[p].cluster):
            key = (job.tenant, cluster)
            self._used[key] = self._used.get(key, 0) + copies * case.gang[k]

    def load(
        self, counts: Counts, known: Mapping[int, Packing], needed: Mapping[int, Sequence[int]]
    ) -> bool:
        """Start from copies placed before, on an empty floor. `needed` are their replicas per kind
        by pool index, `known` packings of pools not counted by levels. False, and the floor is of
        no use, when the nodes do not hold them."""
        for pool, demand in needed.items():
            nodes = self.nodes[pool]
            if isinstance(nodes, PackedNodes) and pool in known:
                nodes.start(known[pool], demand)
            elif nodes is None or not all(nodes.add(k, n) for k, n in enumerate(demand) if n):
                return False
        for option in counts.nonzero()[0].tolist():
            self._take(option, int(counts[option]))
        return True

    def accelerators_used(self, tenant: str, cluster: str | None) -> int:
        """Placed accelerators of a tenant, in one cluster or (None) in all."""
        return self._used.get((tenant, cluster), 0)

    def cpus_left(self, pool: int) -> float:
        """cpus left of a pool's total; infinite without a limit."""
        return self._cpus[pool]

    def memory_left(self, pool: int) -> float:
        """GiB left of a pool's total; infinite without a limit."""
        return self._memory[pool]

    def packings(self) -> dict[int, Packing]:
        """What lies where, by pool index, in the pools not counted by levels."""
        return {
            pool: nodes.packing()
            for pool, nodes in enumerate(self.nodes)
            if isinstance(nodes, PackedNodes)
        }


def _with_slack(limit: float | None) -> float:
    return float("inf") if limit is None else limit * (1 + SLACK)


def greedy(case: Case, order: Sequence[int]) -> Floor:
    """Place classes in an order (class indices), each in its cheapest pools first."""
    floor = Floor(case)
    first = case.options.first.tolist()
    for k in order:
        left = case.classes[k].count
        for option in range(first[k], first[k + 1]):
            if left == 0:
                break
            left -= floor.place(option, left)
    return floor


def floor_orders(case: Case) -> Iterator[list[int]]:
    """The orders of the floors: by priority then age, and by priority with big gangs first."""
    classes = range(len(case.classes))
    yield sorted(classes, key=lambda k: (-case.classes[k].job.priority, k))
    yield sorted(classes, key=lambda k: (-case.classes[k].job.priority, -case.gang[k], k))
