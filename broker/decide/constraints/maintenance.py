"""No copy may still run when maintenance of its pool begins, nor start before it is over."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from broker.decide.constraints.constraint import Change, Grain, PairConstraint, span
from broker.decide.pairs import Booleans, PairFigures
from broker.decide.terms import SLACK, Geography, within
from broker.model.problem import Job, Pool, Problem, Window
from federation.refusals import Refusal, RefusalCode


def _mask(pairs: PairFigures) -> Booleans:
    found = np.ones(1, dtype=np.bool_)
    if not pairs.pools.maintenance:
        return found
    limit_h = pairs.by_row(np.array([job.max_runtime_h or 0.0 for job in pairs.rows.jobs]))
    end_h = pairs.start_h + np.where(limit_h > 0, limit_h, pairs.hours)
    # Nodes are taken from now on, for one that waits in a queue only once it starts.
    begin_h = np.where(pairs.pools.queued[pairs.pool], pairs.start_h, 0.0)
    for from_h, to_h in pairs.pools.maintenance:
        before = end_h <= from_h[pairs.pool] * (1 + SLACK)
        found = found & (before | (begin_h * (1 + SLACK) >= to_h[pairs.pool]))
    return found


def _hours(where: Geography, job: Job, pool: Pool) -> tuple[float, float]:
    """From when until when at the latest a copy takes its nodes."""
    speed = job.accelerators.get(pool.accelerator, 0.0)
    start_h = where.start_s(job, pool) / 3600
    run_h = job.runtime_h / speed if speed else float("inf")
    return (start_h if pool.queue_of else 0.0, start_h + (job.max_runtime_h or run_h))


def _in_the_way(where: Geography, job: Job, pool: Pool) -> Window | None:
    """The first window that a copy would run into."""
    begin_h, end_h = _hours(where, job, pool) if pool.maintenance else (0.0, 0.0)
    for window in pool.maintenance:
        if not (within(end_h, window.from_h) or within(window.to_h, begin_h)):
            return window
    return None


def _check(where: Geography, job: Job, pool: Pool) -> bool:
    return _in_the_way(where, job, pool) is None


def _refusal(where: Geography, job: Job, pool: Pool) -> Refusal:
    window = _in_the_way(where, job, pool) or Window(0.0, 0.0)
    _, end_h = _hours(where, job, pool)
    needed = f"until {span(end_h)} from now"
    why = f" ({window.reason})" if window.reason else ""
    has = f"maintenance from {span(window.from_h)} to {span(window.to_h)}{why}"
    advice = _shorter_h(where, job, pool)
    code = RefusalCode.MAINTENANCE
    return Refusal(code, pool.name, needed, has, f"max_runtime_h {advice:g}" if advice else "")


def _shorter_h(where: Geography, job: Job, pool: Pool) -> float | None:
    """The longest max_runtime_h that ends before the maintenance and leaves time for the run."""
    window = _in_the_way(where, job, pool)
    if window is None or job.max_runtime_h is None:
        return None
    room_h = window.from_h - where.start_s(job, pool) / 3600
    return room_h if room_h >= job.runtime_h / job.accelerators[pool.accelerator] else None


def _undo(problem: Problem, refusal: Refusal) -> tuple[Problem, Change] | None:
    job, pool, where = problem.jobs[0], problem.pools[0], Geography(problem)
    window = _in_the_way(where, job, pool)
    if window is None:
        return None
    room_h = _shorter_h(where, job, pool)
    if room_h is not None:
        before = job.max_runtime_h or 0.0
        change = Change(
            refusal.code, "max_runtime_h", f"{before:g}", f"{room_h:g}", 1 - room_h / before
        )
        return replace(problem, jobs=(replace(job, max_runtime_h=room_h),)), change
    kept = tuple(other for other in pool.maintenance if other != window)
    what = f"wait {span(window.to_h)} until the maintenance of {pool.name} is over"
    change = Change(refusal.code, what, "", "", window.to_h)
    return replace(problem, pools=(replace(pool, maintenance=kept),)), change


MAINTENANCE = PairConstraint(
    "maintenance",
    frozenset({RefusalCode.MAINTENANCE}),
    Grain.PAIR,
    _mask,
    _check,
    _refusal,
    _undo,
)
