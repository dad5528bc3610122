"""A site and its agent in virtual time: the real conversation, worker, effects and reports.

Of the agent only the outermost shell is another one here: lines instead of gRPC, a journal and a
scheduler that live in memory and outlive the agent as files and a batch system do.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from federation.environment import Clock, Rng
from federation.handshake.frames import Hello
from federation.handshake.machine import AgentHandshake
from federation.handshake.values import (
    AgentEvent,
    AgentSession,
    Established,
    GoodbyeArrived,
    Over,
    Remember,
    Send,
    StreamEnded,
    StreamOpened,
    TimePassed,
    UpdateArrived,
    WelcomeArrived,
)
from federation.lines import Line
from federation.task_group import TaskGroup
from federation.wire import session as pb
from federation.wire.handshake_frames import (
    goodbye_from_wire,
    hello_to_wire,
    welcome_from_wire,
)
from regional_agent.act.backends.https_blobs import BlobDoor, HttpsBlobs
from regional_agent.act.backends.memory_journal import MemoryJournal
from regional_agent.act.cache import BlobCache
from regional_agent.act.schedulers.port import SchedulerUnavailable
from regional_agent.act.schedulers.simulated import SimScheduler
from regional_agent.act.stage import Stager
from regional_agent.contact import HELLO, Contact
from regional_agent.effects import Effects, Means, follow, keep_contact
from regional_agent.link import ReportBuffer
from regional_agent.reporting import Reporter
from regional_agent.sense.prices import DeclaredPrice
from regional_agent.session import actions as act
from regional_agent.session import inputs
from regional_agent.session.admission import SiteRules
from regional_agent.session.commands import Command
from regional_agent.session.conversation import Conversation
from regional_agent.session.ledger import Ledger, Pool
from regional_agent.settings import AgentSettings
from regional_agent.translate import command_from_wire, event_to_wire, view_of
from regional_agent.worker import BrokerTime, Outbox, Worker

EVENTS_PER_FRAME = 500
DISK_S = 0.001
LOOK_S = 2.0
REDIAL_FIRST_S = 0.2
REDIAL_MAX_S = 15.0
GOOD_SESSION_S = 10.0
NOWHERE = Path("/nonexistent/simulated")


class Watcher(Protocol):
    """Sees what agents are told and what they do."""

    def commanded(self, site: Site, commands: tuple[Command, ...]) -> None:
        """Commands arrive."""

    def launched(self, site: Site, launch: act.Launch) -> None:
        """A launch is asked for."""


class Network(Protocol):
    """Who is reached by agents, and how long that takes."""

    async def dial(self, site: Site, address: str) -> Line:
        """A line to the broker there. Raises ConnectionError, TimeoutError."""


@dataclass(slots=True)
class Site:
    """What outlives the agent, and how the site behaves now. `brokers`: whom its people told
    it to dial. `lies`: it reports everything
    free whatever runs; `mute`: its capacity reports do not come."""

    name: str
    region: str
    pools: tuple[Pool, ...]
    prices: tuple[DeclaredPrice, ...]
    scheduler: SimScheduler
    journal: MemoryJournal
    clock: Clock
    rng: Rng
    brokers: tuple[str, ...]
    lives: int = 0
    lies: bool = False
    mute: bool = False
    state: str = "open"
    agent: Agent | None = None
    running: asyncio.Task[None] | None = None
    lines: list[Line] = field(default_factory=list)


class _Worker(Worker):
    """Commits to memory, which takes a disk's time, where the real one asks a thread."""

    def __init__(
        self, conversation: Conversation, journal: MemoryJournal, time: BrokerTime, out: Outbox
    ) -> None:
        super().__init__(conversation, journal, time, out)  # type: ignore[arg-type]
        self._memory = journal
        self._out = out

    async def _finish(self, do: act.Actions) -> None:
        if do.writes:
            events = [
                event_to_wire(w.event_seq, w.event) for w in do.writes if isinstance(w, act.Tell)
            ]
            await asyncio.sleep(DISK_S)
            self._memory.commit(do.writes, events)
            for write in do.writes:
                if isinstance(write, act.Acknowledge):
                    self._out.acknowledge(write.event_seq)
            self._out.add(events)
        for effect in do.effects:
            if isinstance(effect, act.Complain):
                self._out.complain(effect.text)
            else:
                self._do(effect)


