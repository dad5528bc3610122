"""What happens to jobs when the agent or the keeper dies: adopted, or lost, never run again."""

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import pytest

from federation.runs import Runs
from regional_agent.act.keeper import records
from regional_agent.act.keeper.client import start_keeper
from regional_agent.act.schedulers.port import Outcome, OutcomeKind, Phase, Submitted
from tests.keeper_site import Site, alive, array, order, wait_for_file, wait_gone

LOST = Outcome(OutcomeKind.LOST)
UNTIL_GO = "echo $$ >> ran; until [ -e go ]; do sleep 0.02; done; exit 5"


async def started(site: Site, run: str = UNTIL_GO, **changes: object) -> int:
    """Submit, and return the pid of the program once it runs."""
    await site.scheduler.submit(order(run=run, **changes))
    return site.pid("job-1", await wait_for_file(site.work("job-1") / "ran"))


async def test_jobs_live_on_without_an_agent(site: Site) -> None:
    pid = await started(site)
    await site.scheduler.close()
    assert alive(pid)
    again = site.again()
    assert await again.attempts() == ("job-1",)
    assert await again.submit(order(run=UNTIL_GO)) == Submitted("job-1", False)
    (site.work("job-1") / "go").touch()
    # The keeper saw it: the exit is known although no agent was there.
    assert (await site.ended("job-1")).outcome == Outcome(OutcomeKind.FAILED, exit_code=5)


async def test_an_end_seen_by_nobody_but_the_keeper_is_kept(site: Site) -> None:
    await started(site)
    await site.scheduler.close()
    (site.work("job-1") / "go").touch()
    await asyncio.sleep(0.3)
    site.kill_keeper()
    site.again()
    state = await site.state_of("job-1")
    assert (state.phase, state.outcome) == (Phase.ENDED, Outcome(OutcomeKind.FAILED, exit_code=5))


async def test_a_job_whose_keeper_died_runs_on_and_its_end_is_lost(site: Site) -> None:
    pid = await started(site)
    site.kill_keeper()
    state = await site.state_of("job-1")
    assert state.phase == Phase.RUNNING and alive(pid)
    (site.work("job-1") / "go").touch()
    state = await site.ended("job-1")
    assert state.outcome == LOST
    assert "not seen" in state.detail
    assert (site.work("job-1") / "ran").read_text().count("\n") == 1


async def test_a_job_that_ended_without_a_keeper_is_lost(site: Site) -> None:
    pid = await started(site)
    site.kill_keeper()
    (site.work("job-1") / "go").touch()
    wait_gone(pid)
    state = await site.ended("job-1")
    assert state.outcome == LOST and "not seen" in state.detail
    assert await site.scheduler.submit(order(run=UNTIL_GO)) == Submitted("job-1", False)
    await asyncio.sleep(0.2)
    assert (site.work("job-1") / "ran").read_text().count("\n") == 1


async def test_cancel_reaches_a_job_whose_keeper_died(site: Site) -> None:
    run = "sh -c 'echo $$ > child; exec sleep 60' & echo $$ > ran; trap '' TERM; sleep 60"
    pid = await started(site, run)
    await wait_for_file(site.work("job-1") / "child")
    site.kill_keeper()
    await site.scheduler.cancel("job-1", grace_s=1)
    assert (await site.ended("job-1")).outcome == Outcome(OutcomeKind.CANCELLED)
    wait_gone(pid)
    await site.until_nothing_runs("job-1")


async def test_max_runtime_holds_across_keepers(site: Site) -> None:
    pid = await started(site, "echo $$ > ran; sleep 60", max_runtime_s=2, grace_s=1)
    site.kill_keeper()
    state = await site.ended("job-1", timeout_s=6)
    assert state.outcome == Outcome(OutcomeKind.TIMED_OUT)
    wait_gone(pid)


async def test_a_stop_begun_by_a_keeper_that_died_is_brought_to_its_end(site: Site) -> None:
    pid = await started(site, "trap '' TERM; echo $$ > ran; sleep 60")
    await site.scheduler.cancel("job-1", grace_s=1)
    site.kill_keeper()
    assert (await site.ended("job-1")).outcome == Outcome(OutcomeKind.CANCELLED)
    wait_gone(pid)


async def test_leftovers_of_a_lost_job_are_ended(site: Site) -> None:
    run = "setsid sh -c 'echo $$ > daemon; sleep 60' & echo $$ > ran; sleep 60"
    pid = await started(site, run)
    await wait_for_file(site.work("job-1") / "daemon")
    site.kill_keeper()
    os.kill(pid, 9)
    assert (await site.ended("job-1")).outcome == LOST
    await site.until_nothing_runs("job-1")


async def test_of_an_array_only_what_ran_is_lost_and_the_rest_runs_once(site: Site) -> None:
    run = "if [ -e go ]; then s=0; else s=60; fi; echo $TRADEWIND_TASK >> ran; sleep $s"
    await site.scheduler.submit(array("job-1", run, 20, 3))
    await site.until("job-1", lambda s: s.tasks.running.count == 3)
    ran = site.work("job-1") / "ran"
    while len((await wait_for_file(ran)).split()) < 3:
        await asyncio.sleep(0.01)
    site.kill_keeper()
    (site.work("job-1") / "go").touch()
    state = await site.state_of("job-1")
    assert state.tasks.running == Runs(((0, 2),))
    for pid in _pids_of(site, "job-1"):
        # A task's first process takes the others with it where it is isolated.
        with suppress(ProcessLookupError):
            os.kill(pid, 9)
    state = await site.ended("job-1")
    assert state.tasks.with_outcome(OutcomeKind.LOST) == Runs(((0, 2),))
    assert state.tasks.with_outcome(OutcomeKind.SUCCEEDED) == Runs(((3, 19),))
    assert state.outcome == LOST
    assert sorted(map(int, ran.read_text().split())) == list(range(20))


