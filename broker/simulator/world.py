"""One run of a scenario: the production wiring over twins, simulated sites, faults and users."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker.act.backends.simulated import SimulatedGateway
from broker.act.gateway import Command, LogPart
from broker.act.session_facts import ReportReaders
from broker.app import Backends, ControlPlane, build
from broker.control.cycle import Decided
from broker.control.office import Office
from broker.control.policy_book import Change, write_policy
from broker.control.tenants import encode_tenant
from broker.decide.decision import Budget, decide
from broker.feedback.backends.memory import MemoryBlobs, MemoryLedger, MemoryLogs
from broker.model.fleet import TenantPolicy
from broker.model.problem import Problem
from broker.sense.reports import capacity_from, prices_from, round_trips_from
from broker.settings import BrokerSettings
from broker.simulator.checkers import Auditor
from broker.simulator.fleet import FleetPlan, SitePlan
from broker.simulator.truth import Truth
from broker.state import keys
from broker.state.backends.faulty import StoreHandle, Weather
from broker.state.backends.memory import MemoryStore
from broker.state.keyring import Keyring
from broker.state.projection import Projection
from federation.handshake.values import Peer
from federation.kv import ModRevisionIs, Put, Txn
from federation.lines import Line
from federation.virtual_time import EPOCH_MS, Chores, SimClock, SimIds, SimRng, ended
from federation.wire import records as pb
from regional_agent.act.backends.memory_journal import MemoryJournal
from regional_agent.act.schedulers.port import SchedulerUnavailable
from regional_agent.act.schedulers.simulated import SimScheduler
from regional_agent.simulated import Agent, Site

DIAL_S = 10.0
SKEW_MS = 2_000
YEARS_MS = 10 * 365 * 86_400_000
DECIDE_S = 0.005
DECIDE_S_PER_JOB = 0.0005


@dataclass(slots=True)
class Brokers:
    """Settings all broker processes of a run share."""

    replicas: int = 1
    heartbeat_ms: int = 5_000
    decide_cpu_s: float = 0.2
    settings: Mapping[str, Any] = field(default_factory=dict)


class InlineDecider:
    """Decides in the loop and charges virtual time by the size of the problem.

    The same problem again has the same plan, so it is not decided again."""

    def __init__(self, cpu_s: float) -> None:
        self._budget = Budget(cpu_s=cpu_s)
        self._last: tuple[Problem, Decided] | None = None
        self.charged_s: list[float] = []

    async def __call__(self, problem: Problem) -> Decided:
        """See `Decider`."""
        cost_s = DECIDE_S + DECIDE_S_PER_JOB * len(problem.jobs)
        self.charged_s.append(cost_s)
        if self._last is None or self._last[0] != problem:
            self._last = problem, Decided(decide(problem, self._budget), cost_s)
        decided = self._last[1]
        await asyncio.sleep(cost_s)
        return decided


class _CountingGateway(SimulatedGateway):
    """Counts sends, so that a process can be killed before or after one."""

    on_send: Callable[[str, int], None]
    dead = False
    _sends = 0

    async def send(self, cluster: str, commands: Sequence[Command]) -> None:
        """See the port."""
        self._sends += 1
        number = self._sends
        self.on_send("send", number)
        await self._alive()
        await super().send(cluster, commands)
        self.on_send("sent", number)
        await self._alive()

    async def _alive(self) -> None:
        if self.dead:
            await asyncio.get_running_loop().create_future()


class BrokerProcess:
    """One life of a broker replica."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        world.births += 1
        dice = world.rng.fork(f"{name}.{world.births}")
        self.store = StoreHandle(world.store, world.weather, dice)
        settings = BrokerSettings(
            name=name,
            state_dir=world.directory,
            session_addresses=(name,),
            heartbeat_ms=world.options.heartbeat_ms,
            typed_rtt=world.fleet.typed_rtt,
            **world.options.settings,
        )
        backends = Backends(
            self.store,
            world.ledger,
            world.blobs,
            world.logs,
            world.keyring,
            world.decider,
            world.clock,
            world.ids,
        )
        gateways: list[_CountingGateway] = []

        def gateway(office: Office) -> SimulatedGateway:
            readers = ReportReaders(capacity_from, prices_from, round_trips_from)
            gateways.append(_CountingGateway(office, readers, world.clock))
            return gateways[0]

        self.plane: ControlPlane = build(settings, backends, gateway)
        self.gateway = gateways[0]
        self.gateway.on_send = lambda what, number: None
        self.running = asyncio.create_task(self.plane.run(), name=name)
        self.serving = Chores()

    @property
    def dead(self) -> bool:
        """Whether it was killed."""
        return self.store.dead

    def strike(self) -> None:
        """From this instant on it does nothing and hears nothing."""
        self.store.dead = self.gateway.dead = True

    async def bury(self) -> None:
        """End its tasks."""
        self.strike()
        await self.serving.end()
        await ended([self.running])


