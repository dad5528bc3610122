"""How often sites take capacity back, in etcd: what one leader saw the next one goes on from.

One record, written when it changed, now and then: what ended in the last seconds of a leader is not
counted. Nothing depends on one copy more or less.
"""

from __future__ import annotations

import asyncio
import logging

from google.protobuf.message import DecodeError

from broker.sense.preemptions import Preemptions, Seen
from broker.state import keys
from broker.state.group_commit import GroupCommitter
from broker.state.projection import Projection
from federation.kv import Put, StoreError
from federation.wire import records as pb

WRITE_S = 60.0
SCHEMA = 1
log = logging.getLogger("tradewind.preemptions")


def read_preemptions(projection: Projection) -> dict[tuple[str, str], Seen]:
    """What leaders saw so far, by cluster and pool; nothing where there is no record, or none that
    can be read."""
    raw = projection.value(keys.PREEMPTIONS)
    if raw is None:
        return {}
    try:
        record = pb.PreemptionsRecord.FromString(raw)
    except DecodeError as error:
        log.warning("%s cannot be read, preemptions begin anew: %s", keys.PREEMPTIONS, error)
        return {}
    return {(each.cluster, each.pool): (each.times, each.hours) for each in record.pools}


class PreemptionKeeper:
    """Keeps what one leadership saw durable."""

    def __init__(self, preemptions: Preemptions, committer: GroupCommitter) -> None:
        """`committer`: the leader's, so that nobody writes who leads no more."""
        self._preemptions = preemptions
        self._committer = committer
        self._written = _record(preemptions)

    async def run(self) -> None:
        """For ever. A write that fails is made up for by the next."""
        while True:
            await asyncio.sleep(WRITE_S)
            try:
                await self.write()
            except StoreError as error:
                log.warning("preemptions are not written: %s", error)

    async def write(self) -> None:
        """Write what is known now, if it changed. Raises StoreError."""
        raw = _record(self._preemptions)
        if raw != self._written:
            await self._committer.commit((), (Put(keys.PREEMPTIONS, raw),))
            self._written = raw


def _record(preemptions: Preemptions) -> bytes:
    record = pb.PreemptionsRecord(schema=SCHEMA)
    for (cluster, pool), (times, hours) in sorted(preemptions.snapshot().items()):
        record.pools.add(cluster=cluster, pool=pool, times=times, hours=hours)
    return record.SerializeToString()
