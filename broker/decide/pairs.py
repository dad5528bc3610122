"""Classes and pools as columns of figures, and pairs of them: what the vectorised side of each
constraint and of each cost term is computed from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from broker.decide.classes import JobClass
from broker.decide.shapes import ALONE, amount_of
from broker.decide.terms import SLACK
from broker.model.problem import Job, NodeGroup, Problem

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
_SLOT_BLOCK = 500_000
"""Pairs of kind and group of nodes looked at together."""

Figure = TypeVar("Figure", np.float64, np.int64, np.bool_)
Table = Sequence[Sequence[float]]


class PoolColumns:
    """One entry per pool. Pools alike in model, region and price kind share a `sort` (`of_sort` has
    one of each). `home` is the pool that one is a rack of, or itself."""

    def __init__(self, problem: Problem) -> None:
        clusters = {cluster.name: i for i, cluster in enumerate(problem.clusters)}
        regions = {name: i for i, name in enumerate(problem.regions)}
        pools = problem.pools
        self.pools = pools
        self.index = {pool.name: i for i, pool in enumerate(pools)}
        self.models = sorted({pool.accelerator for pool in pools})
        models = {name: i for i, name in enumerate(self.models)}
        self.model = integers(models[pool.accelerator] for pool in pools)
        self.cluster = integers(clusters[pool.cluster] for pool in pools)
        places = [problem.clusters[i] for i in self.cluster.tolist()]
        self.region = integers(regions[cluster.region] for cluster in places)
        self.home = integers(self.index[pool.part_of or pool.name] for pool in pools)
        self.spot = truths(pool.spot for pool in pools)
        self.price = floats(pool.price_usd_per_accelerator_hour for pool in pools)
        self.node_size = floats(pool.accelerators_per_node for pool in pools)
        self.usable = truths(pool.unusable is None for pool in pools)
        self.delay_s = floats(cluster.start_delay_s for cluster in places)
        self.queued = truths(bool(pool.queue_of) for pool in pools)
        self.later_h = floats(pool.starts_h for pool in pools)
        self.pending = self.queued & (self.later_h == 0)
        queues = [pool.queue for pool in pools]
        self.queue_s = floats(q.start_s if q else 0.0 for q in queues)
        self.waiting_usd = floats(q.waiting_usd_per_accelerator_h if q else 0.0 for q in queues)
        self.max_pending = floats(q.max_pending if q else 0.0 for q in queues)
        figures = attrgetter("from_h", "to_h", "price_usd_per_accelerator_hour")
        self.price_windows = _columns([list(map(figures, pool.prices)) for pool in pools], 3)
        self.maintenance = _columns(
            [[(w.from_h, w.to_h) for w in pool.maintenance] for pool in pools], 2
        )
        self.cpus = floats(limit(pool.free_cpus) for pool in pools)
        self.memory_gib = floats(limit(pool.free_memory_gib) for pool in pools)
        spot, region = self.spot.tolist(), self.region.tolist()
        keys = list(zip(self.model.tolist(), region, spot, strict=True))
        sorts = {key: i for i, key in enumerate(dict.fromkeys(keys))}
        self.sort = integers(sorts[key] for key in keys)
        self.of_sort = integers(keys.index(key) for key in sorts)


class Room:
    """What nodes and quotas hold were there nothing else: `slots` is (kinds, pools) in replicas,
    `kind` has the row of each job in it; `tenant_quota` is (tenants,) and `cluster_quota`
    (tenants, clusters) in accelerators, with a last row for tenants without limits, and `tenant`
    the row of each job in them."""

    def __init__(self, problem: Problem, jobs: Sequence[Job]) -> None:
        amounts = [amount_of(job) for job in jobs]
        kinds = {amount: i for i, amount in enumerate(dict.fromkeys(amounts))}
        self.kind = integers(kinds[amount] for amount in amounts)
        rows = [(*kind[:3], np.inf if len(kind) < ALONE else 1.0) for kind in kinds]
        figures = np.array(rows, dtype=np.float64).reshape(-1, 4)
        self.slots = _slots([pool.nodes for pool in problem.pools], figures)
        self._kinds, self._empty = figures, [pool.when_empty for pool in problem.pools]
        tenants = {tenant.name: i for i, tenant in enumerate(problem.tenants)}
        self.tenant = integers(tenants.get(job.tenant, len(tenants)) for job in jobs)
        clusters = {cluster.name: i for i, cluster in enumerate(problem.clusters)}
        quotas = [limit(tenant.quota_accelerators) for tenant in problem.tenants]
        self.tenant_quota = floats([*quotas, np.inf])
        self.cluster_quota = np.full((len(tenants) + 1, len(clusters)), np.inf)
        for row, tenant in enumerate(problem.tenants):
            for name, quota in tenant.cluster_quota.items():
                if name in clusters:
                    self.cluster_quota[row, clusters[name]] = quota

    @cached_property
    def empty_slots(self) -> Floats:
        """(jobs, pools): replicas that fit with nothing running, where that is known."""
        return _slots(self._empty, self._kinds)[self.kind]


class ClassRows:
    """One row per class of some. What is asked for is worked out once."""

    def __init__(
        self, problem: Problem, classes: Sequence[JobClass], pools: PoolColumns
    ) -> None:
        self.problem = problem
        self.classes = classes
        self.jobs = [item.job for item in classes]
        self.pools = pools
        self.count = floats(item.count for item in classes)
        self.by_member = any(job.members > 1 for job in self.jobs)

    def some(self, rows: Sequence[int]) -> ClassRows:
        """A few of the rows, by index."""
        return ClassRows(self.problem, [self.classes[row] for row in rows], self.pools)

    @cached_property
    def room(self) -> Room:
        """What nodes and quotas hold for them."""
        return Room(self.problem, self.jobs)

    @cached_property
    def gang(self) -> Floats:
        """Accelerators of a copy."""
        return self.column("gang_accelerators")

    @cached_property
    def speed(self) -> Floats:
        """(classes, models): 0 where a job does not run."""
        models = self.pools.models
        speeds = floats(job.accelerators.get(name, 0.0) for job in self.jobs for name in models)
        return speeds.reshape(len(self.jobs), len(models))

    @cached_property
    def current(self) -> Integers:
        """Index of the pool where a job runs now, -1 for none."""
        index = self.pools.index
        return integers(
            -1 if job.current_pool is None else index[job.current_pool] for job in self.jobs
        )

    @cached_property
    def rtt_ms(self) -> Floats:
        """(classes, regions): round trip from a job's users."""
        return self._regional(self.problem.rtt_ms, [job.user_region for job in self.jobs])

    @cached_property
    def input(self) -> tuple[Floats, Floats]:
        """(classes, regions): USD and hours of bringing the input of a copy there, from where that
        is cheapest, then soonest."""
        regions, problem = len(self.problem.regions), self.problem
        names = {name: i for i, name in enumerate(problem.regions)}
        usd = np.array(problem.egress_usd_per_gb or np.zeros((regions, regions)))
        gbps = np.array(problem.bandwidth_gbps or np.zeros((regions, regions)))
        hours = np.divide(8 / 3600, gbps, out=np.zeros_like(gbps), where=gbps > 0)
        known = {sources: i for i, sources in enumerate({job.data_sources for job in self.jobs})}
        best = np.zeros((2, len(known), regions))
        for sources, row in known.items():
            if sources:
                at = [names[name] for name in sources]
                first = np.lexsort((hours[at], usd[at]), axis=0)[0]
                ends = np.arange(regions)
                best[:, row] = usd[at][first, ends], hours[at][first, ends]
        rows = integers(known[job.data_sources] for job in self.jobs)
        amount = self.column("input_gb")[:, None]
        return amount * best[0][rows], amount * best[1][rows]

    def column(self, name: str) -> Floats:
        """A figure of the jobs by its name, one per class."""
        return floats(map(attrgetter(name), self.jobs))

    def limits(self, name: str) -> Floats:
        """A limit of the jobs by its name, with the slack; infinite where there is none."""
        return floats(map(limit, map(attrgetter(name), self.jobs))) * (1 + SLACK)

    def _regional(self, table: Table, starts: Sequence[str | None]) -> Floats:
        """(classes, regions): a figure of the table from where each class starts, else 0."""
        names = {name: i for i, name in enumerate(self.problem.regions)}
        if not table:
            return np.zeros((len(starts), len(names)))
        rows = np.vstack([np.asarray(table, dtype=np.float64), np.zeros((1, len(table)))])
        found: Floats = rows[[len(table) if name is None else names[name] for name in starts]]
        return found

    @cached_property
    def cold_s(self) -> tuple[Floats, Integers]:
        """(images, clusters) in seconds, and the row of each class in it."""
        images = sorted({job.image for job in self.jobs if job.image is not None})
        rows = np.empty((len(images) + 1, len(self.problem.clusters)))
        for column, cluster in enumerate(self.problem.clusters):
            known = cluster.cold_start_s
            fallback = known.get("*", 0.0)
            rows[:-1, column] = [known.get(image, fallback) for image in images]
            rows[-1, column] = fallback
        where = {image: i for i, image in enumerate(images)}
        return rows, integers(
            len(images) if job.image is None else where[job.image] for job in self.jobs
        )


