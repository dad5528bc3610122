"""A real Ray cluster behind a real broker: what is submitted runs there once, whatever dies."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chaos.federation import RealFederation, until
from tests.schedulers.ray_head import RayHead, missing

WITHIN_S = 180.0


class RayFederation(RealFederation):
    """One cluster, of one node with eight cards."""

    head: RayHead

    def join(self, cluster: str, slots: int) -> None:
        super().join(cluster, slots)
        settings = {
            "scheduler": "ray",
            "ray": {"url": self.head.url, "poll": "1s"},
            "prices": [
                {"pool": "h100", "kind": "owned", "usd_per_accelerator_hour": 1,
                 "as_of": "2026-11-01T00:00:00Z", "source": "typed for a test"}
            ],
        }  # fmt: skip
        (self.agent_dir(cluster) / "agent.yaml").write_text(yaml.safe_dump(settings))


@pytest.fixture(scope="module")
def federation() -> Iterator[RayFederation]:
    if why := missing():
        pytest.skip(why)
    scratch = Path(tempfile.mkdtemp(prefix="twray"))  # short: sockets lie deep below it
    head = RayHead(scratch)
    made = RayFederation(scratch / "federation")
    made.directory.mkdir(mode=0o700)
    made.head = head
    try:
        head.start()
        made.start("rays")
        yield made
    finally:
        made.stop()
        head.stop()
        shutil.rmtree(scratch, ignore_errors=True)


def card_job(federation: RayFederation, seconds: float = 0.2, **rest: Any) -> dict[str, Any]:
    usual = {"accelerators": "H100:1", "cpus": 0.5, "memory": "100MiB"}
    resources = usual | rest.pop("resources", {})
    return {"resources": resources, "max_runtime": "5m", **federation.marking(seconds), **rest}


def outcome(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = job.get("job", job)["outcome"]
    return found


def test_the_cluster_shows_what_ray_has(federation: RayFederation) -> None:
    (shown,) = federation.clusters()
    assert shown["scheduler"] == "ray" and shown["isolation"] == "shared-uid"
    (pool,) = shown["pools"]
    assert (pool["pool"], pool["accelerator"]) == ("h100", "H100"), pool


def test_jobs_gangs_and_arrays_end_right_and_ran_once_though_the_agent_is_killed(
    federation: RayFederation,
) -> None:
    singles = federation.submit([card_job(federation) for _ in range(4)], "singles")
    gang_size = {"replicas": 3, "accelerators": "H100:2"}
    (gang,) = federation.submit([card_job(federation, 2, resources=gang_size)], "gang")
    (array,) = federation.submit([card_job(federation, 1, array="0-5%3")], "array")
    (bad,) = federation.submit([card_job(federation) | {"run": "exit 7"}], "bad")
    until(lambda: federation.marks()[f"start {singles[0]}/0"], WITHIN_S, "the first runs")
    federation.kill("rays")
    federation.start_agent("rays")
    done = federation.wait([*singles, gang, array, bad], WITHIN_S)
    ends = {job: outcome(body) for job, body in done.items()}
    kinds = {job: end["kind"] for job, end in ends.items()}
    assert kinds.pop(bad) == "failed" and ends[bad]["exit_code"] == 7
    assert set(kinds.values()) == {"succeeded"}, kinds
    marks = federation.marks()
    assert all(marks[f"start {job}/0"] == 1 for job in singles)
    assert marks[f"start {gang}/0"] == 3  # one line a member
    assert [marks[f"start {array}/{task}"] for task in range(6)] == [1] * 6


def test_a_cancel_ends_what_runs(federation: RayFederation) -> None:
    (job,) = federation.submit([card_job(federation, 120)], "cancelled")
    until(lambda: federation.marks()[f"start {job}/0"], WITHIN_S, "it runs")
    federation.call("POST", f"/v1/jobs/{job}/cancel")
    assert outcome(federation.wait([job], WITHIN_S)[job])["kind"] == "cancelled"
    assert not federation.marks()[f"end {job}/0"]