class Agent:
    """One life of an agent."""

    def __init__(self, site: Site, network: Network, watcher: Watcher) -> None:
        self._site = site
        self._network = network
        self.watcher = watcher
        site.lives += 1
        self._instance = f"{site.name}-{site.lives}"
        self.time = BrokerTime(site.clock)
        self.outbox = Outbox()
        self.contact = Contact(site.clock.monotonic_s)
        rules = SiteRules(site.name, state=site.state)
        self.conversation = Conversation(rules, Ledger(site.pools), site.journal.restored())
        self.outbox.add(list(site.journal.pending()))
        self.worker = _Worker(self.conversation, site.journal, self.time, self.outbox)
        blobs = HttpsBlobs(lambda: BlobDoor("", ""))
        stager = Stager(NOWHERE, BlobCache(NOWHERE, blobs, site.clock))
        means = Means(
            site.scheduler, stager, blobs, site.clock, lambda: self.connected, self.contact
        )
        self._effects = Effects(means, self.worker.put)
        self.worker.carry_out(self._carry_out)
        self.reports = ReportBuffer(self.outbox.wake)
        settings = AgentSettings(NOWHERE, pools=site.pools, prices=site.prices)
        self._reporter = Reporter(settings, self.worker, self.time, site.clock, self)
        self._opened = asyncio.Event()
        self._features: tuple[str, ...] = ()
        self.connected = False

    async def run(self) -> None:
        """Until cancelled, which is a kill: nothing is flushed."""
        try:
            await self._recover()
            async with TaskGroup() as tasks:
                tasks.create_task(self.worker.run())
                tasks.create_task(follow(self._site.scheduler, self.worker.put))
                tasks.create_task(self._reporter.run(self._opened))
                tasks.create_task(self._dial())
                tasks.create_task(keep_contact(self._site.scheduler, self.contact))
                tasks.create_task(self._look())
        finally:
            await self._effects.close()

    async def _look(self) -> None:
        """As a collector does, from when the site's own users first came on."""
        while True:
            await self._site.scheduler.crowded.wait()
            self.worker.put(inputs.Sensed(self._site.scheduler.look()))
            await asyncio.sleep(LOOK_S)

    async def put(self, report: pb.Report) -> None:
        """`ReportSink`: by the session. A lying site has everything free."""
        if self._site.mute and report.HasField("capacity"):
            return
        if self._site.lies and report.HasField("capacity"):
            for pool in report.capacity.pools:
                for group in pool.groups:
                    group.free = group.total
                    group.free_cpus_milli = group.cpus_milli
                    group.free_memory_bytes = group.memory_bytes
        self.reports.put(report)

    def _carry_out(self, effect: act.Effect) -> None:
        if isinstance(effect, act.Launch):
            self.watcher.launched(self._site, effect)
        self._effects.start(effect)

    async def _recover(self) -> None:
        while True:
            try:
                known = await self._site.scheduler.capabilities()
                states = await self._site.scheduler.status(self.conversation.asked)
                break
            except SchedulerUnavailable:
                await asyncio.sleep(0.2)
        self._features = tuple(sorted(str(f) for f in known.features))
        self.conversation.set_features(frozenset(self._features))
        await self.worker.recover({uid: view_of(state) for uid, state in states.items()})

    # The session ------------------------------------------------------------------------------

    async def _dial(self) -> None:
        failures, redirect = 0, ""
        addresses = list(dict.fromkeys((*self._site.journal.addresses, *self._site.brokers)))
        while True:
            address, redirect = redirect or addresses[0], ""
            began_s = self._site.clock.monotonic_s()
            try:
                line = await self._network.dial(self._site, address)
                session = _AgentSession(self, line, self._site)
                over = await session.run(self._hello(began_s))
                redirect = over.redirect
            except (ConnectionError, TimeoutError):
                addresses.append(addresses.pop(0))
            known = self._site.journal.addresses
            addresses += [a for a in known if a not in addresses]
            good = self._site.clock.monotonic_s() - began_s > GOOD_SESSION_S
            failures = 0 if good else failures + 1
            most_s = min(REDIAL_FIRST_S * 2.0 ** min(failures, 10), REDIAL_MAX_S)
            await asyncio.sleep(0.05 if redirect else self._site.rng.uniform(0.1, most_s))

    def _hello(self, began_s: float) -> Hello:
        journal, site = self._site.journal, self._site
        return Hello(
            cluster=site.name,
            instance=self._instance,
            journal=journal.identity,
            event_seq=journal.event_seq,
            event_seq_acked=journal.acked,
            dispatch_seq=journal.dispatch_seq,
            epoch=journal.epoch,
            capabilities=self._features,
            scheduler="simulated",
            isolation="per-user",
            version="simulated",
            connect_ms=round((site.clock.monotonic_s() - began_s) * 1000),
            live_attempts=len(self.conversation.asked),
        )

    def stands(self, session: AgentSession) -> None:
        """A session is established."""
        self.time.told(session.clock)
        self.connected = True
        self._opened.set()


