"""The decision cycle: snapshot, problem, plan, verify, apply, record.

Event driven and debounced, never two at once. Deciding runs outside the event loop; the plan comes
back to the leader's round, which is the only place where anything is placed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Protocol

from broker.control.admitting import Admitting, Course
from broker.control.books import Books
from broker.control.build_problem import ProblemBuilder, Waiting, World
from broker.control.cold_start import blobs_of
from broker.control.disturbing import Disturbing
from broker.control.gaps import without
from broker.control.leader import Leader
from broker.control.leaving_queues import LeavingQueues
from broker.control.mobility import Mobility
from broker.control.plan_applier import PlanApplier
from broker.control.round import Round
from broker.control.spot_share import with_spot_shares
from broker.control.survey import Survey
from broker.decide.admission.making_room import Stops
from broker.model.data import Links
from broker.model.fleet import Fleet
from broker.model.plan import Plan
from broker.model.problem import Problem
from broker.model.warm import Warm
from broker.sense.datasets import read_datasets
from broker.sense.fleet import read_tenants, unusable
from broker.sense.preemptions import Preemptions
from broker.sense.start_delay import StartDelays
from broker.state.projection import Projection
from federation.environment import Clock

DEBOUNCE_S = 0.02
TIMER_S = 5.0
JOBS_A_STEP = 100
CLUSTERS_A_STEP = 5
FAILED_GAP_MAX_S = 30.0
RETRY_GAPS, RETRY_GAP_MAX_S = 4.0, 0.25
"""After a cycle that placed nothing there is none for so many times as long as it took."""


class Bell:
    """Wakes the cycles: `any` for whatever may matter, `loud` where a job may start by it."""

    def __init__(self) -> None:
        self.any = asyncio.Event()
        self.loud = asyncio.Event()

    def ring(self) -> None:
        """Something changed."""
        self.any.set()

    def ring_loudly(self) -> None:
        """Something changed by which a job may start."""
        self.any.set()
        self.loud.set()

    def answer(self) -> None:
        """A cycle begins."""
        self.any.clear()
        self.loud.clear()


@dataclass(frozen=True, slots=True)
class Decided:
    """A plan with what it took: CPU seconds of deciding, children included. `budget_s` are the CPU
    seconds it might take, `warm` what it started from (None: what the problem says), `failure` what
    kept solvers from deciding: then the plan is a floor."""

    plan: Plan
    cpu_s: float
    budget_s: float | None = None
    warm: Warm | None = None
    failure: str = ""


class Decider(Protocol):
    """Decides somewhere (a thread, or inline in simulation). Only verified plans come back."""

    async def __call__(self, problem: Problem) -> Decided:
        """The plan for a problem."""


@dataclass(frozen=True, slots=True)
class CycleRecord:
    """What one cycle saw, decided and did."""

    cycle: str
    revision: int
    started_ms: int
    wall_s: float
    problem: Problem
    decided: Decided
    world: World
    applier: PlanApplier
    policies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by job of the problem
    blobs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # the same

    @property
    def considered(self) -> int:
        """How many jobs wanted places; of those in the problem some stand for many."""
        return sum(self._stands_for(job.id) for job in self.problem.jobs)

    @property
    def unplaced(self) -> int:
        """How many of these got none, or not all they wanted."""
        return sum(min(self._stands_for(u.job), u.count) for u in self.decided.plan.unplaced)

    def _stands_for(self, job: str) -> int:
        waiting = self.applier.waiting.get(job)
        if waiting is None or waiting.members:
            return len(waiting.members) if waiting else 1
        return int(waiting.part == 0)  # more copies of an array are no more jobs


class Cycles:
    """Runs decision cycles for one leadership."""

    def __init__(
        self,
        leader: Leader,
        projection: Projection,
        decider: Decider,
        clock: Clock,
        sources: Sources,
    ) -> None:
        self._leader = leader
        self._projection = projection
        self._decider = decider
        self._clock = clock
        self._sources = sources
        self._bell = sources.bell
        self._count = 0
        self._wait_s = TIMER_S
        self._failed = 0
        self._told: frozenset[str] = frozenset()
        self._leaving = LeavingQueues(
            leader.books, sources.admitting, sources.keep, leader.put
        )

    async def run(self) -> None:
        """Cycle for ever."""
        while True:
            try:
                async with asyncio.timeout(self._wait_s):
                    await self._bell.any.wait()
            except TimeoutError:
                pass
            await asyncio.sleep(DEBOUNCE_S)
            self._bell.answer()
            try:
                began_s = self._clock.monotonic_s()
                idle = await self._cycle() == 0
            except Exception as error:  # noqa: BLE001  a decision that fails ends no leadership
                self._sources.alarm(f"no decision: {type(error).__name__}: {error}"[:500])
                self._failed += 1
                await asyncio.sleep(min(2.0**self._failed, FAILED_GAP_MAX_S))
                self._bell.ring()
            else:
                self._failed = 0
                if idle:
                    await self._rest(self._clock.monotonic_s() - began_s)

    async def _rest(self, took_s: float) -> None:
        """After a cycle that placed nothing: reports alone bring the next one no sooner than in
        a while, a place that came free as soon as that costs little."""
        least_s = min(RETRY_GAPS * took_s, RETRY_GAP_MAX_S)
        await asyncio.sleep(least_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RETRY_GAP_MAX_S - least_s):
                await self._bell.loud.wait()

    async def _cycle(self) -> int | None:
        """One cycle; returns how many attempts it placed, None where nothing waits."""
        started_ms, started_s = self._clock.now_ms(), self._clock.monotonic_s()
        self._observe(started_ms)
        await self._rule_anew()
        looking = Survey(self._leader.books, started_ms)
        for number, _ in enumerate(chain(self._leader.books.seating(), looking.steps())):
            if number % JOBS_A_STEP == JOBS_A_STEP - 1:
                await asyncio.sleep(0)
        waiting, due_ms = looking.found, looking.due_ms
        left_s = TIMER_S if due_ms is None else (due_ms - started_ms) / 1000
        self._wait_s = min(max(left_s, DEBOUNCE_S), TIMER_S)
        if self._leaving.due(started_ms):
            world = snapshot(self._projection, self._leader.books, self._sources, started_ms)
            await self._leaving.leave(world, waiting, self._decider)
        if not waiting:
            self._sources.admitting.rest()
            await self._improve(Stops())
            return None
        world = snapshot(self._projection, self._leader.books, self._sources, started_ms)
        course = await self._course(world, waiting, looking.recovering)
        decided = await self._decider(course.problem)
        self._tell(decided)
        gap, filled = course.gap(decided.plan), None
        if gap is not None:
            filled = await self._decider(gap.problem)
        left = without(decided.plan.unplaced, filled.plan if filled else None)
        plan = replace(decided.plan, unplaced=left)
        admitting = self._sources.admitting
        admitting.learn(course, plan)
        await self._sources.keep()
        placed = 0
        if gap is not None and filled is not None:
            just = replace(filled.plan, unplaced=())
            applier = self._applier(world, (gap.problem, just, gap.waiting))
            placed += await self._carry_out(applier, filled, (started_ms, started_s))
        applier = self._applier(world, (course.problem, course.explained(plan), course.waiting))
        placed += await self._carry_out(applier, decided, (started_ms, started_s))
        await self._make_room(course, plan, applier.cycle)
        return placed

    def _applier(
        self, world: World, what: tuple[Problem, Plan, Mapping[str, Waiting]]
    ) -> PlanApplier:
        problem, plan, waiting = what
        self._count += 1
        cycle = f"{self._leader.epoch}.{self._count}"
        closed = closed_since(world, self._sources.fleet(), self._clock.now_ms())
        return PlanApplier(plan, problem, world, cycle, closed, waiting)

    async def _carry_out(
        self, applier: PlanApplier, decided: Decided, started: tuple[int, float]
    ) -> int:
        """Apply a plan and record it; returns how many attempts it placed."""
        while not applier.finished:
            await self._apply(applier)
        by_job = applier.waiting
        self._sources.record(
            CycleRecord(
                applier.cycle,
                self._projection.revision,
                started[0],
                self._clock.monotonic_s() - started[1],
                applier.problem,
                decided,
                applier.world,
                applier,
                {k: w.ruling.policies for k, w in by_job.items() if w.ruling and w.ruling.policies},
                {k: b for k, w in by_job.items() if (b := blobs_of(w.spec)) or w.spec.image},
            )
        )
        return len(applier.placed)

    async def _make_room(self, course: Course, plan: Plan, cycle: str) -> None:
        """Stop what has to make room for what the plan left waiting, as far as it may."""
        admitting = self._sources.admitting
        stops = admitting.stops(course, plan)
        if not stops.stops:
            return await self._improve(stops)
        self._sources.mobility.pending = False
        disturb = await self._sources.disturbing.decide(stops, cycle, course.scene.now_ms)
        if disturb is not None:
            admitting.claim(course, disturb.stops)
            await self._sources.keep()
            self._leader.put(disturb)

    async def _improve(self, none: Stops) -> None:
        """Nobody has to make room: what runs may move to a better place, as far as it may."""
        sources, now_ms = self._sources, self._clock.now_ms()
        mobility = sources.mobility
        stops, looked = none, mobility.due(now_ms)
        if looked:
            world = snapshot(self._projection, self._leader.books, sources, now_ms)
            try:
                stops = await mobility.look(world, frozen=sources.disturbing.frozen)
            except Exception as error:  # noqa: BLE001  what runs stays, and nothing else waits for it
                return sources.alarm(f"no moves: {type(error).__name__}: {error}"[:500])
        elif mobility.pending:
            return
        self._count += bool(stops.stops)
        cycle = f"{self._leader.epoch}.{self._count}"
        disturb = await sources.disturbing.decide(stops, cycle, now_ms)
        mobility.pending = disturb is None and bool(stops.stops)
        if disturb is not None:
            mobility.begin(now_ms)
            await sources.keep()
            self._leader.put(disturb)

    def _tell(self, decided: Decided) -> None:
        """Raise what went wrong as alarms; what goes on for many decisions once."""
        wrong = frozenset((*decided.plan.notes, decided.failure)) - {""}
        for text in sorted(wrong - self._told):
            self._sources.alarm(text[:500])
        self._told = wrong

    async def _rule_anew(self) -> None:
        """After a change of the policies: all jobs, in steps that let the event loop turn."""
        for number, job in enumerate(self._leader.books.unruled()):
            self._leader.books.admitted(job)
            if number % JOBS_A_STEP == JOBS_A_STEP - 1:
                await asyncio.sleep(0)

    def _observe(self, now_ms: int) -> None:
        """What tenants hold counts also while nothing waits."""
        tenants = read_tenants(self._projection)
        weights = {name: float(policy.weight) for name, policy in tenants.items()}
        self._sources.admitting.observe(self._sources.fleet(), weights, now_ms)

    async def _course(
        self, world: World, waiting: list[Waiting], recovering: list[Waiting]
    ) -> Course:
        """The problem as admitted, built in steps that let the event loop turn. A job that cannot
        be put into words is set aside: it must not keep all others from being decided."""
        builder = ProblemBuilder(world, waiting)
        found = []
        governed = self._sources.admitting.governed(world.fleet)
        for number, one in enumerate(with_spot_shares(waiting, governed)):
            try:
                found.append((one, builder.job(one)))
            except Exception as error:  # noqa: BLE001  whatever is wrong is wrong with this job
                why = f"it cannot be planned: {type(error).__name__}: {error}"[:400]
                for job_id in one.members or (one.job.id,):
                    self._leader.books.set_aside(job_id, why)
                more = f" with {len(one.members) - 1} alike" if len(one.members) > 1 else ""
                self._sources.alarm(f"job {one.job.id} is set aside{more}: {why}")
            if number % JOBS_A_STEP == JOBS_A_STEP - 1:
                await asyncio.sleep(0)
        for number, _ in enumerate(builder.pools()):
            if number % CLUSTERS_A_STEP == CLUSTERS_A_STEP - 1:
                await asyncio.sleep(0)
        await asyncio.sleep(0)
        return self._sources.admitting.admit(world, builder, found, recovering)

    async def _apply(self, applier: PlanApplier) -> None:
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(_: PlanApplier, __: Round) -> None:
            if not durable.done():
                durable.set_result(None)

        applier.done = done
        self._leader.put(applier)
        await durable


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a cycle finds what it needs, and where it leaves its record. `bell` rings when
    something changed that may let a job start; `keep` makes durable what is kept for whom."""

    fleet: Callable[[], Fleet]
    typed_rtt_ms: dict[tuple[str, str], float]
    record: Callable[[CycleRecord], None]
    bell: Bell
    admitting: Admitting
    disturbing: Disturbing
    mobility: Mobility
    keep: Callable[[], Awaitable[None]]
    alarm: Callable[[str], None] = lambda text: None
    starts: StartDelays = field(default_factory=StartDelays)
    preemptions: Preemptions = field(default_factory=Preemptions)
    links: Links = field(default_factory=dict)


def snapshot(projection: Projection, books: Books, sources: Sources, now_ms: int) -> World:
    """The world at this instant."""
    fleet = sources.fleet()
    reflected = {
        str(name): view.capacity.reflects_event_seq
        for name, view in fleet.clusters.items()
        if view.capacity is not None
    }
    return World(
        fleet=fleet,
        attempts=books.accountable(reflected),
        tenants=read_tenants(projection),
        now_ms=now_ms,
        typed_rtt_ms=sources.typed_rtt_ms,
        starts=sources.starts,
        preempted=sources.preemptions.snapshot(),
        links=sources.links,
        datasets=read_datasets(projection),
        neighbours=books.neighbours(),
    )


def closed_since(world: World, now: Fleet, now_ms: int) -> frozenset[str]:
    """Clusters of a snapshot that take nothing any more."""
    return frozenset(
        str(name)
        for name in world.fleet.clusters
        if name not in now.clusters or unusable(now.clusters[name], now_ms) is not None
    )
