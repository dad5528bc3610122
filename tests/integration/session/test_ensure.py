"""`ensure` starts the agent once, however often and at once it is asked; idle it sleeps."""

import asyncio
import contextlib
import json
import os
import signal

import psutil
import pytest

from tests.chaos.test_agent_kill import INVENTORY
from tests.integration.session.test_command_line import cli

IDLE_S = 20
WAKEUPS_PER_S_MAX = 3.0  # each costs what the machine's caches make of it: 1 to 10 ms of CPU
MEMORY_BYTES_MAX = 100_000_000


@pytest.fixture
async def site(broker, state):
    broker.admit("eu", state)
    broker.facts.heartbeat_ms = 5_000  # as a broker asks for
    (state / "agent.yaml").write_text(INVENTORY)
    yield state
    for pid in agents_of(state):
        with contextlib.suppress(psutil.NoSuchProcess):
            os.kill(pid, signal.SIGTERM)
            psutil.Process(pid).wait(10)


def agents_of(state) -> list[int]:
    """Processes that run an agent in this directory."""
    words = ["regional_agent", "run", "--state-dir", str(state)]
    found = []
    for process in psutil.process_iter(["pid", "cmdline"]):
        if (process.info["cmdline"] or [])[-4:] == words:
            found.append(process.info["pid"])
    return found


async def ensure(state) -> dict:
    code, out, err = await cli("ensure", "--json", "--state-dir", str(state))
    assert code == 0, err
    return json.loads(out)


async def test_many_at_once_start_one_agent_and_later_ones_find_it(broker, site):
    found = await asyncio.gather(*(ensure(site) for _ in range(4)))
    assert [one["started"] for one in found].count(True) == 1
    assert len({one["pid"] for one in found}) == 1
    assert agents_of(site) == [found[0]["pid"]]
    await broker.connected("eu")
    code, _, err = await cli("run", "--state-dir", str(site))
    assert code == 1 and f"pid {found[0]['pid']}" in err


async def test_a_stale_lock_and_a_stale_pid_are_no_agent(broker, site):
    first = await ensure(site)
    os.kill(first["pid"], signal.SIGKILL)
    while agents_of(site):
        await asyncio.sleep(0.05)
    (site / "agent.lock").write_text(f"{os.getpid()}\n")  # the number lives, but is no agent
    again = await ensure(site)
    assert again["started"] and again["pid"] != first["pid"]


async def test_what_keeps_it_from_starting_is_told(site):
    (site / "site.yaml").write_text("tenats: []\n")
    code, _, err = await cli("ensure", "--state-dir", str(site))
    assert code == 1 and "did you mean tenants?" in err
    code, _, err = await cli("ensure", "--state-dir", str(site / "nowhere"))
    assert code == 1 and "tradewind-agent join" in err


async def test_an_idle_agent_sleeps_and_is_small(broker, site):
    await ensure(site)
    await broker.connected("eu")
    await asyncio.sleep(3)
    where = ("--json", "--state-dir", str(site))
    code, out, _ = await cli("impact", "--measure", f"{IDLE_S}s", *where)
    assert code == 0
    costs = {cost["name"]: cost for cost in json.loads(out)["processes"]}
    assert costs.keys() == {"agent", "keeper"}
    assert all(cost["wakeups_per_s"] < WAKEUPS_PER_S_MAX for cost in costs.values()), costs
    assert costs["agent"]["rss_bytes"] < MEMORY_BYTES_MAX, costs
