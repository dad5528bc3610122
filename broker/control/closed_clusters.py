"""Why a cluster is closed to one job, by what the job says and what the cluster is. Pure."""

from __future__ import annotations

from broker.model.fleet import ClusterView
from broker.model.jobs import Job
from broker.model.policies import ISOLATION_GRADES
from federation.jobs import JobSpec
from federation.refusals import Refusal, RefusalCode
from federation.units import format_duration

ISOLATION_RANK = {grade: rank for rank, grade in enumerate(ISOLATION_GRADES)}


def not_named(spec: JobSpec, view: ClusterView) -> Refusal | None:
    """Whether the job names other clusters, or avoids this one."""
    name, region = view.identity.name, view.identity.region
    place = spec.placement
    if place.clusters and name not in place.clusters:
        return Refusal(
            RefusalCode.CLUSTER_NOT_ALLOWED,
            name,
            needed=f"one of {', '.join(place.clusters)}",
            advice=f"add {name} to placement.clusters",
        )
    if name in place.avoid or region in place.avoid:
        return Refusal(
            RefusalCode.CLUSTER_NOT_ALLOWED,
            name,
            available="the job avoids it",
            advice=f"remove {name if name in place.avoid else region} from placement.avoid",
        )
    return None


def not_trusted(job: Job, spec: JobSpec, view: ClusterView) -> Refusal | None:
    """Whether the cluster does not take the tenant, or cannot run the job as it must be."""
    identity = view.identity
    if identity.tenants and job.tenant not in identity.tenants:
        return Refusal(
            RefusalCode.TENANT_NOT_ALLOWED,
            identity.name,
            available=f"does not take jobs of tenant {job.tenant}",
        )
    if view.capacity is None:
        return None  # never heard of: what it can is as unknown as what it has
    wanted = spec.resources.isolation
    if wanted and ISOLATION_RANK[wanted] > ISOLATION_RANK.get(identity.isolation, 0):
        return Refusal(RefusalCode.ISOLATION_TOO_WEAK, identity.name, wanted, identity.isolation)
    if spec.image and "images" not in identity.capabilities:
        return Refusal(
            RefusalCode.UNSUPPORTED,
            identity.name,
            needed=f"a site that runs images (for {spec.image})",
            available=f"scheduler {identity.scheduler or 'unknown'} without images",
        )
    return None


def avoided(job: Job, view: ClusterView, now_ms: int) -> Refusal | None:
    """Whether the cluster refused the job a moment ago."""
    for entry in job.avoid:
        if entry.cluster == view.identity.name and entry.until_ms > now_ms:
            left = format_duration(max((entry.until_ms - now_ms) // 1000, 1))
            known = entry.code in RefusalCode.__members__.values()
            code = RefusalCode(entry.code) if known else RefusalCode.NOT_CHOSEN
            return Refusal(
                code,
                view.identity.name,
                available="refused this job a moment ago",
                advice=f"tried again in {left}",
            )
    return None


def rtt_unknown(
    spec: JobSpec, view: ClusterView, known: frozenset[tuple[str, str]]
) -> Refusal | None:
    """Whether nobody knows the round trip that the job limits."""
    limit = spec.placement.max_rtt
    if limit is None or (limit.to, view.identity.region) in known:
        return None
    return Refusal(
        RefusalCode.ROUND_TRIP_UNKNOWN,
        view.identity.name,
        needed=f"at most {limit.ms:g} ms to {limit.to}",
        available="nobody measured it",
        advice="give the agents a latency target there, or type the figure",
    )


def clusters_held(job: Job, spec: JobSpec) -> tuple[str, ...]:
    """Clusters, or regions, that have as much of a job as it lets one of them have. Which nodes its
    tasks are on only their site knows: where some run, no further ones are sent."""
    spread = spec.placement.spread
    if spread is None or (spread == "node" and spec.apart_on_nodes != "tasks"):
        return ()
    by_region = spread == "region"
    live = job.live_attempts
    return tuple(sorted({str(each.region if by_region else each.cluster) for each in live}))


def spread_out(job: Job, spec: JobSpec, view: ClusterView) -> Refusal | None:
    """Whether one of the job's tasks has the cluster, or the region, that it spreads over."""
    identity, level = view.identity, spec.placement.spread
    place = identity.region if level == "region" else identity.name
    if place not in clusters_held(job, spec):
        return None
    within = f" in {place}" if level == "region" else ""
    if level == "node":
        return on_nodes_there(identity.name)
    return Refusal(
        RefusalCode.SPREAD_LIMIT,
        view.identity.name,
        available=f"one of its tasks{within}, as many as placement.spread allows",
        advice="leave out placement.spread",
    )


def on_nodes_there(cluster: str) -> Refusal:
    """Why a cluster gets no further tasks that share no node with those it has."""
    has = "tasks of it on nodes of their own; which nodes are left only the site knows"
    advice = "wait for them, or leave out placement.spread"
    return Refusal(RefusalCode.SPREAD_LIMIT, cluster, available=has, advice=advice)
