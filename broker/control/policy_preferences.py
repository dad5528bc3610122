"""What policies prefer: an order of places, a cheaper hour, spread over clusters. Pure.

Unlike a limit a preference gives way: as a job waits longer, or where nothing else is left.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from broker.control.waitlist import expected_s
from broker.model import problem as pm
from broker.model.fleet import ClusterView
from broker.model.jobs import Job
from broker.model.policies import Defer, Failover, Ruling
from broker.sense.fleet import unusable
from federation.jobs import JobSpec
from federation.refusals import Refusal, RefusalCode
from federation.units import format_utc


def put_off(
    ruling: Ruling | None, job: Job, view: ClusterView, views: Sequence[ClusterView], now_ms: int
) -> Refusal | None:
    """Why a job does not go to a cluster yet, with the moment from which it may where that is
    known. `views`: all clusters."""
    if ruling is None:
        return None
    if view.identity.name in spread_full(job, ruling):
        return _spread_refusal(job, ruling, view)
    if not ruling.by_age:
        return None
    later = [
        *_failing_over(ruling, job, view, views, now_ms),
        *_deferring(ruling, job, view, now_ms),
    ]
    if not later:
        return None
    until_ms, why = max(later)
    return Refusal(
        RefusalCode.POLICY_DENIED,
        view.identity.name,
        available=why,
        advice=f"wait until {format_utc(until_ms)}",
    )


def _failing_over(
    ruling: Ruling, job: Job, view: ClusterView, views: Sequence[ClusterView], now_ms: int
) -> Iterable[tuple[int, str]]:
    for failover, owner in ruling.failovers:
        rank = _rank(failover, view)
        before = {
            min(at, rank)
            for other in views
            if (at := _rank(failover, other)) < rank and unusable(other, now_ms) is None
        }
        if not before:
            continue
        opens_ms = job.created_ms + rank * failover.after_s * 1000
        if opens_ms > now_ms:
            first = failover.order[min(before)]
            yield opens_ms, f"{first} is preferred until {format_utc(opens_ms)} ({owner})"


def _rank(failover: Failover, view: ClusterView) -> int:
    """Its place in the order; behind all for one that is not named."""
    names = (view.identity.name, view.identity.region)
    found = (at for at, name in enumerate(failover.order) if name in names)
    return next(found, len(failover.order))


def _deferring(
    ruling: Ruling, job: Job, view: ClusterView, now_ms: int
) -> Iterable[tuple[int, str]]:
    for defer, owner in ruling.defers:
        until_ms = _deferred_until_ms(defer, job, ruling.spec)
        most = defer.max_price_micro_usd_per_accelerator_hour
        if until_ms > now_ms and not _costs_at_most(view, ruling.spec, most, now_ms):
            price = f"at most {most / 1e6:.10g} USD per accelerator and hour"
            yield until_ms, f"its start waits for {price} until {format_utc(until_ms)} ({owner})"


def _deferred_until_ms(defer: Defer, job: Job, spec: JobSpec) -> int:
    until_ms = job.created_ms + defer.up_to_s * 1000
    deadline_ms = spec.deadline_ms(job.created_ms)
    if deadline_ms is None:
        return until_ms
    return min(until_ms, deadline_ms - expected_s(spec) * 1000)


def _costs_at_most(view: ClusterView, spec: JobSpec, most: int, now_ms: int) -> bool:
    """Whether some pool that the job may use costs that little now, in micro-USD."""
    models = spec.resources.accelerator_models or (pm.CPU,)
    for pool in view.capacity.pools if view.capacity else ():
        price = view.prices.get(pool.pool)
        if price is None or (price.kind == "spot" and not spec.placement.spot):
            continue
        fits = any((group.accelerator or pm.CPU) in models for group in pool.groups)
        if fits and price.marginal_at(now_ms) <= most:
            return True
    return False


def price_cap_micro_usd(ruling: Ruling, job: Job, now_ms: int) -> int | None:
    """The most one more hour may cost while a start is put off for a cheaper one."""
    found = [
        defer.max_price_micro_usd_per_accelerator_hour
        for defer, _ in ruling.defers
        if _deferred_until_ms(defer, job, ruling.spec) > now_ms
    ]
    return min(found, default=None)


def preferred(planned: pm.Job, job: Job, ruling: Ruling | None, now_ms: int) -> pm.Job:
    """A job of the problem with what its policies prefer that a limit can say."""
    if ruling is None:
        return planned
    cap, left = price_cap_micro_usd(ruling, job, now_ms), spread_left(job, ruling)
    if cap is not None:
        known = planned.max_price_usd_per_accelerator_hour
        least = cap / 1e6 if known is None else min(cap / 1e6, known)
        planned = replace(planned, max_price_usd_per_accelerator_hour=least)
    return planned if left is None else replace(planned, spread_max_per_cluster=left)


def spread_most(job: Job, ruling: Ruling | None) -> int | None:
    """The most tasks of an array that one cluster may have at once; None = any."""
    if ruling is None or ruling.spread is None or not job.is_array:
        return None
    return max(1, math.ceil(ruling.spread * job.tasks.count - 1e-9))


def spread_full(job: Job, ruling: Ruling | None) -> tuple[str, ...]:
    """Clusters that have as many tasks of an array as its policies let one have."""
    most = spread_most(job, ruling)
    held = _tasks_in(job) if most is not None else {}
    return tuple(sorted(name for name, tasks in held.items() if tasks >= (most or 0)))


def spread_left(job: Job, ruling: Ruling | None) -> int | None:
    """How many more tasks any cluster that is not full may take; None = any number."""
    most = spread_most(job, ruling)
    if most is None:
        return None
    return most - max((n for n in _tasks_in(job).values() if n < most), default=0)


def _spread_refusal(job: Job, ruling: Ruling, view: ClusterView) -> Refusal:
    most, owner = spread_most(job, ruling), ruling.origins.get("spread", "its policy")
    return Refusal(
        RefusalCode.SPREAD_LIMIT,
        view.identity.name,
        available=f"{most} of its tasks, as many as may ({owner})",
        advice="starts as tasks there end",
    )


def _tasks_in(job: Job) -> Counter[str]:
    held: Counter[str] = Counter()
    for attempt in job.live_attempts:
        held[str(attempt.cluster)] += attempt.copies
    return held
