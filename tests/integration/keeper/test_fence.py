"""Contact deadlines at a real keeper: put off by contact, kept without an agent, never undone."""

from __future__ import annotations

import asyncio
import json
import time

from regional_agent.act.schedulers.port import Feature, Outcome, OutcomeKind, Phase, Submitted
from regional_agent.contact import since_boot_s
from tests.keeper_site import Site, alive, array, order, wait_for_file, wait_gone

FENCED = Outcome(OutcomeKind.FENCED)
RUNS_ON = "echo $$ > ran; sleep 60"
STUBBORN = "trap '' TERM; echo $$ > ran; while :; do sleep 0.2; done"


async def started(site: Site, run: str = RUNS_ON, **changes: object) -> int:
    """Submit with contact just now; returns the pid of the program once it runs."""
    wanted = {"fence_after_s": 2, "grace_s": 1, "contact_s": since_boot_s()} | changes
    assert isinstance(await site.scheduler.submit(order(run=run, **wanted)), Submitted)
    return site.pid("job-1", await wait_for_file(site.work("job-1") / "ran"))


async def test_a_keeper_says_that_it_keeps_deadlines(site: Site) -> None:
    assert Feature.FENCE in (await site.scheduler.capabilities()).features


async def test_a_host_says_that_it_has_no_nodes_to_keep_apart_by(site: Site) -> None:
    features = (await site.scheduler.capabilities()).features
    assert not features & {Feature.MEMBERS_APART, Feature.TASKS_APART}


async def test_without_contact_a_job_is_stopped_and_says_why(site: Site) -> None:
    began_s = since_boot_s()
    pid = await started(site)
    state = await site.ended("job-1")
    assert since_boot_s() - began_s >= 2
    assert state.outcome == FENCED and "no contact" in state.detail
    wait_gone(pid)


async def test_nobody_has_to_be_there_to_stop_it(site: Site) -> None:
    pid = await started(site, run=STUBBORN)
    await site.scheduler.close()
    wait_gone(pid, timeout_s=10)
    site.again()
    assert (await site.state_of("job-1")).outcome == FENCED


async def test_contact_puts_the_deadline_off(site: Site) -> None:
    pid = await started(site)
    for _ in range(10):
        await asyncio.sleep(0.4)
        await site.scheduler.contact(since_boot_s())
    assert alive(pid) and (await site.state_of("job-1")).phase == Phase.RUNNING
    assert (await site.ended("job-1")).outcome == FENCED


async def test_contact_counts_from_when_it_was_sent(site: Site) -> None:
    """An answer that took long puts nothing off: the deadline is that of what it answers."""
    sent_s = since_boot_s()
    pid = await started(site)
    await asyncio.sleep(1.5)
    await site.scheduler.contact(sent_s)
    wait_gone(pid, timeout_s=3)


async def test_late_contact_revives_nothing(site: Site) -> None:
    await started(site, run=STUBBORN, grace_s=3)
    await asyncio.sleep(3)
    await site.scheduler.contact(since_boot_s())
    assert (await site.ended("job-1", timeout_s=6)).outcome == FENCED


async def test_without_a_deadline_silence_stops_nothing(site: Site) -> None:
    pid = await started(site, fence_after_s=0)
    await asyncio.sleep(3)
    assert alive(pid)


async def test_what_is_overdue_when_it_is_ordered_never_starts(site: Site) -> None:
    late_s = since_boot_s() - 10
    await site.scheduler.submit(order(run="touch ran", fence_after_s=2, contact_s=late_s))
    assert (await site.ended("job-1")).outcome == FENCED
    assert not (site.work("job-1") / "ran").exists()


async def test_an_order_without_any_contact_never_starts(site: Site) -> None:
    await site.scheduler.submit(order(run="touch ran", fence_after_s=600))
    assert (await site.ended("job-1")).outcome == FENCED
    assert not (site.work("job-1") / "ran").exists()


async def test_tasks_not_yet_started_stay_unstarted(site: Site) -> None:
    slice_ = array("job-1", "sleep 1", 9, 1, fence_after_s=2, contact_s=since_boot_s(), grace_s=1)
    state = await site.run(slice_)
    assert state.outcome == FENCED and state.tasks.unstarted


async def test_a_gang_is_stopped_whole(site: Site) -> None:
    run = "echo $$ > ran.$TRADEWIND_RANK; sleep 60"
    wanted = {"fence_after_s": 2, "grace_s": 1, "contact_s": since_boot_s()}
    await site.scheduler.submit(order(run=run, replicas=2, **wanted))
    said = [await wait_for_file(site.work("job-1") / f"ran.{rank}") for rank in (0, 1)]
    pids = [site.pid("job-1", pid, rank) for rank, pid in enumerate(said)]
    assert (await site.ended("job-1")).outcome == FENCED
    for pid in pids:
        wait_gone(pid)


async def test_a_keeper_that_starts_anew_promises_no_more_time(site: Site) -> None:
    pid = await started(site, fence_after_s=4)
    contact_s = since_boot_s()
    await site.scheduler.contact(contact_s)
    site.kill_keeper()
    await asyncio.sleep(1)
    assert (await site.state_of("job-1")).phase == Phase.RUNNING  # taken up in time
    wait_gone(pid, timeout_s=10)
    assert 4 <= since_boot_s() - contact_s < 4 + 1 + 2


async def test_a_keeper_that_starts_too_late_stops_at_once(site: Site) -> None:
    pid = await started(site)
    site.kill_keeper()
    await asyncio.sleep(4)
    began_s = time.monotonic()
    state = await site.ended("job-1")
    assert state.outcome == FENCED
    wait_gone(pid)
    assert time.monotonic() - began_s < 3


async def test_contact_of_another_boot_counts_for_nothing(site: Site) -> None:
    pid = await started(site, fence_after_s=600)
    site.kill_keeper()
    contact = site.state / "contact.json"
    contact.write_text(json.dumps({"boot": "another", "at_s": since_boot_s() + 1e6}))
    journal = site.state / "attempts" / "job-1" / "journal"
    assert b'"contact":[' in journal.read_bytes()
    assert (await site.state_of("job-1")).phase == Phase.RUNNING  # by the order's own contact
    assert alive(pid)
