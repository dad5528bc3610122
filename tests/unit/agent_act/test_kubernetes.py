"""The adapter to Kubernetes: how ends are told apart, names, errors, Jobs that are let go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from federation.refusals import Refusal
from federation.runs import Runs
from regional_agent.act.keeper.layout import AttemptDir
from regional_agent.act.schedulers.batch.attempt import Attempt, create
from regional_agent.act.schedulers.batch.system import Live, Submission
from regional_agent.act.schedulers.kubernetes import Kubernetes
from regional_agent.act.schedulers.kubernetes_rows import accounts, rows
from regional_agent.act.schedulers.kubernetes_wanted import names_of
from regional_agent.act.schedulers.port import LaunchOrder, Outcome, OutcomeKind
from regional_agent.kubernetes import api as kube
from regional_agent.kubernetes.site import KubernetesSite
from regional_agent.kubernetes.told import jobs_told
from regional_agent.session.ledger import Place
from regional_agent.settings import SettingsError, load_settings
from tests.schedulers.kubernetes_server import NAMESPACE, TOKEN, Cluster, KubernetesServer

HOSTS = Path("/host")


def job(indices: str = "", **status: Any) -> dict[str, Any]:
    notes = {kube.TAG: "tradewind:a:0", kube.DIRECTORY: "/x"}
    notes |= {kube.INDICES: indices} if indices else {}
    return {"metadata": {"name": "a", "annotations": notes}, "spec": {}, "status": status}


def pod(phase: str, index: int | None = None, **status: Any) -> dict[str, Any]:
    notes = {} if index is None else {kube.INDEX: str(index)}
    metadata = {"name": f"a-{index}", "labels": {kube.JOB_NAME: "a"}, "annotations": notes}
    return {"metadata": metadata, "spec": {"nodeName": "n"}, "status": {"phase": phase, **status}}


def ended(code: int, reason: str = "Error") -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": reason,
                            "startedAt": "2026-11-30T10:00:00Z",
                            "finishedAt": "2026-11-30T10:00:02Z"}}  # fmt: skip
    return {"containerStatuses": [{"state": state}]}


def disrupted(reason: str) -> dict[str, Any]:
    return {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": reason}]}


K = OutcomeKind


@pytest.mark.parametrize(
    ("said", "kind", "code"),
    [
        (ended(7), K.FAILED, 7),
        (ended(139), K.SIGNALLED, 0),
        (ended(137, "OOMKilled"), K.OUT_OF_MEMORY, 0),
        (ended(143) | {"reason": "DeadlineExceeded"}, K.TIMED_OUT, 0),
        (ended(137) | {"reason": "Evicted"}, K.PREEMPTED, 0),
        (ended(143) | disrupted("PreemptionByScheduler"), K.PREEMPTED, 0),
        (ended(143) | disrupted("EvictionByEvictionAPI"), K.PREEMPTED, 0),
        (disrupted("DeletionByPodGC"), K.LOST, 0),
        ({"reason": "NodeLost"}, K.LOST, 0),
        ({}, K.LOST, 0),
    ],
)
def test_ends_are_told_apart(said: dict[str, Any], kind: OutcomeKind, code: int) -> None:
    (told,) = jobs_told([job()], [pod("Failed", **said)])
    (account,) = accounts(told)
    assert account.outcome is not None
    assert (account.outcome.kind, account.outcome.exit_code) == (kind, code)


def test_times_are_those_of_the_container() -> None:
    (told,) = jobs_told([job()], [pod("Succeeded", **ended(0, "Completed"))])
    (account,) = accounts(told)
    assert account.ended_ms - account.started_ms == 2000
    assert account.outcome == Outcome(K.SUCCEEDED)


def test_a_job_or_pod_that_somebody_deleted_was_called_off() -> None:
    deleted = job()
    deleted["metadata"]["deletionTimestamp"] = "2026-11-30T10:00:00Z"
    for pods in ([], [pod("Failed", **ended(143))]):
        (account,) = accounts(jobs_told([deleted], pods)[0])
        assert account.outcome == Outcome(K.CANCELLED) and "deleted" in account.text
    gone = pod("Failed", **ended(143))
    gone["metadata"]["deletionTimestamp"] = "2026-11-30T10:00:00Z"
    (account,) = accounts(jobs_told([job()], [gone])[0])
    assert account.outcome == Outcome(K.CANCELLED)


def test_a_pod_that_is_gone_from_a_failed_job_is_lost_and_one_still_there_has_not_ended() -> None:
    failed = job(conditions=[{"type": "Failed", "status": "True", "reason": "Backoff"}])
    (account,) = accounts(jobs_told([failed], [])[0])
    assert account.outcome == Outcome(K.LOST)
    for phase in ("Pending", "Running", "Unknown", "Hovering"):
        (account,) = accounts(jobs_told([job()], [pod(phase)])[0])
        assert account.outcome is None


def test_a_pod_with_a_node_may_run_already_whatever_its_phase() -> None:
    """Guards against taking what has just begun for something the site put back in its queue."""
    bound, free = pod("Pending"), pod("Pending")
    del free["spec"]["nodeName"]
    for each, live in ((bound, Live.UNKNOWN), (free, Live.PENDING), (pod("Running"), Live.RUNNING)):
        (row,) = rows(jobs_told([job()], [each])[0])
        assert row.live is live


def test_elements_of_an_array_are_counted_from_its_own_first_index() -> None:
    array = job("5-9", completedIndexes="0-1", failedIndexes="2")
    (told,) = jobs_told([array], [pod("Running", 3)])
    found = {row.live: row.indices for row in rows(told)}
    assert found == {Live.RUNNING: Runs(((8, 8),)), Live.PENDING: Runs(((9, 9),))}
    kinds = [a.outcome.kind if a.outcome else None for a in accounts(told)]
    assert kinds == [K.SUCCEEDED, K.SUCCEEDED, K.LOST, None, None]


def test_reasons_to_wait_are_the_words_of_the_cluster() -> None:
    why = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
           "message": "0/3 nodes are available"}  # fmt: skip
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    suspended = job()
    suspended["spec"]["suspend"] = True
    for one, pods, text in (
        (job(), [pod("Pending", conditions=[why])], "Unschedulable: 0/3 nodes are available"),
        (job(), [pod("Pending", containerStatuses=[{"state": waiting}])], "ImagePullBackOff: no"),
        (suspended, [], "suspended"),
    ):
        (row,) = rows(jobs_told([one], pods)[0])
        assert text in row.text


def test_names_are_labels_of_the_dns() -> None:
    assert list(names_of("a-1.2")) == ["a-1-p2", "a-1-p2-tw2", "a-1-p2-tw3"]
    long, other = "x" * 62 + "1", "x" * 62 + "2"
    assert all(len(name) <= 56 for name in names_of(long))
    assert set(names_of(long)).isdisjoint(names_of(other))


# Against the contract server ----------------------------------------------------------------


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[KubernetesServer]:
    made = KubernetesServer(Cluster())
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def system(server: KubernetesServer, tmp_path: Path) -> AsyncIterator[Kubernetes]:
    (tmp_path / "token").write_text(TOKEN)
    site = KubernetesSite(server.url, NAMESPACE, "jobs:1", tmp_path, host_path=str(tmp_path),
                          token_file=str(tmp_path / "token"))  # fmt: skip
    made = Kubernetes(kube.KubernetesApi(site))
    yield made
    await made.api.close()


def submission(state: Path, uid: str, script: str) -> tuple[Attempt, Submission]:
    order = LaunchOrder(uid, "job", "team", run=script, cpus_milli=1000)
    attempt = create(AttemptDir(state, uid), order, 1)
    path = attempt.place.root / "job-0.sh"
    path.write_text(script)
    tag = f"tradewind:{uid}:0"
    return attempt, Submission(uid, tag, order, path, attempt.place.work, path)


async def until_over(system: Kubernetes, name: str) -> None:
    for _ in range(200):
        (account,) = await system.books([name])
        if account.outcome is not None:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{name} does not end")


async def test_a_finished_job_is_never_lost_before_its_end_is_on_record(
    server: KubernetesServer, system: Kubernetes, tmp_path: Path
) -> None:
    """A worker's clean-up that deletes a finished job before its end was read made it run twice
    elsewhere: here it stays, whoever deletes it."""
    attempt, wanted = submission(tmp_path, "a-1", "exit 3")
    assert await system.submit(wanted) == "a-1"
    await until_over(system, "a-1")
    server.cluster.delete_job(server.cluster.store.jobs["a-1"], "Background")
    await asyncio.sleep(0.3)
    await system.release()
    assert "a-1" in server.cluster.store.jobs, "its end is not on record"
    attempt.outcome = Outcome(K.FAILED, exit_code=3)
    attempt.wrote_end()
    await system.release()
    await asyncio.sleep(0.3)
    assert "a-1" not in server.cluster.store.jobs


async def test_what_is_let_go_undeleted_is_left_to_the_clusters_own_clean_up(
    server: KubernetesServer, system: Kubernetes, tmp_path: Path
) -> None:
    attempt, wanted = submission(tmp_path, "a-1", "exit 0")
    await system.submit(wanted)
    await until_over(system, "a-1")
    attempt.outcome = Outcome(K.SUCCEEDED)
    attempt.wrote_end()
    job = server.cluster.store.jobs["a-1"]
    for _ in range(100):  # the controller takes note of the end after the kubelet
        await system.release()
        assert "deletionTimestamp" not in job["metadata"]
        if not job["metadata"]["finalizers"]:
            break
        await asyncio.sleep(0.05)
    assert not job["metadata"]["finalizers"] and job["spec"]["ttlSecondsAfterFinished"] == 600


async def test_what_is_left_of_an_attempt_that_was_forgotten_is_ended(
    server: KubernetesServer, system: Kubernetes, tmp_path: Path
) -> None:
    attempt, wanted = submission(tmp_path, "a-1", "sleep 60")
    await system.submit(wanted)
    await system.release()
    assert "deletionTimestamp" not in server.cluster.store.jobs["a-1"]["metadata"]
    attempt.place.root.rename(tmp_path / "gone")
    for _ in range(600):
        await system.release()  # with every look: what has just failed is its controller's for now
        left = server.cluster.store.jobs.get("a-1")
        if left is None or kube.FINALIZER not in left["metadata"]["finalizers"]:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("its Job is still held")


async def test_the_same_submission_again_is_the_same_job_and_a_namesake_is_left_alone(
    server: KubernetesServer, system: Kubernetes, tmp_path: Path
) -> None:
    """A job found by its name alone may be somebody else's."""
    _, wanted = submission(tmp_path, "a-1", "sleep 60")
    assert [await system.submit(wanted) for _ in range(2)] == ["a-1", "a-1"]
    server.cluster.store.jobs["a-1"]["metadata"]["annotations"] = {}
    assert await system.submit(wanted) == "a-1-tw2"
    assert await system.look("a-1", wanted.tag, tmp_path) == "a-1-tw2"
    await system.remove("a-1-tw2")
    assert "deletionTimestamp" not in server.cluster.store.jobs["a-1"]["metadata"]


