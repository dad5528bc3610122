"""A problem made ready for deciding: classes, options, node shapes and quotas, looked up by
index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from broker.decide.bundles import Bundles, bundles_of
from broker.decide.classes import JobClass
from broker.decide.constraints import SHARED_CONSTRAINTS
from broker.decide.forms import Forms
from broker.decide.nodes import PLENTY, LevelNodes
from broker.decide.options import Floats, Integers, Options, build_options
from broker.decide.pairs import ClassRows, PairFigures, PoolColumns
from broker.decide.prepared import Prepared, prepare
from broker.decide.shapes import (
    ALONE,
    COLUMN_LIMIT,
    Amount,
    Counting,
    Shape,
    amount_of,
    build_shape,
)
from broker.decide.tallies import Tally
from broker.model.problem import Mode, Pool, Problem

Counts = Integers
"""Placed copies, one entry per option."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Figures of the classes, one entry each: per replica `size` in accelerators, `cpus`,
    `memory_gib`; per copy `replicas` and `gang` accelerators."""

    size: tuple[int, ...]
    cpus: tuple[float, ...]
    memory_gib: tuple[float, ...]
    replicas: tuple[int, ...]
    gang: tuple[int, ...]
    count: tuple[int, ...]
    priority: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Quotas:
    """At most `limit[q]` placed accelerators over all options of quota q. `of_class` has the quota
    of a class's tenant over all clusters, `of_option` that in the cluster of the option; -1 is
    none. `names` are (tenant, cluster), without cluster where all clusters count."""

    limit: tuple[int, ...]
    names: tuple[tuple[str, str | None], ...]
    of_class: Integers
    of_option: Integers


@dataclass(frozen=True, slots=True)
class Case:
    """Indices are into `problem.pools` (a queue is one of them), `classes` and `options`.

    `shapes` has None for pools without an option, `empty` the nodes with nothing placed for those
    that are counted by levels, and `room` (sizes of replicas ascending, pools) how many such
    replicas each pool can take at most; `kind[o]` is the kind of option o's replicas in its pool.
    `reward_usd[k]` is what placing one copy of class k is worth beside its priority: its value in
    scalar mode, and the lost work it saves if it runs now.
    `lost_work_usd` is what would be lost were nothing placed. `forms` are those that the problem
    has instead of what was asked, None where it has none.
    """

    problem: Problem
    classes: tuple[JobClass, ...]
    options: Options
    shapes: tuple[Shape | None, ...]
    empty: tuple[LevelNodes | None, ...]
    room: Integers
    kind: Integers
    facts: Facts
    reward_usd: Floats
    lost_work_usd: float
    quotas: Quotas
    tallies: tuple[Tally, ...]
    bundles: Bundles
    forms: Forms | None = None

    @property
    def gang(self) -> tuple[int, ...]:
        """Accelerators of one copy of each class."""
        return self.facts.gang

    @property
    def priorities(self) -> list[int]:
        """Priorities of the jobs, from the highest."""
        return sorted(set(self.facts.priority), reverse=True)

    def weighty_classes(self) -> list[int]:
        """Classes whose placing comes before any cost: those of place_first that weigh
        something."""
        objective = self.problem.objective
        if objective.mode is not Mode.PLACE_FIRST:
            return []
        weights = objective.weight_per_accelerator
        return [k for k, p in enumerate(self.facts.priority) if weights.get(p, 1.0) > 0]

    def quota_options(self) -> list[list[int]]:
        """The options of each quota."""
        found: list[list[int]] = [[] for _ in self.quotas.limit]
        for quota_of in (self.quotas.of_class[self.options.class_index], self.quotas.of_option):
            for option in np.flatnonzero(quota_of >= 0).tolist():
                found[quota_of[option]].append(option)
        return found


def build_case(problem: Problem, prepared: Prepared | None = None) -> Case:
    """Everything the floors, the model and the finishing need. `prepared` is of this problem."""
    prepared = prepared or prepare(problem)
    problem, classes = prepared.problem, prepared.classes
    rows = ClassRows(problem, classes, PoolColumns(problem))
    options = build_options(rows, prepared.pairs)
    shapes, kind = _shapes(problem, options, [amount_of(item.job) for item in classes])
    jobs = [item.job for item in classes]
    running = [0.0 if job.current_pool is None else job.lost_work_usd for job in jobs]
    empty = tuple(
        LevelNodes(s) if s is not None and s.counting is Counting.LEVELS else None for s in shapes
    )
    return Case(
        problem=problem,
        classes=classes,
        options=options,
        shapes=shapes,
        empty=empty,
        room=_room(sorted({job.accelerators_per_replica for job in jobs}), shapes, empty),
        kind=kind,
        facts=_facts(classes),
        reward_usd=_values(problem, classes) + np.array(running, dtype=np.float64),
        lost_work_usd=sum(
            c.count * lost
            for c, lost in zip(classes, running, strict=True)
            if not c.job.form_of or c.job.form_of == c.job.id
        ),
        quotas=_quotas(problem, classes, options),
        tallies=_tallies(rows, options),
        bundles=bundles_of(problem, classes, options),
        forms=prepared.forms,
    )


def _tallies(rows: ClassRows, options: Options) -> tuple[Tally, ...]:
    pairs = PairFigures(rows, options.class_index, options.pool_index)
    made = [shared.tallies(pairs) for shared in SHARED_CONSTRAINTS if shared.tallies]
    return tuple(tally for some in made for tally in some if len(tally.limit))


def _facts(classes: Sequence[JobClass]) -> Facts:
    jobs = [item.job for item in classes]
    return Facts(
        size=tuple(job.accelerators_per_replica for job in jobs),
        cpus=tuple(job.replica_cpus for job in jobs),
        memory_gib=tuple(job.replica_memory_gib for job in jobs),
        replicas=tuple(job.replicas for job in jobs),
        gang=tuple(job.gang_accelerators for job in jobs),
        count=tuple(item.count for item in classes),
        priority=tuple(job.priority for job in jobs),
    )


def _shapes(
    problem: Problem, options: Options, amount_by_class: Sequence[Amount]
) -> tuple[tuple[Shape | None, ...], Integers]:
    """The shape of each pool, and the kind of each option."""
    distinct = sorted(set(amount_by_class), reverse=True)
    index = {amount: i for i, amount in enumerate(distinct)}
    alone = np.array([len(amount) == ALONE for amount in distinct], dtype=np.bool_)
    amount_id = np.array([index[amount] for amount in amount_by_class], dtype=np.int64)
    of_option = amount_id[options.class_index]
    asked = np.zeros((len(problem.pools), len(distinct)), dtype=np.bool_)
    asked[options.pool_index, of_option] = True
    kinds = np.zeros(asked.shape, dtype=np.int64)
    shapes: list[Shape | None] = []
    known: dict[tuple[bytes, int], tuple[Shape, Integers]] = {}
    columns = COLUMN_LIMIT
    for p, pool in enumerate(problem.pools):
        wanted = np.flatnonzero(asked[p])
        if not len(wanted):
            shapes.append(None)
            continue
        key = (asked[p].tobytes(), pool.accelerators_per_node)
        plain = _only_accelerators(pool) and not alone[wanted].any()
        alike = known.get(key) if plain else None
        if alike is not None:
            shape, row = alike
            shape = Shape(pool, shape.kinds, shape.kind_of, shape.counting, shape.levels)
        else:
            shape = build_shape(pool, [distinct[i] for i in wanted.tolist()], columns)
            row = np.zeros(len(distinct), dtype=np.int64)
            row[wanted] = [shape.kind_of[distinct[i]] for i in wanted.tolist()]
            if plain and shape.counting is Counting.LEVELS:
                known[key] = (shape, row)
        if shape.counting is Counting.NODES:
            columns -= len(shape.kinds) * sum(group.count for group in pool.nodes)
        shapes.append(shape)
        kinds[p] = row
    return tuple(shapes), kinds[options.pool_index, of_option]


def _room(
    sizes: Sequence[int], shapes: Sequence[Shape | None], empty: Sequence[LevelNodes | None]
) -> Integers:
    """`Case.room`; pools that are not counted by levels are looked at when asked."""
    columns = [
        [0 if shape is None else PLENTY] * len(sizes) if nodes is None else nodes.room(sizes)
        for shape, nodes in zip(shapes, empty, strict=True)
    ]
    return np.array(columns, dtype=np.int64).reshape(len(columns), len(sizes)).T.copy()


def _only_accelerators(pool: Pool) -> bool:
    """Whether nothing but accelerators is limited on any node."""
    return all(g.free_cpus is None and g.free_memory_gib is None for g in pool.nodes)


def _values(problem: Problem, classes: Sequence[JobClass]) -> Floats:
    objective = problem.objective
    if objective.mode is not Mode.SCALAR:
        return np.zeros(len(classes))
    values = objective.value_usd_per_accelerator
    worth = [values[item.job.priority] * item.job.gang_accelerators for item in classes]
    return np.array(worth, dtype=np.float64)


def _quotas(problem: Problem, classes: Sequence[JobClass], options: Options) -> Quotas:
    clusters = {cluster.name: i for i, cluster in enumerate(problem.clusters)}
    tenants = {tenant.name: i for i, tenant in enumerate(problem.tenants)}
    limit: list[int] = []
    names: list[tuple[str, str | None]] = []
    total = np.full(len(tenants) + 1, -1, dtype=np.int64)
    local = np.full((len(tenants) + 1, len(clusters)), -1, dtype=np.int64)
    for row, tenant in enumerate(problem.tenants):
        if tenant.quota_accelerators is not None:
            total[row] = len(limit)
            limit.append(tenant.quota_accelerators)
            names.append((tenant.name, None))
        for name, quota in tenant.cluster_quota.items():
            if name in clusters:
                local[row, clusters[name]] = len(limit)
                limit.append(quota)
                names.append((tenant.name, name))
    rows = [tenants.get(item.job.tenant, len(tenants)) for item in classes]
    tenant_of = np.array(rows, dtype=np.int64)
    places = [clusters[pool.cluster] for pool in problem.pools]
    cluster_of = np.array(places, dtype=np.int64)
    return Quotas(
        limit=tuple(limit),
        names=tuple(names),
        of_class=total[tenant_of],
        of_option=local[tenant_of[options.class_index], cluster_of[options.pool_index]],
    )
