"""How many tasks of an array a slice holds in advance. Pure.

A slice starts the next task as one ends, without asking. What it has ahead is tied to its site, so
it is as much as lasts ten minutes: a round of it where tasks are long, four at most, and more only
where they are so short that these would pass within a round trip.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.model.jobs import Attempt, AttemptPhase, Desired, Job
from federation.runs import Runs

ROUNDS_AHEAD = 4
AHEAD_S = 600
"""A site that cannot be reached works on for so long at least, whatever its tasks take."""
SECONDS_AHEAD = 5


@dataclass(slots=True)
class GivingWay:
    """Slices, by uid, that get no more tasks for now: where others have their turn, and where a
    better place is free, with the line that says so. Nothing of it is durable: the next leader
    looks for itself."""

    for_others: frozenset[str] = frozenset()
    for_places: Mapping[str, str] = field(default_factory=dict)

    def __contains__(self, uid: str) -> bool:
        return uid in self.for_others or uid in self.for_places


def first_tasks(job: Job, width: int, promised: int = 0, task_s: float | None = None) -> Runs:
    """The tasks a new slice of this width begins with. `promised`: so many copies has the same
    plan for other places; a task is left for each of them. `task_s`: what one is expected to take,
    None = nobody knows yet."""
    free = job.unassigned_tasks
    most = max(width, free.count - promised)
    rounds = min(1 + _rounds(task_s), ROUNDS_AHEAD)
    return free.take(min(rounds * width, most))[0]


def _rounds(task_s: float | None) -> int:
    """Rounds of tasks that last `AHEAD_S`; one, until somebody knows."""
    if task_s is None:
        return 1
    return min(max(math.ceil(AHEAD_S / max(task_s, 1e-3)), 1), ROUNDS_AHEAD)


def top_up(job: Job, attempt: Attempt, now_ms: int) -> Runs | None:
    """The slice's whole new set of tasks, or None where it has enough (or none are left). What
    ended elsewhere, and has not begun here, is taken out."""
    if attempt.desired is not Desired.RUN or attempt.phase is not AttemptPhase.RUNNING:
        return None
    if attempt.confirmed_seq < attempt.dispatch_seq or job.cancel:
        return None
    ended_elsewhere = attempt.tasks.intersection(job.task_states.ended).difference(
        attempt.started_tasks
    )
    if ended_elsewhere:
        return attempt.tasks.difference(ended_elsewhere)
    if attempt.waiting_copies:
        return None  # what waits in its site's queue is given no more to wait with it
    ahead = attempt.tasks.difference(attempt.started_tasks).count
    done = attempt.tasks.intersection(job.task_states.ended).count
    ran_s = max(now_ms - attempt.started_ms, 100) / 1000
    rounds = _rounds(ran_s * attempt.width / done if done else None)
    target = max(rounds * attempt.width, int(done / ran_s * SECONDS_AHEAD))
    if ahead >= max(target // 2, 1):
        return None
    more = job.unassigned_tasks.take(target - ahead)[0]
    return attempt.tasks.union(more) if more else None
