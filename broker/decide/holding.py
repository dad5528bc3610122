"""A plan while parts of it are re-decided: its copies, what they take of every row, what is left of
each class, and where the plan loses against its bound."""

from __future__ import annotations

import numpy as np

from broker.decide.case import Counts
from broker.decide.options import Booleans, Floats, Integers
from broker.decide.relaxation import Relaxation
from broker.decide.shapes import Counting


class Holding:
    """`used` is what the copies take of each row of the relaxation, whole nodes opened for smaller
    replicas apart; `left` the copies of each class not placed."""

    def __init__(self, rows: Relaxation, counts: Counts) -> None:
        case = rows.case
        self.rows = rows
        self.case = case
        self.counts = counts.copy()
        self.used: Floats = np.zeros(rows.rows)
        self.left: Integers = np.array(case.facts.count, dtype=np.int64)
        pools = case.options.pool_index
        self._by_pool = np.argsort(pools, kind="stable")
        self._pool_start = np.searchsorted(
            pools[self._by_pool], np.arange(len(case.problem.pools) + 1)
        )
        self.counted: Booleans = np.array(
            [shape is not None and shape.counting is Counting.LEVELS for shape in case.shapes],
            dtype=np.bool_,
        )
        options = counts.nonzero()[0]
        self._note(options, counts[options])

    def in_pools(self, pools: Integers) -> Integers:
        """All options in some pools."""
        start = self._pool_start
        parts = [self._by_pool[start[p] : start[p + 1]] for p in pools.tolist()]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

    def change(self, options: Integers, counts: Integers) -> None:
        """Set the copies of some options."""
        self._note(options, counts - self.counts[options])
        self.counts[options] = counts

    def _note(self, options: Integers, more: Integers) -> None:
        entries = self.rows.entries(options)
        times = np.repeat(more, np.diff(entries.start)).astype(np.float64)
        np.add.at(self.used, entries.row, entries.value * times)
        np.subtract.at(self.left, self.case.options.class_index[options], more)

    def losses(self, gain: Floats, prices: Floats, worth: Floats) -> tuple[Floats, Floats]:
        """USD by which each class, and each pool, falls short of what the prices say it could
        give: nothing lost anywhere would be the optimum."""
        case, options = self.case, self.case.options
        classes = options.class_index
        best = np.zeros(len(case.classes))
        np.maximum.at(best, classes, worth)
        placed = self.counts.nonzero()[0]
        k = classes[placed]
        lost = self.left * best
        np.add.at(lost, k, self.counts[placed] * (best[k] - worth[placed]))
        rows = self.rows
        padded = np.append(prices * rows.high, 0.0)
        value = padded[rows.whole_row] + padded[rows.cpus_row] + padded[rows.memory_row]
        value += padded[rows.level_row].sum(axis=1)
        taken = np.zeros(len(value))
        paid = self.counts[placed] * (gain[placed] - worth[placed])
        np.add.at(taken, options.pool_index[placed], paid)
        return lost, value - taken
