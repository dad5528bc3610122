"""What a plan leaves free, as a problem without jobs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from broker.model.plan import NodeFill, Plan
from broker.model.problem import Job, NodeGroup, Pool, Problem, Queue, Tenant


def left_over(problem: Problem, plan: Plan) -> Problem:
    """The problem with no jobs, and with the nodes, totals and quotas that the plan leaves. Nodes
    keep their numbers."""
    jobs = {job.id: job for job in problem.jobs}
    fills: dict[str, list[NodeFill]] = defaultdict(list)
    for fill in plan.fills:
        fills[fill.pool].append(fill)
    clusters = {pool.name: pool.cluster for pool in problem.pools}
    used: dict[tuple[str, str], int] = defaultdict(int)
    pending: dict[str, int] = defaultdict(int)
    cpus: dict[str, float] = defaultdict(float)
    memory: dict[str, float] = defaultdict(float)
    for item in plan.assignments:
        job = jobs[item.job]
        used[job.tenant, clusters[item.pool]] += item.count * job.gang_accelerators
        if item.queued:
            pending[item.pool] += item.count
            continue
        cpus[item.pool] += item.count * job.replicas * job.replica_cpus
        memory[item.pool] += item.count * job.replicas * job.replica_memory_gib
    return replace(
        problem,
        jobs=(),
        pools=tuple(
            replace(
                pool,
                nodes=_nodes_left(pool, fills[pool.name], jobs),
                free_cpus=_minus(pool.free_cpus, cpus[pool.name]),
                free_memory_gib=_minus(pool.free_memory_gib, memory[pool.name]),
                queue=_shorter(pool.queue, pending[pool.name]),
            )
            for pool in problem.pools
        ),
        tenants=tuple(_tenant_left(tenant, used) for tenant in problem.tenants),
    )


def alone(problem: Problem, job: Job, pool: Pool) -> Problem:
    """The problem of one copy of one job in one pool."""
    cluster = next(c for c in problem.clusters if c.name == pool.cluster)
    here = job.current_pool == pool.name
    return replace(
        problem,
        jobs=(replace(job, count=1, current_pool=pool.name if here else None),),
        pools=(pool,),
        clusters=(cluster,),
        tenants=tuple(
            replace(
                tenant,
                cluster_quota={
                    name: n for name, n in tenant.cluster_quota.items() if name == cluster.name
                },
            )
            for tenant in problem.tenants
            if tenant.name == job.tenant
        ),
    )


def _nodes_left(pool: Pool, fills: list[NodeFill], jobs: dict[str, Job]) -> tuple[NodeGroup, ...]:
    left: list[NodeGroup] = []
    waiting = sorted(fills, key=lambda fill: fill.first_node, reverse=True)
    first = 0
    for group in pool.nodes:
        end = first + group.count
        while first < end:
            while waiting and waiting[-1].first_node + waiting[-1].nodes <= first:
                waiting.pop()
            if not waiting or waiting[-1].first_node >= end:
                left.append(replace(group, count=end - first))
                break
            fill = waiting[-1]
            if fill.first_node > first:
                left.append(replace(group, count=fill.first_node - first))
                first = fill.first_node
            nodes = min(end, fill.first_node + fill.nodes) - first
            left.append(replace(_without(group, fill, jobs), count=nodes))
            first += nodes
        first = end
    return tuple(left)


def _without(group: NodeGroup, fill: NodeFill, jobs: dict[str, Job]) -> NodeGroup:
    taken = [(jobs[name], count) for name, count in fill.contents]
    accelerators = sum(job.accelerators_per_replica * count for job, count in taken)
    return replace(
        group,
        free_accelerators=group.free_accelerators - accelerators,
        free_cpus=_minus(group.free_cpus, sum(job.replica_cpus * n for job, n in taken)),
        free_memory_gib=_minus(
            group.free_memory_gib, sum(job.replica_memory_gib * n for job, n in taken)
        ),
    )


def _shorter(queue: Queue | None, taken: int) -> Queue | None:
    return None if queue is None else replace(queue, max_pending=queue.max_pending - taken)


def _minus(limit: float | None, used: float) -> float | None:
    return None if limit is None else max(0.0, limit - used)


def _tenant_left(tenant: Tenant, used: dict[tuple[str, str], int]) -> Tenant:
    total = sum(n for (name, _), n in used.items() if name == tenant.name)
    quota = tenant.quota_accelerators
    return replace(
        tenant,
        quota_accelerators=None if quota is None else max(0, quota - total),
        cluster_quota={
            cluster: max(0, n - used.get((tenant.name, cluster), 0))
            for cluster, n in tenant.cluster_quota.items()
        },
    )
