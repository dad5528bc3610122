"""Three real Slurm clusters behind a real broker: what is submitted runs there once, whatever dies.

The proof of what ran is Slurm's own accounting.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.chaos.federation import RealFederation, until
from tests.schedulers.slurm_cluster import SlurmSite, missing

CLUSTERS = ("alpha", "beta", "gamma")
WITHIN_S = 90.0


class SlurmFederation(RealFederation):
    """Every cluster is a Slurm site of two nodes with eight cards each."""

    sites: SlurmSite

    def join(self, cluster: str, slots: int) -> None:
        super().join(cluster, slots)
        settings = {
            "scheduler": "slurm",
            "slurm": {"conf": str(self.sites.clusters[cluster].conf), "poll": "1s"},
            "prices": [
                {"pool": "main-h100", "kind": "owned", "usd_per_accelerator_hour": 1,
                 "as_of": "2026-11-01T00:00:00Z", "source": "typed for a test"}
            ],
        }  # fmt: skip
        (self.agent_dir(cluster) / "agent.yaml").write_text(yaml.safe_dump(settings))

    def agent(self, cluster: str, *words: str) -> str:
        """A command of the site's people."""
        state = str(self.agent_dir(cluster))
        argv = [self._script("tradewind-agent"), *words, "--state-dir", state]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def accounts(self, cluster: str) -> list[dict[str, str]]:
        """Slurm's own books: one entry a job or element."""
        fields = "JobID,JobName,State,AllocTRES,NNodes"
        out = self.sites.clusters[cluster].run("sacct", "-a", "-X", "-n", "-P", "-o", fields)
        rows = [line.split("|") for line in out.splitlines()]
        return [dict(zip(fields.split(","), row, strict=True)) for row in rows]

    def booked(self, job: str) -> dict[str, str]:
        """The one entry of a job that was handed over on its own; books hear of it a moment
        later."""
        found: list[dict[str, str]] = []

        def there() -> bool:
            rows = [row for cluster in CLUSTERS for row in self.accounts(cluster)]
            found[:] = [row for row in rows if row["JobName"].startswith(job)]
            return bool(found) and all(row["State"] == "COMPLETED" for row in found)

        until(there, 30, f"{job} in the books")
        (row,) = found
        return row

    def ran(self) -> Counter[str]:
        """How many jobs of Slurm each attempt ever was, over all clusters."""
        copies = (self.sites.clusters[cluster].copies() for cluster in CLUSTERS)
        return sum(copies, Counter[str]())


@pytest.fixture(scope="module")
def federation() -> Iterator[SlurmFederation]:
    if why := missing():
        pytest.skip(f"Slurm {why}")
    sites = SlurmSite(CLUSTERS, nodes=2).start()
    directory = sites.scratch / "federation"  # where the nodes see it, too
    directory.mkdir(mode=0o700)
    made = SlurmFederation(directory)
    made.sites = sites
    try:
        made.start(*CLUSTERS)
        yield made
    finally:
        made.stop()
        sites.stop()


def card_job(federation: SlurmFederation, seconds: float = 0.2, **rest: Any) -> dict[str, Any]:
    usual = {"accelerators": "H100:1", "cpus": 1, "memory": "100MiB"}
    resources = usual | rest.pop("resources", {})
    return {"resources": resources, "max_runtime": "5m", **federation.marking(seconds), **rest}


def outcome(job: Any) -> str:
    return str(job["job"]["outcome"]["kind"] if "job" in job else job["outcome"]["kind"])


def test_clusters_show_what_slurm_has(federation: SlurmFederation) -> None:
    shown = {c["name"]: c for c in federation.clusters()}
    for name in CLUSTERS:
        assert shown[name]["scheduler"] == "slurm"
        (pool,) = shown[name]["pools"]
        assert (pool["pool"], pool["accelerator"]) == ("main-h100", "H100"), pool


def test_jobs_gangs_and_arrays_end_right_and_ran_once(federation: SlurmFederation) -> None:
    singles = federation.submit([card_job(federation) for _ in range(6)], "singles")
    (gang,) = federation.submit(
        [card_job(federation, resources={"replicas": 4, "accelerators": "H100:4"})], "gang"
    )
    close = {"replicas": 2, "accelerators": "H100:1", "cpus": 2, "topology": "node"}
    (near,) = federation.submit([card_job(federation, resources=close)], "near")
    (array,) = federation.submit([card_job(federation, array="0-9%4")], "array")
    done = federation.wait([*singles, gang, near, array], WITHIN_S)
    assert {outcome(job) for job in done.values()} == {"succeeded"}, done
    marks = federation.marks()
    assert all(marks[f"start {job}/0"] == 1 for job in singles)
    assert marks[f"start {gang}/0"] == 4  # one line a member
    assert [marks[f"start {array}/{task}"] for task in range(10)] == [1] * 10
    of_gang, of_near = federation.booked(gang), federation.booked(near)
    assert of_gang["NNodes"] == "2" and "gres/gpu=16" in of_gang["AllocTRES"]
    assert of_near["NNodes"] == "1" and "gres/gpu=2" in of_near["AllocTRES"]


def test_a_cancel_reaches_the_queue_of_the_site(federation: SlurmFederation) -> None:
    (job,) = federation.submit([card_job(federation, 120)], "cancelled")
    until(lambda: federation.marks()[f"start {job}/0"], 60, "it runs")
    federation.call("POST", f"/v1/jobs/{job}/cancel")
    assert outcome(federation.wait([job], 60)[job]) == "cancelled"
    assert not federation.marks()[f"end {job}/0"]