class PairFigures:
    """Pairs of a row (`row`) and a pool (`pool`): index arrays of one shape and in the order of
    rows, or of shapes that numpy combines: (classes, 1) and (pools,) are all pairs."""

    def __init__(self, rows: ClassRows, row: Integers, pool: Integers) -> None:
        self.rows = rows
        self.pools = rows.pools
        self.row = row
        self.pool = pool
        self._length = np.bincount(row, minlength=len(rows.jobs)) if row.ndim == 1 else None

    def by_row(self, figures: NDArray[Figure]) -> NDArray[Figure]:
        """Figures with one entry per row, per pair."""
        if self._length is None:
            return figures[self.row]
        # Rows stand in order: far quicker than looking each one up.
        return np.repeat(figures, self._length)

    def of_class(self, name: str) -> Floats:
        """A figure of the job by its name, per pair."""
        return self.by_row(self.rows.column(name))

    def limit(self, name: str) -> Floats:
        """A limit of the job by its name, per pair, with the slack."""
        return self.by_row(self.rows.limits(name))

    @cached_property
    def gang(self) -> Floats:
        """Accelerators of a copy."""
        return self.by_row(self.rows.gang)

    @cached_property
    def cluster(self) -> Integers:
        """Index of the pool's cluster."""
        found: Integers = self.pools.cluster[self.pool]
        return found

    @cached_property
    def region(self) -> Integers:
        """Index of the pool's region."""
        found: Integers = self.pools.region[self.pool]
        return found

    @cached_property
    def speed(self) -> Floats:
        """Speed of the job on the pool's model; 0 where it does not run."""
        found: Floats = self.rows.speed[self.row, self.pools.model[self.pool]]
        return found

    @cached_property
    def hours(self) -> Floats:
        """Run time there."""
        return self.of_class("runtime_h") / self.speed

    @cached_property
    def rate_usd(self) -> Floats:
        """USD per hour of a copy."""
        return self.gang * self.price

    @cached_property
    def rtt_ms(self) -> Floats:
        """Round trip from the job's users."""
        found: Floats = self.rows.rtt_ms[self.row, self.region]
        return found

    @cached_property
    def stays(self) -> Booleans:
        """Whether the job runs in the pool now."""
        found: Booleans = self.by_row(self.rows.current) == self.pools.home[self.pool]
        return found

    def if_moved(self, name: str) -> Floats:
        """A figure of the job by its name where it runs in another pool now, else 0."""
        figures = np.where(self.rows.current >= 0, self.rows.column(name), 0.0)
        if not figures.any():
            return np.zeros(1)
        return np.where(self.stays, 0.0, self.by_row(figures))

    @cached_property
    def cold_s(self) -> Floats:
        """Paid seconds before the image runs."""
        table, image = self.rows.cold_s
        return np.where(self.stays, 0.0, table[self.by_row(image), self.cluster])

    @cached_property
    def start_h(self) -> Floats:
        """Hours before a copy runs, paid or not."""
        delay_s = np.where(self.stays, 0.0, self.pools.delay_s[self.pool])
        found: Floats = (self.cold_s + delay_s) / 3600
        if self.pools.queued.any():
            behind_h = (self.pools.delay_s + self.pools.queue_s) / 3600
            found = np.where(self.pools.queued[self.pool], behind_h[self.pool], found)
        return found + self.transfer_h if self.rows.problem.bandwidth_gbps else found

    @cached_property
    def delay_usd_per_h(self) -> Floats:
        """What an hour before a copy runs costs: as the job says, else as the queue it joins
        says."""
        said = self.of_class("value_of_time_usd_per_h")
        if not self.pools.queued.any():
            return said
        usual = self.gang * np.where(self.pools.queued, self.pools.waiting_usd, 0.0)[self.pool]
        return np.where(said > 0, said, usual)

    @cached_property
    def compute_usd(self) -> Floats:
        """USD of the run itself; nothing where the accelerators are free, however long."""
        return np.where(self.rate_usd > 0, self.rate_usd * self.hours, 0.0)

    @cached_property
    def egress_usd(self) -> Floats:
        """USD of bringing the input there."""
        usd = np.where(self.stays, 0.0, self.rows.input[0][self.row, self.region])
        return usd / self.of_class("members") if self.rows.by_member else usd

    @cached_property
    def transfer_h(self) -> Floats:
        """Hours until the input is there."""
        if not self.rows.problem.bandwidth_gbps:
            return np.zeros(1)
        return np.where(self.stays, 0.0, self.rows.input[1][self.row, self.region])

    @cached_property
    def price(self) -> Floats:
        """USD per accelerator hour, on average over the run."""
        base: Floats = self.pools.price[self.pool]
        found = base
        for from_h, to_h, usd in self.pools.price_windows:
            begin = np.maximum(self.start_h, from_h[self.pool])
            inside = np.minimum(self.start_h + self.hours, to_h[self.pool]) - begin
            more = np.maximum(inside, 0.0) / self.hours * (usd[self.pool] - base)
            found = found + np.where(inside > 0, more, 0.0)
        return found


