"""The linear relaxation of a case as rows, and what prices on these rows say: what every option is
worth beside them, and a bound on the objective that is valid for any prices.

Rows: copies of each class; per pool whole nodes, blocks of each size below a node, cpus, memory;
quotas; tallies; and, in place_first, what each tier must reach. Columns: one per option, and per
pool the whole nodes opened for smaller replicas. Where sizes do not divide each other the rows are
looser than the problem.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from broker.decide.case import Case, Facts
from broker.decide.options import Floats, Integers
from broker.decide.shapes import Shape
from broker.decide.terms import SLACK

_NONE = -1


@dataclass(frozen=True, slots=True)
class Entries:
    """Columns of a matrix, one after the other: those of column j are `start[j]:start[j + 1]`."""

    start: Integers
    row: Integers
    value: Floats


class Relaxation:
    """The rows of a case. The first rows are those of the classes. Row numbers of pools and quotas
    are -1 where there is none."""

    def __init__(self, case: Case, tiers: Sequence[int] = ()) -> None:
        """`tiers` are priorities that get a row of placed accelerators, at least 0 until `hold`."""
        facts = case.facts
        self.case = case
        self.size = np.array(facts.size, dtype=np.float64)
        self.replicas = np.array(facts.replicas, dtype=np.float64)
        self.gang = np.array(facts.gang, dtype=np.float64)
        self.cpus = np.array(facts.cpus, dtype=np.float64)
        self.memory = np.array(facts.memory_gib, dtype=np.float64)
        self.count = np.array(facts.count, dtype=np.float64)
        self.sizes = sorted(set(facts.size))
        self._need, self._first_of_need = _needs(facts)
        slots = {size: slot for slot, size in enumerate(self.sizes)}
        self.slot = np.array([slots[size] for size in facts.size], dtype=np.int64)
        self.limit: list[float] = list(map(float, facts.count))
        pools = case.problem.pools
        self.whole_row = np.full(len(pools), _NONE, dtype=np.int64)
        self.level_row = np.full((len(pools), len(self.sizes)), _NONE, dtype=np.int64)
        self.cpus_row = np.full(len(pools), _NONE, dtype=np.int64)
        self.memory_row = np.full(len(pools), _NONE, dtype=np.int64)
        self.node_size = np.array([p.accelerators_per_node for p in pools], dtype=np.int64)
        self.opened: list[int] = []
        self.opened_most: list[float] = []
        for pool, shape in enumerate(case.shapes):
            if shape is not None:
                self._pool_rows(pool, shape, slots)
        self.quota_row = self._rows(case.quotas.limit)
        self._tally_rows = [self._rows(tally.limit) for tally in case.tallies]
        self.tiers = {priority: self._row(0.0) for priority in tiers}
        of_class = [self.tiers.get(priority, _NONE) for priority in facts.priority]
        self.tier_row = np.array(of_class, dtype=np.int64)
        self.rows = len(self.limit)
        self.high = np.array(self.limit)

    def hold(self, placed: Mapping[int, int]) -> None:
        """Every tier with a row must reach the accelerators placed of it."""
        for priority, row in self.tiers.items():
            self.high[row] = -float(placed[priority])

    # Rows ---------------------------------------------------------------------------------------

    def _row(self, limit: float) -> int:
        self.limit.append(float(limit))
        return len(self.limit) - 1

    def _rows(self, limits: Sequence[float]) -> Integers:
        return np.array([self._row(limit) for limit in limits], dtype=np.int64)

    def _pool_rows(self, pool: int, shape: Shape, slots: dict[int, int]) -> None:
        full, whole = shape.node_size, shape.whole
        sizes = {kind[0] for kind in shape.kinds}
        small = sorted(size for size in sizes if size < full)
        if whole and small:
            self.opened.append(pool)
            self.opened_most.append(float(whole))
        if full in sizes or (whole and small):
            self.whole_row[pool] = self._row(whole)
        for size in small:
            self.level_row[pool, slots[size]] = self._row(shape.part_blocks(size))
        nodes = shape.pool.nodes
        cpus = _total(shape.pool.free_cpus, [(g.count, g.free_cpus) for g in nodes])
        memory = _total(shape.pool.free_memory_gib, [(g.count, g.free_memory_gib) for g in nodes])
        if cpus is not None:
            self.cpus_row[pool] = self._row(cpus * (1 + SLACK))
        if memory is not None:
            self.memory_row[pool] = self._row(memory * (1 + SLACK))

    # Columns ------------------------------------------------------------------------------------

    def entries(self, options: Integers) -> Entries:
        """The columns of some options."""
        case = self.case
        k, p = case.options.class_index[options], case.options.pool_index[options]
        replicas, gang, size = self.replicas[k], self.gang[k], self.size[k]
        is_whole = size == self.node_size[p]
        parts: list[tuple[Integers, Floats]] = [
            (k, np.ones(len(k))),
            (np.where(is_whole, self.whole_row[p], _NONE), replicas),
        ]
        for slot, level in enumerate(self.sizes):
            takes = ~is_whole & (size >= level)
            row = np.where(takes, self.level_row[p, slot], _NONE)
            parts.append((row, replicas * (size // level)))
        quota = np.append(self.quota_row, _NONE)
        parts += [
            (self.cpus_row[p], replicas * self.cpus[k]),
            (self.memory_row[p], replicas * self.memory[k]),
            (quota[case.quotas.of_class[k]], gang),
            (quota[case.quotas.of_option[options]], gang),
            (self.tier_row[k], -gang),
        ]
        for tally, tally_rows in zip(case.tallies, self._tally_rows, strict=True):
            row = np.append(tally_rows, _NONE)[tally.row[options]]
            parts.append((row, tally.units[options].astype(np.float64)))
        rows = np.stack([row for row, _ in parts], axis=1)
        values = np.stack([value for _, value in parts], axis=1)
        used = (rows >= 0) & (values != 0)
        start = np.concatenate([[0], np.cumsum(used.sum(axis=1))]).astype(np.int64)
        return Entries(start, rows[used], values[used])

    def opened_entries(self) -> Entries:
        """The columns of whole nodes opened for smaller replicas, in the order of `opened`."""
        start, rows, values = [0], [], []
        for pool in self.opened:
            rows.append(int(self.whole_row[pool]))
            values.append(1.0)
            for slot, level in enumerate(self.sizes):
                row = int(self.level_row[pool, slot])
                if row >= 0:
                    rows.append(row)
                    values.append(-float(self.node_size[pool] // level))
            start.append(len(rows))
        return Entries(
            np.array(start, dtype=np.int64), np.array(rows, dtype=np.int64), np.array(values)
        )

    # Prices -------------------------------------------------------------------------------------

    def worth(self, gain: Floats, prices: Floats) -> Floats:
        """Per option its gain minus what it takes at some prices, one per row (at least 0; those of
        the classes are left out)."""
        case, ending = self.case, np.append(prices, 0.0)
        options = case.options
        length = np.diff(options.first)
        kinds, pools = self._first_of_need, len(case.problem.pools)
        if len(kinds) * pools <= len(options):
            # Many classes take the same of a pool: worked out once for all of them.
            table = self._taken(kinds[:, None], np.arange(pools), ending).ravel()
            at = np.repeat(self._need * pools, length)
            at += options.pool_index
            found: Floats = gain - table[at]
        else:
            found = gain - self._taken(options.class_index, options.pool_index, ending)
        quota = np.append(ending[self.quota_row], 0.0)
        per_class = self.gang * (quota[case.quotas.of_class] - ending[self.tier_row])
        if per_class.any():
            found -= np.repeat(per_class, length)
        if quota.any():
            found -= np.repeat(self.gang, length) * quota[case.quotas.of_option]
        for tally, tally_rows in zip(case.tallies, self._tally_rows, strict=True):
            found -= tally.units * np.append(ending[tally_rows], 0.0)[tally.row]
        return found

    def _taken(self, k: Integers, p: Integers, ending: Floats) -> Floats:
        """What copies of some classes take of nodes, cpus and memory of some pools, in USD; index
        arrays that numpy combines."""
        unit = np.zeros((len(self.case.problem.pools), len(self.sizes)))
        for slot, size in enumerate(self.sizes):
            for level_slot, level in enumerate(self.sizes[: slot + 1]):
                unit[:, slot] += ending[self.level_row[:, level_slot]] * (size // level)
            whole = self.node_size == size
            unit[whole, slot] = ending[self.whole_row[whole]]
        per_replica = unit[p, self.slot[k]]
        cpus, memory = ending[self.cpus_row], ending[self.memory_row]
        if cpus.any():
            per_replica += self.cpus[k] * cpus[p]
        if memory.any():
            per_replica += self.memory[k] * memory[p]
        found: Floats = self.replicas[k] * per_replica
        return found

    def bound(self, prices: Floats, by_class: Floats) -> float:
        """No plan gains more, whatever the prices; `by_class` are the `class_bounds` at the same
        prices. Only the quality of the bound depends on the prices."""
        return self.rows_bound(prices) + float(by_class.sum())

    def rows_bound(self, prices: Floats) -> float:
        """The part of the bound that is the value of all rows but those of the classes."""
        classes = len(self.count)
        total = float(prices[classes:] @ self.high[classes:])
        opened = self.opened_entries()
        if self.opened:
            node_usd = self.case.problem.objective.fragmentation_usd_per_node
            given = np.add.reduceat(prices[opened.row] * opened.value, opened.start[:-1])
            total += float(np.maximum(0.0, -given - node_usd) @ np.array(self.opened_most))
        return total

    def class_bounds(self, worth: Floats) -> Floats:
        """The most each class can gain for itself: its best options first, each as far as its
        `most` goes."""
        options = self.case.options
        total = np.zeros(len(self.count))
        length = np.diff(options.first)
        some = np.flatnonzero(length)
        if not len(some):
            return total
        starts = options.first[some]
        best = np.zeros(len(self.count))
        best[some] = np.maximum(np.maximum.reduceat(worth, starts), 0.0)
        # One option that holds all copies of its class is enough for most classes.
        most = np.where(worth == np.repeat(best, length), options.most, 0)
        holds = np.zeros(len(self.count))
        holds[some] = np.maximum.reduceat(most, starts)
        enough = holds >= self.count
        total[enough] = best[enough] * self.count[enough]
        others = np.flatnonzero(~enough & (best > 0))
        if len(others):
            good = np.concatenate([np.arange(*options.first[k : k + 2]) for k in others.tolist()])
            self._fill(total, good[worth[good] > 0], worth)
        return total

    def _fill(self, total: Floats, good: Integers, worth: Floats) -> None:
        """Add what each class gains by some options, the best first."""
        options = self.case.options
        if not len(good):
            return
        order = good[np.lexsort((-worth[good], options.class_index[good]))]
        k, most = options.class_index[order], options.most[order].astype(np.float64)
        before = np.cumsum(most) - most
        starts = np.concatenate([[True], k[1:] != k[:-1]])
        before -= before[starts][np.cumsum(starts) - 1]
        taken = np.clip(self.count[k] - before, 0.0, most)
        np.add.at(total, k, taken * worth[order])


def _needs(facts: Facts) -> tuple[Integers, Integers]:
    """Numbers for classes, the same for those whose copies take the same of a pool; and the first
    class of each."""
    index: dict[tuple[int, int, float, float], int] = {}
    keys = zip(facts.replicas, facts.size, facts.cpus, facts.memory_gib, strict=True)
    number = np.array([index.setdefault(key, len(index)) for key in keys], dtype=np.int64)
    return number, np.unique(number, return_index=True)[1]


def _total(total: float | None, nodes: Sequence[tuple[int, float | None]]) -> float | None:
    """The tighter of a pool's total and the sum over its nodes; None = no limit."""
    known = [count * limit for count, limit in nodes if limit is not None]
    limits = [sum(known)] if len(known) == len(nodes) and nodes else []
    if total is not None:
        limits.append(total)
    return min(limits, default=None)
