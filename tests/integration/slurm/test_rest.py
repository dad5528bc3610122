"""A real slurmrestd: what the collector sees by it is what it sees by clients; jobs ask for the
same, and are refused for the same reasons. The cases of the suite run in tests/conformance."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from federation.refusals import Refusal, RefusalCode
from regional_agent.act.schedulers.port import LaunchOrder, OutcomeKind, SchedulerUnavailable
from regional_agent.act.schedulers.slurm_rest import RestSlurm
from regional_agent.sense.slurm import SlurmSense
from regional_agent.sense.slurm_pools import SlurmLook
from regional_agent.session.ledger import Place
from regional_agent.slurm import limits, nodes, rest_said
from regional_agent.slurm.rest import SlurmRest
from regional_agent.slurm.site import PoolSource
from regional_agent.slurm.site import SlurmSite as Site
from tests.integration.slurm.playing import ended, once, orders, running, submit_all
from tests.schedulers.slurm_cluster import SlurmCluster, SlurmSite, rest_missing, until


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    if why := rest_missing():
        pytest.skip(f"Slurm {why}")
    site = SlurmSite(
        ("alpha",), nodes=2, accounting=False, features=("ib", "plain"),
        options={"Licenses": "matlab:4"},
    ).start()  # fmt: skip
    try:
        site.clusters["alpha"].start_rest()
        yield site.clusters["alpha"]
    finally:
        site.stop()


@pytest.fixture()
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


def by_rest(cluster: SlurmCluster) -> Site:
    return Site(client_env=cluster.env, rest=f"unix:{cluster.rest_socket}", within_s=5.0)


def test_the_collector_sees_the_same_either_way(cluster: SlurmCluster) -> None:
    running_job = cluster.run(
        "sbatch", "--parsable", "--gres=gpu:h100:3", "--licenses=matlab:1", "--output=/dev/null",
        "--chdir=/tmp", "--time=1", "--wrap=sleep 60",
    )  # fmt: skip
    waiting = cluster.run(
        "sbatch", "--parsable", "--nodes=2", "--gres=gpu:8", "--array=1-6%2", "--output=/dev/null",
        "--chdir=/tmp", "--time=1", "--wrap=sleep 60",
    )  # fmt: skip
    until(lambda: "RUNNING" in cluster.run("squeue", "-h", "-o", "%T"), "one runs")

    async def both() -> tuple[SlurmLook, SlurmLook]:
        system = RestSlurm(by_rest(cluster))
        site = Site(client_env=cluster.env)
        now_ms = int(time.time() * 1000)
        try:
            rest = await SlurmSense(site, system.rows, system.rest).look((), now_ms)
            return rest, await SlurmSense(site).look((), now_ms)
        finally:
            await system.close()

    rest, clients = asyncio.run(both())
    assert rest.seen.pools == clients.seen.pools and rest.seen.nodes == clients.seen.nodes
    assert rest.seen.extras_used == clients.seen.extras_used == {"matlab": 1}
    assert (rest.seen.others_running, rest.seen.others_waiting) == (1, 6)
    assert [q.waiting_accelerators for q in rest.seen.queues.values()] == [96]
    assert rest.features == {"ib", "plain"}
    cluster.run("scancel", running_job, waiting)
    until(lambda: not cluster.run("squeue", "-h"), "an empty queue")


def test_reservations_and_partitions_are_the_same_either_way(cluster: SlurmCluster) -> None:
    """Without a client: the collector that asks slurmrestd runs no `scontrol show` of them."""
    usual = ("Users=root", "Duration=10")
    for words in (("m", "now+600", "Nodes=ALL", "Flags=MAINT"), ("r", "now+9000", "NodeCnt=1")):
        name, start, *more = words
        cluster.run("scontrol", "create", "reservation", f"ReservationName={name}",
                    f"StartTime={start}", *more, *usual)  # fmt: skip
    cluster.run("scontrol", "create", "partition=spare", "Nodes=ALL", "State=DOWN")

    async def told() -> tuple[SlurmLook, SlurmLook, object, object]:
        system = RestSlurm(by_rest(cluster))
        site = Site(client_env=cluster.env)
        now_ms = int(time.time() * 1000)
        try:
            return (
                await SlurmSense(site, system.rows, system.rest).look((), now_ms),
                await SlurmSense(site).look((), now_ms),
                rest_said.reservations_of(await system.rest.get("reservations")),
                rest_said.partitions_of(await system.rest.get("partitions")),
            )
        finally:
            await system.close()

    try:
        rest, clients, reserved, partitions = asyncio.run(told())
        epoch = {**cluster.env, "SLURM_TIME_FORMAT": "%s"}
        shown = subprocess.run(
            ["scontrol", "-o", "show", "reservation"], env=epoch, capture_output=True, text=True,
            check=True, timeout=20,
        ).stdout  # fmt: skip
        assert reserved == nodes.parse_reservations(shown) != ()
        shown = cluster.run("scontrol", "-o", "show", "partition")
        assert partitions == limits.parse_partitions(shown)
        assert rest.seen.closed == clients.seen.closed != ()
        assert rest.sources == clients.sources
    finally:
        cluster.run("scontrol", "delete", "partition=spare")
        for name in ("m", "r"):
            cluster.run("scontrol", "delete", f"reservation={name}")


def test_jobs_ask_for_the_same_either_way(cluster: SlurmCluster, state: Path) -> None:
    places = tuple(Place("p", node, tuple(range(4))) for node in (0, 1))
    gang = LaunchOrder(
        "gang-1", "gang", "t", run="env | grep ^SLURM_ | sort", accelerator="H100", replicas=2,
        places=places, max_runtime_s=60, cpus_milli=4_000, memory_bytes=2**30,
        extras=(("matlab", 2),),
    )  # fmt: skip
    pools = {"p": PoolSource("main", "h100", 4, 2, 3_600)}

    async def scenario() -> None:
        async with running(RestSlurm(by_rest(cluster), pools), state) as scheduler:
            (answer,) = await submit_all(scheduler, [gang])
            shown = await asyncio.to_thread(
                cluster.run, "scontrol", "-o", "show", "job", answer.local_id
            )
            said = dict(part.split("=", 1) for part in shown.split() if "=" in part)
            assert (said["NumNodes"].split("-")[0], said["NumTasks"]) == ("2", "2")
            assert said["CPUs/Task"] == "4" and said["MinMemoryNode"] == "1G"
            assert said["TresPerNode"] == "gres:gpu:h100:4" and said["Licenses"] == "matlab:4"
            assert (said["Requeue"], said["JobName"]) == ("0", "gang-1")
            assert said["Comment"].startswith("tradewind:gang-1") and said["TimeLimit"] != "None"
            states = await once(scheduler, [gang.uid], ended)
            end = states[gang.uid].outcome
            assert end is not None and end.kind is OutcomeKind.SUCCEEDED, states

    asyncio.run(scenario())


def test_what_slurm_refuses_is_refused_for_the_same_reasons(
    cluster: SlurmCluster, state: Path
) -> None:
    some = [
        *orders("feature", ["true"], features=("quantum",)),
        *orders("licence", ["true"], extras=(("abaqus", 1),)),
    ]

    async def scenario() -> list[object]:
        async with running(RestSlurm(by_rest(cluster)), state) as scheduler:
            return list(await asyncio.gather(*(scheduler.submit(order) for order in some)))

    answers = asyncio.run(scenario())
    assert [answer.code for answer in answers if isinstance(answer, Refusal)] == [
        RefusalCode.MISSING_FEATURES, RefusalCode.NO_EXTRAS,
    ], answers  # fmt: skip


def test_one_that_does_not_answer_leaves_everything_open(state: Path) -> None:
    """Neither refused nor taken: it is tried again."""

    async def scenario() -> None:
        system = RestSlurm(Site(rest=f"unix:{state}/none.sock", within_s=2.0))
        with pytest.raises(SchedulerUnavailable, match="slurmrestd"):
            await system.rows()
        await system.close()

    asyncio.run(scenario())


def test_the_newest_form_both_sides_know_is_found(cluster: SlurmCluster) -> None:
    async def scenario() -> str:
        rest = SlurmRest(f"unix:{cluster.rest_socket}")
        try:
            return await rest.version()
        finally:
            await rest.close()

    assert asyncio.run(scenario()) == "v0.0.38"
