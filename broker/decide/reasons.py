"""Why copies of a class wait: what stands against each pool once a plan is in place, and the one
reason that is told."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from functools import cached_property

import numpy as np

from broker.decide.case import Case
from broker.decide.constraints import SHARED_CONSTRAINTS, refusals
from broker.decide.constraints.constraint import Beside
from broker.decide.constraints.node_shape import too_large
from broker.decide.constraints.several_pools import ONLY_TOGETHER
from broker.decide.greedy import Floor
from broker.decide.shapes import places
from broker.decide.terms import Geography
from broker.model.problem import Cluster, Job, Pool
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
    RefusalCode.NO_EXTRAS,
    RefusalCode.SPREAD_LIMIT,
    RefusalCode.KEPT_APART,
    RefusalCode.REGION_TAKEN,
    RefusalCode.NODES_TAKEN,
    RefusalCode.RACK_TOO_SMALL,
    RefusalCode.POOL_TOO_SMALL,
    RefusalCode.QUEUE_FULL,
    RefusalCode.LATER_FULL,
    RefusalCode.DEFERRED,
    RefusalCode.CAPACITY_STALE,
    RefusalCode.CAPACITY_UNKNOWN,
    RefusalCode.CLUSTER_UNREACHABLE,
    RefusalCode.MAINTENANCE,
    RefusalCode.PAUSED,
    RefusalCode.DRAINING,
    RefusalCode.TOPOLOGY,
    RefusalCode.GANG_TOO_LARGE,
    RefusalCode.REPLICA_TOO_LARGE,
)
"""Which reason is told when pools differ: the one nearest to starting. A place that may come back
is nearer than one that is too small or that the job itself rules out; those come last."""


class Reasons:
    """Reasons against one more copy, beside what a floor holds by now."""

    def __init__(self, case: Case, floor: Floor) -> None:
        self.case = case
        self.floor = floor
        self._where = Geography(case.problem)
        self._weighty = frozenset(case.weighty_classes())
        self._limits = {tenant.name: tenant for tenant in case.problem.tenants}
        self._used = floor.accelerators_used()
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
                found.append(self._first_against(k, pool))
        silent = unheard(self._where, case.classes[k].job)
        found += [against[0] for _, against in silent if len(against) == 1]
        if not found:
            return Refusal(RefusalCode.NO_CLUSTERS, "federation", "a pool", "none")
        return min(found, key=distance)

    def against(self, k: int, pool_index: int) -> list[Refusal]:
        """All that stands against one more copy of a class in a pool. Never empty: a copy that
        could start there was not chosen."""
        return self._against(k, pool_index, self._option(k, pool_index))

    def _first_against(self, k: int, pool_index: int) -> Refusal:
        """The same where the pair is no option, the first reason alone."""
        job, pool = self.case.classes[k].job, self.case.problem.pools[pool_index]
        first = next(refusals(self._where, job, pool), None)
        return self._against(k, pool_index, None)[0] if first is None else first

    def _against(self, k: int, pool_index: int, option: int | None) -> list[Refusal]:
        job = self.case.classes[k].job
        pool = self.case.problem.pools[pool_index]
        found = [] if option is not None else list(refusals(self._where, job, pool))
        if found:
            return found
        beside = self._beside(k, pool_index, option)
        found = [refusal for shared in SHARED_CONSTRAINTS for refusal in shared.refusals(beside)]
        if not found and option is not None:
            found = self._not_worth(option, job, pool)
        return found or [Refusal(RefusalCode.NOT_CHOSEN, pool.name)]

    def _likeliest(self, job: Job) -> list[int]:
        """Pools by how much of what is asked for they have, the most first."""
        pools = self.case.problem.pools
        if len(pools) <= MOST_POOLS:
            return [index for index, pool in enumerate(pools) if not pool.stands_in_parts]
        asked = (frozenset(job.accelerators), job.regions)
        known = self._by_likelihood.get(asked)
        if known is not None:
            return known
        regions = job.regions
        by_missing: list[list[int]] = [[], [], []]
        for (accelerator, region), some in self._sorts.items():
            allowed = regions is None or region in regions
            by_missing[(accelerator not in job.accelerators) + (not allowed)] += some
        found: list[int] = []
        for some in by_missing:
            if len(found) < MOST_POOLS:
                found += sorted(some)
        self._by_likelihood[asked] = found
        return found

    @cached_property
    def _sorts(self) -> dict[tuple[str, str], list[int]]:
        """Pools by accelerator and region."""
        found: dict[tuple[str, str], list[int]] = defaultdict(list)
        for index, pool in enumerate(self.case.problem.pools):
            if not pool.stands_in_parts:
                found[pool.accelerator, self._where.region(pool)].append(index)
        return found

    def _option(self, k: int, pool_index: int) -> int | None:
        options = self.case.options
        first, last = int(options.first[k]), int(options.first[k + 1])
        at = np.flatnonzero(options.pool_index[first:last] == pool_index)
        return first + int(at[0]) if len(at) else None

    def _beside(self, k: int, pool_index: int, option: int | None) -> Beside:
        """One more copy of a class in a pool, and what is left for it there."""
        job, floor = self.case.classes[k].job, self.floor
        pool = self.case.problem.pools[pool_index]
        nodes = floor.nodes[pool_index]
        if nodes is None or option is None:
            free = places(job, pool.nodes)
        else:
            free = nodes.capacity(int(self.case.kind[option]))
        return Beside(
            job=job,
            pool=pool,
            tenant=self._limits.get(job.tenant),
            places=free,
            cpus=floor.cpus_left(pool_index),
            memory_gib=floor.memory_left(pool_index),
            used=lambda cluster: self._used.get((job.tenant, cluster), 0),
            too_large=too_large(job, pool),
            left={} if option is None else floor.tallies.left(option),
            elsewhere=self._elsewhere(job, pool) if free < job.replicas else 0,
        )

    def _elsewhere(self, job: Job, pool: Pool) -> int:
        """Places for a gang in the other pools of the cluster that have the same accelerator."""
        if job.replicas == 1:
            return 0
        home, alike = pool.part_of or pool.name, (pool.cluster, pool.accelerator)
        return sum(
            places(job, other.nodes)
            for other in self._by_cluster.get(alike, ())
            if (other.part_of or other.name) != home and other.unusable in (None, ONLY_TOGETHER)
        )

    @cached_property
    def _by_cluster(self) -> dict[tuple[str, str], list[Pool]]:
        """Pools by cluster and accelerator."""
        found: dict[tuple[str, str], list[Pool]] = defaultdict(list)
        for pool in self.case.problem.pools:
            if not pool.queue_of:
                found[pool.cluster, pool.accelerator].append(pool)
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


def unheard(where: Geography, job: Job) -> Iterator[tuple[Cluster, tuple[Refusal, ...]]]:
    """Clusters of which it is not known what they have, each with all that stands against the job
    there: what would rule it out whatever they had first."""
    for cluster in where.unheard:
        might = Pool(
            name=cluster.name,
            cluster=cluster.name,
            accelerator=next(iter(job.accelerators)),
            price_usd_per_accelerator_hour=0.0,
            accelerators_per_node=job.accelerators_per_replica,
            nodes=(),
            spot=job.spot_ok,
            unusable=cluster.unknown,
        )
        first, *others = refusals(where, job, might)
        yield cluster, (*others, first)


def distance(refusal: Refusal) -> tuple[int, str]:
    """How far a reason is from a start: the nearest is the one that is told."""
    if refusal.code in _NEAREST_FIRST:
        return (_NEAREST_FIRST.index(refusal.code), "")
    return (len(_NEAREST_FIRST), refusal.code.value)
