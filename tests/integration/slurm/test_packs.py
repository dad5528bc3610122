"""Single jobs that come together are one submission to a real Slurm, and jobs of their own all the
same: each with its end, its log, its cancel, run once whatever dies in between."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from regional_agent.act.schedulers.batch.pack import packs_dir
from regional_agent.act.schedulers.batch.scheduler import CRASH_POINTS, BatchScheduler
from regional_agent.act.schedulers.port import Outcome, OutcomeKind, Submitted
from regional_agent.act.schedulers.slurm import Slurm
from regional_agent.slurm.site import SlurmSite as Site
from tests.integration.slurm import playing
from tests.integration.slurm.playing import ended, once, orders, runs, submit_all
from tests.schedulers.slurm_cluster import SlurmCluster, SlurmSite, missing, until


class _Crash(Exception):
    """The agent died here."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    if why := missing():
        pytest.skip(f"Slurm {why}")
    site = SlurmSite(("alpha",), nodes=2).start()
    try:
        yield site.clusters["alpha"]
    finally:
        site.stop()


@pytest.fixture()
def state(cluster: SlurmCluster, request: pytest.FixtureRequest) -> Path:
    path = cluster.site.scratch / f"state-{request.node.name}"
    path.mkdir(mode=0o700)
    return path


def running(
    cluster: SlurmCluster, state: Path, reached: Callable[[str], None] = lambda point: None
) -> AbstractAsyncContextManager[BatchScheduler]:
    return playing.running(Slurm(Site(client_env=cluster.env)), state, reached)


def arrays(cluster: SlurmCluster, prefix: str, total: int) -> Counter[str]:
    """Elements per array, from Slurm's books, which hear of them a moment later."""

    def booked() -> Counter[str] | None:
        out = cluster.run("sacct", "-X", "-n", "-P", "-o", "JobID,JobName")
        rows = [line.split("|") for line in out.splitlines()]
        found = Counter(job.split("_")[0] for job, name in rows if name.startswith(f"{prefix}-"))
        return found if found.total() >= total else None

    found = until(booked, f"{total} elements in the books")
    assert isinstance(found, Counter) and found.total() == total
    return found


def fill(cluster: SlurmCluster) -> str:
    """Another user's job that takes every node."""
    until(lambda: not cluster.run("squeue", "-h"), "an empty queue")
    job = cluster.run(
        "sbatch", "--parsable", "--nodes=2", "--exclusive", "--output=/dev/null", "--chdir=/tmp",
        "--time=5", "--wrap=sleep 100",
    )  # fmt: skip
    until(lambda: cluster.run("squeue", "-h", "-j", job, "-o", "%T") == "RUNNING", "a full site")
    return job


def play(scenario: Awaitable[None]) -> None:
    async def whole() -> None:
        await scenario

    asyncio.run(whole())


def test_alike_jobs_are_few_submissions_and_each_has_its_own_end(
    cluster: SlurmCluster, state: Path
) -> None:
    program = "echo I am $TRADEWIND_JOB {n}; sleep 0.1; exit $(({n} % 3))"
    some = orders("own", [program.replace("{n}", str(n)) for n in range(60)])

    async def scenario() -> None:
        async with running(cluster, state) as scheduler:
            answers = await submit_all(scheduler, some)
            assert len({answer.local_id for answer in answers}) == 60
            states = await once(scheduler, [o.uid for o in some], ended)
            for n, order in enumerate(some):
                end = states[order.uid].outcome
                assert end is not None and end.exit_code == n % 3
                log = await scheduler.read_log(order.uid, "output", 0, 100)
                assert log.data == f"I am own {n}\n".encode()
                assert states[order.uid].usage.wall_ms > 0

    play(scenario())
    assert len(arrays(cluster, "own", 60)) <= 4


def test_jobs_that_differ_for_slurm_are_apart(cluster: SlurmCluster, state: Path) -> None:
    small, large = orders("sml", ["true"] * 5), orders("lrg", ["true"] * 5, max_runtime_s=600)

    async def scenario() -> None:
        async with running(cluster, state) as scheduler:
            await submit_all(scheduler, [*small, *large])
            await once(scheduler, [o.uid for o in (*small, *large)], ended)

    play(scenario())
    assert not arrays(cluster, "sml", 5).keys() & arrays(cluster, "lrg", 5).keys()


def test_a_job_of_a_pack_does_not_look_like_a_task_of_an_array(
    cluster: SlurmCluster, state: Path
) -> None:
    some = orders("env", ["env | grep -E 'SLURM_ARRAY|JOB_NAME|TRADEWIND_TASK'"] * 3)

    async def scenario() -> None:
        async with running(cluster, state) as scheduler:
            await submit_all(scheduler, some)
            await once(scheduler, [o.uid for o in some], ended)
            for order in some:
                log = await scheduler.read_log(order.uid, "output", 0, 500)
                lines = sorted(log.data.decode().split())
                assert lines == [f"SLURM_JOB_NAME={order.uid}", "TRADEWIND_TASK="]

    play(scenario())


