"""A site of the tests' own: a state directory, the real keeper, and a builder of orders."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from federation.runs import Runs
from regional_agent.act.isolation import SANDBOXED, SHARED, Wanted, find_isolation, try_sandbox
from regional_agent.act.keeper.processes import environment_of
from regional_agent.act.keeper.sandbox import Sandbox
from regional_agent.act.schedulers.port import LaunchOrder, LocalState, Phase, Submitted
from regional_agent.act.schedulers.process import ProcessScheduler, ProcessSettings

PYTHON = sys.executable


def order(uid: str = "job-1", run: str = "true", **changes: object) -> LaunchOrder:
    """An order for a script; anything may be said otherwise."""
    fields: dict[str, object] = {"uid": uid, "job": uid.rsplit("-", 1)[0], "tenant": "team"}
    fields |= {"run": run, "grace_s": 5} | changes
    if "argv" in changes:
        del fields["run"]
    return LaunchOrder(**fields)  # type: ignore[arg-type]


def array(uid: str, run: str, count: int, width: int, **changes: object) -> LaunchOrder:
    """An array of tasks 0..count-1."""
    return order(uid, run, tasks=Runs(((0, count - 1),)), width=width, **changes)


class Site:
    """The process scheduler over a keeper in `state`; `again` is what a new agent would have.

    `isolated`: jobs run in sandboxes and control groups; False for those a test says nothing of.
    """

    isolated = False

    def __init__(
        self,
        state: Path,
        *keeper_arguments: str,
        cpus_milli: int = 0,
        isolated: bool | None = None,
    ) -> None:
        self.state = state
        on = self.isolated if isolated is None else isolated
        # The interpreter of the tests may lie where a sandbox shows nothing.
        wanted = Wanted(SANDBOXED if on else SHARED, readable=(sys.prefix, sys.base_prefix))
        self.isolation = find_isolation(wanted, state, limits=True)
        self.settings = ProcessSettings(
            state, cpus_milli, (), keeper_arguments, self.isolation
        )
        self.scheduler = ProcessScheduler(self.settings)

    def again(self, *keeper_arguments: str) -> ProcessScheduler:
        self.settings = ProcessSettings(self.state, 0, (), keeper_arguments, self.isolation)
        self.scheduler = ProcessScheduler(self.settings)
        return self.scheduler

    async def run(self, order: LaunchOrder, timeout_s: float = 30) -> LocalState:
        """Submit, and wait for the end."""
        assert isinstance(await self.scheduler.submit(order), Submitted)
        return await self.ended(order.uid, timeout_s)

    async def state_of(self, uid: str) -> LocalState:
        return (await self.scheduler.status([uid]))[uid]

    async def ended(self, uid: str, timeout_s: float = 30) -> LocalState:
        return await self.until(uid, lambda s: s.phase == Phase.ENDED, timeout_s)

    async def until(
        self, uid: str, holds: Callable[[LocalState], bool], timeout_s: float = 30
    ) -> LocalState:
        deadline_s = time.monotonic() + timeout_s
        while not holds(state := await self.state_of(uid)):
            assert time.monotonic() < deadline_s, state
            await asyncio.sleep(0.02)
        return state

    async def log(self, uid: str, stream: str = "output") -> str:
        return (await self.scheduler.read_log(uid, stream, 0, 2**20)).data.decode()

    def work(self, uid: str) -> Path:
        return self.state / "attempts" / uid / "work"

    def pid(self, uid: str, said: str | int, rank: int = 0) -> int:
        """The process of this machine that calls itself `said`; a sandbox counts anew."""
        if self.isolation.sandbox is None:
            return int(said)
        marks = {b"TRADEWIND_ATTEMPT": uid.encode(), b"RANK": b"%d" % rank}
        marks[b"HOME"] = os.fsencode(self.work(uid))
        for name in filter(str.isdigit, os.listdir("/proc")):
            env = environment_of(int(name))
            if all(env.get(mark) == value for mark, value in marks.items()):
                inside = Path(f"/proc/{name}/status").read_text().split("NSpid:")[1].split("\n")[0]
                if inside.split()[-1] == str(said).strip() and len(inside.split()) > 1:
                    return int(name)
        raise AssertionError(f"no process {said} of {uid}")

    async def until_nothing_runs(self, uid: str, timeout_s: float = 10) -> None:
        """Wait until no process of an attempt is left on this machine, wherever it went."""
        marks = {b"TRADEWIND_ATTEMPT": uid.encode(), b"HOME": os.fsencode(self.work(uid))}
        deadline_s = time.monotonic() + timeout_s
        while left := [
            pid
            for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
            if marks.items() <= environment_of(pid).items() and alive(pid)
        ]:
            assert time.monotonic() < deadline_s, left
            await asyncio.sleep(0.02)

    def keeper_pid(self) -> int:
        return int((self.state / "keeper.lock").read_text())

    def kill_keeper(self) -> None:
        """SIGKILL, and wait until it is gone."""
        pid = self.keeper_pid()
        os.kill(pid, signal.SIGKILL)
        wait_gone(pid)

    async def close(self) -> None:
        await self.again().shut_down(kill=True)
        await self.scheduler.close()
        wait_gone(self.keeper_pid())


def wait_gone(pid: int, timeout_s: float = 10) -> None:
    """Wait until a process has ended (a zombie has)."""
    deadline_s = time.monotonic() + timeout_s
    while alive(pid):
        assert time.monotonic() < deadline_s, f"{pid} lives on"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rsplit(")", 1)[1].split()[0] not in "ZX"


async def wait_for_file(path: Path, timeout_s: float = 10) -> str:
    """The content of a file once there is any."""
    deadline_s = time.monotonic() + timeout_s
    while not path.exists() or not (text := path.read_text()):
        assert time.monotonic() < deadline_s, f"no {path}"
        await asyncio.sleep(0.02)
    return text


def isolation_is_possible() -> str:
    """Why this machine has no sandbox; empty where it has one."""
    with tempfile.TemporaryDirectory() as state:
        return try_sandbox(Sandbox(), Path(state))
