"""One handler per thing that may happen in a phase: job in, job out. Pure.

The table (`table.py`) says which handler runs for which phase and event; nothing else calls them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from broker.lifecycle import events as ev
from broker.lifecycle.disconnect import kept_of_original
from broker.lifecycle.outcomes import (
    after_attempt,
    derive_phase,
    end,
    merge_failed,
    requeue,
    settle_array,
)
from broker.model.jobs import (
    Attempt,
    AttemptPhase,
    Desired,
    Job,
    JobPhase,
    Outcome,
    OutcomeKind,
    Terms,
)
from broker.model.replacing import replace
from federation.refusals import RefusalCode

JobHandler = Callable[[Job, Any, Terms, int], Job]
AttemptHandler = Callable[[Job, Attempt, Any, Terms, int], Job]
Item = TypeVar("Item")

LISTED_BYTES_MAX = 128 * 1024
"""Room for each list a site sends with an attempt: the record must fit one request of etcd."""
OUTPUT_BYTES = 90
"""An output beside its path: digest, size, mode, framing."""


class Rejected(ValueError):
    """An event that may not happen to this job as it stands; nothing was changed."""


# Events of the site -------------------------------------------------------------------------------


def _with(job: Job, attempt: Attempt) -> Job:
    attempts = tuple(attempt if a.uid == attempt.uid else a for a in job.attempts)
    return derive_phase(replace(job, attempts=attempts))


def _forward(attempt: Attempt, phase: AttemptPhase) -> AttemptPhase:
    return phase if phase.rank > attempt.phase.rank else attempt.phase


def accepted(job: Job, attempt: Attempt, event: ev.Accepted, terms: Terms, now_ms: int) -> Job:
    """Capacity is held at the site."""
    return _with(
        job,
        replace(
            attempt,
            phase=_forward(attempt, AttemptPhase.RESERVED),
            reserved_ms=attempt.reserved_ms or event.at_ms,
            handshake_ms=attempt.handshake_ms or max(event.at_ms - attempt.placed_ms, 0),
            confirmed_seq=_confirmed(attempt, event.dispatch_seq),
            nodes=_fitting(event.nodes, len) or attempt.nodes,
        ),
    )


def prepared(job: Job, attempt: Attempt, event: ev.Prepared, terms: Terms, now_ms: int) -> Job:
    """Everything the job needs is at the site."""
    return _with(
        job,
        replace(
            attempt,
            phase=_forward(attempt, AttemptPhase.STARTING),
            prepared_ms=attempt.prepared_ms or event.at_ms,
            prepare_ms=event.prepare_ms,
            fetched_bytes=event.fetched_bytes,
            cached_bytes=event.cached_bytes,
            confirmed_seq=max(attempt.confirmed_seq, attempt.first_seq),
        ),
    )


def started(job: Job, attempt: Attempt, event: ev.Started, terms: Terms, now_ms: int) -> Job:
    """It runs. Told late of one that was superseded, it says nothing of the job. A stop that was
    for one that waits has come too late: it stays."""
    if attempt.stop_unless_started:
        attempt = replace(
            attempt,
            desired=Desired.RUN,
            stop_why=None,
            stop_text="",
            stop_unless_started=False,
            moves_to="",
        )
    if not attempt.superseded_ms:
        job = replace(
            job, started_ms=job.started_ms or event.at_ms, reason_code="", reason_text=""
        )
    return _with(
        job,
        replace(
            attempt,
            phase=_forward(attempt, AttemptPhase.RUNNING),
            started_ms=attempt.started_ms or event.at_ms,
            launch_ms=event.launch_ms,
            local_id=event.local_id,
            confirmed_seq=max(attempt.confirmed_seq, attempt.first_seq),
        ),
    )


def tasks_changed(
    job: Job, attempt: Attempt, event: ev.TasksChanged, terms: Terms, now_ms: int
) -> Job:
    """Tasks of a slice started or ended; only tasks of this slice count. Told late of one that was
    superseded only successes do, as far as the job's rule keeps them."""
    mine, states = attempt.tasks, job.task_states
    if attempt.superseded_ms:
        mine = kept_of_original(terms.reconcile, job, attempt)
        event = replace(event, failed=())
    over = states.ended
    succeeded = event.succeeded.intersection(mine).difference(over)
    over = over.union(succeeded)
    states = replace(
        states,
        succeeded=states.succeeded.union(succeeded),
        failed=merge_failed(
            states.failed,
            tuple(
                replace(g, tasks=g.tasks.intersection(mine).difference(over))
                for g in event.failed
            ),
        ),
    )
    started = attempt.started_tasks.union(event.started.intersection(attempt.tasks))
    return _with(replace(job, task_states=states), replace(attempt, started_tasks=started))


def slice_set(job: Job, attempt: Attempt, event: ev.SliceSet, terms: Terms, now_ms: int) -> Job:
    """The site works on the new set of tasks, or on a part of it: the rest goes back.

    It never gets more than was given, and what it has started stays with it.
    """
    tasks = attempt.tasks
    if event.dispatch_seq >= attempt.dispatch_seq:
        tasks = tasks.intersection(event.tasks.union(attempt.started_tasks))
    confirmed_seq = _confirmed(attempt, event.dispatch_seq)
    return _with(job, replace(attempt, confirmed_seq=confirmed_seq, tasks=tasks))


