"""The port of a batch system: the few things in which Slurm and Grid Engine differ.

Times are epoch milliseconds. Every method may raise SchedulerUnavailable. Each is one call of a
client however many jobs it is about.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol, runtime_checkable

from federation.refusals import Refusal
from federation.runs import Runs
from regional_agent.act.schedulers.port import Feature, LaunchOrder, Outcome

SINGLE = Runs(((0, 0),))
"""The indices of a job that is no array, wherever indices are asked for."""


class Live(StrEnum):
    """How a job stands in the queue. UNKNOWN: a state this version has not heard of."""

    PENDING = "pending"
    RUNNING = "running"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Submission:
    """One job to hand over. `name` carries the attempt's uid, `tag` proves that a job found
    under that name is ours. `indices` is None for a job that is no array; `width` 0: held back
    until it is widened. `members`: the attempts its elements are, where it is a pack; its order
    is that of one of them."""

    name: str
    tag: str
    order: LaunchOrder
    script: Path
    work: Path
    log: Path
    indices: Runs | None = None
    width: int = 1
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Queued:
    """A job, or a part of an array, that is in the queue and has not ended. `text`: its state
    and the reason for it in the words of the batch system. `pack`: its elements are attempts of
    their own."""

    local_id: str
    tag: str
    indices: Runs
    live: Live
    text: str = ""
    pack: bool = False


@dataclass(frozen=True, slots=True)
class Account:
    """What the batch system's books say of one job or element of an array. `outcome` None: it
    has not ended as far as they know."""

    local_id: str
    index: int
    outcome: Outcome | None
    text: str = ""
    started_ms: int = 0
    ended_ms: int = 0
    cpu_ms: int = 0
    max_rss_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Traits:
    """What is fixed about a batch system.

    `header`: lines of the job script that set `TW_LOCAL` (the id of the run) and `TW_INDEX` (of
    an array's element, else empty). `first_index` is the least index of an array, `array_max`
    how many elements one may have. `launcher` starts the ranks of a gang, `stop_ranks` tells them
    to stop. `alone`: lines that make an element of a pack look like a job of its own, whose name
    is `$1`. `before_claim`: lines that run before the claim `$tw_claim` is looked at. `books`:
    there is accounting that outlasts the queue. `one_run`: the
    indices of an array are one range. `stop_signals`, `time_signals`: how the script is told to
    stop, and that its time is over. `stopped_is_cancelled`: nothing but a deletion tells a script
    to stop, and the books do not say so. `kills_group`: it kills the process group of a script, and
    nothing else.
    """

    kind: str
    header: str
    features: frozenset[Feature]
    first_index: int = 0
    array_max: int = 1_000
    launcher: str = ""
    stop_ranks: str = ""
    alone: str = ""
    before_claim: str = ":"
    books: bool = True
    one_run: bool = False
    stop_signals: str = "TERM"
    time_signals: str = "USR2 ALRM"
    stopped_is_cancelled: bool = False
    kills_group: bool = False


@runtime_checkable
class Packing(Protocol):
    """A batch system that takes single jobs which are alike as one array. Where jobs are named to
    it, an element is `<local id>_<index>`."""

    async def alike(self, order: LaunchOrder) -> Hashable | None:
        """Orders of which this is the same may share a submission; None: this one may not."""

    def pack_max(self, uids: Sequence[str]) -> int:
        """How many of these, from the first on, fit in one."""

    async def look_in_packs(self, uid: str) -> tuple[str, int] | None:
        """The local id and the index under which an attempt is in the queue as one of a pack."""


class BatchSystem(Protocol):
    """See the module's docstring."""

    async def traits(self) -> Traits:
        """What this one is and can do."""

    async def submit(self, job: Submission) -> str | Refusal:
        """Hand over; returns the local id."""

    async def look(self, name: str, tag: str, work: Path) -> str | None:
        """The local id of a job with this name that is ours, ended or not: by its tag, or, where
        that is not kept, by the directory it works in."""

    async def queue(self) -> tuple[Queued, ...]:
        """Everything of ours that has not ended."""

    async def books(self, local_ids: Collection[str]) -> tuple[Account, ...]:
        """What is known of jobs that left the queue; those unknown are left out."""

    async def stop(self, local_ids: Collection[str]) -> None:
        """Take what waits out of the queue; tell the scripts of what runs to stop (SIGTERM)."""

    async def remove(self, local_id: str, indices: Runs | None = None) -> None:
        """End a job, or elements of an array, at once and whatever they do."""

    async def widen(self, local_id: str, width: int) -> None:
        """Let at most so many elements of an array run at once; 0 holds it back."""
