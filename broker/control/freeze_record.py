"""What operators say of stopping what runs, and what waits for their word: records in etcd.

`freeze` is written by the API, `broker/proposal` by the leader.
"""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.message import DecodeError

from broker.state import keys
from broker.state.projection import Projection
from broker.state.store import Store
from federation.kv import Put, Txn
from federation.wire import records as pb

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Freeze:
    """What operators said last."""

    frozen: bool = False
    subject: str = ""
    why: str = ""
    at_ms: int = 0
    approved_cycle: str = ""


@dataclass(frozen=True, slots=True)
class Proposal:
    """What waits for an operator: attempts to be stopped, and how much that is of what is used."""

    cycle: str
    at_ms: int
    attempts: frozenset[str]
    accelerators: int
    in_use: int
    why: str


def read_freeze(projection: Projection) -> Freeze:
    """What operators said last. A record that cannot be read freezes: doing nothing is safe."""
    raw = projection.value(keys.FREEZE)
    if raw is None:
        return Freeze()
    try:
        r = pb.FreezeRecord.FromString(raw)
    except DecodeError:
        return Freeze(frozen=True, why="the record cannot be read")
    return Freeze(r.frozen, r.subject, r.why, r.at_ms, r.approved_cycle)


def read_proposal(projection: Projection) -> Proposal | None:
    """What waits for an operator; None = nothing."""
    raw = projection.value(keys.PROPOSAL)
    if raw is None:
        return None
    try:
        r = pb.ProposalRecord.FromString(raw)
    except DecodeError:
        return None
    return Proposal(
        r.cycle, r.at_ms, frozenset(r.attempts), r.accelerators, r.in_use, r.why
    )


async def write_freeze(store: Store, projection: Projection, freeze: Freeze) -> int:
    """Write what an operator says; the revision it has. Raises StoreError."""
    record = pb.FreezeRecord(
        schema=SCHEMA,
        frozen=freeze.frozen,
        subject=freeze.subject,
        why=freeze.why,
        at_ms=freeze.at_ms,
        approved_cycle=freeze.approved_cycle,
    )
    put = Put(keys.FREEZE, record.SerializeToString())
    result = await store.txn(Txn(then=(put,)))
    projection.fold_own(result.revision, (put,))
    return result.revision