@pytest.mark.parametrize("point", CRASH_POINTS)
def test_a_crash_at_any_line_of_a_pack_runs_each_job_once(
    cluster: SlurmCluster, state: Path, point: str
) -> None:
    some = orders(f"crash-{point}", ['echo x >> "$HOME/../begun"; sleep 1'] * 6)
    uids = [order.uid for order in some]

    def reached(here: str) -> None:
        if here == point:
            raise _Crash(here)

    async def scenario() -> None:
        async with running(cluster, state, reached) as scheduler:
            with pytest.raises(_Crash):
                await submit_all(scheduler, some)
        async with running(cluster, state) as scheduler:
            await submit_all(scheduler, some)
            states = await once(scheduler, uids, ended)
            assert {s.outcome for s in states.values()} == {Outcome(OutcomeKind.SUCCEEDED)}

    play(scenario())
    for uid in uids:
        assert (state / "attempts" / uid / "begun").read_text() == "x\n"
    assert len(arrays(cluster, f"crash-{point}", 6)) == 1


def test_one_of_a_pack_is_cancelled_and_the_others_run_on(
    cluster: SlurmCluster, state: Path
) -> None:
    some = orders("stop", ["sleep 3"] * 4)
    uids = [order.uid for order in some]

    async def scenario() -> None:
        async with running(cluster, state) as scheduler:
            await submit_all(scheduler, some)
            await once(scheduler, uids, runs)
            await scheduler.cancel(uids[1], 5)
            states = await once(scheduler, uids, ended)
            kinds = [s.outcome.kind for s in states.values() if s.outcome]
            assert kinds.pop(1) is OutcomeKind.CANCELLED
            assert set(kinds) == {OutcomeKind.SUCCEEDED}

    play(scenario())


def test_one_of_a_pack_that_waits_is_cancelled_before_it_starts(
    cluster: SlurmCluster, state: Path
) -> None:
    some = orders("wait", ["sleep 2"] * 3)
    uids = [order.uid for order in some]
    others = fill(cluster)

    async def scenario() -> None:
        async with running(cluster, state) as scheduler:
            await submit_all(scheduler, some)
            await scheduler.cancel(uids[0], 5)
            (first,) = (await once(scheduler, uids[:1], ended)).values()
            assert first.outcome is not None and first.outcome.kind is OutcomeKind.CANCELLED
            await asyncio.to_thread(cluster.run, "scancel", others)
            rest = await once(scheduler, uids[1:], ended)
            assert {s.outcome for s in rest.values()} == {Outcome(OutcomeKind.SUCCEEDED)}

    play(scenario())
    assert not (state / "attempts" / uids[0] / "claims" / "0").exists()


def test_lesson_46_one_of_a_pack_that_is_requeued_does_not_run_again(
    cluster: SlurmCluster, state: Path
) -> None:
    some = orders("again", ['echo x >> "$HOME/../begun"; sleep 4'] * 3)
    uids = [order.uid for order in some]

    async def scenario() -> None:
        async with running(cluster, state) as scheduler:
            answers = await submit_all(scheduler, some)
            await once(scheduler, uids, runs)
            job = answers[2].local_id
            await asyncio.to_thread(cluster.run, "scontrol", "update", f"jobid={job}", "requeue=1")
            await asyncio.to_thread(cluster.run, "scontrol", "requeue", job)
            states = await once(scheduler, uids, ended)
            kinds = [s.outcome.kind for s in states.values() if s.outcome]
            assert kinds == [OutcomeKind.SUCCEEDED] * 2 + [OutcomeKind.PREEMPTED]

    play(scenario())
    for uid in uids:
        assert (state / "attempts" / uid / "begun").read_text() == "x\n"


def test_a_pack_outlives_the_agent_and_leaves_nothing_behind(
    cluster: SlurmCluster, state: Path
) -> None:
    some = orders("adopt", ["sleep 1; exit 4"] * 3)
    uids = [order.uid for order in some]

    async def scenario() -> None:
        async with running(cluster, state) as scheduler:
            answers = await submit_all(scheduler, some)
        async with running(cluster, state) as scheduler:
            assert set(await scheduler.attempts()) == set(uids)
            assert [await scheduler.find(uid) for uid in uids] == [a.local_id for a in answers]
            before = await once(scheduler, uids, ended)
        async with running(cluster, state) as scheduler:
            assert await scheduler.status(uids) == before
            assert {s.outcome for s in before.values()} == {Outcome(OutcomeKind.FAILED, 4)}
            await scheduler.forget(uids[0])
        async with running(cluster, state) as scheduler:
            assert set(await scheduler.attempts()) == set(uids[1:])
            for uid in uids[1:]:
                await scheduler.forget(uid)

    play(scenario())
    assert not list(packs_dir(state).iterdir())
    assert not list((state / "attempts").iterdir())


def test_one_of_a_pack_is_found_in_the_queue_by_its_uid_when_the_disk_is_lost(
    cluster: SlurmCluster, state: Path
) -> None:
    some, others = orders("lost", ["true"] * 3), fill(cluster)

    async def scenario() -> None:
        async with running(cluster, state) as scheduler:
            answers = await submit_all(scheduler, some)
        (state / "attempts").rename(state / "gone")
        packs_dir(state).rename(state / "gone-packs")
        async with running(cluster, state) as scheduler:
            job = answers[1].local_id.split("_")[0]
            assert await scheduler.find(some[1].uid) == job
            again = await scheduler.submit(some[1])
            assert isinstance(again, Submitted) and again.local_id == answers[1].local_id
            assert await scheduler.find("lost-99") is None
            await asyncio.to_thread(cluster.run, "scancel", others)
            (state_now,) = (await once(scheduler, [some[1].uid], ended)).values()
            assert state_now.outcome == Outcome(OutcomeKind.SUCCEEDED)

    play(scenario())
    assert len(arrays(cluster, "lost", 3)) == 1
