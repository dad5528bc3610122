"""How many tasks of an array a slice holds in advance. Pure.

A slice starts the next task as one ends, without asking; the leader keeps it at least two rounds
ahead, and further where tasks are so short that two rounds would pass within a round trip.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.model.jobs import Attempt, AttemptPhase, Desired, Job
from federation.runs import Runs

ROUNDS_AHEAD_MIN = 2
ROUNDS_AHEAD = 4
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


def first_tasks(job: Job, width: int, promised: int = 0) -> Runs:
    """The tasks a new slice of this width begins with. `promised`: so many copies has the same
    plan for other places; a task is left for each of them."""
    free = job.unassigned_tasks
    most = max(width, free.count - promised)
    return free.take(min(ROUNDS_AHEAD * width, most))[0]


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
    target = max(ROUNDS_AHEAD * attempt.width, int(done / ran_s * SECONDS_AHEAD))
    if ahead >= max(ROUNDS_AHEAD_MIN * attempt.width, target // 2):
        return None
    more = job.unassigned_tasks.take(target - ahead)[0]
    return attempt.tasks.union(more) if more else None
