"""The one place where things happen, in order: inputs, one durable commit, then effects.

While a commit waits for the disk the next inputs gather, so load makes commits larger, not more
frequent. Nothing is done or sent before the journal says so.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence

from federation.environment import Clock
from federation.handshake.values import BrokerClock
from federation.wire import session as pb
from regional_agent.act.journal import Acceptance, Journal, Transaction
from regional_agent.session import actions as act
from regional_agent.session.conversation import Conversation, Instant
from regional_agent.session.events import Event
from regional_agent.session.inputs import Input, LocalView, Now
from regional_agent.translate import event_to_wire, placement_bytes

INPUTS_PER_COMMIT = 1_000
WORK_PER_COMMIT_MS = 20
COMPLAINTS_MAX = 100
_log = logging.getLogger(__name__)


class JournalFailed(Exception):
    """The journal took a commit no more: the agent has to end, its jobs need not. One line."""


class BrokerTime:
    """Broker time: what the last session told plus what has passed; the site's own clock until
    there was one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told: BrokerClock | None = None

    def told(self, clock: BrokerClock) -> None:
        """A session told the time."""
        self._told = clock

    def monotonic_ms(self) -> int:
        """The reading that `BrokerClock` counts from."""
        return int(self._clock.monotonic_s() * 1000)

    def now(self) -> Now:
        """The instant, by both clocks."""
        site_ms = self._clock.now_ms()
        if self._told is None:
            return Now(site_ms, site_ms)
        return Now(self._told.now_ms(self.monotonic_ms()), site_ms)


class Outbox:
    """What the broker has not acknowledged, in order; what senders wait for."""

    def __init__(self) -> None:
        self._events: deque[pb.Event] = deque()
        self._wakers: set[asyncio.Event] = set()
        self.complaints: deque[str] = deque(maxlen=COMPLAINTS_MAX)

    def __len__(self) -> int:
        return len(self._events)

    def add(self, events: Sequence[pb.Event]) -> None:
        """Events that are durable now."""
        self._events.extend(events)
        self.wake()

    def acknowledge(self, event_seq: int) -> None:
        """The broker has everything up to here."""
        while self._events and self._events[0].event_seq <= event_seq:
            self._events.popleft()

    def after(self, event_seq: int, limit: int) -> list[pb.Event]:
        """At most `limit` events with higher numbers."""
        if not self._events or self._events[-1].event_seq <= event_seq:
            return []
        found: list[pb.Event] = []
        for event in self._events:
            if event.event_seq > event_seq:
                found.append(event)
                if len(found) == limit:
                    break
        return found

    def complain(self, text: str) -> None:
        """Something to tell beside the events; lost with the session."""
        self.complaints.append(text)
        self.wake()

    def wake(self) -> None:
        """There is something to send."""
        for waker in self._wakers:
            waker.set()

    def listen(self, waker: asyncio.Event) -> None:
        """Set `waker` whenever there is something to send."""
        self._wakers.add(waker)

    def leave(self, waker: asyncio.Event) -> None:
        """Undo `listen`."""
        self._wakers.discard(waker)


