"""What agent and keeper cost the machine they run on, measured over a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from regional_agent.site_view import SiteProblem, keeper_pid, refuse_elsewhere
from regional_agent.status import is_running, read_status


@dataclass(frozen=True, slots=True)
class Cost:
    """One process: CPU time as a part of one core, memory that is its own and not shared.

    Wake-ups are those of its main thread.
    """

    name: str
    pid: int
    cpu_percent: float
    rss_bytes: int
    own_bytes: int
    wakeups_per_s: float


@dataclass(frozen=True, slots=True)
class Impact:
    """All processes over `measured_s`."""

    measured_s: float
    processes: tuple[Cost, ...]

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {"measured_s": self.measured_s, "processes": [asdict(c) for c in self.processes]}

    def text(self) -> str:
        """For people."""
        rows = [("PROCESS", "PID", "CPU", "MEMORY", "OF ITS OWN", "WAKE-UPS")]
        for cost in self.processes:
            rows.append((
                cost.name, str(cost.pid), f"{cost.cpu_percent:.2f} %",
                f"{cost.rss_bytes / 2**20:.0f} MiB", f"{cost.own_bytes / 2**20:.0f} MiB",
                f"{cost.wakeups_per_s:.1f}/s",
            ))  # fmt: skip
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join([*lines, f"measured over {self.measured_s:.0f} s; CPU of one core"])


async def impact(state: Path, measure_s: float, monotonic_s: Callable[[], float]) -> Impact:
    """Measure. Raises SiteProblem where nothing runs."""
    refuse_elsewhere(state)
    known = read_status(state)
    pids = {"agent": int(known["pid"])} if known and is_running(known) else {}
    keeper = await keeper_pid(state)
    if keeper:
        pids["keeper"] = keeper
    if not pids:
        raise SiteProblem("neither agent nor keeper runs")
    try:
        processes = {name: psutil.Process(pid) for name, pid in pids.items()}
        before, began_s = {n: _used(p) for n, p in processes.items()}, monotonic_s()
        await asyncio.sleep(measure_s)
        took_s = monotonic_s() - began_s
        costs = tuple(_cost(n, p, before[n], took_s) for n, p in processes.items())
    except psutil.Error as problem:
        raise SiteProblem(f"a process went away or cannot be read: {problem}") from problem
    return Impact(took_s, costs)


def _used(process: psutil.Process) -> tuple[float, int]:
    times, switches = process.cpu_times(), process.num_ctx_switches()
    return times.user + times.system, switches.voluntary


def _cost(name: str, process: psutil.Process, before: tuple[float, int], took_s: float) -> Cost:
    cpu_s, switches = _used(process)
    memory = process.memory_full_info()
    return Cost(
        name=name,
        pid=process.pid,
        cpu_percent=(cpu_s - before[0]) / took_s * 100,
        rss_bytes=memory.rss,
        own_bytes=memory.uss,
        wakeups_per_s=(switches - before[1]) / took_s,
    )
