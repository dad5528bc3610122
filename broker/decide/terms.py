"""What one copy of a job costs in one pool, term by term, and every reason why it may not go
there. The definitions are in docs/planning-problem.md; `options` computes the same for all
pairs at once, `verify` once more on its own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from decimal import ROUND_CEILING, Decimal

from broker.model.problem import Cluster, Job, Pool, Problem
from federation.refusals import Refusal, RefusalCode

SLACK = 1e-9
"""Relative slack of every limit."""


@dataclass(frozen=True, slots=True)
class CostTerms:
    """The cost of one copy in USD, fragmentation apart."""

    compute_usd: float
    cold_start_usd: float
    egress_usd: float
    latency_usd: float
    start_delay_usd: float
    migration_usd: float
    lost_work_usd: float

    @property
    def total_usd(self) -> float:
        """The sum of the terms."""
        return math.fsum(getattr(self, field.name) for field in fields(self))


class Geography:
    """Look-ups that terms and refusals need, made once per problem."""

    def __init__(self, problem: Problem) -> None:
        self.clusters: Mapping[str, Cluster] = {c.name: c for c in problem.clusters}
        self._index = {name: index for index, name in enumerate(problem.regions)}
        self._rtt_ms = problem.rtt_ms
        self._egress = problem.egress_usd_per_gb

    def region(self, pool: Pool) -> str:
        """The region a pool is in."""
        return self.clusters[pool.cluster].region

    def rtt_ms(self, job: Job, pool: Pool) -> float:
        """Round trip from the job's users to the pool; 0 without users or figures."""
        return self._between(self._rtt_ms, job.user_region, pool)

    def egress_usd(self, job: Job, pool: Pool) -> float:
        """Bringing the input of one copy to the pool."""
        if job.current_pool == pool.name:
            return 0.0
        return job.input_gb * self._between(self._egress, job.data_region, pool)

    def cold_start_s(self, job: Job, pool: Pool) -> float:
        """Paid seconds before the job's image runs there; 0 where it runs already."""
        if job.current_pool == pool.name:
            return 0.0
        known = self.clusters[pool.cluster].cold_start_s
        if job.image is not None and job.image in known:
            return known[job.image]
        return known.get("*", 0.0)

    def start_delay_s(self, job: Job, pool: Pool) -> float:
        """Unpaid seconds before a copy starts there; 0 where it runs already."""
        if job.current_pool == pool.name:
            return 0.0
        return self.clusters[pool.cluster].start_delay_s

    def _between(
        self, table: tuple[tuple[float, ...], ...], start: str | None, pool: Pool
    ) -> float:
        if start is None or not table:
            return 0.0
        return table[self._index[start]][self._index[self.region(pool)]]


def cost_terms(where: Geography, job: Job, pool: Pool) -> CostTerms:
    """The terms for a pair. Raises KeyError when the job does not run on the pool's model."""
    hours = job.runtime_h / job.accelerators[pool.accelerator]
    rate = job.gang_accelerators * pool.price_usd_per_accelerator_hour
    cold_s = where.cold_start_s(job, pool)
    delay_s = where.start_delay_s(job, pool)
    moved = job.current_pool is not None and job.current_pool != pool.name
    return CostTerms(
        compute_usd=rate * hours,
        cold_start_usd=rate * cold_s / 3600,
        egress_usd=where.egress_usd(job, pool),
        latency_usd=job.latency_usd_per_ms * where.rtt_ms(job, pool),
        start_delay_usd=job.value_of_time_usd_per_h * (delay_s + cold_s) / 3600,
        migration_usd=job.migration_usd if moved else 0.0,
        lost_work_usd=job.lost_work_usd if moved else 0.0,
    )


def refusals(where: Geography, job: Job, pool: Pool) -> Iterator[Refusal]:
    """Every reason why the job may not go to the pool, how much is free there apart."""
    if pool.unusable is not None:
        yield pool.unusable
    if pool.cluster in job.excluded:
        yield job.excluded[pool.cluster]
    if pool.accelerator not in job.accelerators:
        wanted = " or ".join(sorted(job.accelerators)) or "no model at all"
        yield _no(RefusalCode.WRONG_ACCELERATOR, pool, wanted, pool.accelerator)
    if pool.spot and not job.spot_ok:
        yield _no(RefusalCode.SPOT_NOT_ALLOWED, pool, "on-demand", "spot", "allow spot")
    region = where.region(pool)
    if job.regions is not None and region not in job.regions:
        wanted = " or ".join(job.regions) or "no region at all"
        yield _no(RefusalCode.REGION_NOT_ALLOWED, pool, wanted, region, f"allow {region}")
    rtt = where.rtt_ms(job, pool)
    if not within(rtt, job.max_rtt_ms):
        limit = f"at most {job.max_rtt_ms:g} ms"
        advice = f"max_rtt_ms {rounded_up(rtt):g}"
        yield _no(RefusalCode.ROUND_TRIP_TOO_LONG, pool, limit, f"{rtt:.4g} ms", advice)
    if pool.accelerator in job.accelerators:
        yield from _time_and_money(where, job, pool)


def within(used: float, limit: float | None) -> bool:
    """Whether a use is within a limit (None = no limit), with the slack."""
    return limit is None or used <= limit * (1 + SLACK)


def _time_and_money(where: Geography, job: Job, pool: Pool) -> Iterator[Refusal]:
    hours = job.runtime_h / job.accelerators[pool.accelerator]
    delay_h = (where.cold_start_s(job, pool) + where.start_delay_s(job, pool)) / 3600
    if not within(hours + delay_h, job.deadline_h):
        limit = f"an end within {job.deadline_h:g} h"
        advice = f"deadline_h {rounded_up(hours + delay_h):g}"
        has = f"an end in {hours + delay_h:.4g} h"
        yield _no(RefusalCode.DEADLINE_TOO_SOON, pool, limit, has, advice)
    spending = job.gang_accelerators * pool.price_usd_per_accelerator_hour * hours
    spending += where.egress_usd(job, pool)
    if not within(spending, job.budget_usd):
        limit = f"at most {job.budget_usd:g} USD"
        advice = f"budget_usd {rounded_up(spending):.10g}"
        yield _no(RefusalCode.OVER_BUDGET, pool, limit, f"{spending:.4g} USD", advice)
    price, cap = pool.price_usd_per_accelerator_hour, job.max_price_usd_per_accelerator_hour
    if not within(price, cap):
        limit = f"at most {cap:g} USD per accelerator hour"
        advice = f"price cap {cap:g} -> {rounded_up(price):g}"
        yield _no(RefusalCode.PRICE_CAP, pool, limit, f"{price:.4g} USD", advice)


def _no(code: RefusalCode, pool: Pool, needed: str, available: str, advice: str = "") -> Refusal:
    return Refusal(code, pool.name, needed, available, advice)


def rounded_up(figure: float) -> float:
    """A figure rounded up to four digits, so that it is enough as a limit."""
    if figure <= 0 or not math.isfinite(figure):
        return max(figure, 0.0)
    step = Decimal(10) ** (math.floor(math.log10(figure)) - 3)
    steps = (Decimal(figure) / step).to_integral_value(ROUND_CEILING)
    return float(steps * step)
