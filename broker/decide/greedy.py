"""A plan that grows class by class, as far as nodes, cpus, memory and quotas last."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from broker.decide.bundles import Bundle
from broker.decide.case import Case, Counts
from broker.decide.nodes import PLENTY, LevelNodes, PackedNodes
from broker.decide.options import Booleans, Floats, Integers
from broker.decide.packing import Packing
from broker.decide.tallies import Running
from broker.decide.terms import SLACK

_AT_ONCE = 8
"""Options looked up together: most classes need no more."""
_SQUEEZES = 64
"""Most copies of one option that are made to fit by packing a pool anew."""


Needs = tuple[Integers, Integers, Floats, Floats]
"""By class, of one copy: replicas, accelerators, cpus, memory in GiB."""


class Floor:
    """A plan that grows: what is placed, and what is left of nodes, totals and quotas."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.counts: Counts = np.zeros(len(case.options), dtype=np.int64)
        self.nodes = [
            empty.fresh() if empty is not None else None if shape is None else PackedNodes(shape)
            for empty, shape in zip(case.empty, case.shapes, strict=True)
        ]
        pools = case.problem.pools
        # Lists for one pool at a time, arrays for many: both are kept.
        self._cpus = [_with_slack(pool.free_cpus) for pool in pools]
        self._memory = [_with_slack(pool.free_memory_gib) for pool in pools]
        self._cpus_of = np.array(self._cpus)
        self._memory_of = np.array(self._memory)
        self._quota_left = list(case.quotas.limit)
        # One more at the end is found by the index -1: no quota.
        self._quota_room = np.array([*case.quotas.limit, PLENTY], dtype=np.int64)
        self._class_quota = case.quotas.of_class.tolist()
        self._placed_first = frozenset(case.weighty_classes())
        self._reward_usd = case.reward_usd.tolist()
        self._node_usd = case.problem.objective.fragmentation_usd_per_node
        self._sizes = sorted(set(case.facts.size))
        slots = {size: slot for slot, size in enumerate(self._sizes)}
        self._slot = [slots[size] for size in case.facts.size]
        self._slot_of = np.array(self._slot, dtype=np.int64)
        self._open = case.room.copy()
        self.tallies = Running(case.tallies)
        self._bundle_of = case.bundles.of

    def fill(self, k: int, wanted: int, options: Integers | None = None) -> int:
        """Place up to `wanted` copies of a class over some of its options in their order, or over
        all of them, the cheapest first; returns how many were."""
        case = self.case
        if self._bundle_of and k in case.bundles.by_class:
            return self._fill_bundles(k, wanted, options)
        quota = self._class_quota[k]
        if quota >= 0 and self._quota_left[quota] < case.facts.gang[k]:
            return 0
        if options is None:
            first, last = int(case.options.first[k]), int(case.options.first[k + 1])
            fits = self.fits(k, case.options.pool_index[first:last])
            found = np.flatnonzero(fits) + first
        else:
            found = options[self.fits(k, case.options.pool_index[options])]
        if len(found) > 2:
            found = found[self._quota_room[case.quotas.of_option[found]] >= case.facts.gang[k]]
        left = wanted
        for start in range(0, len(found), _AT_ONCE):
            for place in self._columns(found[start : start + _AT_ONCE]):
                left -= self._place(k, left, *place)
                if left <= 0 or (quota >= 0 and self._quota_left[quota] < case.facts.gang[k]):
                    return wanted - left
        return wanted - left

    def _columns(self, found: Integers) -> Iterator[tuple[int, int, int, int, int, float]]:
        """What `_place` wants to know of some options."""
        case = self.case
        columns = (
            found,
            case.options.pool_index[found],
            case.kind[found],
            case.options.most[found],
            case.quotas.of_option[found],
            case.options.cost_usd[found],
        )
        return zip(*(column.tolist() for column in columns), strict=True)

    def fits(self, k: int, pools: Integers) -> Booleans:
        """Which of some pools may have nodes, cpus and memory left for a copy of a class."""
        facts = self.case.facts
        fits: Booleans = self._open[self._slot[k]][pools] >= facts.replicas[k]
        if facts.cpus[k]:
            fits &= self._cpus_of[pools] >= facts.cpus[k] * facts.replicas[k]
        if facts.memory_gib[k]:
            fits &= self._memory_of[pools] >= facts.memory_gib[k] * facts.replicas[k]
        return fits

    def may_fit(self, options: Integers, classes: Integers, needs: Needs) -> Booleans:
        """The same for many options of the given classes, quotas included. `needs` by class."""
        case = self.case
        pools = case.options.pool_index[options]
        replicas, gang, cpus, memory = (need[classes] for need in needs)
        fits: Booleans = self._open[self._slot_of[classes], pools] >= replicas
        fits &= self._cpus_of[pools] >= cpus
        fits &= self._memory_of[pools] >= memory
        fits &= self._quota_room[case.quotas.of_class[classes]] >= gang
        fits &= self._quota_room[case.quotas.of_option[options]] >= gang
        return fits

    def place(self, k: int, option: int, wanted: int) -> int:
        """Place up to `wanted` copies of an option of class k; returns how many were. Members of
        gangs go to other options as well, so that whole copies are placed."""
        if self._bundle_of and option in self._bundle_of:
            return self._place_members(k, self._bundle_of[option], wanted)
        case = self.case
        options = case.options
        return self._place(
            k,
            wanted,
            option,
            options.pool_index.item(option),
            case.kind.item(option),
            options.most.item(option),
            case.quotas.of_option.item(option),
            options.cost_usd.item(option),
        )

    def _fill_bundles(self, k: int, wanted: int, options: Integers | None) -> int:
        """Place up to `wanted` members of a class, copy by copy in the order of some options."""
        bundles, left = self.case.bundles, wanted
        some = bundles.by_class[k]
        if options is not None:
            some = tuple(dict.fromkeys(bundles.of[option] for option in options.tolist()))
        for bundle in some:
            left -= self._place_members(k, bundle, left)
        return wanted - left

    def _place_members(self, k: int, bundle: Bundle, wanted: int) -> int:
        """Place up to `wanted` members of gangs; what is no whole copy in the end goes again."""
        wanted -= wanted % bundle.size
        placed: list[tuple[int, int, Any]] = []
        left = wanted
        for option in bundle.options:
            nodes = self.nodes[self.case.options.pool_index.item(option)]
            if not left or nodes is None:
                continue
            mark: Any = nodes.mark()
            done = self._place_one(k, option, left)
            if done:
                placed.append((option, done, mark))
                left -= done
        surplus = (wanted - left) % bundle.size
        while surplus and placed:
            option, done, mark = placed.pop()
            self._give_back(k, option, done, mark)
            kept = self._place_one(k, option, max(done - surplus, 0))
            left, surplus = left + done - kept, surplus - (done - kept)
            if kept and surplus:  # packed anew, the nodes do not hold as many as before
                self._give_back(k, option, kept, mark)
                left, surplus = left + kept, surplus - kept
            surplus %= bundle.size
        return wanted - left

    def _give_back(self, k: int, option: int, copies: int, mark: Any) -> None:
        """Take away copies of an option, the nodes as they were when marked."""
        case = self.case
        p, local = case.options.pool_index.item(option), case.quotas.of_option.item(option)
        nodes = self.nodes[p]
        if nodes is not None:
            nodes.back_to(mark)
        self._take(k, p, option, -copies, local)

    def _place_one(self, k: int, option: int, wanted: int) -> int:
        (place,) = self._columns(np.array([option]))
        return self._place(k, wanted, *place)

    def _room(self, k: int, p: int, wanted: int, local: int) -> int:
        """How many copies of a class, at most `wanted`, quotas and totals of a pool allow."""
        facts = self.case.facts
        room = wanted
        for quota in (self._class_quota[k], local):
            if quota >= 0:
                room = min(room, self._quota_left[quota] // facts.gang[k])
        replicas = facts.replicas[k]
        need, left = facts.cpus[k] * replicas, self._cpus[p]
        if need * room > left:
            room = int(left // need)
        need, left = facts.memory_gib[k] * replicas, self._memory[p]
        if need * room > left:
            room = int(left // need)
        return max(0, room)

    def _place(  # noqa: PLR0913 - the columns of one option, looked up for many at once
        self, k: int, wanted: int, option: int, p: int, kind: int, most: int, local: int, usd: float
    ) -> int:
        nodes = self.nodes[p]
        room = self._room(k, p, min(wanted, most), local)
        if self.tallies:
            room = self.tallies.room(option, room)
        if nodes is None or room == 0:
            return 0
        replicas = self.case.facts.replicas[k]
        copies = min(room, nodes.capacity(kind) // replicas)
        if copies:
            opened = nodes.whole_nodes()
            if not nodes.add(kind, copies * replicas):
                copies = 0
            elif not self._worth(k, copies, usd, nodes.whole_nodes() - opened):
                nodes.remove(kind, copies * replicas)
                return 0
            else:
                self._take(k, p, option, copies, local)
        if copies < room and isinstance(nodes, PackedNodes):
            more = self._squeeze(k, nodes, kind, room - copies, usd)
            self._take(k, p, option, more, local)
            copies += more
        return copies

    def _squeeze(self, k: int, nodes: PackedNodes, kind: int, wanted: int, usd: float) -> int:
        """Place more copies by packing the pool anew, one by one while it works."""
        replicas = self.case.facts.replicas[k]
        copies = 0
        opened = nodes.whole_nodes()
        while copies < min(wanted, _SQUEEZES) and nodes.add(kind, replicas):
            if not self._worth(k, 1, usd, nodes.whole_nodes() - opened):
                nodes.remove(kind, replicas)
                break
            opened = nodes.whole_nodes()
            copies += 1
        return copies

    def _worth(self, k: int, copies: int, usd: float, opened: int) -> bool:
        """Whether copies pay; in place_first placing always does, unless it weighs nothing."""
        if k in self._placed_first:
            return True
        return bool(copies * (self._reward_usd[k] - usd) > opened * self._node_usd)

    def _take(self, k: int, p: int, option: int, copies: int, local: int) -> None:
        if copies == 0:
            return
        facts = self.case.facts
        self.counts[option] += copies
        if self.tallies:
            self.tallies.take(option, copies)
        replicas = copies * facts.replicas[k]
        cpus, memory_gib = facts.cpus[k], facts.memory_gib[k]
        if cpus:
            self._cpus_of[p] = self._cpus[p] = self._cpus[p] - replicas * cpus
        if memory_gib:
            self._memory_of[p] = self._memory[p] = self._memory[p] - replicas * memory_gib
        for quota in (self._class_quota[k], local):
            if quota >= 0:
                left = self._quota_left[quota] - copies * facts.gang[k]
                self._quota_left[quota] = self._quota_room[quota] = left
        nodes = self.nodes[p]
        self._open[:, p] = nodes.room(self._sizes) if isinstance(nodes, LevelNodes) else PLENTY

    def take_back(self, k: int, option: int, copies: int) -> None:
        """Take back copies of an option of class k, in a pool counted by levels."""
        case = self.case
        pool = int(case.options.pool_index[option])
        nodes = self.nodes[pool]
        assert isinstance(nodes, LevelNodes)
        nodes.remove(int(case.kind[option]), copies * case.facts.replicas[k])
        self._take(k, pool, option, -copies, int(case.quotas.of_option[option]))

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
            elif nodes is None or not nodes.add_all(demand):
                return False
        case, facts = self.case, self.case.facts
        used = counts.nonzero()[0]
        self.counts[used] += counts[used]
        self.tallies.load(used, counts[used])
        columns = (
            counts[used],
            case.options.class_index[used],
            case.options.pool_index[used],
            case.quotas.of_option[used],
        )
        for copies, k, p, local in zip(*(column.tolist() for column in columns), strict=True):
            replicas, accelerators = copies * facts.replicas[k], copies * facts.gang[k]
            self._cpus[p] -= replicas * facts.cpus[k]
            self._memory[p] -= replicas * facts.memory_gib[k]
            for quota in (self._class_quota[k], local):
                if quota >= 0:
                    self._quota_left[quota] -= accelerators
        for pool in needed:
            nodes = self.nodes[pool]
            room = nodes.room(self._sizes) if isinstance(nodes, LevelNodes) else PLENTY
            self._open[:, pool] = room
        self._cpus_of, self._memory_of = np.array(self._cpus), np.array(self._memory)
        self._quota_room[:-1] = self._quota_left
        return True

    def is_within(self) -> bool:
        """Whether totals, quotas and tallies hold what was loaded."""
        left = (self._cpus, self._memory, self._quota_left)
        return self.tallies.is_within() and all(min(figures, default=0) >= 0 for figures in left)

    def accelerators_used(self) -> dict[tuple[str, str | None], int]:
        """Placed accelerators by tenant and cluster, and over all clusters (None)."""
        case = self.case
        options = self.counts.nonzero()[0]
        used: dict[tuple[str, str | None], int] = defaultdict(int)
        columns = (case.options.class_index, case.options.pool_index, self.counts)
        for k, p, copies in zip(*(c[options].tolist() for c in columns), strict=True):
            tenant = case.classes[k].job.tenant
            for cluster in (None, case.problem.pools[p].cluster):
                used[tenant, cluster] += copies * case.facts.gang[k]
        return used

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
