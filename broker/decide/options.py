"""Which class may go to which pool, what a copy costs there, and how many fit at most: all
pairs at once, as arrays. Pairs that can never be used do not become options."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from broker.decide.classes import JobClass
from broker.decide.constraints import PAIR_CONSTRAINTS, SHARED_CONSTRAINTS
from broker.decide.constraints.constraint import Grain, SharedConstraint
from broker.decide.objective import TERMS
from broker.decide.pairs import Booleans, ClassRows, Floats, Integers, PairFigures, PoolColumns
from broker.model.problem import Job, Problem

__all__ = [
    "Booleans", "Floats", "Integers", "Options", "Pairs", "build_options", "price_pairs",
    "starts_of",
]  # fmt: skip

_BLOCK_PAIRS = 500_000
"""Pairs looked at together: bounds the memory of the temporaries."""


@dataclass(frozen=True, slots=True)
class Options:
    """Usable pairs, by class, within a class by cost and then by pool. All arrays have one
    entry per option except `first`, which has one per class and one more: the options of class
    k are `first[k]:first[k + 1]`. `cost_usd` is for one copy, `most` the copies that could go
    there were the pool and the tenant's quotas used for nothing else."""

    class_index: Integers
    pool_index: Integers
    cost_usd: Floats
    most: Integers
    first: Integers

    def __len__(self) -> int:
        return len(self.class_index)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of class and pool that may go together whatever is free there, as in `Options`. They
    depend on no count, nodes, totals or quotas: what changes from one decision to the next."""

    class_index: Integers
    pool_index: Integers
    cost_usd: Floats
    first: Integers


def price_pairs(
    problem: Problem, classes: Sequence[JobClass], only: Integers | None = None
) -> Pairs:
    """All pairs of some classes with the pools of a problem, or with `only` those, by index; in the
    order of `Options`."""
    pools = PoolColumns(problem)
    some = np.arange(len(problem.pools)) if only is None else only
    block = min(2**16, max(1, _BLOCK_PAIRS // max(1, len(some))))
    parts = [(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))]
    for start in range(0, len(classes) if len(some) else 0, block):
        rows = ClassRows(problem, classes[start : start + block], pools)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            parts.append(_block_pairs(rows, start, some))
    class_index, pool_index, cost = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    return Pairs(class_index, pool_index, cost, starts_of(class_index, len(classes)))


def build_options(rows: ClassRows, pairs: Pairs) -> Options:
    """The pairs in which at least one copy has room. `rows` are all classes."""
    length, shared = np.diff(pairs.first), _Shared(rows, len(pairs.class_index))
    most = np.repeat(rows.count, length)
    for row_starts, by_pool in shared.tables:
        at = np.repeat(row_starts, length)
        at += pairs.pool_index
        np.minimum(most, by_pool[at], out=most)
    for start in range(0, len(most), _BLOCK_PAIRS):
        part = slice(start, start + _BLOCK_PAIRS)
        figures = PairFigures(rows, pairs.class_index[part], pairs.pool_index[part])
        for constraint in shared.others:
            np.minimum(most[part], _most(constraint, figures), out=most[part])
    copies = np.clip(most, 0.0, 2.0**53).astype(np.int64)
    used = np.flatnonzero(copies)
    if len(used) == len(copies):
        return Options(
            pairs.class_index, pairs.pool_index, pairs.cost_usd, copies, pairs.first
        )
    class_index = pairs.class_index[used]
    first = starts_of(class_index, len(rows.jobs))
    return Options(class_index, pairs.pool_index[used], pairs.cost_usd[used], copies[used], first)


class _Shared:
    """The shared constraints. Those that are the same for many classes are worked out once for all
    of them: `tables` has, by class, where its row starts in figures by pool. `others` are looked at
    pair by pair."""

    def __init__(self, rows: ClassRows, pairs: int) -> None:
        self.tables: list[tuple[Integers, Floats]] = []
        self.others: list[SharedConstraint] = []
        groups: dict[Callable[[Job], Hashable] | None, list[SharedConstraint]] = {}
        for shared in SHARED_CONSTRAINTS:
            groups.setdefault(shared.same_for, []).append(shared)
        pools = len(rows.pools.pools)
        for same_for, group in groups.items():
            if same_for is None:
                self.others += group
                continue
            kind_of, firsts = _kinds(map(same_for, rows.jobs))
            if len(firsts) * pools > pairs:
                self.others += group
                continue
            some = np.arange(len(firsts))[:, None]
            every = PairFigures(rows.some(firsts), some, np.arange(pools))
            table = np.full((len(firsts), pools), np.inf)
            for constraint in group:
                np.minimum(table, _most(constraint, every), out=table)
            self.tables.append((kind_of * pools, table.ravel()))


def _kinds(keys: Iterable[Hashable]) -> tuple[Integers, list[int]]:
    """Numbers for keys, the same for those that are equal; and where each comes first."""
    index: dict[Hashable, int] = {}
    number = [index.setdefault(key, len(index)) for key in keys]
    firsts = np.unique(np.array(number, dtype=np.int64), return_index=True)[1]
    return np.array(number, dtype=np.int64), firsts.tolist()


def _most(constraint: SharedConstraint, pairs: PairFigures) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return constraint.most(pairs)


def starts_of(class_index: Integers, classes: int) -> Integers:
    """Where the entries of each class start in an ascending list, and where the last ones end."""
    return np.searchsorted(class_index, np.arange(classes + 1)).astype(np.int64)


def _block_pairs(
    rows: ClassRows, start: int, some: Integers
) -> tuple[Integers, Integers, Floats]:
    pairs = PairFigures(rows, *_allowed(rows, some))
    cost = np.zeros(len(pairs.row))
    for column in (term.column(pairs) for term in TERMS):
        if len(column) > 1 or column.any():
            cost += column
    fine = _all(Grain.PAIR, pairs, np.isfinite(cost))
    row, pool, cost = pairs.row[fine], pairs.pool[fine], cost[fine]
    order = np.argsort(cost, kind="stable")
    # Rows of a block fit 16 bits, which sort by radix.
    order = order[np.argsort(row[order].astype(np.uint16), kind="stable")]
    return (row[order] + start).astype(np.int64), pool[order].astype(np.int64), cost[order]


def _allowed(rows: ClassRows, some: Integers) -> tuple[Integers, Integers]:
    """Rows and pools of the pairs with some pools that model, price kind, residency and exclusions
    let be: what looks alike for many pools is looked at once for all of them."""
    pools, every = rows.pools, np.arange(len(rows.jobs))[:, None]
    sorts = PairFigures(rows, every, pools.of_sort)
    shape = (len(rows.jobs), len(pools.of_sort))
    mask = _all(Grain.SORT, sorts, np.ones(shape, dtype=np.bool_))[:, pools.sort[some]]
    row, at = np.nonzero(_all(Grain.POOL, PairFigures(rows, every, some), mask))
    return row, some[at]


def _all(grain: Grain, pairs: PairFigures, mask: Booleans) -> Booleans:
    for constraint in PAIR_CONSTRAINTS:
        if constraint.grain is grain:
            mask &= constraint.mask(pairs)
    return mask
