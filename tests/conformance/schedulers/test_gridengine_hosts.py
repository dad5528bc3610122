"""Hosts of a real Grid Engine that fall silent: unknown is no end, and no end is taken twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from regional_agent.act.schedulers.port import OutcomeKind, Phase
from regional_agent.conformance.rig import Program, Trial
from tests.conformance.schedulers.gridengine_rig import UNHEARD_S, GridEngineRig
from tests.schedulers.gridengine_cluster import GridEngine

WHEN_TOLD = Program('while [ ! -e "$HOME/go" ]; do sleep 0.2; done', shell=True)
LONG = Program("sleep 300", shell=True)


@pytest.fixture
async def trial(gridengine_cell: GridEngine, tmp_path: Path) -> AsyncIterator[Trial]:
    rig = GridEngineRig(gridengine_cell, gridengine_cell.scratch / "agents" / tmp_path.name)
    made = Trial(rig, await rig.open(), tmp_path.name.replace("_", "-")[:20])
    yield made
    await made.clean_up()
    await rig.close()


async def _silence(trial: Trial, uid: str, *, jobs: bool) -> str:
    """Its host falls silent, on a site that never gives a host up; returns the host."""
    rig = trial.rig
    assert isinstance(rig, GridEngineRig)
    host = await rig.host_of(uid)
    rig.broken.append(host)
    await asyncio.to_thread(rig.cell.give_up_hosts, UNHEARD_S, 0)
    await asyncio.to_thread(rig.cell.kill_host, host, jobs=jobs)
    state = await trial.until(uid, lambda s: "does not answer" in s.detail, "unknown")
    assert state.phase is Phase.RUNNING and host in state.detail
    return host


async def test_a_job_whose_daemon_died_is_unknown_and_its_own_end_counts(trial: Trial) -> None:
    order = trial.order(WHEN_TOLD)
    await trial.submit(order)
    await trial.started(order.uid)
    await _silence(trial, order.uid, jobs=False)
    (began,) = Path(trial.rig.state).rglob("began.0.0")  # type: ignore[attr-defined]
    began.with_name("go").touch()
    state = await trial.ended(order.uid)
    assert state.outcome is not None and state.outcome.kind is OutcomeKind.SUCCEEDED
    await trial.once(order.uid)


async def test_a_job_whose_host_died_is_unknown_until_it_is_back_and_then_lost(
    trial: Trial,
) -> None:
    order = trial.order(LONG)
    await trial.submit(order)
    await trial.started(order.uid)
    await _silence(trial, order.uid, jobs=True)
    await trial.rig.heal()
    state = await trial.ended(order.uid, 30)
    assert state.outcome is not None and state.outcome.kind is OutcomeKind.LOST, state
    await trial.once(order.uid)
