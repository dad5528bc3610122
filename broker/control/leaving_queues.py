"""Taking jobs back from the queues of sites when a better place opens.

What waits in a queue is decided again for what is free now, beside the jobs that go before it. One
that gains by more than a margin is taken back, unless it has begun: the site has the last word. Its
new place is kept until it is gone there, and only then is it sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from broker.control.admitting import Admitting
from broker.control.books import Books
from broker.control.build_problem import ProblemBuilder, Waiting, World
from broker.control.problem_pools import pool_name
from broker.control.round import Round
from broker.decide.admission.holds import set_aside
from broker.decide.admission.leaving import Departure, Margin, Waits, departures
from broker.lifecycle import events as ev
from broker.model.jobs import Attempt, Desired, Job, OutcomeKind
from broker.model.plan import Plan
from broker.model.problem import Problem
from broker.sense.fleet import unusable
from broker.sense.site_queues import left_s
from federation.refusals import RefusalCode

STAYS_FIRST_S, STAYS_MAX_S = 10.0, 3600.0
"""Nobody is taken back sooner after it joined; twice as long with every attempt of the job."""
LOOK_S = 1.0
LOST_CONTACT = frozenset(
    {RefusalCode.CLUSTER_UNREACHABLE, RefusalCode.CAPACITY_UNKNOWN, RefusalCode.CAPACITY_STALE}
)


class Decided(Protocol):
    """What a decider gives back, as far as it is looked at here."""

    @property
    def plan(self) -> Plan:
        """A verified plan."""


Decide = Callable[[Problem], Awaitable[Decided]]


@dataclass(slots=True)
class Withdrawals:
    """What leaves its queue, as of one look; `durable` is set once that is in the store."""

    moves: tuple[Departure, ...]
    durable: asyncio.Future[None]

    def fold(self, round_: Round, leader: object) -> None:
        """Fold them in, as far as they still wait."""
        for move in self.moves:
            uid = move.waits.uid
            job = round_.draft.job(uid.rsplit("-", 1)[0])
            attempt = job.attempt(uid) if job else None
            if job is not None and attempt is not None and may_leave(job, attempt):
                event = ev.StopDecided(
                    uid, OutcomeKind.WITHDRAWN, move.text, unless_started=True, moves_to=move.to
                )
                round_.contain(uid, round_.fold, job, event)

    def applied(self, round_: Round) -> None:
        """They are told."""
        if not self.durable.done():
            self.durable.set_result(None)


def may_leave(job: Job, attempt: Attempt) -> bool:
    """Whether it waits in a queue, and nobody wants anything else of it."""
    runs_on = attempt.waits_in_queue and attempt.desired is Desired.RUN and attempt.counts
    return runs_on and not (job.cancel or job.held)


def in_queues(books: Books, world: World) -> Iterator[tuple[Job, Attempt]]:
    """Who waits at a site that can be asked, long enough to be looked at again; of an array the
    slice that came first."""
    seen: set[str] = set()
    for attempt in list(books.in_queues.values()):
        view, job = world.fleet.clusters.get(attempt.cluster), books.job_of(attempt.uid)
        closed = unusable(view, world.now_ms) if view is not None else None
        if view is None or (closed is not None and closed.code in LOST_CONTACT):
            continue
        if job is None or not may_leave(job, attempt):
            continue
        stays_s = min(STAYS_FIRST_S * 2.0 ** min(job.attempts_made - 1, 20), STAYS_MAX_S)
        if world.now_ms - attempt.placed_ms >= stays_s * 1000 and job.id not in seen:
            seen.add(job.id)
            yield job, attempt


@dataclass(slots=True)
class LeavingQueues:
    """Looks for one leadership. `keep` makes durable what is kept for whom, `put` hands something
    to the leader."""

    books: Books
    admitting: Admitting
    keep: Callable[[], Awaitable[None]]
    put: Callable[[Withdrawals], None]
    margin: Margin = Margin()
    _looked_ms: int = 0

    def due(self, now_ms: int) -> bool:
        """Whether it is time to look: only where somebody waits in a queue."""
        return bool(self.books.in_queues) and now_ms - self._looked_ms >= LOOK_S * 1000

    async def leave(self, world: World, ahead: Sequence[Waiting], decide: Decide) -> None:
        """Take back what is better off elsewhere; its new place is kept from before anybody else
        is decided on. `ahead` wait for any place."""
        self._looked_ms = world.now_ms
        found = await self._look(world, ahead, decide)
        if not found:
            return
        self.admitting.claim_departures(found, world.now_ms)
        await self.keep()
        durable = asyncio.get_running_loop().create_future()
        self.put(Withdrawals(found, durable))
        await durable

    async def _look(
        self, world: World, ahead: Sequence[Waiting], decide: Decide
    ) -> tuple[Departure, ...]:
        found = list(in_queues(self.books, world))
        if not found:
            return ()
        gains = await self._gains(world, self._problem(world, found, ()), found, decide)
        leaving = [pair for pair in found if pair[1].uid in {m.waits.uid for m in gains}]
        before = _before(ahead, leaving) if leaving else []
        if not before:
            return gains
        problem = self._problem(world, leaving, before)
        return await self._gains(world, problem, leaving, decide)

    def _problem(
        self,
        world: World,
        leaving: Sequence[tuple[Job, Attempt]],
        before: Sequence[Waiting],
    ) -> Problem:
        """What is free now for these, queues apart; what they are counted for already, off."""
        gone = {attempt.uid for _, attempt in leaving}
        others = {
            cluster: [a for a in attempts if a.uid not in gone]
            for cluster, attempts in world.attempts.items()
        }
        waiting = [*before, *(w for job, a in leaving if (w := self._waiting(job, a)))]
        waiting.sort(key=lambda w: (w.job.created_ms, w.job.id))
        builder = ProblemBuilder(replace(world, attempts=others), waiting)
        for _ in builder.pools():
            pass
        jobs = [replace(builder.job(w), max_queue_s=0.0) for w in waiting]
        free = set_aside(builder.worked_out, self.admitting.holds, ())
        return builder.problem(jobs, free.pools)

    def _waiting(self, job: Job, attempt: Attempt) -> Waiting | None:
        admitted = self.books.admitted(job.id)
        return Waiting.under(admitted.rules, job, attempt.copies) if admitted else None

    async def _gains(
        self,
        world: World,
        problem: Problem,
        leaving: Sequence[tuple[Job, Attempt]],
        decide: Decide,
    ) -> tuple[Departure, ...]:
        jobs = {job.id: job for job in problem.jobs}
        waits: dict[str, Waits] = {}
        for job, attempt in leaving:
            capacity = world.fleet.clusters[attempt.cluster].capacity
            pools = capacity.pools if capacity else ()
            said = next((p.queue for p in pools if p.pool == attempt.pool), None)
            if job.id in jobs:
                name = pool_name(attempt.cluster, attempt.pool)
                left = left_s(attempt, said, world.now_ms)
                waits[job.id] = Waits(attempt.uid, jobs[job.id], name, left)
        plan = (await decide(problem)).plan
        return departures(problem, plan, waits, self.margin)


def _before(
    ahead: Sequence[Waiting], leaving: Sequence[tuple[Job, Attempt]]
) -> list[Waiting]:
    """Who waits for a place and goes before one of these: of a higher priority, or older."""
    last = max((-job.priority, job.created_ms, job.id) for job, _ in leaving)
    return [w for w in ahead if (-w.job.priority, w.job.created_ms, w.job.id) < last]
