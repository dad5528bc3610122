"""What the broker asks of a site, as values."""

from __future__ import annotations

from dataclasses import dataclass, field

from federation.runs import Runs
from regional_agent.session.ledger import Part


@dataclass(frozen=True, slots=True)
class Placement:
    """Where and how large: amounts are per replica. `tasks` empty: not an array; then `width`
    is 0. `max_runtime_s`, `max_start_delay_s` and `fence_after_s`: 0 = none. `queued`: where
    nothing is free it waits in the site's queue, holding nothing. `parts`: where the replicas of a
    gang go, by rank; none: all to `pool`."""

    pool: str
    accelerator: str = "CPU"
    replicas: int = 1
    accelerators_per_replica: int = 0
    cpus_milli_per_replica: int = 0
    memory_bytes_per_replica: int = 0
    max_runtime_s: int = 0
    stop_grace_s: int = 30
    tasks: Runs = field(default_factory=Runs)
    width: int = 0
    max_start_delay_s: int = 0
    fence_after_s: int = 0
    queued: bool = False
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Reserve, prepare and launch. `adopt_only`: find it or say it is lost, never launch it.
    `contact_s`: the last contact with a leader when it came, by the clock of `Contact`."""

    dispatch_seq: int
    uid: str
    ticket: bytes
    spec: bytes
    placement: Placement
    adopt_only: bool = False
    traceparent: str = ""
    contact_s: float = float("-inf")


@dataclass(frozen=True, slots=True)
class Stop:
    """End it: `why` is cancelled, preempted, withdrawn or lost. `unless_started`: only while it
    waits; one that has begun, or begins, runs on."""

    uid: str
    why: str
    grace_s: int
    dispatch_seq: int = 0
    unless_started: bool = False


@dataclass(frozen=True, slots=True)
class SetSlice:
    """The absolute set of tasks of a slice from now on."""

    dispatch_seq: int
    uid: str
    tasks: Runs
    width: int


@dataclass(frozen=True, slots=True)
class Forget:
    """The broker has its end in the books: journal entry and work directory may go."""

    uid: str
    dispatch_seq: int = 0


@dataclass(frozen=True, slots=True)
class Prepare:
    """Have in the cache what a job starts with that is expected here; `uid` has number 0.
    Nothing is held for it, nothing answers it."""

    uid: str
    ticket: bytes
    spec: bytes
    dispatch_seq: int = 0


Command = Dispatch | Stop | SetSlice | Forget | Prepare