async def test_a_job_of_the_same_attempt_of_another_agent_is_left_alone(
    server: KubernetesServer, system: Kubernetes, tmp_path: Path
) -> None:
    """Guards against following what this agent never sees in its lists."""
    _, wanted = submission(tmp_path, "a-1", "sleep 60")
    assert await system.submit(wanted) == "a-1"
    server.cluster.store.jobs["a-1"]["metadata"]["labels"][kube.LABEL_SITE] = "another"
    assert await system.look("a-1", wanted.tag, tmp_path) is None
    assert await system.submit(wanted) == "a-1-tw2"


async def test_a_job_the_server_does_not_take_is_refused_in_its_words(
    server: KubernetesServer, system: Kubernetes, tmp_path: Path
) -> None:
    _, wanted = submission(tmp_path, "a-1", "exit 0")
    bad = Submission("-wrong", wanted.tag, wanted.order, wanted.script, wanted.work, wanted.log)
    refused = await system.submit(bad)
    assert isinstance(refused, Refusal) and "DNS label" in refused.text
    server.refused.clear()


async def test_an_array_is_widened_and_never_narrowed(
    server: KubernetesServer, system: Kubernetes, tmp_path: Path
) -> None:
    _, one = submission(tmp_path, "a-1", "sleep 60")
    array = Submission("a-1", one.tag, one.order, one.script, one.work, one.log,
                       Runs(((0, 5),)), 2)  # fmt: skip
    await system.submit(array)
    spec = server.cluster.store.jobs["a-1"]["spec"]
    for width, expected in ((4, 4), (1, 4), (5, 5)):
        await system.widen("a-1", width)
        assert spec["parallelism"] == expected


