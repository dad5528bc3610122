"""What follows for a job when one of its attempts ends: retry, elsewhere, or the end. Pure."""

from __future__ import annotations

from broker.lifecycle.disconnect import keeps_original
from broker.model.jobs import (
    Attempt,
    AttemptPhase,
    AvoidedCluster,
    Desired,
    FailedTasks,
    Job,
    JobPhase,
    Outcome,
    OutcomeKind,
    TaskStates,
    Terms,
)
from broker.model.replacing import replace
from federation.refusals import Disposition, RefusalCode
from federation.runs import Runs

BACKOFF_FIRST_S = 1
BACKOFF_MAX_S = 300
AVOID_FIRST_S = 10
AVOID_MAX_S = 600
ATTEMPTS_WITHOUT_START_MAX = 200
"""A job refused or withdrawn this often ends as refused: retries are bounded and visible."""

_RETRIABLE = frozenset(
    {OutcomeKind.FAILED, OutcomeKind.LOST, OutcomeKind.TIMED_OUT, OutcomeKind.OUT_OF_MEMORY}
)
_RETURNS = frozenset({OutcomeKind.WITHDRAWN, OutcomeKind.PREEMPTED, OutcomeKind.MOVED})


def after_attempt(job: Job, attempt: Attempt, terms: Terms, now_ms: int) -> Job:
    """The job once `attempt` (already ended and in `job`) is accounted for."""
    outcome = attempt.outcome
    if outcome is None:
        raise ValueError(f"{attempt.uid} has not ended")
    job = replace(job, cost_micro_usd=job.cost_micro_usd + cost_micro_usd(attempt))
    if job.phase is JobPhase.ENDED:
        return job
    if attempt.superseded_ms:
        return _returned(job, attempt, outcome, terms, now_ms)
    if job.is_array:
        return _after_slice(job, attempt, outcome, terms, now_ms)
    if job.cancel and outcome.kind is not OutcomeKind.SUCCEEDED:
        return end(job, replace(outcome, kind=OutcomeKind.CANCELLED), now_ms)
    return _next(job, attempt, outcome, terms, now_ms)


def _returned(job: Job, attempt: Attempt, outcome: Outcome, terms: Terms, now_ms: int) -> Job:
    """The end of a replaced attempt was told late: its result counts where the job's rule says
    so, and then whatever took its place is stopped; else it changes nothing. What a slice had done
    was told, and counted, task by task."""
    if job.is_array:
        return settle_array(job, terms, now_ms)
    replacement = next(iter(job.counting_attempts), None)
    if job.cancel or not keeps_original(terms.reconcile, attempt, replacement, now_ms):
        return derive_phase(job)
    attempts = []
    for other in job.attempts:
        if other.uid == attempt.uid:
            other = replace(other, superseded_ms=0)
        elif replacement is not None and other.uid == replacement.uid:
            other = replace(
                other,
                superseded_ms=now_ms,
                desired=Desired.STOP,
                stop_why=OutcomeKind.WITHDRAWN,
                stop_text=f"the result of {attempt.uid} counts instead",
            )
        attempts.append(other)
    text = f"{attempt.uid} had succeeded at {attempt.cluster} while its site was silent"
    return end(replace(job, attempts=tuple(attempts)), replace(outcome, text=text), now_ms)


def cost_micro_usd(attempt: Attempt) -> int:
    """Price times accelerators times hours from its start to its end; 0 if it never started."""
    if not attempt.started_ms or attempt.ended_ms <= attempt.started_ms:
        return 0
    ran_ms = attempt.ended_ms - attempt.started_ms
    price = attempt.price_micro_usd_per_accelerator_hour
    return round(price * attempt.accelerators * ran_ms / 3_600_000)


def _next(job: Job, attempt: Attempt, outcome: Outcome, terms: Terms, now_ms: int) -> Job:
    if outcome.kind is OutcomeKind.REFUSED:
        return _after_refusal(job, attempt, outcome, now_ms)
    if outcome.kind is OutcomeKind.WITHDRAWN:
        if _tried_enough(job):
            return give_up(job, replace(outcome, kind=OutcomeKind.REFUSED), now_ms)
        if attempt.moves_to:  # nothing was wrong with where it waited
            return requeue(job, "withdrawn", outcome.text)
        return requeue(_avoid(job, attempt, outcome, now_ms), "withdrawn", outcome.text)
    if _fenced(outcome):
        return requeue(_avoid(job, attempt, outcome, now_ms), "site_lost", outcome.text)
    if outcome.kind is OutcomeKind.PREEMPTED:
        if not attempt.started_ms:  # where it was not even let start it would be so again
            job = _avoid(job, attempt, outcome, now_ms)
        return requeue(job, "preempted", outcome.text)
    if outcome.kind is OutcomeKind.MOVED:
        return requeue(job, "moved", outcome.text)
    if retry_allowed(job, outcome.kind, terms):
        again, wait_s = _retried(job, now_ms)
        tried = f"retry {again.retries_used} in {wait_s} s"
        return requeue(again, "retrying", f"{attempt.uid} ended {outcome.kind}: {tried}")
    return end(job, outcome, now_ms)


