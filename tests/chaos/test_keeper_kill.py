"""SIGKILL at the named points around intent, fork, record and exit, and of everybody at once.

What is proved is in files the tasks append to: no task ever ran twice, and each that is not
reported lost ran once.
"""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from regional_agent.act.keeper.client import start_keeper
from regional_agent.act.keeper.crash import POINTS
from regional_agent.act.schedulers.port import (
    LaunchOrder,
    LocalState,
    OutcomeKind,
    SchedulerUnavailable,
)
from tests.integration.keeper.conftest import isolation as isolation
from tests.keeper_site import Site, array, order, wait_gone

TASKS = 12
WIDTH = 2
APPEND = "echo $TRADEWIND_TASK >> ran"


def ran(site: Site, uid: str) -> list[int]:
    file = site.work(uid) / "ran"
    return sorted(map(int, file.read_text().split())) if file.exists() else []


def assert_never_twice(site: Site, state: LocalState, tasks: int) -> int:
    """Returns how many tasks are lost."""
    lost = set(state.tasks.with_outcome(OutcomeKind.LOST))
    succeeded = set(state.tasks.with_outcome(OutcomeKind.SUCCEEDED))
    runs = ran(site, state.uid)
    assert len(runs) == len(set(runs)), runs
    assert lost | succeeded == set(range(tasks)), state
    assert succeeded <= set(runs) <= succeeded | lost
    return len(lost)


async def submit_to_doomed_keeper(site: Site, plan: str, order: LaunchOrder) -> None:
    """Have a keeper that dies at `plan` take the order; return when it is dead."""
    assert await start_keeper(site.state, ["--crash-at", plan]) == 0
    pid = site.keeper_pid()
    await site.scheduler.submit(order)
    wait_gone(pid, timeout_s=20)


@pytest.mark.parametrize("passage", [1, 3, 7])
@pytest.mark.parametrize(
    "point", sorted(set(POINTS) - {"order-written", "cancel-synced", "exit-synced"})
)
async def test_array_through_a_crash(tmp_path: Path, point: str, passage: int) -> None:
    site = Site(tmp_path / "state")
    await submit_to_doomed_keeper(site, f"{point}:{passage}", array("job-1", APPEND, TASKS, WIDTH))
    state = await site.ended("job-1")
    assert assert_never_twice(site, state, TASKS) <= WIDTH
    await site.close()


@pytest.mark.parametrize("point", sorted(set(POINTS) - {"cancel-synced"}))
async def test_single_job_through_a_crash(tmp_path: Path, point: str) -> None:
    site = Site(tmp_path / "state")
    await submit_to_doomed_keeper(site, point, order(run="echo 0 >> ran"))
    state = await site.ended("job-1")
    assert_never_twice(site, state, 1)
    if point in ("intent-synced", "forked", "pid-written"):
        # Its process waited for leave and left unrun; but nobody may bet on that.
        assert state.outcome is not None and state.outcome.kind == OutcomeKind.LOST
        assert ran(site, "job-1") == []
    if point in ("order-written", "exit-synced"):
        assert state.outcome is not None and state.outcome.kind == OutcomeKind.SUCCEEDED
    await site.close()


@pytest.mark.parametrize("point", ["forked:2", "pid-written:2", "released:2", "reaped:1"])
async def test_gang_through_a_crash(tmp_path: Path, point: str) -> None:
    site = Site(tmp_path / "state")
    run = "echo $RANK >> ran; [ $RANK = 0 ] || sleep 60"
    await submit_to_doomed_keeper(site, point, order(run=run, replicas=3, grace_s=1))
    state = await site.ended("job-1")
    assert state.outcome is not None and state.outcome.kind == OutcomeKind.LOST
    assert len(ran(site, "job-1")) == len(set(ran(site, "job-1")))
    await site.close()


async def test_cancel_is_durable_once_acknowledged(tmp_path: Path) -> None:
    site = Site(tmp_path / "state")
    await start_keeper(site.state, ["--crash-at", "cancel-synced"])
    await site.scheduler.submit(order(run="echo 0 >> ran; exec sleep 60"))
    await site.until("job-1", lambda s: bool(s.tasks.running))
    await site.scheduler.cancel("job-1", grace_s=1)
    state = await site.ended("job-1")
    assert state.outcome is not None and state.outcome.kind == OutcomeKind.CANCELLED
    await site.close()


CLIENT = """
import asyncio, sys
from pathlib import Path
from tests.keeper_site import Site, array
async def main():
    site = Site(Path(sys.argv[1]))
    await site.scheduler.submit(array("job-1", sys.argv[2], int(sys.argv[3]), 4))
    await site.scheduler.submit(array("job-1", sys.argv[2], int(sys.argv[3]), 4))
    async for batch in site.scheduler.changes():
        print(len(batch), flush=True)
asyncio.run(main())
"""


async def test_agent_killed_in_the_middle_of_a_thousand_tasks(tmp_path: Path) -> None:
    site = Site(tmp_path / "state")
    root = Path(__file__).parents[2]
    agents = 0
    while True:
        client = subprocess.Popen(
            [sys.executable, "-c", CLIENT, str(site.state), APPEND, "1000"],
            cwd=root,
            stdout=subprocess.PIPE,
        )
        assert client.stdout is not None and client.stdout.readline()
        await asyncio.sleep(0.2)
        # The whole group, as a container that is torn down would.
        client.send_signal(signal.SIGKILL)
        client.wait()
        client.stdout.close()
        agents += 1
        if agents == 3:
            break
    state = await site.ended("job-1", timeout_s=60)
    assert assert_never_twice(site, state, 1000) == 0
    assert ran(site, "job-1") == list(range(1000))
    await site.close()


async def test_keeper_killed_over_and_over(tmp_path: Path) -> None:
    site = Site(tmp_path / "state")
    tasks, width, kills = 300, 4, 6
    await site.scheduler.submit(array("job-1", f"{APPEND}; sleep 0.02", tasks, width))
    for _ in range(kills):
        await asyncio.sleep(0.15)
        os.kill(site.keeper_pid(), signal.SIGKILL)
        await ask_until_answered(site)
    state = await site.ended("job-1", timeout_s=60)
    assert assert_never_twice(site, state, tasks) <= width * kills
    await site.close()


async def ask_until_answered(site: Site) -> None:
    while True:
        try:
            await site.state_of("job-1")
            return
        except SchedulerUnavailable:
            await asyncio.sleep(0.02)
