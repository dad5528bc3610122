"""What the collector sees of a real Slurm cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from regional_agent.sense.slurm import SlurmSense
from regional_agent.sense.slurm_pools import SlurmLook
from regional_agent.slurm.site import SlurmSite as Site
from tests.schedulers.slurm_cluster import SlurmCluster, SlurmSite, missing, until

FULL = ("--gres=gpu:8", "--output=/dev/null", "--chdir=/tmp")
POOL = "main-h100"


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    if why := missing():
        pytest.skip(f"Slurm {why}")
    site = SlurmSite(("alpha",), nodes=2, accounting=False).start()
    try:
        yield site.clusters["alpha"]
    finally:
        site.stop()


@pytest.fixture(autouse=True)
def nothing_left(cluster: SlurmCluster) -> Iterator[None]:
    yield
    cluster.run("scancel", "--user=root", "--signal=KILL", ok=False)
    cluster.run("scancel", "--user=root", ok=False)
    until(lambda: not cluster.run("squeue", "-h"), "an empty queue")


def look(cluster: SlurmCluster, sense: SlurmSense | None = None) -> SlurmLook:
    sense = sense or SlurmSense(Site(client_env=cluster.env))
    return asyncio.run(sense.look((), int(time.time() * 1000)))


def test_an_empty_site_starts_at_once(cluster: SlurmCluster) -> None:
    queue = look(cluster).seen.queues[POOL]
    assert (queue.waiting, queue.start_p50_ms, queue.start_p90_ms) == (0, 0, 0)


def test_a_full_site_tells_who_waits_and_when_one_more_would_start(cluster: SlurmCluster) -> None:
    for _ in range(2):
        cluster.run("sbatch", *FULL, "--time=10", "--wrap=sleep 600")
    until(lambda: cluster.run("squeue", "-h", "-t", "R").count("\n") == 1, "a full site")
    cluster.run("sbatch", *FULL, "--nodes=2", "--time=20", "--wrap=sleep 600")
    cluster.run("sbatch", *FULL, "--hold", "--time=20", "--wrap=sleep 600")
    queue = look(cluster).seen.queues[POOL]
    assert (queue.waiting, queue.waiting_accelerators) == (1, 16)  # one is held back
    assert queue.start_p50_ms is not None
    # Behind the running ones (10 min) and the one in front (20 min); the backfill rounds up.
    assert 25 * 60_000 < queue.start_p50_ms <= 34 * 60_000
