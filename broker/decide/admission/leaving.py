"""Whether a job in the queue of a site is better off where something is free now. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from broker.decide.objective import cost_terms
from broker.decide.terms import Geography
from broker.model.plan import Plan
from broker.model.problem import Job, Problem


@dataclass(frozen=True, slots=True)
class Waits:
    """One in the queue of `pool`, who will wait there for `left_s` more. `job` has as many copies
    as wait together: they leave together."""

    uid: str
    job: Job
    pool: str
    left_s: float


@dataclass(frozen=True, slots=True)
class Margin:
    """What leaving must gain, in time that is waited: a share of what is left, and so much at
    least. It is turned into USD at what an hour of waiting costs."""

    share: float = 0.25
    least_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Departure:
    """It leaves for `to`, where it starts in `start_s`, and saves `saved_usd`."""

    waits: Waits
    to: str
    start_s: float
    saved_usd: float

    @property
    def text(self) -> str:
        """One line for people."""
        return (
            f"left the queue of {self.waits.pool} for {self.to}, where it starts in "
            f"{self.start_s:.3g} s and not in {self.waits.left_s:.3g} s; saves "
            f"{self.saved_usd:.2f} USD, its waiting counted"
        )


def departures(
    problem: Problem, plan: Plan, waiting: Mapping[str, Waits], margin: Margin
) -> tuple[Departure, ...]:
    """Of those that wait (by the name of their job in the problem), who gains by the place a plan
    gives it in another pool. A place in their own pool is one their site gives them anyway. A whole
    node that is broken into costs there what it costs the decision that follows, which would send
    it back otherwise."""
    where, pools = Geography(problem), {pool.name: pool for pool in problem.pools}
    found: list[Departure] = []
    for item in plan.assignments:
        waits = waiting.get(item.job)
        if waits is None or item.queued or item.pool == waits.pool:
            continue
        if item.count < waits.job.count:  # some of a slice would stay behind
            continue
        job, here, there = waits.job, pools.get(waits.pool), pools[item.pool]
        if here is None or here.queue is None:
            continue
        queue = replace(here.queue, start_s=waits.left_s)
        stays_usd = cost_terms(where, job, replace(here, queue=queue).as_queue()).total_usd
        goes_usd = cost_terms(where, job, there).total_usd
        if plan.whole_nodes.get(item.pool):
            goes_usd += problem.objective.fragmentation_usd_per_node / item.count
        hourly_usd = (
            job.value_of_time_usd_per_h
            or job.gang_accelerators * queue.waiting_usd_per_accelerator_h
        )
        least_usd = hourly_usd * max(margin.least_s, margin.share * waits.left_s) / 3600
        saved_usd = stays_usd - goes_usd
        if saved_usd >= least_usd:
            start_s = where.start_s(job, there)
            found.append(Departure(waits, item.pool, start_s, saved_usd * item.count))
    return tuple(found)
