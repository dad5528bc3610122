"""`placement.spread: node` at a real Slurm: each member of a gang gets a node of its own, also
where one node has room for them all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from regional_agent.act.schedulers.port import Feature
from regional_agent.act.schedulers.slurm import Slurm
from regional_agent.slurm.site import SlurmSite as Site
from tests.integration.slurm.playing import ended, once, orders, running, submit_all
from tests.schedulers.slurm_cluster import SlurmCluster, SlurmSite, missing


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    if why := missing():
        pytest.skip(f"Slurm {why}")
    site = SlurmSite(("alpha",), nodes=2).start()
    try:
        yield site.clusters["alpha"]
    finally:
        site.stop()


@pytest.mark.parametrize(("own_nodes", "nodes"), [(True, 2), (False, 1)], ids=["apart", "packed"])
def test_members_are_on_nodes_of_their_own(
    cluster: SlurmCluster, own_nodes: bool, nodes: int
) -> None:
    state = cluster.site.scratch / f"state-own-{own_nodes}"
    state.mkdir(mode=0o700)
    asyncio.run(_members_are_on(cluster, state, own_nodes, nodes))


async def _members_are_on(cluster: SlurmCluster, state: Path, own_nodes: bool, nodes: int) -> None:
    system = Slurm(Site(client_env=cluster.env))
    (order,) = orders(
        f"own{int(own_nodes)}", ["echo $SLURMD_NODENAME"], replicas=2, own_nodes=own_nodes
    )
    async with running(system, state) as scheduler:
        features = (await scheduler.capabilities()).features
        assert Feature.MEMBERS_APART in features and Feature.TASKS_APART not in features
        await submit_all(scheduler, [order])
        end = (await once(scheduler, [order.uid], ended))[order.uid]
        assert end.outcome is not None and end.outcome.kind == "succeeded", end
        names = [
            (await scheduler.read_log(order.uid, stream, 0, 100)).data
            for stream in ("output", "output.r1")
        ]
    assert len({*names}) == nodes, names
