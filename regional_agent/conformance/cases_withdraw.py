"""Cases of taking back: what waits in a local queue is gone for good, or has begun and runs on."""

from __future__ import annotations

import asyncio

from federation.refusals import Refusal
from federation.runs import Runs
from regional_agent.act.schedulers.port import Feature, OutcomeKind, Phase
from regional_agent.conformance.cases_submit import A_WHILE, SHORT
from regional_agent.conformance.rig import Ability, CaseFailed, Program, Trial, check
from regional_agent.conformance.suite import case

AT_ONCE = 3
"""Attempts that wait when a site opens and takes them back in the same breath."""
RUNS_ON = Program("sleep 4", runs_s=4)
"""Longer than it takes to ask for all of them: what has ended is gone too."""


async def _waiting(
    trial: Trial, nth: int = 1, program: Program = A_WHILE, **changes: object
) -> str:
    order = trial.order(program, nth, **changes)
    await trial.submit(order)
    await trial.until(order.uid, lambda s: s.phase is Phase.QUEUED, "queued")
    return order.uid


async def _never_began(trial: Trial, uid: str) -> None:
    state = await trial.ended(uid)
    ended = state.outcome is not None and state.outcome.kind is OutcomeKind.CANCELLED
    check(ended, f"it was taken back, and its outcome is {state.outcome}; {state.detail}")
    check(not await trial.rig.begun(uid), f"{uid} was taken back, and began")


@case("withdraw_queued", "what waits is taken back, whoever asks how often: it never starts",
      Feature.QUEUE)  # fmt: skip
async def _withdraw_queued(trial: Trial) -> None:
    fill = trial.ability(Ability.FILL)
    await fill(f"{trial.name}-1")
    uid = await _waiting(trial)
    for _ in range(2):
        check(await trial.scheduler.withdraw(uid), "it is told to have begun")
    await trial.again()
    check(await trial.scheduler.withdraw(uid), "the next agent is told that it has begun")
    await _never_began(trial, uid)
    await trial.rig.heal()
    await asyncio.sleep(min(2.0, trial.rig.patience_s))
    await _never_began(trial, uid)


@case("withdraw_at_start", "taken back as the site opens: gone for good, or it runs once",
      Feature.QUEUE)  # fmt: skip
async def _withdraw_at_start(trial: Trial) -> str:
    fill = trial.ability(Ability.FILL)
    await fill(f"{trial.name}-1")
    uids = [await _waiting(trial, nth, RUNS_ON) for nth in range(1, AT_ONCE + 1)]

    async def later(nth: int, uid: str) -> bool:
        await asyncio.sleep(nth * trial.rig.patience_s / 60)
        return await trial.scheduler.withdraw(uid)

    gone, _ = await asyncio.gather(
        asyncio.gather(*(later(nth, uid) for nth, uid in enumerate(uids))), trial.rig.heal()
    )
    for uid, taken in zip(uids, gone, strict=True):
        if taken:
            await _never_began(trial, uid)
        else:
            state = await trial.ended(uid, RUNS_ON.runs_s)
            whole = state.outcome is not None and state.outcome.kind is OutcomeKind.SUCCEEDED
            check(whole, f"it had begun, and its outcome is {state.outcome}; {state.detail}")
            await trial.once(uid)
    return f"{sum(gone)} of {len(gone)} taken back"


@case("withdraw_running", "what has begun is not taken back: it runs on to its own end")
async def _withdraw_running(trial: Trial) -> None:
    order = trial.order(A_WHILE)
    await trial.submit(order)
    await trial.started(order.uid)
    check(not await trial.scheduler.withdraw(order.uid), "it is told to be gone")
    state = await trial.ended(order.uid, 1)
    whole = state.outcome is not None and state.outcome.kind is OutcomeKind.SUCCEEDED
    check(whole, f"its outcome is {state.outcome}; {state.detail}")
    await trial.once(order.uid)


@case("withdraw_unknown", "what is taken back before its launch never runs")
async def _withdraw_unknown(trial: Trial) -> None:
    order = trial.order(SHORT)
    check(await trial.scheduler.withdraw(order.uid), "it is told to have begun")
    await trial.submit(order)
    await _never_began(trial, order.uid)


@case("slice_taken_back", "all tasks of an array that waits are taken back: none begins",
      Feature.QUEUE, Feature.ARRAY, Feature.SET_SLICE)  # fmt: skip
async def _slice_taken_back(trial: Trial) -> None:
    fill = trial.ability(Ability.FILL)
    await fill(f"{trial.name}-1")
    uid = await _waiting(trial, tasks=Runs(((0, 3),)), width=2)
    for _ in range(2):
        left = await trial.scheduler.set_slice(uid, Runs(), 2)
        if isinstance(left, Refusal):
            raise CaseFailed(f"refused: {left.text}")
        check(not left, f"tasks {left} stay in the slice")
    await trial.scheduler.cancel(uid, 0)
    await trial.ended(uid)
    await trial.rig.heal()
    await asyncio.sleep(min(2.0, trial.rig.patience_s))
    check(not await trial.rig.begun(uid), "a task of it began")


@case("withdraw_array", "an array that waits is taken back whole, or runs whole: no task twice",
      Feature.QUEUE, Feature.ARRAY, Feature.SET_SLICE)  # fmt: skip
async def _withdraw_array(trial: Trial) -> str:
    fill = trial.ability(Ability.FILL)
    await fill(f"{trial.name}-1")
    tasks = Runs(((0, 3),))
    first = await _waiting(trial, tasks=tasks, width=2)
    for _ in range(2):
        check(await trial.scheduler.withdraw(first), "it is told to have begun")
    await _never_began(trial, first)
    second = await _waiting(trial, 2, tasks=tasks, width=2)

    async def later() -> bool:
        await asyncio.sleep(trial.rig.patience_s / 30)
        return await trial.scheduler.withdraw(second)

    gone, _ = await asyncio.gather(later(), trial.rig.heal())
    state = await trial.ended(second, 4 * A_WHILE.runs_s)
    begun = await trial.rig.begun(second)
    ran = state.tasks.with_outcome(OutcomeKind.SUCCEEDED)
    check(set(begun.values()) <= {1}, f"tasks began {dict(begun)} times")
    if gone and ran != tasks:  # all of it may have run before it was asked for
        check(not begun, f"it was taken back, and began {dict(begun)}")
    else:
        check(ran == tasks, f"it had begun, and only {ran} succeeded; {state.detail}")
    return "the second was taken back" if gone else "the second had begun"
