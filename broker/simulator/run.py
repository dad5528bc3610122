"""A scenario from beginning to end: users, faults, waiting for the dust to settle, conclusions."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from broker.api.intents import Intents
from broker.api.problems import Problem
from broker.control.policy_text import InvalidPolicy, read_policy
from broker.control.submission import Request, Submissions
from broker.control.viewing import Viewer
from broker.model.fleet import TenantPolicy
from broker.model.jobs import Intent, Job
from broker.simulator.faults import Faults
from broker.simulator.fleet import FleetPlan, plan_fleet, with_capacity
from broker.simulator.report import Metrics, measure
from broker.simulator.scenario import Scenario, ScenarioError
from broker.simulator.workload import (
    Submission,
    TraceRow,
    Wish,
    demand,
    governed,
    pinned,
    read_trace,
    submissions,
)
from broker.simulator.world import BrokerProcess, Brokers, ErrorsSeen, World
from federation.jobs import InvalidJob
from federation.kv import StoreUnavailable
from federation.virtual_time import SimLoop, SimRng

DEFAULT, HOME = "default", "home"
VIEWER = Viewer("simulator", operator=True)
ASK_S = 5.0
AGAIN_S = 0.5
LOOK_S = 1.0
CLOSING_S = 20.0
LOGGERS = ("tradewind", "broker", "regional_agent")


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a run. `story`: per job its end and where it ran; `transcript`: everything."""

    metrics: Metrics
    violations: tuple[str, ...]
    story: dict[str, str]
    transcript: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Of the whole transcript."""
        return hashlib.sha256("\n".join(self.transcript).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A scenario with everything it names read."""

    scenario: Scenario
    fleet: FleetPlan
    rows: list[TraceRow]
    routing: Mapping[str, str]


def prepare(scenario: Scenario, directory: Path) -> Prepared:
    """Read what a scenario names; relative paths start at `directory`. Raises ScenarioError."""
    routing = dict(_routing(directory / name) for name in scenario.policy_files)
    known = (DEFAULT, HOME, *routing)
    for name in scenario.policies:
        if name not in known:
            raise ScenarioError(f"policies: {name!r} is none of {', '.join(known)}")
    fleet = plan_fleet(scenario.fleet, directory)
    rows = read_trace(scenario, directory)
    capacity = scenario.fleet.capacity
    if isinstance(capacity, str):
        capacity = _wanted(fleet, demand(rows, int(capacity[1:])))
    return Prepared(scenario, with_capacity(fleet, capacity), rows, routing)


def _routing(path: Path) -> tuple[str, str]:
    """Name and text of a routing policy."""
    try:
        source = path.read_text(encoding="utf-8")
        return read_policy(source).name, source
    except (OSError, UnicodeDecodeError, InvalidPolicy) as fault:
        raise ScenarioError(f"policy_files: {path}: {fault}") from fault


def run(
    prepared: Prepared, *, seed: int | None = None, policy: str = DEFAULT, explore: bool = False
) -> Result:
    """Run once in virtual time. Raises ScenarioError for jobs the API refuses."""
    chosen = prepared.scenario.seed if seed is None else seed
    loop = SimLoop(SimRng(f"{chosen}/explorer") if explore else None)
    collecting = gc.isenabled()
    gc.disable()  # finalizers run where they fall, not where an allocation count says
    try:
        with tempfile.TemporaryDirectory(prefix="tradewind-sim-") as name:
            return loop.run_until_complete(_Run(prepared, chosen, policy).run(Path(name)))
    finally:
        loop.close()
        if collecting:
            gc.enable()


