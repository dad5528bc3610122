"""The port of a local scheduler: what the agent asks of whatever runs jobs at its site.

Implemented by `process` (the keeper on this host) and by the adapters of batch systems.
All times are epoch milliseconds of the site's clock, durations carry their unit. Everything is
keyed by the attempt's uid, and every call may be repeated: the second call changes nothing.

Two kinds of trouble are kept apart. A *refusal* is an answer (a `Refusal` of
`federation.refusals`): the scheduler will not do it. `SchedulerUnavailable` is raised when the
scheduler could not be asked: nothing is known about the effect, so ask again; never conclude
from it that an attempt has ended.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from federation.refusals import Refusal
from federation.runs import Runs
from regional_agent.session.ledger import Place

UID_FORMAT = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
"""An attempt uid: fits Kubernetes labels, Slurm names and a directory name."""

NEVER = float("-inf")


class SchedulerUnavailable(Exception):
    """The local scheduler could not be asked: every attempt is unknown, none has ended."""


class Feature(StrEnum):
    """What a scheduler can do beyond running one program to its end."""

    ARRAY = "array"
    GANG = "gang"
    SET_SLICE = "set_slice"
    MAX_RUNTIME = "max_runtime"
    MEMORY_LIMIT = "memory_limit"
    LIVE_LOGS = "live_logs"
    LIVE_USAGE = "live_usage"
    ADOPT = "adopt"
    """Attempts outlive the agent and are found again after its restart."""
    FENCE = "fence"
    """It stops an attempt by itself when its contact deadline passes: see `Fencing`."""
    QUEUE = "queue"
    """What finds nothing free waits in a queue of its own, and starts when something is."""
    SANDBOX = "sandbox"
    """Jobs see neither the agent nor each other."""
    ONE_NODE = "one_node"
    """All members of a gang on one node, where the job says so."""
    MEMBERS_APART = "members_apart"
    """Each member of a gang on a node of its own, where the job says so."""
    TASKS_APART = "tasks_apart"
    """Each task of an array that runs on a node of its own, where the job says so."""
    SINGLE_GANGS = "single_gangs"
    """No arrays whose tasks are gangs; told, so that none is placed here."""
    PARTS = "parts"
    """The replicas of a gang each in the pool and rack where its places say."""
    IMAGES = "images"
    """Jobs may name the image they run in."""
    CONTROL_GROUPS = "control_groups"
    """Memory, processes and CPU time are bound by the kernel, and no process escapes a kill."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """`kind` is `process`, `slurm`, `kubernetes`, `ray` or `gridengine`."""

    kind: str
    features: frozenset[Feature]


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """One attempt, complete: whoever holds this needs nothing else to run it.

    Exactly one of `argv` and `run` is given; `run` is the text of a script, run by `/bin/sh`
    unless it begins with `#!`. `env` is final apart from `HOME`, `CUDA_VISIBLE_DEVICES`, the
    rank variables and `TRADEWIND_*`, which the scheduler sets for each process. The working
    directory has been laid by staging. `accelerator` is the model's canonical name; with `CPU`
    or none the places name slots, and no card is shown to the program. `cpus_milli` and
    `memory_bytes` are per replica, `max_runtime_s` per task; 0 = no limit.

    `one_node`: the members of a gang share a node. `own_nodes`: no two of them, and no two tasks of
    the array, are on one node at a time, those of other attempts of the job included.
    `network`: it asks for the network of the site where that is not open to all. `image`: what
    it runs in, as the job names it; empty: what the site has for all.
    `keep`: patterns of what the job brings back, for schedulers whose nodes have a working
    directory of their own.

    `tasks` is None for a job that is no array. `places` says where each process may sit: copy
    (lane) `l` of the `width` running at once and rank `r` sit at `places[l * replicas + r]`.

    `features`: what every node it runs on must have; `extras`: by name what each replica takes of
    the things a site counts.

    `queued`: it may have to wait, and its places say only in which pool and on how many
    accelerators; where it will run the scheduler decides.

    `fence_after_s`, where it is not 0: without contact for so long the attempt is stopped, or
    never started. `contact_s` is the last contact before the order, by the clock of `Fencing`.
    """

    uid: str
    job: str
    tenant: str
    argv: tuple[str, ...] = ()
    run: str = ""
    env: tuple[tuple[str, str], ...] = ()
    accelerator: str = ""
    cpus_milli: int = 0
    memory_bytes: int = 0
    max_runtime_s: int = 0
    grace_s: int = 30
    replicas: int = 1
    tasks: Runs | None = None
    width: int = 1
    places: tuple[Place, ...] = ()
    fence_after_s: int = 0
    contact_s: float = NEVER
    network: bool = False
    one_node: bool = False
    own_nodes: bool = False
    image: str = ""
    queued: bool = False
    features: tuple[str, ...] = ()
    extras: tuple[tuple[str, int], ...] = ()
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError for an order that says two things, or nothing."""
        if not UID_FORMAT.fullmatch(self.uid):
            raise ValueError(f"not an attempt uid: {self.uid!r}")
        if bool(self.argv) == bool(self.run):
            raise ValueError("an order has either argv or run")
        if self.replicas < 1 or self.width < 1:
            raise ValueError("replicas and width are at least 1")
        if self.tasks is None and self.width != 1:
            raise ValueError("width belongs to arrays")
        if self.places and len(self.places) != self.replicas * self.width:
            raise ValueError("places must name one place per replica and lane, or none")
        if min(self.cpus_milli, self.memory_bytes, self.max_runtime_s, self.grace_s) < 0:
            raise ValueError("limits are not negative")