async def test_a_job_goes_to_nodes_with_the_cards_it_was_planned_for(
    server: KubernetesServer, system: Kubernetes, tmp_path: Path
) -> None:
    for name, product in (("node-2", "NVIDIA-L4"), ("node-3", "NVIDIA-L4-SHARED")):
        server.cluster.add_node(name, product)
    _, one = submission(tmp_path, "a-1", "exit 0")
    places = (Place("l4", 0, (0, 1)),)
    order = replace(one.order, accelerator="L4", places=places)
    await system.submit(replace(one, order=order))
    await until_over(system, "a-1")
    (pod,) = server.cluster.store.pods.values()
    assert pod["spec"]["nodeName"] == "node-2"
    unknown = replace(one, name="a-2", order=replace(order, accelerator="A100-80GB"))
    refused = await system.submit(unknown)
    assert isinstance(refused, Refusal) and "no node of the cluster has A100-80GB" in refused.text


async def test_a_job_without_cards_is_kept_off_nodes_that_have_some(
    server: KubernetesServer, system: Kubernetes, tmp_path: Path
) -> None:
    _, one = submission(tmp_path, "a-1", "exit 0")
    await system.submit(replace(one, order=replace(one.order, accelerator="CPU")))
    await asyncio.sleep(0.3)
    (row,) = await system.queue()
    assert row.live is Live.PENDING and "Unschedulable" in row.text


