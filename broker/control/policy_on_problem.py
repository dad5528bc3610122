"""A policy tried on a planning problem in a file. Pure.

A problem knows less of jobs and clusters than a running broker does: what a policy asks that the
file does not say is left out, and said.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from broker.control.expressions import ExpressionFailed, holds
from broker.model.policies import Match, Policy
from broker.model.problem import Cluster, Job, Problem
from federation.refusals import Refusal, RefusalCode


@dataclass(slots=True)
class Tried:
    """The problem under a policy, the ids of the jobs it governs, and what was left out."""

    problem: Problem
    governed: frozenset[str] = frozenset()
    notes: list[str] = field(default_factory=list)


def under_policy(problem: Problem, policy: Policy) -> Tried:
    """`problem` with the limits and weights of a policy on the jobs it matches: all of them where
    it has no `match`. Jobs count as submitted now, running ones as waiting."""
    tried = Tried(problem, notes=list(_left_out(policy)))
    governed = frozenset(
        job.id for job in problem.jobs if _matches(policy.match, job, tried.notes)
    )
    closed = {
        cluster.name: refusal
        for cluster in problem.clusters
        if (refusal := _closed(policy, cluster, problem, tried.notes)) is not None
    }
    jobs = [
        _limited(job, policy, problem, closed) if job.id in governed else job
        for job in problem.jobs
    ]
    if policy.spot_share is not None:
        jobs = _spot_shared(jobs, governed, policy.spot_share)
    regions = problem.regions
    if policy.require.max_rtt is not None and policy.require.max_rtt.to not in regions:
        tried.notes.append(f"max_rtt: {policy.require.max_rtt.to} is no region of the problem")
    tried.problem, tried.governed = replace(problem, jobs=tuple(jobs)), governed
    return tried


def _left_out(policy: Policy) -> Iterator[str]:
    need, match = policy.require, policy.match
    if match is not None and (match.labels or match.kinds):
        yield "match: a problem says neither labels nor kinds, so every job counts as having them"
    if need.isolation is not None:
        yield "isolation: a problem does not say it of clusters, so it is not looked at"
    if need.hours is not None:
        yield "hours: not looked at, since what waits for them is no question of a problem"
    if policy.tier is not None:
        yield "tier: the order of the problem stays as it is"


def _matches(match: Match | None, job: Job, notes: list[str]) -> bool:
    if match is None:
        return True
    if match.tenants and job.tenant not in match.tenants:
        return False
    if match.accelerators and not set(match.accelerators) & set(job.accelerators):
        return False
    if not match.when:
        return True
    try:
        return holds(match.when, _facts(job))
    except ExpressionFailed as failed:
        _once(notes, f"when: cannot be said of some jobs, so it governs them: {failed}")
        return True


def _facts(job: Job) -> Mapping[str, Mapping[str, Any]]:
    """What of the facts about a job a problem says."""
    return {
        "job": {
            "tenant": job.tenant,
            "priority": job.priority,
            "image": job.image or "",
            "replicas": job.replicas,
            "tasks": job.count,
            "accelerators": [model for model in job.accelerators if model != "CPU"],
            "accelerator_count": job.accelerators_per_replica,
            "cpus": job.replica_cpus,
            "memory_gib": job.replica_memory_gib,
            "max_runtime_h": job.max_runtime_h or 0.0,
            "expected_runtime_h": job.runtime_h,
            "user_region": job.user_region or "",
        }
    }


def _closed(
    policy: Policy, cluster: Cluster, problem: Problem, notes: list[str]
) -> Refusal | None:
    """Why the policy keeps its jobs out of a cluster, whatever they are."""
    facts = {"cluster": {"name": cluster.name, "region": cluster.region}}
    try:
        if policy.require.where and not holds(policy.require.where, facts):
            return Refusal(
                RefusalCode.POLICY_DENIED, cluster.name, f"{policy.require.where} ({policy.name})"
            )
    except ExpressionFailed as failed:
        _once(notes, f"where: cannot be said from a problem, so it is not looked at: {failed}")
    if policy.failover is None:
        return None
    order = policy.failover.order
    ranks = {c.name: _rank(order, c) for c in problem.clusters}
    takes = {pool.cluster for pool in problem.pools if pool.unusable is None}
    best = min((ranks[name] for name in takes), default=len(order))
    if ranks[cluster.name] > best:
        text = f"{order[best]} is preferred ({policy.name})"
        return Refusal(RefusalCode.POLICY_DENIED, cluster.name, available=text)
    return None


def _rank(order: tuple[str, ...], cluster: Cluster) -> int:
    names = (cluster.name, cluster.region)
    return next((at for at, name in enumerate(order) if name in names), len(order))


def _limited(
    job: Job, policy: Policy, problem: Problem, closed: Mapping[str, Refusal]
) -> Job:
    need, weights, changes = policy.require, policy.weights, dict[str, Any]()
    if need.regions:
        changes["regions"] = tuple(
            name
            for name in need.regions
            if name in problem.regions and (job.regions is None or name in job.regions)
        )
    caps = [
        micro_usd / 1e6
        for micro_usd in (
            need.max_price_micro_usd_per_accelerator_hour,
            policy.defer.max_price_micro_usd_per_accelerator_hour if policy.defer else None,
        )
        if micro_usd is not None
    ]
    if caps:
        known = job.max_price_usd_per_accelerator_hour
        least = min([*caps, *([] if known is None else [known])])
        changes["max_price_usd_per_accelerator_hour"] = least
    rtt = need.max_rtt
    if rtt is not None and rtt.to in problem.regions and job.user_region in (None, rtt.to):
        changes["user_region"] = rtt.to
        changes["max_rtt_ms"] = min(rtt.ms, math.inf if job.max_rtt_ms is None else job.max_rtt_ms)
    if weights.value_of_time_micro_usd_per_hour is not None:
        changes["value_of_time_usd_per_h"] = weights.value_of_time_micro_usd_per_hour / 1e6
    near = job.user_region or changes.get("user_region")
    if weights.latency_micro_usd_per_ms is not None and near:
        changes["latency_usd_per_ms"] = weights.latency_micro_usd_per_ms / 1e6
    if policy.spot is not None:
        changes["spot_ok"] = policy.spot
    if policy.spread is not None and job.count > 1:
        most = max(1, math.ceil(policy.spread * job.count - 1e-9))
        changes["spread_max_per_cluster"] = min(most, job.spread_max_per_cluster or most)
    slow = _slow(job, policy, problem)
    if closed or slow:
        changes["excluded"] = {**closed, **slow, **job.excluded}
    return replace(job, **changes)


def _slow(job: Job, policy: Policy, problem: Problem) -> dict[str, Refusal]:
    limit_s = policy.require.max_start_delay_s
    if limit_s is None:
        return {}
    start_s = {
        c.name: c.start_delay_s + c.cold_start_s.get(job.image or "*", c.cold_start_s.get("*", 0.0))
        for c in problem.clusters
    }
    return {
        name: Refusal(
            RefusalCode.START_DELAY_EXCEEDED, name, f"a start within {limit_s} s", f"{late_s:.4g} s"
        )
        for name, late_s in start_s.items()
        if late_s > limit_s
    }


def _spot_shared(jobs: list[Job], governed: frozenset[str], share: float) -> list[Job]:
    """The oldest entries may use spot as long as they stay within the share, as whole entries."""
    left = share * sum(j.count * j.gang_accelerators for j in jobs if j.id in governed) + 1e-9
    found = []
    for job in jobs:
        if job.id in governed and job.spot_ok:
            wants = job.count * job.gang_accelerators
            job = replace(job, spot_ok=wants <= left)
            left -= wants if job.spot_ok else 0
        found.append(job)
    return found


def _once(notes: list[str], text: str) -> None:
    if text not in notes:
        notes.append(text)
