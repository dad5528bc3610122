"""Cases of ends: outcomes, cancels, limits, logs."""

from __future__ import annotations

import asyncio
import signal

from regional_agent.act.schedulers.port import Feature, LocalState, Outcome, OutcomeKind, Phase
from regional_agent.conformance.cases_submit import LONG, SHORT
from regional_agent.conformance.rig import Ability, CaseFailed, Program, Trial, check
from regional_agent.conformance.suite import case

SAVES = Program(
    "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.1; done", shell=True
)
STUBBORN = Program("trap '' TERM; echo up; while :; do sleep 0.1; done", shell=True)
HOG = Program(
    # Not every image has a Python; tail keeps what it was told to print.
    "command -v python3 >/dev/null || exec sh -c '"
    "{ head -c 600000000 /dev/zero; sleep 5; } | tail -c 600000000 >/dev/null'; "
    "exec python3 -c 'import time; x = bytearray(600_000_000); x[::4096] = b\"x\" * "
    "len(x[::4096]); time.sleep(60)'",
    shell=True,
)
MIB = 2**20


def _is(state: LocalState, kind: OutcomeKind, code: int = 0, number: int = 0) -> None:
    wanted = Outcome(kind, exit_code=code, signal=number)
    check(state.outcome == wanted, f"its outcome is {state.outcome}, not {wanted}; {state.detail}")


async def _run(trial: Trial, program: Program, nth: int = 1, **changes: object) -> LocalState:
    order = trial.order(program, nth, **changes)
    await trial.submit(order)
    return await trial.ended(order.uid, program.runs_s)


@case("succeeds", "exit code 0 is success, with times in order")
async def _succeeds(trial: Trial) -> None:
    state = await _run(trial, SHORT)
    _is(state, OutcomeKind.SUCCEEDED)
    times = (state.submitted_ms, state.started_ms, state.ended_ms)
    check(times[0] > 0 and times[1] <= times[2], f"submitted, started, ended at {times}")
    await trial.once(state.uid)


@case("exit_code", "an exit code is kept")
async def _exit_code(trial: Trial) -> None:
    state = await _run(trial, Program("exit 42", runs_s=0.05, exit_code=42))
    _is(state, OutcomeKind.FAILED, code=42)


@case("dies_of_signal", "death by a signal of its own is told apart from exit codes")
async def _dies_of_signal(trial: Trial) -> None:
    state = await _run(trial, Program("kill -SEGV $$", shell=True))
    _is(state, OutcomeKind.SIGNALLED, number=signal.SIGSEGV)


@case("usage", "wall time of what ran is known at its end")
async def _usage(trial: Trial) -> None:
    state = await _run(trial, Program("sleep 1.5", runs_s=1.5))
    check(1_000 <= state.usage.wall_ms < 60_000, f"wall time {state.usage.wall_ms} ms for 1.5 s")


@case("cancel_before_submit", "a cancel that comes before its launch wins over it")
async def _cancel_before_submit(trial: Trial) -> None:
    order = trial.order(SHORT)
    await trial.scheduler.cancel(order.uid, 0)
    await trial.submit(order)
    _is(await trial.ended(order.uid), OutcomeKind.CANCELLED)
    check(not await trial.rig.begun(order.uid), "it ran")


@case("cancel_at_once", "a cancel in the same breath as the launch ends it")
async def _cancel_at_once(trial: Trial) -> None:
    order = trial.order(LONG)
    await trial.submit(order)
    await trial.scheduler.cancel(order.uid, 0)
    _is(await trial.ended(order.uid), OutcomeKind.CANCELLED)


@case("cancel_queued", "a cancel of what waits in the local queue: it never starts")
async def _cancel_queued(trial: Trial) -> None:
    fill = trial.ability(Ability.FILL)
    order = trial.order(SHORT)
    await fill(order.uid)
    await trial.submit(order)
    await trial.until(order.uid, lambda s: s.phase is Phase.QUEUED, "queued")
    await trial.scheduler.cancel(order.uid, 0)
    _is(await trial.ended(order.uid), OutcomeKind.CANCELLED)
    await trial.rig.heal()
    check(not await trial.rig.begun(order.uid), "it ran")


