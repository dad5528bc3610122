"""Cases of submission: exactly once, adoption, batches, names."""

from __future__ import annotations

import asyncio

from regional_agent.act.schedulers.port import Feature, OutcomeKind, Phase, SchedulerUnavailable
from regional_agent.conformance.rig import (
    Ability,
    CaseFailed,
    Crashed,
    NotTried,
    Program,
    Trial,
    check,
)
from regional_agent.conformance.suite import case

SHORT = Program("true", runs_s=0.05)
LONG = Program("sleep 120", runs_s=120)
A_WHILE = Program("sleep 1", runs_s=1)
CRASHING_S = 10.0


@case("submit_twice", "the same uid again is the same attempt, during its run and after its end")
async def _submit_twice(trial: Trial) -> None:
    order = trial.order(A_WHILE)
    first = await trial.submit(order)
    check(await trial.submit(order) == first, "another local id at the second submission")
    await trial.ended(order.uid, 1)
    await trial.submit(order)
    check(await trial.scheduler.find(order.uid) == first, "find knows another local id")
    await trial.once(order.uid)


@case("exactly_once", "a crash between any two steps of a submission: it runs, once")
async def _exactly_once(trial: Trial) -> str:
    points = trial.rig.crash_points
    if not points:
        raise NotTried("this adapter keeps nothing of its own between two steps")
    for nth, point in enumerate(points, 1):
        order = trial.order(A_WHILE, nth)
        await trial.again(crash_at=point)
        try:
            async with asyncio.timeout(CRASHING_S):
                await trial.scheduler.submit(order)
        except (Crashed, SchedulerUnavailable, TimeoutError):
            pass
        await trial.again()
        await trial.submit(order)
        state = await trial.ended(order.uid, 1)
        begun = await trial.rig.begun(order.uid)
        check(set(begun.values()) <= {1}, f"crash at {point}: began {dict(begun)} times")
        if not begun:
            lost = state.outcome is not None and state.outcome.kind is OutcomeKind.LOST
            check(lost, f"crash at {point}: it never ran and is {state.outcome}, not lost")
    return f"{len(points)} crash points"


@case("adopted", "attempts outlive the agent; a new one knows them and their ends", Feature.ADOPT)
async def _adopted(trial: Trial) -> None:
    order = trial.order(Program("sleep 1; exit 5", runs_s=1, exit_code=5))
    await trial.submit(order)
    await trial.started(order.uid)
    await trial.again()
    check(order.uid in await trial.scheduler.attempts(), "a new agent does not know it")
    check(await trial.scheduler.find(order.uid), "a new agent does not find it")
    state = await trial.ended(order.uid, 1)
    assert state.outcome is not None
    check(state.outcome.exit_code == 5, f"its end became {state.outcome}")
    await trial.again()
    check((await trial.state(order.uid)).outcome == state.outcome, "its end changed afterwards")
    await trial.once(order.uid)


@case("batch_status", "one request tells the state of many; one never heard of is unknown")
async def _batch_status(trial: Trial) -> None:
    orders = [trial.order(SHORT, nth) for nth in range(1, 6)]
    for order in orders:
        await trial.submit(order)
    for order in orders:
        await trial.ended(order.uid)
    states = await trial.scheduler.status([*(o.uid for o in orders), "never-1"])
    check(len(states) == 6, f"{len(states)} states for 6 uids")
    ended = [uid for uid, state in states.items() if state.phase is Phase.ENDED]
    check(len(ended) == 5, f"ended are {ended}")
    check(states["never-1"].phase is Phase.UNKNOWN, f"never-1 is {states['never-1'].phase}")


@case("changes_tell", "changes begin with everything, and tell start and end without being asked")
async def _changes_tell(trial: Trial) -> None:
    order = trial.order(A_WHILE)
    seen: list[Phase] = []

    async def listen() -> None:
        async for batch in trial.scheduler.changes():
            seen.extend(change.state.phase for change in batch if change.uid == order.uid)
            if Phase.ENDED in seen:
                return

    listening = asyncio.create_task(listen())
    try:
        await trial.submit(order)
        async with asyncio.timeout(3 * trial.rig.patience_s):
            await listening
    except TimeoutError:
        pass
    finally:
        listening.cancel()
    check(Phase.ENDED in seen, f"only {seen} was told")


@case("same_name", "two attempts of one name are two; a stranger's job of that name is left alone")
async def _same_name(trial: Trial) -> str:
    first, second = trial.order(LONG), trial.order(LONG, 2)
    namesake = trial.rig.abilities.get(Ability.NAMESAKE)
    if namesake is not None:
        await namesake(first.uid)
    await trial.submit(first)
    await trial.submit(second)
    await trial.started(first.uid)
    await trial.started(second.uid)
    await trial.scheduler.cancel(first.uid, 0)
    await trial.ended(first.uid)
    check((await trial.state(second.uid)).phase is Phase.RUNNING, "the other one ended too")
    await trial.once(first.uid)
    return "" if namesake else "without a stranger's job"


@case("forgotten", "forget takes an ended attempt away, and never one that runs")
async def _forgotten(trial: Trial) -> None:
    order = trial.order(LONG)
    await trial.submit(order)
    await trial.started(order.uid)
    try:
        await trial.scheduler.forget(order.uid)
    except ValueError:
        pass
    else:
        raise CaseFailed("forgot an attempt that runs")
    await trial.scheduler.cancel(order.uid, 0)
    await trial.ended(order.uid)
    await trial.scheduler.forget(order.uid)
    await trial.scheduler.forget(order.uid)
    check(order.uid not in await trial.scheduler.attempts(), "it is still there")
    check((await trial.state(order.uid)).phase is Phase.UNKNOWN, "it is still known")
