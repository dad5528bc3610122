"""The leader's loop: everything that changes a job passes through here, one round at a time.

A round takes whatever has come in, folds it into drafts, makes them durable in group commits under
the guard of the epoch, installs them in the books, and only then acts: sends to sites,
acknowledges events, hands ended attempts to the closer. While one round waits for etcd the next
one gathers, so load makes rounds larger, not more frequent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from broker.act.gateway import (
    CapacityArrived,
    Command,
    EventsArrived,
    Gateway,
    GatewayEvent,
    PricesArrived,
    RoundTripsArrived,
    SessionClosed,
    SessionOpened,
    SiteSilent,
)
from broker.control.books import Books
from broker.control.leadership import Leadership, LeadershipLost
from broker.control.orders import Orders, Withdrawals
from broker.control.round import Round, changed_attempts, writes_of
from broker.lifecycle import commands as cmd
from broker.lifecycle import events as ev
from broker.lifecycle.reconcile import needs
from broker.model.jobs import Attempt, AttemptPhase, Job, JobPhase
from broker.state import keys
from broker.state.group_commit import GroupCommitter, GuardFailed
from broker.state.projection import Projection
from federation.environment import Clock
from federation.ids import JobId
from federation.kv import AmbiguousCommit, Op, Put, StoreUnavailable, Txn, TxnResult
from federation.tickets import TicketSigner
from federation.wire import records as pb

TICK_S = 1.0
REDRIVE_S = 10.0
JOBS_PER_ROUND = 2_000


@runtime_checkable
class Placements(Protocol):
    """A plan ready to be applied: folds its placements into a round."""

    def fold(self, round_: Round, leader: Leader) -> None:
        """Turn assignments into attempts and leftovers into reasons."""

    def applied(self, round_: Round) -> None:
        """Called once the round is durable."""


@dataclass(frozen=True, slots=True)
class Effects:
    """Where a durable round's consequences go."""

    audit: Callable[[Sequence[cmd.Audit]], None]
    close_attempt: Callable[[Job, Attempt], None]
    close_job: Callable[[Job], None]
    wake_planner: Callable[[], None]
    alarm: Callable[[str], None]


Said = SessionOpened | SessionClosed | CapacityArrived | PricesArrived | RoundTripsArrived
Input = GatewayEvent | Placements | str
"""A gateway event, a plan, or the id of a job whose record or intent changed."""