class Phase(StrEnum):
    """Where an attempt is at the local scheduler. UNKNOWN: it knows no such attempt."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"
    UNKNOWN = "unknown"


class OutcomeKind(StrEnum):
    """How a process, a task or an attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SIGNALLED = "signalled"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    LOST = "lost"
    FENCED = "fenced"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`exit_code` is set for FAILED, `signal` for SIGNALLED, both 0 otherwise."""

    kind: OutcomeKind
    exit_code: int = 0
    signal: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """Of the processes that ended: wall and CPU time summed, memory of the largest."""

    wall_ms: int = 0
    cpu_ms: int = 0
    max_rss_bytes: int = 0


@dataclass(frozen=True, slots=True)
class UsageSample:
    """What an attempt's processes use at one instant, and what they used up to it."""

    at_ms: int
    wall_ms: int
    cpu_ms: int
    rss_bytes: int
    processes: int


@dataclass(frozen=True, slots=True)
class TaskStates:
    """Every task of the slice is in exactly one set. A job that is no array has task 0."""

    unstarted: Runs
    running: Runs
    ended: tuple[tuple[Outcome, Runs], ...] = ()

    def with_outcome(self, kind: OutcomeKind) -> Runs:
        """All tasks that ended with `kind`, whatever their exit code."""
        found = Runs()
        for outcome, tasks in self.ended:
            if outcome.kind == kind:
                found = found.union(tasks)
        return found


@dataclass(frozen=True, slots=True)
class LocalState:
    """All that is known about one attempt. `outcome` is set when ENDED, and then for good.

    The outcome of an array is SUCCEEDED if every task succeeded, else the gravest of its tasks'
    outcomes (fenced, cancelled, preempted, lost, out of memory, timed out, signalled, failed, in
    this order); the tasks tell the rest. `detail` is a sentence for people, or empty.
    """

    uid: str
    phase: Phase
    tasks: TaskStates
    submitted_ms: int = 0
    started_ms: int = 0
    ended_ms: int = 0
    outcome: Outcome | None = None
    usage: Usage = Usage()
    detail: str = ""


@dataclass(frozen=True, slots=True)
class LocalChange:
    """The newest state of an attempt that changed; states in between may have been skipped."""

    uid: str
    state: LocalState


@dataclass(frozen=True, slots=True)
class Submitted:
    """`fresh` is False if the attempt was there already."""

    local_id: str
    fresh: bool


