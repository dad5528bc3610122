"""Cluster records: reading one, and changing one although others write it too.

Enrolment changes what concerns certificates, the replica that holds the session what the agent
says of itself, an operator the state: so every change is made on the record as it stands and
committed only if it still stands so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from broker.state import keys
from broker.state.codec import RecordUnreadable
from broker.state.store import Store
from federation.handshake.values import KnownCluster
from federation.kv import Compare, ModRevisionIs, Op, Put, StoreUnavailable, Txn
from federation.wire import records as pb

SCHEMA = 1
TRIES_MAX = 20


@dataclass(frozen=True, slots=True)
class StoredCluster:
    """A cluster record and the revision it stands at (0 = not there yet)."""

    record: pb.ClusterRecord
    mod_revision: int


async def read_cluster(store: Store, name: str) -> StoredCluster | None:
    """The record of a cluster; None when there is none.

    Raises RecordUnreadable and what the store raises.
    """
    kv = await store.get(keys.cluster(name))
    if kv is None:
        return None
    try:
        return StoredCluster(pb.ClusterRecord.FromString(kv.value), kv.mod_revision)
    except DecodeError as problem:
        raise RecordUnreadable(f"{kv.key} holds no cluster record") from problem


def known_cluster(record: pb.ClusterRecord, event_seq: int) -> KnownCluster:
    """A record as the handshake sees it; `event_seq` is the last event committed."""
    return KnownCluster(
        state=record.state,
        journal=record.journal,
        event_seq=event_seq,
        revoked_serials=frozenset(record.revoked_serials),
        joined_ms=record.joined_ms,
    )


def unchanged(name: str, stored: StoredCluster | None) -> Compare:
    """True while the record of this cluster is the one that was read (or still is not there)."""
    return ModRevisionIs(keys.cluster(name), stored.mod_revision if stored else 0)


def put_cluster(record: pb.ClusterRecord) -> Op:
    """Write a record; fields this version does not know go along."""
    record.schema = record.schema or SCHEMA
    return Put(keys.cluster(record.cluster), record.SerializeToString())


async def change_cluster(
    store: Store, name: str, change: Callable[[pb.ClusterRecord], None]
) -> pb.ClusterRecord | None:
    """Apply `change` to the record as it stands, again on a newer one where needed.

    Returns the record written, None when there is no such cluster. What `change` raises ends it
    without a write. Raises RecordUnreadable and what the store raises.
    """
    for _ in range(TRIES_MAX):
        stored = await read_cluster(store, name)
        if stored is None:
            return None
        change(stored.record)
        txn = Txn((unchanged(name, stored),), (put_cluster(stored.record),))
        if (await store.txn(txn)).succeeded:
            return stored.record
    raise StoreUnavailable(f"the record of cluster {name} changes faster than it can be written")
