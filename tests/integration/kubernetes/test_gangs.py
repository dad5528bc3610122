"""Gangs on Kubernetes, at the contract server: a pod per member, one service by which they meet."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from federation.runs import Runs
from regional_agent.act.schedulers.port import (
    LocalScheduler,
    LocalState,
    Outcome,
    OutcomeKind,
    Phase,
    Submitted,
)
from regional_agent.conformance.rig import Program
from regional_agent.kubernetes.api import FINALIZER
from tests.conformance.schedulers.kubernetes_rig import KubernetesRig

UNTIL_S = 30.0


class Site:
    """The rig of the conformance suite, with what its tests of gangs need."""

    def __init__(self, rig: KubernetesRig, scheduler: LocalScheduler) -> None:
        self.rig, self.scheduler = rig, scheduler
        self.store = rig.server.cluster.store

    async def submit(self, script: str, **changes: object) -> str:
        order = self.rig.order("gang-1", Program(script), **{"replicas": 3} | changes)
        assert order is not None
        answer = await self.scheduler.submit(order)
        assert isinstance(answer, Submitted), answer
        return answer.local_id

    async def until(self, *phases: Phase) -> LocalState:
        async with asyncio.timeout(UNTIL_S):
            while True:
                state = (await self.scheduler.status(["gang-1"]))["gang-1"]
                if state.phase in phases:
                    return state
                await asyncio.sleep(0.05)

    async def all_begun(self) -> None:
        async with asyncio.timeout(UNTIL_S):
            while len(await self.rig.begun("gang-1")) < 3:
                await asyncio.sleep(0.05)

    async def log(self, rank: int) -> str:
        stream = f"output.r{rank}" if rank else "output"
        return (await self.scheduler.read_log("gang-1", stream, 0, 4096)).data.decode()


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    rig = KubernetesRig(tmp_path / "state")
    yield Site(rig, await rig.open())
    await rig.close()


async def test_members_meet_at_the_first_by_a_service_that_goes_with_the_job(site: Site) -> None:
    name = await site.submit("echo $MASTER_ADDR $MASTER_PORT $TRADEWIND_HEAD_ADDRESS; sleep 0.5")
    assert site.store.services[name]["metadata"]["ownerReferences"][0]["name"] == name
    pods = [p["spec"]["subdomain"] for p in site.store.pods.values()]
    state = await site.until(Phase.ENDED)
    assert state.outcome == Outcome(OutcomeKind.SUCCEEDED) and set(pods) <= {name}
    for rank in range(3):
        head = f"{name}-0.{name}"
        assert await site.log(rank) == f"{head} 29500 {head}:29500\n"
    await site.scheduler.forget("gang-1")
    async with asyncio.timeout(UNTIL_S):
        while FINALIZER in site.store.jobs[name]["metadata"]["finalizers"]:
            await site.rig.system.release()
            await asyncio.sleep(0.05)
        site.rig.server.cluster.delete_job(site.store.jobs[name], "Background")  # its time is over
        while site.store.services:
            await asyncio.sleep(0.05)


async def test_a_gang_ends_with_its_last_member(site: Site) -> None:
    await site.submit('[ "$RANK" = 0 ] || sleep 2')
    await site.all_begun()
    await asyncio.sleep(0.7)
    assert (await site.until(Phase.RUNNING, Phase.ENDED)).phase is Phase.RUNNING
    state = await site.until(Phase.ENDED)
    assert state.outcome == Outcome(OutcomeKind.SUCCEEDED)
    assert state.ended_ms - state.started_ms > 1500


async def test_all_members_are_told_before_the_walltime_ends_them(site: Site) -> None:
    saves = "trap 'echo saved; exit 0' TERM; while :; do sleep 0.1; done"
    await site.submit(saves, max_runtime_s=3, grace_s=10)
    state = await site.until(Phase.ENDED)
    assert state.outcome == Outcome(OutcomeKind.TIMED_OUT), state.detail
    for rank in range(3):
        assert "saved" in await site.log(rank)


async def test_a_cancel_reaches_every_member(site: Site) -> None:
    await site.submit("trap 'echo saved; exit 0' TERM; while :; do sleep 0.1; done")
    await site.all_begun()
    await asyncio.sleep(0.3)
    await site.scheduler.cancel("gang-1", 10)
    assert (await site.until(Phase.ENDED)).outcome == Outcome(OutcomeKind.CANCELLED)
    for rank in range(3):
        assert "saved" in await site.log(rank)


async def test_the_node_of_one_member_dies_and_the_gang_is_lost(site: Site) -> None:
    site.rig.server.cluster.add_node("node-2")
    site.rig.server.cluster.store.nodes["node-1"]["status"]["allocatable"]["cpu"] = "2"
    await site.submit("sleep 60")
    await site.all_begun()
    (alone,) = {p["spec"]["nodeName"] for p in site.store.pods.values()} - {"node-1"}
    await site.rig.server.cluster.node_dies(alone)
    state = await site.until(Phase.ENDED)
    assert state.outcome == Outcome(OutcomeKind.LOST), state
    assert set((await site.rig.begun("gang-1")).values()) == {1}


async def test_a_service_of_somebody_else_is_left_alone(site: Site) -> None:
    mine = {"metadata": {"name": "gang-1"}, "spec": {}}
    site.store.add(site.store.services, mine)
    assert await site.submit("true") == "gang-1-tw2"
    assert (await site.until(Phase.ENDED)).outcome == Outcome(OutcomeKind.SUCCEEDED)
    assert site.store.services["gang-1"] is mine and "ownerReferences" not in mine["metadata"]


async def test_an_array_of_gangs_is_refused(site: Site) -> None:
    order = site.rig.order("gang-1", Program("true"), replicas=2, tasks=Runs(((0, 1),)))
    assert order is not None
    refused = await site.scheduler.submit(order)
    assert not isinstance(refused, Submitted) and "tasks are gangs" in refused.text
