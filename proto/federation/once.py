"""Carrying a transaction out exactly once although answers get lost."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from federation.kv import (
    Absent,
    AmbiguousCommit,
    Get,
    KeyValue,
    ModRevisionIs,
    OpResult,
    Put,
    SpaceExhausted,
    StoreUnavailable,
    Txn,
    TxnResult,
)

# Between two tries; the client's own failover pauses come on top.
_PAUSE_S = 0.1


class Transactional(Protocol):
    """The part of a store that `txn_once` needs."""

    async def get(self, key: str) -> KeyValue | None:
        """Read one key, linearizable."""
        ...

    async def txn(self, txn: Txn) -> TxnResult:
        """Run one transaction."""
        ...


@dataclass(frozen=True, slots=True)
class Once:
    """What became of a transaction.

    `revision`: where `succeeded`, the revision that applied it. `results` is None where the
    answer was lost and the rest was found out by reading: what its operations did, a `range`
    at `revision` tells (a key it wrote has exactly this `mod_revision`).
    """

    succeeded: bool
    revision: int
    results: tuple[OpResult, ...] | None


async def txn_once(
    store: Transactional, txn: Txn, probe: Put, *, patience_s: float = 15.0
) -> Once:
    """Run `txn`, and after a lost answer run the same again until it is known what became of it.

    Sound because of the guard that is required: `txn` must compare `Absent(probe.key)` or
    `ModRevisionIs(probe.key, ..)`, and its `then` must hold `probe`, whose value nobody else
    ever writes to that key. So of all copies, those still under way included, at most one
    applies; and whether one did, the probe's value shows. The caller answers for two things:
    nobody deletes or rewrites the probe key while this runs, and a compare of `txn` that has
    failed does not come true again (an epoch's revision; the absence of a key never removed),
    or a copy under way could apply after this has said "no".

    Raises `AmbiguousCommit` where it cannot be known after `patience_s` seconds, or because
    someone did rewrite the probe key; `StoreUnavailable` only while nothing was applied;
    ValueError where the guard is missing; else what `txn` raises.
    """
    guard = _guard(txn, probe)
    asked = txn._replace(orelse=(*txn.orelse, Get(probe.key)))
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    uncertain: AmbiguousCommit | None = None
    while True:
        try:
            result = await store.txn(asked)
        except SpaceExhausted:
            # Answered, so this copy is not under way, but it may have been applied.
            kv = await store.get(probe.key)
            if kv is None or kv.value != probe.value:
                raise
            return Once(succeeded=True, revision=kv.mod_revision, results=None)
        except AmbiguousCommit as lost:
            uncertain = lost
        except StoreUnavailable:
            if uncertain is None:
                raise
        else:
            return _outcome(result, probe, guard, uncertain)
        if loop.time() >= deadline:
            raise uncertain
        await asyncio.sleep(_PAUSE_S)


def _guard(txn: Txn, probe: Put) -> int:
    """The revision of the probe key the transaction is guarded by, 0 = absent."""
    if probe in txn.then:
        for compare in txn.compare:
            if isinstance(compare, Absent) and compare.key == probe.key:
                return 0
            if isinstance(compare, ModRevisionIs) and compare.key == probe.key:
                return compare.revision
    raise ValueError(f"the transaction is not guarded by {probe.key!r}")


def _outcome(
    result: TxnResult, probe: Put, guard: int, uncertain: AmbiguousCommit | None
) -> Once:
    if result.succeeded:
        return Once(succeeded=True, revision=result.revision, results=result.results)
    found = result.results[-1].kv
    if uncertain is not None:
        if found is not None and found.value == probe.value:
            return Once(succeeded=True, revision=found.mod_revision, results=None)
        untouched = (found.mod_revision if found else 0) == guard
        # Created once and not by us: then we did not get in before.
        foreign = found is not None and guard == 0 and found.version == 1
        if not untouched and not foreign:
            raise uncertain
    return Once(succeeded=False, revision=result.revision, results=result.results[:-1])
