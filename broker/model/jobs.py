"""Jobs and attempts as values: what the lifecycle steps over and the records hold.

An *attempt* is one try of a job (or of a slice of an array) in one cluster and never goes back; a
*job*'s phase is derived from its attempts. Times are UTC epoch milliseconds, 0 = not yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from broker.model.plan import Part
from federation.ids import AttemptUid, Cluster, JobId, Tenant
from federation.runs import Runs
from federation.usage import Usage

NO_TASKS = Runs()


class JobPhase(StrEnum):
    """Where a job stands. Derived: ended > running > placed > held > queued."""

    QUEUED = "queued"
    HELD = "held"
    PLACED = "placed"
    RUNNING = "running"
    ENDED = "ended"


class AttemptPhase(StrEnum):
    """Where an attempt stands; the order here is the only order it may move in."""

    PLACED = "placed"
    RESERVED = "reserved"
    PREPARING = "preparing"
    STARTING = "starting"
    RUNNING = "running"
    RELEASING = "releasing"
    ENDED = "ended"

    @property
    def rank(self) -> int:
        """Position in the life of an attempt, 0 = placed."""
        return _RANK[self]


_RANK = {phase: rank for rank, phase in enumerate(AttemptPhase)}


class Desired(StrEnum):
    """What the broker wants of an attempt."""

    RUN = "run"
    STOP = "stop"


class OutcomeKind(StrEnum):
    """How an attempt or a job ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    LOST = "lost"
    REFUSED = "refused"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    WITHDRAWN = "withdrawn"
    MOVED = "moved"
    """Stopped to go on elsewhere, where that is worth it."""


class Reconcile(StrEnum):
    """Which of two results counts once the site of a replaced attempt is back."""

    KEEP_ORIGINAL = "keep_original"
    KEEP_REPLACEMENT = "keep_replacement"
    LONGEST_RUNNING = "longest_running"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended; `code` is a refusal code where refused, `signal` 0 = none."""

    kind: OutcomeKind
    exit_code: int = 0
    signal: int = 0
    code: str = ""
    text: str = ""
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class Output:
    """A result file that came back, as a blob."""

    path: str
    sha256: str
    size_bytes: int
    mode: int


@dataclass(frozen=True, slots=True)
class FailedTasks:
    """Array tasks that ended the same bad way."""

    tasks: Runs
    exit_code: int
    signal: int = 0


@dataclass(frozen=True, slots=True)
class TaskStates:
    """Ends of array tasks. What is in neither is unstarted or in a live slice."""

    succeeded: Runs = NO_TASKS
    failed: tuple[FailedTasks, ...] = ()
    cancelled: Runs = NO_TASKS

    @property
    def failed_runs(self) -> Runs:
        """All failed tasks, whatever their exit code."""
        every = Runs()
        for group in self.failed:
            every = every.union(group.tasks)
        return every

    @property
    def ended(self) -> Runs:
        """All tasks that will not run again."""
        return self.succeeded.union(self.failed_runs).union(self.cancelled)


NO_ENDS = TaskStates()


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try in one cluster. Resources are per replica; `tasks`/`width` only for slices."""

    uid: AttemptUid
    job: JobId
    tenant: Tenant
    cluster: Cluster
    region: str
    pool: str
    epoch: int
    dispatch_seq: int
    ticket: bytes
    placed_ms: int
    desired: Desired = Desired.RUN
    stop_why: OutcomeKind | None = None
    stop_text: str = ""
    phase: AttemptPhase = AttemptPhase.PLACED
    placed_seq: int = 0  # command number of its dispatch; `dispatch_seq` is the latest
    confirmed_seq: int = 0
    tasks: Runs = NO_TASKS
    width: int = 0
    replicas: int = 1
    accelerators_per_replica: int = 0
    accelerator: str = "CPU"
    cpus_milli_per_replica: int = 0
    memory_bytes_per_replica: int = 0
    extras_per_replica: tuple[tuple[str, int], ...] = ()
    max_runtime_s: int = 0
    stop_grace_s: int = 30
    reserved_ms: int = 0
    prepared_ms: int = 0
    started_ms: int = 0
    ended_ms: int = 0
    outcome: Outcome | None = None
    event_seq: int = 0
    price_micro_usd_per_accelerator_hour: int = 0
    price_source: str = ""
    price_as_of_ms: int = 0
    expected_start_delay_ms: int = 0  # the median; p90 beside
    expected_start_p90_ms: int = 0
    handshake_ms: int = 0  # from the decision to the site's yes, over the session kept
    prepare_ms: int = 0
    fetched_bytes: int = 0
    cached_bytes: int = 0
    launch_ms: int = 0
    outputs: tuple[Output, ...] = ()
    local_id: str = ""
    nodes: tuple[str, ...] = ()
    cycle: str = ""
    log_bytes: tuple[tuple[str, int], ...] = ()
    started_tasks: Runs = NO_TASKS
    fence_after_s: int = 0  # its site stops it after so long without contact; 0 = never
    superseded_ms: int = 0  # since when another attempt counts instead of it
    queued: bool = False  # sent to wait in its site's queue
    stop_unless_started: bool = False  # the stop is for one that waits: once begun it stays
    moves_to: str = ""  # pool (cluster/pool) kept for its job once it is gone here
    parts: tuple[Part, ...] = ()  # where replicas go, copy by copy, by rank; none: all to `pool`
    extra: bytes = b""  # fields of a newer version, kept on rewrite

    @property
    def copies(self) -> int:
        """How many copies run at once: the width of a slice, else 1."""
        return max(self.width, 1)

    @property
    def accelerators(self) -> int:
        """Accelerators (or CPU slots) charged to this attempt."""
        return self.copies * self.replicas * max(self.accelerators_per_replica, 1)

    @property
    def first_seq(self) -> int:
        """Command number of its dispatch; `dispatch_seq` may be that of a later command."""
        return self.placed_seq or self.dispatch_seq

    @property
    def live(self) -> bool:
        """Not ended: its capacity is still taken."""
        return self.phase is not AttemptPhase.ENDED

    @property
    def counts(self) -> bool:
        """Live, and what becomes of it is what becomes of its job. One that was superseded is
        to be stopped and metered, no more."""
        return self.phase is not AttemptPhase.ENDED and not self.superseded_ms

    @property
    def in_one_pool(self) -> bool:
        """Whether all that it holds is in its pool: none where it waits for it."""
        return not self.waits_in_queue and all(part.pool == self.pool for part in self.parts)

    @property
    def waits_in_queue(self) -> bool:
        """In its site's queue, or on the way there: it holds nothing yet."""
        return self.queued and self.phase.rank < AttemptPhase.RUNNING.rank

    @property
    def waiting_copies(self) -> int:
        """How many of its copies wait in its site's queue; of a slice some may have begun."""
        if not self.queued or self.phase is AttemptPhase.ENDED:
            return 0
        if self.waits_in_queue:
            return self.copies
        return max(self.width - self.started_tasks.count, 0)

    @property
    def lagging(self) -> bool:
        """The site has not yet answered the last command decided for it."""
        return self.live and (
            self.confirmed_seq < self.dispatch_seq or self.desired is Desired.STOP
        )


