"""What sites say of themselves: sessions, reports and identity, kept for every replica to see.

Reports go to etcd through a lane without guard: they belong to the replica that holds the session,
not to the leader's decisions. The latest of each kind wins; one in flight a key at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from google.protobuf.message import DecodeError

from broker.act.gateway import (
    CacheArrived,
    CapacityArrived,
    PricesArrived,
    RoundTripsArrived,
    SessionClosed,
    SessionOpened,
)
from broker.model.fleet import Fleet
from broker.sense.fleet import FleetReader, SessionState
from broker.state import keys
from broker.state.group_commit import GroupCommitter
from broker.state.projection import Projection
from federation.environment import Clock
from federation.kv import (
    InvalidRequest,
    ModRevisionIs,
    Put,
    RequestTooLarge,
    StoreError,
    Txn,
)
from federation.task_group import TaskGroup
from federation.wire import records as pb

RETRY_S = 1.0
CAS_TRIES = 20

Reported = CapacityArrived | PricesArrived | RoundTripsArrived | CacheArrived
Arrived = SessionOpened | SessionClosed | Reported
_KINDS: dict[type, str] = {
    CapacityArrived: "capacity",
    PricesArrived: "price",
    RoundTripsArrived: "latency",
    CacheArrived: "cache",
}


class Sites:
    """Sessions as this replica holds them, and the writer of what they report."""

    def __init__(
        self,
        projection: Projection,
        lane: GroupCommitter,
        clock: Clock,
        alarm: Callable[[str], None],
    ) -> None:
        self._projection = projection
        self._lane = lane
        self._clock = clock
        self._alarm = alarm
        self._reader = FleetReader(projection)
        self._sessions: dict[str, SessionState] = {}
        self._current: dict[str, int] = {}
        self._pending: dict[str, bytes] = {}
        self._opened: list[SessionOpened] = []
        self._cards: dict[str, frozenset[str]] = {}
        self._work = asyncio.Event()
        self._arrivals = asyncio.Event()

    def arrived(self, event: Arrived) -> None:
        """Take in what a site said; durable a little later."""
        if isinstance(event, SessionOpened):
            self._open(event)
        elif isinstance(event, SessionClosed):
            self._close(event)
        elif self._current.get(event.cluster) == event.session:
            if isinstance(event, PricesArrived):
                for reason in event.rejected:
                    self._alarm(f"{event.cluster}: price refused: {reason}")
            self._reported(event)
            self._doubled(event)
            self._pending[keys.report(event.cluster, _KINDS[type(event)])] = event.raw
        self._work.set()

    def _open(self, event: SessionOpened) -> None:
        old = self._sessions.get(event.cluster, SessionState())
        self._current[event.cluster] = event.session
        self._sessions[event.cluster] = replace(
            old,
            connected_since_ms=self._clock.now_ms(),
            silent_since_ms=0,
            reported=False,
            handshake_ms=0,
            cold_handshake_ms=event.handshake_ms,
        )
        self._opened.append(event)
        self._arrivals.set()

    def _close(self, event: SessionClosed) -> None:
        if self._current.get(event.cluster) != event.session:
            return  # an older stream of a site that has already opened the next
        old = self._sessions.get(event.cluster, SessionState())
        self._sessions[event.cluster] = replace(
            old, connected_since_ms=0, silent_since_ms=self._clock.now_ms()
        )

    def _reported(self, event: Arrived) -> None:
        state = self._sessions.get(event.cluster)
        if state and isinstance(event, CapacityArrived) and not state.reported:
            self._sessions[event.cluster] = replace(state, reported=True)

    def _doubled(self, event: Arrived) -> None:
        """Alarm once for cards of a site that another one reports as well."""
        if not isinstance(event, CapacityArrived):
            return
        cards = frozenset(card for pool in event.capacity.pools for card in pool.cards)
        if self._cards.get(event.cluster, frozenset()) == cards:
            return
        self._cards[event.cluster] = cards
        for other, theirs in self._cards.items():
            if other != event.cluster and cards & theirs:
                pair = " and ".join(sorted((event.cluster, other)))
                shared = len(cards & theirs)
                self._alarm(f"{pair} report {shared} of the same cards: they are counted once")

    def forget_sessions(self) -> None:
        """This replica no longer leads: it knows of no session, and whoever does writes newer
        reports than it still could."""
        self._sessions.clear()
        self._current.clear()
        self._pending.clear()
        self._opened.clear()
        self._cards.clear()

    def fleet(self) -> Fleet:
        """The fleet now."""
        return self._reader.read(self._sessions)

    async def run(self) -> None:
        """Write what is pending, for ever."""
        async with TaskGroup() as tasks:
            tasks.create_task(self._write_reports(), name="sites-reports")
            tasks.create_task(self._write_identities(), name="sites-identities")

    async def _write_reports(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            pending, self._pending = self._pending, {}
            written = await asyncio.gather(*(self._put(k, v) for k, v in pending.items()))
            if not all(written):
                await asyncio.sleep(RETRY_S)
                self._work.set()

    async def _write_identities(self) -> None:
        while True:
            await self._arrivals.wait()
            self._arrivals.clear()
            opened, self._opened = self._opened, []
            await asyncio.gather(*(self._note_identity(event) for event in opened))

    async def _put(self, key: str, value: bytes) -> bool:
        """Whether this report needs no other try."""
        put = Put(key, value)
        try:
            result = await self._lane.enqueue(Txn(then=(put,)))
        except (RequestTooLarge, InvalidRequest) as error:
            self._alarm(f"{key} cannot be stored: {error}")
            return True
        except StoreError:
            self._pending.setdefault(key, value)  # unless a newer one has come
            return False
        self._projection.fold_own(result.revision, (put,))
        return True

    async def _note_identity(self, event: SessionOpened) -> None:
        """Bring the cluster's record up to what its agent said, unless it already says so."""
        key = keys.cluster(event.cluster)
        for _ in range(CAS_TRIES):
            raw = self._projection.value(key)
            if raw is None:
                return
            try:
                record = pb.ClusterRecord.FromString(raw)
            except DecodeError as error:
                self._alarm(f"{key} cannot be read: {error}")
                return
            _describe(record, event)
            put = Put(key, record.SerializeToString())
            if put.value == raw:
                return
            guard = ModRevisionIs(key, self._projection.mod_revision(key))
            try:
                result = await self._lane.enqueue(Txn((guard,), (put,)))
            except StoreError:
                await asyncio.sleep(RETRY_S)
                continue
            if result.succeeded:
                self._projection.fold_own(result.revision, (put,))
                return
            await asyncio.sleep(0.05)  # the watch brings the newer record


def _describe(record: pb.ClusterRecord, event: SessionOpened) -> None:
    record.scheduler = event.scheduler
    record.isolation = event.isolation
    record.version = event.version
    record.journal = event.journal
    record.instance = event.instance
    record.sealing_key = event.sealing_key
    record.certificate_serial = event.certificate_serial
    record.certificate_expires_ms = event.certificate_expires_ms
    del record.capabilities[:]
    record.capabilities.extend(event.capabilities)
