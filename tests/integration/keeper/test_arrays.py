"""Slices of arrays: width, order, changes on the way, and what is told of it."""

import asyncio
import time

from federation.refusals import Refusal
from federation.runs import Runs
from regional_agent.act.keeper.server import PUSH_EVERY_S
from regional_agent.act.schedulers.port import LocalState, Outcome, OutcomeKind, Phase
from regional_agent.session.ledger import Place
from tests.keeper_site import Site, array, order

ALL = Runs(((0, 99),))


async def test_every_task_runs_once_and_results_come_as_runs(site: Site) -> None:
    run = "echo $TRADEWIND_TASK >> ran; case $TRADEWIND_TASK in *7) exit 4;; 50) kill -9 $$;; esac"
    state = await site.run(array("job-1", run, 100, 4))
    ran = (site.work("job-1") / "ran").read_text().split()
    assert sorted(map(int, ran)) == list(range(100))
    sevens = Runs.of((n, n) for n in range(7, 100, 10))
    results = dict(state.tasks.ended)
    assert results[Outcome(OutcomeKind.FAILED, exit_code=4)] == sevens
    assert results[Outcome(OutcomeKind.SIGNALLED, signal=9)] == Runs(((50, 50),))
    assert state.tasks.with_outcome(OutcomeKind.SUCCEEDED).count == 89
    # The gravest of its tasks' outcomes is that of the array.
    assert state.outcome == Outcome(OutcomeKind.SIGNALLED, signal=9)


async def test_never_more_at_once_than_its_width(site: Site) -> None:
    mine = "lane.$TRADEWIND_TASK"
    run = f"mkdir {mine} && ls -d lane.* | wc -l >> seen; sleep 0.05; rmdir {mine}"
    await site.run(array("job-1", run, 20, 3))
    seen = [int(n) for n in (site.work("job-1") / "seen").read_text().split()]
    assert len(seen) == 20 and max(seen) == 3


async def test_each_lane_has_its_own_cards(site: Site) -> None:
    seats = tuple(Place("h100", 0, (lane,)) for lane in range(3))
    run = (
        "mkdir card.$CUDA_VISIBLE_DEVICES || exit 1; sleep 0.05; rmdir card.*$CUDA_VISIBLE_DEVICES"
    )
    state = await site.run(array("job-1", run, 15, 3, accelerator="H100", places=seats))
    assert state.outcome == Outcome(OutcomeKind.SUCCEEDED)


async def test_logs_by_task(site: Site) -> None:
    await site.run(array("job-1", "[ $TRADEWIND_TASK = 1 ] || echo task $TRADEWIND_TASK", 3, 3))
    assert await site.log("job-1", "task-2") == "task 2\n"
    extents = await site.scheduler.log_extents("job-1")
    assert [e.stream for e in extents] == ["task-0", "task-2"]


async def test_max_runtime_counts_for_each_task(site: Site) -> None:
    run = "[ $TRADEWIND_TASK = 1 ] && exec sleep 60; sleep 0.1"
    state = await site.run(array("job-1", run, 3, 1, max_runtime_s=1))
    assert state.tasks.with_outcome(OutcomeKind.TIMED_OUT) == Runs(((1, 1),))
    assert state.tasks.with_outcome(OutcomeKind.SUCCEEDED) == Runs(((0, 0), (2, 2)))


async def test_unstarted_tasks_can_be_taken_back_and_others_added(site: Site) -> None:
    run = "echo $TRADEWIND_TASK >> ran; until [ -e go ]; do sleep 0.02; done"
    await site.scheduler.submit(array("job-1", run, 100, 2))
    await site.until("job-1", lambda s: s.tasks.running.count == 2)
    # Tasks 0 and 1 run: they stay, whatever is asked.
    now = await site.scheduler.set_slice("job-1", Runs(((5, 6), (200, 200))), width=3)
    assert now == Runs(((0, 1), (5, 6), (200, 200)))
    again = await site.scheduler.set_slice("job-1", Runs(((5, 6), (200, 200))), width=3)
    assert again == now
    (site.work("job-1") / "go").touch()
    state = await site.ended("job-1")
    assert state.tasks.with_outcome(OutcomeKind.SUCCEEDED) == now
    assert sorted(map(int, (site.work("job-1") / "ran").read_text().split())) == [
        0, 1, 5, 6, 200,
    ]  # fmt: skip


