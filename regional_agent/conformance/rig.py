"""What the suite needs of a scheduler under test: the adapter, programs it can run, and how to
break things where that is possible."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from federation.refusals import Refusal
from regional_agent.act.schedulers.port import LaunchOrder, LocalScheduler, LocalState, Phase


class CaseFailed(AssertionError):
    """The scheduler did not do what the port promises; one sentence."""


class NotTried(Exception):
    """The case cannot be tried here; one sentence says why."""


class Crashed(Exception):
    """Raised at a crash point of an adapter under test: what a kill does to it."""


class Ability(StrEnum):
    """Ways to break a site. Each takes the uid of an attempt."""

    REQUEUE = "requeue"
    """Let the local scheduler run it again by itself, as after a preemption."""
    NODE_DIES = "node_dies"
    """Take away the node it runs on; `heal` brings it back."""
    REMOVE = "remove"
    """An administrator removes it behind the agent's back."""
    UNKNOWN_STATE = "unknown_state"
    """The scheduler tells a state nobody has heard of, until `heal`."""
    NAMESAKE = "namesake"
    """Somebody else's object at the scheduler has the very name the attempt is going to have."""
    FILL = "fill"
    """Fill the site with work of others, so that what comes next waits; until `heal`."""


@dataclass(frozen=True, slots=True)
class Program:
    """What a job does: a shell script, and for a site without a shell how long it runs and with
    what exit code. `shell`: only the script says it."""

    script: str
    runs_s: float = 0.0
    exit_code: int = 0
    shell: bool = False


Break = Callable[[str], Awaitable[None]]


class Rig(Protocol):
    """A scheduler under test. `patience_s`: the longest it takes from a submission to the start
    on a free site, or from an end to its being known."""

    kind: str
    patience_s: float
    crash_points: tuple[str, ...]
    isolation: str

    async def open(self, crash_at: str = "") -> LocalScheduler:
        """The adapter of a newly started agent over what is there; the one before is abandoned as
        by SIGKILL. With `crash_at` it raises Crashed, or dies, when that point is reached."""

    def order(self, uid: str, program: Program, **changes: object) -> LaunchOrder | None:
        """An order; `changes` are fields of LaunchOrder. None: it cannot run such a program."""

    async def begun(self, uid: str) -> Counter[str]:
        """How often each process of an attempt began, by `<task>.<rank>` (task 0 if no array):
        what really happened, whatever the scheduler says."""

    @property
    def abilities(self) -> Mapping[Ability, Break]:
        """What can be broken here."""

    async def heal(self) -> None:
        """Undo every breakage."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Files no job may read, each with `SECRET` in it."""


SECRET = "tradewind-conformance-secret"  # noqa: S105 - what a nosy job must not find
LOOK_S = 0.05


def crashing(at: str) -> Callable[[str], None]:
    """What raises Crashed where this point is reached; at none if it is empty."""

    def reached(point: str) -> None:
        if point == at:
            raise Crashed(point)

    return reached


def check(holds: object, text: str) -> None:
    """Raise CaseFailed with `text` unless it holds."""
    if not holds:
        raise CaseFailed(text)


@dataclass(slots=True)
class Trial:
    """One case being tried: what cases work with. `name` begins every uid of the case."""

    rig: Rig
    scheduler: LocalScheduler
    name: str
    uids: list[str] = field(default_factory=list)

    async def again(self, crash_at: str = "") -> None:
        """Go on as a newly started agent."""
        self.scheduler = await self.rig.open(crash_at)

    def order(self, program: Program, nth: int = 1, **changes: object) -> LaunchOrder:
        """An order of this case. Raises NotTried where such a program cannot run."""
        uid = f"{self.name}-{nth}"
        order = self.rig.order(uid, program, **changes)
        if order is None:
            raise NotTried("its jobs are no shell scripts")
        self.uids.append(uid)
        return order

    async def submit(self, order: LaunchOrder) -> str:
        """Submit; it has to be taken. Returns the local id."""
        answer = await self.scheduler.submit(order)
        if isinstance(answer, Refusal):
            raise CaseFailed(f"refused: {answer.text}")
        return answer.local_id

    async def state(self, uid: str) -> LocalState:
        """The state of one attempt."""
        return (await self.scheduler.status([uid]))[uid]

    async def until(
        self, uid: str, holds: Callable[[LocalState], bool], what: str, within_s: float = 0
    ) -> LocalState:
        """Wait for a state, `patience_s` unless told otherwise."""
        loop = asyncio.get_running_loop()
        limit_s = within_s or self.rig.patience_s
        end_s = loop.time() + limit_s
        while True:
            state = await self.state(uid)
            if holds(state):
                return state
            check(loop.time() < end_s, f"{uid} is not {what} within {limit_s:g} s: {state}")
            await asyncio.sleep(LOOK_S)

    async def started(self, uid: str) -> LocalState:
        """Wait until its program has begun, by what the scheduler says and by what happened."""
        state = await self.until(uid, lambda s: s.phase is Phase.RUNNING, "running")
        end_s = asyncio.get_running_loop().time() + self.rig.patience_s
        while not await self.rig.begun(uid):
            check(asyncio.get_running_loop().time() < end_s, f"{uid} runs, its program does not")
            await asyncio.sleep(LOOK_S)
        return state

    async def ended(self, uid: str, runs_s: float = 0) -> LocalState:
        """Wait for its end; `runs_s`: how long its program takes."""
        limit_s = 2 * self.rig.patience_s + runs_s
        return await self.until(uid, lambda s: s.phase is Phase.ENDED, "ended", limit_s)

    async def log(self, uid: str, stream: str = "output") -> str:
        """A log from its start."""
        piece = await self.scheduler.read_log(uid, stream, 0, 2**20)
        return piece.data.decode(errors="replace")

    async def once(self, uid: str) -> None:
        """Every process of the attempt began exactly once."""
        begun = await self.rig.begun(uid)
        twice = {which: times for which, times in begun.items() if times != 1}
        check(begun and not twice, f"{uid}: processes began {dict(begun)} times")

    def ability(self, which: Ability) -> Break:
        """A way to break things. Raises NotTried where there is none."""
        found = self.rig.abilities.get(which)
        if found is None:
            raise NotTried(f"no way to try it here: {which.replace('_', ' ')}")
        return found

    async def clean_up(self) -> None:
        """Leave nothing running."""
        await self.rig.heal()
        for uid in self.uids:
            await self.scheduler.cancel(uid, 0)
