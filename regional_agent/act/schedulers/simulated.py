"""A local scheduler in virtual time: the port of `regional_agent`, and what really happens.

It outlives its agent, as a batch system does. A job is the argv `work SECONDS [EXIT]`; whatever
starts or ends is told to a witness, which is the truth that checkers compare claims with.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass
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
    UsageSample,
)
from regional_agent.act.schedulers.simulated_attempt import (
    SimAttempt,
    SimRunning,
    cards_of,
    gravest_of,
    program_of,
)
from regional_agent.act.schedulers.simulated_queue import SimQueue
from regional_agent.session.ledger import Place
from regional_agent.session.resettle import SiteSeen

BATCH_S = 0.1
STOPS_S = 0.5
_FEATURES = frozenset(
    {
        Feature.ARRAY,
        Feature.GANG,
        Feature.SET_SLICE,
        Feature.MAX_RUNTIME,
        Feature.ADOPT,
        Feature.FENCE,
        Feature.ONE_NODE,
        Feature.PARTS,
        Feature.QUEUE,
    }
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
    submissions it will not have, `down`: it cannot be asked, `fences`: it keeps deadlines."""

    start_s: float = 0.2
    submit_s: float = 0.02
    refuse: float = 0.0
    down: bool = False
    fences: bool = True