@dataclass(frozen=True, slots=True)
class AvoidedCluster:
    """A cluster not to try again before `until_ms`, and why."""

    cluster: Cluster
    code: str
    until_ms: int


AWAITED_NAMED_MAX = 3
_AWAITED = {"succeeded": "to succeed", "ended": "to end", "started": "to start"}


@dataclass(frozen=True, slots=True)
class Awaited:
    """A job that another waits for, and what is to become of it: `succeeded`, `ended` or
    `started`."""

    job: JobId
    when: str = "succeeded"


@dataclass(frozen=True, slots=True)
class Job:
    """A job and its live attempts."""

    id: JobId
    tenant: Tenant
    name: str
    subject: str
    priority: int
    class_key: str
    created_ms: int
    changed_ms: int
    tasks: Runs = NO_TASKS
    phase: JobPhase = JobPhase.QUEUED
    reason_code: str = ""
    reason_text: str = ""
    attempts_made: int = 0
    retries_used: int = 0
    not_before_ms: int = 0
    avoid: tuple[AvoidedCluster, ...] = ()
    started_ms: int = 0
    ended_ms: int = 0
    outcome: Outcome | None = None
    cost_micro_usd: int = 0
    held: bool = False
    cancel: bool = False
    task_states: TaskStates = NO_ENDS
    attempts: tuple[Attempt, ...] = ()
    awaits: tuple[Awaited, ...] = ()
    extra: bytes = b""  # fields of a newer version, kept on rewrite

    @property
    def awaits_text(self) -> str:
        """Which jobs it waits for, in words; empty for none."""
        if not self.awaits:
            return ""
        named = [f"{each.job} {_AWAITED[each.when]}" for each in self.awaits[:AWAITED_NAMED_MAX]]
        more = len(self.awaits) - len(named)
        return f"waits for {', '.join(named)}" + (f" and {more} more" if more else "")

    @property
    def is_array(self) -> bool:
        """Whether this job is an array of tasks."""
        return bool(self.tasks)

    @property
    def live_attempts(self) -> tuple[Attempt, ...]:
        """Attempts that have not ended."""
        if not self.attempts:
            return ()
        return tuple([a for a in self.attempts if a.phase is not AttemptPhase.ENDED])

    @property
    def counting_attempts(self) -> tuple[Attempt, ...]:
        """Live attempts that were not superseded by another."""
        return tuple([a for a in self.attempts if a.counts]) if self.attempts else ()

    @property
    def made_room(self) -> bool:
        """Whether its last attempt was stopped for others or to move; a slice of an array
        likewise."""
        last = self.attempts[-1].outcome if self.attempts else None
        return last is not None and last.kind in (OutcomeKind.PREEMPTED, OutcomeKind.MOVED)

    @property
    def moves(self) -> str:
        """From where, where to and why it is on its way to another place; empty when it is not."""
        last = self.attempts[-1].outcome if self.attempts else None
        return last.text if last is not None and last.kind is OutcomeKind.MOVED else ""

    @property
    def unassigned_tasks(self) -> Runs:
        """Array tasks that neither ended nor lie in a live slice; those of a slice that was
        superseded are not its own any more."""
        left = self.tasks.difference(self.task_states.ended)
        for attempt in self.counting_attempts:
            left = left.difference(attempt.tasks)
        return left

    def attempt(self, uid: str) -> Attempt | None:
        """The attempt of that uid, live or just ended; None when unknown here."""
        return next((a for a in self.attempts if a.uid == uid), None)


@dataclass(frozen=True, slots=True)
class Terms:
    """What of a job's spec its lifecycle depends on. `retry_on` holds outcome kinds."""

    retry_attempts: int = 0
    retry_on: frozenset[OutcomeKind] = frozenset()
    stop_grace_s: int = 30
    max_start_delay_s: int = 0
    reconcile: Reconcile = Reconcile.KEEP_ORIGINAL


@dataclass(frozen=True, slots=True)
class Intent:
    """What users asked of a job since it was submitted."""

    cancel: bool = False
    hold: bool = False
    priority: int | None = None
    at_ms: int = 0
    subject: str = ""
    why: str = ""
