"""Terms of office: win the leadership, lead until it is lost, stand again.

Holds what one replica knows while it leads (books, cycles, closer) and answers what the session
listener asks of it. A replica that does not lead sends agents to the one that does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from broker.act.gateway import Gateway
from broker.control.admitting import Admitting
from broker.control.books import Books
from broker.control.closer import Closer, CloserPorts
from broker.control.cycle import Bell, CycleRecord, Cycles, Decided, Decider, Sources
from broker.control.deadline_book import DeadlineBook
from broker.control.disturbing import Disturbing
from broker.control.hold_book import HoldBook, read_holds
from broker.control.leader import Effects, Leader, LeaderContext
from broker.control.leadership import Candidate, Leadership, LeadershipLost
from broker.control.mobility import Mobility
from broker.control.observing import Observer
from broker.control.orders import Orders
from broker.control.policy_book import PolicyBook
from broker.control.preemption_records import PreemptionKeeper
from broker.control.preparing import Preparer, PreparerPorts
from broker.control.replicas import Replicas
from broker.control.share_book import ShareBook, read_past
from broker.control.sites import Sites
from broker.control.start_book import StartBook
from broker.control.wait_book import WaitBook
from broker.control.wait_records import WaitKeeper, read_waits
from broker.control.waitlist import UNTOLD, Reason
from broker.control.watched import Watched
from broker.feedback.alarms import alarm_entry
from broker.feedback.ports import Ledger, LedgerBatch, LogStore
from broker.model.admission import AdmissionRules
from broker.model.data import Links
from broker.model.fleet import ClusterState
from broker.model.jobs import Job
from broker.model.plan import Plan
from broker.model.policies import Ruling
from broker.model.problem import Problem
from broker.sense.fleet import identity_from
from broker.state import keys
from broker.state.group_commit import GroupCommitter
from broker.state.keyring import Keyring
from broker.state.projection import Projection
from broker.state.store import Store
from federation.environment import Clock
from federation.handshake.frames import TicketKey
from federation.handshake.values import KnownCluster, Offer
from federation.kv import StoreError
from federation.log_lines import fields
from federation.task_group import TaskGroup
from federation.wire import records as pb

log = logging.getLogger("tradewind.office")
RESTART_S = 1.0
COMPACT_S = 300.0


@dataclass(frozen=True, slots=True)
class OfficePorts:
    """What a term of office works with."""

    store: Store
    projection: Projection
    keyring: Keyring
    ledger: Ledger
    logs: LogStore
    decider: Decider
    clock: Clock
    candidate: Candidate
    sites: Sites
    starts: StartBook
    replicas: Replicas
    api_url: str
    ttl_s: float = 6.0
    heartbeat_ms: int = 5_000
    keep_ended_s: float = 600.0
    typed_rtt_ms: dict[tuple[str, str], float] = field(default_factory=dict)
    links: Links = field(default_factory=dict)
    observer: Observer = field(default_factory=Observer)
    aside: Decider | None = None
    """Decides what is not applied; None = the decider of the cycles."""
    rules: AdmissionRules = AdmissionRules()


@dataclass(frozen=True, slots=True)
class Term:
    """One leadership and everything that lives as long as it."""

    leadership: Leadership
    books: Books
    leader: Leader
    cycles: Cycles
    closer: Closer
    preparer: Preparer
    committer: GroupCommitter
    shares: ShareBook
    waits: WaitBook
    deadlines: DeadlineBook

    @property
    def admitting(self) -> Admitting:
        """Its admission."""
        return self.shares.admitting


class Office:
    """The leadership of one replica over time."""

    def __init__(self, ports: OfficePorts, gateway: Callable[[], Gateway]) -> None:
        self._ports = ports
        self._gateway = gateway
        self._last_epoch = 0
        self.term: Term | None = None
        self.last_cycle: CycleRecord | None = None
        self.on_cycle: Callable[[CycleRecord, Closer], None] = lambda record, closer: None
        self.alarms: list[tuple[int, str]] = []

    async def run(self) -> None:
        """Stand for ever."""
        while True:
            rest_s = 0.0  # nothing waits inside `except*`: Python 3.11.2 wraps a cancellation there
            try:
                await self._one_term()
            except* LeadershipLost as lost:
                log.warning("leadership lost: %s", lost.exceptions[0])
            except* StoreError as failed:
                log.warning("etcd: %s", failed.exceptions[0])
                rest_s = RESTART_S
            except* Exception:  # noqa: BLE001  a bug must not end the replica; a new term adopts
                log.exception("a term of office failed; standing again")
                rest_s = RESTART_S
            await asyncio.sleep(rest_s)

    async def _one_term(self) -> None:
        ports = self._ports
        leadership = Leadership(ports.store, ports.clock, ports.candidate, ports.ttl_s)
        await leadership.win(ports.projection.ready)  # one that still reads waits its turn
        self._last_epoch = leadership.epoch
        with fields(epoch=leadership.epoch):
            await self._serve(leadership)

    async def _serve(self, leadership: Leadership) -> None:
        log.info("leading under epoch %d", leadership.epoch)
        try:
            async with TaskGroup() as tasks:
                tasks.create_task(leadership.keep(), name="leader-beat")  # however long it takes
                await self._caught_up(leadership)
                term = self._open_term(leadership)
                await term.leader.take_over()
                self._ports.starts.take_over()
                self.term = term
                tasks.create_task(term.leader.run(), name="leader")
                tasks.create_task(term.cycles.run(), name="cycles")
                tasks.create_task(term.closer.run(), name="closer")
                tasks.create_task(term.preparer.run(), name="preparing")
                tasks.create_task(term.shares.run(), name="shares")
                tasks.create_task(term.waits.run(), name="waits")
                tasks.create_task(term.deadlines.run(), name="deadlines")
                keeper = WaitKeeper(term.waits, term.books, term.committer)
                tasks.create_task(keeper.run(), name="predictions")
                seen = PreemptionKeeper(self._ports.starts.preemptions, term.committer)
                tasks.create_task(seen.run(), name="preemptions")
                tasks.create_task(self._ports.starts.rebuild(), name="starts")
                tasks.create_task(self._compact(), name="compaction")
        finally:
            self.term = None
            self._ports.sites.forget_sessions()
            await leadership.resign()  # all that acted has stopped: nobody need wait the TTL out
            other = self.leader_address()
            ours = other in self._ports.candidate.session_addresses
            self._gateway().leave_office("" if ours else other)

    async def _compact(self) -> None:
        """Let etcd forget what every watch had time to see."""
        seen = 0
        while True:
            await asyncio.sleep(COMPACT_S)
            if seen:
                try:
                    await self._ports.store.compact(seen)
                except StoreError as error:
                    log.warning("compaction: %s", error)
            seen = self._ports.projection.revision

    async def _caught_up(self, leadership: Leadership) -> None:
        """Wait until this replica sees everything that was committed before its election."""
        while self._ports.projection.revision < leadership.since_revision:
            leadership.require()
            await asyncio.sleep(0.01)

    def _open_term(self, leadership: Leadership) -> Term:
        ports, gateway = self._ports, self._gateway()
        books = Books(
            ports.keyring.mac_key_of, PolicyBook(ports.projection), ports.projection.specs
        )
        meter = ports.observer.metrics.commits("leader", ports.clock)
        committer = GroupCommitter(ports.store, lambda: leadership.guard, meter)
        closer = self._closer(books, committer, gateway)
        bell = Bell()
        waits = WaitBook(self.said_runtime_s)
        waits.take_over(read_waits(ports.projection))
        watched = Watched(books, closer, ports.observer, ports.starts, waits)
        effects = Effects(
            audit=watched.audit,
            close_attempt=watched.close_attempt,
            close_job=watched.close_job,
            wake_planner=bell.ring,
            hurry_planner=bell.ring_loudly,
            alarm=self.alarm,
        )
        context = LeaderContext(
            ports.clock,
            ports.keyring.signer,
            effects,
            ports.sites.arrived,
            ports.observer.dispatched,
        )
        leader = Leader(leadership, books, ports.projection, committer, gateway, context)

        orders = Orders(books, leadership, ports.clock, ports.keyring.signer, _no_trace)
        preparer = Preparer(
            PreparerPorts(books, orders, gateway, ports.sites.fleet, ports.clock)
        )

        def record(cycle: CycleRecord) -> None:
            self.last_cycle = cycle
            preparer.consider(cycle)
            waits.consider(cycle)
            self.on_cycle(cycle, closer)
            ports.observer.cycle(cycle, books.job, watched.traceparent)

        holds, vain = read_holds(ports.projection)
        admitting = Admitting(books, ports.rules, read_past(ports.projection), vain, holds=holds)
        sources = self._sources(admitting, committer, record, bell)
        cycles = Cycles(leader, ports.projection, ports.decider, ports.clock, sources)
        shares = ShareBook(admitting, committer)
        deadlines = DeadlineBook(books, waits, ports.clock, closer.add)
        return Term(
            leadership, books, leader, cycles, closer, preparer, committer, shares, waits, deadlines
        )

    def _sources(
        self,
        admitting: Admitting,
        committer: GroupCommitter,
        record: Callable[[CycleRecord], None],
        bell: Bell,
    ) -> Sources:
        ports, rules, begun = self._ports, self._ports.rules, self._ports.observer.moves_begun
        return Sources(
            ports.sites.fleet,
            ports.typed_rtt_ms,
            record,
            bell,
            admitting,
            Disturbing(ports.projection, committer, rules.disturbed_share_max, self.alarm),
            Mobility(admitting.books, admitting, rules.moving, self._plan_aside, begun),
            HoldBook(admitting, committer).write,
            self.alarm,
            ports.starts.delays,
            ports.starts.preemptions,
            ports.links,
        )

    def _closer(self, books: Books, committer: GroupCommitter, gateway: Gateway) -> Closer:
        ports = self._ports
        return Closer(
            CloserPorts(
                books,
                ports.projection,
                committer,
                gateway,
                ports.ledger,
                ports.logs,
                ports.clock,
                ports.keep_ended_s,
                self.alarm,
            )
        )

    @property
    def links(self) -> Links:
        """The ways of data between regions."""
        return self._ports.links

    @property
    def starts(self) -> StartBook:
        """What this replica has learned of starts."""
        return self._ports.starts

    def prepared_in(self, job: str) -> str | None:
        """Where the files of a waiting job are fetched ahead; None: nowhere, or not known here."""
        return self.term.preparer.place_of(job) if self.term else None

    def let_go(self, job: Job) -> list[str]:
        """A line for each slice of an array that gets no more tasks, since they are better off
        elsewhere."""
        told = self.term.books.giving_way.for_places if self.term else {}
        return [f"{a.uid} {told[a.uid]}" for a in job.live_attempts if a.uid in told]

    def said_runtime_s(self, job: str) -> int | None:
        """How long a job said it takes; None: it did not, or it is not known here."""
        admitted = self.term.books.admitted(job) if self.term else None
        return admitted.rules.spec.expected_runtime_s if admitted else None

    def told(self, job: Job, ruling: Ruling) -> Reason:
        """Why jobs alike wait (`Books.told`); `UNTOLD` where this replica does not lead."""
        return self.term.books.told(job, ruling) if self.term else UNTOLD

    async def decide(self, problem: Problem) -> Decided:
        """Decide a problem that is not applied (a dry run, an explanation)."""
        decided = await (self._ports.aside or self._ports.decider)(problem)
        if decided.failure:
            self.alarm(decided.failure)
        return decided

    async def _plan_aside(self, problem: Problem) -> Plan:
        return (await self.decide(problem)).plan

    def alarm(self, text: str) -> None:
        """Something an operator should know; shown in status."""
        log.warning("alarm: %s", text)
        self._ports.observer.alarm()
        now_ms = self._ports.clock.now_ms()
        self.alarms.append((now_ms, text))
        if self.term is not None:
            entry = alarm_entry(now_ms, text, self._ports.candidate.name)
            self.term.closer.add(LedgerBatch(audit=(entry,)))
        del self.alarms[:-100]

    # What the session listener asks ---------------------------------------------------------------

    def known(self, cluster: str) -> KnownCluster | None:
        """What the books say of a cluster; None: no such one."""
        raw = self._ports.projection.value(keys.cluster(cluster))
        if raw is None:
            return None
        identity = identity_from(pb.ClusterRecord.FromString(raw))
        removed = identity.state is ClusterState.REMOVED
        seqs = self.term.books.event_seqs if self.term else {}
        return KnownCluster(
            state="removed" if removed else identity.state.value,
            journal=identity.journal,
            event_seq=seqs.get(cluster, 0),
            revoked_serials=frozenset(identity.revoked_serials),
            joined_ms=identity.joined_ms,
        )

    def ready(self) -> bool:
        """Whether this replica has read its records: before, who is missing may yet come."""
        return self._ports.projection.ready.is_set()

    def leading(self) -> bool:
        """Whether this replica leads now."""
        return self.term is not None and self.term.leadership.valid()

    def epoch(self) -> int:
        """The epoch of this leadership, or the last one known."""
        return self.term.leadership.epoch if self.term else max(self._last_epoch, 1)

    def offer(self) -> Offer:
        """What every Welcome says."""
        leader = self.leader_record()
        addresses = self._ports.replicas.session_addresses()
        if leader is not None:  # it may not have written its own record yet
            addresses = tuple(dict.fromkeys((*addresses, *leader.session_addresses)))
        return Offer(
            addresses=addresses,
            ticket_keys=tuple(
                TicketKey(kid, key) for kid, key in self._ports.keyring.ticket_keys.items()
            ),
            api_url=self._ports.api_url,
            heartbeat_ms=self._ports.heartbeat_ms,
        )

    def leader_address(self) -> str:
        """Session address of the replica that leads; empty where unknown."""
        leader = self.leader_record()
        return leader.session_addresses[0] if leader and leader.session_addresses else ""

    def leader_record(self) -> pb.LeaderRecord | None:
        """Who leads, as etcd last said."""
        raw = self._ports.projection.value(keys.LEADER)
        return pb.LeaderRecord.FromString(raw) if raw else None


def _no_trace(uid: str, job: str, given: str) -> str:
    return ""