async def test_a_gang_that_lost_a_member_unseen_is_stopped(site: Site) -> None:
    run = "echo $$ > pid$RANK; exec sleep 60"
    await site.scheduler.submit(order(run=run, replicas=2))
    said = [await wait_for_file(site.work("job-1") / f"pid{r}") for r in range(2)]
    pids = [site.pid("job-1", pid, rank) for rank, pid in enumerate(said)]
    site.kill_keeper()
    os.kill(pids[1], 9)
    wait_gone(pids[1])
    assert (await site.ended("job-1")).outcome == LOST
    wait_gone(pids[0])


async def test_records_cut_short_are_what_was_never_done(site: Site) -> None:
    await site.run(order(run="exit 5"))
    site.kill_keeper()
    journal = site.state / "attempts/job-1/journal"
    journal.write_bytes(journal.read_bytes() + b'0badc0de {"k":"inte')
    assert (await site.state_of("job-1")).outcome == Outcome(OutcomeKind.FAILED, exit_code=5)


async def test_damaged_records_start_nothing(site: Site) -> None:
    await site.scheduler.submit(array("job-1", "echo x >> ran; sleep 60", 10, 1))
    await wait_for_file(site.work("job-1") / "ran")
    pids = _pids_of(site, "job-1")
    site.kill_keeper()
    journal = site.state / "attempts/job-1/journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    lines[1] = b"x" + lines[1][1:]
    journal.write_bytes(b"".join(lines))
    state = await site.state_of("job-1")
    assert (state.phase, state.outcome) == (Phase.ENDED, LOST)
    assert "damaged" in state.detail
    assert state.tasks.with_outcome(OutcomeKind.LOST) == Runs(((0, 9),))
    for pid in pids:
        wait_gone(pid)
    assert (site.work("job-1") / "ran").read_text() == "x\n"


@pytest.mark.parametrize("name", ["order.json", "journal"])
@pytest.mark.parametrize("nonsense", [b"", b"{}", b"\xff\xfe\n"])
async def test_one_unreadable_attempt_is_lost_and_hinders_no_other(
    site: Site, name: str, nonsense: bytes
) -> None:
    await site.run(order("a-1", "echo x >> ran"))
    await site.run(order("b-1", "exit 3"))
    site.kill_keeper()
    (site.state / "attempts/a-1" / name).write_bytes(nonsense)
    (site.state / "attempts/Not An Attempt").mkdir()
    assert (await site.state_of("b-1")).outcome == Outcome(OutcomeKind.FAILED, exit_code=3)
    state = await site.ended("a-1")
    assert await site.scheduler.submit(order("a-1", "echo x >> ran")) == Submitted("a-1", False)
    assert state.outcome == LOST
    assert (site.work("a-1") / "ran").read_text() == "x\n"


async def test_a_pid_that_now_is_somebody_else_is_left_alone(site: Site) -> None:
    pid = await started(site)
    site.kill_keeper()
    os.kill(pid, 9)
    innocent = await asyncio.create_subprocess_exec("sleep", "60", start_new_session=True)
    journal = site.state / "attempts/job-1/journal"
    found, _, _ = records.read(journal)
    for record in found:
        if record["k"] == "pid":
            record["pid"] = innocent.pid
    journal.write_bytes(b"".join(map(records.encode, found)))
    await site.scheduler.cancel("job-1", grace_s=0)
    assert (await site.ended("job-1")).outcome == LOST
    await asyncio.sleep(0.2)
    assert innocent.returncode is None and alive(innocent.pid)
    innocent.kill()
    await innocent.wait()


async def test_nothing_survives_a_boot(site: Site) -> None:
    pid = await started(site)
    site.kill_keeper()
    journal = site.state / "attempts/job-1/journal"
    journal.write_bytes(
        b"".join(
            records.encode(record | ({"boot": "another"} if record["k"] == "intent" else {}))
            for record in records.read(journal)[0]
        )
    )
    assert (await site.ended("job-1")).outcome == LOST
    wait_gone(pid)


async def test_a_second_keeper_of_the_same_directory_leaves(site: Site) -> None:
    await site.run(order())
    pid = site.keeper_pid()
    assert await start_keeper(site.state) == 75
    assert site.keeper_pid() == pid and alive(pid)


async def test_the_listener_hears_of_a_keeper_that_came_back(site: Site) -> None:
    await started(site)
    seen = []

    async def listen() -> None:
        async for batch in site.scheduler.changes():
            seen.extend(change.state for change in batch)
            if seen and seen[-1].phase == Phase.ENDED:
                return

    listener = asyncio.create_task(listen())
    await asyncio.sleep(0.3)
    assert [s.phase for s in seen] == [Phase.RUNNING]
    site.kill_keeper()
    (site.work("job-1") / "go").touch()
    await asyncio.wait_for(listener, 10)
    assert seen[-1].outcome == LOST


async def test_a_keeper_starts_fast(tmp_path: Path) -> None:
    site = Site(tmp_path / "state")
    loop = asyncio.get_running_loop()
    took_s = []
    for _ in range(5):
        began_s = loop.time()
        await start_keeper(site.state)
        took_s.append(loop.time() - began_s)
        site.kill_keeper()
    assert min(took_s) < 0.15, took_s


def _pids_of(site: Site, uid: str) -> list[int]:
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"HOME={site.work(uid)}".encode() in environ.read_bytes().split(b"\0"):
                found.append(int(environ.parent.name))
        except OSError:
            continue
    return found
