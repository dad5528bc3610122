"""Where things lie under the agent's state directory. Shared with staging and log reading."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

_UID = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
STREAM_FORMAT = re.compile(r"(?:output|task-(\d{1,10}))(?:\.r([1-9]\d{0,8}))?")
"""Name of a log, which is what a program prints on stdout and stderr together: `output`, of an
array's task `task-17`; of a gang's further ranks `output.r1`, `task-17.r1`."""


@dataclass(frozen=True, slots=True)
class AttemptDir:
    """The directory of one attempt. Raises ValueError for a uid that is no plain name."""

    state: Path
    uid: str

    def __post_init__(self) -> None:
        if not is_uid(self.uid):
            raise ValueError(f"not an attempt uid: {self.uid!r}")

    @property
    def root(self) -> Path:
        """Everything of the attempt."""
        return attempts_dir(self.state) / self.uid

    @property
    def order(self) -> Path:
        """What the keeper was asked to run; its presence makes the attempt exist."""
        return self.root / "order.json"

    @property
    def fresh_order(self) -> Path:
        """The order before it is safe: not yet an attempt."""
        return self.root / "order.json.new"

    @property
    def journal(self) -> Path:
        """The keeper's records."""
        return self.root / "journal"

    @property
    def work(self) -> Path:
        """Working directory and home of the processes, laid by staging."""
        return self.root / "work"

    @property
    def script(self) -> Path:
        """The job's `run` text."""
        return self.root / "run"

    @property
    def logs(self) -> Path:
        """One file per stream, named as the stream."""
        return self.root / "logs"

    def log(self, task: int | None, rank: int) -> Path:
        """The file of what a task (None: no array) and rank print."""
        return self.logs / stream_name(task, rank)


def is_uid(name: str) -> bool:
    """True for a name an attempt may have."""
    return bool(_UID.fullmatch(name))


def stream_name(task: int | None, rank: int) -> str:
    """`output`, `task-17`, `output.r1`, `task-17.r1`."""
    name = "output" if task is None else f"task-{task}"
    return f"{name}.r{rank}" if rank else name


def attempts_dir(state: Path) -> Path:
    """The attempts of this agent, one directory each."""
    return state / "attempts"


def trash_dir(state: Path) -> Path:
    """Where directories of forgotten attempts wait for removal."""
    return state / "trash"


def socket_path(state: Path) -> Path:
    """The keeper's socket."""
    return state / "keeper.sock"


def contact_path(state: Path) -> Path:
    """When there was contact last, for a keeper that follows."""
    return state / "contact.json"


def group_parent(state: Path) -> str:
    """The name of the control group that holds those of this directory's attempts."""
    return f"tradewind-{crc32(str(state).encode()):08x}"


def lock_path(state: Path) -> Path:
    """Held by the one keeper of this directory for as long as it lives."""
    return state / "keeper.lock"
