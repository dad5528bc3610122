"""`tradewind-agent ensure`: start the agent unless it runs. For cron, or a chain of jobs, where a
daemon is not allowed.

Who runs is told by a lock that an agent holds for as long as it lives (`agent.lock`): no number of
a process is trusted, so one that died and whose number was given away again does no harm.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from federation.private_files import PrivateFileError, refuse_shared
from regional_agent.control_socket import AgentAway, AgentRefused, ask_agent
from regional_agent.identity import has_identity
from regional_agent.site_view import SiteProblem

LOCK = "agent.lock"
STARTING_LOCK = "ensure.lock"
LOG = "agent.log"
LOG_BYTES_MAX = 16 * 2**20
START_S = 30.0
LOOK_S = 0.1
LAST_LINES = 5


class AgentRuns(Exception):
    """Another agent holds this state directory. One line."""


@dataclass(frozen=True, slots=True)
class Ensured:
    """`started`: it was not there before."""

    pid: int
    started: bool

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {"pid": self.pid, "started": self.started}


def hold_lock(state: Path) -> int:
    """Become the agent of this directory for as long as this process lives; the descriptor.

    Raises AgentRuns, OSError.
    """
    lock = os.open(state / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise AgentRuns(f"an agent runs in {state} already, pid {running_pid(state)}") from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, b"%d\n" % os.getpid(), 0)
    return lock


def running_pid(state: Path) -> int:
    """The process that holds the directory's lock; 0 = none."""
    try:
        lock = os.open(state / LOCK, os.O_RDWR)
    except FileNotFoundError:
        return 0
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(lock, 32, 0).strip()
        return int(text) if text.isdigit() else -1
    finally:
        os.close(lock)
    return 0


async def ensure(state: Path, arguments: Sequence[str] = ()) -> Ensured:
    """An agent runs when this returns. Raises SiteProblem with what the new one said."""
    _refuse_unready(state)
    starting = os.open(state / STARTING_LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        # One of several that come at once starts it, the others find it running.
        await asyncio.to_thread(fcntl.flock, starting, fcntl.LOCK_EX)
        pid = running_pid(state)
        if pid:
            return Ensured(pid, started=False)
        return await _start(state, arguments)
    finally:
        os.close(starting)


def _refuse_unready(state: Path) -> None:
    try:
        refuse_shared(state)
    except FileNotFoundError:
        raise SiteProblem(f"{state} is not there; run: tradewind-agent join") from None
    except PrivateFileError as problem:
        raise SiteProblem(str(problem)) from problem
    if not has_identity(state):
        raise SiteProblem(f"no identity in {state}; run: tradewind-agent join")


async def _start(state: Path, arguments: Sequence[str]) -> Ensured:
    log = state / LOG
    if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
        log.replace(log.with_suffix(".log.1"))
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    begin = os.fstat(out).st_size
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "regional_agent", "run", "--state-dir", str(state), *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            cwd="/",
        )
    finally:
        os.close(out)
    deadline_s = asyncio.get_running_loop().time() + START_S
    while process.returncode is None:
        if await _answers(state):
            return Ensured(process.pid, started=True)
        if asyncio.get_running_loop().time() > deadline_s:
            raise SiteProblem(f"the agent, pid {process.pid}, does not answer yet; see {log}")
        await asyncio.sleep(LOOK_S)
    said = log.read_bytes()[begin:].decode(errors="replace").strip().splitlines()
    last = " | ".join(said[-LAST_LINES:]) or "it said nothing"
    raise SiteProblem(f"the agent ended with code {process.returncode}: {last}")


async def _answers(state: Path) -> bool:
    try:
        await ask_agent(state, "attempts")
    except AgentAway:
        return False
    except AgentRefused:
        return True
    return True