async def test_an_image_is_fetched_ahead_by_the_nodes_that_lack_it_and_by_no_other(
    server: KubernetesServer, system: Kubernetes
) -> None:
    """A job that waits finds its image where it will run; nothing of that stays."""
    await system.traits()
    for name in ("node-2", "node-3"):
        server.cluster.add_node(name)
    nodes = server.cluster.store.nodes
    nodes["node-3"]["spec"]["unschedulable"] = True
    nodes["node-1"]["status"]["images"] = [{"names": ["registry.example/train:1"]}]
    for _ in range(2):
        assert await system.prefetch("docker://registry.example/train:1") == ""
    (made,) = server.cluster.store.jobs.values()
    for _ in range(200):
        if nodes["node-2"]["status"].get("images"):
            break
        await asyncio.sleep(0.05)
    assert nodes["node-2"]["status"]["images"] == [{"names": ["registry.example/train:1"]}]
    assert "images" not in nodes["node-3"]["status"]
    assert made["spec"]["ttlSecondsAfterFinished"] == 30 and made["spec"]["completions"] == 1
    assert await system.queue() == (), "it is no job of anybody"
    assert await system.prefetch("docker://registry.example/train:1") == ""
    assert len(server.cluster.ran) == 1, "nobody is asked for what is there"


@pytest.mark.parametrize(
    ("status", "error"),
    [(409, kube.Conflict), (410, kube.Expired), (422, kube.Invalid), (400, kube.Invalid),
     (403, kube.KubernetesRefused), (500, kube.KubernetesSilent), (503, kube.KubernetesSilent),
     (429, kube.KubernetesSilent), (200, kube.KubernetesSilent)],
)  # fmt: skip
async def test_what_went_wrong_is_told_apart(
    status: int, error: type[Exception], tmp_path: Path
) -> None:
    async def answer(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == f"Bearer {(tmp_path / 'token').read_text()}"
        return web.Response(status=status, text='{"message": "so it is"}' if status > 200 else "x")

    app = web.Application()
    app.router.add_route("*", "/{any:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = "http://{}:{}".format(*runner.addresses[0][:2])
    site = KubernetesSite(url, "ns", "i", HOSTS, "c", token_file=str(tmp_path / "token"))
    asked = kube.KubernetesApi(site)
    try:
        for token in ("one", "two"):  # the file is read anew
            (tmp_path / "token").write_text(token)
            with pytest.raises(error, match="so it is" if status > 200 else "no JSON"):
                await asked.create_job({})
    finally:
        await asked.close()
        await runner.cleanup()


# Settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("{volume_claim: c, url: 'https://a', namespace: n}", "kubernetes.image"),
        ("{image: i, url: 'https://a', namespace: n}", "either volume_claim or host_path"),
        ("{image: i, volume_claim: c, namespace: n}", "kubernetes.url"),
        ("{image: i, volume_claim: c, url: 'https://a'}", "kubernetes.namespace"),
        ("{image: i, volume_claim: c, mount: /else, url: 'https://a', namespace: n}",
         "kubernetes.mount"),
        ("{image: i, volum_claim: c}", "did you mean volume_claim"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_used_say_which_and_why(
    section: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    (tmp_path / "agent.yaml").write_text(f"scheduler: kubernetes\nkubernetes: {section}\n")
    with pytest.raises(SettingsError, match=said):
        load_settings(tmp_path)


def test_in_a_pod_the_service_account_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (tmp_path / "agent.yaml").write_text(
        "scheduler: kubernetes\nkubernetes: {image: i, volume_claim: c, namespace: n}\n"
    )
    site = load_settings(tmp_path).kubernetes
    assert site is not None and site.url == "https://10.0.0.1:443" and site.mount == tmp_path
    assert site.token_file.endswith("serviceaccount/token") and site.ca_file.endswith("ca.crt")


def test_a_pod_that_went_unseen_between_two_lists_is_no_second_turn() -> None:
    """Guards that a task whose pod is gone, and whose Job has not said so yet, is not taken for
    one that was put back into the queue."""
    for active, live in ((1, Live.UNKNOWN), (0, Live.PENDING)):
        (told,) = jobs_told([job(active=active)], [])
        (row,) = rows(told)
        assert row.live is live


def test_a_jobset_whose_pods_went_is_no_second_turn_unless_it_was_suspended() -> None:
    counted = {"replicatedJobsStatus": [{"name": "g", "active": 1}]}
    for status, suspended, live in (
        (counted, False, Live.UNKNOWN), ({}, False, Live.PENDING), (counted, True, Live.PENDING),
    ):  # fmt: skip
        body = job(**status) | {"kind": "JobSet"}
        body["metadata"]["annotations"][kube.REPLICAS] = "3"
        body["spec"]["suspend"] = suspended
        (told,) = jobs_told([body], [])
        (row,) = rows(told)
        assert (row.local_id, row.live) == ("jobset/a", live)
