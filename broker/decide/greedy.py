"""The floors: greedy plans that are always feasible and always there, held outside every solver.

Class after class in some order, each to its cheapest pools first, as far as nodes, cpus, memory and
quotas last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from broker.decide.case import Case, Counts
from broker.decide.nodes import LevelNodes, PackedNodes, nodes_of
from broker.decide.options import Booleans, Integers
from broker.decide.packing import Packing
from broker.decide.terms import SLACK

_SQUEEZES = 64
"""Most copies of one option that are made to fit by packing a pool anew."""
_PLENTY = 2**62


class Floor:
    """A plan that grows: what is placed, and what is left of nodes, totals and quotas."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.counts: Counts = np.zeros(len(case.options), dtype=np.int64)
        self.nodes = [None if shape is None else nodes_of(shape) for shape in case.shapes]
        pools = case.problem.pools
        self._cpus = np.array([_with_slack(pool.free_cpus) for pool in pools])
        self._memory = np.array([_with_slack(pool.free_memory_gib) for pool in pools])
        self._quota_left = list(case.quotas.limit)
        # One more at the end is found by the index -1: no quota.
        self._quota_room = np.array([*case.quotas.limit, _PLENTY], dtype=np.int64)
        self._class_quota = case.quotas.of_class.tolist()
        self._placed_first = frozenset(case.weighty_classes())
        self._reward_usd = case.reward_usd.tolist()
        self._node_usd = case.problem.objective.fragmentation_usd_per_node
        self._tenants = [item.job.tenant for item in case.classes]
        self._clusters = [pool.cluster for pool in pools]
        self._used: dict[tuple[str, str | None], int] = {}
        self._sizes = sorted(set(case.facts.size))
        slots = {size: slot for slot, size in enumerate(self._sizes)}
        self._slot = [slots[size] for size in case.facts.size]
        self._open = np.zeros((len(slots), len(pools)), dtype=np.int64)
        for pool in range(len(pools)):
            self._refresh(pool)

    def fill(self, k: int, wanted: int, options: Integers | None = None) -> int:
        """Place up to `wanted` copies of a class over some of its options in their order, or over
        all of them, the cheapest first; returns how many were."""
        case = self.case
        quota = self._class_quota[k]
        if quota >= 0 and self._quota_left[quota] < case.facts.gang[k]:
            return 0
        if options is None:
            first, last = int(case.options.first[k]), int(case.options.first[k + 1])
            fits = self._fits(k, case.options.pool_index[first:last])
            found = np.flatnonzero(fits) + first
        else:
            found = options[self._fits(k, case.options.pool_index[options])]
        if len(found) > 2:
            found = found[self._quota_room[case.quotas.of_option[found]] >= case.facts.gang[k]]
        left = wanted
        for option in found.tolist():
            if left <= 0:
                break
            left -= self.place(option, left)
        return wanted - left

    def _fits(self, k: int, pools: Integers) -> Booleans:
        """Which of some pools may have nodes, cpus and memory left for a copy of a class."""
        facts = self.case.facts
        fits: Booleans = self._open[self._slot[k]][pools] >= facts.replicas[k]
        if facts.cpus[k]:
            fits &= self._cpus[pools] >= facts.cpus[k] * facts.replicas[k]
        if facts.memory_gib[k]:
            fits &= self._memory[pools] >= facts.memory_gib[k] * facts.replicas[k]
        return fits

    def room(self, option: int, wanted: int) -> int:
        """How many copies of an option, at most `wanted`, pass quotas and pool totals."""
        case, facts = self.case, self.case.facts
        k, p = int(case.options.class_index[option]), int(case.options.pool_index[option])
        room = min(wanted, int(case.options.most[option]))
        for quota in (self._class_quota[k], int(case.quotas.of_option[option])):
            if quota >= 0:
                room = min(room, self._quota_left[quota] // facts.gang[k])
        for left, need in (
            (float(self._cpus[p]), facts.cpus[k] * facts.replicas[k]),
            (float(self._memory[p]), facts.memory_gib[k] * facts.replicas[k]),
        ):
            if need * room > left:
                room = int(left // need)
        return max(0, room)

    def place(self, option: int, wanted: int) -> int:
        """Place up to `wanted` copies of an option; returns how many were."""
        case = self.case
        k, p = int(case.options.class_index[option]), int(case.options.pool_index[option])
        replicas, kind = case.facts.replicas[k], int(case.kind[option])
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
        replicas, kind = case.facts.replicas[k], int(case.kind[option])
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
        k = int(self.case.options.class_index[option])
        if k in self._placed_first:
            return True
        gain = copies * (self._reward_usd[k] - float(self.case.options.cost_usd[option]))
        return bool(gain > opened * self._node_usd)

    def _take(self, option: int, copies: int) -> None:
        if copies == 0:
            return
        case, facts = self.case, self.case.facts
        k, p = int(case.options.class_index[option]), int(case.options.pool_index[option])
        self.counts[option] += copies
        self._cpus[p] -= copies * facts.replicas[k] * facts.cpus[k]
        self._memory[p] -= copies * facts.replicas[k] * facts.memory_gib[k]
        accelerators = copies * facts.gang[k]
        for quota in (self._class_quota[k], int(case.quotas.of_option[option])):
            if quota >= 0:
                self._quota_left[quota] -= accelerators
                self._quota_room[quota] = self._quota_left[quota]
        tenant = self._tenants[k]
        for key in ((tenant, None), (tenant, self._clusters[p])):
            self._used[key] = self._used.get(key, 0) + accelerators
        self._refresh(p)

    def _refresh(self, pool: int) -> None:
        """Note how many replicas of each size a pool can still take at most."""
        nodes, shape = self.nodes[pool], self.case.shapes[pool]
        if nodes is None or shape is None:
            return
        if isinstance(nodes, LevelNodes):
            free = nodes.capacities()
            self._open[:, pool] = [min(free.get(size, 0), _PLENTY) for size in self._sizes]
        else:
            self._open[:, pool] = _PLENTY

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
        return float(self._cpus[pool])

    def memory_left(self, pool: int) -> float:
        """GiB left of a pool's total; infinite without a limit."""
        return float(self._memory[pool])

    def packings(self) -> dict[int, Packing]:
        """What lies where, by pool index, in the pools not counted by levels."""
        return {
            pool: nodes.packing()
            for pool, nodes in enumerate(self.nodes)
            if isinstance(nodes, PackedNodes)
        }


def _with_slack(limit: float | None) -> float:
    return float("inf") if limit is None else limit * (1 + SLACK)


def greedy(case: Case, order: Iterable[int]) -> Floor:
    """Place classes in an order (class indices), each in its cheapest pools first."""
    floor = Floor(case)
    for k in order:
        floor.fill(k, case.facts.count[k])
    return floor


def floor_orders(case: Case) -> Iterator[list[int]]:
    """The orders of the floors: by priority then age, and by priority with big gangs first."""
    priority, gang = case.facts.priority, case.facts.gang
    classes = range(len(case.classes))
    yield sorted(classes, key=lambda k: (-priority[k], k))
    yield sorted(classes, key=lambda k: (-priority[k], -gang[k], k))
