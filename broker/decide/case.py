"""A problem made ready for deciding: classes, options, node shapes and quotas, looked up by
index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from broker.decide.classes import JobClass, group_jobs
from broker.decide.options import Floats, Integers, Options, build_options
from broker.decide.shapes import COLUMN_LIMIT, Counting, Shape, amount_of, build_shape
from broker.model.problem import Mode, Problem

Counts = Integers
"""Placed copies, one entry per option."""


@dataclass(frozen=True, slots=True)
class Case:
    """Indices are into `problem.pools`, `classes` and `options`.

    `shapes` has None for pools without an option; `kind[o]` is the kind of option o's replicas
    in its pool. `reward_usd[k]` is what placing one copy of class k is worth beside its
    priority: its value in scalar mode, and the lost work it saves if it runs now.
    `lost_work_usd` is what would be lost were nothing placed.
    """

    problem: Problem
    classes: tuple[JobClass, ...]
    options: Options
    shapes: tuple[Shape | None, ...]
    kind: Integers
    gang: tuple[int, ...]
    reward_usd: Floats
    lost_work_usd: float
    quotas: tuple[Quota, ...]
    quotas_of: Mapping[int, Sequence[int]]

    @property
    def priorities(self) -> list[int]:
        """Priorities of the jobs, from the highest."""
        return sorted({item.job.priority for item in self.classes}, reverse=True)

    def weighty_classes(self) -> list[int]:
        """Classes whose placing comes before any cost: those of place_first that weigh
        something."""
        objective = self.problem.objective
        if objective.mode is not Mode.PLACE_FIRST:
            return []
        weights = objective.weight_per_accelerator
        jobs = enumerate(item.job for item in self.classes)
        return [k for k, job in jobs if weights.get(job.priority, 1.0) > 0]


@dataclass(frozen=True, slots=True)
class Quota:
    """At most `limit` placed accelerators over `options` (indices)."""

    limit: int
    options: tuple[int, ...]


def build_case(problem: Problem) -> Case:
    """Everything the floors, the model and the finishing need."""
    classes = group_jobs(problem.jobs)
    options = build_options(problem, classes)
    amounts = [amount_of(item.job) for item in classes]
    shapes = _shapes(problem, options, amounts)
    kind = [
        shape.kind_of[amounts[k]]
        for k, p in zip(options.class_index.tolist(), options.pool_index.tolist(), strict=True)
        if (shape := shapes[p]) is not None
    ]
    quotas = _quotas(problem, classes, options)
    quotas_of: dict[int, list[int]] = {}
    for index, quota in enumerate(quotas):
        for option in quota.options:
            quotas_of.setdefault(option, []).append(index)
    running = [0.0 if c.job.current_pool is None else c.job.lost_work_usd for c in classes]
    return Case(
        problem=problem,
        classes=classes,
        options=options,
        shapes=shapes,
        kind=np.array(kind, dtype=np.int64),
        gang=tuple(item.job.gang_accelerators for item in classes),
        reward_usd=_values(problem, classes) + np.array(running, dtype=np.float64),
        lost_work_usd=sum(c.count * lost for c, lost in zip(classes, running, strict=True)),
        quotas=quotas,
        quotas_of=quotas_of,
    )


def _shapes(
    problem: Problem, options: Options, amounts: Sequence[tuple[int, float, float]]
) -> tuple[Shape | None, ...]:
    by_pool: list[set[tuple[int, float, float]]] = [set() for _ in problem.pools]
    pairs = zip(options.class_index.tolist(), options.pool_index.tolist(), strict=True)
    for class_index, pool_index in pairs:
        by_pool[pool_index].add(amounts[class_index])
    shapes: list[Shape | None] = []
    columns = COLUMN_LIMIT
    for pool, found in zip(problem.pools, by_pool, strict=True):
        shape = build_shape(pool, sorted(found), columns) if found else None
        if shape is not None and shape.counting is Counting.NODES:
            columns -= len(shape.kinds) * sum(group.count for group in pool.nodes)
        shapes.append(shape)
    return tuple(shapes)


def _values(problem: Problem, classes: Sequence[JobClass]) -> Floats:
    objective = problem.objective
    if objective.mode is not Mode.SCALAR:
        return np.zeros(len(classes))
    values = objective.value_usd_per_accelerator
    worth = [values[item.job.priority] * item.job.gang_accelerators for item in classes]
    return np.array(worth, dtype=np.float64)


def _quotas(problem: Problem, classes: Sequence[JobClass], options: Options) -> tuple[Quota, ...]:
    limited = {tenant.name: tenant for tenant in problem.tenants}
    total: dict[str, list[int]] = {}
    local: dict[tuple[str, str], list[int]] = {}
    pairs = zip(options.class_index.tolist(), options.pool_index.tolist(), strict=True)
    for option, (class_index, pool_index) in enumerate(pairs):
        tenant = limited.get(classes[class_index].job.tenant)
        if tenant is None:
            continue
        if tenant.quota_accelerators is not None:
            total.setdefault(tenant.name, []).append(option)
        cluster = problem.pools[pool_index].cluster
        if cluster in tenant.cluster_quota:
            local.setdefault((tenant.name, cluster), []).append(option)
    found = [
        Quota(limited[name].quota_accelerators or 0, tuple(members))
        for name, members in total.items()
    ]
    found += [
        Quota(limited[name].cluster_quota[cluster], tuple(members))
        for (name, cluster), members in local.items()
    ]
    return tuple(found)