def _wanted(fleet: FleetPlan, by_cluster: dict[str, int]) -> dict[str, int]:
    """Accelerators per pool: a cluster's own demand, or a share of all by its size."""
    whole = sum(site.accelerators for site in fleet.sites)
    found = {}
    for site in fleet.sites:
        mine = by_cluster.get(site.name)
        if mine is None:
            mine = by_cluster.get("", 0) * site.accelerators // whole
        for pool in site.pools:
            cards = pool.nodes * pool.accelerators_per_node
            found[f"{site.name}/{pool.name}"] = max(1, mine * cards // site.accelerators)
    return found


class _Run:
    """One run."""

    def __init__(self, prepared: Prepared, seed: int, policy: str) -> None:
        self._scenario = prepared.scenario
        self._fleet = prepared.fleet
        self._seed = seed
        found = submissions(prepared.scenario, prepared.fleet, prepared.rows)
        if policy == HOME:
            found = [pinned(each, prepared.fleet) for each in found]
        elif policy != DEFAULT:
            found = [governed(each, policy) for each in found]
        self._routing = prepared.routing.get(policy, "")
        self._submissions = found
        self._ids: dict[str, tuple[str, ...]] = {}
        self._acknowledged_s: dict[str, float] = {}

    async def run(self, directory: Path) -> Result:
        """See `run`."""
        heartbeat_ms = round(self._scenario.heartbeat * 1000)
        settings = self._scenario.settings
        options = Brokers(self._scenario.brokers, heartbeat_ms, settings=settings)
        self._world = world = World(self._fleet, self._seed, directory, options)
        watch = ErrorsSeen(world.truth)
        for name in LOGGERS:
            logging.getLogger(name).addHandler(watch)
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: world.truth.wrong(f"unhandled: {context.get('exception')!r}")
        )
        try:
            await world.begin(self._tenants(), self._routing)
            faults = Faults(world, self._scenario.faults)
            await self._live(faults)
            await world.auditor.conclude(
                world.ledger, self._submitted, world.loop.time()
            )
            return Result(
                await measure(world, self._acknowledged_s),
                tuple(world.truth.violations),
                self._story(),
                tuple(world.transcript),
            )
        finally:
            await world.end()
            for name in LOGGERS:
                logging.getLogger(name).removeHandler(watch)

    def _tenants(self) -> list[TenantPolicy]:
        """Those of the scenario, and the usual policy for others that jobs name."""
        listed = [TenantPolicy(**part.model_dump()) for part in self._scenario.tenants]
        named = {t for each in self._submissions for t in each.tenants}
        others = sorted(named - {policy.name for policy in listed})
        return [*listed, *(TenantPolicy(name) for name in others)]

    @property
    def _submitted(self) -> set[str]:
        return {job for ids in self._ids.values() for job in ids}

    async def _live(self, faults: Faults) -> None:
        world = self._world
        users = [
            world.chores.start(self._user(each), f"user-{each.name}")
            for each in self._submissions
        ]
        await asyncio.gather(*users)
        while not faults.over:
            await asyncio.sleep(LOOK_S)
        until_s = world.loop.time() + self._scenario.settle
        while world.loop.time() < until_s and not self._submitted <= world.auditor.ended.keys():
            await asyncio.sleep(LOOK_S)
        await asyncio.sleep(CLOSING_S)

    # Users ------------------------------------------------------------------------------------

    async def _user(self, submission: Submission) -> None:
        await self._until(submission.at_s)
        self._ids[submission.name] = await self._submit(submission)
        for wish in sorted(submission.wishes, key=lambda w: w.at_s):
            await self._until(wish.at_s)
            for job in self._ids[submission.name]:
                await self._ask(job, wish)

    async def _until(self, at_s: float) -> None:
        await asyncio.sleep(max(0.0, at_s - self._world.loop.time()))

    async def _submit(self, submission: Submission) -> tuple[str, ...]:
        key = hashlib.sha256(submission.name.encode()).digest()
        request = Request(VIEWER, key, idempotency_key=submission.name)
        while True:
            try:
                async with asyncio.timeout(ASK_S):
                    broker = await self._some_broker()
                    done = await _door(broker).submit(list(submission.bodies), request)
                break
            except InvalidJob as fault:
                raise ScenarioError(f"workload: {submission.name}: {fault}") from fault
            except (StoreUnavailable, TimeoutError):
                await asyncio.sleep(AGAIN_S)
        now_s = self._world.loop.time()
        for job in done.ids:
            self._acknowledged_s[job] = now_s
            self._world.say(f"user {submission.name} has {job}")
        return tuple(done.ids)

    async def _ask(self, job: str, wish: Wish) -> None:
        while True:
            try:
                async with asyncio.timeout(ASK_S):
                    services = (await self._some_broker()).plane.services
                    intents = Intents(services.store, services.projection, services.lanes)
                    now_ms = services.clock.now_ms()
                    change = _CHANGES[wish.what]
                    await intents.ask(job, change, subject=VIEWER.subject, now_ms=now_ms)
                self._world.say(f"user asked {wish.what} of {job}")
                return
            except Problem as problem:
                if problem.status == 409:
                    return
                await asyncio.sleep(AGAIN_S)
            except (StoreUnavailable, TimeoutError):
                await asyncio.sleep(AGAIN_S)

    async def _some_broker(self) -> BrokerProcess:
        """One that lives and has read the store; waits for it."""
        while True:
            for broker in self._world.brokers.values():
                if not broker.dead and broker.plane.services.projection.ready.is_set():
                    return broker
            await asyncio.sleep(AGAIN_S)

    def _story(self) -> dict[str, str]:
        auditor = self._world.auditor
        found = {}
        for name, ids in sorted(self._ids.items()):
            for index, job in enumerate(ids):
                end = auditor.ended.get(job)
                attempts = sorted(
                    (a for a in auditor.attempts.values() if a.job == job),
                    key=lambda a: a.placed_ms,
                )
                how = [f"{a.cluster}:{a.outcome.kind if a.outcome else a.phase}" for a in attempts]
                last = auditor.jobs[job]
                ending = end.kind if end else f"{last.phase.value} {last.reason_code}"
                label = name if len(ids) == 1 else f"{name}.{index + 1}"
                found[label] = " ".join([ending.strip(), *(how or ["nowhere"])])
        return found


def _door(broker: BrokerProcess) -> Submissions:
    return broker.plane.services.submissions()


def _cancelled(_: Job, intent: Intent) -> Intent:
    return replace(intent, cancel=True, why="asked by the scenario")


def _held(_: Job, intent: Intent) -> Intent:
    return replace(intent, hold=True)


def _released(_: Job, intent: Intent) -> Intent:
    return replace(intent, hold=False)


_CHANGES = {"cancel": _cancelled, "hold": _held, "release": _released}
