"""What the kernel tells about processes, read from /proc.

A pid alone names nobody for long; together with the start time in clock ticks since boot, and
the boot itself, it names one process for ever.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class SessionUse:
    """What all processes of one session use together now, and its live processes."""

    rss_bytes: int
    cpu_ms: int
    pids: list[int]


def boot_id() -> str:
    """Names this boot of the machine; short, because it stands in every record of a start."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")[:12]


def _stat(pid: int) -> list[bytes] | None:
    """Fields of /proc/<pid>/stat from the third (state) on; None if there is no process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            data = file.read()
    except OSError:
        return None
    # The second field is the command in brackets and may hold anything, brackets too.
    return data[data.rindex(b")") + 2 :].split()


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None if it has ended."""
    fields = _stat(pid)
    if fields is None or fields[0] in (b"Z", b"X"):
        return None
    return int(fields[19])


def age_s(ticks: int, since_boot_s: float) -> float:
    """How long ago a process started that did at `ticks`, if it is `since_boot_s` now."""
    return max(0.0, since_boot_s - ticks / _TICKS_PER_S)


def sessions() -> dict[int, SessionUse]:
    """Every session on this machine by its id, from one pass over /proc."""
    found: dict[int, SessionUse] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        fields = _stat(int(name))
        if fields is None or fields[0] in (b"Z", b"X"):
            continue
        use = found.setdefault(int(fields[3]), SessionUse(0, 0, []))
        use.rss_bytes += int(fields[21]) * _PAGE_BYTES
        # Own time and that of children already waited for.
        use.cpu_ms += sum(int(field) for field in fields[11:15]) * 1000 // _TICKS_PER_S
        use.pids.append(int(name))
    return found


def proportional_bytes(pids: Iterable[int]) -> int:
    """Memory of these processes, pages they share counted once (by share)."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Pss:"))
    return total


def session_of(pid: int) -> int | None:
    """The session a process belongs to; None if there is no such process."""
    fields = _stat(pid)
    return None if fields is None else int(fields[3])


def environment_of(pid: int) -> dict[bytes, bytes]:
    """The environment a process was started with; empty if it cannot be read."""
    try:
        data = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    return dict(entry.split(b"=", 1) for entry in data.split(b"\0") if b"=" in entry)


def children() -> list[int]:
    """Direct children of this process, zombies included; it must have one thread."""
    own = os.getpid()
    try:
        return [int(p) for p in Path(f"/proc/{own}/task/{own}/children").read_bytes().split()]
    except OSError:
        return []


def signal_group(group: int, number: int) -> None:
    """Signal every process of a group; one that is gone is no error."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return


def send(pid: int, number: int) -> None:
    """Signal one process; one that is gone is no error."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def kill(pid: int) -> None:
    """SIGKILL one process; one that is gone is no error."""
    send(pid, signal.SIGKILL)


def kill_sessions(doomed: set[int]) -> None:
    """SIGKILL every process of these sessions, also those that made groups of their own."""
    # A process may fork while it is looked for; each pass leaves fewer that can.
    for _ in range(5):
        found = sessions()
        pids = [pid for session in doomed & found.keys() for pid in found[session].pids]
        if not pids:
            return
        for pid in pids:
            kill(pid)


def group_members(group: int) -> list[int]:
    """Processes of a group, zombies left out."""
    found = []
    for name in os.listdir("/proc"):
        fields = _stat(int(name)) if name.isdigit() else None
        if fields is not None and int(fields[2]) == group and fields[0] not in (b"Z", b"X"):
            found.append(int(name))
    return found


def group_is_empty(group: int) -> bool:
    """True if no process, zombies included, is left in the group."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def become_subreaper() -> bool:
    """Have orphaned descendants become our children instead of init's; False if refused."""
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