def test_agents_killed_in_the_middle_run_nothing_twice(federation: SlurmFederation) -> None:
    """Guards exactly-once hand-off: kill -9 while jobs are handed over and run."""
    jobs = federation.submit([card_job(federation, 1.0) for _ in range(24)], "killed")
    arrays = federation.submit([card_job(federation, 0.5, array="0-7%4")] * 3, "killed-arrays")
    for cluster in CLUSTERS:
        federation.kill(cluster)
        federation.start_agent(cluster)
    done = federation.wait([*jobs, *arrays], WITHIN_S)
    assert {outcome(job) for job in done.values()} == {"succeeded"}
    marks = federation.marks()
    assert all(marks[f"start {job}/0"] == 1 for job in jobs)
    for array in arrays:
        assert [marks[f"start {array}/{task}"] for task in range(8)] == [1] * 8

    def booked() -> bool:
        return all(any(name.startswith(job) for name in federation.ran()) for job in jobs)

    until(booked, 60, "the books have heard of every job")
    ran = federation.ran()
    for job in jobs:
        names = [name for name in ran if name.startswith(job)]
        assert len(names) == 1 and ran[names[0]] == 1, {name: ran[name] for name in names}


def test_the_sites_people_see_and_end_jobs(federation: SlurmFederation) -> None:
    (job,) = federation.submit(
        [card_job(federation, 120, placement={"clusters": ["beta"]})], "killed-at-the-site"
    )
    until(lambda: federation.marks()[f"start {job}/0"], 60, "it runs")

    def row() -> dict[str, Any]:
        rows = json.loads(federation.agent("beta", "jobs", "--json"))
        (found,) = [row for row in rows if row["job"] == job]
        return found

    until(lambda: row()["phase"] == "running", 60, "its agent has seen it run")
    federation.agent("beta", "kill", row()["uid"], "--grace-s", "1")
    assert outcome(federation.wait([job], 60)[job]) == "cancelled"


def test_local_jobs_are_local_load(federation: SlurmFederation) -> None:
    gamma = federation.sites.clusters["gamma"]
    local = gamma.run(
        "sbatch", "--parsable", "--nodes=2", "--gres=gpu:h100:8", "--output=/dev/null",
        "--time=5", "--chdir=/tmp", "--wrap=sleep 300",
    )  # fmt: skip

    def free() -> int:
        (cluster,) = [c for c in federation.clusters() if c["name"] == "gamma"]
        return int(cluster["pools"][0]["free"])

    until(lambda: free() == 0, 60, "no card of gamma is free")
    gamma.run("scancel", local)
    until(lambda: free() == 16, 60, "all cards of gamma are free again")


def test_a_job_waits_in_slurms_own_queue_and_leaves_it_for_a_better_place(
    federation: SlurmFederation,
) -> None:
    """Alpha is full of local jobs; the others take nothing. The job pends in alpha's Slurm. Then
    beta opens: it is taken back there, confirmed, and only then begins at beta: once."""
    alpha = federation.sites.clusters["alpha"]
    for cluster in ("beta", "gamma"):
        federation.agent(cluster, "pause", "--reason", "kept out of this test")
    local = alpha.run(
        "sbatch", "--parsable", "--nodes=2", "--gres=gpu:h100:8", "--output=/dev/null",
        "--time=20", "--chdir=/tmp", "--wrap=sleep 1200",
    )  # fmt: skip
    try:
        # What was learned of short waits is known at once, and what was free before the local job
        # is told for a moment more.
        until(lambda: _full_for_long(federation, "alpha"), 120, "alpha is full, and for long")
        (job,) = federation.submit([card_job(federation)], "queued")
        until(lambda: _pends(alpha, job), 60, "it pends in Slurm")
        shown = federation.call("GET", f"/v1/jobs/{job}")
        assert len(shown["attempts"]) == 1, shown["attempts"]
        (attempt,) = shown["attempts"]
        assert attempt["queued"] and attempt["cluster"] == "alpha"
        assert attempt["expected_start_delay_s"] > 60
        federation.agent("beta", "resume")
        done = federation.wait([job], WITHIN_S)[job]
        assert outcome(done) == "succeeded"
        assert federation.marks()[f"start {job}/0"] == 1
        last = federation.call("GET", f"/v1/jobs/{job}")["attempts"]
        assert [each["cluster"] for each in last] == ["alpha", "beta"]
        assert last[0]["outcome"]["kind"] == "withdrawn" and last[0]["started_at"] is None
        assert not _pends(alpha, job)
    finally:
        alpha.run("scancel", local)
        for cluster in ("beta", "gamma"):
            federation.agent(cluster, "resume")


def _full_for_long(federation: SlurmFederation, name: str) -> bool:
    (cluster,) = [c for c in federation.clusters() if c["name"] == name]
    pool = cluster["pools"][0]
    return pool["free"] == 0 and bool(pool["queue"]) and pool["queue"]["start_p50_ms"] > 60_000


def _pends(cluster: Any, job: str) -> bool:
    rows = cluster.run("squeue", "--noheader", "--format=%j|%T").splitlines()
    return any(row.startswith(job) and row.endswith("|PENDING") for row in rows)
