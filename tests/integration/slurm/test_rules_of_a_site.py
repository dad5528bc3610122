"""A real Slurm's own rules under ours: accounts, limits, users, preemption, a controller that is
away, and no accounting at all."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from federation.refusals import Refusal, RefusalCode
from regional_agent.act.schedulers.batch.following import Pace
from regional_agent.act.schedulers.port import (
    OutcomeKind,
    SchedulerUnavailable,
    Submitted,
)
from regional_agent.act.schedulers.slurm import Slurm
from regional_agent.clients import Answer
from regional_agent.sense.slurm import SlurmSense
from regional_agent.slurm.site import SlurmSite as Site
from tests.integration.slurm.playing import ended, once, orders, running, runs, submit_all
from tests.schedulers.slurm_cluster import SlurmCluster, SlurmSite, missing, until

ACCOUNTS = {"physics": "phy01", "biology": "bio02"}
SLOTS = 3
NOBODY = 65534


class Counted(Slurm):
    """Counts the calls of clients."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self.calls: Counter[str] = Counter()

    async def _run(self, argv: Sequence[str], env: Mapping[str, str]) -> Answer:
        self.calls[argv[0]] += 1
        return await super()._run(argv, env)


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    """With accounts that have to be right, and a limit on what one user may submit to one."""
    if why := missing():
        pytest.skip(f"Slurm {why}")
    enforced = {"AccountingStorageEnforce": "associations,limits,qos"}
    site = SlurmSite(("alpha",), nodes=2, options=enforced).start()
    made = site.clusters["alpha"]
    try:
        for account in ACCOUNTS.values():
            made.run("sacctmgr", "-i", "add", "account", account)
            for user in ("root", "nobody"):
                made.run("sacctmgr", "-i", "add", "user", user, f"account={account}")
        few = ("set", f"MaxSubmitJobs={SLOTS}")
        made.run("sacctmgr", "-i", "modify", "user", "nobody", "where", "account=bio02", *few)
        until(lambda: "phy01" in made.run("scontrol", "show", "assoc_mgr"), "the accounts")
        yield made
    finally:
        site.stop()


@pytest.fixture(scope="module", params=["REQUEUE", "CANCEL"])
def bare(request: pytest.FixtureRequest) -> Iterator[SlurmCluster]:
    """Without accounting, preempting in this way."""
    if why := missing():
        pytest.skip(f"Slurm {why}")
    options = {"PreemptMode": request.param, "MinJobAge": 60}
    site = SlurmSite(("beta",), nodes=1, accounting=False, options=options).start()
    try:
        yield site.clusters["beta"]
    finally:
        site.stop()


