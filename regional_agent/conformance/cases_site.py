"""Cases of the site: its breakages, its strangers, arrays and gangs."""

from __future__ import annotations

import asyncio

from federation.refusals import Refusal
from federation.runs import Runs
from regional_agent.act.schedulers.port import Feature, LocalState, OutcomeKind, Phase
from regional_agent.conformance.cases_submit import A_WHILE, LONG
from regional_agent.conformance.rig import SECRET, Ability, CaseFailed, Program, Trial, check
from regional_agent.conformance.suite import case

GRADES = ("shared-uid", "per-user", "sandboxed", "hard")
RANKS = Program(
    "echo rank $TRADEWIND_RANK of $TRADEWIND_WORLD_SIZE $RANK $WORLD_SIZE local $LOCAL_RANK"
    " head $TRADEWIND_HEAD_ADDRESS; sleep 0.5",
    shell=True,
)
ONE_FAILS = Program('[ "$TRADEWIND_RANK" = 1 ] && exit 7; sleep 120', shell=True)
SECOND_FAILS = Program('sleep 0.3; [ "$TRADEWIND_TASK" = 1 ] && exit 9; exit 0', shell=True)
GONE = (OutcomeKind.LOST, OutcomeKind.PREEMPTED, OutcomeKind.CANCELLED)


@case("requeue", "the local scheduler runs it again by itself: the second copy does not run")
async def _requeue(trial: Trial) -> str:
    breakage = trial.ability(Ability.REQUEUE)
    order = trial.order(LONG)
    await trial.submit(order)
    await trial.started(order.uid)
    await breakage(order.uid)
    state = await trial.ended(order.uid, 20)
    assert state.outcome is not None
    check(state.outcome.kind in GONE, f"its outcome is {state.outcome}")
    await asyncio.sleep(1)
    await trial.once(order.uid)
    return f"{state.outcome.kind}: {state.detail}"


@case("node_death", "the node dies: lost, not failed, and it does not run again")
async def _node_death(trial: Trial) -> str:
    breakage = trial.ability(Ability.NODE_DIES)
    order = trial.order(LONG)
    await trial.submit(order)
    await trial.started(order.uid)
    await breakage(order.uid)
    state = await trial.ended(order.uid, 30)
    assert state.outcome is not None
    check(state.outcome.kind is OutcomeKind.LOST, f"its outcome is {state.outcome}")
    await trial.rig.heal()
    await asyncio.sleep(1)
    await trial.once(order.uid)
    return state.detail


@case("unknown_state", "a state nobody has heard of is no end and no failure")
async def _unknown_state(trial: Trial) -> str:
    breakage = trial.ability(Ability.UNKNOWN_STATE)
    order = trial.order(LONG)
    await trial.submit(order)
    await trial.started(order.uid)
    await breakage(order.uid)
    await asyncio.sleep(min(5.0, trial.rig.patience_s))
    state = await trial.state(order.uid)
    check(state.phase is not Phase.ENDED, f"taken for an end: {state.outcome}")
    await trial.rig.heal()
    await trial.scheduler.cancel(order.uid, 0)
    await trial.ended(order.uid)
    return state.detail


@case("removed", "an administrator removes it behind the agent's back: it ends, with the reason")
async def _removed(trial: Trial) -> str:
    breakage = trial.ability(Ability.REMOVE)
    order = trial.order(LONG)
    await trial.submit(order)
    await trial.started(order.uid)
    await breakage(order.uid)
    state = await trial.ended(order.uid, 20)
    assert state.outcome is not None
    check(state.outcome.kind in GONE, f"its outcome is {state.outcome}")
    check(state.detail, "no sentence says why")
    await trial.once(order.uid)
    return f"{state.outcome.kind}: {state.detail}"


@case("clean_environment", "a job's environment holds nothing of the agent's")
async def _clean_environment(trial: Trial) -> None:
    order = trial.order(Program("env", shell=True), env=(("COLOUR", "blue"),))
    await trial.submit(order)
    await trial.ended(order.uid)
    found = dict(
        line.split("=", 1) for line in (await trial.log(order.uid)).splitlines() if "=" in line
    )
    check(found.get("COLOUR") == "blue", "a variable of the order is missing")
    check(found.get("TRADEWIND_ATTEMPT") == order.uid, "TRADEWIND_ATTEMPT is not its uid")
    leaked = [name for name in found if "TW_AGENT" in name or name.startswith("PYTEST")]
    check(not leaked, f"of the agent's environment: {leaked}")


