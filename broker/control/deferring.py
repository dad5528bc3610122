"""Jobs that may wait for a cheaper hour, in the words of a problem: clusters where a start now
costs more than waiting are closed to them until then. Pure.

Nothing is kept for the hour to come and nothing is remembered: each decision compares anew, so a
job starts as soon as that is no dearer, and at its latest start wherever there is room.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from broker.decide.later import Expected, Later, later
from broker.decide.terms import Geography
from broker.model import problem as pm
from broker.model.jobs import Job
from federation.jobs import JobSpec
from federation.refusals import Refusal, RefusalCode
from federation.units import format_utc

LOOKS_MAX = 500
"""Classes compared in one problem, the oldest first; others start now."""
MARGIN_SHARE, MARGIN_MIN_S = 0.1, 900
"""Before the latest start that its deadline allows, this share of `max_runtime` is left, and so
much at least: nothing is kept for it, so it may have to look for its place."""


def latest_start_ms(job: Job, spec: JobSpec) -> int:
    """Until when (UTC ms) the start of a job may be put off: `defer` after it was submitted, and
    early enough that `max_runtime` and the margin end by its deadline."""
    latest_ms = job.created_ms + (spec.defer_s or 0) * 1000
    deadline_ms = spec.deadline_ms(job.created_ms)
    if deadline_ms is None:
        return latest_ms
    longest_s = spec.max_runtime_s or spec.expected_runtime_s or 24 * 3600
    margin_s = max(MARGIN_SHARE * longest_s, MARGIN_MIN_S)
    return min(latest_ms, deadline_ms - round((longest_s + margin_s) * 1000))


@dataclass(slots=True)
class Deferring:
    """Compares for one problem. `scene` gives where and what there is, once it is asked for."""

    scene: Callable[[], tuple[Geography, Sequence[pm.Pool]]]
    now_ms: int
    _found: dict[str, Later | None] = field(default_factory=dict)
    _scene: tuple[Geography, Sequence[pm.Pool]] | None = None
    _expected: Expected = field(default_factory=Expected)

    def apply(self, planned: pm.Job, job: Job, spec: JobSpec) -> pm.Job:
        """The job with the clusters closed to it where waiting is better. What has begun goes on,
        and what moves is expected."""
        latest_ms = latest_start_ms(job, spec)
        if latest_ms <= self.now_ms or job.counting_attempts or job.moves:
            return planned
        if job.id not in self._found:
            if len(self._found) >= LOOKS_MAX:
                return planned
            if self._scene is None:
                self._scene = self.scene()
            latest_h = (latest_ms - self.now_ms) / 3_600_000
            self._found[job.id] = later(
                *self._scene, planned, latest_h, self._expected
            )
        found = self._found[job.id]
        if found is None:
            return planned
        closed = {name: self._refusal(name, usd, found) for name, usd in found.closed.items()}
        return replace(planned, excluded={**closed, **planned.excluded})

    def _refusal(self, cluster: str, usd: float, found: Later) -> Refusal:
        at = format_utc(self.now_ms + round(found.start_h * 3_600_000))
        return Refusal(
            RefusalCode.DEFERRED,
            cluster,
            available=(
                f"from {at} a copy costs {found.cost_usd:.2f} USD in {found.pool}, here and now "
                f"{usd:.2f}; saves {found.saved_usd:.2f} USD"
            ),
            advice=f"wait until {at}",
        )
