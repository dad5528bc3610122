"""Cases of contact deadlines: what is stopped in a silence has stopped; nothing begins after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from federation.runs import Runs
from regional_agent.act.schedulers.port import Feature, Fencing, LaunchOrder, OutcomeKind, Phase
from regional_agent.conformance.rig import CaseFailed, Program, Trial, check
from regional_agent.conformance.suite import case
from regional_agent.contact import since_boot_s

AFTER_S, GRACE_S = 4, 1
TASKS = 4
STUBBORN = Program("trap '' TERM; while :; do echo beat; sleep 0.2; done", shell=True)


@asynccontextmanager
async def _contact(trial: Trial) -> AsyncIterator[None]:
    """As long as there are heartbeats, and they are answered."""
    scheduler = trial.scheduler
    if not isinstance(scheduler, Fencing):
        raise CaseFailed("it says that it keeps deadlines, and cannot be told of contact")

    async def beat() -> None:
        while True:
            await scheduler.contact(since_boot_s())
            await asyncio.sleep(0.3)

    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)


def _order(trial: Trial, **changes: object) -> LaunchOrder:
    deadline = {"fence_after_s": AFTER_S, "grace_s": GRACE_S, "contact_s": since_boot_s()}
    return trial.order(STUBBORN, 1, **deadline, **changes)


@case("fence", "with contact it runs on; without it it is killed in time, and says why",
      Feature.FENCE)  # fmt: skip
async def _fence(trial: Trial) -> str:
    order = _order(trial)
    await trial.submit(order)
    async with _contact(trial):
        await trial.started(order.uid)
        await asyncio.sleep(AFTER_S + 1.5)
        check((await trial.state(order.uid)).phase is Phase.RUNNING, "stopped in spite of contact")
    silent_s = since_boot_s()
    state = await trial.ended(order.uid)
    took_s = since_boot_s() - silent_s
    assert state.outcome is not None
    check(state.outcome.kind is OutcomeKind.FENCED, f"its outcome is {state.outcome}")
    check("no contact" in state.detail, f"it says {state.detail!r}")
    beats = (await trial.log(order.uid)).count("beat")
    async with _contact(trial):
        await asyncio.sleep(1)
    check((await trial.log(order.uid)).count("beat") == beats, "its program runs on")
    await trial.once(order.uid)
    return f"ended {took_s:.1f} s into a silence of {AFTER_S} s and a grace of {GRACE_S} s"


@case("fence_array", "tasks that had not begun in a silence never begin, also once it is over",
      Feature.FENCE, Feature.ARRAY)  # fmt: skip
async def _fence_array(trial: Trial) -> None:
    order = _order(trial, tasks=Runs(((0, TASKS - 1),)), width=1)
    await trial.submit(order)
    async with _contact(trial):
        await trial.started(order.uid)
    await asyncio.sleep(AFTER_S + GRACE_S)
    began = await trial.rig.begun(order.uid)
    async with _contact(trial):
        state = await trial.ended(order.uid)
    assert state.outcome is not None
    check(state.outcome.kind is OutcomeKind.FENCED, f"its outcome is {state.outcome}")
    check(len(began) == 1, f"these began: {dict(began)}")
    check(state.tasks.unstarted.count == TASKS - len(began), f"{state.tasks}")
    check(await trial.rig.begun(order.uid) == began, "a task began after the silence")
