"""Classes, and what each of their pairs with a pool costs: the part of a problem that hardly
changes from one decision to the next. What the last decision found is taken over for classes that
are still there, with pools that cost what they did; only new classes, and pools where a price or a
delay has changed, are looked at. The result is the same as if there had been none.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter

import numpy as np

from broker.decide.classes import JobClass, group_jobs
from broker.decide.collecting import without_collecting
from broker.decide.forms import Forms, formed
from broker.decide.later_starts import with_later_starts
from broker.decide.options import Integers, Pairs, price_pairs, starts_of
from broker.decide.queues import with_queues
from broker.decide.same_node import merged
from broker.model.problem import Cluster, Pool, Problem

_CAPACITY = ("nodes", "extras", "free_cpus", "free_memory_gib", "when_empty", "around")
_MOVING = ("jobs", "pools", "clusters", "objective", "tenants", "now", "warm")
_MOST_CHANGED = 0.25
"""Share of the pools from which on all pairs are computed anew: it is no more work."""
_OF_POOL = attrgetter(*(f.name for f in fields(Pool) if f.name not in _CAPACITY))
_OF_CLUSTER = attrgetter(
    *(f.name for f in fields(Cluster) if f.name not in ("unknown", "cold_start_s"))
)
_OF_PROBLEM = attrgetter(*(f.name for f in fields(Problem) if f.name not in _MOVING))


@dataclass(frozen=True, slots=True)
class Prepared:
    """The classes of a problem and their pairs. `problem` has a pool for each queue and each start
    to come, gangs that share a node as one replica, and `forms` where there are any. `rows` has the
    class of each key."""

    problem: Problem
    classes: tuple[JobClass, ...]
    pairs: Pairs
    rows: Mapping[Hashable, int]
    forms: Forms | None = None


@without_collecting()
def prepare(problem: Problem, last: Prepared | None = None) -> Prepared:
    """Group the jobs and price all pairs, taking over from `last` what is still true. Where
    regions, round trips or what lies between them have changed, everything is computed anew."""
    forms = formed(problem)
    problem = with_later_starts(
        with_queues(merged(problem if forms is None else forms.problem))
    )
    classes = group_jobs(problem.jobs)
    rows = {item.key: k for k, item in enumerate(classes)}
    known = {} if last is None else last.rows
    before = np.array([known.get(item.key, -1) for item in classes], dtype=np.int64)
    images = {classes[k].job.image for k in np.flatnonzero(before >= 0).tolist()}
    changed = None if last is None else changed_pools(problem, last.problem, images)
    if last is None or changed is None:
        return Prepared(problem, classes, price_pairs(problem, classes), rows, forms)
    new = [item for item, row in zip(classes, before.tolist(), strict=True) if row < 0]
    pairs = _merged(last.pairs, price_pairs(problem, new), before)
    if len(changed):
        kept = np.flatnonzero(before >= 0)
        priced = price_pairs(problem, [classes[k] for k in kept.tolist()], changed)
        pairs = _repriced(pairs, priced, kept, changed)
    return Prepared(problem, classes, pairs, rows, forms)


def changed_pools(
    problem: Problem, before: Problem, images: Collection[str | None]
) -> Integers | None:
    """The pools whose pairs cost something else than before, or may no longer be, by index; None
    where that is so for too many of them, or the places are others. `images` are those of the
    classes that are still there: how long others take to start is nothing to them."""
    if _OF_PROBLEM(problem) != _OF_PROBLEM(before):
        return None
    if _names(problem.clusters) != _names(before.clusters):
        return None
    if _names(problem.pools) != _names(before.pools):
        return None
    moved = {
        one.name
        for one, other in zip(problem.clusters, before.clusters, strict=True)
        if one is not other and not _starts_alike(one, other, images)
    }
    pairs = zip(problem.pools, before.pools, strict=True)
    found = [
        index
        for index, (one, other) in enumerate(pairs)
        if one.cluster in moved or not _alike(one, other)
    ]
    if len(found) > _MOST_CHANGED * len(problem.pools):
        return None
    return np.array(found, dtype=np.int64)


def _starts_alike(one: Cluster, other: Cluster, images: Collection[str | None]) -> bool:
    if _OF_CLUSTER(one) != _OF_CLUSTER(other):
        return False
    now, then = one.cold_start_s, other.cold_start_s
    any_now, any_then = now.get("*", 0.0), then.get("*", 0.0)
    # A job without an image (None) starts like one of any other image.
    keys = {"*" if image is None else image for image in images}
    return now == then or all(now.get(k, any_now) == then.get(k, any_then) for k in keys)


def _names(places: Sequence[Cluster] | Sequence[Pool]) -> list[str]:
    return [place.name for place in places]


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


def _repriced(pairs: Pairs, priced: Pairs, kept: Integers, changed: Integers) -> Pairs:
    """The pairs with those of some classes (`kept`) and pools (`changed`) replaced by `priced`,
    whose classes are counted among those kept."""
    classes = len(pairs.first) - 1
    of_kept = np.zeros(classes, dtype=np.bool_)
    of_kept[kept] = True
    stale = np.repeat(of_kept, np.diff(pairs.first)) & np.isin(pairs.pool_index, changed)
    fine = ~stale
    class_index, cost = pairs.class_index[fine], pairs.cost_usd[fine]
    pool_index = pairs.pool_index[fine]
    first = starts_of(class_index, classes)
    k = kept[priced.class_index]
    low, high = first[k], first[k + 1]
    # Where each new pair belongs in its class, by cost and then by pool: all of them in step.
    while len(cost) and bool((low < high).any()):
        middle = (low + high) // 2
        at = np.minimum(middle, len(cost) - 1)
        comes = (cost[at] < priced.cost_usd) | (
            (cost[at] == priced.cost_usd) & (pool_index[at] < priced.pool_index)
        )
        searching = low < high
        low = np.where(searching & comes, middle + 1, low)
        high = np.where(searching & ~comes, middle, high)
    class_index = np.insert(class_index, low, k)
    return Pairs(
        class_index,
        np.insert(pool_index, low, priced.pool_index),
        np.insert(cost, low, priced.cost_usd),
        starts_of(class_index, classes),
    )
