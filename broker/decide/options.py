"""Which class may go to which pool, what a copy costs there, and how many fit at most: all
pairs at once, as arrays. Pairs that can never be used do not become options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from broker.decide.classes import JobClass
from broker.decide.shapes import amount_of
from broker.decide.terms import SLACK
from broker.model.problem import Job, Pool, Problem

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Table = Sequence[Sequence[float]]

_BLOCK_PAIRS = 500_000
"""Pairs looked at together: bounds the memory of the temporaries."""


@dataclass(frozen=True, slots=True)
class Options:
    """Usable pairs, by class, within a class by cost and then by pool. All arrays have one
    entry per option except `first`, which has one per class and one more: the options of class
    k are `first[k]:first[k + 1]`. `cost_usd` is for one copy, `most` the copies that could go
    there were the pool and the tenant's quotas used for nothing else."""

    class_index: Integers
    pool_index: Integers
    cost_usd: Floats
    most: Integers
    first: Integers

    def __len__(self) -> int:
        return len(self.class_index)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of class and pool that may go together whatever is free there, as in `Options`. They
    depend on no count, nodes, totals or quotas: what changes from one decision to the next."""

    class_index: Integers
    pool_index: Integers
    cost_usd: Floats
    first: Integers


def price_pairs(problem: Problem, classes: Sequence[JobClass]) -> Pairs:
    """All pairs of a problem, in the order of `Options`."""
    pools = _PoolColumns(problem)
    block = min(2**16, max(1, _BLOCK_PAIRS // max(1, len(problem.pools))))
    parts = [(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))]
    for start in range(0, len(classes) if problem.pools else 0, block):
        rows = _ClassRows(problem, classes[start : start + block], pools)
        parts.append(_block_pairs(rows, pools, start))
    class_index, pool_index, cost = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    return Pairs(class_index, pool_index, cost, starts_of(class_index, len(classes)))


def build_options(problem: Problem, classes: Sequence[JobClass], pairs: Pairs) -> Options:
    """The pairs in which at least one copy has room."""
    limits, pools = _Limits(problem, classes), _PoolColumns(problem)
    most = np.empty(len(pairs.class_index), dtype=np.int64)
    for start in range(0, len(most), _BLOCK_PAIRS):
        part = slice(start, start + _BLOCK_PAIRS)
        copies = limits.most_copies(pools, pairs.class_index[part], pairs.pool_index[part])
        most[part] = np.clip(copies, 0.0, 2.0**53)
    used = np.flatnonzero(most)
    class_index = pairs.class_index[used]
    first = starts_of(class_index, len(classes))
    return Options(class_index, pairs.pool_index[used], pairs.cost_usd[used], most[used], first)


def starts_of(class_index: Integers, classes: int) -> Integers:
    """Where the entries of each class start in an ascending list, and where the last ones end."""
    return np.searchsorted(class_index, np.arange(classes + 1)).astype(np.int64)


class _PoolColumns:
    """One entry per pool. Pools alike in model, region and price kind share a `sort`; one entry
    per sort in `sort_model`, `sort_region` and `sort_spot`."""

    def __init__(self, problem: Problem) -> None:
        clusters = {cluster.name: i for i, cluster in enumerate(problem.clusters)}
        region_index = {name: i for i, name in enumerate(problem.regions)}
        pools = problem.pools
        self.pools = pools
        self.index = {pool.name: i for i, pool in enumerate(pools)}
        self.models = sorted({pool.accelerator for pool in pools})
        model_index = {name: i for i, name in enumerate(self.models)}
        self.model = _integers(model_index[pool.accelerator] for pool in pools)
        self.cluster = _integers(clusters[pool.cluster] for pool in pools)
        self.region = _integers(
            region_index[problem.clusters[i].region] for i in self.cluster.tolist()
        )
        self.price = _floats(pool.price_usd_per_accelerator_hour for pool in pools)
        self.usable = np.array([pool.unusable is None for pool in pools], dtype=np.bool_)
        self.delay_s = _floats(problem.clusters[i].start_delay_s for i in self.cluster.tolist())
        self.cpus = _floats(_limit(pool.free_cpus) for pool in pools)
        self.memory = _floats(_limit(pool.free_memory_gib) for pool in pools)
        spot = [pool.spot for pool in pools]
        keys = list(zip(self.model.tolist(), self.region.tolist(), spot, strict=True))
        sorts = {key: i for i, key in enumerate(dict.fromkeys(keys))}
        self.sort = _integers(sorts[key] for key in keys)
        self.sort_model = _integers(model for model, _, _ in sorts)
        self.sort_region = _integers(region for _, region, _ in sorts)
        self.sort_spot = np.array([spot for _, _, spot in sorts], dtype=np.bool_)


class _Limits:
    """What nodes, totals and quotas hold were there nothing else: `slots` is (kinds, pools) in
    replicas, where a kind is (accelerators, cpus, memory) of a replica; `quotas` is (tenants,
    clusters) in accelerators, with a last row without limits."""

    def __init__(self, problem: Problem, classes: Sequence[JobClass]) -> None:
        jobs = [item.job for item in classes]
        amounts = [amount_of(job) for job in jobs]
        kinds = {amount: i for i, amount in enumerate(dict.fromkeys(amounts))}
        self._kind = _integers(kinds[amount] for amount in amounts)
        figures = np.array(list(kinds), dtype=np.float64).reshape(-1, 3)
        self._slots = np.zeros((len(kinds), len(problem.pools)))
        for index, pool in enumerate(problem.pools):
            self._slots[:, index] = _slots(pool, figures)
        tenants = {tenant.name: i for i, tenant in enumerate(problem.tenants)}
        clusters = {cluster.name: i for i, cluster in enumerate(problem.clusters)}
        self._quotas = np.full((len(tenants) + 1, len(clusters)), np.inf)
        for row, tenant in enumerate(problem.tenants):
            self._quotas[row] = _limit(tenant.quota_accelerators)
            for name, quota in tenant.cluster_quota.items():
                column = clusters.get(name)
                if column is not None:
                    self._quotas[row, column] = min(self._quotas[row, column], quota)
        self._tenant = _integers(tenants.get(job.tenant, len(tenants)) for job in jobs)
        self._count = _floats(item.count for item in classes)
        self._gang = _floats(job.gang_accelerators for job in jobs)
        self._replicas = _floats(job.replicas for job in jobs)
        self._cpus = _floats(job.replica_cpus * job.replicas for job in jobs)
        self._memory = _floats(job.replica_memory_gib * job.replicas for job in jobs)

    def most_copies(self, pools: _PoolColumns, k: Integers, pool: Integers) -> Floats:
        """For each pair of class and pool the copies that fit were there nothing else."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            most = np.floor(self._slots[self._kind[k], pool] / self._replicas[k])
            for need, limit in ((self._cpus, pools.cpus), (self._memory, pools.memory)):
                if np.isfinite(limit).any():
                    most = np.minimum(most, _times(limit[pool], need[k]))
            quota = self._quotas[self._tenant[k], pools.cluster[pool]]
            found: Floats = np.minimum(most, np.floor(quota / self._gang[k]))
            return np.minimum(found, self._count[k])


