"""What constraints and cost terms are worked out from for one job and one pool: distances, delays,
and what a limit is. `pairs` has the same for all pairs at once, on its own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal

from broker.model.problem import Cluster, Job, Pool, Problem

SLACK = 1e-9
"""Relative slack of every limit."""


class Geography:
    """Look-ups that terms and refusals need, made once per problem."""

    def __init__(self, problem: Problem) -> None:
        self.clusters: Mapping[str, Cluster] = {c.name: c for c in problem.clusters}
        self.unheard = tuple(c for c in problem.clusters if c.unknown is not None)
        self._index = {name: index for index, name in enumerate(problem.regions)}
        self._place = {c.name: self._index[c.region] for c in problem.clusters}
        self._rtt_ms = problem.rtt_ms
        self._egress = problem.egress_usd_per_gb
        self._bandwidth_gbps = problem.bandwidth_gbps

    def region(self, pool: Pool) -> str:
        """The region a pool is in."""
        return self.clusters[pool.cluster].region

    def rtt_ms(self, job: Job, pool: Pool) -> float:
        """Round trip from the job's users to the pool; 0 without users or figures."""
        return self._between(self._rtt_ms, job.user_region, pool)

    def egress_usd(self, job: Job, pool: Pool) -> float:
        """Bringing the input of one copy to the pool."""
        if not job.input_gb or stays(job, pool):
            return 0.0
        return job.input_gb * self._source(job, pool)[0] / job.members

    def transfer_h(self, job: Job, pool: Pool) -> float:
        """Hours until the input of one copy is there."""
        if not (self._bandwidth_gbps and job.input_gb) or stays(job, pool):
            return 0.0
        return job.input_gb * self._source(job, pool)[1]

    def _source(self, job: Job, pool: Pool) -> tuple[float, float]:
        """USD and hours per GB from where the input comes cheapest, then soonest."""
        ways = [
            (
                self._between(self._egress, region, pool),
                hours_per_gb(self._between(self._bandwidth_gbps, region, pool)),
            )
            for region in job.data_sources
        ]
        return min(ways, default=(0.0, 0.0))

    def cold_start_s(self, job: Job, pool: Pool) -> float:
        """Paid seconds before the job's image runs there; 0 where it runs already."""
        if stays(job, pool):
            return 0.0
        known = self.clusters[pool.cluster].cold_start_s
        if job.image is not None and job.image in known:
            return known[job.image]
        return known.get("*", 0.0)

    def start_s(self, job: Job, pool: Pool) -> float:
        """Seconds before a copy runs there, paid for or not; 0 where it runs already."""
        if stays(job, pool):
            return 0.0
        delay_s = self.clusters[pool.cluster].start_delay_s + 3600 * self.transfer_h(job, pool)
        if pool.queue_of and pool.queue is not None:
            return delay_s + pool.queue.start_s
        return delay_s + self.cold_start_s(job, pool)

    def price_usd(self, job: Job, pool: Pool) -> float:
        """USD per accelerator hour on average over the hours that a copy runs there. Raises
        KeyError when the job does not run on the pool's model."""
        base_usd = pool.price_usd_per_accelerator_hour
        if not pool.prices:
            return base_usd
        hours = job.runtime_h / job.accelerators[pool.accelerator]
        begin_h = self.start_s(job, pool) / 3600
        total = [base_usd]
        for window in pool.prices:
            inside_h = min(begin_h + hours, window.to_h) - max(begin_h, window.from_h)
            more_usd = window.price_usd_per_accelerator_hour - base_usd
            total.append(max(0.0, inside_h) / hours * more_usd)
        return math.fsum(total)

    def _between(
        self, table: tuple[tuple[float, ...], ...], start: str | None, pool: Pool
    ) -> float:
        if start is None or not table:
            return 0.0
        return table[self._index[start]][self._place[pool.cluster]]


def hours_per_gb(gbps: float) -> float:
    """Hours that 10^9 bytes take at some 10^9 bits per second; none where that is not known."""
    return 8 / gbps / 3600 if gbps > 0 else 0.0


def stays(job: Job, pool: Pool) -> bool:
    """Whether copies of a job run in a pool now; those that would wait before it do not."""
    return job.current_pool == (pool.part_of or pool.name) and not pool.queue_of


def within(used: float, limit: float | None) -> bool:
    """Whether a use is within a limit (None = no limit), with the slack."""
    return limit is None or used <= limit * (1 + SLACK)


def rounded_up(figure: float) -> float:
    """A figure rounded up to four digits, so that it is enough as a limit."""
    if figure <= 0 or not math.isfinite(figure):
        return max(figure, 0.0)
    step = Decimal(10) ** (math.floor(math.log10(figure)) - 3)
    steps = (Decimal(repr(figure)) / step).to_integral_value(ROUND_CEILING)
    return float(steps * step)
