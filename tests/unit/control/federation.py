"""A whole broker in memory with sites that behave, for tests of the control shell.

The store, ledger, blobs and logs are the memory twins that pass the conformance suites; the sites
answer commands as the protocol says, keep a journal of events until acknowledged, and start each
attempt at most once however often they are told.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from broker.act.gateway import (
    CacheArrived,
    CapacityArrived,
    Command,
    Dispatch,
    EventsArrived,
    Forget,
    GatewayEvent,
    LogPart,
    Prepare,
    PricesArrived,
    SessionClosed,
    SessionOpened,
    SetSlice,
    SiteSilent,
    Stop,
)
from broker.app import Backends, ControlPlane, build
from broker.control.cycle import Decided
from broker.control.office import Office
from broker.decide.decision import Budget, decide
from broker.feedback.backends.memory import MemoryBlobs, MemoryLedger, MemoryLogs
from broker.lifecycle import events as ev
from broker.model.fleet import Cache, Capacity, NodeGroup, PoolCapacity, PoolPrice
from broker.model.jobs import Outcome, OutcomeKind
from broker.model.problem import Problem
from broker.settings import BrokerSettings
from broker.state import keys
from broker.state.backends.memory import MemoryStore
from broker.state.keyring import Keyring
from federation.kv import Put, Txn
from federation.runs import Runs
from federation.system import SystemClock, SystemIds
from federation.wire import records as pb

GIB = 1024**3

TTL_S = 1.2
"""Of leaderships here. A leader that stands still for 0.8 of it gives up: that is longer than a
busy machine keeps a process waiting, and short enough to wait for again and again."""
WITHIN_S = 30.0
"""How long is waited for what must come: a busy machine is no fault."""


@dataclass
class Site:
    """One cluster: a CPU pool of so many slots on one node, tasks that take `task_s`; so many
    attempts as `take_back` says end preempted."""

    name: str
    slots: int = 8
    task_s: float = 0.02
    price_usd: float = 0.05
    hold: bool = False
    seq: int = 0
    acked: int = 0
    taken: int = 0
    events: list[ev.SiteEvent] = field(default_factory=list)
    starts: dict[str, int] = field(default_factory=dict)
    holding: dict[str, int] = field(default_factory=dict)
    slices: dict[str, Runs] = field(default_factory=dict)
    stopped: set[str] = field(default_factory=set)
    refuse_next: list[str] = field(default_factory=list)
    take_back: int = 0
    seen: set[str] = field(default_factory=set)
    capabilities: tuple[str, ...] = ()
    prepared: list[Prepare] = field(default_factory=list)
    took_ms: tuple[int, int] = (0, 0)
    fetched_bytes: int = 0

    def say(self, event: ev.SiteEvent) -> ev.SiteEvent:
        """Journal an event under the next number."""
        self.seq += 1
        numbered = replace(event, event_seq=self.seq)
        self.events.append(numbered)
        return numbered


class Sites:
    """The `Gateway` of a broker: sessions come and go as the test says."""

    def __init__(self, sites: Sequence[Site], clock: SystemClock) -> None:
        self.sites = {site.name: site for site in sites}
        self._clock = clock
        self._inbox: asyncio.Queue[GatewayEvent] = asyncio.Queue()
        self._sessions: dict[str, int] = {}
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self.left_office = 0

    async def inbox(self) -> AsyncIterator[tuple[GatewayEvent, ...]]:
        while True:
            yield (await self._inbox.get(),)

    def connect(self, name: str) -> None:
        """Open a session: what is not acknowledged is told again, then a capacity report."""
        site = self.sites[name]
        number = self._sessions[name] = next(self._numbers)
        self._inbox.put_nowait(
            SessionOpened(
                name, number, f"i{number}", "journal", False, site.seq, site.taken, "process",
                "per-user", site.capabilities, "1", b"", "01", self._clock.now_ms() + 86_400_000, 5,
            )
        )
        waiting = [e for e in site.events if e.event_seq > site.acked]
        if waiting:
            self._tell(site, waiting)
        price = PoolPrice("cpu", "owned", int(site.price_usd * 1e6), 0, 1, "test")
        raw = pb.ReportEnvelope(
            schema=1,
            received_ms=self._clock.now_ms(),
            price=pb.PriceReport(
                pools=[
                    pb.PoolPrice(
                        pool="cpu", kind="owned", marginal_micro_usd=price.marginal_micro_usd,
                        full_micro_usd=1, as_of_ms=1, source="test",
                    )
                ]
            ),
        )
        self._inbox.put_nowait(PricesArrived(name, number, (price,), raw.SerializeToString()))
        self.report(name)

    def disconnect(self, name: str) -> None:
        """The session breaks; the site works on."""
        number = self._sessions.pop(name)
        self._inbox.put_nowait(SessionClosed(name, number, "cut"))

    def report(self, name: str) -> None:
        """One instant of the site, with what it reflects."""
        if name not in self._sessions:
            return
        site = self.sites[name]
        free = site.slots - sum(site.holding.values())
        total = pb.NodeGroup(
            count=1, accelerator="CPU", total=site.slots, free=free,
            cpus_milli=site.slots * 1000, free_cpus_milli=free * 1000,
            memory_bytes=64 * GIB, free_memory_bytes=64 * GIB,
        )
        report = pb.CapacityReport(
            as_of_ms=1, reflects_dispatch_seq=site.taken, reflects_event_seq=site.seq,
            pools=[pb.PoolCapacity(pool="cpu", groups=[total])],
        )
        now_ms = self._clock.now_ms()
        raw = pb.ReportEnvelope(schema=1, received_ms=now_ms, capacity=report)
        group = NodeGroup(1, "CPU", site.slots, free, site.slots * 1000, free * 1000, GIB, GIB)
        capacity = Capacity(
            now_ms, 1, 1, site.taken, site.seq, (PoolCapacity("cpu", (group,)),)
        )
        self._inbox.put_nowait(
            CapacityArrived(name, self._sessions[name], capacity, raw.SerializeToString())
        )

    def cache(self, name: str, **blobs: int) -> None:
        """What a site says of its cache: bytes by digest."""
        now_ms = self._clock.now_ms()
        items = [pb.CachedItem(sha256=sha256, bytes=size) for sha256, size in blobs.items()]
        raw = pb.ReportEnvelope(
            schema=1, received_ms=now_ms, cache=pb.CacheReport(generation=1, items=items)
        )
        told = CacheArrived(
            name, self._sessions[name], Cache(now_ms, blobs), raw.SerializeToString()
        )
        self._inbox.put_nowait(told)

    async def send(self, cluster: str, commands: Sequence[Command]) -> None:
        if cluster not in self._sessions:
            raise SiteSilent(cluster)
        for command in commands:
            self._take(self.sites[cluster], command)

    async def acknowledge(self, cluster: str, event_seq: int) -> None:
        site = self.sites[cluster]
        site.acked = max(site.acked, event_seq)

    async def read_log(
        self, cluster: str, uid: str, stream: str, offset: int, limit: int, *, wait_ms: int = 0
    ) -> LogPart:
        if cluster not in self._sessions:
            raise SiteSilent(cluster)
        return LogPart(b"hello\n"[offset:], offset, 6, True)

    def answered_s(self, cluster: str) -> float:
        return float("-inf")  # heartbeats are not played here: silence lasts since the election

    def leave_office(self, successor: str) -> None:
        self.left_office += 1
        self._sessions.clear()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    # The site's own behaviour -------------------------------------------------------------------

    def _tell(self, site: Site, events: Sequence[ev.SiteEvent]) -> None:
        number = self._sessions.get(site.name)
        if number is not None and events:
            last = events[-1].event_seq
            self._inbox.put_nowait(EventsArrived(site.name, number, tuple(events), last))

    def _take(self, site: Site, command: Command) -> None:
        if isinstance(command, Forget):
            return
        if isinstance(command, Prepare):
            site.prepared.append(command)
            return
        if isinstance(command, Stop):
            site.stopped.add(command.uid)
            return
        site.taken = max(site.taken, command.dispatch_seq)
        now_ms = self._clock.now_ms()
        if isinstance(command, SetSlice):
            site.slices[command.uid] = command.tasks
            told = ev.SliceSet(command.uid, 0, now_ms, command.dispatch_seq, command.tasks)
            self._tell(site, [site.say(told)])
            return
        if command.uid in site.seen:
            return
        site.seen.add(command.uid)
        if site.refuse_next:
            code = site.refuse_next.pop()
            refused = ev.Refused(command.uid, 0, now_ms, command.dispatch_seq, code, "busy")
            self._tell(site, [site.say(refused)])
            return
        site.holding[command.uid] = max(command.width, 1) * command.accelerators_per_replica
        task = asyncio.create_task(self._run(site, command))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, site: Site, order: Dispatch) -> None:
        uid, now = order.uid, self._clock.now_ms
        self._tell(site, [site.say(ev.Accepted(uid, 0, now(), order.dispatch_seq, ("n1",)))])
        prepare_ms, launch_ms = site.took_ms
        if prepare_ms:
            await asyncio.sleep(prepare_ms / 1000)
        told = ev.Prepared(uid, 0, now(), max(prepare_ms, 1), site.fetched_bytes)
        self._tell(site, [site.say(told)])
        if launch_ms:
            await asyncio.sleep(launch_ms / 1000)
        self._tell(site, [site.say(ev.Started(uid, 0, now(), 1, uid))])
        kind = OutcomeKind.SUCCEEDED
        if order.width:
            kind = await self._run_slice(site, order)
        else:
            site.starts[uid] = site.starts.get(uid, 0) + 1
            waited = 0.0
            while (site.hold or waited < site.task_s) and uid not in site.stopped:
                await asyncio.sleep(0.005)
                waited += 0.005
        if uid in site.stopped:
            kind = OutcomeKind.CANCELLED
        elif site.take_back:
            site.take_back, kind = site.take_back - 1, OutcomeKind.PREEMPTED
        del site.holding[uid]
        ended = ev.Ended(uid, 0, now(), Outcome(kind), log_bytes=(("output", 6),))
        self._tell(site, [site.say(ended)])
        self.report(site.name)

    async def _run_slice(self, site: Site, order: Dispatch) -> OutcomeKind:
        site.slices.setdefault(order.uid, order.tasks)
        done = Runs()
        while order.uid not in site.stopped:
            todo, _ = site.slices[order.uid].difference(done).take(order.width)
            if not todo:
                break
            for task in todo:
                key = f"{order.uid.rsplit('-', 1)[0]}/{task}"
                site.starts[key] = site.starts.get(key, 0) + 1
            await asyncio.sleep(site.task_s)
            done = done.union(todo)
            told = ev.TasksChanged(order.uid, 0, self._clock.now_ms(), todo, todo, ())
            self._tell(site, [site.say(told)])
        return OutcomeKind.SUCCEEDED


class InlineDecider:
    """Decides in the event loop."""

    async def __call__(self, problem: Problem) -> Decided:
        return Decided(decide(problem, Budget(cpu_s=1.0)), 0.0)


@dataclass
class Federation:
    """A broker over a store that outlives it."""

    directory: Path
    sites: Sites
    store: MemoryStore
    backends: Backends
    plane: ControlPlane | None = None
    running: asyncio.Task[None] | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    async def make(directory: Path, *sites: Site) -> Federation:
        """A store that knows the clusters, and no broker yet."""
        clock, ids = SystemClock(), SystemIds()
        store = MemoryStore(clock)
        keyring = Keyring.open(directory / "keys", "test", now_ms=clock.now_ms(), ids=ids)
        for site in sites:
            record = pb.ClusterRecord(
                schema=1, cluster=site.name, region=site.name, state="joined", joined_ms=1
            )
            await store.txn(
                Txn(then=(Put(keys.cluster(site.name), record.SerializeToString()),))
            )
        backends = Backends(
            store, MemoryLedger(), MemoryBlobs(), MemoryLogs(), keyring, InlineDecider(),
            clock, ids,
        )
        return Federation(directory, Sites(sites, clock), store, backends)

    async def start(self) -> ControlPlane:
        """A new broker process, so to speak; all sites connect once it leads."""
        settings = BrokerSettings(
            state_dir=self.directory, leader_ttl_s=TTL_S, keep_ended_s=3600, **self.settings
        )

        def gateway(_: Office) -> Sites:
            return self.sites

        self.plane = build(settings, self.backends, gateway)
        self.running = asyncio.create_task(self.plane.run())
        await until(lambda: self.plane is not None and self.plane.office.leading())
        for name in self.sites.sites:
            self.sites.connect(name)
        return self.plane

    async def kill(self) -> None:
        """The broker dies between two lines; nothing is resigned or flushed."""
        assert self.running is not None and self.plane is not None
        term = self.plane.office.term
        if term is not None:
            term.leadership.resign = _nothing  # type: ignore[method-assign]
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        self.sites._sessions.clear()
        self.sites._inbox = asyncio.Queue()


async def _nothing() -> None:
    return


async def until(holds: object, within_s: float = WITHIN_S) -> None:
    """Wait until a condition holds; fails the test after a while."""
    assert callable(holds)
    async with asyncio.timeout(within_s):
        while not holds():
            await asyncio.sleep(0.01)
