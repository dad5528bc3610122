"""Why copies of a class wait: what stands against each pool once a plan is in place, and the one
reason that is told."""

from __future__ import annotations

from collections.abc import Iterator

from broker.decide.case import Case
from broker.decide.greedy import Floor
from broker.decide.terms import Geography, refusals
from broker.model.problem import Job, Pool
from federation.refusals import Refusal, RefusalCode

_OPTIONS_LOOKED_AT = 30
"""Cheapest pools that are looked at for the one reason."""

_NEAREST_FIRST = (
    RefusalCode.VALUE_BELOW_COST,
    RefusalCode.NOT_CHOSEN,
    RefusalCode.TENANT_QUOTA,
    RefusalCode.CLUSTER_QUOTA,
    RefusalCode.NO_CAPACITY,
    RefusalCode.NO_CPUS,
    RefusalCode.NO_MEMORY,
    RefusalCode.GANG_TOO_LARGE,
    RefusalCode.REPLICA_TOO_LARGE,
)
"""Which reason is told when pools differ: the one nearest to starting. Others come after these."""


class Reasons:
    """Reasons against one more copy, beside what a floor holds."""

    def __init__(self, case: Case, floor: Floor) -> None:
        self.case = case
        self.floor = floor
        self._where = Geography(case.problem)
        self._option = {
            pair: index
            for index, pair in enumerate(
                zip(
                    case.options.class_index.tolist(), case.options.pool_index.tolist(), strict=True
                )
            )
        }
        self._limits = {tenant.name: tenant for tenant in case.problem.tenants}

    def why_waiting(self, k: int) -> Refusal:
        """The one reason that is told for a class with copies left."""
        case = self.case
        first, last = int(case.options.first[k]), int(case.options.first[k + 1])
        pools = [int(p) for p in case.options.pool_index[first:last][:_OPTIONS_LOOKED_AT]]
        if not pools:
            pools = list(range(len(case.problem.pools)))
        found = [refusal for pool in pools for refusal in self.against(k, pool)[:1]]
        if not found:
            return Refusal(RefusalCode.NO_CLUSTERS, "federation", "a pool", "none")
        return min(found, key=_distance)

    def against(self, k: int, pool_index: int) -> list[Refusal]:
        """All that stands against one more copy of a class in a pool; empty never: a copy that
        could start there was not chosen."""
        job = self.case.classes[k].job
        pool = self.case.problem.pools[pool_index]
        found = list(refusals(self._where, job, pool))
        if found:
            return found
        found = [*self._quotas(job, pool), *self._sizes(job, pool)]
        option = self._option.get((k, pool_index))
        if option is not None:
            found += self._full(option, job, pool)
            found += [] if found else self._not_worth(option, job, pool)
        return found or [Refusal(RefusalCode.NOT_CHOSEN, pool.name)]

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
                has = f"{max(0, limit - used)} of {limit} accelerators"
                advice = f"{used + gang - limit} more accelerators of quota"
                yield Refusal(code, subject, f"{gang} accelerators", has, advice)

    def _sizes(self, job: Job, pool: Pool) -> Iterator[Refusal]:
        """Whether even an empty pool would be too small."""
        size = job.accelerators_per_replica
        nodes = pool.when_empty or pool.nodes
        largest = max((group.free_accelerators for group in nodes if group.count), default=0)
        if size > max(largest, 0):
            unit = "free accelerators on one node"
            code = RefusalCode.REPLICA_TOO_LARGE
            if pool.when_empty or size > pool.accelerators_per_node:
                yield Refusal(code, pool.name, f"{size} {unit}", f"{largest}")
            else:
                code = RefusalCode.NO_CAPACITY
                yield Refusal(code, pool.name, f"{size} {unit}", f"{largest}")
            return
        total = sum(group.count * group.free_accelerators for group in nodes)
        if job.gang_accelerators > total:
            code = RefusalCode.GANG_TOO_LARGE if pool.when_empty else RefusalCode.NO_CAPACITY
            needed = f"{job.gang_accelerators} free accelerators"
            yield Refusal(code, pool.name, needed, f"{total}")

    def _full(self, option: int, job: Job, pool: Pool) -> Iterator[Refusal]:
        floor = self.floor
        pool_index = int(self.case.options.pool_index[option])
        nodes = floor.nodes[pool_index]
        kind = int(self.case.kind[option])
        free = 0 if nodes is None else nodes.capacity(kind)
        if free < job.replicas:
            size = job.accelerators_per_replica
            needed = f"{job.replicas} x {size} free accelerators"
            advice = f"{job.replicas - free} more places of {size} accelerators"
            yield Refusal(RefusalCode.NO_CAPACITY, pool.name, needed, f"{free} x {size}", advice)
        for code, need, left, unit in (
            (RefusalCode.NO_CPUS, job.replica_cpus, floor.cpus_left(pool_index), "cpus"),
            (RefusalCode.NO_MEMORY, job.replica_memory_gib, floor.memory_left(pool_index), "GiB"),
        ):
            if need * job.replicas > left:
                needed = f"{need * job.replicas:g} {unit}"
                advice = f"{need * job.replicas - left:.4g} more {unit}"
                yield Refusal(code, pool.name, needed, f"{max(0.0, left):.4g} {unit}", advice)

    def _not_worth(self, option: int, job: Job, pool: Pool) -> list[Refusal]:
        case = self.case
        k = int(case.options.class_index[option])
        reward, cost = float(case.reward_usd[k]), float(case.options.cost_usd[option])
        if k in case.weighty_classes() or reward > cost:
            return []
        advice = f"worth it from {cost:.2f} USD a copy"
        needed, has = f"{cost:.2f} USD a copy", f"a value of {reward:.2f} USD"
        return [Refusal(RefusalCode.VALUE_BELOW_COST, pool.name, needed, has, advice)]


def _distance(refusal: Refusal) -> tuple[int, str]:
    if refusal.code in _NEAREST_FIRST:
        return (_NEAREST_FIRST.index(refusal.code), "")
    return (len(_NEAREST_FIRST), refusal.code.value)
