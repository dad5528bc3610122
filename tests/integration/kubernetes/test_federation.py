"""A cluster that speaks the Kubernetes API behind a real broker: what is submitted runs there once,
whatever dies, and nothing is left at the cluster whose end is on record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.chaos.federation import RealFederation, until
from tests.schedulers.kubernetes_server import NAMESPACE, TOKEN, KubernetesServer, ServerThread

WITHIN_S = 120.0
FINALIZER = "tradewind.dev/end-on-record"


class KubernetesFederation(RealFederation):
    """One cluster, of one node with eight cards."""

    server: KubernetesServer

    def join(self, cluster: str, slots: int) -> None:
        super().join(cluster, slots)
        state = self.agent_dir(cluster)
        (state / "api-token").write_text(TOKEN)
        settings = {
            "scheduler": "kubernetes",
            "kubernetes": {
                "url": self.server.url, "token_file": str(state / "api-token"),
                "namespace": NAMESPACE, "image": "jobs:1", "host_path": str(state), "poll": "1s",
            },
            "prices": [
                {"pool": "h100", "kind": "owned", "usd_per_accelerator_hour": 1,
                 "as_of": "2026-11-01T00:00:00Z", "source": "typed for a test"}
            ],
        }  # fmt: skip
        (state / "agent.yaml").write_text(yaml.safe_dump(settings))


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesFederation]:
    thread = ServerThread()
    made = KubernetesFederation(tmp_path_factory.mktemp("federation"))
    made.server = thread.server
    thread.start()
    try:
        made.start("kube")
        yield made
    finally:
        made.stop()
        thread.stop()
    assert not made.server.refused, "requests that no server would take"


def card_job(
    federation: RealFederation, seconds: float = 0.2, tail: str = "", **rest: Any
) -> dict[str, Any]:
    resources = {"accelerators": "H100:1", "cpus": 0.5, "memory": "100MiB"}
    work = federation.marking(seconds, tail)
    return {"resources": resources, "max_runtime": "5m", **work, **rest}


def outcome(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = job.get("job", job)["outcome"]
    return found


def test_the_cluster_shows_what_its_nodes_have(federation: KubernetesFederation) -> None:
    (shown,) = federation.clusters()
    assert shown["scheduler"] == "kubernetes" and shown["isolation"] == "shared-uid"
    (pool,) = shown["pools"]
    assert (pool["pool"], pool["accelerator"]) == ("h100", "H100"), pool


def test_jobs_and_arrays_end_right_and_ran_once_though_the_agent_is_killed(
    federation: KubernetesFederation,
) -> None:
    singles = federation.submit([card_job(federation) for _ in range(4)], "singles")
    (array,) = federation.submit([card_job(federation, 1, array="0-5%3")], "array")
    (bad,) = federation.submit([card_job(federation) | {"run": "exit 7"}], "bad")
    until(lambda: federation.marks()[f"start {singles[0]}/0"], WITHIN_S, "the first runs")
    federation.kill("kube")
    federation.start_agent("kube")
    done = federation.wait([*singles, array, bad], WITHIN_S)
    ends = {job: outcome(body) for job, body in done.items()}
    kinds = {job: end["kind"] for job, end in ends.items()}
    assert kinds.pop(bad) == "failed" and ends[bad]["exit_code"] == 7
    assert set(kinds.values()) == {"succeeded"}, kinds
    marks = federation.marks()
    assert all(marks[f"start {job}/0"] == 1 for job in singles)
    assert [marks[f"start {array}/{task}"] for task in range(6)] == [1] * 6
    ran = Counter(federation.server.cluster.ran)
    assert set(ran.values()) == {1} and len(ran) == 4 + 6 + 1, "by what the cluster started"


def test_a_gang_runs_in_the_image_it_names_though_the_agent_is_killed(
    federation: KubernetesFederation,
) -> None:
    gang = card_job(federation, 2, image="docker://registry.example/train:1")
    gang["resources"] = gang["resources"] | {"replicas": 3}
    (job,) = federation.submit([gang], "gang")
    until(lambda: federation.marks()[f"start {job}/0"] == 3, WITHIN_S, "all members run")
    federation.kill("kube")
    federation.start_agent("kube")
    assert outcome(federation.wait([job], WITHIN_S)[job])["kind"] == "succeeded"
    marks = federation.marks()
    assert marks[f"start {job}/0"] == marks[f"end {job}/0"] == 3
    name = f"{job}-1"
    pod = federation.server.cluster.store.jobs[name]["spec"]["template"]["spec"]
    assert (pod["containers"][0]["image"], pod["subdomain"]) == ("registry.example/train:1", name)


def test_a_cancel_ends_what_runs(federation: KubernetesFederation) -> None:
    (job,) = federation.submit([card_job(federation, 120)], "cancelled")
    until(lambda: federation.marks()[f"start {job}/0"], WITHIN_S, "it runs")
    federation.call("POST", f"/v1/jobs/{job}/cancel")
    assert outcome(federation.wait([job], WITHIN_S)[job])["kind"] == "cancelled"
    assert not federation.marks()[f"end {job}/0"]


def test_jobs_whose_end_is_on_record_are_let_go(federation: KubernetesFederation) -> None:
    (job,) = federation.submit([card_job(federation)], "let-go")
    federation.wait([job], WITHIN_S)

    def held() -> list[str]:
        jobs = list(federation.server.cluster.store.jobs.values())
        return [j["metadata"]["name"] for j in jobs if FINALIZER in j["metadata"]["finalizers"]]

    until(lambda: not held(), WITHIN_S, "no finalizer is left")


def test_tasks_on_nodes_of_their_own_are_as_many_as_nodes(
    federation: KubernetesFederation,
) -> None:
    federation.server.cluster.add_node("node-2")

    def both() -> bool:
        return bool(federation.clusters()[0]["pools"][0]["nodes"] == 2)

    until(both, WITHIN_S, "the second node is told of")
    spread = {"placement": {"spread": "node"}}
    (job,) = federation.submit([card_job(federation, 1, array="0-5", **spread)], "apart")
    store, most = federation.server.cluster.store, Counter[str]()

    def watched() -> bool:
        nonlocal most
        live = [p for p in list(store.pods.values()) if p["status"]["phase"] == "Running"]
        most |= Counter(p["spec"]["nodeName"] for p in live)
        return all(federation.marks()[f"end {job}/{task}"] for task in range(6))

    until(watched, WITHIN_S, "all tasks have run")
    assert outcome(federation.wait([job], WITHIN_S)[job])["kind"] == "succeeded"
    assert most == {"node-1": 1, "node-2": 1}