class _ClassRows:
    """One row per class of a block."""

    def __init__(
        self,
        problem: Problem,
        classes: Sequence[JobClass],
        pools: _PoolColumns,
    ) -> None:
        jobs = [item.job for item in classes]
        self.problem = problem
        self.jobs = jobs
        self.gang = _floats(job.gang_accelerators for job in jobs)
        self.speed = _floats(
            job.accelerators.get(model, 0.0) for job in jobs for model in pools.models
        ).reshape(len(jobs), len(pools.models))
        self.current = _integers(
            -1 if job.current_pool is None else pools.index[job.current_pool] for job in jobs
        )
        self.rtt_ms = self._regional(problem.rtt_ms, [job.user_region for job in jobs])
        rate = self._regional(problem.egress_usd_per_gb, [job.data_region for job in jobs])
        self.egress = _column(jobs, "input_gb")[:, None] * rate
        self.cold_s, self.image = self._cold_starts()

    def _regional(self, table: Table, starts: Sequence[str | None]) -> Floats:
        """(classes, regions): a figure of the table from where each class starts, else 0."""
        names = {name: i for i, name in enumerate(self.problem.regions)}
        if not table:
            return np.zeros((len(starts), len(names)))
        rows = np.vstack([np.asarray(table, dtype=np.float64), np.zeros((1, len(table)))])
        found: Floats = rows[[len(table) if name is None else names[name] for name in starts]]
        return found

    def _cold_starts(self) -> tuple[Floats, Integers]:
        """(images, clusters) in seconds, and the row of each class in it."""
        images = sorted({job.image for job in self.jobs if job.image is not None})
        rows = np.empty((len(images) + 1, len(self.problem.clusters)))
        for column, cluster in enumerate(self.problem.clusters):
            known = cluster.cold_start_s
            fallback = known.get("*", 0.0)
            rows[:-1, column] = [known.get(image, fallback) for image in images]
            rows[-1, column] = fallback
        where = {image: i for i, image in enumerate(images)}
        return rows, _integers(
            len(images) if job.image is None else where[job.image] for job in self.jobs
        )

    def allowed(self, pools: _PoolColumns) -> Booleans:
        """(classes, pools): where model, price kind, residency, round trip and exclusions let a
        class go."""
        regions = self._regions() & (self.rtt_ms <= _limits(self.jobs, "max_rtt_ms")[:, None])
        spot_ok = np.array([job.spot_ok for job in self.jobs], dtype=np.bool_)
        sorts = (
            (self.speed > 0)[:, pools.sort_model]
            & regions[:, pools.sort_region]
            & (spot_ok[:, None] | ~pools.sort_spot[None, :])
        )
        mask: Booleans = sorts[:, pools.sort] & pools.usable[None, :]
        for row, job in enumerate(self.jobs):
            if job.excluded:
                mask[row] &= [pool.cluster not in job.excluded for pool in pools.pools]
        return mask

    def _regions(self) -> Booleans:
        """(classes, regions): where residency lets a class go."""
        regions = self.problem.regions
        known: dict[tuple[str, ...] | None, list[bool]] = {None: [True] * len(regions)}
        for job in self.jobs:
            if job.regions not in known:
                named = frozenset(job.regions or ())
                known[job.regions] = [name in named for name in regions]
        found = [known[job.regions] for job in self.jobs]
        return np.array(found, dtype=np.bool_).reshape(len(self.jobs), len(regions))