@dataclass(frozen=True, slots=True)
class LogSlice:
    """Bytes `offset .. offset+len(data)` of one stream.

    `total` is the length now; `complete`: it will never grow. `truncated`: the program wrote
    more than is kept, and `total` counts what is kept.
    """

    data: bytes
    offset: int
    total: int
    complete: bool
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class LogExtent:
    """A stream that holds at least one byte."""

    stream: str
    bytes: int


@runtime_checkable
class Fencing(Protocol):
    """A scheduler that keeps contact deadlines, whether the agent lives or not."""

    async def contact(self, at_s: float) -> None:
        """A leader answered a heartbeat that was sent at `at_s` seconds since boot
        (CLOCK_BOOTTIME, which also counts while the machine sleeps). Puts off the deadline of
        every attempt whose deadline has not passed; one that has passed is never put off. Raises
        SchedulerUnavailable."""


@runtime_checkable
class Imaging(Protocol):
    """A scheduler that can have the image of a job before it is submitted."""

    async def prepare_image(self, uid: str, image: str) -> Refusal | None:
        """Have an image here; submit does it too, where this was not asked before. Refuses what
        `submit` would refuse because of it."""


@runtime_checkable
class Prefetching(Protocol):
    """A scheduler that can have an image fetched where jobs will run, before there is one."""

    async def prefetch(self, image: str) -> str:
        """Begin to; within bounds, and once for an image that is on its way. Why it cannot, empty
        where it does or nothing is missing."""


class LocalScheduler(Protocol):
    """See the module's docstring. Every method may raise SchedulerUnavailable."""

    async def capabilities(self) -> Capabilities:
        """What this scheduler is and can do."""

    async def submit(self, order: LaunchOrder) -> Submitted | Refusal:
        """Take the attempt on, durably. The same uid again: the same answer, no second run."""

    async def find(self, uid: str) -> str | None:
        """The local id of an attempt taken on earlier, ended or not; None if there is none."""

    async def attempts(self) -> tuple[str, ...]:
        """Uids of all attempts this scheduler holds, ended ones included: for adoption."""

    async def status(self, uids: Collection[str]) -> Mapping[str, LocalState]:
        """One state per asked uid, in one request to the scheduler."""

    async def cancel(self, uid: str, grace_s: int) -> None:
        """Ask all processes to stop (SIGTERM), end them after `grace_s`. Nothing new starts.

        Returns when the wish is durable, not when the attempt has ended. Cancelling an unknown
        uid makes it known as cancelled: a launch that comes after it does not run.
        """

    async def withdraw(self, uid: str) -> bool:
        """End an attempt unless it, or a task of it, has begun. True: it has ended or will, and
        never begins from now on; one that was unknown is cancelled. False: it has begun, and runs
        on as if nothing had been asked."""

    async def set_slice(
        self, uid: str, tasks: Runs, width: int, places: tuple[Place, ...] | None = None
    ) -> Runs | Refusal:
        """Replace the wanted tasks of an array; returns the tasks of the slice as it now is.

        Unstarted tasks outside `tasks` are dropped, new ones added; started ones stay in the
        slice whatever is asked. `places` None keeps those of the order.
        """

    async def read_log(self, uid: str, stream: str, offset: int, limit: int) -> LogSlice:
        """At most `limit` bytes from `offset` (negative: counted from the end).

        A stream never written to, or of an unknown attempt, is empty. Raises ValueError for a
        name that is no stream (STREAM_FORMAT).
        """

    async def log_extents(self, uid: str) -> tuple[LogExtent, ...]:
        """All streams of the attempt that are not empty, sorted by name."""

    async def usage(self, uids: Collection[str]) -> Mapping[str, UsageSample]:
        """A sample per running attempt among `uids`; others are left out."""

    async def forget(self, uid: str) -> None:
        """Drop an ended attempt, its logs and its working directory. Unknown: nothing happens.

        Raises ValueError while it has not ended.
        """

    def changes(self) -> AsyncIterator[tuple[LocalChange, ...]]:
        """Batches of changes, at least 100 ms apart, beginning with the state of everything.

        Survives restarts of the scheduler: after a gap the newest state of everything comes
        again. One iterator per caller; it ends only when closed.
        """