def _confirmed(attempt: Attempt, dispatch_seq: int) -> int:
    """The last command answered; a site cannot answer one that was never given."""
    return max(attempt.confirmed_seq, min(dispatch_seq, attempt.dispatch_seq))


def refused(job: Job, attempt: Attempt, event: ev.Refused, terms: Terms, now_ms: int) -> Job:
    """The site did not take it."""
    outcome = Outcome(OutcomeKind.REFUSED, code=event.code, text=event.text)
    return _over(job, attempt, outcome, event.at_ms, terms, now_ms)


def ended(job: Job, attempt: Attempt, event: ev.Ended, terms: Terms, now_ms: int) -> Job:
    """It is over. A stop of ours gives the reason unless it ended by itself before."""
    outcome = event.outcome
    stopped = outcome.kind is OutcomeKind.CANCELLED
    if stopped and attempt.stop_why is not None:
        text = attempt.stop_text or outcome.text
        outcome = replace(outcome, kind=attempt.stop_why, text=text)
    outputs = _fitting(event.outputs, lambda output: len(output.path) + OUTPUT_BYTES)
    unlisted = len(event.outputs) - len(outputs)
    if unlisted:
        note = f"{unlisted} more results are not listed"
        outcome = replace(outcome, text=f"{outcome.text[:400]}; {note}".lstrip("; "))
    logs = _fitting(event.log_bytes, lambda log: len(log[0]) + 16)
    attempt = replace(attempt, outputs=outputs, log_bytes=logs)
    return _over(job, attempt, outcome, event.at_ms, terms, now_ms)


def _fitting(items: tuple[Item, ...], size_of: Callable[[Item], int]) -> tuple[Item, ...]:
    """As many of a site's items, from the first on, as a record in etcd has room for."""
    left_bytes = LISTED_BYTES_MAX
    for index, item in enumerate(items):
        left_bytes -= size_of(item)
        if left_bytes < 0:
            return items[:index]
    return items


def found_missing(
    job: Job, attempt: Attempt, event: ev.FoundMissing, terms: Terms, now_ms: int
) -> Job:
    """The site does not have what it once confirmed: nobody saw its end. What was to stop
    anyway has stopped."""
    outcome = Outcome(attempt.stop_why or OutcomeKind.LOST, text=event.text)
    return _over(job, attempt, outcome, event.at_ms, terms, now_ms)


def _over(
    job: Job, attempt: Attempt, outcome: Outcome, at_ms: int, terms: Terms, now_ms: int
) -> Job:
    attempt = replace(
        attempt,
        phase=AttemptPhase.ENDED,
        outcome=outcome,
        ended_ms=max(at_ms, attempt.started_ms),
        confirmed_seq=attempt.dispatch_seq,
    )
    return after_attempt(_with(job, attempt), attempt, terms, now_ms)


# Events of users, planner and leader --------------------------------------------------------------


def cancel(job: Job, event: ev.CancelAsked, terms: Terms, now_ms: int) -> Job:
    """Stop what lives; end at once where nothing does."""
    job = replace(job, cancel=True)
    for attempt in job.live_attempts:
        job = _with(job, _stopping(attempt, OutcomeKind.CANCELLED))
    if job.is_array:
        return settle_array(job, terms, now_ms)
    if job.counting_attempts:
        return job
    return end(job, Outcome(OutcomeKind.CANCELLED, text=event.why), now_ms)


def _stopping(attempt: Attempt, why: OutcomeKind, text: str = "") -> Attempt:
    if attempt.desired is Desired.STOP and attempt.stop_why is OutcomeKind.CANCELLED:
        return attempt  # a cancel is never weakened to a withdrawal
    return replace(
        attempt,
        desired=Desired.STOP,
        stop_why=why,
        stop_text=text,
        stop_unless_started=False,
        moves_to="",
    )


def hold(job: Job, event: ev.HoldAsked, terms: Terms, now_ms: int) -> Job:
    """No further placement; what runs runs on."""
    held = replace(job, held=True)
    if not job.counting_attempts:
        held = replace(held, reason_code="held", reason_text=f"held by {event.subject}")
    return derive_phase(held)


def release(job: Job, event: ev.ReleaseAsked, terms: Terms, now_ms: int) -> Job:
    """Placement may go on."""
    return derive_phase(_waiting(replace(job, held=False)))


def _waiting(job: Job) -> Job:
    """With the reason that comes before any decision: the jobs it waits for, or none."""
    code = RefusalCode.DEPENDENCY_PENDING if job.awaits else ""
    return replace(job, reason_code=code, reason_text=job.awaits_text)


def set_priority(job: Job, event: ev.PrioritySet, terms: Terms, now_ms: int) -> Job:
    """Another priority from the next decision on."""
    return replace(job, priority=event.priority)


