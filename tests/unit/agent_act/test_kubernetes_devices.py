"""Cards that are had by resource claims: what counts of ResourceSlices, and how jobs ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regional_agent.act.keeper.layout import AttemptDir
from regional_agent.act.schedulers.batch.attempt import create
from regional_agent.act.schedulers.batch.system import Live, Submission
from regional_agent.act.schedulers.kubernetes import Kubernetes
from regional_agent.act.schedulers.port import LaunchOrder
from regional_agent.kubernetes.api import KubernetesApi
from regional_agent.kubernetes.devices import offered, template
from regional_agent.kubernetes.site import Devices, KubernetesSite
from regional_agent.sense.kubernetes import KubernetesSense
from regional_agent.session.ledger import Place
from tests.conformance.schedulers.kubernetes_rig import contract_site
from tests.schedulers.kubernetes_server import Cluster, KubernetesServer
from tests.unit.agent_act.test_kubernetes_sense import node

DRIVER, H100 = "gpu.nvidia.com", "NVIDIA H100 80GB HBM3"
DEVICES = Devices("gpu.nvidia.com", DRIVER, "productName")
SITE = KubernetesSite("https://api", "n", "i", Path("/state"), "claim", devices=DEVICES)


def device(name: str, product: str = H100, kind: str = "gpu", **more: Any) -> dict[str, Any]:
    said = {"productName": {"string": product}, "type": {"string": kind}}
    return {"name": name, "attributes": said, **more}


def part(where: str, *devices: dict[str, Any], generation: int = 1, of: int = 1) -> dict[str, Any]:
    """A ResourceSlice of a node's pool."""
    pool = {"name": where, "generation": generation, "resourceSliceCount": of}
    return {
        "metadata": {"name": f"{where}-{generation}-{len(devices)}"},
        "spec": {"driver": DRIVER, "nodeName": where, "pool": pool, "devices": list(devices)},
    }


def claim(*devices: str, pool: str = "a", **more: Any) -> dict[str, Any]:
    results = [{"driver": DRIVER, "pool": pool, "device": each, **more} for each in devices]
    return {"metadata": {"name": "c"}, "status": {"allocation": {"devices": {"results": results}}}}


def bare(name: str) -> dict[str, Any]:
    made = node(name)
    made["metadata"]["labels"] = {}
    return made


def cards(found: Any) -> dict[str, int]:
    return {n["metadata"]["name"]: int(n["status"]["allocatable"]["nvidia.com/gpu"])
            for n in found.nodes}  # fmt: skip


def test_devices_of_a_node_are_its_cards_and_those_allocated_are_taken() -> None:
    slices = [part("a", *(device(f"gpu-{n}") for n in range(4))), part("b", device("gpu-0"))]
    claims = [claim("gpu-0", "gpu-2"), claim("gpu-1", adminAccess=True), {"metadata": {}}]
    found = offered(SITE, [bare("a"), bare("b"), bare("c")], slices, claims)
    assert cards(found) == {"a": 4, "b": 1, "c": 0} and found.products == {H100}
    held = {p["spec"]["nodeName"]: p["spec"]["containers"][0]["resources"]["requests"]
            for p in found.holders}  # fmt: skip
    assert held == {"a": {"nvidia.com/gpu": "2"}, "b": {"nvidia.com/gpu": "0"}}


def test_only_the_newest_generation_counts_and_only_once_it_is_whole() -> None:
    old = part("a", device("gpu-0"), device("gpu-1"), generation=1)
    new = part("a", device("gpu-0"), generation=2, of=2)
    found = offered(SITE, [bare("a")], [old, new], [])
    assert cards(found) == {"a": 0} and "not told completely" in found.notes[0]
    rest = part("a", device("gpu-1"), device("gpu-2"), generation=2, of=2)
    assert cards(offered(SITE, [bare("a")], [old, new, rest], [])) == {"a": 3}


def test_slices_of_cards_tainted_ones_and_those_of_no_node_are_left_out() -> None:
    far = part("a", device("gpu-9"))
    far["spec"]["nodeName"], far["spec"]["allNodes"] = "", True
    far["spec"]["pool"]["name"] = "far"
    near = part("a", device("gpu-0"), device("mig-1", kind="mig"),
                device("gpu-2", taints=[{"key": "broken", "effect": "NoExecute"}]))  # fmt: skip
    found = offered(SITE, [bare("a")], [near, far], [])
    assert cards(found) == {"a": 1} and len(found.notes) == 1


