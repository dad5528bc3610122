"""What a tenant may have placed over all clusters."""

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
    counted,
    takes_of_quota,
)
from broker.decide.pairs import Floats, PairFigures
from broker.decide.violations import ViolationKind
from broker.model.problem import Problem
from federation.refusals import Refusal, RefusalCode


def _most(pairs: PairFigures) -> Floats:
    rows = pairs.rows
    found: Floats = pairs.by_row(np.floor(rows.room.tenant_quota[rows.room.tenant] / rows.gang))
    return found


def _check(placed: Placed) -> Iterator[str]:
    used: dict[str, int] = defaultdict(int)
    for share in placed.shares:
        used[share.job.tenant] += share.accelerators
    for tenant in placed.problem.tenants:
        quota = tenant.quota_accelerators
        if quota is not None and used[tenant.name] > quota:
            yield f"{tenant.name}: {used[tenant.name]} accelerators of {quota}"


def _refusals(beside: Beside) -> Iterator[Refusal]:
    if beside.tenant is not None and beside.tenant.quota_accelerators is not None:
        name, quota = beside.tenant.name, beside.tenant.quota_accelerators
        yield from short(beside, RefusalCode.TENANT_QUOTA, name, quota, None)


def short(
    beside: Beside, code: RefusalCode, subject: str, quota: int, cluster: str | None
) -> Iterator[Refusal]:
    """What one more copy lacks of a quota, in one cluster or (None) in all."""
    gang, used = beside.job.gang_accelerators, beside.used(cluster)
    if used + gang > quota:
        has = f"{max(0, quota - used)} left of the quota"
        advice = f"{used + gang - quota} more of quota"
        yield Refusal(code, subject, counted(gang, "accelerator"), has, advice)


def _undo(problem: Problem, refusal: Refusal) -> tuple[Problem, Change] | None:
    job = problem.jobs[0]
    needed = job.gang_accelerators
    for index, tenant in enumerate(problem.tenants):
        if tenant.name == job.tenant:
            missing = needed - (tenant.quota_accelerators or 0)
            wider = replace(tenant, quota_accelerators=needed)
            tenants = (*problem.tenants[:index], wider, *problem.tenants[index + 1 :])
            what = f"{missing} more of quota for {tenant.name}"
            change = Change(refusal.code, what, "", "", float(missing))
            return replace(problem, tenants=tenants), change
    return None


TENANT_QUOTA = SharedConstraint(
    "tenant quota",
    frozenset({RefusalCode.TENANT_QUOTA}),
    ViolationKind.QUOTA,
    _most,
    _check,
    _refusals,
    _undo,
    same_for=takes_of_quota,
)
