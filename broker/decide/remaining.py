"""What a plan leaves free, as a problem without jobs."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

from broker.decide.constraints.apart import kept_apart
from broker.decide.constraints.apart_region import kept_out_of_region
from broker.decide.constraints.several_pools import ONLY_TOGETHER
from broker.decide.constraints.spread import spread_out
from broker.decide.later_starts import hours_held, pool_of, with_less_room
from broker.decide.terms import Geography
from broker.model.plan import NodeFill, Part, Plan
from broker.model.problem import Job, NodeGroup, Pool, Problem, Queue, Tenant
from broker.model.topology import Topology


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
    extras: dict[str, Counter[str]] = defaultdict(Counter)
    held = _held(problem, plan)
    cpus: dict[str, float] = defaultdict(float)
    memory: dict[str, float] = defaultdict(float)
    for item in plan.assignments:
        job = jobs[item.job]
        used[job.tenant, clusters[item.pool]] += item.count * job.gang_accelerators
        if item.waits:
            pending[item.pool] += item.count if item.queued else 0
            continue
        for part in item.parts or (Part(item.pool, "", job.replicas),):
            replicas = item.count * part.replicas
            for name, each in job.extras_per_replica.items():
                extras[part.pool][name] += replicas * each
            cpus[part.pool] += replicas * job.replica_cpus
            memory[part.pool] += replicas * job.replica_memory_gib
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
                later=with_less_room(pool, held.get(pool.name, ())),
                extras={
                    name: max(0, free - extras[pool.name][name])
                    for name, free in pool.extras.items()
                },
            )
            for pool in problem.pools
        ),
        tenants=tuple(_tenant_left(tenant, used) for tenant in problem.tenants),
    )


def _held(problem: Problem, plan: Plan) -> dict[str, list[tuple[int, float, float]]]:
    """Accelerators held in each pool, and from when until when; nothing where no job may be put
    off, for then nobody asks."""
    found: dict[str, list[tuple[int, float, float]]] = defaultdict(list)
    if any(job.defer_h for job in problem.jobs):
        jobs, pools = {j.id: j for j in problem.jobs}, {p.name: p for p in problem.pools}
        where = Geography(problem)
        for item in plan.assignments:
            job, pool = jobs[item.job], pool_of(pools[item.pool], item)
            taken = item.count * job.gang_accelerators
            found[item.pool].append((taken, *hours_held(where, job, pool)))
    return found


def alone(problem: Problem, job: Job, pool: Pool) -> Problem:
    """The problem of one copy of one job in one pool; and in those beside it, where it is a gang
    that may lie in several, or might if it said so."""
    cluster = next(c for c in problem.clusters if c.name == pool.cluster)
    beside = _beside(problem, job, pool)
    here = job.current_pool == pool.name
    asked = replace(job, count=1, current_pool=pool.name if here else None)
    return replace(
        problem,
        jobs=(asked if pool.starts_h else replace(asked, defer_h=0.0),),
        pools=(pool, *beside),
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


def _beside(problem: Problem, job: Job, pool: Pool) -> tuple[Pool, ...]:
    if job.replicas == 1 or job.topology is not Topology.CLUSTER or pool.queue_of:
        return ()
    others = [
        other
        for other in problem.pools
        if other.name != pool.name
        and (other.cluster, other.accelerator) == (pool.cluster, pool.accelerator)
        and other.unusable is None
    ]
    if job.several_pools:
        return tuple(others)
    return tuple(replace(other, queue=None, unusable=ONLY_TOGETHER) for other in others)


def nodes_closed_to(job: Job, left: Problem, plan: Plan) -> Problem:
    """What a plan leaves, without the nodes where a job has replicas that keep apart."""
    if not job.one_per_node:
        return left
    closed: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for fill in plan.fills:
        if any(name == job.id for name, _ in fill.contents):
            closed[fill.pool].append((fill.first_node, fill.first_node + fill.nodes))
    return replace(
        left,
        pools=tuple(
            replace(pool, nodes=_closed(pool, closed[pool.name])) if pool.name in closed else pool
            for pool in left.pools
        ),
    )


def _closed(pool: Pool, spans: list[tuple[int, int]]) -> tuple[NodeGroup, ...]:
    """The nodes of a pool, with nothing free on some of them; no group lies on both sides."""
    found: list[NodeGroup] = []
    first = 0
    for group in pool.nodes:
        taken = any(start <= first < end for start, end in spans)
        found.append(replace(group, free_accelerators=0) if taken else group)
        first += group.count
    return tuple(found)


def without_its_places(problem: Problem, plan: Plan, job: Job) -> Job:
    """The job, closed to the clusters where a plan has as many copies of it, or of its group, as
    may be."""
    if job.spread_max_per_cluster is None and job.apart is None and job.apart_region is None:
        return job
    groups = {other.id: (other.apart, other.apart_region) for other in problem.jobs}
    regions = {cluster.name: cluster.region for cluster in problem.clusters}
    clusters = {pool.name: pool.cluster for pool in problem.pools}
    own: Counter[str] = Counter()
    closed = dict(job.excluded)
    for item in plan.assignments:
        cluster = clusters[item.pool]
        own[cluster] += item.count if item.job == job.id else 0
        if job.apart is not None and groups[item.job][0] == job.apart:
            closed.setdefault(cluster, kept_apart(cluster, job.apart))
        if job.apart_region is not None and groups[item.job][1] == job.apart_region:
            for near in (name for name in regions if regions[name] == regions[cluster]):
                closed.setdefault(near, kept_out_of_region(near, job.apart_region))
    most = job.spread_max_per_cluster
    for cluster, copies in own.items():
        if most is not None and copies >= most:
            closed.setdefault(cluster, spread_out(cluster, most))
    return replace(job, excluded=closed)


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