@case("nosy_job", "a job reads no key, journal or foreign file, or the site claims no such grade")
async def _nosy_job(trial: Trial) -> str:
    paths = trial.rig.secrets
    order = trial.order(Program("; ".join(f"cat '{path}'" for path in paths), shell=True))
    await trial.submit(order)
    await trial.ended(order.uid)
    read = (await trial.log(order.uid)).count(SECRET)
    grade = trial.rig.isolation
    check(not read or grade == GRADES[0], f"claims {grade}, and a job reads {read} foreign files")
    return f"{grade}: read {read} of {len(paths)} files"


@case("gang", "a process per replica, with rank, size and a place to meet", Feature.GANG)
async def _gang(trial: Trial) -> None:
    order = trial.order(RANKS, replicas=3)
    await trial.submit(order)
    state = await trial.ended(order.uid)
    check(state.outcome and state.outcome.kind is OutcomeKind.SUCCEEDED, f"{state.outcome}")
    await trial.once(order.uid)
    for rank in range(3):
        text = await trial.log(order.uid, "output" if rank == 0 else f"output.r{rank}")
        check(f"rank {rank} of 3 {rank} 3 local" in text, f"rank {rank} says {text!r}")
        check("head" in text and ":" in text, f"rank {rank} does not know where to meet: {text!r}")
    check(len(await trial.rig.begun(order.uid)) == 3, "not three processes")


@case("gang_member_lost", "one member that fails ends the gang", Feature.GANG)
async def _gang_member_lost(trial: Trial) -> None:
    order = trial.order(ONE_FAILS, replicas=2)
    await trial.submit(order)
    state = await trial.ended(order.uid)
    assert state.outcome is not None
    right = (OutcomeKind.FAILED, 7)
    check((state.outcome.kind, state.outcome.exit_code) == right, f"{state.outcome}")


@case("array", "tasks run `width` at a time; each has its own end and log", Feature.ARRAY)
async def _array(trial: Trial) -> None:
    order = trial.order(SECOND_FAILS, tasks=Runs(((0, 4),)), width=2)
    await trial.submit(order)
    most = 0

    def look(state: LocalState) -> bool:
        nonlocal most
        most = max(most, state.tasks.running.count)
        return state.phase is Phase.ENDED

    state = await trial.until(order.uid, look, "ended", 4 * trial.rig.patience_s)
    check(most <= 2, f"{most} tasks at once, allowed are 2")
    check(state.tasks.with_outcome(OutcomeKind.FAILED) == Runs(((1, 1),)), f"{state.tasks}")
    check(state.tasks.with_outcome(OutcomeKind.SUCCEEDED).count == 4, f"{state.tasks}")
    check(len(await trial.rig.begun(order.uid)) == 5, "not five tasks began")
    await trial.once(order.uid)


@case("set_slice", "tasks are taken back and added while it runs; none runs twice",
      Feature.ARRAY, Feature.SET_SLICE)  # fmt: skip
async def _set_slice(trial: Trial) -> None:
    order = trial.order(A_WHILE, tasks=Runs(((0, 9),)), width=1)
    await trial.submit(order)
    await trial.started(order.uid)
    wanted = Runs(((0, 1), (20, 21)))
    now = await trial.scheduler.set_slice(order.uid, wanted, 2)
    if isinstance(now, Refusal):
        raise CaseFailed(f"refused: {now.text}")
    check(not wanted.difference(now), f"the slice is {now}")
    state = await trial.ended(order.uid, 4 * trial.rig.patience_s)
    ran = state.tasks.with_outcome(OutcomeKind.SUCCEEDED)
    check(ran == now, f"slice {now}, succeeded {ran}; {state.detail}")
    begun = {int(which.split(".")[0]) for which in await trial.rig.begun(order.uid)}
    check(begun == set(now), f"slice {now}, began {sorted(begun)}")
    await trial.once(order.uid)
