"""What is free at a site now: its last report, less what it does not reflect yet. Pure.

A report is one instant of the site and says up to which command and which event of ours it
reflects. Free = report - placed after the one + ended after the other, so two decisions in a row
against one report never promise the same node twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from broker.model.fleet import Capacity, NodeGroup, PoolCapacity
from broker.model.jobs import Attempt

Node = tuple[NodeGroup, int]


def free_pools(capacity: Capacity, attempts: Iterable[Attempt]) -> tuple[PoolCapacity, ...]:
    """The pools of a report with Tradewind's own later decisions and ends accounted for.

    `attempts` are all attempts of that cluster that are live or ended recently. Which node a
    command will use is the site's choice; the tightest fitting one is assumed.
    """
    pools = {pool.pool: pool.groups for pool in capacity.pools}
    for attempt in sorted(attempts, key=lambda a: a.dispatch_seq):
        groups = pools.get(attempt.pool)
        if groups is None:
            continue
        placed_later = attempt.first_seq > capacity.reflects_dispatch_seq
        ended_later = not attempt.live and attempt.event_seq > capacity.reflects_event_seq
        if attempt.live and placed_later:
            pools[attempt.pool] = _take(groups, attempt)
        elif ended_later and not placed_later:
            pools[attempt.pool] = _give_back(groups, attempt)
    return tuple(replace(pool, groups=pools[pool.pool]) for pool in capacity.pools)


def _take(groups: tuple[NodeGroup, ...], attempt: Attempt) -> tuple[NodeGroup, ...]:
    left = list(groups)
    for _ in range(attempt.copies * attempt.replicas):
        fitting = [
            index
            for index, group in enumerate(left)
            if group.free >= attempt.accelerators_per_replica
            and group.free_cpus_milli >= attempt.cpus_milli_per_replica
            and group.free_memory_bytes >= attempt.memory_bytes_per_replica
        ]
        if not fitting:  # the site will refuse; promise nothing of what is left
            return tuple(replace(group, free=0) for group in left)
        best = min(fitting, key=lambda index: (left[index].free, index))
        left = _change_one(left, best, attempt, sign=-1)
    return _merged(left)


def _give_back(groups: tuple[NodeGroup, ...], attempt: Attempt) -> tuple[NodeGroup, ...]:
    left = list(groups)
    for _ in range(attempt.copies * attempt.replicas):
        fitting = [
            index
            for index, group in enumerate(left)
            if group.total - group.free >= attempt.accelerators_per_replica
            and group.cpus_milli - group.free_cpus_milli >= attempt.cpus_milli_per_replica
        ]
        if not fitting:
            break
        best = min(fitting, key=lambda index: (left[index].free, index))
        left = _change_one(left, best, attempt, sign=1)
    return _merged(left)


def _change_one(
    groups: list[NodeGroup], index: int, attempt: Attempt, *, sign: int
) -> list[NodeGroup]:
    group = groups[index]
    changed = replace(
        group,
        count=1,
        free=group.free + sign * attempt.accelerators_per_replica,
        free_cpus_milli=group.free_cpus_milli + sign * attempt.cpus_milli_per_replica,
        free_memory_bytes=group.free_memory_bytes + sign * attempt.memory_bytes_per_replica,
    )
    rest = [replace(group, count=group.count - 1)] if group.count > 1 else []
    return [*groups[:index], *rest, changed, *groups[index + 1 :]]


def _merged(groups: Iterable[NodeGroup]) -> tuple[NodeGroup, ...]:
    counts: dict[NodeGroup, int] = {}
    for group in groups:
        shape = replace(group, count=1)
        counts[shape] = counts.get(shape, 0) + group.count
    return tuple(replace(shape, count=count) for shape, count in counts.items())