def _fenced(outcome: Outcome) -> bool:
    """Stopped for the silence of its site, not for a fault of its own."""
    return outcome.code == RefusalCode.FENCED


def _retried(job: Job, now_ms: int) -> tuple[Job, int]:
    """The job with one retry more used, and the seconds it waits before that."""
    wait_s = min(BACKOFF_FIRST_S * 2 ** min(job.retries_used, 9), BACKOFF_MAX_S)
    not_before_ms = now_ms + wait_s * 1000
    return replace(job, retries_used=job.retries_used + 1, not_before_ms=not_before_ms), wait_s


def _tried_enough(job: Job) -> bool:
    return job.attempts_made >= ATTEMPTS_WITHOUT_START_MAX and not job.started_ms


def give_up(job: Job, outcome: Outcome, now_ms: int) -> Job:
    """Nothing more is tried. What other slices of an array have runs on; the rest has failed."""
    if _tried_enough(job):
        text = f"{job.attempts_made} attempts were refused or withdrawn; last: {outcome.text}"
        outcome = replace(outcome, text=text)
    if not job.counting_attempts:
        return end(job, outcome, now_ms)
    gone = FailedTasks(job.unassigned_tasks, outcome.exit_code or -1, outcome.signal)
    failed = merge_failed(job.task_states.failed, (gone,))
    states = replace(job.task_states, failed=failed)
    return requeue(replace(job, task_states=states), outcome.code or "refused", outcome.text)


def retry_allowed(job: Job, kind: OutcomeKind, terms: Terms) -> bool:
    """Whether the job's retry policy covers this end and has tries left."""
    covered = kind in _RETRIABLE and kind in terms.retry_on
    return covered and job.retries_used < terms.retry_attempts


def _after_refusal(job: Job, attempt: Attempt, outcome: Outcome, now_ms: int) -> Job:
    known = outcome.code in RefusalCode.__members__.values()
    code = RefusalCode(outcome.code) if known else None
    disposition = code.disposition if code else Disposition.ELSEWHERE
    if disposition is Disposition.PERMANENT or _tried_enough(job):
        return give_up(job, outcome, now_ms)
    if disposition is Disposition.RETRY:
        wait_s = min(BACKOFF_FIRST_S * 2 ** min(job.attempts_made - 1, 9), BACKOFF_MAX_S)
        job = replace(job, not_before_ms=now_ms + wait_s * 1000)
    else:
        job = _avoid(job, attempt, outcome, now_ms)
    return requeue(job, outcome.code or "refused", f"{attempt.cluster}: {outcome.text}")


def _avoid(job: Job, attempt: Attempt, outcome: Outcome, now_ms: int) -> Job:
    wait_s = min(AVOID_FIRST_S * 2 ** min(job.attempts_made - 1, 6), AVOID_MAX_S)
    entry = AvoidedCluster(attempt.cluster, outcome.code, now_ms + wait_s * 1000)
    others = tuple(
        a for a in job.avoid if a.cluster != attempt.cluster and a.until_ms > now_ms
    )
    return replace(job, avoid=(*others, entry))


def requeue(job: Job, code: str, text: str) -> Job:
    """Back to waiting, unless other attempts still live."""
    return replace(derive_phase(job), reason_code=code, reason_text=text)


def end(job: Job, outcome: Outcome, now_ms: int) -> Job:
    """The end of a job."""
    return replace(
        job,
        phase=JobPhase.ENDED,
        outcome=outcome,
        ended_ms=now_ms,
        reason_code="",
        reason_text="",
        not_before_ms=0,
        avoid=(),
    )


def derive_phase(job: Job) -> Job:
    """Phase by the attempts that count: running > placed > held > queued; an end is for good."""
    if job.phase is JobPhase.ENDED:
        return job
    live = job.counting_attempts
    if any(a.phase.rank >= AttemptPhase.RUNNING.rank for a in live):
        phase = JobPhase.RUNNING
    elif live:
        phase = JobPhase.PLACED
    elif job.held:
        phase = JobPhase.HELD
    else:
        phase = JobPhase.QUEUED
    return job if phase is job.phase else replace(job, phase=phase)


