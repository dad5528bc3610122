"""Gangs over two real hosts, deletions that kill, and deadlines that nobody is there to keep."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from federation.refusals import Refusal
from regional_agent.act.schedulers.port import LaunchOrder, LocalState, OutcomeKind, Phase
from regional_agent.conformance.files import shell_order
from regional_agent.conformance.rig import Program
from regional_agent.contact import since_boot_s
from regional_agent.sense.gridengine import GridEngineSense
from regional_agent.session.ledger import Place
from tests.conformance.schedulers.gridengine_rig import GridEngineRig
from tests.schedulers.gridengine_cluster import SLOTS, GridEngine

WITHIN_S = 60.0
NOTIFY_S = 5


@pytest.fixture
async def rig(cell: GridEngine, tmp_path: Path) -> AsyncIterator[GridEngineRig]:
    made = GridEngineRig(cell, cell.scratch / "agents" / tmp_path.name)
    await made.open()
    yield made
    await made.close()


def order(script: str, **changes: object) -> LaunchOrder:
    return shell_order("j1-1", Program(script, shell=True), **changes)


async def until(rig: GridEngineRig, phase: Phase) -> LocalState:
    async with asyncio.timeout(WITHIN_S):
        while True:
            state = (await rig.scheduler.status(["j1-1"]))["j1-1"]
            if state.phase in (phase, Phase.ENDED):
                return state
            await asyncio.sleep(0.1)


async def log(rig: GridEngineRig, stream: str = "output") -> str:
    return (await rig.scheduler.read_log("j1-1", stream, 0, 2**20)).data.decode()


async def pid(rig: GridEngineRig, stream: str = "output") -> int:
    async with asyncio.timeout(WITHIN_S):
        while not (said := (await log(rig, stream)).split()):
            await asyncio.sleep(0.1)
    return int(said[0])


def lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    return state != "Z"


async def gone(process: int, within_s: float) -> bool:
    for _ in range(int(within_s * 10)):
        if not lives(process):
            return True
        await asyncio.sleep(0.1)
    return False


PAIR = {"replicas": 2, "cpus_milli": 2000}
"""By `two`, whose slots are two on each host."""


async def test_members_run_on_every_host_they_were_given(rig: GridEngineRig) -> None:
    say = 'echo "$(hostname) $RANK of $WORLD_SIZE $LOCAL_RANK $TRADEWIND_HEAD_ADDRESS"'
    await rig.scheduler.submit(order(say, **PAIR))
    state = await until(rig, Phase.ENDED)
    assert state.outcome is not None and state.outcome.kind is OutcomeKind.SUCCEEDED
    first, second = [(await log(rig, stream)).split() for stream in ("output", "output.r1")]
    assert {first[0], second[0]} == set(rig.cell.hosts)
    assert (first[1:5], second[1:5]) == (["0", "of", "2", "0"], ["1", "of", "2", "0"])
    assert first[5] == second[5] and first[5].startswith(f"{first[0]}:")
    assert await rig.begun("j1-1") == {"0.0": 1, "0.1": 1}


async def test_a_cancel_reaches_members_on_other_hosts(rig: GridEngineRig) -> None:
    """It ends when both have, also the one that takes its time."""
    saves = (
        "trap 'sleep $((RANK * 2)); echo saved; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    )
    await rig.scheduler.submit(order(saves, **PAIR))
    async with asyncio.timeout(WITHIN_S):
        while "up" not in await log(rig) or "up" not in await log(rig, "output.r1"):
            await asyncio.sleep(0.2)
    await rig.scheduler.cancel("j1-1", 4)
    state = await until(rig, Phase.ENDED)
    assert state.outcome is not None and state.outcome.kind is OutcomeKind.CANCELLED
    assert "saved" in await log(rig) and "saved" in await log(rig, "output.r1")


async def test_what_no_environment_keeps_whole_is_refused_with_what_there_is(
    rig: GridEngineRig,
) -> None:
    found = await GridEngineSense(rig.site, rig.system.client).look(())
    rig.system.pools = found.sources
    places = (Place("main-q-l40s", 0, (0,)),) * SLOTS
    wide = order("true", replicas=SLOTS, cpus_milli=3000, places=places)
    answer = await rig.scheduler.submit(wide)
    assert isinstance(answer, Refusal) and answer.code == "unsupported"
    assert "the queue has smp ($pe_slots), mpi ($fill_up), two (2)" in answer.text


async def test_a_deletion_kills_a_program_whose_script_was_killed_first(
    rig: GridEngineRig,
) -> None:
    """Its grace is longer than the queue's `notify`, after which Grid Engine kills the script."""
    await rig.scheduler.submit(order("trap '' TERM; echo $$; while :; do sleep 0.2; done"))
    await until(rig, Phase.RUNNING)
    process = await pid(rig)
    await rig.scheduler.cancel("j1-1", 40)
    await until(rig, Phase.ENDED)
    assert await gone(process, NOTIFY_S)


async def test_nobody_has_to_be_there_to_stop_it(rig: GridEngineRig) -> None:
    """The agent is gone: the hosts keep the deadline, of every member."""
    stubborn = "trap '' TERM; echo $$; while :; do sleep 0.2; done"
    wanted = {"fence_after_s": 15, "grace_s": 1, "contact_s": since_boot_s()}
    await rig.scheduler.submit(order(stubborn, **PAIR, **wanted))
    ends = [await pid(rig, stream) for stream in ("output", "output.r1")]
    await rig.scheduler.close()
    for process in ends:
        assert await gone(process, 25)
    await rig.open()
    state = await until(rig, Phase.ENDED)
    assert state.outcome is not None and state.outcome.kind is OutcomeKind.FENCED


async def test_a_node_that_cannot_read_the_record_of_contact_stops_it(rig: GridEngineRig) -> None:
    wanted = {"fence_after_s": 6, "grace_s": 1, "contact_s": since_boot_s()}
    await rig.scheduler.submit(order("echo $$; sleep 120", **wanted))
    process = await pid(rig)
    await rig.scheduler.close()
    (rig.state / "contact").rename(rig.state / "lost")
    assert await gone(process, 12)


