"""The tenants' past in etcd: what the next leader has to know of who had how much.

Written every few minutes. What a leader that dies leaves unwritten is made up for by the next one:
it counts what runs as if it had run since the record was written.
"""

from __future__ import annotations

import asyncio
import logging

from google.protobuf.message import DecodeError

from broker.control.admitting import Admitting
from broker.decide.admission.shares import Past
from broker.state import keys
from broker.state.group_commit import GroupCommitter
from broker.state.projection import Projection
from federation.kv import Put, StoreError
from federation.wire import records as pb

WRITE_S = 300.0
SCHEMA = 1
log = logging.getLogger("tradewind.shares")


def read_past(projection: Projection) -> Past:
    """What was written last; nothing is known where there is no record, or none that is ours."""
    raw = projection.value(keys.SHARES)
    if raw is None:
        return Past()
    try:
        record = pb.SharesRecord.FromString(raw)
    except DecodeError as error:
        log.warning("%s cannot be read, shares begin anew: %s", keys.SHARES, error)
        return Past()
    return Past(record.at_ms, record.depth, dict(record.average))


class ShareBook:
    """Keeps the past of one leadership durable."""

    def __init__(self, admitting: Admitting, committer: GroupCommitter) -> None:
        """`committer`: the leader's, so that nobody writes who leads no more."""
        self.admitting = admitting
        self._committer = committer

    async def run(self) -> None:
        """For ever. A write that fails is made up for by the next."""
        while True:
            await asyncio.sleep(WRITE_S)
            try:
                await self.write()
            except StoreError as error:
                log.warning("shares are not written: %s", error)

    async def write(self) -> None:
        """Write what is known now, if anything is. Raises StoreError."""
        past = self.admitting.past
        if not past.average:
            return
        record = pb.SharesRecord(
            schema=SCHEMA, at_ms=past.at_ms, depth=past.depth, average=dict(past.average)
        )
        await self._committer.commit((), (Put(keys.SHARES, record.SerializeToString()),))
