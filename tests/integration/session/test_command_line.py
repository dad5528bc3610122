"""`tradewind-agent` at a site: looking, reading logs and ending jobs without any broker."""

import asyncio
import json
import sys

from broker.lifecycle import events as ev
from broker.model.jobs import OutcomeKind
from tests.chaos.test_agent_kill import INVENTORY, Process


async def cli(*words: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "regional_agent", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_site_commands_work_with_and_without_a_broker(broker, state):
    broker.admit("eu", state)
    (state / "agent.yaml").write_text(INVENTORY)
    where = ("--state-dir", str(state))
    agent = Process(state)
    await agent.start()
    try:
        await broker.connected("eu")
        await broker.run("j1-1", {"run": "echo here; sleep 60"})
        await broker.event("j1-1", ev.Started)
        await asyncio.sleep(1.2)  # the agent notes its status once a second
        code, out, _ = await cli("status", "--json", *where)
        shown = json.loads(out)
        assert (code, shown["cluster"], shown["keeper"]["live"]) == (0, "eu", 1)
        assert shown["agent"]["connected"]
        code, out, _ = await cli("doctor", *where)
        assert code == 0 and "session stands" in out

        await broker.stop()
        code, out, _ = await cli("jobs", "--json", *where)
        (row,) = json.loads(out)
        assert (row["uid"], row["job"], row["tenant"]) == ("j1-1", "j1", "lab")
        assert row["phase"] == "running"
        code, out, _ = await cli("logs", "j1", *where)
        assert (code, out) == (0, "here\n")
        code, out, _ = await cli("kill", "j1-1", "--grace", "1s", *where)
        assert code == 0
        code, _, err = await cli("logs", "j2", *where)
        assert code == 1 and err == "tradewind-agent: no attempt j2 at this site\n"

        await broker.start()
        ended = await broker.event("j1-1", ev.Ended)
        assert ended.outcome.kind is OutcomeKind.CANCELLED
        code, _, err = await cli("leave", *where)
        assert code == 1 and "stop it first" in err
    finally:
        await agent.kill(15)
    code, out, _ = await cli("leave", "--json", "--force", *where)
    assert (code, json.loads(out)["cluster"]) == (0, "eu")
    assert not (state / "identity").exists()


async def test_what_is_missing_is_one_line(state):
    code, _, err = await cli("run", "--state-dir", str(state))
    assert code == 1 and "tradewind-agent join" in err and err.count("\n") == 1
    state.joinpath("agent.yaml").write_text("inventry: []\n")
    code, _, err = await cli("run", "--state-dir", str(state))
    assert code == 1 and "did you mean inventory?" in err


async def test_stop_jobs_ends_jobs_and_keeper_with_the_agent(broker, state):
    broker.admit("eu", state)
    (state / "agent.yaml").write_text(INVENTORY)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "regional_agent", "run", "--stop-jobs", "--state-dir", str(state)),
        stderr=asyncio.subprocess.DEVNULL,
    )
    await broker.connected("eu")
    await broker.run("j1-1", {"run": "sleep 60"})
    await broker.event("j1-1", ev.Started)
    process.terminate()
    await asyncio.wait_for(process.wait(), 10)
    code, out, _ = await cli("status", "--json", "--state-dir", str(state))
    assert not json.loads(out)["keeper"]["running"]