class World:
    """Everything of one run. Made inside the loop."""

    def __init__(
        self, fleet: FleetPlan, seed: int, directory: Path, options: Brokers
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.fleet = fleet
        self.directory = directory
        self.options = options
        self.rng = SimRng(seed)
        self.clock = SimClock(self.loop)
        self.ids = SimIds(self.rng.fork("ids"))
        self.store = MemoryStore(self.clock)
        self.weather = Weather()
        self.ledger = MemoryLedger()
        self.blobs = MemoryBlobs()
        self.logs = MemoryLogs()
        self.keyring = Keyring.open(
            directory / "keys", "simulated", now_ms=EPOCH_MS, ids=SimIds(self.rng.fork("keys"))
        )
        self.decider = InlineDecider(options.decide_cpu_s)
        self.transcript: list[str] = []
        self.births = 0
        self.brokers: dict[str, BrokerProcess] = {}
        self.chores = Chores()
        self.cut_off: set[str] = set()
        self.projection = Projection(self.store, lambda text: self.truth.wrong(text))
        self.truth = Truth(self.loop.time, self.say, lambda c, uid: self.auditor.phase_of(c, uid))
        self.truth.ticket_keys = self.keyring.ticket_keys
        self.auditor = Auditor(self.projection, self.truth)
        self._way = self.rng.fork("network")
        self.sites = {plan.name: self._site(plan) for plan in fleet.sites}

    def say(self, text: str) -> None:
        """A line of the transcript."""
        self.transcript.append(f"{self.loop.time():.6f} {text}")

    # Beginning and end ------------------------------------------------------------------------

    async def begin(self, tenants: Sequence[TenantPolicy], routing: str) -> None:
        """Records of clusters, tenants and a routing policy (its text, empty for none), then
        brokers and agents."""
        if routing:
            change = Change(routing, EPOCH_MS, "simulator")
            await write_policy(self.store, change, lambda revision, puts: None)
        puts = []
        for site in self.sites.values():
            record = pb.ClusterRecord(
                schema=1, cluster=site.name, region=site.region, state="joined", joined_ms=1
            )
            puts.append(Put(keys.cluster(site.name), record.SerializeToString()))
        for tenant in tenants:
            puts.append(Put(keys.tenant(tenant.name), encode_tenant(tenant)))
        for put in puts:
            await self.store.txn(Txn(then=(put,)))
        self.chores.start(self.projection.run(), "auditor-projection")
        self.chores.start(self.auditor.run(self.loop.time, self.say), "auditor")
        for number in range(1, self.options.replicas + 1):
            self.start_broker(f"broker-{number}")
        for site in self.sites.values():
            self.start_agent(site)

    async def end(self) -> None:
        """Everything stops where it stands."""
        await self.chores.end()
        for broker in list(self.brokers.values()):
            await broker.bury()

    def _site(self, plan: SitePlan) -> Site:
        rng = self.rng.fork(plan.name)
        clock = SimClock(self.loop, int(rng.uniform(-SKEW_MS, SKEW_MS)))
        scheduler = SimScheduler(plan.name, clock, rng.fork("scheduler"), self.truth)
        scheduler.conduct.start_s = plan.start_s
        scheduler.queue.pools = plan.pools
        self.truth.pools.update({(plan.name, pool.name): pool for pool in plan.pools})
        journal = MemoryJournal(f"{plan.name}-disk-1")
        return Site(
            plan.name,
            plan.region,
            plan.pools,
            plan.prices,
            scheduler,
            journal,
            clock,
            rng,
            tuple(f"broker-{number}" for number in range(1, self.options.replicas + 1)),
        )

    # Brokers ----------------------------------------------------------------------------------

    def start_broker(self, name: str) -> BrokerProcess:
        """A new process of that name over the store that outlived the last."""
        self.say(f"{name} starts")
        self.brokers[name] = BrokerProcess(self, name)
        return self.brokers[name]

    def kill_broker(self, name: str) -> None:
        """Between two lines: nothing is flushed, resigned or said. Its sessions break as TCP
        does when a process dies."""
        broker = self.brokers[name]
        if broker.dead:
            return
        self.say(f"{name} is killed")
        broker.strike()
        for site in self.sites.values():
            for line in site.lines:
                if line.address == name:
                    line.cut()
        self.chores.start(broker.bury(), f"bury-{name}")

    # Sites ------------------------------------------------------------------------------------

    def start_agent(self, site: Site) -> None:
        """A new life of the agent of a site."""
        self.say(f"{site.name} agent starts")
        if site.agent is not None:
            return  # another fault has brought it back already
        site.agent = Agent(site, self, self.truth)
        site.running = self.chores.start(site.agent.run(), f"agent-{site.name}")

    def kill_agent(self, site: Site) -> None:
        """The agent dies; scheduler and journal stay. Its lines break a moment later."""
        self.say(f"{site.name} agent is killed")
        running, site.running, site.agent = site.running, None, None
        if running is not None:
            running.cancel()

    def start_s(self, site: Site) -> float:
        """What the scheduler of a site usually needs to start a job."""
        return next(plan.start_s for plan in self.fleet.sites if plan.name == site.name)

    def sever(self, site: Site) -> None:
        """No frame passes until `mend`; none is lost."""
        self.cut_off.add(site.name)
        for line in site.lines:
            line.stall()

    def mend(self, site: Site) -> None:
        """The partition is over."""
        self.cut_off.discard(site.name)
        for line in site.lines:
            line.flow()

    async def drain(self, site: Site, for_s: float) -> None:
        """Operators drain a cluster for good, with a deadline."""
        key = keys.cluster(site.name)
        while True:
            found = await self.store.get(key)
            assert found is not None, "every site has its record"
            record = pb.ClusterRecord.FromString(found.value)
            record.state = "draining"
            record.drain_deadline_ms = self.clock.now_ms() + round(for_s * 1000)
            unchanged = ModRevisionIs(key, found.mod_revision)
            put = Put(key, record.SerializeToString())
            if (await self.store.txn(Txn((unchanged,), (put,)))).succeeded:
                return

    async def dial(self, site: Site, address: str) -> Line:
        """See `agent.Network`."""
        delay_s = self._delay(site)
        await asyncio.sleep(3 * delay_s())
        if site.name in self.cut_off:
            await asyncio.sleep(DIAL_S)
            raise TimeoutError(f"no answer from {address}")
        broker = self.brokers.get(address)
        if broker is None or broker.dead:
            raise ConnectionError(f"{address} refuses the connection")
        line = Line(address, delay_s)
        site.lines = [*site.lines[-3:], line]
        peer = Peer("TLSv1.3", site.name, f"simulated-{site.name}", 0, EPOCH_MS + YEARS_MS, 1)

        async def read_log(uid: str, stream: str, offset: int, limit: int) -> LogPart:
            await asyncio.sleep(2 * delay_s())
            if site.agent is None or site.name in self.cut_off:
                raise TimeoutError(f"{site.name} does not answer")
            try:
                found = await site.scheduler.read_log(uid, stream, offset, limit)
            except SchedulerUnavailable as problem:
                raise TimeoutError(str(problem)) from problem
            return LogPart(found.data, found.offset, found.total, found.complete)

        broker.serving.start(broker.gateway.serve(peer, line, read_log), f"session-{site.name}")
        return line

    def _delay(self, site: Site) -> Callable[[], float]:
        home = self.fleet.sites[0].region
        one_way_s = self.fleet.rtt_ms(home, site.region) / 2000
        return lambda: one_way_s * self._way.uniform(0.9, 1.3)


class ErrorsSeen(logging.Handler):
    """Errors that supervisors log and survive are violations all the same."""

    def __init__(self, truth: Truth) -> None:
        super().__init__(logging.ERROR)
        self._truth = truth

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        fault = record.exc_info[1] if record.exc_info else None
        text = record.getMessage() + (f": {fault!r}" if fault else "")
        self._truth.wrong(f"logged: {' '.join(text.split())[:500]}")