class SimScheduler:
    """`LocalScheduler` of one site."""

    def __init__(self, site: str, clock: Clock, rng: Rng, witness: Witness) -> None:
        self._site = site
        self._clock = clock
        self._rng = rng
        self._witness = witness
        self._attempts: dict[str, SimAttempt] = {}
        self._listeners: dict[asyncio.Event, dict[str, None]] = {}
        self.conduct = Conduct()
        self.queue = SimQueue()
        self.crowded = asyncio.Event()

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
        taken = "" if order.queued else self._taken(order)
        if taken:
            return Refusal(RefusalCode.CAPACITY_TAKEN, order.uid, available=taken)
        first = Runs.of([(0, 0)])
        tasks = first if order.tasks is None else order.tasks
        attempt = SimAttempt(order, self._clock.now_ms(), tasks, order.width)
        self._attempts[order.uid] = attempt
        if order.queued:
            attempt.waiting = True
            self._seat()
        else:
            self._starts_soon(attempt)
        if order.fence_after_s:
            attempt.contact_s = order.contact_s
            self._set_fence(attempt)
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
            attempt = SimAttempt(order, self._clock.now_ms(), Runs(), 1)
            self._attempts[uid] = attempt
        if attempt.phase is Phase.ENDED or attempt.stopping:
            return
        self._stop(attempt, Outcome(OutcomeKind.CANCELLED), min(grace_s, STOPS_S))

    async def withdraw(self, uid: str) -> bool:
        """See the port."""
        await self._asked()
        attempt = self._attempts.get(uid)
        if attempt is not None and attempt.begun and not attempt.stopping:
            return attempt.phase is Phase.ENDED
        await self.cancel(uid, 0)
        return True

    async def contact(self, at_s: float) -> None:
        """See `Fencing`."""
        await self._asked()
        now_s = self._clock.monotonic_s()
        for attempt in self._attempts.values():
            order = attempt.order
            if order.fence_after_s and now_s <= attempt.contact_s + order.fence_after_s:
                attempt.contact_s = max(attempt.contact_s, at_s)
                self._set_fence(attempt)

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

    def crowd(self, for_s: float) -> None:
        """The site's own users take all that is free, for so long as they say."""
        self.queue.crowd(self._attempts.values(), self._clock.now_ms() + round(for_s * 1000))
        self.crowded.set()

    def users_leave(self) -> None:
        """They are gone: what waits may start."""
        self.queue.others = ()
        self._seat()

    def look(self) -> SiteSeen:
        """What a collector sees of the site."""
        return self.queue.look(self._attempts.values(), self._clock.now_ms())

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
        wanted = cards_of(order)
        for held in self.queue.others:
            places = ((p.pool, p.node, card) for p in held.places for card in p.accelerators)
            shared = wanted.intersection(places)
            if shared:
                pool, node, card = min(shared)
                return f"{pool} node {node} card {card} is held by users of the site"
        for other in self._attempts.values():
            if other.phase is Phase.ENDED or other.waiting:
                continue
            shared = wanted & cards_of(other.order)
            if shared:
                pool, node, card = min(shared)
                return f"{pool} node {node} card {card} is held by {other.order.uid}"
        return ""

    async def _asked(self, takes_s: float = 0.002) -> None:
        await asyncio.sleep(takes_s)
        if self.conduct.down:
            raise SchedulerUnavailable("the scheduler does not answer")

    def _stop(self, attempt: SimAttempt, outcome: Outcome, stops_s: float) -> None:
        attempt.stopping = True
        if attempt.timer is not None:
            attempt.timer.cancel()
        for task, running in list(attempt.running.items()):
            running.timer.cancel()
            running.timer = self._later(stops_s, self._task_ends, attempt, task, outcome)
        if not attempt.running:
            self._finish(attempt, outcome)

    def _set_fence(self, attempt: SimAttempt) -> None:
        """As the keeper does it: whether it can be asked or not."""
        if attempt.fence is not None:
            attempt.fence.cancel()
        due_s = attempt.contact_s + attempt.order.fence_after_s
        left_s = max(0.0, due_s - self._clock.monotonic_s())
        attempt.fence = self._later(left_s, self._fenced, attempt)

    def _fenced(self, attempt: SimAttempt) -> None:
        """Its grace is used up to the last: that is when a replacement may be next."""
        if self.conduct.fences and attempt.phase is not Phase.ENDED and not attempt.stopping:
            self._stop(attempt, Outcome(OutcomeKind.FENCED), float(attempt.order.grace_s))

    def _starts_soon(self, attempt: SimAttempt) -> None:
        delay_s = self.conduct.start_s * self._rng.uniform(0.8, 1.2)
        attempt.timer = self._later(delay_s, self._begin, attempt)

    def _seat(self) -> None:
        for attempt in self.queue.seat(self._attempts.values()):
            self._starts_soon(attempt)

    def _later(self, delay_s: float, do: object, *args: object) -> asyncio.TimerHandle:
        loop = asyncio.get_running_loop()
        return loop.call_later(delay_s, do, *args)  # type: ignore[arg-type]

    def _begin(self, attempt: SimAttempt) -> None:
        attempt.phase = Phase.RUNNING
        attempt.started_ms = self._clock.now_ms()
        self._fill(attempt)
        self._changed(attempt)

    def _fill(self, attempt: SimAttempt) -> None:
        """Start tasks on free lanes; with nothing left the attempt is over."""
        busy = {running.lane for running in attempt.running.values()}
        for lane in range(attempt.width):
            if lane in busy or not attempt.unstarted:
                continue
            first, attempt.unstarted = attempt.unstarted.take(1)
            self._start(attempt, next(iter(first)), lane)
        if not attempt.running:
            self._finish(attempt, gravest_of(attempt.ended))

    def _start(self, attempt: SimAttempt, task: int, lane: int) -> None:
        order = attempt.order
        places = order.places[lane * order.replicas : (lane + 1) * order.replicas]
        runs_s, outcome = program_of(order)
        if 0 < order.max_runtime_s < runs_s:
            runs_s, outcome = float(order.max_runtime_s), Outcome(OutcomeKind.TIMED_OUT)
        timer = self._later(runs_s, self._task_ends, attempt, task, outcome)
        now_s = self._clock.monotonic_s()
        attempt.running[task] = SimRunning(lane, now_s, timer)
        self._witness.started(self._site, order, task, places)

    def _task_ends(self, attempt: SimAttempt, task: int, outcome: Outcome) -> None:
        running = attempt.running.pop(task)
        attempt.wall_ms += round((self._clock.monotonic_s() - running.since_s) * 1000)
        there = attempt.ended.get(outcome, Runs())
        attempt.ended[outcome] = there.union(Runs.of([(task, task)]))
        self._witness.stopped(self._site, attempt.order, task, outcome)
        if outcome.kind is OutcomeKind.LOST or attempt.stopping:
            if not attempt.running:
                self._finish(attempt, gravest_of(attempt.ended))
        else:
            self._fill(attempt)
        self._changed(attempt)

    def _finish(self, attempt: SimAttempt, outcome: Outcome) -> None:
        attempt.phase, attempt.outcome = Phase.ENDED, outcome
        attempt.ended_ms = self._clock.now_ms()
        self._changed(attempt)
        if any(other.waiting for other in self._attempts.values()):
            self._seat()

    def _changed(self, attempt: SimAttempt) -> None:
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
