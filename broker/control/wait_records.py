"""Predicted waits in etcd, so that what comes of them is counted whoever leads by then.

In parts by job, and only parts that changed, now and then: a prediction made in the last seconds of
a leader is lost with it, and nothing but the published share depends on any.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from zlib import crc32

from google.protobuf.message import DecodeError

from broker.control.books import Books
from broker.control.wait_book import Predicted, WaitBook
from broker.model.jobs import JobPhase
from broker.state import keys
from broker.state.group_commit import GroupCommitter
from broker.state.projection import Projection
from federation.kv import Delete, Op, Put, StoreError
from federation.wire import records as pb

WRITE_S = 30.0
PARTS = 64
SCHEMA = 1
log = logging.getLogger("tradewind.waits")


def read_waits(projection: Projection) -> dict[str, Predicted]:
    """What earlier leaders predicted; parts that cannot be read are left out."""
    found: dict[str, Predicted] = {}
    for kv in projection.under(keys.WAITS):
        try:
            record = pb.WaitsRecord.FromString(kv.value)
        except DecodeError as error:
            log.warning("%s cannot be read: %s", kv.key, error)
            continue
        for each in record.predicted:
            found[each.job] = Predicted(each.at_ms, each.from_ms, each.until_ms)
    return found


class WaitKeeper:
    """Keeps the predictions of one leadership durable."""

    def __init__(self, waits: WaitBook, books: Books, committer: GroupCommitter) -> None:
        """`committer`: the leader's, so that nobody writes who leads no more."""
        self._waits = waits
        self._books = books
        self._committer = committer
        self._written = _records(waits.made)

    async def run(self) -> None:
        """For ever. A write that fails is made up for by the next."""
        while True:
            await asyncio.sleep(WRITE_S)
            try:
                await self.write()
            except StoreError as error:
                log.warning("predictions are not written: %s", error)

    async def write(self) -> None:
        """Write the parts that changed. Jobs that ended without a start are forgotten. Raises
        StoreError."""
        for job_id in list(self._waits.made):
            job = self._books.job(job_id)
            if job is None or job.phase is JobPhase.ENDED:
                self._waits.forget(job_id)
        found = _records(self._waits.made)
        ops: list[Op] = [Delete(key) for key in self._written if key not in found]
        ops += [Put(key, raw) for key, raw in found.items() if self._written.get(key) != raw]
        await asyncio.gather(*(self._committer.commit((), (op,)) for op in ops))
        self._written = found


def _records(made: Mapping[str, Predicted]) -> dict[str, bytes]:
    """The records of these predictions by key."""
    parts: dict[str, pb.WaitsRecord] = {}
    for job, each in sorted(made.items()):
        key = f"{keys.WAITS}{crc32(job.encode()) % PARTS:02d}"
        part = parts.setdefault(key, pb.WaitsRecord(schema=SCHEMA))
        part.predicted.add(
            job=job, at_ms=each.at_ms, from_ms=each.from_ms, until_ms=each.until_ms
        )
    return {key: part.SerializeToString() for key, part in parts.items()}
