"""What a real Slurm tells of its nodes beside their size, and what jobs ask of it: features,
licences, switches; and how ends are known where there is neither accounting nor a memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from federation.refusals import Refusal, RefusalCode
from regional_agent.act.schedulers.port import OutcomeKind
from regional_agent.act.schedulers.slurm import Slurm
from regional_agent.sense.slurm import SlurmSense
from regional_agent.sense.slurm_pools import SlurmLook
from regional_agent.session.ledger import OTHERS, Ledger
from regional_agent.session.resettle import resettle
from regional_agent.slurm.site import SlurmSite as Site
from tests.integration.slurm.playing import ended, once, orders, running, runs, submit_all
from tests.schedulers.slurm_cluster import SlurmCluster, SlurmSite, missing, until

FEATURES = ("ib,icelake", "ib,genoa", "genoa")
SWITCHES = """\
SwitchName=s1 Nodes=alpha-n[1-2]
SwitchName=s2 Nodes=alpha-n3
SwitchName=core Switches=s[1-2]
"""
SHORT_MEMORY_S = 2


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    if why := missing():
        pytest.skip(f"Slurm {why}")
    site = SlurmSite(
        ("alpha",), nodes=3, accounting=False, features=FEATURES, topology=SWITCHES,
        options={"Licenses": "matlab:4,ansys:1", "MinJobAge": SHORT_MEMORY_S},
    ).start()  # fmt: skip
    try:
        yield site.clusters["alpha"]
    finally:
        site.stop()


@pytest.fixture()
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


def look(cluster: SlurmCluster) -> SlurmLook:
    sense = SlurmSense(Site(client_env=cluster.env))
    return asyncio.run(sense.look((), int(time.time() * 1000)))


def test_features_licences_and_switches_are_told(cluster: SlurmCluster) -> None:
    seen = look(cluster).seen
    (pool,) = seen.pools
    assert [sorted(words) for words in pool.features] == [
        ["ib", "icelake"], ["genoa", "ib"], ["genoa"]
    ]  # fmt: skip
    assert pool.racks == ("s1", "s1", "s2") and pool.domain == ""
    assert pool.extras == (("ansys", 1), ("matlab", 4))
    assert pool.site_extras == {"ansys", "matlab"}


def test_licences_of_others_are_not_ours_to_give(cluster: SlurmCluster) -> None:
    job = cluster.run(
        "sbatch", "--parsable", "--licenses=matlab:3", "--output=/dev/null", "--chdir=/tmp",
        "--time=1", "--wrap=sleep 60",
    )  # fmt: skip
    until(lambda: cluster.run("squeue", "-h", "-j", job, "-o", "%T") == "RUNNING", "it runs")
    seen = look(cluster).seen
    ledger = resettle(Ledger(seen.pools), seen)
    assert ledger.extras(seen.pools[0]) == {"ansys": 1, "matlab": 1}
    assert any(uid.startswith(OTHERS) for uid in ledger.reservations)
    cluster.run("scancel", job)
    until(lambda: not cluster.run("squeue", "-h"), "an empty queue")


def test_jobs_go_where_their_features_are(cluster: SlurmCluster, state: Path) -> None:
    wanted = {"ib": ("ib", "genoa|skylake"), "not-ib": ("genoa",), "either": ("icelake|skylake",)}
    some = [
        orders(name, ['echo "$SLURMD_NODENAME"'], features=features)[0]
        for name, features in wanted.items()
    ]

    system = Slurm(Site(client_env=cluster.env))
    system.features = look(cluster).features

    async def scenario() -> list[str]:
        async with running(system, state) as scheduler:
            await submit_all(scheduler, some)
            uids = [order.uid for order in some]
            states = await once(scheduler, uids, ended)
            assert all(s.outcome and s.outcome.kind is OutcomeKind.SUCCEEDED
                       for s in states.values())  # fmt: skip
            logs = [await scheduler.read_log(uid, "output", 0, 100) for uid in uids]
            return [log.data.decode().strip() for log in logs]

    both, genoa, icelake = asyncio.run(scenario())
    assert both == "alpha-n2" and genoa in ("alpha-n2", "alpha-n3") and icelake == "alpha-n1"


def test_what_no_node_or_site_has_is_refused_with_the_reason(
    cluster: SlurmCluster, state: Path
) -> None:
    some = [
        *orders("feature", ["true"], features=("quantum",)),
        *orders("licence", ["true"], extras=(("abaqus", 1),)),
    ]

    async def scenario() -> list[object]:
        async with running(Slurm(Site(client_env=cluster.env)), state) as scheduler:
            return list(await asyncio.gather(*(scheduler.submit(order) for order in some)))

    answers = asyncio.run(scenario())
    assert [answer.code for answer in answers if isinstance(answer, Refusal)] == [
        RefusalCode.MISSING_FEATURES, RefusalCode.NO_EXTRAS,
    ]  # fmt: skip


def test_no_more_jobs_run_than_there_are_licences(cluster: SlurmCluster, state: Path) -> None:
    some = orders("counted", ["sleep 2"] * 3, extras=(("matlab", 2),))

    async def scenario() -> None:
        async with running(Slurm(Site(client_env=cluster.env)), state) as scheduler:
            await submit_all(scheduler, some)
            uids = [order.uid for order in some]
            most = 0
            for _ in range(300):
                states = await scheduler.status(uids)
                most = max(most, sum(runs(each) for each in states.values()))
                if all(ended(each) for each in states.values()):
                    break
                await asyncio.sleep(0.1)
            assert most == 2, states
            assert all(ended(each) for each in states.values())

    asyncio.run(scenario())


def test_an_end_the_controller_forgot_is_read_from_the_completed_jobs(
    cluster: SlurmCluster, state: Path
) -> None:
    """Killed with its script, so that nothing but Slurm tells of the end; the agent is away until
    the controller knows it no more."""
    gone, fails = (
        orders("gone", ["sleep 60"])[0],
        orders("fails", ["kill -9 $PPID; sleep 60"])[0],
    )
    some = [gone, fails]
    system = Slurm(Site(client_env=cluster.env))

    async def submit() -> dict[str, str]:
        async with running(system, state) as scheduler:
            answers = [(await submit_all(scheduler, [order]))[0] for order in some]
            await once(scheduler, [gone.uid], runs)
            return {o.uid: a.local_id for o, a in zip(some, answers, strict=True)}

    async def outcomes() -> list[OutcomeKind]:
        async with running(Slurm(Site(client_env=cluster.env)), state) as scheduler:
            states = await once(scheduler, [order.uid for order in some], ended)
            return [s.outcome.kind for s in states.values() if s.outcome]

    ids = asyncio.run(submit())
    cluster.run("scancel", ids[gone.uid])
    until(lambda: not cluster.run("squeue", "-h", "-t", "all"), "the controller has forgotten")
    assert asyncio.run(outcomes()) == [OutcomeKind.CANCELLED, OutcomeKind.SIGNALLED]
    work = state / "attempts" / gone.uid / "work"
    found = asyncio.run(system.look(gone.uid, "tradewind:x:0", work))
    assert found == ids[gone.uid], "it is not handed over a second time"
