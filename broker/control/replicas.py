"""The brokers of a federation: each writes where it is reached, as long as it lives.

The record lies under an etcd lease, so it goes when its broker does. Nothing is decided by it:
agents are told every address, so that they can dial on when those they know are gone.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Never

from google.protobuf.message import DecodeError

from broker.control.leadership import BEATS_PER_TTL, Candidate
from broker.state import keys
from broker.state.projection import Projection
from broker.state.store import Store
from federation.kv import Put, StoreError, Txn
from federation.wire import records as pb

TTL_S = 30
RETRY_S = 5.0
log = logging.getLogger("tradewind.replicas")


class Replicas:
    """Writes this replica's record and reads those of all."""

    def __init__(
        self, store: Store, projection: Projection, candidate: Candidate, ttl_s: int = TTL_S
    ) -> None:
        self._store = store
        self._projection = projection
        self._candidate = candidate
        self._ttl_s = ttl_s

    async def run(self) -> None:
        """Keep the record of this replica, for ever."""
        while True:
            try:
                await self._one_lease()
            except StoreError as error:
                log.warning("where this broker is reached cannot be written: %s", error)
                await asyncio.sleep(RETRY_S)

    async def _one_lease(self) -> Never:
        own = self._candidate
        record = pb.ReplicaRecord(
            schema=1,
            name=own.name,
            api_addresses=own.api_addresses,
            session_addresses=own.session_addresses,
        )
        lease = await self._store.grant(self._ttl_s)
        put = Put(keys.replica(own.name), record.SerializeToString(), lease)
        result = await self._store.txn(Txn(then=(put,)))
        self._projection.fold_own(result.revision, (put,))
        while True:
            await asyncio.sleep(self._ttl_s / BEATS_PER_TTL)
            await self._store.keep(lease)

    def session_addresses(self) -> tuple[str, ...]:
        """Where agents reach the brokers: this one first, then the others by name."""
        found = list(self._candidate.session_addresses)
        for kv in self._projection.under(keys.REPLICAS):
            try:
                found.extend(pb.ReplicaRecord.FromString(kv.value).session_addresses)
            except DecodeError:
                log.warning("%s cannot be read", kv.key)
        return tuple(dict.fromkeys(found))
