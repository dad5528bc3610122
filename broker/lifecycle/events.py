"""What can happen to a job and to an attempt: past tense, frozen, complete.

Attempt events come from the site (or from reconciling with it) and carry the site's `event_seq`;
job events come from users, the planner and the leader's timers.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.model.jobs import Attempt, Awaited, FailedTasks, Outcome, OutcomeKind, Output
from federation.runs import Runs


@dataclass(frozen=True, slots=True)
class AttemptEvent:
    """Something a site said of one attempt. `at_ms` is broker time as the agent reckons it."""

    uid: str
    event_seq: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Accepted(AttemptEvent):
    """The site checked the command and holds the capacity."""

    dispatch_seq: int
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused(AttemptEvent):
    """The site did not take it; `code` is a refusal code."""

    dispatch_seq: int
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Prepared(AttemptEvent):
    """Files, data and image are there."""

    prepare_ms: int
    fetched_bytes: int = 0
    cached_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Started(AttemptEvent):
    """It runs; `launch_ms` from the local scheduler's taking it."""

    launch_ms: int
    local_id: str


@dataclass(frozen=True, slots=True)
class TasksChanged(AttemptEvent):
    """Tasks of a slice started or ended, as runs."""

    started: Runs
    succeeded: Runs
    failed: tuple[FailedTasks, ...]


@dataclass(frozen=True, slots=True)
class SliceSet(AttemptEvent):
    """The site has taken over a new set of tasks for a slice."""

    dispatch_seq: int
    tasks: Runs


@dataclass(frozen=True, slots=True)
class Ended(AttemptEvent):
    """It is over and its capacity is free."""

    outcome: Outcome
    outputs: tuple[Output, ...] = ()
    log_bytes: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class FoundMissing(AttemptEvent):
    """The site was asked to adopt an attempt it once confirmed, and does not have it."""

    text: str


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """A durable intent to cancel was recorded."""

    subject: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class HoldAsked:
    """Do not place it (further)."""

    subject: str


@dataclass(frozen=True, slots=True)
class ReleaseAsked:
    """Undo a hold."""

    subject: str


@dataclass(frozen=True, slots=True)
class PrioritySet:
    """A new priority was asked for."""

    priority: int
    subject: str


@dataclass(frozen=True, slots=True)
class AttemptPlaced:
    """The planner chose a place; the attempt is new."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class StopDecided:
    """The leader wants one attempt stopped: preempted or withdrawn. `text`: for whom, in words.
    `unless_started`: only as long as it waits. `moves_to`: a pool kept for it meanwhile."""

    uid: str
    why: OutcomeKind
    text: str = ""
    unless_started: bool = False
    moves_to: str = ""


@dataclass(frozen=True, slots=True)
class ReplaceDecided:
    """Its site was silent for so long that the site has stopped it: another may take its place."""

    uid: str
    why: str


@dataclass(frozen=True, slots=True)
class SliceDecided:
    """The leader gives a slice another set of tasks, under a new command number."""

    uid: str
    tasks: Runs
    dispatch_seq: int


@dataclass(frozen=True, slots=True)
class TicketRenewed:
    """A new leader signed an unconfirmed attempt's ticket again."""

    uid: str
    ticket: bytes
    epoch: int


@dataclass(frozen=True, slots=True)
class SiteForgot:
    """The site came back with another disk: what it confirmed of this attempt counts no more."""

    uid: str


@dataclass(frozen=True, slots=True)
class WaitExplained:
    """The planner left it waiting, for this reason."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class PredecessorsCame:
    """What some of the jobs it waits for had to do is done."""

    came: tuple[Awaited, ...]


@dataclass(frozen=True, slots=True)
class PredecessorFailed:
    """What it waits for can never come."""

    text: str


JobEvent = (
    CancelAsked
    | HoldAsked
    | ReleaseAsked
    | PrioritySet
    | AttemptPlaced
    | StopDecided
    | ReplaceDecided
    | SliceDecided
    | TicketRenewed
    | SiteForgot
    | WaitExplained
    | PredecessorsCame
    | PredecessorFailed
)
SiteEvent = (
    Accepted | Refused | Prepared | Started | TasksChanged | SliceSet | Ended | FoundMissing
)
Event = JobEvent | SiteEvent

JOB_EVENTS: tuple[type, ...] = (
    CancelAsked,
    HoldAsked,
    ReleaseAsked,
    PrioritySet,
    AttemptPlaced,
    StopDecided,
    ReplaceDecided,
    SliceDecided,
    TicketRenewed,
    SiteForgot,
    WaitExplained,
    PredecessorsCame,
    PredecessorFailed,
)
SITE_EVENTS: tuple[type, ...] = (
    Accepted,
    Refused,
    Prepared,
    Started,
    TasksChanged,
    SliceSet,
    Ended,
    FoundMissing,
)
