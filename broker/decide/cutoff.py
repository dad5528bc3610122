"""Tell that a greedy plan cannot become better than a known one before it is finished.

At any prices what a plan gains is at most the bound less what each of its classes falls short of
the most it could gain for itself (`Relaxation.class_bounds`). A floor that goes class by class
knows more and more of that: once it is more than what the known plan falls short of the bound, the
floor is beaten, whatever it does with the rest.
"""

from __future__ import annotations

import numpy as np

from broker.decide.columns import Priced
from broker.decide.finish import Candidate
from broker.decide.greedy import Floor
from broker.decide.relaxation import Relaxation
from broker.model.problem import Mode


class Cutoff:
    """Whether floors can still be better than `best`. In place_first the rows must hold what that
    one places. Classes must come by priority, from the highest."""

    def __init__(self, rows: Relaxation, best: Candidate, priced: Priced) -> None:
        case = rows.case
        self._case = case
        self._worth = priced.worth
        self._first = case.options.first.tolist()
        self._most_usd = priced.by_class.tolist()
        bound = rows.bound(priced.prices, priced.by_class)
        reached = best.objective_usd + case.lost_work_usd
        self._spare_usd = bound - reached + 1e-6 + 1e-9 * abs(bound)
        self._scalar = case.problem.objective.mode is Mode.SCALAR
        self._placed = best.placed
        self._weighty = frozenset(case.facts.priority[k] for k in case.weighty_classes())
        self._open = self._could_grow(best)
        self.start()

    def start(self) -> None:
        """Another floor begins."""
        self._lost_usd = 0.0
        self._tier: int | None = None
        self._tier_placed = 0
        self._ahead = False

    def beaten(self, floor: Floor, k: int) -> bool:
        """Whether the floor is, now that class k is done."""
        first, last = self._first[k], self._first[k + 1]
        counts = floor.counts[first:last]
        self._lost_usd += self._most_usd[k] - float(counts @ self._worth[first:last])
        if self._scalar:
            return self._lost_usd > self._spare_usd
        if self._enters(self._case.facts.priority[k]):
            return True
        self._tier_placed += int(counts.sum()) * self._case.facts.gang[k]
        # Money decides only among plans that place as much of every tier.
        below = any(priority <= self._case.facts.priority[k] for priority in self._open)
        return not (self._ahead or below) and self._lost_usd > self._spare_usd

    def _enters(self, priority: int) -> bool:
        """The floor has come to a class of some priority: whether it has placed less of the one
        before than the known plan, and never more of one above that."""
        if priority == self._tier:
            return False
        before, placed = self._tier, self._tier_placed
        self._tier, self._tier_placed = priority, 0
        if before is None or before not in self._weighty or self._ahead:
            return False
        self._ahead = placed > self._placed[before]
        return placed < self._placed[before]

    def _could_grow(self, best: Candidate) -> frozenset[int]:
        """Tiers of which more might be placed than the known plan does."""
        case = self._case
        most = np.zeros(len(case.classes))
        np.add.at(most, case.options.class_index, case.options.most.astype(np.float64))
        reach = np.minimum(most, np.array(case.facts.count, dtype=np.float64))
        asked = dict.fromkeys(self._weighty, 0.0)
        for copies, gang, tier in zip(
            reach.tolist(), case.facts.gang, case.facts.priority, strict=True
        ):
            if tier in asked:
                asked[tier] += copies * gang
        return frozenset(tier for tier, amount in asked.items() if amount > best.placed[tier])
