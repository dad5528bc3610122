"""Changes of the world for a what-if, applied to a planning problem. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from broker.decide.strict_json import did_you_mean
from broker.model.problem import Cluster, Job, Pool, Problem, Tenant
from federation.refusals import Refusal, RefusalCode


class UnknownTarget(ValueError):
    """A change names what the problem does not have: `name`, and what is known."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        super().__init__(f"no {kind} {name!r}{did_you_mean(name, sorted(known))}")
        self.name = name


@dataclass(frozen=True, slots=True)
class PriceChange:
    """Another price for the pools of `target` (a pool, a cluster, a region or a model): `usd` per
    accelerator and hour, or the price there is times `factor`."""

    target: str
    usd: float | None = None
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """Another quota of a tenant, over all clusters or in one; `accelerators` None = no limit."""

    tenant: str
    accelerators: int | None
    cluster: str | None = None


@dataclass(frozen=True, slots=True)
class Changes:
    """What is changed. `drain` and `lose` name clusters or regions: those drained take nothing new,
    those lost take nothing and what runs there has to go elsewhere."""

    drain: tuple[str, ...] = ()
    lose: tuple[str, ...] = ()
    prices: tuple[PriceChange, ...] = ()
    quotas: tuple[QuotaChange, ...] = ()


def changed(problem: Problem, changes: Changes) -> Problem:
    """The problem of the changed world. Raises `UnknownTarget`."""
    for price in changes.prices:
        problem = _priced(problem, price)
    for quota in changes.quotas:
        problem = replace(problem, tenants=with_quota(problem.tenants, quota, problem.clusters))
    lost = clusters_named(problem, changes.lose)
    drained = clusters_named(problem, changes.drain) - lost
    pools = tuple(
        replace(pool, unusable=_reason(RefusalCode.CLUSTER_UNREACHABLE, pool.cluster, "lost"))
        if pool.cluster in lost
        else pool
        for pool in problem.pools
    )
    return replace(problem, pools=pools, jobs=_kept_out(problem, drained))


def clusters_named(problem: Problem, targets: Iterable[str]) -> frozenset[str]:
    """The clusters that are, or lie in, what is named. Raises `UnknownTarget`."""
    found: set[str] = set()
    for target in targets:
        named = {c.name for c in problem.clusters if target in (c.name, c.region)}
        if not named:
            known = {c.name for c in problem.clusters} | {c.region for c in problem.clusters}
            raise UnknownTarget("cluster or region", target, known)
        found |= named
    return frozenset(found)


def with_quota(
    tenants: tuple[Tenant, ...], change: QuotaChange, clusters: Iterable[Cluster]
) -> tuple[Tenant, ...]:
    """The tenants with another quota of one of them; one not listed had none. Raises
    `UnknownTarget` for a cluster that is not there."""
    names = [cluster.name for cluster in clusters]
    if change.cluster is not None and change.cluster not in names:
        raise UnknownTarget("cluster", change.cluster, names)
    listed = {tenant.name: tenant for tenant in tenants}
    tenant = listed.get(change.tenant, Tenant(change.tenant))
    if change.cluster is None:
        tenant = replace(tenant, quota_accelerators=change.accelerators)
    else:
        quotas = {k: n for k, n in tenant.cluster_quota.items() if k != change.cluster}
        if change.accelerators is not None:
            quotas[change.cluster] = change.accelerators
        tenant = replace(tenant, cluster_quota=quotas)
    return tuple({**listed, change.tenant: tenant}.values())


def _priced(problem: Problem, change: PriceChange) -> Problem:
    regions = {cluster.name: cluster.region for cluster in problem.clusters}

    def meant(pool: Pool) -> bool:
        names = (pool.name, pool.cluster, regions[pool.cluster], pool.accelerator)
        return change.target in names

    if not any(meant(pool) for pool in problem.pools):
        known = {p.name for p in problem.pools} | {p.accelerator for p in problem.pools}
        raise UnknownTarget("pool, cluster, region or model", change.target, known | set(regions))
    return replace(
        problem,
        pools=tuple(
            _repriced(pool, change)
            if meant(pool)
            else pool
            for pool in problem.pools
        ),
    )


def _repriced(pool: Pool, change: PriceChange) -> Pool:
    """The pool at another price: `usd` holds at any hour, a factor for each hour's own."""
    if change.usd is not None:
        return replace(pool, price_usd_per_accelerator_hour=change.usd, prices=())
    usd = pool.price_usd_per_accelerator_hour * change.factor
    hours = tuple(
        replace(w, price_usd_per_accelerator_hour=w.price_usd_per_accelerator_hour * change.factor)
        for w in pool.prices
    )
    return replace(pool, price_usd_per_accelerator_hour=usd, prices=hours)


def _kept_out(problem: Problem, drained: frozenset[str]) -> tuple[Job, ...]:
    """The jobs, kept out of clusters that are drained, but for copies that run there."""
    if not drained:
        return problem.jobs
    cluster_of = {pool.name: pool.cluster for pool in problem.pools}
    closed = {name: _reason(RefusalCode.DRAINING, name, "drained") for name in sorted(drained)}
    shared: dict[tuple[int, str | None], Mapping[str, Refusal]] = {}
    jobs = []
    for job in problem.jobs:
        here = cluster_of.get(job.current_pool or "")
        key = (id(job.excluded), here if here in drained else None)
        if key not in shared:
            new = {name: why for name, why in closed.items() if name != here}
            shared[key] = {**new, **job.excluded}
        jobs.append(replace(job, excluded=shared[key]))
    return tuple(jobs)


def _reason(code: RefusalCode, subject: str, what: str) -> Refusal:
    return Refusal(code, subject, available=f"what if: {what}")