@case("cancel_running", "a cancel lets a program save within its grace")
async def _cancel_running(trial: Trial) -> None:
    order = trial.order(SAVES)
    await trial.submit(order)
    await trial.started(order.uid)
    await trial.scheduler.cancel(order.uid, 20)
    _is(await trial.ended(order.uid), OutcomeKind.CANCELLED)
    check("saved" in await trial.log(order.uid), "it was not told to stop before its end")


@case("cancel_stubborn", "what ignores the signal is killed when its grace is over")
async def _cancel_stubborn(trial: Trial) -> None:
    order = trial.order(STUBBORN)
    await trial.submit(order)
    await trial.started(order.uid)
    await trial.scheduler.cancel(order.uid, 1)
    _is(await trial.ended(order.uid), OutcomeKind.CANCELLED)


@case("cancel_ended", "a cancel after the end changes nothing")
async def _cancel_ended(trial: Trial) -> None:
    state = await _run(trial, SHORT)
    await trial.scheduler.cancel(state.uid, 0)
    _is(await trial.state(state.uid), OutcomeKind.SUCCEEDED)


@case("walltime", "max_runtime ends it, as timed out", Feature.MAX_RUNTIME)
async def _walltime(trial: Trial) -> None:
    order = trial.order(LONG, max_runtime_s=2, grace_s=2)
    await trial.submit(order)
    state = await trial.ended(order.uid, 4)
    _is(state, OutcomeKind.TIMED_OUT)
    check(state.usage.wall_ms < 30_000, f"it ran for {state.usage.wall_ms} ms, allowed are 2 s")


@case("signal_before_walltime", "before its walltime ends it a program may save",
      Feature.MAX_RUNTIME)  # fmt: skip
async def _signal_before_walltime(trial: Trial) -> None:
    state = await _run(trial, SAVES, max_runtime_s=2, grace_s=20)
    _is(state, OutcomeKind.TIMED_OUT)
    check("saved" in await trial.log(state.uid), "it was not told to stop before its end")


@case("out_of_memory", "more memory than it asked for ends it, and the outcome says so",
      Feature.MEMORY_LIMIT)  # fmt: skip
async def _out_of_memory(trial: Trial) -> None:
    order = trial.order(HOG, memory_bytes=100 * MIB)
    await trial.submit(order)
    _is(await trial.ended(order.uid, 10), OutcomeKind.OUT_OF_MEMORY)


@case("logs", "logs are read by offset while they grow, and from the end", Feature.LIVE_LOGS)
async def _logs(trial: Trial) -> None:
    order = trial.order(Program("echo one; sleep 2; echo two; sleep 0.2", shell=True))
    await trial.submit(order)
    await trial.started(order.uid)
    await trial.until(order.uid, lambda _: True, "known")
    first = await _piece(trial, order.uid, 0)
    check(first[0] == b"one\n", f"the first piece is {first[0]!r}")
    await trial.ended(order.uid, 3)
    rest = await trial.scheduler.read_log(order.uid, "output", first[1], 2)
    check((rest.data, rest.offset, rest.total) == (b"tw", 4, 8), f"then comes {rest}")
    check(rest.complete, "the log of an ended attempt is not complete")
    tail = await trial.scheduler.read_log(order.uid, "output", -4, 100)
    check(tail.data == b"two\n", f"its last four bytes are {tail.data!r}")
    extents = await trial.scheduler.log_extents(order.uid)
    check([(e.stream, e.bytes) for e in extents] == [("output", 8)], f"extents {extents}")
    try:
        await trial.scheduler.read_log(order.uid, "../order.json", 0, 10)
    except ValueError:
        return
    raise CaseFailed("a name that is no stream is read")


async def _piece(trial: Trial, uid: str, offset: int) -> tuple[bytes, int]:
    """The first piece of a log once there is any."""
    found: list[bytes] = []

    async def read() -> bool:
        found[:] = [(await trial.scheduler.read_log(uid, "output", offset, 100)).data]
        return bool(found[0])

    for _ in range(200):
        if await read():
            break
        await asyncio.sleep(0.02)
    return found[0], offset + len(found[0])