def placed(job: Job, event: ev.AttemptPlaced, terms: Terms, now_ms: int) -> Job:
    """Take a new attempt in, if the job still wants one."""
    attempt = event.attempt
    if job.cancel or job.held or job.awaits:
        why = "cancelled" if job.cancel else "held" if job.held else "waiting for other jobs"
        raise Rejected(f"{job.id} is {why}")
    if job.is_array:
        if not attempt.tasks or attempt.tasks.difference(job.unassigned_tasks):
            raise Rejected(f"{job.id}: tasks {attempt.tasks} are not all unassigned")
    elif job.counting_attempts:
        raise Rejected(f"{job.id} already has a live attempt")
    job = replace(
        job,
        attempts=(*job.attempts, attempt),
        attempts_made=job.attempts_made + 1,
        reason_code="",
        reason_text="",
    )
    return derive_phase(job)


def stop(job: Job, event: ev.StopDecided, terms: Terms, now_ms: int) -> Job:
    """One attempt is to stop; it stays live until the site confirms. Nothing that is to stop in
    any case is asked to stop only if it waits."""
    attempt = _live(job, event.uid)
    if not event.unless_started:
        stopping = _stopping(attempt, event.why, event.text)
        return _with(job, replace(stopping, moves_to=event.moves_to or stopping.moves_to))
    if attempt.phase.rank >= AttemptPhase.RUNNING.rank or attempt.desired is Desired.STOP:
        return job
    stopping = _stopping(attempt, event.why, event.text)
    return _with(job, replace(stopping, stop_unless_started=True, moves_to=event.moves_to))


def supersede(job: Job, event: ev.ReplaceDecided, terms: Terms, now_ms: int) -> Job:
    """Its site has stopped it unseen: the job goes back to the queue, or is cancelled at last. The
    attempt stays until the site tells its end, to be stopped should it run after all."""
    attempt = _live(job, event.uid)
    if attempt.superseded_ms or not attempt.fence_after_s:
        why = "is superseded already" if attempt.superseded_ms else "has no contact deadline"
        raise Rejected(f"{attempt.uid} {why}")
    attempt = _stopping(attempt, attempt.stop_why or OutcomeKind.LOST, event.why)
    job = _with(job, replace(attempt, superseded_ms=now_ms))
    if job.cancel and job.is_array:
        return settle_array(job, terms, now_ms)
    if job.cancel:
        return end(job, Outcome(OutcomeKind.CANCELLED, text=event.why), now_ms)
    return requeue(job, "site_lost", event.why)


def grow_slice(job: Job, event: ev.SliceDecided, terms: Terms, now_ms: int) -> Job:
    """Give a slice more tasks, or take out such as have ended elsewhere.

    A task that is taken out is unassigned at once, before its site has confirmed that it has not
    begun: taken out to run elsewhere, it could run twice.
    """
    attempt = _live(job, event.uid)
    added = event.tasks.difference(attempt.tasks)
    if added.difference(job.unassigned_tasks):
        raise Rejected(f"{job.id}: tasks {added} are not all unassigned")
    return _with(job, replace(attempt, tasks=event.tasks, dispatch_seq=event.dispatch_seq))


def renew_ticket(job: Job, event: ev.TicketRenewed, terms: Terms, now_ms: int) -> Job:
    """The same attempt under the epoch of a new leader."""
    attempt = _live(job, event.uid)
    return _with(job, replace(attempt, ticket=event.ticket, epoch=event.epoch))


def site_forgot(job: Job, event: ev.SiteForgot, terms: Terms, now_ms: int) -> Job:
    """Ask the site anew, durably: until it answers, the attempt is to be found, not launched."""
    attempt = _live(job, event.uid)
    return _with(job, replace(attempt, confirmed_seq=0))


def explain_wait(job: Job, event: ev.WaitExplained, terms: Terms, now_ms: int) -> Job:
    """Why it waits, as last decided."""
    if (job.reason_code, job.reason_text) == (event.code, event.text):
        return job
    return replace(job, reason_code=event.code, reason_text=event.text)


def predecessors_came(
    job: Job, event: ev.PredecessorsCame, terms: Terms, now_ms: int
) -> Job:
    """It waits for fewer jobs, or for none: then it may be placed."""
    left = tuple(each for each in job.awaits if each not in event.came)
    return _waiting(replace(job, awaits=left)) if not job.held else replace(job, awaits=left)


def predecessor_failed(
    job: Job, event: ev.PredecessorFailed, terms: Terms, now_ms: int
) -> Job:
    """It will never be its turn: it is over, without a start."""
    if not job.awaits:
        return job
    code = RefusalCode.DEPENDENCY_FAILED
    return end(job, Outcome(OutcomeKind.CANCELLED, code=code, text=event.text), now_ms)


def _live(job: Job, uid: str) -> Attempt:
    attempt = job.attempt(uid)
    if attempt is None or not attempt.live:
        raise Rejected(f"{job.id} has no live attempt {uid}")
    return attempt


def is_over(job: Job) -> bool:
    """Whether nothing can happen to it any more."""
    return job.phase is JobPhase.ENDED
