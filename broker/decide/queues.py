"""Joining the queue of a site, decided as a pool of its own that nothing but the number of copies
pending there can fill."""

from __future__ import annotations

from dataclasses import replace

from broker.model.problem import NodeGroup, Pool, Problem

_MOST = 2**53


def with_queues(problem: Problem) -> Problem:
    """The problem with a pool for each queue, after all others: of two places that cost the same
    the one that is free now comes first."""
    behind = [pool for pool in problem.pools if pool.queue is not None and not pool.queue_of]
    if not behind or any(pool.queue_of for pool in problem.pools):
        return problem
    names = {pool.name for pool in problem.pools}
    replicas = max((job.replicas for job in problem.jobs), default=1)
    queues = tuple(_queue(pool, replicas, names) for pool in behind)
    return replace(problem, pools=(*problem.pools, *queues))


def _queue(pool: Pool, replicas: int, names: set[str]) -> Pool:
    """Enough nodes that none of them is ever short. They are but half of what such a node could
    have, so that none counts as a whole one that is broken into."""
    name = f"queue of {pool.name}"
    while name in names:
        name += "'"
    names.add(name)
    full = pool.accelerators_per_node
    pending = pool.queue.max_pending if pool.queue is not None else 0
    nodes = (NodeGroup(min(max(1, pending) * replicas, max(1, _MOST // full)), full),)
    return replace(
        pool.as_queue(),
        name=name,
        nodes=nodes,
        accelerators_per_node=2 * full,
        when_empty=pool.when_empty or nodes,
        free_cpus=None,
        free_memory_gib=None,
        per_node=False,
    )