class _AgentSession:
    """The agent's half of one stream."""

    def __init__(self, agent: Agent, line: Line, site: Site) -> None:
        self._agent = agent
        self._line = line
        self._site = site
        self._handshake = AgentHandshake()
        self._wake = asyncio.Event()
        self._cursor = 0
        self._beats = 0

    async def run(self, hello: Hello) -> Over:
        """From the hello to the end."""
        tasks = [asyncio.create_task(self._watch(), name=f"{hello.instance}-watch")]
        self._agent.outbox.listen(self._wake)
        try:
            await self._take(StreamOpened(hello, self._agent.time.monotonic_ms()))
            while not isinstance(self._handshake.state, Over):
                frame = await self._line.down.receive()
                if frame is None:
                    break
                await self._frame(frame)
                if self._session is not None and len(tasks) == 1:
                    writing = self._write(self._session.heartbeat_ms / 1000)
                    tasks.append(asyncio.create_task(writing, name=f"{hello.instance}-write"))
            await self._take(StreamEnded("the stream ended"))
        finally:
            self._agent.connected = False
            self._agent.outbox.leave(self._wake)
            self._line.up.send(None)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        over = self._handshake.state
        assert isinstance(over, Over), "a stream that ended is over"
        return over

    @property
    def _session(self) -> AgentSession | None:
        state = self._handshake.state
        return state if isinstance(state, AgentSession) else None

    async def _take(self, event: AgentEvent) -> None:
        worker = self._agent.worker
        for output in self._handshake.take(event):
            if isinstance(output, Send):
                assert isinstance(output.frame, Hello), "an agent says hello only"
                self._agent.contact.sending(self, HELLO)
                self._line.up.send(hello_to_wire(output.frame))
            elif isinstance(output, Established):
                session = output.session
                assert isinstance(session, AgentSession), "the agent's half"
                self._cursor = session.resume_event_seq
                self._agent.contact.answered(self, HELLO)
                await worker.put_durably(
                    inputs.SessionStands(
                        epoch=session.epoch,
                        ticket_keys=session.ticket_keys,
                        resume_event_seq=session.resume_event_seq,
                        disk_replaced=session.disk_replaced,
                        addresses=session.addresses,
                    )
                )
                self._agent.stands(session)
            elif isinstance(output, Remember) and not output.addresses:
                await worker.put_durably(inputs.UpdateArrived(output.epoch))

    async def _frame(self, frame: pb.BrokerFrame) -> None:
        body, monotonic_ms = frame.WhichOneof("body"), self._agent.time.monotonic_ms()
        if body == "welcome":
            await self._take(WelcomeArrived(welcome_from_wire(frame.welcome), monotonic_ms))
        elif body == "goodbye":
            await self._take(GoodbyeArrived(goodbye_from_wire(frame.goodbye)))
        else:
            update = frame.update
            await self._take(UpdateArrived(update.epoch, update.server_time_ms, monotonic_ms))
            if self._session is not None:
                self._agent.time.told(self._session.clock)
                contact = self._agent.contact
                if update.heartbeat_echo:
                    contact.answered(self, update.heartbeat_echo)
                commands = tuple(command_from_wire(c, contact.at_s) for c in update.commands)
                self._agent.watcher.commanded(self._site, commands)
                if commands or update.ack_event_seq:
                    self._agent.worker.put(
                        inputs.UpdateArrived(update.epoch, commands, update.ack_event_seq)
                    )

    async def _write(self, heartbeat_s: float) -> None:
        clock, due_s = self._site.clock, 0.0
        while self._session is not None:
            self._wake.clear()
            beats = clock.monotonic_s() >= due_s
            update = self._gathered(beats=beats)
            if update is not None:
                due_s = clock.monotonic_s() + heartbeat_s if beats else due_s
                self._line.up.send(pb.AgentFrame(update=update))
                continue
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), max(0.01, due_s - clock.monotonic_s()))

    def _gathered(self, *, beats: bool) -> pb.AgentUpdate | None:
        agent = self._agent
        events = agent.outbox.after(self._cursor, EVENTS_PER_FRAME)
        self._cursor = events[-1].event_seq if events else self._cursor
        reports = [] if len(events) == EVENTS_PER_FRAME else agent.reports.take()
        complaints = list(agent.outbox.complaints)
        agent.outbox.complaints.clear()
        if not (events or reports or complaints or beats):
            return None
        self._beats += beats
        if beats:
            agent.contact.sending(self, self._beats)
        return pb.AgentUpdate(
            events=events,
            reports=reports,
            sent_ms=self._site.clock.now_ms(),
            dispatch_seq=agent.conversation.dispatch_seq,
            heartbeat=self._beats if beats else 0,
            refused_commands=complaints,
        )

    async def _watch(self) -> None:
        while not isinstance(self._handshake.state, Over):
            await asyncio.sleep(2.0)
            await self._take(TimePassed(self._agent.time.monotonic_ms()))
            if isinstance(self._handshake.state, Over):
                self._line.down.cut()
