"""Starts to come, decided as pools of their own: from an hour on a pool costs what it costs then,
and may have no more than what is expected to be free in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from broker.decide.terms import Geography, within
from broker.model.plan import Assignment
from broker.model.problem import Job, Later, NodeGroup, Pool, Problem

MOST_STARTS = 8
"""Of the starts that follow from the prices of a pool, so many are looked at, the soonest first."""
_MOST = 2**53


def starts_of(pool: Pool) -> tuple[Later, ...]:
    """When copies may start in a pool later on, soonest first: as it says; else whenever its price
    falls or a maintenance is over, in all of the pool (what is free now, where `when_empty` is not
    known)."""
    if pool.later is not None:
        return pool.later
    edges = {edge for window in pool.prices for edge in (window.from_h, window.to_h)}
    falls = {edge for edge in edges if _price_usd(pool, edge) < _price_usd(pool, edge, before=True)}
    hours = sorted(falls | {window.to_h for window in pool.maintenance})
    room = max(free_of(pool.when_empty), free_of(pool.nodes))
    return tuple([Later(hour, room) for hour in hours if hour > 0][:MOST_STARTS])


def free_of(nodes: Sequence[NodeGroup]) -> int:
    """Accelerators free on some nodes."""
    return sum(group.count * group.free_accelerators for group in nodes)


def _price_usd(pool: Pool, at_h: float, *, before: bool = False) -> float:
    """The price from an hour on, or up to it."""
    for window in pool.prices:
        if window.from_h < at_h <= window.to_h if before else window.from_h <= at_h < window.to_h:
            return window.price_usd_per_accelerator_hour
    return pool.price_usd_per_accelerator_hour


def with_later_starts(problem: Problem) -> Problem:
    """The problem with a pool for each start to come that some job may be put off to, after all
    others: of two that cost the same the sooner comes first."""
    longest_h = max((job.defer_h for job in problem.jobs), default=0.0)
    if not longest_h or any(pool.starts_h for pool in problem.pools):
        return problem
    names = {pool.name for pool in problem.pools}
    found = tuple(
        _pool(pool, start, names)
        for pool in problem.pools
        if not pool.queue_of
        for start in starts_of(pool)
        if within(start.start_h, longest_h)
    )
    return replace(problem, pools=(*problem.pools, *found)) if found else problem


def _pool(pool: Pool, start: Later, names: set[str]) -> Pool:
    """Enough nodes that none of them is ever short, and none that counts as a whole one: what binds
    is the sum of accelerators."""
    name = f"{pool.name} in {start.start_h:.4g} h"
    while name in names:
        name += "'"
    names.add(name)
    full = pool.accelerators_per_node
    nodes = (NodeGroup(min(max(1, start.free_accelerators), max(1, _MOST // full)), full),)
    return replace(
        pool.as_later(start),
        name=name,
        nodes=nodes,
        accelerators_per_node=2 * full,
        when_empty=pool.when_empty or nodes,
        free_cpus=None,
        free_memory_gib=None,
        per_node=False,
    )


def pool_of(pool: Pool, item: Assignment) -> Pool:
    """The pool as an assignment to it means it. A start that there is not has no room."""
    if item.queued:
        return pool.as_queue()
    if not item.start_h:
        return pool
    found = (start for start in starts_of(pool) if start.start_h == item.start_h)
    return pool.as_later(next(found, Later(item.start_h, 0)))


def with_less_room(
    pool: Pool, held: Sequence[tuple[int, float, float]]
) -> tuple[Later, ...] | None:
    """What is left at the starts to come once some accelerators are held, each from when until when
    in hours."""
    if not held:
        return pool.later
    found = []
    for start in starts_of(pool):
        taken = sum(n for n, from_h, until_h in held if holds_at(from_h, until_h, start.start_h))
        found.append(replace(start, free_accelerators=max(0, start.free_accelerators - taken)))
    return tuple(found)


def hours_held(where: Geography, job: Job, pool: Pool) -> tuple[float, float]:
    """From when until when a copy holds accelerators that starts to come count, in hours from now:
    never, where it waits in a queue."""
    if pool.place[1]:
        return (0.0, 0.0)
    speed = job.accelerators.get(pool.accelerator, 0.0)
    start_h = where.start_s(job, pool) / 3600
    run_h = job.runtime_h / speed if speed else float("inf")
    return (pool.starts_h, start_h + run_h)


def holds_at(from_h: float, until_h: float, at_h: float) -> bool:
    """Whether what is held over some hours is held when a start comes."""
    return within(from_h, at_h) and not within(until_h, at_h)
