"""A cluster without a volume that agent and pods share: what a job needs is brought to it, what it
printed, left and ended as is brought back, also over the death of the agent."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
import yaml

from federation.system import SystemClock
from federation.tls import pinned_context
from regional_agent.act.carry.server import CarryServer
from regional_agent.act.keeper.layout import AttemptDir
from regional_agent.act.schedulers.batch.attempt import create
from regional_agent.act.schedulers.port import LaunchOrder
from regional_agent.kubernetes.site import Carry
from tests.chaos.federation import free_port, until
from tests.integration.kubernetes.test_federation import (
    WITHIN_S,
    KubernetesFederation,
    card_job,
    outcome,
)
from tests.schedulers.kubernetes_pods import OWN_IMAGE, empty_directories_missing
from tests.schedulers.kubernetes_server import ServerThread


class CarriedFederation(KubernetesFederation):
    """Its agent has a disk of its own."""

    def join(self, cluster: str, slots: int) -> None:
        super().join(cluster, slots)
        path = self.agent_dir(cluster) / "agent.yaml"
        settings = yaml.safe_load(path.read_text())
        port = free_port()
        del settings["kubernetes"]["host_path"]
        settings["kubernetes"]["carry"] = {
            "image": OWN_IMAGE, "url": f"https://127.0.0.1:{port}", "listen": f"127.0.0.1:{port}",
        }  # fmt: skip
        path.write_text(yaml.safe_dump(settings))

    def put_blob(self, data: bytes) -> str:
        sha256 = hashlib.sha256(data).hexdigest()
        request = urllib.request.Request(f"{self.url}/v1/blobs/{sha256}", data, method="PUT")
        request.add_header("Authorization", f"Bearer {self.token}")
        context = ssl._create_unverified_context()  # noqa: S323  a test on loopback
        with urllib.request.urlopen(request, timeout=20, context=context) as answer:
            assert answer.status < 300
        return sha256


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CarriedFederation]:
    if why := empty_directories_missing():
        pytest.skip(why)
    thread = ServerThread()
    made = CarriedFederation(tmp_path_factory.mktemp("carried"))
    made.server = thread.server
    thread.start()
    try:
        made.start("kube")
        yield made
    finally:
        made.stop()
        thread.stop()
    assert not made.server.refused, "requests that no server would take"


def test_a_job_finds_its_files_and_brings_its_outputs_though_the_agent_dies_meanwhile(
    federation: CarriedFederation,
) -> None:
    sha256 = federation.put_blob(b"the question\n")
    job = card_job(federation, 3, "mkdir -p out; { cat in/q; echo answer; } > out/a; echo printed")
    job |= {"files": [{"path": "in/q", "sha256": sha256, "bytes": 13}], "outputs": ["out/*"]}
    (uid,) = federation.submit([job], "files")
    until(lambda: federation.marks()[f"start {uid}/0"], WITHIN_S, "it runs")
    federation.kill("kube")
    until(lambda: federation.marks()[f"end {uid}/0"], WITHIN_S, "it ends while the agent is away")
    federation.start_agent("kube")
    assert outcome(federation.wait([uid], WITHIN_S)[uid])["kind"] == "succeeded"
    (output,) = federation.call("GET", f"/v1/jobs/{uid}/outputs")["outputs"]
    assert output["path"] == "out/a"
    assert output["sha256"] == hashlib.sha256(b"the question\nanswer\n").hexdigest()
    assert federation.marks()[f"start {uid}/0"] == 1
    pods = [p for p in federation.server.cluster.store.pods_made
            if p["metadata"]["labels"]["tradewind.dev/attempt"] == f"{uid}-1"]  # fmt: skip
    (volume,) = pods[0]["spec"]["volumes"]
    assert "emptyDir" in volume, "nothing is shared"


def test_arrays_gangs_and_failures_end_as_they_do_on_a_shared_disk(
    federation: CarriedFederation,
) -> None:
    gang = card_job(federation, 1)
    gang["resources"] = gang["resources"] | {"replicas": 3}
    array = card_job(federation, 0.5, 'echo "$TRADEWIND_TASK" > "r.$TRADEWIND_TASK"')
    (meets,) = federation.submit([gang], "gang")
    (many,) = federation.submit([array | {"array": "0-4%3", "outputs": ["r.*"]}], "array")
    (bad,) = federation.submit([card_job(federation) | {"run": "exit 7"}], "bad")
    ends = {job: outcome(body) for job, body in federation.wait([meets, many, bad], 120).items()}
    assert ends[meets]["kind"] == ends[many]["kind"] == "succeeded", ends
    assert (ends[bad]["kind"], ends[bad]["exit_code"]) == ("failed", 7)
    found = federation.call("GET", f"/v1/jobs/{many}/outputs")["outputs"]
    assert sorted(each["path"] for each in found) == [f"r.{task}" for task in range(5)]
    assert federation.marks()[f"start {meets}/0"] == 3
    ran = Counter(federation.server.cluster.ran)
    assert set(ran.values()) == {1}, "by what the cluster started"


# The agent's door -----------------------------------------------------------------------------


async def test_a_token_opens_its_own_attempt_and_adds_to_it_only(tmp_path: Path) -> None:
    """A job's container has none; a pod's opens neither keys and journal nor another attempt."""
    port = free_port()
    carry = Carry(OWN_IMAGE, f"https://127.0.0.1:{port}", f"127.0.0.1:{port}")
    server = CarryServer(tmp_path, carry, SystemClock())
    await server.start()
    for uid in ("a-1", "b-1"):
        create(AttemptDir(tmp_path, uid), LaunchOrder(uid, "j", "t", run="true"), 1)
    mine = {"Authorization": f"Bearer {server.token('a-1')}"}
    try:
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=pinned_context(server.ca_pem))
        ) as session:

            async def status(verb: str, path: str, data: bytes = b"", **head: str) -> int:
                url = f"{carry.url}/v1/attempts/{path}"
                async with session.request(verb, url, data=data, headers=head) as answer:
                    return answer.status

            assert await status("GET", "a-1/scripts", **mine) == 200
            assert await status("GET", "b-1/scripts", **mine) == 403
            assert await status("GET", "a-1/scripts") == 403
            assert await status("GET", "c-1/scripts", **mine) == 403, "nor who is there"
            gone = {"Authorization": f"Bearer {server.token('c-1')}"}
            assert await status("GET", "c-1/scripts", **gone) == 410
            for path in ("marks/..%2Forder.json", "marks/journal", "logs/..%2Fjournal?offset=0"):
                assert await status("PUT", f"a-1/{path}", b"x", **mine) == 400, path
            assert await status("PUT", "a-1/marks/0", b"exit 0\n.\n", **mine) == 204
            assert await status("PUT", "a-1/marks/0", b"exit 9\n.\n", **mine) == 204
            assert (AttemptDir(tmp_path, "a-1").root / "marks/0").read_text() == "exit 0\n.\n"
            assert await status("PUT", "a-1/outputs", b"no archive", **mine) == 400
            again = CarryServer(tmp_path, carry, SystemClock())
            await server.close()
            await again.start()
            assert await status("GET", "a-1/scripts", **mine) == 200, "after a restart too"
            await again.close()
    finally:
        await server.close()
        await asyncio.sleep(0)
