"""The total table of the lifecycle: what every event means in every phase.

Every pair is here, as a handler, as `Ignore(reason)` for what may arrive late or twice, or as
`Reject(reason)` for what nobody may ask then. A missing row is a bug and raises with the story.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.lifecycle import events as ev
from broker.lifecycle import handlers as h
from broker.lifecycle.handlers import AttemptHandler, JobHandler
from broker.model.jobs import AttemptPhase as A
from broker.model.jobs import JobPhase as J


@dataclass(frozen=True, slots=True)
class Ignore:
    """The event changes nothing, for this reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Reject:
    """The event may not happen here; whoever asked is told why."""

    reason: str


_PAST = Ignore("the attempt is past this already")
_OVER = Ignore("the attempt has ended; a late or repeated message changes nothing")
_ENDED = Reject("the job has ended")
_QUIET = Ignore("the job has ended")

AttemptRow = AttemptHandler | Ignore
JobRow = JobHandler | Ignore | Reject

_BEFORE_RUNNING = (A.PLACED, A.RESERVED, A.PREPARING, A.STARTING)
_LIVE = (*_BEFORE_RUNNING, A.RUNNING, A.RELEASING)


def _attempt_rows() -> dict[tuple[A, type], AttemptRow]:
    rows: dict[tuple[A, type], AttemptRow] = {}
    for phase in _LIVE:
        rows[phase, ev.Accepted] = h.accepted
        rows[phase, ev.TasksChanged] = h.tasks_changed
        rows[phase, ev.SliceSet] = h.slice_set
        rows[phase, ev.Ended] = h.ended
        rows[phase, ev.FoundMissing] = h.found_missing
    for phase in _BEFORE_RUNNING:
        rows[phase, ev.Refused] = h.refused
        rows[phase, ev.Prepared] = h.prepared
        rows[phase, ev.Started] = h.started
    for phase in (A.RUNNING, A.RELEASING):
        rows[phase, ev.Refused] = Ignore("what runs can no longer be refused")
        rows[phase, ev.Prepared] = _PAST
        rows[phase, ev.Started] = _PAST
    for event in ev.SITE_EVENTS:
        rows[A.ENDED, event] = _OVER
    return rows


_OPEN = (J.QUEUED, J.HELD, J.PLACED, J.RUNNING)


def _job_rows() -> dict[tuple[J, type], JobRow]:
    rows: dict[tuple[J, type], JobRow] = {}
    for phase in _OPEN:
        rows[phase, ev.CancelAsked] = h.cancel
        rows[phase, ev.HoldAsked] = h.hold
        rows[phase, ev.ReleaseAsked] = h.release
        rows[phase, ev.PrioritySet] = h.set_priority
        rows[phase, ev.StopDecided] = h.stop
        rows[phase, ev.ReplaceDecided] = h.supersede
        rows[phase, ev.SliceDecided] = h.grow_slice
        rows[phase, ev.TicketRenewed] = h.renew_ticket
        rows[phase, ev.SiteForgot] = h.site_forgot
        rows[phase, ev.AttemptPlaced] = h.placed
        rows[phase, ev.WaitExplained] = h.explain_wait
        rows[phase, ev.PredecessorsCame] = h.predecessors_came
        rows[phase, ev.PredecessorFailed] = h.predecessor_failed
    rows[J.HELD, ev.AttemptPlaced] = Reject("the job is held")
    rows[J.ENDED, ev.CancelAsked] = _QUIET
    rows[J.ENDED, ev.HoldAsked] = _ENDED
    rows[J.ENDED, ev.ReleaseAsked] = _ENDED
    rows[J.ENDED, ev.PrioritySet] = _ENDED
    rows[J.ENDED, ev.StopDecided] = _ENDED
    rows[J.ENDED, ev.ReplaceDecided] = _ENDED
    rows[J.ENDED, ev.SliceDecided] = _ENDED
    rows[J.ENDED, ev.TicketRenewed] = _ENDED
    rows[J.ENDED, ev.SiteForgot] = _QUIET
    rows[J.ENDED, ev.AttemptPlaced] = _ENDED
    rows[J.ENDED, ev.WaitExplained] = _QUIET
    rows[J.ENDED, ev.PredecessorsCame] = _QUIET
    rows[J.ENDED, ev.PredecessorFailed] = _QUIET
    return rows


ATTEMPT_TABLE = _attempt_rows()
JOB_TABLE = _job_rows()
