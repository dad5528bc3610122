"""Memory that a real cell counts and forces, and quotas under which a job would wait for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from federation.refusals import Refusal, RefusalCode
from regional_agent.act.schedulers.port import OutcomeKind, Phase
from regional_agent.conformance.rig import Program, Trial
from regional_agent.sense.gridengine import GridEngineSense
from tests.conformance.schedulers.gridengine_rig import GridEngineRig
from tests.schedulers.gridengine_cluster import GridEngine
from tests.schedulers.slurm_cluster import until

GIB = 2**30
LONG = Program("sleep 300", shell=True)


@pytest.fixture
def forced(cell: GridEngine) -> Iterator[GridEngine]:
    """Every host has 4 GiB of h_vmem to give, and a job has to say how much it takes."""
    before = cell.run("qconf", "-sc")
    lines = [line for line in before.splitlines() if line.split()[0] != "h_vmem"]
    counted = "h_vmem h_vmem MEMORY <= FORCED YES 0 0"
    cell.configure("complexes", "\n".join([*lines, counted]) + "\n", "-Mc")
    for host in cell.hosts:
        cell.run("qconf", "-aattr", "exechost", "complex_values", "h_vmem=4G", host)
    yield cell
    for host in cell.hosts:
        cell.run("qconf", "-dattr", "exechost", "complex_values", "h_vmem=4G", host)
    cell.configure("complexes", before + "\n", "-Mc")


@pytest.fixture
def quota(cell: GridEngine) -> Iterator[None]:
    rules = "{\n name few\n description NONE\n enabled TRUE\n limit users {*} to slots=4\n}\n"
    cell.configure("quota", rules, "-Arqs")
    yield
    cell.run("qconf", "-drqs", "few")


@pytest.fixture
async def trial(cell: GridEngine, tmp_path: Path) -> AsyncIterator[Trial]:
    rig = GridEngineRig(cell, cell.scratch / "agents" / tmp_path.name)
    made = Trial(rig, await rig.open(), f"q-{tmp_path.name}".replace("_", "-")[:20])
    yield made
    await made.clean_up()
    await rig.close()


def memory_free(cell: GridEngine, rig: GridEngineRig) -> list[int]:
    found = asyncio.run(GridEngineSense(rig.site, rig.system.client).look(()))
    (pool,) = found.seen.pools
    used = [node.memory_used_bytes for node in found.seen.nodes[pool.name]]
    return sorted((pool.memory_bytes - each) // 2**20 for each in used)


async def test_memory_that_is_forced_is_asked_for_and_counted(
    forced: GridEngine, trial: Trial
) -> None:
    rig = trial.rig
    assert isinstance(rig, GridEngineRig)
    answer = await trial.scheduler.submit(trial.order(LONG))
    assert isinstance(answer, Refusal) and answer.code is RefusalCode.UNSUPPORTED
    assert "resources.memory" in answer.text and "h_vmem" in answer.text

    order = trial.order(LONG, 2, memory_bytes=GIB, cpus_milli=2000)
    await trial.submit(order)
    await trial.started(order.uid)
    await asyncio.to_thread(
        until, lambda: memory_free(forced, rig) == [3072, 4096], "a GiB is not left"
    )
    await trial.scheduler.cancel(order.uid, 0)
    state = await trial.ended(order.uid)
    assert state.outcome is not None and state.outcome.kind is OutcomeKind.CANCELLED


async def test_what_a_quota_never_lets_run_is_refused_and_goes_elsewhere(
    quota: None, trial: Trial
) -> None:
    answer = await trial.scheduler.submit(trial.order(LONG, cpus_milli=5000))
    assert isinstance(answer, Refusal) and answer.code is RefusalCode.SITE_LIMIT
    assert "slots=5" in answer.text and "few/1" in answer.text, answer.text
    order = trial.order(LONG, 2, cpus_milli=4000)
    await trial.submit(order)
    assert (await trial.started(order.uid)).phase is Phase.RUNNING
