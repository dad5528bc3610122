"""Why copies of a class wait: what stands against each pool once a plan is in place, and the one
reason that is told."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from broker.decide.case import Case
from broker.decide.greedy import Floor
from broker.decide.shapes import amount_of, fits, room_of
from broker.decide.terms import Geography, refusals
from broker.model.problem import Job, NodeGroup, Pool
from federation.refusals import Refusal, RefusalCode

MOST_POOLS = 30
"""Pools that are looked at for the one reason, where not many classes wait."""
LEAST_POOLS = 2

_NEAREST_FIRST = (
    RefusalCode.VALUE_BELOW_COST,
    RefusalCode.NOT_CHOSEN,
    RefusalCode.TENANT_QUOTA,
    RefusalCode.CLUSTER_QUOTA,
    RefusalCode.NO_CAPACITY,
    RefusalCode.NO_CPUS,
    RefusalCode.NO_MEMORY,
    RefusalCode.CAPACITY_STALE,
    RefusalCode.CAPACITY_UNKNOWN,
    RefusalCode.CLUSTER_UNREACHABLE,
    RefusalCode.MAINTENANCE,
    RefusalCode.PAUSED,
    RefusalCode.DRAINING,
    RefusalCode.GANG_TOO_LARGE,
    RefusalCode.REPLICA_TOO_LARGE,
)
"""Which reason is told when pools differ: the one nearest to starting. A place that may come back
is nearer than one that is too small or that the job itself rules out; those come last."""


class Reasons:
    """Reasons against one more copy, beside what a floor holds."""

    def __init__(self, case: Case, floor: Floor) -> None:
        self.case = case
        self.floor = floor
        self._where = Geography(case.problem)
        self._weighty = frozenset(case.weighty_classes())
        self._limits = {tenant.name: tenant for tenant in case.problem.tenants}
        self._by_likelihood: dict[Hashable, list[int]] = {}

    def why_waiting(self, k: int, most_pools: int = MOST_POOLS) -> Refusal:
        """The one reason that is told for a class with copies left, after looking at up to so many
        pools: the cheapest that could take it, or the likeliest where none could."""
        case = self.case
        first, last = int(case.options.first[k]), int(case.options.first[k + 1])
        found: list[Refusal] = []
        for option in range(first, min(last, first + most_pools)):
            found += self._against(k, int(case.options.pool_index[option]), option)[:1]
        if first == last:
            for pool in self._likeliest(case.classes[k].job)[:most_pools]:
                found += self._against(k, pool, None)[:1]
        if not found:
            return Refusal(RefusalCode.NO_CLUSTERS, "federation", "a pool", "none")
        return min(found, key=distance)

    def against(self, k: int, pool_index: int) -> list[Refusal]:
        """All that stands against one more copy of a class in a pool. Never empty: a copy that
        could start there was not chosen."""
        return self._against(k, pool_index, self._option(k, pool_index))

    def _against(self, k: int, pool_index: int, option: int | None) -> list[Refusal]:
        job = self.case.classes[k].job
        pool = self.case.problem.pools[pool_index]
        found = [] if option is not None else list(refusals(self._where, job, pool))
        if found:
            return found
        sizes = _too_large(job, pool) or self._full(k, pool_index, option)
        found = [*self._quotas(job, pool), *sizes]
        if not found and option is not None:
            found = self._not_worth(option, job, pool)
        return found or [Refusal(RefusalCode.NOT_CHOSEN, pool.name)]

    def _likeliest(self, job: Job) -> list[int]:
        """Pools by how much of what is asked for they have, the most first."""
        pools = self.case.problem.pools
        if len(pools) <= MOST_POOLS:
            return list(range(len(pools)))
        asked = (frozenset(job.accelerators), job.regions)
        known = self._by_likelihood.get(asked)
        if known is not None:
            return known

        def missing(index: int) -> int:
            pool = pools[index]
            allowed = job.regions is None or self._where.region(pool) in job.regions
            return (pool.accelerator not in job.accelerators) + (not allowed)

        found = sorted(range(len(pools)), key=missing)
        self._by_likelihood[asked] = found
        return found

    def _option(self, k: int, pool_index: int) -> int | None:
        options = self.case.options
        first, last = int(options.first[k]), int(options.first[k + 1])
        at = np.flatnonzero(options.pool_index[first:last] == pool_index)
        return first + int(at[0]) if len(at) else None

    def _quotas(self, job: Job, pool: Pool) -> Iterator[Refusal]:
        tenant = self._limits.get(job.tenant)
        if tenant is None:
            return
        gang = job.gang_accelerators
        limits = (
            (RefusalCode.TENANT_QUOTA, tenant.quota_accelerators, tenant.name, None),
            (
                RefusalCode.CLUSTER_QUOTA,
                tenant.cluster_quota.get(pool.cluster),
                f"{tenant.name} in {pool.cluster}",
                pool.cluster,
            ),
        )
        for code, limit, subject, cluster in limits:
            if limit is None:
                continue
            used = self.floor.accelerators_used(tenant.name, cluster)
            if used + gang > limit:
                has = f"{max(0, limit - used)} left of the quota"
                advice = f"{used + gang - limit} more of quota"
                yield Refusal(code, subject, counted(gang, "accelerator"), has, advice)

    def _full(self, k: int, pool_index: int, option: int | None) -> list[Refusal]:
        """What is free now and not enough."""
        job = self.case.classes[k].job
        pool = self.case.problem.pools[pool_index]
        found: list[Refusal] = []
        size = job.accelerators_per_replica
        nodes = self.floor.nodes[pool_index]
        if nodes is None or option is None:
            free = places(job, pool.nodes)
        else:
            free = nodes.capacity(int(self.case.kind[option]))
        if free < job.replicas:
            needed = f"{job.replicas} x {size} free"
            missing = counted(job.replicas - free, "more place")
            advice = f"{missing} of {counted(size, 'accelerator')}"
            code = RefusalCode.NO_CAPACITY
            found.append(Refusal(code, pool.name, needed, f"{free} x {size}", advice))
        for code, need, left, unit in (
            (RefusalCode.NO_CPUS, job.replica_cpus, self.floor.cpus_left(pool_index), "cpus"),
            (
                RefusalCode.NO_MEMORY,
                job.replica_memory_gib,
                self.floor.memory_left(pool_index),
                "GiB",
            ),
        ):
            if need * job.replicas > left:
                needed = f"{need * job.replicas:g} {unit}"
                advice = f"{need * job.replicas - left:.4g} more {unit}"
                has = f"{max(0.0, left):.4g} {unit}"
                found.append(Refusal(code, pool.name, needed, has, advice))
        return found

    def _not_worth(self, option: int, job: Job, pool: Pool) -> list[Refusal]:
        case = self.case
        k = int(case.options.class_index[option])
        reward, cost = float(case.reward_usd[k]), float(case.options.cost_usd[option])
        if k in self._weighty or reward > cost:
            return []
        advice = f"worth it from {cost:.2f} USD a copy"
        needed, has = f"{cost:.2f} USD a copy", f"a value of {reward:.2f} USD"
        return [Refusal(RefusalCode.VALUE_BELOW_COST, pool.name, needed, has, advice)]


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural where it has to be."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def places(job: Job, nodes: Sequence[NodeGroup]) -> int:
    """Replicas of a job that fit on some nodes with nothing else on them."""
    need = amount_of(job)
    return sum(group.count * fits(need, room_of(group)) for group in nodes)


def _too_large(job: Job, pool: Pool) -> list[Refusal]:
    """Whether the pool would be too small with nothing running at all."""
    size = job.accelerators_per_replica
    if size > pool.accelerators_per_node:
        needed, has = f"{size} accelerators on one node", f"{pool.accelerators_per_node}"
        return [Refusal(RefusalCode.REPLICA_TOO_LARGE, pool.name, needed, has)]
    if not pool.when_empty:
        return []
    most = places(job, pool.when_empty)
    if most == 0:
        largest = max(group.free_accelerators for group in pool.when_empty)
        needed = f"{size} accelerators, {job.replica_cpus:g} cpus and "
        needed += f"{job.replica_memory_gib:g} GiB on one node"
        has = f"nodes of at most {largest} accelerators"
        return [Refusal(RefusalCode.REPLICA_TOO_LARGE, pool.name, needed, has)]
    if most < job.replicas:
        needed, has = f"{job.replicas} x {size} accelerators", f"{most} x {size} when empty"
        return [Refusal(RefusalCode.GANG_TOO_LARGE, pool.name, needed, has)]
    return []


def distance(refusal: Refusal) -> tuple[int, str]:
    """How far a reason is from a start: the nearest is the one that is told."""
    if refusal.code in _NEAREST_FIRST:
        return (_NEAREST_FIRST.index(refusal.code), "")
    return (len(_NEAREST_FIRST), refusal.code.value)
