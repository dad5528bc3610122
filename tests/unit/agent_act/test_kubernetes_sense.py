"""What a Kubernetes cluster says, as a site: nodes that count, whose cards, who holds what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regional_agent.kubernetes.api import JOB_NAME, LABEL_ATTEMPT, LABEL_SITE
from regional_agent.kubernetes.site import KubernetesSite
from regional_agent.sense.kubernetes import KubernetesLook, put_together, quantity, requested

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
    assert quantity(said) == amount
