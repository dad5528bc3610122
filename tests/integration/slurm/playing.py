"""A scheduler over a real cluster, played by tests and, as another user, by `python -m`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from federation.refusals import Refusal
from federation.system import SystemClock
from regional_agent.act.schedulers.batch.following import Pace
from regional_agent.act.schedulers.batch.scheduler import BatchScheduler, BatchSettings
from regional_agent.act.schedulers.port import LaunchOrder, LocalState, Phase, Submitted
from regional_agent.act.schedulers.slurm import Slurm
from regional_agent.act.schedulers.slurm_rest import RestSlurm
from regional_agent.slurm.site import SlurmSite as Site

QUICK = Pace(look_s=0.1, poll_s=1.0, soon_s=0.3, gone_s=8.0, account_s=1.0)
WITHIN_S = 40.0
LOOK_S = 0.1


@asynccontextmanager
async def running(
    system: Slurm,
    state: Path,
    reached: Callable[[str], None] = lambda point: None,
    pace: Pace = QUICK,
) -> AsyncIterator[BatchScheduler]:
    """An agent's scheduler with this state."""
    settings = BatchSettings(state, (("PATH", "/usr/bin:/bin"),), pace)
    made = BatchScheduler(settings, system, SystemClock(), reached)
    try:
        yield made
    finally:
        await made.close()
        if isinstance(system, RestSlurm):
            await system.close()


def orders(prefix: str, programs: Sequence[str], **rest: object) -> list[LaunchOrder]:
    """Single jobs that are alike."""
    usual: dict[str, object] = {"cpus_milli": 1000, "tenant": "t"} | rest
    return [
        LaunchOrder(f"{prefix}-{n}", prefix, run=program, **usual)  # type: ignore[arg-type]
        for n, program in enumerate(programs)
    ]


async def submit_all(scheduler: BatchScheduler, some: Sequence[LaunchOrder]) -> list[Submitted]:
    """At once; none is refused."""
    answers = await asyncio.gather(*(scheduler.submit(order) for order in some))
    assert all(isinstance(answer, Submitted) for answer in answers), answers
    return [answer for answer in answers if isinstance(answer, Submitted)]


async def once(
    scheduler: BatchScheduler, uids: Sequence[str], holds: Callable[[LocalState], bool]
) -> dict[str, LocalState]:
    """The states when all of them hold."""
    for _ in range(round(WITHIN_S / LOOK_S)):
        states = await scheduler.status(uids)
        if all(holds(state) for state in states.values()):
            return dict(states)
        await asyncio.sleep(LOOK_S)
    raise AssertionError(f"not within {WITHIN_S:g} s: {states}")


def ended(state: LocalState) -> bool:
    return state.phase is Phase.ENDED


def runs(state: LocalState) -> bool:
    return state.phase is Phase.RUNNING


async def _play(state: Path, conf: str, accounts: dict[str, str], tenants: list[str]) -> None:
    """One job a tenant; prints how each ended or why it was refused."""
    env = {"SLURM_CONF": conf, "LANG": "C.UTF-8"}
    some = [
        order
        for n, tenant in enumerate(tenants)
        for order in orders(f"as-{n}", ["id -u"], tenant=tenant)
    ]
    async with running(Slurm(Site(client_env=env, accounts=accounts)), state) as scheduler:
        answers = await asyncio.gather(*(scheduler.submit(order) for order in some))
        taken = [o.uid for o, a in zip(some, answers, strict=True) if isinstance(a, Submitted)]
        states = await once(scheduler, taken, ended)
        said = {}
        for order, answer in zip(some, answers, strict=True):
            if isinstance(answer, Refusal):
                said[order.uid] = f"refused: {answer.code}"
                continue
            end = states[order.uid].outcome
            log = await scheduler.read_log(order.uid, "output", 0, 100)
            said[order.uid] = f"{end.kind if end else ''} {log.data.decode().strip()}"
    print(json.dumps(said))


if __name__ == "__main__":
    asyncio.run(
        _play(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4]))
    )
