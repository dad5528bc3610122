"""Leadership by epoch and beat. It rests on no lease: any client could keep a dead leader's alive.

The leader rewrites `broker/leader` every third of the TTL. A candidate that saw no new revision of
it for a whole TTL on its own monotonic clock takes over in one transaction that raises the epoch.
A leader stops acting 0.8 TTL after it *sent* its last confirmed beat, whatever etcd says.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from broker.state import keys
from broker.state.store import Store
from federation.environment import Clock
from federation.kv import (
    Absent,
    AmbiguousCommit,
    Compare,
    ModRevisionIs,
    Put,
    StoreUnavailable,
    Txn,
    ValueIs,
)
from federation.wire import records as pb

ACTS_FOR = 0.8
BEATS_PER_TTL = 3


@dataclass(frozen=True, slots=True)
class Candidate:
    """Who would lead, and where it is reached."""

    name: str
    api_addresses: tuple[str, ...]
    session_addresses: tuple[str, ...]


class LeadershipLost(Exception):
    """This process must stop acting as leader now."""


class Leadership:
    """One process's claim to lead. Not reusable after it is lost."""

    def __init__(
        self, store: Store, clock: Clock, candidate: Candidate, ttl_s: float = 6.0
    ) -> None:
        self._store = store
        self._clock = clock
        self._candidate = candidate
        self._ttl_s = ttl_s
        self._beat = 0
        self._confirmed_sent_s = float("-inf")
        self.epoch = 0
        self.since_revision = 0

    @property
    def guard(self) -> tuple[Compare, ...]:
        """What every leader-owned write compares."""
        return (ValueIs(keys.EPOCH, _epoch_bytes(self.epoch)),)

    def valid(self) -> bool:
        """Whether this process may act: within 0.8 TTL of sending its last confirmed beat."""
        return self._clock.monotonic_s() < self._confirmed_sent_s + ACTS_FOR * self._ttl_s

    def require(self) -> None:
        """Raises `LeadershipLost` where `valid` is False."""
        if not self.valid():
            raise LeadershipLost(f"no confirmed beat for {ACTS_FOR * self._ttl_s:g} s")

    async def win(self, ready: asyncio.Event | None = None) -> None:
        """Wait until nobody leads, and until `ready` is set, then take over. Returns as leader
        with a new epoch."""
        while True:
            silent = await self._wait_until_silent()
            if ready is not None:
                await ready.wait()
            if await self._take_over(*silent):
                return
            await asyncio.sleep(0)

    async def _wait_until_silent(self) -> tuple[int, int]:
        """Revision of the leader record (0 = none) and the present epoch, once it is silent."""
        seen, since_s = -1, self._clock.monotonic_s()
        while True:
            try:
                leader = await self._store.get(keys.LEADER)
                epoch = await self._store.get(keys.EPOCH)
            except StoreUnavailable as error:
                await asyncio.sleep(min(error.retry_after_s, self._ttl_s / BEATS_PER_TTL))
                # our own blindness says nothing about the leader: its silence starts anew
                seen, since_s = -1, self._clock.monotonic_s()
                continue
            revision = leader.mod_revision if leader else 0
            number = pb.EpochRecord.FromString(epoch.value).epoch if epoch else 0
            if leader is None or pb.LeaderRecord.FromString(leader.value).name == "":
                return revision, number
            if revision != seen:
                seen, since_s = revision, self._clock.monotonic_s()
            elif self._clock.monotonic_s() - since_s >= self._ttl_s:
                return revision, number
            await asyncio.sleep(self._ttl_s / 10)

    async def _take_over(self, revision: int, epoch: int) -> bool:
        sent_s = self._clock.monotonic_s()
        epoch_now: Compare = (
            ValueIs(keys.EPOCH, _epoch_bytes(epoch)) if epoch else Absent(keys.EPOCH)
        )
        txn = Txn(
            compare=(ModRevisionIs(keys.LEADER, revision), epoch_now),
            then=(
                Put(keys.EPOCH, _epoch_bytes(epoch + 1)),
                Put(keys.LEADER, self._record(epoch + 1)),
            ),
        )
        try:
            result = await self._store.txn(txn)
        except (AmbiguousCommit, StoreUnavailable):
            return False  # if it was applied, our own silent record is waited out and replaced
        if not result.succeeded:
            return False
        self.epoch = epoch + 1
        self.since_revision = result.revision
        self._confirmed_sent_s = sent_s
        return True

    async def keep(self) -> None:
        """Beat for ever. Raises `LeadershipLost` when superseded or too long unconfirmed."""
        while True:
            await asyncio.sleep(self._ttl_s / BEATS_PER_TTL)
            await self._beat_once()
            self.require()

    async def _beat_once(self) -> None:
        sent_s = self._clock.monotonic_s()
        self._beat += 1
        txn = Txn(compare=self.guard, then=(Put(keys.LEADER, self._record(self.epoch)),))
        try:
            async with asyncio.timeout(self._ttl_s / BEATS_PER_TTL):
                result = await self._store.txn(txn)
        except (AmbiguousCommit, StoreUnavailable, TimeoutError):
            return
        if not result.succeeded:
            raise LeadershipLost("another broker leads: its epoch is in force")
        self._confirmed_sent_s = sent_s

    async def resign(self) -> None:
        """Let another lead at once; only ever after this process stopped acting."""
        nobody = pb.LeaderRecord(schema=1, epoch=self.epoch).SerializeToString()
        txn = Txn(compare=self.guard, then=(Put(keys.LEADER, nobody),))
        self._confirmed_sent_s = float("-inf")
        try:
            async with asyncio.timeout(1.0):
                await self._store.txn(txn)
        except (AmbiguousCommit, StoreUnavailable, TimeoutError):
            return  # the others wait the TTL out

    def _record(self, epoch: int) -> bytes:
        return pb.LeaderRecord(
            schema=1,
            name=self._candidate.name,
            api_addresses=self._candidate.api_addresses,
            session_addresses=self._candidate.session_addresses,
            beat=self._beat,
            epoch=epoch,
        ).SerializeToString()


def _epoch_bytes(epoch: int) -> bytes:
    return pb.EpochRecord(schema=1, epoch=epoch).SerializeToString()
