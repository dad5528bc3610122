"""`step(job, event, terms, now_ms) -> Step`: the only way a job changes. Pure.

The shell persists `Step.job` (and the attempts and task chunks that differ), then carries out
`Step.commands`. Repeating an event is harmless: site events carry the site's own `event_seq`.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.lifecycle import commands as cmd
from broker.lifecycle import events as ev
from broker.lifecycle.handlers import Rejected
from broker.lifecycle.table import ATTEMPT_TABLE, JOB_TABLE, Ignore, Reject
from broker.model.jobs import AttemptPhase, Job, JobPhase, Terms
from broker.model.replacing import replace


class IllegalTransition(Exception):
    """No row in the table: a bug. Carries the job as it stood and the event."""

    def __init__(self, job: Job, event: object) -> None:
        super().__init__(f"no row for {type(event).__name__} in {job.phase} of {job!r}")
        self.job = job
        self.event = event


@dataclass(frozen=True, slots=True)
class Step:
    """What came of an event. `ignored` says why nothing did; then `job` is unchanged."""

    job: Job
    commands: tuple[cmd.Command, ...] = ()
    ignored: str = ""


def step(job: Job, event: ev.Event, terms: Terms, now_ms: int) -> Step:
    """One event. Raises `Rejected` for what may not be asked now, `IllegalTransition` for a
    missing row."""
    after = (
        _site_event(job, event, terms, now_ms)
        if isinstance(event, ev.AttemptEvent)
        else _job_event(job, event, terms, now_ms)
    )
    if isinstance(after, Ignore):
        return Step(job, ignored=after.reason)
    if after is job or after == job:
        return Step(job, ignored="nothing changed")
    after = replace(after, changed_ms=now_ms)
    return Step(after, _commands(job, after, event))


def _job_event(job: Job, event: object, terms: Terms, now_ms: int) -> Job | Ignore:
    row = JOB_TABLE.get((job.phase, type(event)))
    if row is None:
        raise IllegalTransition(job, event)
    if isinstance(row, Ignore):
        return row
    if isinstance(row, Reject):
        raise Rejected(f"{job.id}: {row.reason}")
    return row(job, event, terms, now_ms)


def _site_event(job: Job, event: ev.AttemptEvent, terms: Terms, now_ms: int) -> Job | Ignore:
    attempt = job.attempt(event.uid)
    if attempt is None:
        return Ignore(f"{event.uid} is not an attempt of {job.id} that is kept here")
    if event.event_seq and event.event_seq <= attempt.event_seq:
        return Ignore(f"event {event.event_seq} of {event.uid} is already in the books")
    row = ATTEMPT_TABLE.get((attempt.phase, type(event)))
    if row is None:
        raise IllegalTransition(job, event)
    if isinstance(row, Ignore):
        return row
    noted = replace(attempt, event_seq=event.event_seq or attempt.event_seq)
    # A site's clock is its own: nothing happens before its attempt was placed, or after now.
    at_ms = max(min(event.at_ms, now_ms), attempt.placed_ms)
    return row(
        replace(job, attempts=tuple(noted if a.uid == noted.uid else a for a in job.attempts)),
        noted,
        event if event.at_ms == at_ms else replace(event, at_ms=at_ms),
        terms,
        now_ms,
    )


def _commands(before: Job, after: Job, event: ev.Event) -> tuple[cmd.Command, ...]:
    found: list[cmd.Command] = []
    known = {a.uid: a for a in before.attempts}
    actor = getattr(event, "subject", "") or getattr(event, "uid", "") or "leader"
    for attempt in after.attempts:
        old = known.get(attempt.uid)
        if old is attempt:
            continue
        was = old.phase.value if old else ""
        if was != attempt.phase.value or (old and old.desired is not attempt.desired):
            what = type(event).__name__
            why = attempt.outcome.text if attempt.outcome else attempt.stop_text
            why = why or attempt.desired.value
            found.append(cmd.Audit(attempt.uid, actor, what, was, attempt.phase.value, why))
        if attempt.phase is AttemptPhase.ENDED and was != AttemptPhase.ENDED.value:
            found.append(cmd.CloseAttempt(attempt.uid))
    if before.phase is not after.phase:
        why = after.outcome.text if after.outcome else after.reason_text
        what = type(event).__name__
        found.append(
            cmd.Audit(after.id, actor, what, before.phase.value, after.phase.value, why)
        )
        if after.phase is JobPhase.ENDED:
            found.append(cmd.CloseJob(after.id))
    return tuple(found)
