"""What a site tells the broker of its attempts, as values. Times are broker time (UTC ms)."""

from __future__ import annotations

from dataclasses import dataclass, field

from federation.runs import Runs
from federation.usage import Usage


@dataclass(frozen=True, slots=True)
class Accepted:
    """The command was checked and the capacity is held."""

    dispatch_seq: int
    nodes: tuple[str, ...] = ()
    reserve_us: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """It will not run here; `code` is a refusal code."""

    dispatch_seq: int
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """Files and code are there."""

    prepare_ms: int
    fetched_bytes: int = 0
    cached_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Started:
    """It runs."""

    launch_ms: int
    local_id: str


@dataclass(frozen=True, slots=True)
class FailedTasks:
    """Tasks that ended the same bad way."""

    tasks: Runs
    exit_code: int
    signal: int = 0


@dataclass(frozen=True, slots=True)
class TasksChanged:
    """Tasks that started or ended since the last such event of the attempt."""

    started: Runs
    succeeded: Runs
    failed: tuple[FailedTasks, ...]


@dataclass(frozen=True, slots=True)
class SliceSet:
    """The slice as it now is."""

    dispatch_seq: int
    tasks: Runs


@dataclass(frozen=True, slots=True)
class Output:
    """A result file that is at the broker."""

    path: str
    sha256: str
    size_bytes: int
    mode: int


@dataclass(frozen=True, slots=True)
class Ended:
    """It is over and its capacity is free. `kind` as in records.proto; `logs` are
    (stream, bytes) pairs; `code` is a refusal code where there is one for it (fenced)."""

    kind: str
    exit_code: int = 0
    signal: int = 0
    text: str = ""
    usage: Usage = field(default_factory=Usage)
    outputs: tuple[Output, ...] = ()
    unstarted: Runs = field(default_factory=Runs)
    logs: tuple[tuple[str, int], ...] = ()
    code: str = ""


Said = Accepted | Refused | Prepared | Started | TasksChanged | SliceSet | Ended


@dataclass(frozen=True, slots=True)
class Event:
    """One thing said of one attempt. `epoch` is that of the command that caused the attempt."""

    uid: str
    epoch: int
    at_ms: int
    said: Said
