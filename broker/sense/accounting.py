"""What is free at a site now: its last report, less what it does not reflect yet. Pure.

A report is one instant of the site and says up to which command and which event of ours it
reflects. Free = report - placed after the one + ended after the other, so two decisions in a row
against one report never promise the same node twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from broker.model.fleet import Capacity, NodeGroup, PoolCapacity
from broker.model.jobs import Attempt
from broker.model.replacing import replace

Node = tuple[NodeGroup, int]


def free_pools(capacity: Capacity, attempts: Iterable[Attempt]) -> tuple[PoolCapacity, ...]:
    """The pools of a report with Tradewind's own later decisions and ends accounted for.

    `attempts` are all attempts of that cluster that are live or ended recently. Which node a
    command will use is the site's choice; the tightest fitting one is assumed. What came free since
    goes to those that wait in the queue of the site, not to others: the site sees to that itself.
    """
    attempts = sorted(attempts, key=lambda a: a.dispatch_seq)
    came_free: Counter[str] = Counter()
    pools = {pool.pool: pool.groups for pool in capacity.pools}
    extras = {pool.pool: dict(pool.extras) for pool in capacity.pools if pool.extras}
    for attempt in attempts:
        if attempt.pool not in pools:
            continue
        placed_later = attempt.first_seq > capacity.reflects_dispatch_seq
        unheard = attempt.event_seq > capacity.reflects_event_seq
        held = attempt.started_ms or (attempt.reserved_ms and not attempt.queued)
        taken_later = placed_later
        if attempt.queued:  # it takes something only from its start on
            taken_later = attempt.started_ms > 0 and (placed_later or unheard)
        if attempt.live and taken_later:
            _change_all(pools, extras, attempt, -1)
            came_free[attempt.pool] -= attempt.queued
        elif not attempt.live and unheard and held and not placed_later:
            _change_all(pools, extras, attempt, 1)
            came_free[attempt.pool] += 1
    for attempt in attempts:
        if attempt.waits_in_queue and came_free[attempt.pool] > 0:
            groups = pools[attempt.pool]
            if _room(groups, attempt):
                came_free[attempt.pool] -= 1
                pools[attempt.pool] = _take(groups, attempt)
    return tuple(
        replace(pool, groups=pools[pool.pool], extras=extras.get(pool.pool, {}))
        for pool in capacity.pools
    )


def _change_all(
    pools: dict[str, tuple[NodeGroup, ...]],
    extras: Mapping[str, dict[str, tuple[int, int]]],
    attempt: Attempt,
    sign: int,
) -> None:
    """Take what an attempt has in all of its pools (-1), or give it back (1)."""
    for pool, rack, part in _parts(attempt):
        groups = pools.get(pool, ())
        inside = tuple(g for g in groups if not rack or g.domain == rack)
        elsewhere = tuple(g for g in groups if rack and g.domain != rack)
        changed = _give_back(inside, part) if sign > 0 else _take(inside, part)
        pools[pool] = (*elsewhere, *changed)
        _move(extras, part, sign)


def _parts(attempt: Attempt) -> Iterable[tuple[str, str, Attempt]]:
    """The pools and racks that an attempt is in, each with what it has there."""
    if not attempt.parts:
        yield attempt.pool, "", attempt
    for part in attempt.parts:
        one = min(attempt.width, 1)  # parts are those of all copies
        here = replace(attempt, pool=part.pool, replicas=part.replicas, width=one, parts=())
        yield part.pool, part.rack, here


def _move(extras: Mapping[str, dict[str, tuple[int, int]]], attempt: Attempt, sign: int) -> None:
    """Take what an attempt has of its pool's extras (-1), or give it back (1)."""
    of_pool = extras.get(attempt.pool, {})
    for name, each in attempt.extras_per_replica:
        if name in of_pool:
            total, free = of_pool[name]
            moved = free + sign * each * attempt.replicas * attempt.copies
            of_pool[name] = total, min(max(moved, 0), total)


def _take(groups: tuple[NodeGroup, ...], attempt: Attempt) -> tuple[NodeGroup, ...]:
    """Node by node, the tightest first, each filled before the next; alike ones together."""
    left = list(groups)
    missing = attempt.copies * attempt.replicas
    while missing:
        fitting = [(group.free, i) for i, group in enumerate(left) if _fits(group, attempt)]
        if not fitting:  # the site will refuse; promise nothing of what is left
            return tuple(replace(group, free=0) for group in left)
        index = min(fitting)[1]
        each = min(_fits(left[index], attempt), missing)
        nodes = min(left[index].count, missing // each)
        left = _change(left, index, attempt, (nodes, -each))
        missing -= nodes * each
    return _merged(left)


def _room(groups: Iterable[NodeGroup], attempt: Attempt) -> bool:
    """Whether all of it would find a place now."""
    fit = sum(group.count * _fits(group, attempt) for group in groups)
    return fit >= attempt.copies * attempt.replicas


def _fits(group: NodeGroup, attempt: Attempt) -> int:
    """How many replicas one node of a group still takes."""
    return min(
        have // need
        for have, need in (
            (group.free, max(attempt.accelerators_per_replica, 1)),
            (group.free_cpus_milli, attempt.cpus_milli_per_replica),
            (group.free_memory_bytes, attempt.memory_bytes_per_replica),
        )
        if need > 0
    )


def _give_back(groups: tuple[NodeGroup, ...], attempt: Attempt) -> tuple[NodeGroup, ...]:
    """To the busiest nodes, one replica each in turn: nothing is promised to be whole."""
    left = list(groups)
    missing = attempt.copies * attempt.replicas
    while missing:
        fitting = [(group.free, i) for i, group in enumerate(left) if _holds(group, attempt)]
        if not fitting:
            break
        index = min(fitting)[1]
        nodes = min(left[index].count, missing)
        left = list(_merged(_change(left, index, attempt, (nodes, 1))))
        missing -= nodes
    return _merged(left)


def _holds(group: NodeGroup, attempt: Attempt) -> bool:
    return (
        group.total - group.free >= max(attempt.accelerators_per_replica, 1)
        and group.cpus_milli - group.free_cpus_milli >= attempt.cpus_milli_per_replica
        and group.memory_bytes - group.free_memory_bytes >= attempt.memory_bytes_per_replica
    )


def _change(
    groups: list[NodeGroup], index: int, attempt: Attempt, change: tuple[int, int]
) -> list[NodeGroup]:
    """`change`: so many nodes of the group get so many replicas more free each."""
    group, (nodes, replicas) = groups[index], change
    changed = replace(
        group,
        count=nodes,
        free=group.free + replicas * max(attempt.accelerators_per_replica, 1),
        free_cpus_milli=group.free_cpus_milli + replicas * attempt.cpus_milli_per_replica,
        free_memory_bytes=group.free_memory_bytes + replicas * attempt.memory_bytes_per_replica,
    )
    rest = [replace(group, count=group.count - nodes)] if group.count > nodes else []
    return [*groups[:index], *rest, changed, *groups[index + 1 :]]


def _merged(groups: Iterable[NodeGroup]) -> tuple[NodeGroup, ...]:
    counts: dict[NodeGroup, int] = {}
    for group in groups:
        shape = replace(group, count=1)
        counts[shape] = counts.get(shape, 0) + group.count
    return tuple(replace(shape, count=count) for shape, count in counts.items())