def _columns(rows: Sequence[Sequence[tuple[float, ...]]], width: int) -> list[list[Floats]]:
    """The n-th entries of all rows as columns of figures, for each n; zeros where a row is over."""
    most = max(map(len, rows), default=0)
    table = np.zeros((most, width, len(rows)))
    for index, row in enumerate(rows):
        for n, figures in enumerate(row):
            table[n, :, index] = figures
    return [list(entry) for entry in table]


def times(room: Any, need: Floats) -> Floats:
    """How many times a need fits in a room, with the slack; for ever where nothing is needed."""
    if np.isposinf(room).all():
        return np.full(1, np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.floor(room * (1 + SLACK) / need)
    return np.where(need > 0, found, np.inf)


def limit(figure: float | None) -> float:
    """A limit as a number: infinite where there is none."""
    return np.inf if figure is None else float(figure)


def floats(values: Iterable[Any]) -> Floats:
    """An array of numbers."""
    return np.fromiter(values, dtype=np.float64)


def integers(values: Iterable[Any]) -> Integers:
    """An array of whole numbers."""
    return np.fromiter(values, dtype=np.int64)


def truths(values: Iterable[bool]) -> Booleans:
    """An array of truth values."""
    return np.fromiter(values, dtype=np.bool_)


def _slots(nodes: Sequence[Sequence[NodeGroup]], kinds: Floats) -> Floats:
    """(kinds, pools): replicas of each kind that fit on the nodes of each pool."""
    found = np.zeros((len(kinds), len(nodes)))
    in_use = [index for index, groups in enumerate(nodes) if groups]
    if not in_use:
        return found
    groups = [group for of_pool in nodes for group in of_pool]
    sizes = integers(len(nodes[index]) for index in in_use)
    starts = np.cumsum(sizes) - sizes
    count = floats(group.count for group in groups)
    free = floats(group.free_accelerators for group in groups)
    cpus = floats(limit(group.free_cpus) for group in groups)
    memory_gib = floats(limit(group.free_memory_gib) for group in groups)
    block = max(1, _SLOT_BLOCK // len(groups))
    for first in range(0, len(kinds), block):
        size, need_cpus, need_gib, most = kinds[first : first + block].T[:, :, None]
        fit = np.minimum(free // size, most)
        fit = np.minimum(fit, times(cpus, need_cpus))
        fit = np.minimum(fit, times(memory_gib, need_gib))
        found[first : first + block, in_use] = np.add.reduceat(count * fit, starts, axis=1)
    return found
