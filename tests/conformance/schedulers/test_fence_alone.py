"""Slices in a silence that no agent lives through: the nodes of batch systems stop them alone."""

from __future__ import annotations

import asyncio

import pytest

from federation.runs import Runs
from regional_agent.act.schedulers.port import Feature, OutcomeKind, Phase
from regional_agent.conformance.files import shell_order
from regional_agent.conformance.rig import Program, Rig
from regional_agent.contact import since_boot_s
from tests.conformance.schedulers.batch_rig import BatchRig

AFTER_S, GRACE_S = 8, 1
LATE_S = 3
"""What a node's look and its clock, and a batch system that fills a free place, may take."""
BEATS = Program('trap "" TERM; while :; do date +%s >> beats; sleep 0.2; done', shell=True)


async def test_a_slice_stops_and_no_task_of_it_begins_without_an_agent(rig: Rig) -> None:
    if not isinstance(rig, BatchRig):
        pytest.skip("a keeper's own tests look at this")
    scheduler = await rig.open()
    if Feature.FENCE not in (await scheduler.capabilities()).features:
        pytest.skip(f"{rig.kind} keeps no contact deadlines")
    contact_s = since_boot_s()
    order = shell_order(
        "f-alone-1", BEATS, tasks=Runs(((0, 5),)), width=2, fence_after_s=AFTER_S,
        grace_s=GRACE_S, contact_s=contact_s,
    )  # fmt: skip
    await scheduler.submit(order)
    while len(await rig.begun("f-alone-1")) < 2:
        assert since_boot_s() < contact_s + AFTER_S - 1, "too slow a machine to see it run"
        await asyncio.sleep(0.1)
    await rig.scheduler.close()
    await asyncio.sleep(contact_s + AFTER_S + GRACE_S + LATE_S - since_boot_s())
    beats = rig.state / "attempts" / "f-alone-1" / "work" / "beats"
    silent_since = beats.read_text()
    await asyncio.sleep(2)
    assert beats.read_text() == silent_since
    assert len(await rig.begun("f-alone-1")) == 2
    await rig.open()
    await rig.scheduler.contact(since_boot_s())
    async with asyncio.timeout(2 * rig.patience_s):
        while True:
            state = (await rig.scheduler.status(["f-alone-1"]))["f-alone-1"]
            if state.phase is Phase.ENDED:
                break
            await asyncio.sleep(0.1)
    assert state.outcome is not None and state.outcome.kind is OutcomeKind.FENCED
    assert state.tasks.unstarted.count == 4
    assert len(await rig.begun("f-alone-1")) == 2
