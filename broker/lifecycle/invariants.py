"""What must hold of every job after every step; checked in tests, simulation and on load. Pure."""

from __future__ import annotations

from broker.lifecycle.outcomes import derive_phase
from broker.model.jobs import AttemptPhase, Desired, Job, JobPhase
from federation.runs import Runs


class InvariantViolated(Exception):
    """A job contradicts itself: a bug, never a user's fault."""


def violations(job: Job) -> list[str]:
    """Every contradiction in a job, as text; empty when sound."""
    found = _phase_violations(job)
    if not job.is_array and len(job.counting_attempts) > 1:
        found.append(f"{len(job.counting_attempts)} attempts of one gang count")
    if job.awaits and job.live_attempts:
        found.append("it waits for other jobs and has a live attempt")
    if len({a.uid for a in job.attempts}) != len(job.attempts):
        found.append("two attempts share a uid")
    for attempt in job.attempts:
        if (attempt.phase is AttemptPhase.ENDED) != (attempt.outcome is not None):
            found.append(f"{attempt.uid}: ended and outcome disagree")
        if job.is_array != bool(attempt.tasks or attempt.width):
            found.append(f"{attempt.uid}: a slice of no array, or an array without slice")
        if attempt.superseded_ms and attempt.live and attempt.desired is not Desired.STOP:
            found.append(f"{attempt.uid}: superseded, and not to be stopped")
    return found + _task_violations(job)


def _phase_violations(job: Job) -> list[str]:
    if job.phase is not JobPhase.ENDED:
        wrong = job.outcome is not None
        found = ["has an outcome but has not ended"] if wrong else []
        if derive_phase(job).phase is not job.phase:
            found.append(f"phase {job.phase} is not what its attempts say")
        return found
    found = ["ended with attempts that count"] if job.counting_attempts else []
    if job.outcome is None or not job.ended_ms:
        found.append("ended without outcome or time")
    return found


def _task_violations(job: Job) -> list[str]:
    if not job.is_array:
        return []
    found: list[str] = []
    taken = Runs()
    for attempt in job.counting_attempts:
        open_tasks = attempt.tasks.difference(job.task_states.ended)
        if taken.intersection(open_tasks):
            found.append(f"{attempt.uid}: tasks of two live slices overlap")
        taken = taken.union(open_tasks)
        if attempt.tasks.difference(job.tasks):
            found.append(f"{attempt.uid}: tasks that the array does not have")
    states = job.task_states
    total = states.succeeded.count + states.failed_runs.count + states.cancelled.count
    if total != states.ended.count:
        found.append("a task ended twice")
    if states.ended.difference(job.tasks):
        found.append("ended tasks that the array does not have")
    return found


def check(job: Job) -> Job:
    """The job itself. Raises `InvariantViolated` with everything that is wrong."""
    wrong = violations(job)
    if wrong:
        raise InvariantViolated(f"{job.id}: " + "; ".join(wrong))
    return job
