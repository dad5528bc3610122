"""What is kept free for whom, in etcd: the next leader goes on keeping it, and who was set back
stays so.

Written when it changes, before anything is stopped for its sake: who is stopped to make room, or to
go on elsewhere, finds the place kept whoever leads by then.
"""

from __future__ import annotations

import logging

from google.protobuf.message import DecodeError

from broker.control.admitting import Admitting
from broker.decide.admission.holds import Hold, HoldWhy
from broker.decide.admission.vain import Missed, Vain
from broker.state import keys
from broker.state.group_commit import GroupCommitter
from broker.state.projection import Projection
from federation.kv import Put, StoreError
from federation.wire import records as pb

SCHEMA = 1
MISSED_MAX = 1_000
log = logging.getLogger("tradewind.holds")


def read_holds(projection: Projection) -> tuple[tuple[Hold, ...], Vain]:
    """What was written last; nothing where there is no record, or none that is ours."""
    raw = projection.value(keys.HOLDS)
    if raw is None:
        return (), Vain()
    try:
        record = pb.HoldsRecord.FromString(raw)
        holds = tuple(_read(each) for each in record.holds)
    except (DecodeError, ValueError) as error:
        log.warning("%s cannot be read, nothing is kept: %s", keys.HOLDS, error)
        return (), Vain()
    return holds, Vain({m.job: Missed(m.turns, m.until_ms) for m in record.missed})


class HoldBook:
    """Keeps what one leadership keeps free durable."""

    def __init__(self, admitting: Admitting, committer: GroupCommitter) -> None:
        """`committer`: the leader's, so that nobody writes who leads no more."""
        self._admitting = admitting
        self._committer = committer
        self._written = record_of(admitting.holds, admitting.vain)

    async def write(self) -> None:
        """Write what is kept, if that has changed. A write that fails is made up for by the next:
        then a leader that comes meanwhile knows less, and nothing is wrong."""
        found = record_of(self._admitting.holds, self._admitting.vain)
        if found == self._written:
            return
        try:
            await self._committer.commit((), (Put(keys.HOLDS, found),))
        except StoreError as error:
            log.warning("what is kept is not written: %s", error)
        else:
            self._written = found


def record_of(holds: tuple[Hold, ...], vain: Vain) -> bytes:
    """The record of what is kept, and who is set back. Holds of recovery follow from the jobs, and
    are left out; so is the instant at which room is expected, which is reckoned anew in each cycle.
    """
    return pb.HoldsRecord(
        schema=SCHEMA,
        holds=[_written(hold) for hold in holds if hold.why is not HoldWhy.RECOVERY],
        missed=[
            pb.MissedRecord(job=job, turns=each.turns, until_ms=each.until_ms)
            for job, each in sorted(vain.missed.items())
            if each.until_ms
        ][:MISSED_MAX],
    ).SerializeToString(deterministic=True)


def _written(hold: Hold) -> pb.HoldRecord:
    tenant, priority, replicas, size, models, regions = hold.shape
    return pb.HoldRecord(
        tenant=str(tenant),
        priority=hold.priority,
        replicas=hold.replicas,
        size=hold.size,
        models=list(models),
        regions=list(regions or ()),
        everywhere=regions is None,
        pool=hold.pool,
        why=hold.why.value,
        since_ms=hold.since_ms,
        until_ms=hold.until_ms,
        room_ms=hold.since_ms if hold.why is HoldWhy.MOVE else hold.until_ms,
        copies=hold.copies,
        job=hold.job,
        model=hold.model,
    )


def _read(record: pb.HoldRecord) -> Hold:
    regions = None if record.everywhere else tuple(record.regions)
    shape = (
        record.tenant, record.priority, record.replicas, record.size, tuple(record.models), regions,
    )  # fmt: skip
    return Hold(
        shape=shape,
        pool=record.pool,
        priority=record.priority,
        replicas=record.replicas,
        size=record.size,
        why=HoldWhy(record.why),
        since_ms=record.since_ms,
        until_ms=record.until_ms,
        room_ms=record.room_ms,
        copies=record.copies,
        job=record.job,
        model=record.model,
    )
