"""Moving what runs to a better place: looked for now and then, in what the queue has left free.

A move is an attempt that is stopped and another that is placed, as after a preemption: nothing of
it lives anywhere but in the records of both, and in what is kept free at the new place meanwhile.
Of an array nothing is stopped: its slice gets no more tasks, and once it has ended the rest is
placed as anything that waits.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from broker.control.admitting import Admitting
from broker.control.books import Admitted, Books
from broker.control.build_problem import ProblemBuilder, Waiting, World
from broker.control.spot_share import with_spot_left
from broker.decide.admission.holds import set_aside
from broker.decide.admission.making_room import Stop, Stops
from broker.decide.admission.moving import LOOKED_AT_MAX, Move, Mover, as_one, moving
from broker.decide.admission.running import Running
from broker.lifecycle.outcomes import cost_micro_usd
from broker.model import problem as pm
from broker.model.admission import MovingRules
from broker.model.jobs import AttemptPhase, Desired, Job, OutcomeKind
from broker.model.plan import Plan
from broker.model.problem import Problem
from broker.model.replacing import replace
from federation.ids import Cluster

PENDING_LOOK_S = 5.0
"""What waits for an operator is looked at so often: it is stopped for what is true by then."""
STEP = 100


@dataclass(slots=True)
class Mobility:
    """Finds the moves of one leadership. `pending`: some were found that may not be carried out
    yet; `found` are those of the last look."""

    books: Books
    admitting: Admitting
    rules: MovingRules
    plan_for: Callable[[Problem], Awaitable[Plan]]
    told: Callable[[Sequence[Move]], None] = lambda moves: None
    pending: bool = False
    found: tuple[Move, ...] = ()
    _looked_ms: int = field(default=0)
    _let_go_ms: dict[str, int] = field(default_factory=dict)

    def due(self, now_ms: int) -> bool:
        """Whether it is time to look."""
        gap_s = min(PENDING_LOOK_S, self.rules.look_s) if self.pending else self.rules.look_s
        return self.rules.most > 0 and now_ms - self._looked_ms >= gap_s * 1000

    async def look(self, world: World, *, frozen: bool = False) -> Stops:
        """What is to be stopped so that it goes on elsewhere. Slices that are better off elsewhere
        get no more tasks at once, unless all is `frozen`."""
        self._looked_ms, self.found = world.now_ms, ()
        giving_way = self.books.giving_way
        known, giving_way.for_places = giving_way.for_places, {}
        running = self.admitting.running()
        may_go = self._movable(running, world, slices=not frozen)
        movable = heapq.nlargest(LOOKED_AT_MAX, may_go, key=_by_cost)
        found = await self._found(movable, world) if movable else ()
        giving_way.for_places = self._let_go(found, known, world.now_ms)
        self.found = tuple(move for move in found if not move.mover.ahead_h)
        leaving = sum(a.accelerators for a in running if a.stopping)
        return Stops(
            tuple(Stop(m.mover.attempt, -1, m.pool, m.text, moves=True) for m in self.found),
            leaving + sum(move.mover.attempt.accelerators for move in self.found),
            sum(a.accelerators for a in running),
        )

    async def _found(
        self, movable: list[tuple[Running, Job, Admitted]], world: World
    ) -> tuple[Move, ...]:
        waiting = [Waiting.under(admitted.rules, job, 1) for _, job, admitted in movable]
        builder = ProblemBuilder(world, waiting)
        for _ in builder.pools():
            await asyncio.sleep(0)
        spot = {pool.name for pool in builder.worked_out if pool.spot}
        there = [attempt.pool in spot for attempt, _, _ in movable]
        governed = self.admitting.governed(world.fleet)
        waiting = with_spot_left(list(zip(waiting, there, strict=True)), governed)
        movers = []
        for number, (attempt, job, _) in enumerate(movable):
            mover = _mover(attempt, job, builder.job(waiting[number]), world.now_ms)
            movers += [mover] if mover else []
            if number % STEP == STEP - 1:
                await asyncio.sleep(0)
        free = set_aside(builder.worked_out, self.admitting.holds, ())
        asked_for = moving(builder.problem([], free.pools), movers, self.rules, world.now_ms)
        if asked_for is None:
            return ()
        return asked_for.moves(await self.plan_for(asked_for.problem), self.rules)

    def _let_go(
        self, found: Sequence[Move], known: Mapping[str, str], now_ms: int
    ) -> dict[str, str]:
        """Slices that get no more tasks until the next look, with the line that says why. An array
        that was let go once goes on being so while that holds, and else only after the gap."""
        gap_ms, slices = round(self.rules.gap_s * 1000), [m for m in found if m.mover.ahead_h]
        last = {job: at for job, at in self._let_go_ms.items() if at > now_ms - gap_ms}
        still = {uid.rsplit("-", 1)[0] for uid in known}
        moves = [
            m for m in slices if m.mover.attempt.job in still or m.mover.attempt.job not in last
        ]
        self._let_go_ms = last | {m.mover.attempt.job: now_ms for m in moves}
        self.told([m for m in moves if m.mover.attempt.uid not in known])
        return {m.mover.attempt.uid: m.text for m in moves}

    def begin(self, now_ms: int) -> None:
        """What was found is carried out: its places are kept, and it is told."""
        self.admitting.claim_moves(self.found, now_ms)
        self.told(self.found)

    def _movable(
        self, running: list[Running], world: World, *, slices: bool
    ) -> Iterator[tuple[Running, Job, Admitted]]:
        """What runs and may move now, with its job."""
        for attempt in running:
            admitted = self.books.admitted(attempt.job)
            if admitted is None or (attempt.is_slice and not slices):
                continue
            spec = admitted.spec
            if not (spec.movable is not False if attempt.is_slice else spec.may_move):
                continue
            job = self.books.job(attempt.job)
            view = world.fleet.clusters.get(Cluster(attempt.pool.partition("/")[0]))
            if job is None or view is None or not view.connected:
                continue  # a stop that nobody confirms moves nothing
            if _may_move(job, attempt.uid, world.now_ms - round(self.rules.gap_s * 1000)):
                yield attempt, job, admitted


def _may_move(job: Job, uid: str, since_ms: int) -> bool:
    """Whether nothing else is asked of a job, and its last move was before `since_ms`."""
    attempt = job.attempt(uid)
    if attempt is None or job.cancel or job.held:
        return False
    if attempt.phase is not AttemptPhase.RUNNING or attempt.desired is not Desired.RUN:
        return False
    if job.is_array:
        return not attempt.waiting_copies and bool(job.unassigned_tasks)
    moved = (a for a in job.attempts if a.outcome and a.outcome.kind is OutcomeKind.MOVED)
    return all(a.ended_ms <= since_ms for a in moved)


def _mover(attempt: Running, job: Job, asked: pm.Job, now_ms: int) -> Mover | None:
    """What may move, as it would be planned anew; None for a slice that cannot go as one."""
    here = job.attempt(attempt.uid)
    if not attempt.is_slice or here is None:
        return Mover(attempt, asked, _spent_usd(job, now_ms))
    width = sum(a.width for a in job.counting_attempts)
    whole = as_one(asked, here.width)
    ahead_h = job.unassigned_tasks.count * asked.runtime_h / width
    if whole is None:
        return None
    return Mover(attempt, replace(whole, id=attempt.uid), ahead_h=ahead_h)


def _by_cost(item: tuple[Running, Job, Admitted]) -> tuple[int, int, str]:
    """Those that are dearest an hour where they are."""
    attempt, job, _ = item
    of_job = job.attempt(attempt.uid)
    price = of_job.price_micro_usd_per_accelerator_hour if of_job else 0
    return price * attempt.accelerators, attempt.accelerators, attempt.uid


def _spent_usd(job: Job, now_ms: int) -> float:
    """What a job has cost up to now."""
    live = sum(cost_micro_usd(replace(a, ended_ms=now_ms)) for a in job.live_attempts)
    return (job.cost_micro_usd + live) / 1e6
