"""Classes, and what each of their pairs with a pool costs: the part of a problem that hardly
changes from one decision to the next. What the last decision found is taken over for classes that
are still there; only new ones are looked at. The result is the same as if there had been none.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter

import numpy as np

from broker.decide.classes import JobClass, group_jobs
from broker.decide.options import Integers, Pairs, price_pairs, starts_of
from broker.decide.queues import with_queues
from broker.decide.same_node import merged
from broker.model.problem import Pool, Problem

_CAPACITY = ("nodes", "extras", "free_cpus", "free_memory_gib", "when_empty")
_MOVING = ("jobs", "pools", "objective", "tenants", "now", "warm")
_OF_POOL = attrgetter(*(f.name for f in fields(Pool) if f.name not in _CAPACITY))
_OF_PROBLEM = attrgetter(*(f.name for f in fields(Problem) if f.name not in _MOVING))


@dataclass(frozen=True, slots=True)
class Prepared:
    """The classes of a problem and their pairs. `problem` has a pool for each queue, and gangs that
    share a node as one replica. `rows` has the
    class of each key."""

    problem: Problem
    classes: tuple[JobClass, ...]
    pairs: Pairs
    rows: Mapping[Hashable, int]


def prepare(problem: Problem, last: Prepared | None = None) -> Prepared:
    """Group the jobs and price all pairs, taking over from `last` what is still true. Where
    prices, delays or round trips have changed, everything is computed anew."""
    problem = with_queues(merged(problem))
    classes = group_jobs(problem.jobs)
    rows = {item.key: k for k, item in enumerate(classes)}
    if last is None or not _same_places(problem, last.problem):
        return Prepared(problem, classes, price_pairs(problem, classes), rows)
    before = np.array([last.rows.get(item.key, -1) for item in classes], dtype=np.int64)
    new = [item for item, row in zip(classes, before.tolist(), strict=True) if row < 0]
    pairs = _merged(last.pairs, price_pairs(problem, new), before)
    return Prepared(problem, classes, pairs, rows)


def _same_places(one: Problem, other: Problem) -> bool:
    """Whether all that a pair depends on beside its job is the same, what is free apart."""
    return (
        _OF_PROBLEM(one) == _OF_PROBLEM(other)
        and len(one.pools) == len(other.pools)
        and all(map(_alike, one.pools, other.pools))
    )


def _alike(one: Pool, other: Pool) -> bool:
    return one is other or bool(_OF_POOL(one) == _OF_POOL(other))


def _merged(old: Pairs, new: Pairs, before: Integers) -> Pairs:
    """The pairs of classes by the class of `old` each is; those that are -1 are in `new`, one
    after the other."""
    fresh, kept = before < 0, before[before >= 0]
    start, length = np.empty_like(before), np.empty_like(before)
    start[fresh] = new.first[:-1] + len(old.class_index)
    length[fresh] = np.diff(new.first)
    start[~fresh] = old.first[kept]
    length[~fresh] = old.first[kept + 1] - old.first[kept]
    ends = np.cumsum(length)
    at = np.arange(int(length.sum())) + np.repeat(start - (ends - length), length)
    class_index = np.repeat(np.arange(len(before)), length)
    return Pairs(
        class_index,
        np.concatenate([old.pool_index, new.pool_index])[at],
        np.concatenate([old.cost_usd, new.cost_usd])[at],
        starts_of(class_index, len(before)),
    )
