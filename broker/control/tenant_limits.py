"""What tenants may still take: quotas less what they hold, and what they may borrow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from broker.decide.admission.quotas import Allowances, Quota
from broker.model import problem as pm
from broker.model.fleet import TenantPolicy
from broker.model.jobs import Attempt

Held = Mapping[str, Mapping[str, int]]


def tenants_of(
    tenants: Mapping[str, TenantPolicy],
    attempts: Mapping[str, Sequence[Attempt]],
    limits: Mapping[str, int] | None,
) -> tuple[pm.Tenant, ...]:
    """The tenants of a problem. `limits`: what they may still take in all, as admission says
    (None: their quotas, and what they may borrow while nobody else wants anything)."""
    held = held_by(attempts)
    if limits is None:
        limits = _allowed(tenants.values(), held)
    return tuple(
        _tenant(policy, held.get(name, {}), limits.get(name))
        for name, policy in sorted(tenants.items())
    )


def held_by(attempts: Mapping[str, Sequence[Attempt]]) -> dict[str, dict[str, int]]:
    """Accelerators that attempts hold, by tenant and cluster, superseded ones left out."""
    held: dict[str, dict[str, int]] = {}
    for cluster, of_cluster in attempts.items():
        for attempt in of_cluster:
            if attempt.counts:
                by_cluster = held.setdefault(attempt.tenant, {})
                by_cluster[cluster] = by_cluster.get(cluster, 0) + attempt.accelerators
    return held


def quotas_of(tenants: Iterable[TenantPolicy]) -> list[Quota]:
    """The quotas of tenants, in the order of their names."""
    return [
        Quota(p.name, p.quota_accelerators, p.cohort, p.borrow_accelerators)
        for p in sorted(tenants, key=lambda p: p.name)
    ]


def _allowed(tenants: Iterable[TenantPolicy], held: Held) -> dict[str, int]:
    quotas = quotas_of(tenants)
    in_all = {tenant: sum(by_cluster.values()) for tenant, by_cluster in held.items()}
    room = Allowances.of(quotas, in_all, {})
    return {q.tenant: room.room(q.tenant) for q in quotas if q.accelerators is not None}


def _tenant(policy: TenantPolicy, held: Mapping[str, int], most: int | None) -> pm.Tenant:
    return pm.Tenant(
        name=policy.name,
        weight=policy.weight,
        quota_accelerators=most,
        cluster_quota={
            c: max(n - held.get(c, 0), 0) for c, n in sorted(policy.cluster_quota.items())
        },
    )