def _block_pairs(
    rows: _ClassRows, pools: _PoolColumns, start: int
) -> tuple[Integers, Integers, Floats]:
    row, pool = np.nonzero(rows.allowed(pools))
    cost, fine = _costs(rows, pools, row, pool)
    fine &= np.isfinite(cost)
    row, pool, cost = row[fine], pool[fine], cost[fine]
    order = np.argsort(cost, kind="stable")
    # Rows of a block fit 16 bits, which sort by radix.
    order = order[np.argsort(row[order].astype(np.uint16), kind="stable")]
    return (row[order] + start).astype(np.int64), pool[order].astype(np.int64), cost[order]


def _costs(
    rows: _ClassRows, pools: _PoolColumns, row: Integers, pool: Integers
) -> tuple[Floats, Booleans]:
    """USD of one copy for each pair, and whether time and money allow it."""
    jobs = rows.jobs
    stays = rows.current[row] == pool
    moved = (rows.current[row] >= 0) & ~stays
    region, cluster, price = pools.region[pool], pools.cluster[pool], pools.price[pool]
    moving = _column(jobs, "migration_usd") + _column(jobs, "lost_work_usd")
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        hours = _column(jobs, "runtime_h")[row] / rows.speed[row, pools.model[pool]]
        rate = rows.gang[row] * price
        compute = np.where(rate > 0, rate * hours, 0.0)
        egress = np.where(stays, 0.0, rows.egress[row, region])
        cold_s = np.where(stays, 0.0, rows.cold_s[rows.image[row], cluster])
        start_h = (cold_s + np.where(stays, 0.0, pools.delay_s[pool])) / 3600
        cost = (
            compute
            + rate * cold_s / 3600
            + egress
            + _column(jobs, "latency_usd_per_ms")[row] * rows.rtt_ms[row, region]
            + _column(jobs, "value_of_time_usd_per_h")[row] * start_h
            + np.where(moved, moving[row], 0.0)
        )
        fine = (
            (hours + start_h <= _limits(jobs, "deadline_h")[row])
            & (compute + egress <= _limits(jobs, "budget_usd")[row])
            & (price <= _limits(jobs, "max_price_usd_per_accelerator_hour")[row])
        )
    return cost, fine


def _slots(pool: Pool, kinds: Floats) -> Floats:
    """(kinds,): replicas of each kind that fit on the free nodes of a pool."""
    total = np.zeros(len(kinds))
    for group in pool.nodes:
        fit = group.free_accelerators // kinds[:, 0]
        for column, limit in ((1, group.free_cpus), (2, group.free_memory_gib)):
            if limit is not None:
                fit = np.minimum(fit, _times(np.float64(limit), kinds[:, column]))
        total += group.count * fit
    return total


def _times(limit: Any, need: Floats) -> Floats:
    """How many times a need fits in a limit, with the slack; for ever where nothing is
    needed."""
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.floor(limit * (1 + SLACK) / need)
    return np.where(need > 0, times, np.inf)


def _column(jobs: Sequence[Job], name: str) -> Floats:
    return _floats(getattr(job, name) for job in jobs)


def _limits(jobs: Sequence[Job], name: str) -> Floats:
    return _floats(_limit(getattr(job, name)) * (1 + SLACK) for job in jobs)


def _limit(figure: float | None) -> float:
    return np.inf if figure is None else float(figure)


def _floats(values: Any) -> Floats:
    return np.array(list(values), dtype=np.float64)


def _integers(values: Any) -> Integers:
    return np.array(list(values), dtype=np.int64)