def test_what_a_device_plugin_offers_goes_before_and_two_models_of_a_node_are_no_pool() -> None:
    plugged = node("p", 8, "NVIDIA-H100-80GB-HBM3")  # the same model by its plugin's name
    mixed = part("m", device("gpu-0", "NVIDIA A10"), device("gpu-1", "NVIDIA L4"))
    nodes = [plugged, bare("a"), bare("m")]
    slices = [part("a", device("gpu-0")), mixed, part("p", device("gpu-0"))]
    found = offered(SITE, nodes, slices, [])
    assert cards(found) == {"p": 8, "a": 0, "m": 0} and not found.products
    assert "a device plugin offers" in found.notes[0] and "several models" in found.notes[1]


def test_a_template_says_class_number_and_model_and_is_named_by_that() -> None:
    one, two = (template(SITE, [H100], n, "v1") for n in (1, 2))
    assert one["metadata"]["name"] != two["metadata"]["name"]
    (asked,) = two["spec"]["spec"]["devices"]["requests"]
    assert asked["exactly"]["count"] == 2 and asked["exactly"]["deviceClassName"] == DRIVER
    rule = asked["exactly"]["selectors"][0]["cel"]["expression"]
    assert rule == f'device.attributes["{DRIVER}"].productName in ["{H100}"]'
    (older,) = template(SITE, [H100], 2, "v1beta1")["spec"]["spec"]["devices"]["requests"]
    assert older["count"] == 2 and "exactly" not in older


# Against the contract server -------------------------------------------------------------------


@pytest.fixture
async def server() -> AsyncIterator[KubernetesServer]:
    made = KubernetesServer(Cluster(cards=0))
    await made.start()
    (only,) = made.cluster.store.nodes.values()
    only["metadata"]["labels"] = {}
    slices = part("node-1", *(device(f"gpu-{n}") for n in range(4)))
    made.cluster.store.add(made.cluster.store.slices, slices)
    yield made
    await made.stop()
    assert not made.refused, made.refused


@pytest.mark.parametrize("versions", [("v1", "v1beta1"), ("v1beta1",)], ids=["v1", "v1beta1"])
async def test_a_job_gets_its_cards_by_a_claim_and_they_count_as_taken(
    server: KubernetesServer, versions: tuple[str, ...], tmp_path: Path
) -> None:
    server.cluster.resource_versions = versions
    site = replace(contract_site(tmp_path, server.url), devices=DEVICES)
    api = KubernetesApi(site)
    sense, system = KubernetesSense(site, api), Kubernetes(api)
    try:
        found = await sense.look(())
        (pool,) = found.seen.pools
        assert (pool.name, pool.accelerators_per_node) == ("h100", 4)
        system.products, system.claimed = found.products, found.claimed
        for uid, live in (("a-1", Live.RUNNING), ("b-1", Live.PENDING)):
            place = Place("h100", 0, (0, 1, 2))
            order = LaunchOrder(uid, "j", "t", run="sleep 60", accelerator="H100", places=(place,))
            attempt = create(AttemptDir(tmp_path, uid), order, 1)
            script = attempt.place.root / "job-0.sh"
            script.write_text("sleep 60")
            job = Submission(uid, f"tradewind:{uid}:0", order, script, attempt.place.work, script)
            assert await system.submit(job) == uid
            async with asyncio.timeout(20):
                while {r.local_id: r.live for r in await system.queue()}.get(uid) is not live:
                    await asyncio.sleep(0.05)
        assert len(server.cluster.store.templates) == 1, "one for all that want the same"
        (only,) = (await sense.look(("a-1",))).seen.nodes["h100"]
        assert only.accelerators_used == 3
        await system.remove("a-1")
        async with asyncio.timeout(20):
            while {r.local_id: r.live for r in await system.queue()}.get("b-1") is not Live.RUNNING:
                await asyncio.sleep(0.05)
    finally:
        await system.close()
