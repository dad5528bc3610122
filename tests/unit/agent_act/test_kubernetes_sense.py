"""What a Kubernetes cluster says, as a site: nodes that count, whose cards, who holds what."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regional_agent.kubernetes.api import JOB_NAME, LABEL_ATTEMPT, LABEL_SITE, KubernetesApi
from regional_agent.kubernetes.site import KubernetesSite
from regional_agent.kubernetes.told import amount_of
from regional_agent.sense.kubernetes import KubernetesLook, KubernetesSense, put_together, requested
from regional_agent.sense.kubernetes_kueue import flavours_left, held_back, left_for
from regional_agent.sense.kubernetes_limits import Left, bounded, left_of, only_by_claim
from tests.conformance.schedulers.kubernetes_rig import contract_site
from tests.schedulers.kubernetes_server import Cluster, KubernetesServer

SITE = KubernetesSite("https://api", "tradewind", "jobs:1", Path("/state"), "claim")
H100 = "NVIDIA-H100-80GB-HBM3"


def node(name: str, cards: int = 0, product: str = H100, **spec: Any) -> dict[str, Any]:
    amounts = {"cpu": "7910m", "memory": "64Gi", "nvidia.com/gpu": str(cards)}
    return {
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": product, "zone": "a"}},
        "spec": spec,
        "status": {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def pod(where: str = "", cards: int = 0, uid: str = "", **labels: str) -> dict[str, Any]:
    ours = {LABEL_ATTEMPT: uid, LABEL_SITE: SITE.mark()} if uid else {}
    asked = {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": str(cards)}
    return {
        "metadata": {"name": "p", "labels": ours | labels},
        "spec": {"nodeName": where, "containers": [{"resources": {"requests": asked}}]},
        "status": {"phase": "Running" if where else "Pending"},
    }


def look(
    *nodes: dict[str, Any], pods: tuple[dict[str, Any], ...] = (),
    site: KubernetesSite = SITE, ours: tuple[str, ...] = (),
) -> KubernetesLook:  # fmt: skip
    return put_together(site, nodes, pods, frozenset(ours))


def test_nodes_that_are_cordoned_or_not_ready_take_nothing() -> None:
    """Guards against counting the cards of nodes that take nothing as free."""
    lost = node("c", 8)
    lost["status"]["conditions"][0]["status"] = "Unknown"
    pressed = node("d", 8, taints=[{"key": "node.kubernetes.io/disk-pressure",
                                    "effect": "NoSchedule"}])  # fmt: skip
    seen = look(node("a", 8), node("b", 8, unschedulable=True), lost, pressed).seen
    (pool,) = seen.pools
    assert (pool.name, pool.accelerator, pool.nodes) == ("h100", "H100", 4)
    assert [each.takes_jobs for each in seen.nodes["h100"]] == [True, False, False, False]


def test_nodes_jobs_are_not_sent_to_are_none() -> None:
    tainted = node("a", 8, taints=[{"key": "dedicated", "effect": "NoSchedule"}])
    assert not look(tainted).seen.pools
    elsewhere = KubernetesSite("u", "n", "i", Path("/s"), "c", node_selector={"zone": "b"})
    assert not look(node("a", 8), site=elsewhere).seen.pools
    usual = node("a", 8, taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}])
    preferred = node("b", 8, taints=[{"key": "x", "effect": "PreferNoSchedule"}])
    seen = look(usual, preferred).seen
    assert [each.takes_jobs for each in seen.nodes["h100"]] == [True, True]
    assert look(usual, preferred).products == {"H100": (H100,)}


@pytest.mark.parametrize("product", ["", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "Tesla-T4-SHARED"])
def test_cards_nobody_names_and_parts_of_cards_are_left_out_and_said(product: str) -> None:
    found = look(node("a", 8, product), node("b"))
    assert [p.accelerator for p in found.seen.pools] == ["CPU"]
    assert "kubernetes.types" in found.notes[0]
    named = KubernetesSite("u", "n", "i", Path("/s"), "c", types={product: "T4"})
    assert {p.accelerator for p in look(node("a", 8, product), site=named).seen.pools} == {"T4"}


def test_what_pods_ask_for_is_what_they_hold_and_ours_are_where_they_run() -> None:
    pods = (pod("a", 2, "job-1"), pod("a", 1), pod("b", 4, "gone-1", **{JOB_NAME: "x"}),
            pod("", 1, "", **{JOB_NAME: "y"}))  # fmt: skip
    seen = look(node("a", 8), node("b", 8), pods=pods, ours=("job-1",)).seen
    assert [each.accelerators_used for each in seen.nodes["h100"]] == [3, 4]
    assert [each.cpus_used_milli for each in seen.nodes["h100"]] == [1000, 500]
    assert seen.running == {"job-1": ((("h100", 0),),)}
    assert (seen.others_running, seen.others_waiting) == (1, 1)


def test_a_pod_of_another_agent_with_the_label_of_an_attempt_is_not_ours() -> None:
    foreign = pod("a", 1, "job-1")
    foreign["metadata"]["labels"][LABEL_SITE] = "another"
    assert not look(node("a", 8), pods=(foreign,), ours=("job-1",)).seen.running


def test_a_pod_asks_for_the_largest_of_what_runs_before_and_all_of_what_runs_beside() -> None:
    def container(cpu: str, **rest: str) -> dict[str, Any]:
        return {"resources": {"requests": {"cpu": cpu}}, **rest}

    before = [container("1", restartPolicy="Always"), container("4")]
    spec = {"initContainers": before, "containers": [container("500m"), container("1500m")]}
    assert requested({"spec": spec}) == {"cpu": 5.0}
    assert requested({"spec": spec | {"overhead": {"cpu": "250m"}}}) == {"cpu": 5.25}
    assert requested({"spec": spec | {"initContainers": []}}) == {"cpu": 2.0}


@pytest.mark.parametrize(
    ("said", "amount"),
    [("500m", 0.5), ("2Gi", 2 * 2**30), ("4", 4), ("1e3", 1000), ("1M", 1e6), (None, 0), (3, 3)],
)
def test_quantities(said: object, amount: float) -> None:
    assert amount_of(said) == amount


def quota(name: str, hard: dict[str, str], used: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec, "status": {"hard": hard, "used": used}}


def test_what_quotas_leave_is_the_least_that_any_leaves() -> None:
    left = left_of(
        [
            quota("a", {"requests.cpu": "10", "pods": "50"}, {"requests.cpu": "2500m"}),
            quota("b", {"cpu": "8", "requests.nvidia.com/gpu": "4"}, {"cpu": "9"}),
            quota("c", {"limits.memory": "64Gi", "secrets": "3"}, {"limits.memory": "60Gi"}),
            quota("d", {"pods": "0"}, {}, scopes=["BestEffort"]),
        ]
    )
    assert (left.cpus, left.memory_bytes, left.cards, left.pods) == (0, 4 * 2**30, 4, 50)
    assert left.notes == ("the quota d has scopes: what it leaves is not counted",)
    assert left_of([]) == Left()


def test_a_pool_has_no_more_free_than_quotas_leave() -> None:
    """Guards against placing what a quota then keeps waiting in the cluster."""
    seen = look(node("a", 8), node("b", 8), node("c", 8, unschedulable=True),
                pods=(pod("a", 5),)).seen  # fmt: skip

    def free(left: Left) -> list[int]:
        nodes = bounded(seen.pools, seen.nodes, left)["h100"]
        return [8 - each.accelerators_used for each in nodes]

    assert free(Left()) == [3, 8, 8]
    assert free(Left(cards=5)) == [3, 2, 0]
    assert free(Left(pods=1)) == [1, 0, 0]
    cpus = bounded(seen.pools, seen.nodes, Left(cpus=8))["h100"]
    assert [7910 - each.cpus_used_milli for each in cpus] == [7410, 590, 0]


async def test_quotas_and_the_queue_of_kueue_are_looked_at(tmp_path: Path) -> None:
    server = KubernetesServer(Cluster())
    await server.start()
    site = replace(contract_site(tmp_path, server.url), queue="research")
    api, store = KubernetesApi(site), server.cluster.store
    sense = KubernetesSense(site, api)
    try:
        found = await sense.look(())
        assert "there is no LocalQueue research" in found.notes[-1]
        assert {n.accelerators_used for n in found.seen.nodes["h100"]} == {8}
        queue = {"metadata": {"name": "research"}, "status": {"pendingWorkloads": 3},
                 "spec": {"clusterQueue": "team-a"}}  # fmt: skip
        store.add(store.queues, queue)
        assert "no ClusterQueue team-a" in (await sense.look(())).notes[-1]
        of_team = cluster_queue("team-a", {"any": {"nvidia.com/gpu": 6}}, {"any": {}})
        store.add(store.cluster_queues, of_team)
        store.add(store.flavours, {"metadata": {"name": "any"}, "spec": {}})
        found = await sense.look(())
        assert [8 - n.accelerators_used for n in found.seen.nodes["h100"]] == [6]
        store.add(store.quotas, quota("team", {"requests.nvidia.com/gpu": "2"}, {}))
        found = await sense.look(())
        assert [8 - n.accelerators_used for n in found.seen.nodes["h100"]] == [2]
        assert (found.seen.others_waiting, found.notes) == (3, ())
        inactive = {"type": "Active", "status": "False", "reason": "ClusterQueueIsInactive"}
        queue["status"] = {"conditions": [inactive]}
        found = await sense.look(())
        assert found.notes == ("the LocalQueue research is not active: ClusterQueueIsInactive",)
        assert [n.accelerators_used for n in found.seen.nodes["h100"]] == [8]
    finally:
        await api.close()
        await server.stop()


def cluster_queue(
    name: str, nominal: dict[str, dict[str, float]], used: dict[str, dict[str, float]],
    cohort: str = "", **limits: float,
) -> dict[str, Any]:  # fmt: skip
    """As the API has one, of one resource group."""
    flavours = [
        {"name": flavour, "resources": [
            {"name": resource, "nominalQuota": str(amount), **{k: str(v) for k, v in
                                                              limits.items()}}
            for resource, amount in amounts.items()
        ]} for flavour, amounts in nominal.items()
    ]  # fmt: skip
    reserved = [
        {"name": flavour, "resources": [{"name": r, "total": str(a)} for r, a in amounts.items()]}
        for flavour, amounts in used.items()
    ]
    spec: dict[str, Any] = {"resourceGroups": [{"flavors": flavours}]}
    spec |= {"cohort": cohort} if cohort else {}
    return {"metadata": {"name": name}, "spec": spec, "status": {"flavorsReservation": reserved}}


CARDS = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("limits", "used", "peers", "left"),
    [
        ({}, 3, None, 5),  # no cohort: the nominal quota, and no more
        ({}, 9, None, 0),
        ({}, 3, (8, 2), 11),  # what the other leaves of its own
        ({"borrowingLimit": 4}, 3, (8, 2), 9),
        ({"borrowingLimit": 0}, 3, (8, 2), 5),
        ({}, 3, (8, 10), 3),  # the other has borrowed of ours
        ({}, 12, (8, 2), 2),  # we have borrowed already
    ],
)
def test_what_kueue_would_admit_is_what_is_left(
    limits: dict[str, float], used: int, peers: tuple[int, int] | None, left: float
) -> None:
    cohort = "all" if peers else ""
    mine = cluster_queue("mine", {"f": {CARDS: 8}}, {"f": {CARDS: used}}, cohort, **limits)
    others = [mine, cluster_queue("lone", {"f": {CARDS: 100}}, {}, "elsewhere")]
    if peers:
        others.append(cluster_queue("peer", {"f": {CARDS: peers[0]}}, {"f": {CARDS: peers[1]}},
                                    cohort))  # fmt: skip
    (flavour,) = flavours_left(mine, others, [])
    assert flavour.left == {CARDS: left}


def test_what_a_peer_does_not_lend_is_not_reckoned_with() -> None:
    mine = cluster_queue("mine", {"f": {CARDS: 8}}, {}, "all")
    peer = cluster_queue("peer", {"f": {CARDS: 8}}, {}, "all", lendingLimit=3)
    (flavour,) = flavours_left(mine, [mine, peer], [])
    assert flavour.left == {CARDS: 11}


def test_a_flavour_is_for_the_nodes_it_names() -> None:
    """A quota of one model of cards admits nothing to another."""
    queue = cluster_queue(
        "q", {"h100": {CARDS: 4, "cpu": 10}, "l4": {CARDS: 1}, "cpu": {"cpu": 3}}, {}
    )
    flavours = [
        {"metadata": {"name": "h100"}, "spec": {"nodeLabels": {"card": "h100"}}},
        {"metadata": {"name": "l4"}, "spec": {"nodeLabels": {"card": "l4"}}},
        {"metadata": {"name": "cpu"}, "spec": {"nodeLabels": {"card": "none"}}},
    ]
    found = flavours_left(queue, [queue], flavours)
    of_h100 = left_for([{"card": "h100", "zone": "a"}], found)
    assert (of_h100.cards, of_h100.cpus, of_h100.pods) == (4, 10, float("inf"))
    assert left_for([{"card": "l4"}], found).cards == 1
    assert left_for([{"card": "none"}], found).cards == 0, "cards no flavour has are not let go"
    assert left_for([{"card": "a100"}], found) == Left(0, 0, 0, 0)


def test_a_stopped_cluster_queue_lets_nothing_go() -> None:
    queue = cluster_queue("q", {}, {})
    assert held_back(queue) == ""
    queue["spec"]["stopPolicy"] = "HoldAndDrain"
    assert held_back(queue) == "the ClusterQueue q is stopped (HoldAndDrain)"


def test_devices_that_only_claims_can_have_are_said_not_to_count() -> None:
    """Guards against cards that are silently absent."""

    def offered(where: str, count: int) -> dict[str, Any]:
        devices = [{"name": f"gpu-{n}"} for n in range(count)]
        return {"spec": {"driver": "gpu.nvidia.com", "nodeName": where, "devices": devices}}

    slices = [offered("a", 8), offered("b", 4), offered("c", 4), {"spec": {"driver": "net"}}]
    (said,) = only_by_claim(slices, {"a"})
    assert said.startswith("8 devices of gpu.nvidia.com are offered by resource claims (DRA) only")
    assert only_by_claim(slices, {"a", "b", "c"}) == ()
