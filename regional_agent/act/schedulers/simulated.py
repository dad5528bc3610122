"""A local scheduler in virtual time: the port of `regional_agent`, and what really happens.

It outlives its agent, as a batch system does. A job is the argv `work SECONDS [EXIT]`; whatever
starts or ends is told to a witness, which is the truth that checkers compare claims with.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from federation.environment import Clock, Rng
from federation.refusals import Refusal, RefusalCode
from federation.runs import Runs
from regional_agent.act.schedulers.port import (
    Capabilities,
    Feature,
    LaunchOrder,
    LocalChange,
    LocalState,
    LogExtent,
    LogSlice,
    Outcome,
    OutcomeKind,
    Phase,
    SchedulerUnavailable,
    Submitted,
    TaskStates,
    Usage,
    UsageSample,
)
from regional_agent.session.ledger import Place

BATCH_S = 0.1
STOPS_S = 0.5
_FEATURES = frozenset(
    {Feature.ARRAY, Feature.GANG, Feature.SET_SLICE, Feature.MAX_RUNTIME, Feature.ADOPT}
)
_GRAVEST = (
    OutcomeKind.CANCELLED,
    OutcomeKind.LOST,
    OutcomeKind.OUT_OF_MEMORY,
    OutcomeKind.TIMED_OUT,
    OutcomeKind.SIGNALLED,
    OutcomeKind.FAILED,
)


class Witness(Protocol):
    """Sees what really happens at a site."""

    def started(self, site: str, order: LaunchOrder, task: int, places: tuple[Place, ...]) -> None:
        """A task (0 where it is no array) begins to run on these places."""

    def stopped(self, site: str, order: LaunchOrder, task: int, outcome: Outcome) -> None:
        """It runs no more."""


@dataclass(slots=True)
class Conduct:
    """How the scheduler behaves now: `start_s` from submission to start, `refuse` the share of
    submissions it will not have, `down`: it cannot be asked."""

    start_s: float = 0.2
    submit_s: float = 0.02
    refuse: float = 0.0
    down: bool = False


@dataclass(slots=True)
class _Running:
    lane: int
    since_s: float
    timer: asyncio.TimerHandle


@dataclass(slots=True)
class _Attempt:
    order: LaunchOrder
    submitted_ms: int
    unstarted: Runs
    width: int
    phase: Phase = Phase.QUEUED
    running: dict[int, _Running] = field(default_factory=dict)
    ended: dict[Outcome, Runs] = field(default_factory=dict)
    started_ms: int = 0
    ended_ms: int = 0
    outcome: Outcome | None = None
    wall_ms: int = 0
    stopping: bool = False
    timer: asyncio.TimerHandle | None = None

    @property
    def begun(self) -> Runs:
        """Tasks that have started, over or not."""
        found = Runs.of((task, task) for task in self.running)
        for tasks in self.ended.values():
            found = found.union(tasks)
        return found

    def state(self) -> LocalState:
        """As the port tells it."""
        running = Runs.of((task, task) for task in self.running)
        return LocalState(
            uid=self.order.uid,
            phase=self.phase,
            tasks=TaskStates(self.unstarted, running, tuple(self.ended.items())),
            submitted_ms=self.submitted_ms,
            started_ms=self.started_ms,
            ended_ms=self.ended_ms,
            outcome=self.outcome,
            usage=Usage(self.wall_ms, self.wall_ms),
        )


class SimScheduler:
    """`LocalScheduler` of one site."""

    def __init__(self, site: str, clock: Clock, rng: Rng, witness: Witness) -> None:
        self._site = site
        self._clock = clock
        self._rng = rng
        self._witness = witness
        self._attempts: dict[str, _Attempt] = {}
        self._listeners: dict[asyncio.Event, dict[str, None]] = {}
        self.conduct = Conduct()

    # The port ---------------------------------------------------------------------------------

    async def capabilities(self) -> Capabilities:
        """See the port."""
        await self._asked()
        return Capabilities("simulated", _FEATURES)

    async def submit(self, order: LaunchOrder) -> Submitted | Refusal:
        """See the port."""
        await self._asked(self.conduct.submit_s)
        if order.uid in self._attempts:
            return Submitted(order.uid, fresh=False)
        if self._rng.uniform(0, 1) < self.conduct.refuse:
            return Refusal(RefusalCode.SUBMIT_FAILED, order.uid, available="the queue is closed")
        taken = self._taken(order)
        if taken:
            return Refusal(RefusalCode.CAPACITY_TAKEN, order.uid, available=taken)
        first = Runs.of([(0, 0)])
        tasks = first if order.tasks is None else order.tasks
        attempt = _Attempt(order, self._clock.now_ms(), tasks, order.width)
        self._attempts[order.uid] = attempt
        delay_s = self.conduct.start_s * self._rng.uniform(0.8, 1.2)
        attempt.timer = self._later(delay_s, self._begin, attempt)
        self._changed(attempt)
        return Submitted(order.uid, fresh=True)

    async def find(self, uid: str) -> str | None:
        """See the port."""
        await self._asked()
        return uid if uid in self._attempts else None

    async def attempts(self) -> tuple[str, ...]:
        """See the port."""
        await self._asked()
        return tuple(self._attempts)

    async def status(self, uids: Collection[str]) -> Mapping[str, LocalState]:
        """See the port."""
        await self._asked()
        return {uid: self._state(uid) for uid in uids}

    async def cancel(self, uid: str, grace_s: int) -> None:
        """See the port."""
        await self._asked()
        attempt = self._attempts.get(uid)
        if attempt is None:
            order = LaunchOrder(uid, "", "", argv=("never",))
            attempt = _Attempt(order, self._clock.now_ms(), Runs(), 1)
            self._attempts[uid] = attempt
        if attempt.phase is Phase.ENDED or attempt.stopping:
            return
        attempt.stopping = True
        if attempt.timer is not None:
            attempt.timer.cancel()
        for task, running in list(attempt.running.items()):
            running.timer.cancel()
            stops_s = min(grace_s, STOPS_S)
            cancelled = Outcome(OutcomeKind.CANCELLED)
            running.timer = self._later(stops_s, self._task_ends, attempt, task, cancelled)
        if not attempt.running:
            self._finish(attempt, Outcome(OutcomeKind.CANCELLED))

    async def set_slice(
        self, uid: str, tasks: Runs, width: int, places: tuple[Place, ...] | None = None
    ) -> Runs | Refusal:
        """See the port."""
        await self._asked()
        attempt = self._attempts.get(uid)
        if attempt is None:
            return Refusal(RefusalCode.UNSUPPORTED, uid, available="no such attempt")
        begun = attempt.begun
        if attempt.phase is not Phase.ENDED and not attempt.stopping:
            attempt.unstarted = tasks.difference(begun)
            if attempt.phase is Phase.RUNNING:
                self._fill(attempt)
            self._changed(attempt)
        return attempt.unstarted.union(attempt.begun)

    async def read_log(self, uid: str, stream: str, offset: int, limit: int) -> LogSlice:
        """See the port: one line once it has started."""
        await self._asked()
        text = self._log(uid) if stream == "output" else b""
        attempt = self._attempts.get(uid)
        over = attempt is None or attempt.phase is Phase.ENDED
        return LogSlice(text[offset : offset + limit], offset, len(text), over)

    async def log_extents(self, uid: str) -> tuple[LogExtent, ...]:
        """See the port."""
        await self._asked()
        text = self._log(uid)
        return (LogExtent("output", len(text)),) if text else ()

    async def usage(self, uids: Collection[str]) -> Mapping[str, UsageSample]:
        """See the port: what has ended so far."""
        await self._asked()
        now_ms = self._clock.now_ms()
        known = {uid: self._attempts[uid] for uid in uids if uid in self._attempts}
        return {
            uid: UsageSample(now_ms, a.wall_ms, a.wall_ms, 0, len(a.running))
            for uid, a in known.items()
            if a.running
        }

    async def forget(self, uid: str) -> None:
        """See the port."""
        await self._asked()
        attempt = self._attempts.get(uid)
        if attempt is not None and attempt.phase is not Phase.ENDED:
            raise ValueError(f"{uid} has not ended")
        self._attempts.pop(uid, None)

    async def changes(self) -> AsyncIterator[tuple[LocalChange, ...]]:
        """See the port."""
        woken = asyncio.Event()
        self._listeners[woken] = dict.fromkeys(self._attempts)
        woken.set()
        try:
            while True:
                await woken.wait()
                await self._asked()
                woken.clear()
                dirty, self._listeners[woken] = self._listeners[woken], {}
                yield tuple(LocalChange(uid, self._state(uid)) for uid in dirty)
                await asyncio.sleep(BATCH_S)
        finally:
            del self._listeners[woken]

    # The site itself --------------------------------------------------------------------------

    def power_fails(self) -> None:
        """Everything that runs or waits here is gone, and nobody saw its end."""
        for attempt in self._attempts.values():
            if attempt.phase is Phase.ENDED:
                continue
            if attempt.timer is not None:
                attempt.timer.cancel()
            for task, running in list(attempt.running.items()):
                running.timer.cancel()
                self._task_ends(attempt, task, Outcome(OutcomeKind.LOST))
            if attempt.outcome is None:
                self._finish(attempt, Outcome(OutcomeKind.LOST))

    # Inside -----------------------------------------------------------------------------------

    def _taken(self, order: LaunchOrder) -> str:
        """No card is given to two attempts, whoever orders it, as the keeper sees to it."""
        wanted = _cards(order)
        for other in self._attempts.values():
            shared = wanted & _cards(other.order) if other.phase is not Phase.ENDED else None
            if shared:
                pool, node, card = min(shared)
                return f"{pool} node {node} card {card} is held by {other.order.uid}"
        return ""

    async def _asked(self, takes_s: float = 0.002) -> None:
        await asyncio.sleep(takes_s)
        if self.conduct.down:
            raise SchedulerUnavailable("the scheduler does not answer")

    def _later(self, delay_s: float, do: object, *args: object) -> asyncio.TimerHandle:
        loop = asyncio.get_running_loop()
        return loop.call_later(delay_s, do, *args)  # type: ignore[arg-type]

    def _begin(self, attempt: _Attempt) -> None:
        attempt.phase = Phase.RUNNING
        attempt.started_ms = self._clock.now_ms()
        self._fill(attempt)
        self._changed(attempt)

    def _fill(self, attempt: _Attempt) -> None:
        """Start tasks on free lanes; with nothing left the attempt is over."""
        busy = {running.lane for running in attempt.running.values()}
        for lane in range(attempt.width):
            if lane in busy or not attempt.unstarted:
                continue
            first, attempt.unstarted = attempt.unstarted.take(1)
            self._start(attempt, next(iter(first)), lane)
        if not attempt.running:
            self._finish(attempt, _gravest(attempt.ended))

    def _start(self, attempt: _Attempt, task: int, lane: int) -> None:
        order = attempt.order
        places = order.places[lane * order.replicas : (lane + 1) * order.replicas]
        runs_s, outcome = _program(order)
        if 0 < order.max_runtime_s < runs_s:
            runs_s, outcome = float(order.max_runtime_s), Outcome(OutcomeKind.TIMED_OUT)
        timer = self._later(runs_s, self._task_ends, attempt, task, outcome)
        now_s = self._clock.monotonic_s()
        attempt.running[task] = _Running(lane, now_s, timer)
        self._witness.started(self._site, order, task, places)

    def _task_ends(self, attempt: _Attempt, task: int, outcome: Outcome) -> None:
        running = attempt.running.pop(task)
        attempt.wall_ms += round((self._clock.monotonic_s() - running.since_s) * 1000)
        there = attempt.ended.get(outcome, Runs())
        attempt.ended[outcome] = there.union(Runs.of([(task, task)]))
        self._witness.stopped(self._site, attempt.order, task, outcome)
        if outcome.kind is OutcomeKind.LOST or attempt.stopping:
            if not attempt.running:
                self._finish(attempt, _gravest(attempt.ended))
        else:
            self._fill(attempt)
        self._changed(attempt)

    def _finish(self, attempt: _Attempt, outcome: Outcome) -> None:
        attempt.phase, attempt.outcome = Phase.ENDED, outcome
        attempt.ended_ms = self._clock.now_ms()
        self._changed(attempt)

    def _changed(self, attempt: _Attempt) -> None:
        for woken, dirty in self._listeners.items():
            dirty[attempt.order.uid] = None
            woken.set()

    def _state(self, uid: str) -> LocalState:
        attempt = self._attempts.get(uid)
        if attempt is None:
            return LocalState(uid, Phase.UNKNOWN, TaskStates(Runs(), Runs()))
        return attempt.state()

    def _log(self, uid: str) -> bytes:
        attempt = self._attempts.get(uid)
        if attempt is None or not attempt.started_ms:
            return b""
        return f"{uid} works at {self._site}\n".encode()


def _cards(order: LaunchOrder) -> set[tuple[str, int, int]]:
    return {(p.pool, p.node, card) for p in order.places for card in p.accelerators}


def _program(order: LaunchOrder) -> tuple[float, Outcome]:
    """How long a task runs and how it ends, as its argv says."""
    _, seconds, *rest = order.argv
    code = int(rest[0]) if rest else 0
    kind = OutcomeKind.FAILED if code else OutcomeKind.SUCCEEDED
    return float(seconds), Outcome(kind, code)


def _gravest(ended: Mapping[Outcome, Runs]) -> Outcome:
    for kind in _GRAVEST:
        for outcome in ended:
            if outcome.kind is kind:
                return outcome
    return Outcome(OutcomeKind.SUCCEEDED)