class Worker:
    """Owns conversation and journal; everybody else hands inputs in."""

    def __init__(
        self, conversation: Conversation, journal: Journal, time: BrokerTime, outbox: Outbox
    ) -> None:
        self.conversation = conversation
        self._journal = journal
        self._time = time
        self._outbox = outbox
        self._inputs: asyncio.Queue[Input] = asyncio.Queue()
        self._durable: deque[tuple[Input, asyncio.Future[None]]] = deque()
        self._instants: list[asyncio.Future[Instant]] = []
        self._wanted = asyncio.Event()
        self._changes = asyncio.Event()
        self._changes_seen = -1
        self._do: Callable[[act.Effect], None] = lambda effect: None
        self._told: Callable[[Event], None] = lambda event: None

    def tell_also(self, told: Callable[[Event], None]) -> None:
        """Who hears of every event once it is durable; set once, before `run`."""
        self._told = told

    def carry_out(self, do: Callable[[act.Effect], None]) -> None:
        """Who carries effects out; set once, before `run`."""
        self._do = do

    def put(self, happened: Input) -> None:
        """Hand an input in."""
        self._inputs.put_nowait(happened)
        self._wanted.set()

    async def put_durably(self, happened: Input) -> None:
        """Hand an input in; returns once what follows from it is durable."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._durable.append((happened, done))
        self.put(happened)
        await done

    async def instant(self) -> Instant:
        """The site between two commits: everything it reflects is durable."""
        asked: asyncio.Future[Instant] = asyncio.get_running_loop().create_future()
        self._instants.append(asked)
        self._wanted.set()
        return await asked

    async def changed(self) -> None:
        """Returns when a capacity report would say something new."""
        await self._changes.wait()
        self._changes.clear()

    async def recover(
        self, views: dict[str, LocalView], first: Sequence[Input] = ()
    ) -> None:
        """Take up what an earlier life of this agent left; before `run`. `first`: what the
        site's people want, which comes before all else."""
        do, now = act.Actions(), self._time.now()
        for happened in first:
            self.conversation.take(happened, now, do)
        self.conversation.recovered(views, now, do)
        await self._finish(do)

    async def run(self) -> None:
        """For ever. Raises JournalFailed: nothing done after it would be remembered."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while not self._inputs.empty():
                await self._round()
            self._answer_instants()

    async def _round(self) -> None:
        do, now = act.Actions(), self._time.now()
        taken: list[Input] = []
        until_ms = self._time.monotonic_ms() + WORK_PER_COMMIT_MS
        while not self._inputs.empty() and len(taken) < INPUTS_PER_COMMIT:
            if taken and self._time.monotonic_ms() >= until_ms:
                break  # the loop has other things to do, and the disk may begin
            happened = self._inputs.get_nowait()
            taken.append(happened)
            self.conversation.take(happened, now, do)
        await self._finish(do)
        for happened in taken:
            if self._durable and self._durable[0][0] is happened:
                _, done = self._durable.popleft()
                if not done.done():
                    done.set_result(None)
        if self._changes_seen != self.conversation.changes:
            self._changes_seen = self.conversation.changes
            self._changes.set()
        self._answer_instants()

    def _answer_instants(self) -> None:
        asked, self._instants = self._instants, []
        for future in asked:
            if not future.done():
                future.set_result(self.conversation.instant())

    async def _finish(self, do: act.Actions) -> None:
        if do.writes:
            events = [
                event_to_wire(w.event_seq, w.event) for w in do.writes if isinstance(w, act.Tell)
            ]
            await asyncio.to_thread(commit, self._journal, do.writes, events)
            for write in do.writes:
                if isinstance(write, act.Acknowledge):
                    self._outbox.acknowledge(write.event_seq)
                elif isinstance(write, act.Tell):
                    self._told(write.event)
            if events:
                self._outbox.add(events)
        for effect in do.effects:
            if isinstance(effect, act.Complain):
                _log.warning("%s", effect.text)
                self._outbox.complain(effect.text)
            else:
                self._do(effect)


def commit(journal: Journal, writes: Sequence[act.Write], events: Sequence[pb.Event]) -> None:
    """Make writes durable in one commit; `events` are those of the `Tell`s, in order.

    Raises JournalFailed; then nothing of it was kept.
    """
    told = iter(events)
    try:
        with journal.commit() as tx:
            for write in writes:
                if isinstance(write, act.Tell):
                    _tell(tx, write, next(told))
                else:
                    _write(tx, write)
    except (sqlite3.Error, OSError) as problem:
        raise JournalFailed(f"{journal.path} cannot be written: {problem}") from problem
    except (KeyError, ValueError) as problem:
        raise JournalFailed(f"{journal.path} is not what this agent wrote: {problem}") from problem


def _tell(tx: Transaction, write: act.Tell, event: pb.Event) -> None:
    payload, uid = event.SerializeToString(), write.event.uid
    if write.last:
        seq = tx.ended(uid, payload, write.event.at_ms, write.detail)
    else:
        seq = tx.event(uid, payload)
    if seq != write.event_seq:
        raise ValueError(f"event {write.event_seq} of {uid} became {seq} in the journal")


def _write(tx: Transaction, write: act.Write) -> None:
    if isinstance(write, act.Accept):
        tx.accept(_acceptance(write))
    elif isinstance(write, act.Remember):
        tx.set_state(write.uid, write.state, write.at_ms, write.detail)
    elif isinstance(write, act.Acknowledge):
        tx.acknowledge(write.event_seq)
    elif isinstance(write, act.Take):
        tx.take(write.dispatch_seq, write.epoch)
    elif isinstance(write, act.Retake):
        tx.retake(write.uid, write.dispatch_seq, write.epoch, write.ticket)
    elif isinstance(write, act.Drop):
        tx.forget(write.uid)
    elif isinstance(write, act.NumberFrom):
        tx.raise_event_seq(write.event_seq)
    elif isinstance(write, act.Addresses):
        tx.set_addresses(write.addresses)


def _acceptance(write: act.Accept) -> Acceptance:
    command = write.command
    return Acceptance(
        uid=command.uid,
        dispatch_seq=command.dispatch_seq,
        epoch=write.epoch,
        ticket=command.ticket,
        spec=command.spec,
        placement=placement_bytes(command.placement),
        reservation=write.reservation,
        accepted_ms=write.accepted_ms,
    )
