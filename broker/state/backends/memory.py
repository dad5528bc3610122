"""The store in memory, with etcd's semantics: for tests, simulations and one-process trials.

Deterministic: no clock, dice or threads of its own. Leases expire by the clock given, each as a
revision of its own, on the next call or on a timer of the running event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Union

from broker.state.backends import txn_rules
from broker.state.backends.history import History, matching
from federation.environment import Clock
from federation.kv import (
    Absent,
    Compare,
    Delete,
    DeletePrefix,
    Get,
    InvalidRequest,
    KeyValue,
    LeaseNotFound,
    ModRevisionIs,
    OpResult,
    Present,
    Put,
    RangeResult,
    StoreUnavailable,
    Txn,
    TxnResult,
    WatchBatch,
)

# etcd gives no lease shorter than one and a half elections, rounded up.
LEASE_TTL_MIN_S = 2
LEASE_TTL_MAX_S = 9_000_000_000
# The first lease id; they must not look like revisions or counts.
_FIRST_LEASE = 7_587_000_000_000_000_001
_NOTHING = OpResult()


@dataclass(slots=True)
class _Lease:
    ttl_s: int
    deadline_s: float
    keys: set[str] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class _Watcher:
    prefix: str
    from_revision: int
    queue: deque[WatchBatch]
    wake: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class _Path:
    """The branch a transaction takes, decided before anything is written."""

    succeeded: bool
    steps: list[Put | Delete | DeletePrefix | Get | _Path]


# What the steps of a path gave; a nested path gives the list of its own.
_Raw = Union[OpResult, "list[_Raw]"]


class MemoryStore:
    """A `Store` that lives in this process. Use it from one event loop only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._history = History()
        self._leases: dict[int, _Lease] = {}
        self._next_lease = _FIRST_LEASE
        self._watchers: list[_Watcher] = []
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def revision(self) -> int:
        """The store's revision now."""
        return self._history.revision

    # Reading ----------------------------------------------------------------------------------

    async def get(self, key: str) -> KeyValue | None:
        """See `Store.get`."""
        self._enter()
        if not key:
            raise InvalidRequest("a key is empty")
        return self._history.latest(key)

    async def range(
        self, prefix: str, *, after: str = "", limit: int = 0, revision: int = 0
    ) -> RangeResult:
        """See `Store.range`."""
        self._enter()
        seen = self._history.readable(revision)
        kvs: list[KeyValue] = []
        for key in self._history.under(prefix, after=after):
            kv = self._history.at(key, seen)
            if kv is None:
                continue
            if limit and len(kvs) == limit:
                return RangeResult(tuple(kvs), seen, more=True)
            kvs.append(kv)
        return RangeResult(tuple(kvs), seen)

    # Writing ----------------------------------------------------------------------------------

    async def txn(self, txn: Txn) -> TxnResult:
        """See `Store.txn`."""
        self._enter()
        txn_rules.check(txn)
        path = self._choose(txn)
        self._check_leases(path)
        results = self._run(path)
        self._commit()
        return _result(path, results, self._history.revision)

    async def compact(self, revision: int) -> None:
        """See `Store.compact`."""
        self._enter()
        self._history.compact(revision)

    def _choose(self, txn: Txn) -> _Path:
        succeeded = all(self._holds(compare) for compare in txn.compare)
        branch = txn.then if succeeded else txn.orelse
        return _Path(
            succeeded, [self._choose(op) if isinstance(op, Txn) else op for op in branch]
        )

    def _holds(self, compare: Compare) -> bool:
        kv = self._history.latest(compare.key)
        match compare:
            case Absent():
                return kv is None
            case Present():
                return kv is not None
            case ModRevisionIs():
                return (kv.mod_revision if kv else 0) == compare.revision
            case _:
                return kv is not None and kv.value == compare.value

    def _check_leases(self, path: _Path) -> None:
        for step in path.steps:
            if isinstance(step, _Path):
                self._check_leases(step)
            elif isinstance(step, Put) and step.lease and step.lease not in self._leases:
                raise LeaseNotFound(f"lease {step.lease} is not known")

    def _run(self, path: _Path) -> list[_Raw]:
        """Apply one branch; a nested one gives the list of its own results."""
        results: list[_Raw] = []
        for step in path.steps:
            match step:
                case Put():
                    self._put(step)
                    results.append(_NOTHING)
                case Get():
                    results.append(OpResult(kv=self._history.latest(step.key)))
                case Delete():
                    results.append(OpResult(deleted=self._delete(step.key)))
                case DeletePrefix():
                    keys = list(self._history.under(step.prefix))
                    results.append(OpResult(deleted=sum(map(self._delete, keys))))
                case _Path():
                    results.append(self._run(step))
        return results

    def _put(self, op: Put) -> None:
        old = self._history.latest(op.key)
        self._attach(op.key, old.lease if old else 0, op.lease)
        self._history.put(op.key, op.value, op.lease)

    def _delete(self, key: str) -> int:
        old = self._history.delete(key)
        if old is None:
            return 0
        self._attach(key, old.lease, 0)
        return 1

    def _attach(self, key: str, old_lease: int, new_lease: int) -> None:
        if old_lease in self._leases:
            self._leases[old_lease].keys.discard(key)
        if new_lease:
            self._leases[new_lease].keys.add(key)

    def _commit(self) -> None:
        batch = self._history.commit()
        if batch is None:
            return
        for watcher in self._watchers:
            if batch.revision < watcher.from_revision:
                continue
            events = matching(batch, watcher.prefix)
            if events:
                watcher.queue.append(WatchBatch(batch.revision, events))
                watcher.wake.set()

    # Watching ---------------------------------------------------------------------------------

    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[WatchBatch]:
        """See `Store.watch`. The first step of the iteration starts it."""
        self._enter()
        if from_revision < 1:
            raise InvalidRequest("a watch starts at revision 1 or later")
        caught_up = self._history.since(prefix, from_revision)
        watcher = _Watcher(prefix, from_revision, deque(caught_up))
        self._watchers.append(watcher)
        try:
            while True:
                while watcher.queue:
                    yield watcher.queue.popleft()
                watcher.wake.clear()
                await watcher.wake.wait()
                self._enter()
        finally:
            self._watchers.remove(watcher)

    def report_progress(self) -> None:
        """Tell every watcher how far it has seen, as etcd does every ten minutes."""
        for watcher in self._watchers:
            if watcher.from_revision <= self._history.revision:
                watcher.queue.append(WatchBatch(self._history.revision, ()))
                watcher.wake.set()

    # Leases -----------------------------------------------------------------------------------

    async def grant(self, ttl_s: int) -> int:
        """See `Store.grant`."""
        self._enter()
        if not 0 < ttl_s <= LEASE_TTL_MAX_S:
            raise InvalidRequest(f"a lease of {ttl_s} s")
        lease = self._next_lease
        self._next_lease += 1
        ttl_s = max(ttl_s, LEASE_TTL_MIN_S)
        self._leases[lease] = _Lease(ttl_s, self._clock.monotonic_s() + ttl_s)
        self._arm()
        return lease

    async def keep(self, lease: int) -> int:
        """See `Store.keep`."""
        self._enter()
        known = self._lease(lease)
        known.deadline_s = self._clock.monotonic_s() + known.ttl_s
        return known.ttl_s

    async def revoke(self, lease: int) -> None:
        """See `Store.revoke`."""
        self._enter()
        self._lease(lease)
        self._end(lease)

    def _lease(self, lease: int) -> _Lease:
        known = self._leases.get(lease)
        if known is None:
            raise LeaseNotFound(f"lease {lease} is not known")
        return known

    def _end(self, lease: int) -> None:
        for key in sorted(self._leases.pop(lease).keys):
            self._history.delete(key)
        self._commit()

    def expire(self) -> None:
        """End every lease whose time is over, oldest first."""
        now_s = self._clock.monotonic_s()
        over = [(held.deadline_s, lease) for lease, held in self._leases.items()]
        for deadline_s, lease in sorted(over):
            if deadline_s > now_s:
                break
            self._end(lease)

    def _arm(self) -> None:
        """Have the event loop end leases on time, so that watchers hear of it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._leases and not self._closed:
            first_s = min(held.deadline_s for held in self._leases.values())
            # A clock that stands still must not make this spin.
            delay_s = max(first_s - self._clock.monotonic_s(), 0.001)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.expire()
        self._arm()

    # Ending -----------------------------------------------------------------------------------

    def _enter(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        if self._leases:
            self.expire()

    async def close(self) -> None:
        """See `Store.close`. Watches under way end with `StoreUnavailable`."""
        self._closed = True
        self._arm()
        for watcher in self._watchers:
            watcher.wake.set()


def _result(path: _Path, results: list[_Raw], revision: int) -> TxnResult:
    """Results as the port gives them, with the revision all levels share."""
    given: list[OpResult] = []
    for step, result in zip(path.steps, results, strict=True):
        if isinstance(step, _Path) and isinstance(result, list):
            given.append(OpResult(txn=_result(step, result, revision)))
        elif isinstance(result, OpResult):
            given.append(result)
    return TxnResult(path.succeeded, revision, tuple(given))