class Leader:
    """One leadership: from adopting what is there to losing the epoch."""

    def __init__(
        self,
        leadership: Leadership,
        books: Books,
        projection: Projection,
        committer: GroupCommitter,
        gateway: Gateway,
        context: LeaderContext,
    ) -> None:
        self._leadership = leadership
        self.books = books
        self._projection = projection
        self._committer = committer
        self._gateway = gateway
        self._clock = context.clock
        self._orders = Orders(
            books, leadership, context.clock, context.signer, context.traceparent
        )
        self._effects = context.effects
        self._on_report = context.on_report
        self._inputs: asyncio.Queue[Input] = asyncio.Queue()
        self._disk_replaced: set[str] = set()
        self._connected: set[str] = set()
        self._sent_s: dict[str, float] = {}

    # Coming in ------------------------------------------------------------------------------------

    def put(self, item: Input) -> None:
        """Hand something in for the next round."""
        self._inputs.put_nowait(item)

    async def run(self) -> None:
        """Adopt, then lead until the epoch is lost. Raises `LeadershipLost`."""
        await self._adopt()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_records(), name="leader-records")
            tasks.create_task(self._follow_gateway(), name="leader-gateway")
            tasks.create_task(self._rounds(), name="leader-rounds")
            tasks.create_task(self._ticks(), name="leader-ticks")
            tasks.create_task(self._leadership.keep(), name="leader-beat")

    async def _follow_records(self) -> None:
        async for change in self._projection.follow():
            if change is None:
                for job in self._projection.jobs():
                    self.put(str(job.id))
            elif change.key.startswith((keys.JOBS, keys.INTENTS)) and change.value is not None:
                self.put(keys.last_part(change.key))
            elif change.key.startswith((keys.CLUSTERS, keys.TENANTS, keys.REPORTS)):
                self._effects.wake_planner()

    async def _follow_gateway(self) -> None:
        async for batch in self._gateway.inbox():
            for event in batch:
                self.put(event)

    async def _rounds(self) -> None:
        while True:
            inputs = [await self._inputs.get()]
            while not self._inputs.empty() and len(inputs) < JOBS_PER_ROUND:
                inputs.append(self._inputs.get_nowait())
            await self._one_round(inputs)

    # A round --------------------------------------------------------------------------------------

    async def _one_round(self, inputs: Sequence[Input]) -> None:
        round_ = Round(self.books, self._clock.now_ms())
        opened: list[SessionOpened] = []
        plans: list[Placements] = []
        for item in inputs:
            if isinstance(item, str):
                self._record_changed(round_, item)
            elif isinstance(item, EventsArrived):
                round_.site_events(item.cluster, item.events, item.last_seq)
            elif isinstance(item, Placements):
                plans.append(item)
            else:
                self._site_said(item)
                if isinstance(item, SessionOpened):
                    opened.append(item)
        for plan in plans:
            plan.fold(round_, self)
        changed = await self._make_durable(round_)
        await self._act(round_, changed)
        for session in opened:
            await self._send(
                session.cluster, self.books.attempts_in(session.cluster), everything=True
            )
        for cluster, seq in round_.acks.items():
            await self._gateway.acknowledge(cluster, seq)
        for plan in plans:
            plan.applied(round_)

    def _site_said(self, item: Said) -> None:
        if isinstance(item, SessionOpened):
            self._connected.add(item.cluster)
            if item.disk_replaced:
                self._disk_replaced.add(item.cluster)
        elif isinstance(item, SessionClosed):
            self._connected.discard(item.cluster)
        self._on_report(item)

    def _record_changed(self, round_: Round, job_id: str) -> None:
        if self.books.job(job_id) is None:
            job = self._projection.job(job_id)
            if job is None or job.phase is JobPhase.ENDED:
                return
            problem = self.books.admit(job, self._projection.value(keys.spec(job_id)))
            if problem:
                self._effects.alarm(f"job {job_id} is not planned: {problem}")
            self._effects.wake_planner()
        intent, revision = self._projection.intent(job_id)
        if revision > self.books.intents.get(JobId(job_id), 0):
            self.books.intents[JobId(job_id)] = revision
            current = round_.draft.job(job_id)
            if current is not None:
                round_.intent(current, intent)

    async def _make_durable(self, round_: Round) -> list[tuple[Job, Job]]:
        """Commit a round; returns (before, after) of every job that changed."""
        items = self._seq_writes(round_.dispatch_seqs, keys.dispatch_seq)
        jobs = list(round_.draft.changed.values())
        for job in jobs:
            revision = self.books.intents.get(job.id, 0) if job.id in round_.guarded else None
            items.append(writes_of(self.books.job(job.id), job, revision))
        items.extend(self._seq_writes(round_.acks, keys.event_seq))
        if not items:
            return []
        results = await self._commit(items)
        first = len(round_.dispatch_seqs)
        changed: list[tuple[Job, Job]] = []
        beaten: list[JobId] = []
        for job, txn, result in zip(
            jobs, items[first:], results[first : first + len(jobs)], strict=False
        ):
            if result.succeeded or _stored_already(txn, result):
                changed.append((self.books.job(job.id) or job, job))
                self._projection.fold_own(result.revision, txn.then)
            else:
                beaten.append(job.id)
        self.books.dispatch_seqs.update(round_.dispatch_seqs)
        self.books.event_seqs.update(round_.acks)
        self.books.install(after for _, after in changed)
        for job_id in beaten:
            round_.commands.pop(job_id, None)
            again = round_.without_placement(job_id)
            self.put(str(job_id))
            changed.extend(await self._make_durable(again))
            round_.commands.update(again.commands)
        return changed

    def _seq_writes(
        self, seqs: dict[str, int], key: Callable[[str], str]
    ) -> list[Txn]:
        return [
            Txn(then=(Put(key(c), pb.SeqRecord(schema=1, seq=seq).SerializeToString()),))
            for c, seq in seqs.items()
        ]

    async def _commit(self, items: Sequence[Txn]) -> list[TxnResult]:
        """Commit in order, waiting etcd out. Repeating is safe: all are absolute writes of the
        only writer, guarded by its epoch."""
        while True:
            self._leadership.require()
            waiting = [self._committer.enqueue(item) for item in items]
            results = await asyncio.gather(*waiting, return_exceptions=True)
            failures = [r for r in results if isinstance(r, BaseException)]
            if not failures:
                return [r for r in results if isinstance(r, TxnResult)]
            for failure in failures:
                if isinstance(failure, GuardFailed):
                    raise LeadershipLost(str(failure)) from failure
                if not isinstance(failure, StoreUnavailable | AmbiguousCommit):
                    raise failure
            await asyncio.sleep(0.1)

    # Acting ---------------------------------------------------------------------------------------

    async def _act(self, round_: Round, changed: Sequence[tuple[Job, Job]]) -> None:
        outgoing: dict[str, list[Attempt]] = {}
        wake = False
        for before, after in changed:
            for attempt in changed_attempts(before if before is not after else None, after):
                outgoing.setdefault(attempt.cluster, []).append(attempt)
            wake = wake or after.is_array or after.phase in (JobPhase.QUEUED, JobPhase.ENDED)
            self._carry_out(after, round_.commands.get(after.id, []))
        if wake:
            self._effects.wake_planner()
        for cluster, attempts in outgoing.items():
            await self._send(cluster, attempts, everything=False)

    def _carry_out(self, job: Job, commands: Sequence[cmd.Command]) -> None:
        audits = [command for command in commands if isinstance(command, cmd.Audit)]
        if audits:
            self._effects.audit(audits)
        for command in commands:
            if isinstance(command, cmd.CloseAttempt):
                ended = job.attempt(command.uid)
                if ended is not None:
                    self._effects.close_attempt(job, ended)
            elif isinstance(command, cmd.CloseJob):
                self._effects.close_job(job)

    async def _send(
        self, cluster: str, attempts: Sequence[Attempt], *, everything: bool
    ) -> None:
        """Send what a cluster needs to hear; `everything` after a session opened."""
        replaced = everything and cluster in self._disk_replaced
        commands: list[Command] = []
        for need in needs(tuple(attempts), disk_replaced=replaced):
            command = self._orders.command(need)
            if command is not None:
                commands.append(command)
                self._sent_s[need.attempt.uid] = self._clock.monotonic_s()
        if replaced:
            self._disk_replaced.discard(cluster)
        if not commands or not self._leadership.valid():
            return
        try:
            await self._gateway.send(cluster, commands)
        except SiteSilent:
            return  # told again when its session opens

    @property
    def epoch(self) -> int:
        """The epoch of this leadership."""
        return self._leadership.epoch

    # Time and election ----------------------------------------------------------------------------

    async def _adopt(self) -> None:
        """What an earlier leader left half done: attempts without an answer get the new epoch,
        ended ones not yet closed are closed (again, harmlessly)."""
        round_ = Round(self.books, self._clock.now_ms())
        for job in list(self.books.jobs()):
            for attempt in job.live_attempts:
                if attempt.confirmed_seq < attempt.first_seq:
                    current = round_.draft.job(job.id) or job
                    round_.fold(
                        current,
                        ev.TicketRenewed(attempt.uid, attempt.ticket, self._leadership.epoch),
                    )
            for attempt in job.attempts:
                if attempt.phase is AttemptPhase.ENDED:
                    self._effects.close_attempt(job, attempt)
            if job.phase is JobPhase.ENDED:
                self._effects.close_job(job)
        await self._make_durable(round_)
        for job in list(self.books.jobs()):
            self.put(str(job.id))
        self._effects.wake_planner()

    async def _ticks(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            now_s = self._clock.monotonic_s()
            for cluster in sorted(self._connected):
                late = [
                    a
                    for a in self.books.attempts_in(cluster)
                    if a.lagging and now_s - self._sent_s.get(a.uid, now_s) > REDRIVE_S
                ]
                if late:
                    await self._send(cluster, late, everything=False)
            self._withdraw_late_starts()

    def _withdraw_late_starts(self) -> None:
        """A local wait is bounded: over its limit it is withdrawn and placed anew."""
        now_ms = self._clock.now_ms()
        late: list[tuple[str, str]] = []
        for job in self.books.jobs():
            admitted = self.books.admitted(job.id)
            limit_s = admitted.terms.max_start_delay_s if admitted else 0
            if not limit_s:
                continue
            for a in job.live_attempts:
                waits = a.phase.rank < AttemptPhase.RUNNING.rank and a.stop_why is None
                if waits and now_ms - a.placed_ms > limit_s * 1000:
                    late.append((job.id, a.uid))
        if late:
            self.put(Withdrawals(tuple(late)))


@dataclass(frozen=True, slots=True)
class LeaderContext:
    """What a leader needs beside its state."""

    clock: Clock
    signer: TicketSigner
    effects: Effects
    on_report: Callable[[Said], None]
    traceparent: Callable[[str, str, str], str]


def _stored_already(txn: Txn, result: TxnResult) -> bool:
    """Whether a change that 'failed' is what lies there: an earlier try of ours was applied."""
    ours: Op = txn.then[0]
    found = result.results[0].kv if result.results else None
    return isinstance(ours, Put) and found is not None and found.value == ours.value
