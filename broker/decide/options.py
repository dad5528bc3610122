"""Which class may go to which pool, what a copy costs there, and how many fit at most: all
pairs at once, as arrays. Pairs that can never be used do not become options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from broker.decide.classes import JobClass
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


def build_options(problem: Problem, classes: Sequence[JobClass]) -> Options:
    """All options of a problem; shapes and order as in `Options`."""
    pools = _PoolColumns(problem)
    block = max(1, _BLOCK_PAIRS // max(1, len(problem.pools)))
    parts = []
    for start in range(0, len(classes) if problem.pools else 0, block):
        rows = _ClassRows(problem, classes[start : start + block], pools)
        parts.append(_block_options(rows, pools, start))
    if not parts:
        parts.append((np.empty(0, np.int64),) * 2 + (np.empty(0), np.empty(0, np.int64)))
    class_index, pool_index, cost, most = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    first = np.searchsorted(class_index, np.arange(len(classes) + 1))
    return Options(class_index, pool_index, cost, most, first.astype(np.int64))


class _PoolColumns:
    """One entry per pool."""

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
        self.spot = np.array([pool.spot for pool in pools], dtype=np.bool_)
        self.usable = np.array([pool.unusable is None for pool in pools], dtype=np.bool_)
        self.delay_s = _floats(problem.clusters[i].start_delay_s for i in self.cluster.tolist())
        self.cpus = _floats(_limit(pool.free_cpus) for pool in pools)
        self.memory = _floats(_limit(pool.free_memory_gib) for pool in pools)


class _ClassRows:
    """One row per class of a block; matrices are (classes, pools) unless said otherwise."""

    def __init__(self, problem: Problem, classes: Sequence[JobClass], pools: _PoolColumns) -> None:
        jobs = [item.job for item in classes]
        self.problem = problem
        self.jobs = jobs
        self.count = _floats(item.count for item in classes)
        self.gang = _floats(job.gang_accelerators for job in jobs)
        self.replicas = _floats(job.replicas for job in jobs)
        self.speed = _floats(
            job.accelerators.get(model, 0.0) for job in jobs for model in pools.models
        ).reshape(len(jobs), len(pools.models))[:, pools.model]
        self.current = _integers(
            -1 if job.current_pool is None else pools.index[job.current_pool] for job in jobs
        )
        self.stays = self.current[:, None] == np.arange(len(pools.pools))[None, :]
        self.rtt_ms = self._regional(problem.rtt_ms, [job.user_region for job in jobs], pools)
        rate = self._regional(problem.egress_usd_per_gb, [j.data_region for j in jobs], pools)
        self.egress = np.where(self.stays, 0.0, _column(jobs, "input_gb") * rate)
        self.cold_s = np.where(self.stays, 0.0, self._cold_start_s(pools))
        self.delay_s = np.where(self.stays, 0.0, pools.delay_s[None, :])

    def _regional(
        self,
        table: Sequence[Sequence[float]],
        starts: Sequence[str | None],
        pools: _PoolColumns,
    ) -> Floats:
        shape = (len(starts), len(pools.pools))
        if not table or not shape[1]:
            return np.zeros(shape)
        names = {name: i for i, name in enumerate(self.problem.regions)}
        rows = np.vstack([np.asarray(table, dtype=np.float64), np.zeros((1, len(table)))])
        index = [len(table) if name is None else names[name] for name in starts]
        return rows[index][:, pools.region]

    def _cold_start_s(self, pools: _PoolColumns) -> Floats:
        images = sorted({job.image for job in self.jobs if job.image is not None})
        rows = np.empty((len(images) + 1, len(self.problem.clusters)))
        for column, cluster in enumerate(self.problem.clusters):
            known = cluster.cold_start_s
            fallback = known.get("*", 0.0)
            rows[:-1, column] = [known.get(image, fallback) for image in images]
            rows[-1, column] = fallback
        where = {image: i for i, image in enumerate(images)}
        index = [len(images) if job.image is None else where[job.image] for job in self.jobs]
        return rows[index][:, pools.cluster]

    def allowed_regions(self, pools: _PoolColumns) -> Booleans:
        """Where residency lets a class go."""
        regions = self.problem.regions
        allowed = np.ones((len(self.jobs), len(regions)), dtype=np.bool_)
        for row, job in enumerate(self.jobs):
            if job.regions is not None:
                allowed[row] = [name in job.regions for name in regions]
        mask = allowed[:, pools.region]
        for row, job in enumerate(self.jobs):
            if job.excluded:
                mask[row] &= [pool.cluster not in job.excluded for pool in pools.pools]
        return mask


def _block_options(
    rows: _ClassRows, pools: _PoolColumns, start: int
) -> tuple[Integers, Integers, Floats, Integers]:
    jobs = rows.jobs
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        hours = _column(jobs, "runtime_h") / rows.speed
        rate = rows.gang[:, None] * pools.price[None, :]
        compute = np.where(rate > 0, rate * hours, 0.0)
        start_h = (rows.cold_s + rows.delay_s) / 3600
        moved = (rows.current[:, None] >= 0) & ~rows.stays
        moving = _column(jobs, "migration_usd") + _column(jobs, "lost_work_usd")
        cost = (
            compute
            + rate * rows.cold_s / 3600
            + rows.egress
            + _column(jobs, "latency_usd_per_ms") * rows.rtt_ms
            + _column(jobs, "value_of_time_usd_per_h") * start_h
            + np.where(moved, moving, 0.0)
        )
        fine = (
            (rows.speed > 0)
            & (_column(jobs, "spot_ok").astype(np.bool_) | ~pools.spot[None, :])
            & pools.usable[None, :]
            & rows.allowed_regions(pools)
            & (rows.rtt_ms <= _limits(jobs, "max_rtt_ms"))
            & (hours + start_h <= _limits(jobs, "deadline_h"))
            & (compute + rows.egress <= _limits(jobs, "budget_usd"))
            & (pools.price[None, :] <= _limits(jobs, "max_price_usd_per_accelerator_hour"))
        )
    most = np.minimum(_most_copies(rows, pools), rows.count[:, None])
    fine &= (most >= 1) & np.isfinite(cost)
    row, pool = np.nonzero(fine)
    cost, most = cost[row, pool], most[row, pool]
    order = np.lexsort((pool, cost, row))
    return (
        (row[order] + start).astype(np.int64),
        pool[order].astype(np.int64),
        cost[order],
        np.minimum(most[order], 2.0**53).astype(np.int64),
    )


def _most_copies(rows: _ClassRows, pools: _PoolColumns) -> Floats:
    """(classes, pools): copies that fit were there nothing else, by nodes, totals and
    quotas."""
    jobs = rows.jobs
    kinds, kind_of = _kinds(jobs)
    slots = np.stack([_slots(pool, kinds) for pool in pools.pools], axis=1)
    most = np.floor(slots[kind_of] / rows.replicas[:, None])
    cpus = _floats(job.replica_cpus * job.replicas for job in jobs)
    memory = _floats(job.replica_memory_gib * job.replicas for job in jobs)
    for need, limit in ((cpus, pools.cpus), (memory, pools.memory)):
        most = np.minimum(most, _times(limit[None, :], need[:, None]))
    return np.minimum(most, _quota_copies(rows, pools))


def _kinds(jobs: Sequence[Job]) -> tuple[Floats, Integers]:
    """Distinct (accelerators, cpus, memory) of a replica as (kinds, 3), and the kind of each
    job."""
    index: dict[tuple[float, float, float], int] = {}
    kind_of = [
        index.setdefault(
            (job.accelerators_per_replica, job.replica_cpus, job.replica_memory_gib), len(index)
        )
        for job in jobs
    ]
    return np.array(list(index), dtype=np.float64).reshape(-1, 3), _integers(kind_of)


def _slots(pool: Pool, kinds: Floats) -> Floats:
    """(kinds,): replicas of each kind that fit on the free nodes of a pool."""
    total = np.zeros(len(kinds))
    for group in pool.nodes:
        fit = np.floor(group.free_accelerators / kinds[:, 0])
        for column, limit in ((1, group.free_cpus), (2, group.free_memory_gib)):
            if limit is not None:
                fit = np.minimum(fit, _times(np.float64(limit), kinds[:, column]))
        total += group.count * fit
    return total


def _quota_copies(rows: _ClassRows, pools: _PoolColumns) -> Floats:
    """(classes, pools): copies the tenant's quotas allow."""
    tenants = {tenant.name: tenant for tenant in rows.problem.tenants}
    cluster_names = [cluster.name for cluster in rows.problem.clusters]
    limits: dict[str, Floats] = {}
    for name in {job.tenant for job in rows.jobs}:
        tenant = tenants.get(name)
        total = np.inf if tenant is None else _limit(tenant.quota_accelerators)
        limits[name] = np.full(len(cluster_names), total)
        if tenant is not None:
            for column, cluster in enumerate(cluster_names):
                quota = _limit(tenant.cluster_quota.get(cluster))
                limits[name][column] = min(limits[name][column], quota)
    per_cluster = np.array([limits[job.tenant] for job in rows.jobs])
    per_cluster = per_cluster.reshape(len(rows.jobs), len(cluster_names))
    return np.floor(per_cluster[:, pools.cluster] / rows.gang[:, None])


def _times(limit: Any, need: Floats) -> Floats:
    """How many times a need fits in a limit, with the slack; for ever where nothing is
    needed."""
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.floor(limit * (1 + SLACK) / need)
    return np.where(need > 0, times, np.inf)


def _column(jobs: Sequence[Job], name: str) -> Floats:
    return _floats(getattr(job, name) for job in jobs)[:, None]


def _limits(jobs: Sequence[Job], name: str) -> Floats:
    return _floats(_limit(getattr(job, name)) * (1 + SLACK) for job in jobs)[:, None]


def _limit(figure: float | None) -> float:
    return np.inf if figure is None else float(figure)


def _floats(values: Any) -> Floats:
    return np.array(list(values), dtype=np.float64)


def _integers(values: Any) -> Integers:
    return np.array(list(values), dtype=np.int64)
