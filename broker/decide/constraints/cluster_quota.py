"""What a tenant may have placed in one cluster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from broker.decide.constraints.constraint import (
    Beside,
    Change,
    Placed,
    SharedConstraint,
    takes_of_quota,
)
from broker.decide.constraints.tenant_quota import short
from broker.decide.pairs import Floats, PairFigures
from broker.decide.violations import ViolationKind
from broker.model.problem import Problem
from federation.refusals import Refusal, RefusalCode


def _most(pairs: PairFigures) -> Floats:
    room = pairs.rows.room
    if not np.isfinite(room.cluster_quota).any():
        return np.full(1, np.inf)
    quota = room.cluster_quota[pairs.by_row(room.tenant), pairs.cluster]
    found: Floats = np.floor(quota / pairs.gang)
    return found


def _check(placed: Placed) -> Iterator[str]:
    used: dict[tuple[str, str], int] = defaultdict(int)
    for share in placed.shares:
        used[share.job.tenant, share.pool.cluster] += share.accelerators
    for tenant in placed.problem.tenants:
        for cluster, quota in tenant.cluster_quota.items():
            amount = used[tenant.name, cluster]
            if amount > quota:
                yield f"{tenant.name} in {cluster}: {amount} accelerators of {quota}"


def _refusals(beside: Beside) -> Iterator[Refusal]:
    cluster = beside.pool.cluster
    if beside.tenant is not None and cluster in beside.tenant.cluster_quota:
        quota = beside.tenant.cluster_quota[cluster]
        subject = f"{beside.tenant.name} in {cluster}"
        yield from short(beside, RefusalCode.CLUSTER_QUOTA, subject, quota, cluster)


def _undo(problem: Problem, refusal: Refusal) -> tuple[Problem, Change] | None:
    job, cluster = problem.jobs[0], problem.pools[0].cluster
    needed = job.gang_accelerators
    for index, tenant in enumerate(problem.tenants):
        if tenant.name == job.tenant:
            missing = needed - tenant.cluster_quota.get(cluster, 0)
            quotas = {**tenant.cluster_quota, cluster: needed}
            wider = replace(tenant, cluster_quota=quotas)
            tenants = (*problem.tenants[:index], wider, *problem.tenants[index + 1 :])
            what = f"{missing} more of quota for {tenant.name} in {cluster}"
            change = Change(refusal.code, what, "", "", float(missing))
            return replace(problem, tenants=tenants), change
    return None


CLUSTER_QUOTA = SharedConstraint(
    "cluster quota",
    frozenset({RefusalCode.CLUSTER_QUOTA}),
    ViolationKind.QUOTA,
    _most,
    _check,
    _refusals,
    _undo,
    same_for=takes_of_quota,
)
