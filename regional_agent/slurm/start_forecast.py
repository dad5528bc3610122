"""When a job handed over now would start: what the site's scheduler expects, corrected by how
right it was before. Pure.

A scheduler plans by walltimes, which are upper bounds, so most jobs start sooner than it says;
some later, because others went first. What it expected of each waiting job when that was first
seen is kept until the job runs; the ratio of the two waits is what is learned.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

KEPT_RATIOS = 200
ENOUGH = 5
"""With fewer starts seen, what the scheduler says stands as it is."""
FOLLOWED_MAX = 20_000
SHORTEST_S = 5.0
"""Waits below this teach nothing: a scheduler's own rounds take so long."""
RATIO_MIN, RATIO_MAX = 0.01, 20.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job in the queue. `start_s`: its start if it `runs`, else the one expected; epoch
    seconds, 0 = unknown."""

    job_id: str
    queue: str
    start_s: int
    runs: bool


@dataclass(slots=True)
class StartForecast:
    """Learns from looks at the queue, of everybody's jobs; one per site."""

    ratios: dict[str, deque[float]] = field(default_factory=dict)
    _followed: dict[str, tuple[float, float]] = field(default_factory=dict)

    def saw(self, jobs: Iterable[Waiting], now_s: float) -> None:
        """One look at all jobs that are in the queue or run."""
        still: dict[str, tuple[float, float]] = {}
        for job in jobs:
            known = self._followed.get(job.job_id)
            if job.runs:
                if known is not None and job.start_s:
                    self._learn(job.queue, job.start_s - known[0], known[1])
            elif known is not None:
                still[job.job_id] = known
            elif job.start_s > now_s + SHORTEST_S and len(still) < FOLLOWED_MAX:
                still[job.job_id] = (now_s, job.start_s - now_s)
        self._followed = still

    def _learn(self, queue: str, waited_s: float, expected_s: float) -> None:
        ratio = min(max(waited_s / expected_s, RATIO_MIN), RATIO_MAX)
        self.ratios.setdefault(queue, deque(maxlen=KEPT_RATIOS)).append(ratio)

    def corrected_s(self, queue: str, expected_s: float) -> tuple[float, float]:
        """Half, and nine in ten, of jobs with this expected wait have started by then."""
        seen = sorted(self.ratios.get(queue, ()))
        if len(seen) < ENOUGH:
            return expected_s, expected_s
        half, most = seen[len(seen) // 2], seen[(len(seen) * 9) // 10]
        return expected_s * half, expected_s * most
