"""Move copies to cheaper places that have room left after all: what was placed before others knew
nothing of the room that these would leave."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from broker.decide.case import Case, Counts
from broker.decide.finish import Candidate, demands
from broker.decide.greedy import Floor
from broker.decide.nodes import LevelNodes
from broker.decide.options import Booleans, Floats, Integers

_LEAST_USD = 1e-6
"""What a move must save."""


_MARGIN = 0.1
"""Part of its cost that copies of a plan to stay near must save by moving."""


@dataclass(frozen=True, slots=True)
class Near:
    """A plan to stay near: `kept` are its copies by option, of which at most `most_moved` may go,
    those that have gone already among them."""

    kept: Counts
    most_moved: int

    def left(self, counts: Counts) -> int:
        """How many more may go."""
        return max(0, self.most_moved - int(np.maximum(self.kept - counts, 0).sum()))


def settled(case: Case, plan: Candidate, gain: Floats, near: Near | None = None) -> Counts:
    """Copies per option after all moves that gain, where most is to be gained first. `gain` is per
    option. Only among pools counted by levels; no class has fewer copies placed, unless those cost
    more in whole nodes than they are worth."""
    floor = Floor(case)
    if not floor.load(plan.counts, plan.packings, demands(case, plan.counts)):
        return plan.counts
    return _Settling(case, floor, gain).run(near)


class _Settling:
    def __init__(self, case: Case, floor: Floor, gain: Floats) -> None:
        self._case = case
        self._floor = floor
        self._gain = gain
        self._node_usd = case.problem.objective.fragmentation_usd_per_node
        counted = [isinstance(nodes, LevelNodes) for nodes in floor.nodes]
        self._counted: Booleans = np.array(counted, dtype=np.bool_)[case.options.pool_index]
        self._whole = {
            pool: nodes.whole_nodes() for pool, nodes in enumerate(floor.nodes) if nodes is not None
        }

    def run(self, near: Near | None) -> Counts:
        floor = self._floor
        placed = np.flatnonzero((floor.counts > 0) & self._counted)
        if len(placed):
            could_gain = self._could_gain(placed)
            least = np.full(len(placed), _LEAST_USD)
            if near is not None:
                cost = self._case.options.cost_usd[placed] * floor.counts[placed]
                least += np.where(near.kept[placed] > 0, _MARGIN * cost, 0.0)
            worth = np.flatnonzero(could_gain > least)
            order = placed[worth[np.argsort(-could_gain[worth], kind="stable")]]
            left = math.inf if near is None else near.left(floor.counts)
            for option in order.tolist():
                kept = 0 if near is None else min(int(near.kept[option]), int(floor.counts[option]))
                if kept <= left:
                    self._move(option)
                    left -= max(0, kept - int(floor.counts[option]))
        return floor.counts

    def _could_gain(self, placed: Integers) -> Floats:
        """USD, were the best place of each class that has room for one copy large enough for all
        the copies of an option."""
        case, options = self._case, self._case.options
        classes = np.unique(options.class_index[placed])
        length = options.first[classes + 1] - options.first[classes]
        starts = np.cumsum(length) - length
        at = np.arange(int(length.sum())) + np.repeat(options.first[classes] - starts, length)
        facts = case.facts
        replicas = np.array(facts.replicas, dtype=np.int64)
        cpus: Floats = np.array(facts.cpus, dtype=np.float64) * replicas
        memory: Floats = np.array(facts.memory_gib, dtype=np.float64) * replicas
        # Quotas are not looked at yet: what moves leaves its own.
        needs = (replicas, np.zeros_like(replicas), cpus, memory)
        fits = self._floor.may_fit(at, np.repeat(classes, length), needs) & self._counted[at]
        best = np.zeros(len(case.classes))
        best[classes] = np.maximum.reduceat(np.where(fits, self._gain[at], -np.inf), starts)
        more: Floats = best[options.class_index[placed]] - self._gain[placed]
        return more * self._floor.counts[placed]

    def _move(self, option: int) -> None:
        """Move the copies of an option as far as that gains."""
        floor, k = self._floor, int(self._case.options.class_index[option])
        first = int(self._case.options.first[k])
        # Of one class the options stand by cost.
        better = np.arange(first, option)[self._counted[first:option]]
        better = better[floor.fits(k, self._case.options.pool_index[better])]
        if not len(better):
            return
        copies = int(floor.counts[option])
        before = floor.counts[first : option + 1].copy()
        floor.take_back(k, option, copies)
        left = copies - floor.fill(k, copies, better)
        if left:
            floor.place(k, option, left)
        moved = floor.counts[first : option + 1] - before
        opened = self._opened(first + np.flatnonzero(moved))
        usd = float(moved @ self._gain[first : option + 1])
        usd -= self._node_usd * sum(now - self._whole[pool] for pool, now in opened.items())
        if usd > _LEAST_USD:
            self._whole.update(opened)
            return
        for index in np.flatnonzero(moved > 0).tolist():
            floor.take_back(k, first + index, int(moved[index]))
        floor.place(k, option, copies - int(floor.counts[option]))

    def _opened(self, options: Integers) -> dict[int, int]:
        """Whole nodes given to smaller replicas in the pools of some options."""
        pools = self._case.options.pool_index[options].tolist()
        found = ((pool, self._floor.nodes[pool]) for pool in pools)
        return {pool: nodes.whole_nodes() for pool, nodes in found if nodes is not None}
