"""`placement.spread: node` on Kubernetes, at the contract server: pods of one job share no node,
whatever attempt or part they are of, and take turns where there are too few nodes."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from federation.runs import Runs
from regional_agent.act.schedulers.port import LocalScheduler, Phase, Submitted
from regional_agent.conformance.rig import Program
from regional_agent.kubernetes.api import LABEL_APART
from tests.conformance.schedulers.kubernetes_rig import KubernetesRig
from tests.schedulers.kubernetes_cluster import TERMINAL

UNTIL_S = 30.0
WORKS = "sleep 0.4"


class Site:
    """Two nodes with room for many pods each."""

    def __init__(self, rig: KubernetesRig, scheduler: LocalScheduler) -> None:
        self.rig, self.scheduler = rig, scheduler
        self.store = rig.server.cluster.store
        rig.server.cluster.add_node("node-2")
        self.most = Counter[str]()
        """By node the most live pods that it had at one time."""

    async def submit(self, uid: str, program: str = WORKS, **changes: object) -> None:
        order = self.rig.order(uid, Program(program), **changes)
        assert order is not None
        assert isinstance(await self.scheduler.submit(order), Submitted)

    def live(self) -> Counter[str]:
        pods = [p for p in self.store.pods.values() if p["status"]["phase"] not in TERMINAL]
        return Counter(p["spec"]["nodeName"] for p in pods if p["spec"].get("nodeName"))

    async def until_ended(self, *uids: str) -> None:
        async with asyncio.timeout(UNTIL_S):
            while True:
                self.most |= self.live()
                states = await self.scheduler.status(uids)
                if all(state.phase is Phase.ENDED for state in states.values()):
                    break
                await asyncio.sleep(0.02)
        for state in states.values():
            assert state.outcome is not None and state.outcome.kind == "succeeded", state


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    rig = KubernetesRig(tmp_path / "state")
    yield Site(rig, await rig.open())
    await rig.close()


@pytest.mark.parametrize("own_nodes", [True, False], ids=["apart", "together"])
async def test_tasks_share_a_node_only_where_they_may(site: Site, own_nodes: bool) -> None:
    tasks = {"tasks": Runs.of([(0, 3)]), "width": 4}
    await site.submit("tasks-1", own_nodes=own_nodes, **tasks)
    await site.until_ended("tasks-1")
    assert (max(site.most.values()) == 1) is own_nodes
    if own_nodes:
        assert set(site.most) == {"node-1", "node-2"}


async def test_another_attempt_of_the_job_waits_for_a_node_and_another_job_does_not(
    site: Site,
) -> None:
    same = {"job": "one", "own_nodes": True, "tasks": Runs.of([(0, 1)]), "width": 2}
    await site.submit("one-1", **same)
    await site.submit("one-2", **same | {"tasks": Runs.of([(2, 3)])})
    await site.until_ended("one-1", "one-2")
    assert site.most == {"node-1": 1, "node-2": 1}
    await site.submit("one-3", **same)
    await site.submit("two-1", **same | {"job": "two"})
    await site.until_ended("one-3", "two-1")
    assert max(site.most.values()) == 2, "each job on its own, beside the other"


async def test_further_tasks_are_apart_too_after_a_restart_of_the_agent(site: Site) -> None:
    tasks = Runs.of([(0, 1)])
    await site.submit("more-1", own_nodes=True, tasks=tasks, width=2)
    site.scheduler = await site.rig.open()
    answer = await site.scheduler.set_slice("more-1", Runs.of([(0, 5)]), 2)
    assert isinstance(answer, Runs) and answer.count > tasks.count
    await site.until_ended("more-1")
    assert site.most == {"node-1": 1, "node-2": 1}


async def test_members_of_a_gang_are_apart(site: Site) -> None:
    await site.submit("gang-1", replicas=2, own_nodes=True)
    await site.until_ended("gang-1")
    assert site.most == {"node-1": 1, "node-2": 1}


async def test_nobody_else_is_told_to_keep_apart(site: Site) -> None:
    await site.submit("plain-1")
    async with asyncio.timeout(UNTIL_S):
        while not site.store.pods:
            await asyncio.sleep(0.02)
    (pod,) = site.store.pods.values()
    assert LABEL_APART not in pod["metadata"]["labels"]
    assert "podAntiAffinity" not in (pod["spec"].get("affinity") or {})