async def test_a_slice_that_has_ended_takes_nothing_more(site: Site) -> None:
    await site.run(array("job-1", "true", 3, 1))
    assert await site.scheduler.set_slice("job-1", Runs(((7, 7),)), 1) == Runs(((0, 2),))


async def test_no_slice_of_what_is_no_array(site: Site) -> None:
    await site.run(order())
    assert isinstance(await site.scheduler.set_slice("job-1", ALL, 1), Refusal)
    assert isinstance(await site.scheduler.set_slice("other-1", ALL, 1), Refusal)


async def test_no_more_lanes_than_places(site: Site) -> None:
    seats = (Place("h100", 0, (0,)), Place("h100", 0, (1,)))
    await site.scheduler.submit(array("job-1", "sleep 60", 9, 2, places=seats))
    assert isinstance(await site.scheduler.set_slice("job-1", ALL, 3), Refusal)
    assert isinstance(await site.scheduler.set_slice("job-1", ALL, 1), Runs)


async def test_a_lane_given_back_is_free_once_its_task_has_ended(site: Site) -> None:
    """Narrowing does not stop what runs; it starts nothing new in the lanes given back."""
    run = "until [ -e go$TRADEWIND_TASK ]; do sleep 0.02; done"
    await site.scheduler.submit(array("job-1", run, 10, 3))
    await site.until("job-1", lambda s: s.tasks.running.count == 3)
    await site.scheduler.set_slice("job-1", Runs(((0, 9),)), width=1)
    assert (await site.state_of("job-1")).tasks.running == Runs(((0, 2),))
    for n in (1, 2):
        (site.work("job-1") / f"go{n}").touch()
    state = await site.until("job-1", lambda s: s.tasks.running.count == 1)
    assert state.tasks.running == Runs(((0, 0),))


async def test_cancel_leaves_unstarted_tasks_unstarted(site: Site) -> None:
    await site.scheduler.submit(array("job-1", "exec sleep 60", 10, 2))
    await site.until("job-1", lambda s: s.tasks.running.count == 2)
    await site.scheduler.cancel("job-1", grace_s=5)
    state = await site.ended("job-1")
    assert state.outcome == Outcome(OutcomeKind.CANCELLED)
    assert state.tasks.unstarted == Runs(((2, 9),))
    assert state.tasks.with_outcome(OutcomeKind.CANCELLED) == Runs(((0, 1),))


async def test_two_hundred_short_tasks_a_second(site: Site) -> None:
    began_s = time.monotonic()
    state = await site.run(array("job-1", "", 600, 8, argv=("/bin/true",)), timeout_s=60)
    assert state.tasks.with_outcome(OutcomeKind.SUCCEEDED).count == 600
    assert time.monotonic() - began_s < 20  # a bound against standstill; speed is for benchmarks


async def test_changes_come_in_batches_and_begin_with_everything(site: Site) -> None:
    await site.run(order("old-1", "exit 1"))
    times: list[float] = []
    states: list[LocalState] = []

    async def listen() -> None:
        async for batch in site.scheduler.changes():
            times.append(time.monotonic())
            states.extend(change.state for change in batch)
            if any(s.uid == "job-1" and s.phase == Phase.ENDED for s in states):
                return

    listener = asyncio.create_task(listen())
    await site.until("old-1", lambda _: bool(states))
    assert states[0].uid == "old-1" and states[0].phase == Phase.ENDED
    await site.scheduler.submit(array("job-1", "", 200, 4, argv=("/bin/true",)))
    await asyncio.wait_for(listener, 30)
    assert states[-1].tasks.with_outcome(OutcomeKind.SUCCEEDED).count == 200
    gaps = [b - a for a, b in zip(times, times[1:], strict=False)]
    assert min(gaps) > PUSH_EVERY_S * 0.8
    assert len(states) < 200  # never one message per task