@pytest.fixture()
def state(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    return tmp_path_factory.mktemp("state")


def as_nobody(cluster: SlurmCluster, tenants: Sequence[str]) -> dict[str, str]:
    """What becomes of one job a tenant, handed over by an ordinary user."""
    state = cluster.site.scratch / f"nobody-{len(tenants)}"
    state.mkdir(mode=0o700)
    os.chown(state, NOBODY, NOBODY)
    done = subprocess.run(
        ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", sys.executable,
         "-m", "tests.integration.slurm.playing", str(state), str(cluster.conf),
         json.dumps(ACCOUNTS), json.dumps(list(tenants))],
        capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said: dict[str, str] = json.loads(done.stdout)
    return said


def test_an_ordinary_user_runs_each_tenant_in_its_account(cluster: SlurmCluster) -> None:
    said = as_nobody(cluster, ["physics", "biology", "chess"])
    assert list(said.values()) == [
        f"succeeded {NOBODY}", f"succeeded {NOBODY}", f"refused: {RefusalCode.TENANT_NOT_ALLOWED}",
    ]  # fmt: skip
    words = ("sacct", "-a", "-X", "-n", "-P", "-o", "JobName,Account,User")
    wanted = {"as-0-0|phy01|nobody", "as-1-0|bio02|nobody"}
    until(lambda: wanted <= set(cluster.run(*words).split()), f"{wanted} in the books")


def test_limits_of_an_account_are_seen_before_anything_is_refused(cluster: SlurmCluster) -> None:
    cluster.run("sacctmgr", "-i", "modify", "user", "root", "where", "account=bio02", "set",
                "MaxSubmitJobs=5", "MaxWall=60", "GrpTRES=gres/gpu=4")  # fmt: skip
    sense = SlurmSense(Site(client_env=cluster.env, account="bio02"))
    look = asyncio.run(sense.look((), int(time.time() * 1000)))
    assert (look.seen.max_submit, look.seen.cards_max) == (5, 4)
    assert look.sources["main-h100"].walltime_max_s == 3600
    assert look.seen.queues["main-h100"].pending_max == 5


def test_limits_of_parents_and_of_a_partitions_qos_are_seen(cluster: SlurmCluster) -> None:
    modify = ("sacctmgr", "-i", "modify")
    cluster.run("sacctmgr", "-i", "add", "account", "science")
    cluster.run("sacctmgr", "-i", "add", "account", "chem03", "parent=science")
    cluster.run("sacctmgr", "-i", "add", "user", "root", "account=chem03")
    cluster.run(*modify, "account", "science", "set", "GrpTRES=gres/gpu=6", "GrpSubmitJobs=7",
                "MaxTRES=gres/gpu=4")  # fmt: skip
    cluster.run("sacctmgr", "-i", "add", "qos", "narrow")
    cluster.run(*modify, "qos", "narrow", "set", "MaxTRESPU=gres/gpu=5", "MaxTRES=gres/gpu=3",
                "MaxWall=30")  # fmt: skip
    known = ("sacctmgr", "-n", "show", "qos", "format=name")
    until(lambda: "narrow" in cluster.run(*known), "the QOS")
    until(
        lambda: not cluster.run(
            "scontrol", "update", "partitionname=main", "qos=narrow", ok=False
        ) and "QoS=narrow" in cluster.run("scontrol", "-o", "show", "partition", "main"),
        "the QOS of the partition",
    )  # fmt: skip
    try:
        sense = SlurmSense(Site(client_env=cluster.env, account="chem03"))
        look = asyncio.run(sense.look((), int(time.time() * 1000)))
    finally:
        cluster.run("scontrol", "update", "partitionname=main", "qos=")
    assert (look.seen.max_submit, look.seen.cards_max) == (7, 6)
    assert look.seen.cards_bounds == ((frozenset({"main-h100"}), 5),)
    source = look.sources["main-h100"]
    assert (source.walltime_max_s, source.cards_per_job_max) == (1800, 3)


def test_a_limit_of_the_site_refuses_no_more_than_it_has_to(cluster: SlurmCluster) -> None:
    """Eight alike in an account where three may wait: they go as one, then as fewer."""
    blocker = cluster.run(
        "sbatch", "--parsable", "--nodes=2", "--exclusive", "--account=phy01", "--time=5",
        "--output=/dev/null", "--chdir=/tmp", "--wrap=sleep 6",
    )  # fmt: skip
    until(lambda: cluster.run("squeue", "-h", "-j", blocker, "-o", "%T") == "RUNNING", "it is full")
    said = as_nobody(cluster, ["biology"] * 8)
    ends = Counter(said.values())
    assert ends == {f"succeeded {NOBODY}": SLOTS, f"refused: {RefusalCode.SITE_LIMIT}": 8 - SLOTS}


def test_lesson_44_the_queue_is_asked_as_often_for_many_jobs_as_for_one(
    cluster: SlurmCluster, state: Path
) -> None:
    async def calls_for(count: int) -> Counter[str]:
        system = Counted(Site(client_env=cluster.env, account="phy01"))
        pace = Pace(look_s=0.2, poll_s=3.0, soon_s=3.0)
        some = orders(f"many-{count}", ["sleep 30"] * count)
        async with running(system, state, pace=pace) as scheduler:
            await submit_all(scheduler, some)
            await once(scheduler, [o.uid for o in some], runs)
            system.calls.clear()
            await asyncio.sleep(9.5)
            asked = Counter(system.calls)
            for order in some:
                await scheduler.cancel(order.uid, 0)
            await once(scheduler, [o.uid for o in some], ended)
        return asked

    async def scenario() -> None:
        one, many = await calls_for(1), await calls_for(40)
        assert sum(many.values()) <= 4, many  # one every 3 s
        assert abs(sum(many.values()) - sum(one.values())) <= 1, (one, many)

    asyncio.run(scenario())


def test_lesson_46_a_preempted_job_is_told_apart_and_does_not_come_back(
    bare: SlurmCluster, state: Path
) -> None:
    some = orders("pre", ['echo x >> "$HOME/../begun"; sleep 60'] * 2, cpus_milli=32_000)

    async def scenario() -> None:
        async with running(Slurm(Site(client_env=bare.env)), state) as scheduler:
            await submit_all(scheduler, some)
            uids = [order.uid for order in some]
            await once(scheduler, uids, runs)
            urgent = await asyncio.to_thread(
                bare.run, "sbatch", "--parsable", "--partition=urgent", "--exclusive",
                "--output=/dev/null", "--chdir=/tmp", "--wrap=sleep 3",
            )  # fmt: skip
            states = await once(scheduler, uids, ended)
            kinds = [s.outcome.kind for s in states.values() if s.outcome]
            assert kinds == [OutcomeKind.PREEMPTED] * 2, states
            until(lambda: not bare.run("squeue", "-h", "-j", urgent, ok=False), "the urgent job")

    asyncio.run(scenario())
    for order in some:
        assert (state / "attempts" / order.uid / "begun").read_text() == "x\n"


def test_without_accounting_the_controller_tells_the_ends(
    bare: SlurmCluster, state: Path
) -> None:
    removed, failed, killed = (
        orders("gone", ["sleep 60"])[0],
        orders("fail", ["exit 3"])[0],
        orders("late", ["sleep 60"], max_runtime_s=1, grace_s=1)[0],
    )

    async def scenario() -> None:
        async with running(Slurm(Site(client_env=bare.env)), state) as scheduler:
            (job, *_) = [
                (await submit_all(scheduler, [order]))[0] for order in (removed, failed, killed)
            ]
            await once(scheduler, [removed.uid], runs)
            await asyncio.to_thread(bare.run, "scancel", job.local_id)
            found = await once(scheduler, [o.uid for o in (removed, failed, killed)], ended)
            kinds = [s.outcome.kind for s in found.values() if s.outcome]
            assert kinds == [OutcomeKind.CANCELLED, OutcomeKind.FAILED, OutcomeKind.TIMED_OUT]

    asyncio.run(scenario())


def test_a_controller_that_is_away_during_a_submission_and_a_look(
    bare: SlurmCluster, state: Path
) -> None:
    """Nothing is concluded from its silence, and what was handed over twice runs once."""
    before, during = orders("was", ["sleep 6"])[0], orders(
        "new", ['echo x >> "$HOME/../begun"'] * 3
    )

    async def scenario() -> None:
        site = Site(client_env=bare.env, within_s=3.0)
        async with running(Slurm(site), state) as scheduler:
            await submit_all(scheduler, [before])
            await once(scheduler, [before.uid], runs)
            await asyncio.to_thread(bare.run, "scontrol", "shutdown", "slurmctld")  # state is kept
            until(lambda: not bare.site.children.runs("beta-ctld"), "the controller's end")
            bare.kill_controller()
            answers = await asyncio.gather(
                *(scheduler.submit(order) for order in during), return_exceptions=True
            )
            assert [type(answer) for answer in answers] == [SchedulerUnavailable] * 3
            assert runs((await scheduler.status([before.uid]))[before.uid])
            bare.start_controller()
            until(lambda: "UP" in bare.run("scontrol", "ping", ok=False), "the controller")
            await submit_all(scheduler, during)
            states = await once(scheduler, [before.uid, *(o.uid for o in during)], ended)
            kinds = {s.outcome.kind for s in states.values() if s.outcome}
            assert kinds == {OutcomeKind.SUCCEEDED}, states

    asyncio.run(scenario())
    for order in during:
        assert (state / "attempts" / order.uid / "begun").read_text() == "x\n"


def test_a_tenant_without_an_account_is_refused_before_slurm_is_asked(state: Path) -> None:
    system = Counted(Site(accounts=ACCOUNTS))
    order = orders("no", ["true"], tenant="chess")[0]
    answer = system._words(order)
    assert isinstance(answer, Refusal) and answer.code is RefusalCode.TENANT_NOT_ALLOWED
    assert not isinstance(answer, Submitted) and not system.calls