# Arrays -------------------------------------------------------------------------------------------


def _after_slice(
    job: Job, attempt: Attempt, outcome: Outcome, terms: Terms, now_ms: int
) -> Job:
    """Fold the end of a slice into the states of its tasks, then see whether all ended."""
    left = attempt.tasks.difference(job.task_states.ended)
    cut_short = left.intersection(attempt.started_tasks)
    states = job.task_states
    if job.cancel:
        states = replace(states, cancelled=states.cancelled.union(left))
    elif outcome.kind in _RETURNS or outcome.kind is OutcomeKind.REFUSED or _fenced(outcome):
        pass  # unfinished tasks go back to the queue
    elif left and retry_allowed(job, outcome.kind, terms):
        job, _ = _retried(job, now_ms)
    elif cut_short:
        gone = FailedTasks(cut_short, outcome.exit_code or -1, outcome.signal)
        states = replace(states, failed=merge_failed(states.failed, (gone,)))
    job = replace(job, task_states=states)
    if not job.cancel:
        job = _elsewhere(job, attempt, outcome, now_ms)
    return job if job.phase is JobPhase.ENDED else settle_array(job, terms, now_ms)


def _elsewhere(job: Job, attempt: Attempt, outcome: Outcome, now_ms: int) -> Job:
    """An array after a slice that got nowhere: not at once, and not there again."""
    if outcome.kind is OutcomeKind.REFUSED:
        return _after_refusal(job, attempt, outcome, now_ms)
    if _fenced(outcome):
        return requeue(_avoid(job, attempt, outcome, now_ms), "site_lost", outcome.text)
    left = attempt.tasks.difference(job.task_states.ended)
    idle = bool(left) and not attempt.started_tasks
    if outcome.kind is not OutcomeKind.WITHDRAWN and not idle:
        return job
    if attempt.moves_to:  # nothing was wrong with where it waited
        return job
    if _tried_enough(job):
        return give_up(job, replace(outcome, kind=OutcomeKind.REFUSED), now_ms)
    code = outcome.code or RefusalCode.SUBMIT_FAILED.value
    return _avoid(job, attempt, replace(outcome, code=code), now_ms)


def settle_array(job: Job, terms: Terms, now_ms: int) -> Job:
    """End an array whose tasks have all ended, or start another round of its failed ones."""
    if job.counting_attempts or job.task_states.ended.count < job.tasks.count:
        if job.cancel and not job.counting_attempts:
            left = job.tasks.difference(job.task_states.ended)
            states = replace(
                job.task_states, cancelled=job.task_states.cancelled.union(left)
            )
            return settle_array(replace(job, task_states=states), terms, now_ms)
        return derive_phase(job)
    states = job.task_states
    if states.failed and not job.cancel and retry_allowed(job, OutcomeKind.FAILED, terms):
        job, _ = _retried(replace(job, task_states=replace(states, failed=())), now_ms)
        text = f"{states.failed_runs.count} failed tasks, round {job.retries_used}"
        return requeue(job, "retrying", text)
    return end(job, array_outcome(states), now_ms)


def array_outcome(states: TaskStates) -> Outcome:
    """The outcome of an array from its tasks: cancelled > failed > succeeded."""
    failed = states.failed_runs.count
    if states.cancelled:
        return Outcome(
            OutcomeKind.CANCELLED, text=f"{states.cancelled.count} tasks cancelled"
        )
    if failed:
        first = states.failed[0]
        return Outcome(
            OutcomeKind.FAILED, first.exit_code, first.signal, text=f"{failed} tasks failed"
        )
    return Outcome(OutcomeKind.SUCCEEDED)


def merge_failed(
    old: tuple[FailedTasks, ...], new: tuple[FailedTasks, ...]
) -> tuple[FailedTasks, ...]:
    """Failed tasks joined by (exit code, signal); a task already failed keeps its first code."""
    groups: dict[tuple[int, int], Runs] = {(g.exit_code, g.signal): g.tasks for g in old}
    known = Runs()
    for group in old:
        known = known.union(group.tasks)
    for group in new:
        fresh = group.tasks.difference(known)
        if fresh:
            key = (group.exit_code, group.signal)
            groups[key] = groups.get(key, Runs()).union(fresh)
            known = known.union(fresh)
    return tuple(FailedTasks(groups[k], k[0], k[1]) for k in sorted(groups))
