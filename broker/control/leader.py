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
from typing import Protocol

from broker.act.gateway import (
    CacheArrived,
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
from broker.control.durable import Durable
from broker.control.leadership import Leadership
from broker.control.orders import Orders
from broker.control.predecessors import Settling, waiting_for
from broker.control.round import Round, changed_attempts, may_let_start
from broker.control.steps import in_steps
from broker.control.vigil import Decisions, Silence, vigil
from broker.lifecycle import commands as cmd
from broker.lifecycle import events as ev
from broker.lifecycle.reconcile import needs
from broker.model.jobs import Attempt, AttemptPhase, Job, JobPhase
from broker.state import keys
from broker.state.group_commit import GroupCommitter
from broker.state.projection import Projection
from federation.environment import Clock
from federation.ids import JobId
from federation.task_group import TaskGroup
from federation.tickets import TicketSigner

TICK_S = 1.0
REDRIVE_S = 10.0
AUDITED_AGAIN_MS = 600_000
"""A new leader writes down the phase of what changed this lately."""
JOBS_PER_ROUND = 2_000
EVENTS_A_STEP = 100
SENT_A_STEP = 50
"""Commands made and signed between two turns of the event loop."""
YIELD_EVERY = 100
"""Jobs looked at between two turns of the event loop, where there may be many of them."""

_MATTERS = (keys.CLUSTERS, keys.TENANTS, keys.POLICIES, keys.REPORTS, keys.FREEZE, keys.DATASETS)
"""What may let a job start when it changes, beside jobs and intents."""


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
    """Something changed that may matter."""
    hurry_planner: Callable[[], None]
    """A place came free, or a job came that wants one."""
    alarm: Callable[[str], None]


Reported = CapacityArrived | PricesArrived | RoundTripsArrived | CacheArrived
Said = SessionOpened | SessionClosed | Reported
Input = GatewayEvent | Placements | Decisions | str
"""A gateway event, a plan, what a timer decided, or the id of a job whose record or intent
changed."""


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
        self._durable = Durable(leadership, committer, books, projection)
        self._gateway = gateway
        self._clock = context.clock
        self._orders = Orders(
            books, leadership, context.clock, context.signer, context.traceparent
        )
        self._effects = context.effects
        self._on_report = context.on_report
        self._inputs: asyncio.Queue[Input] = asyncio.Queue()
        self._sessions: dict[str, int] = {}
        self._sent_s: dict[str, float] = {}

    # Coming in ------------------------------------------------------------------------------------

    def put(self, item: Input) -> None:
        """Hand something in for the next round."""
        self._inputs.put_nowait(item)

    async def take_over(self) -> None:
        """Load the books, adopt what is there; once, before `run`. Raises LeadershipLost."""
        await self._load()
        await self._adopt()

    async def run(self) -> None:
        """Lead until the epoch is lost. Raises `LeadershipLost`."""
        async with TaskGroup() as tasks:
            tasks.create_task(self._follow_records(), name="leader-records")
            tasks.create_task(self._follow_gateway(), name="leader-gateway")
            tasks.create_task(self._rounds(), name="leader-rounds")
            tasks.create_task(self._ticks(), name="leader-ticks")

    async def _follow_records(self) -> None:
        changes = self._projection.follow((keys.JOBS, keys.INTENTS, *_MATTERS))
        self._look_at_everything()  # also what came while the books were loaded
        async for change in changes:
            if change is None:
                self._look_at_everything()
            elif change.key.startswith((keys.JOBS, keys.INTENTS)) and change.value is not None:
                job_id = keys.last_part(change.key)
                ours = change.key.startswith(keys.JOBS) and self.books.job(job_id) is not None
                if not ours:
                    self.put(job_id)
            elif change.key.startswith(_MATTERS):
                self._effects.wake_planner()

    def _look_at_everything(self) -> None:
        for job_id in self._projection.job_ids():
            self.put(str(job_id))

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
        said: list[Said] = []
        plans: list[Placements | Decisions] = []
        for index, item in enumerate(inputs):
            if isinstance(item, str):
                self._look_at(round_, item)
            elif isinstance(item, EventsArrived):
                await self._fold_events(round_, item)
            elif isinstance(item, Said):
                said.append(item)
                self._session_changed(round_, item)
            else:
                plans.append(item)
            if index % YIELD_EVERY == YIELD_EVERY - 1:
                await asyncio.sleep(0)
        for plan in plans:
            round_.contain("a plan", plan.fold, round_, self)
        await self._settle(round_, said)
        for plan in plans:
            plan.applied(round_)

    async def _fold_events(self, round_: Round, arrived: EventsArrived) -> None:
        """In parts, each as if it had arrived alone."""
        for start in range(0, len(arrived.events), EVENTS_A_STEP):
            if self._sessions.get(arrived.cluster) != arrived.session:
                return
            part = arrived.events[start : start + EVENTS_A_STEP]
            last = start + EVENTS_A_STEP >= len(arrived.events)
            last_seq = arrived.last_seq if last else part[-1].event_seq
            round_.site_events(arrived.cluster, part, last_seq)
            await asyncio.sleep(0)

    async def _settle(self, round_: Round, said: Sequence[Said]) -> None:
        """Make a round durable and do what follows, in the order that may break off anywhere."""
        changed = await self._durable.jobs(round_)
        for fault in round_.faults:
            self._effects.alarm(fault)
        for item in said:
            self._on_report(item)
        async for _, after in in_steps(changed):
            self._write_down(round_.commands.get(after.id, []))
        opened = {item.cluster for item in said if isinstance(item, SessionOpened)}
        await self._send_changed(changed, opened)
        for cluster in sorted(opened & self._sessions.keys()):
            # everything in the order of its numbers: a report reflects all up to the last taken
            await self._send(cluster, self.books.live_in(cluster))
        await self._durable.acks(round_)
        for cluster, seq in round_.acks.items():
            await self._gateway.acknowledge(cluster, seq)
        # only now: a site forgets nothing it was not acknowledged
        async for _, after in in_steps(changed):
            self._close(after, round_.commands.get(after.id, []))
        if any(may_let_start(before, after) for before, after in changed):
            self._effects.hurry_planner()
        dependents = waiting_for(self.books, changed)
        if dependents is not None:
            self.put(dependents)
        for job_id in self._durable.beaten:
            self.put(str(job_id))
        self._durable.beaten.clear()

    def _session_changed(self, round_: Round, item: Said) -> None:
        if isinstance(item, SessionOpened):
            self._sessions[item.cluster] = item.session
            if item.disk_replaced:
                self._forgotten(round_, item.cluster)
        elif isinstance(item, SessionClosed) and self._sessions.get(item.cluster) == item.session:
            del self._sessions[item.cluster]

    def _forgotten(self, round_: Round, cluster: str) -> None:
        """A site with another disk: what it confirmed is asked for anew, until it answers."""
        for attempt in self.books.live_in(cluster):
            job = round_.draft.job(attempt.job)
            if job is not None and attempt.phase is not AttemptPhase.PLACED:
                forgot = ev.SiteForgot(attempt.uid)
                round_.contain(f"adopting {attempt.uid}", round_.fold, job, forgot)

    def _look_at(self, round_: Round, job_id: str) -> None:
        """Take in a job or an intent; a job whose records make no sense is set aside."""
        before = len(round_.faults)
        round_.contain(f"job {job_id}", self._record_changed, round_, job_id)
        if len(round_.faults) > before:
            self.books.set_aside(job_id, round_.faults[-1])

    def _record_changed(self, round_: Round, job_id: str) -> None:
        if self.books.job(job_id) is None:
            job = self._projection.job(job_id)
            if job is None or job.phase is JobPhase.ENDED:
                return
            problem = self.books.admit(job, self._projection.value(keys.spec(job_id)))
            if problem:
                self._effects.alarm(f"job {job_id} is not planned: {problem}")
            self._effects.hurry_planner()
        intent, revision = self._projection.intent(job_id)
        if revision > self.books.intents.get(JobId(job_id), 0):
            current = round_.draft.job(job_id)
            if current is not None:
                round_.intent(current, intent)
            self.books.intents[JobId(job_id)] = revision
        known = self.books.job(job_id)
        if known is not None and known.awaits:
            self.put(Settling((job_id,)))

    # Acting ---------------------------------------------------------------------------------------

    async def _send_changed(
        self, changed: Sequence[tuple[Job, Job]], opened: set[str]
    ) -> None:
        outgoing: dict[str, list[Attempt]] = {}
        async for before, after in in_steps(changed):
            for attempt in changed_attempts(before if before is not after else None, after):
                if attempt.cluster not in opened:
                    outgoing.setdefault(attempt.cluster, []).append(attempt)
        for cluster, attempts in outgoing.items():
            for start in range(0, len(attempts), SENT_A_STEP):
                await self._send(cluster, attempts[start : start + SENT_A_STEP])
                await asyncio.sleep(0)

    def _write_down(self, commands: Sequence[cmd.Command]) -> None:
        audits = [command for command in commands if isinstance(command, cmd.Audit)]
        if audits:
            self._effects.audit(audits)

    def _close(self, job: Job, commands: Sequence[cmd.Command]) -> None:
        for command in commands:
            if isinstance(command, cmd.CloseAttempt):
                ended = job.attempt(command.uid)
                if ended is not None:
                    self._effects.close_attempt(job, ended)
            elif isinstance(command, cmd.CloseJob):
                self._effects.close_job(job)

    async def _send(self, cluster: str, attempts: Sequence[Attempt]) -> None:
        """Send what a cluster needs to hear of these."""
        commands: list[Command] = []
        for need in needs(tuple(attempts)):
            command = self._orders.command(need)
            if command is not None:
                commands.append(command)
                self._sent_s[need.attempt.uid] = self._clock.monotonic_s()
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

    async def _load(self) -> None:
        for number, problem in enumerate(self.books.load(self._projection)):
            if problem:
                self._effects.alarm(problem)
            if number % YIELD_EVERY == YIELD_EVERY - 1:
                await asyncio.sleep(0)

    async def _adopt(self) -> None:
        """What an earlier leader left half done: intents nobody acted on, attempts without an
        answer, ended ones not yet closed (closed again, harmlessly)."""
        round_ = Round(self.books, self._clock.now_ms())
        for number, job in enumerate(list(self.books.jobs())):
            round_.contain(f"job {job.id}", self._adopt_job, round_, job)
            if number % YIELD_EVERY == YIELD_EVERY - 1:
                await asyncio.sleep(0)
        await self._settle(round_, ())
        self._effects.wake_planner()

    def _adopt_job(self, round_: Round, job: Job) -> None:
        if round_.now_ms - job.changed_ms < AUDITED_AGAIN_MS:
            self._effects.audit(self._found(job))
        for attempt in job.attempts:
            if attempt.phase is AttemptPhase.ENDED:
                self._effects.close_attempt(job, attempt)
            elif attempt.counts and attempt.confirmed_seq < attempt.first_seq:
                renewed = ev.TicketRenewed(attempt.uid, attempt.ticket, self._leadership.epoch)
                round_.fold(round_.draft.job(job.id) or job, renewed)
        if job.phase is JobPhase.ENDED:
            self._effects.close_job(job)
        else:
            self._look_at(round_, job.id)

    def _found(self, job: Job) -> list[cmd.Audit]:
        """Its phases as found: the rows of what was decided last may have died with a leader
        before the ledger had them."""
        why = f"found by the leader of epoch {self._leadership.epoch}"
        phases = [(str(job.id), job.phase.value)]
        phases += [(str(a.uid), a.phase.value) for a in job.attempts]
        return [cmd.Audit(name, "leader", "Adopted", is_, is_, why) for name, is_ in phases]

    async def _ticks(self) -> None:
        silence = Silence(self._gateway.answered_s, self._clock)
        while True:
            await asyncio.sleep(TICK_S)
            for cluster, late in self._unanswered().items():
                await self._send(cluster, late)
            decisions = vigil(self.books, self._projection, self._clock.now_ms(), silence)
            if decisions is not None:
                self.put(decisions)

    def _unanswered(self) -> dict[str, list[Attempt]]:
        """Attempts to tell their sites of again, by cluster."""
        now_s = self._clock.monotonic_s()
        late: dict[str, list[Attempt]] = {}
        for uid, sent_s in list(self._sent_s.items()):
            attempt = self.books.attempt(uid)
            if attempt is None or not attempt.lagging:
                del self._sent_s[uid]
            elif now_s - sent_s > REDRIVE_S and attempt.cluster in self._sessions:
                late.setdefault(attempt.cluster, []).append(attempt)
        return late


@dataclass(frozen=True, slots=True)
class LeaderContext:
    """What a leader needs beside its state."""

    clock: Clock
    signer: TicketSigner
    effects: Effects
    on_report: Callable[[Said], None]
    traceparent: Callable[[str, str, str], str]
