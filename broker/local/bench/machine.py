"""On what and when something was measured, and what else the machine was doing."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from federation.units import format_utc

GIB = 1024**3
BUSY_A_CORE = 0.3
"""Load average a core, before anything is measured, from which figures say more of the machine
than of this build."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Where figures come from. `load` is the load average of the last minute before it began."""

    cpu: str
    cores: int
    memory_gib: float
    kernel: str
    python: str
    began_at: str
    load: float

    @property
    def busy(self) -> bool:
        """Whether other work was going on."""
        return self.load > BUSY_A_CORE * self.cores

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "busy": self.busy}


def this_machine(now_ms: int) -> Machine:
    """The machine this runs on."""
    return Machine(
        cpu=_first(r"model name\s*:\s*(.+)", "/proc/cpuinfo") or platform.processor(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB, 1),
        kernel=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        began_at=format_utc(now_ms),
        load=round(os.getloadavg()[0], 2),
    )


def told(machine: Mapping[str, Any]) -> str:
    """One line for people of what `document` gave."""
    line = (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']:g} GiB, "
        f"{machine['kernel']}, Python {machine['python']}; {machine['began_at'][:16]}Z"
    )
    if machine["busy"]:
        line += f"; **other work was going on** (load average {machine['load']:g} when it began)"
    return line


def _first(pattern: str, file: str) -> str:
    found = re.search(pattern, Path(file).read_text(encoding="utf-8", errors="replace"))
    return found[1].strip() if found else ""
