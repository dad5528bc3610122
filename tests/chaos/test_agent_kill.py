"""Kill -9 of the agent, as the program people run, at many points: jobs and keeper live on, every
attempt ends, and each ran exactly once."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from broker.lifecycle import events as ev
from broker.model.jobs import OutcomeKind
from regional_agent.act.keeper.client import KeeperConnection
from tests.integration.session.federation_site import Broker, end_keeper, lines

INVENTORY = """
isolation: shared-uid
inventory:
  - {name: cpu, accelerator: CPU, nodes: 1, accelerators_per_node: 64, cpus: 64, memory: 64GiB,
     simulated: true}
"""
JOBS = 12


class Process:
    """`tradewind-agent run` in a process of its own."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "regional_agent", "run", "--state-dir", str(self.state)),
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )

    async def kill(self, number: int = signal.SIGKILL) -> float:
        """Returns how long it took to go (s)."""
        assert self.process is not None
        began_s = asyncio.get_running_loop().time()
        if self.process.returncode is None:
            os.kill(self.process.pid, number)
        await self.process.wait()
        return asyncio.get_running_loop().time() - began_s


@pytest.fixture
async def broker():
    made = Broker()
    await made.start()
    yield made
    await made.close()


@pytest.fixture
async def agent(broker, tmp_path):
    state = tmp_path / "agent"
    broker.admit("eu", state)
    (state / "agent.yaml").write_text(INVENTORY)
    made = Process(state)
    await made.start()
    yield made
    await made.kill()
    await end_keeper(state)


def marking(marks: Path, seconds: float) -> dict:
    return {"run": f"echo $TRADEWIND_ATTEMPT >> {marks}; sleep {seconds}"}


async def redrive(broker: Broker, sent: dict) -> None:
    """What a leader does when a session opens: tell again whatever was not answered."""
    unanswered = [c for uid, c in sent.items() if not broker.events[uid]]
    if unanswered:
        await broker.send(*unanswered)


@pytest.mark.parametrize("wait_ms", [0, 3, 10, 30, 60, 120, 250])
async def test_killed_at_any_moment_every_job_runs_exactly_once(
    broker, agent, tmp_path, wait_ms
):
    await broker.connected("eu")
    marks = tmp_path / "marks"
    sent = {f"j{i}-1": broker.dispatch(f"j{i}-1", marking(marks, 0.1)) for i in range(JOBS)}
    await broker.send(*sent.values())
    await asyncio.sleep(wait_ms / 1000)
    await agent.kill()
    await agent.start()
    await broker.connected("eu", 2)
    await redrive(broker, sent)
    for uid in sent:
        ended = await broker.event(uid, ev.Ended)
        assert ended.outcome.kind is OutcomeKind.SUCCEEDED, (uid, ended)
    assert sorted(lines(marks)) == sorted(sent)


@pytest.mark.parametrize("point", [ev.Accepted, ev.Started, ev.Ended])
async def test_killed_right_after_it_said_so_with_nothing_acknowledged(
    broker, agent, tmp_path, point
):
    broker.acknowledges = False
    await broker.connected("eu")
    marks = tmp_path / "marks"
    await broker.run("j1-1", marking(marks, 0.5))
    await broker.event("j1-1", point)
    await agent.kill()
    broker.events.clear()
    broker.acknowledges = True
    await agent.start()
    await broker.connected("eu", 2)
    ended = await broker.event("j1-1", ev.Ended)
    assert ended.outcome.kind is OutcomeKind.SUCCEEDED
    told = [e.event_seq for e in broker.events["j1-1"]]
    # all of them again and in order; a start nobody saw before the end is told with the end
    assert told == list(range(1, len(told) + 1)) and len(told) >= 3
    assert lines(marks) == ["j1-1"]


async def test_agent_and_keeper_killed_together_lose_what_nobody_saw_end(
    broker, agent, tmp_path
):
    await broker.connected("eu")
    marks = tmp_path / "marks"
    await broker.run("j1-1", marking(marks, 1))
    await broker.event("j1-1", ev.Started)
    connection = await KeeperConnection.open(agent.state)
    hello = await connection.request("hello")
    await connection.close()
    await agent.kill()
    os.kill(hello["pid"], signal.SIGKILL)
    await asyncio.sleep(2)
    await agent.start()
    ended = await broker.event("j1-1", ev.Ended)
    assert ended.outcome.kind is OutcomeKind.LOST
    assert lines(marks) == ["j1-1"]


async def test_sigterm_ends_the_agent_at_once_and_nothing_else(broker, agent, tmp_path):
    await broker.connected("eu")
    marks = tmp_path / "marks"
    await broker.run("j1-1", marking(marks, 3))
    await broker.event("j1-1", ev.Started)
    assert await agent.kill(signal.SIGTERM) < 2
    assert agent.process.returncode == 0
    await agent.start()
    await broker.connected("eu", 2)
    ended = await broker.event("j1-1", ev.Ended)
    assert ended.outcome.kind is OutcomeKind.SUCCEEDED
    assert lines(marks) == ["j1-1"]


async def test_an_agent_that_slept_finds_its_jobs_ended_and_its_session_gone(
    broker, agent, tmp_path
):
    """What a laptop does overnight, to the agent alone."""
    await broker.connected("eu")
    marks = tmp_path / "marks"
    await broker.run("j1-1", marking(marks, 1))
    await broker.event("j1-1", ev.Started)
    os.kill(agent.process.pid, signal.SIGSTOP)
    await broker.until(lambda: broker.closed, "the end of the session")
    os.kill(agent.process.pid, signal.SIGCONT)
    await broker.connected("eu", 2)
    ended = await broker.event("j1-1", ev.Ended)
    assert ended.outcome.kind is OutcomeKind.SUCCEEDED
    assert lines(marks) == ["j1-1"]
