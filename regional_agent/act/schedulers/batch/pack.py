"""A pack: single jobs that are alike to the batch system, handed over as one array.

Each element is an attempt of its own, with its claim, its marks, its logs. What is written down
about them is one journal for all, so that taking on many costs one wait for the disk. The journal
begins with their orders and is there before the batch system hears of them; it is kept until the
last of them is forgotten.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from federation.refusals import Refusal
from regional_agent.act.keeper import records
from regional_agent.act.schedulers.batch.parts import Part
from regional_agent.act.schedulers.batch.system import SINGLE
from regional_agent.act.schedulers.port import Submitted


@dataclass(slots=True)
class Pack:
    """`members`: uids by their place in the array. `tried`: it may have been handed over."""

    root: Path
    name: str
    members: tuple[str, ...]
    intended_ms: int
    local_id: str = ""
    tried: bool = False
    forgotten: set[str] = field(default_factory=set)
    answers: dict[str, Submitted | Refusal] = field(default_factory=dict)
    handing_over: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def tag(self) -> str:
        """What proves that an array found under its name is this one."""
        return f"tradewind:{self.name}:pack"

    @property
    def journal(self) -> Path:
        """The records of all its attempts."""
        return self.root / self.name

    @property
    def script(self) -> Path:
        """What the batch system runs."""
        return self.root / f"{self.name}.sh"

    @property
    def log(self) -> Path:
        """What the script says that no program said."""
        return self.root / f"{self.name}.log"

    def write(self, some: Iterable[dict[str, Any]], *, sync: bool = True) -> None:
        """Durably add to the journal. Another process may do so, too."""
        fd = os.open(self.journal, os.O_RDWR | os.O_APPEND)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if os.fstat(fd).st_size and os.pread(fd, 1, os.fstat(fd).st_size - 1) != b"\n":
                os.ftruncate(fd, records.read(self.journal)[1])  # a line cut short
            records.write_all(fd, b"".join(map(records.encode, some)))
            if sync:
                os.fdatasync(fd)
        finally:
            os.close(fd)

    def write_local_id(self, local_id: str) -> None:
        """The batch system has it."""
        self.write([{"is": "id", "id": local_id}])

    def forget(self, uid: str) -> None:
        """One of its attempts is gone; with the last one everything is."""
        self.forgotten.add(uid)
        if not self._all_forgotten:
            try:
                self.write([{"is": "forgotten", "uid": uid}], sync=False)
            except FileNotFoundError:  # the last one went in another thread meanwhile
                if not self._all_forgotten:
                    raise
        else:
            self.remove()

    @property
    def _all_forgotten(self) -> bool:
        return self.forgotten.issuperset(self.members)

    def remove(self) -> None:
        """Nothing of it is kept."""
        for path in (self.journal, self.script, self.log):
            path.unlink(missing_ok=True)

    def part_of(self, uid: str) -> Part:
        """The element that is this attempt."""
        index = self.members.index(uid)
        return Part(0, SINGLE, table=True, width=1, first_index=index, local_id=self.local_id,
                    intended_ms=self.intended_ms, pack=self.name)  # fmt: skip


def packs_dir(state: Path) -> Path:
    """One journal and one script a pack."""
    return state / "packs"
