"""Group commit: many independent changes in one etcd transaction.

Each change is a nested transaction with its own compares, so one that fails fails alone. A lane
has one request under way at a time and keeps the order in which changes were handed to it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from broker.state.store import Store
from federation.kv import (
    OPS_PER_TXN_MAX,
    AmbiguousCommit,
    Compare,
    Delete,
    InvalidRequest,
    Op,
    Put,
    RequestTooLarge,
    StoreError,
    StoreUnavailable,
    Txn,
    TxnResult,
)

ITEMS_MAX = 60
_PUT_BYTES = 32  # what a put takes beside its key and value
BYTES_MAX = 1_000_000  # under etcd's 1.5 MiB request limit with room for keys and compares


class GuardFailed(StoreError):
    """The guard of the whole lane did not hold (another leader's epoch): nothing was applied."""


@dataclass(slots=True)
class _Item:
    txn: Txn
    size: int
    ops: int
    keys: set[str]
    done: asyncio.Future[TxnResult]


Meter = Callable[[int], Callable[[], None]]
"""Told how many changes a request carries as it begins; gives what to call when it is over."""


def unmetered(_: int) -> Callable[[], None]:
    """A `Meter` that measures nothing."""
    return _done


def _done() -> None:
    return


class GroupCommitter:
    """One lane of group commits.

    Two changes that write the same key never share a request (etcd refuses a key given twice).
    `guard` gives the compares that every request of this lane carries (empty for the API, the
    epoch for a leader). A change whose outcome is uncertain is not repeated here: its caller gets
    `AmbiguousCommit` and reads back. One that the store will never take (too large, senseless)
    fails alone; those that shared its request are committed without it.
    """

    def __init__(
        self,
        store: Store,
        guard: Callable[[], Sequence[Compare]] = lambda: (),
        meter: Meter = unmetered,
    ) -> None:
        self._store = store
        self._guard = guard
        self._meter = meter
        self._waiting: deque[_Item] = deque()
        self._runner: asyncio.Task[None] | None = None
        self._closed = False

    async def commit(
        self, compare: Sequence[Compare], then: Sequence[Op], orelse: Sequence[Op] = ()
    ) -> TxnResult:
        """Apply one change; returns its own result, with the revision of its group.

        Raises `GuardFailed`, `StoreUnavailable` (not applied), `AmbiguousCommit` (perhaps).
        """
        return await self.enqueue(Txn(tuple(compare), tuple(then), tuple(orelse)))

    def enqueue(self, txn: Txn) -> asyncio.Future[TxnResult]:
        """Queue one change in order; the future gives what `commit` would return or raise."""
        if self._closed:
            raise StoreUnavailable("this committer is closed")
        done: asyncio.Future[TxnResult] = asyncio.get_running_loop().create_future()
        self._waiting.append(_item(txn, done))
        if self._runner is None or self._runner.done():
            self._runner = asyncio.create_task(self._run(), name="group-commit")
        return done

    @property
    def waiting(self) -> int:
        """Changes queued behind the request under way."""
        return len(self._waiting)

    async def close(self) -> None:
        """Wait for what is queued, then take nothing more."""
        self._closed = True
        if self._runner is not None:
            await asyncio.wait([self._runner])

    async def _run(self) -> None:
        while self._waiting:
            await self._settle(self._next_group())

    async def _settle(self, group: list[_Item]) -> None:
        """Commit a group; every item of it has its answer afterwards, whatever happens."""
        over = self._meter(len(group))
        try:
            await self._commit_group(group)
        except (RequestTooLarge, InvalidRequest) as error:
            if len(group) == 1:
                _fail(group, error)
                return
            middle = len(group) // 2  # nothing of it was applied: find out which one it is
            await self._settle(group[:middle])
            await self._settle(group[middle:])
        except StoreError as error:
            _fail(group, error)
        except Exception as error:  # noqa: BLE001  a lane outlives a fault of its store
            _fail(group, error)
        finally:
            over()
            _fail(group, AmbiguousCommit("the lane broke off"))

    def _next_group(self) -> list[_Item]:
        group: list[_Item] = []
        size = ops = 0
        written: set[str] = set()
        while self._waiting and len(group) < ITEMS_MAX:
            item = self._waiting[0]
            ops = max(ops, item.ops)
            # nested transactions have what the outer one's operations leave of the limit
            full = size + item.size > BYTES_MAX or ops + len(group) + 1 > OPS_PER_TXN_MAX
            if group and (full or not written.isdisjoint(item.keys)):
                break
            self._waiting.popleft()
            size += item.size
            written |= item.keys
            if not item.done.done():  # a caller that went away before we began
                group.append(item)
        return group

    async def _commit_group(self, group: list[_Item]) -> None:
        if not group:
            return
        guard = tuple(self._guard())
        if len(group) == 1 and not guard:
            result = await self._store.txn(group[0].txn)
            _resolve(group[0], result)
            return
        outer = Txn(compare=guard, then=tuple(item.txn for item in group))
        result = await self._store.txn(outer)
        if not result.succeeded:
            raise GuardFailed("another broker leads: its epoch is in force")
        for item, inner in zip(group, result.results, strict=True):
            if inner.txn is None:
                raise AmbiguousCommit("a nested transaction gave no answer")
            _resolve(item, TxnResult(inner.txn.succeeded, result.revision, inner.txn.results))


def fill_first(lanes: Sequence[GroupCommitter]) -> GroupCommitter:
    """The lane a change goes to that any may take: the first without a full group waiting.

    Spread evenly, changes would travel in many small requests, and each request costs broker and
    etcd as much as several changes do. Where all are full, the shortest.
    """
    open_ = (lane for lane in lanes if lane.waiting < ITEMS_MAX)
    return next(open_, None) or min(lanes, key=lambda lane: lane.waiting)


def _resolve(item: _Item, result: TxnResult) -> None:
    if not item.done.done():
        item.done.set_result(result)


def _fail(group: list[_Item], error: Exception) -> None:
    for item in group:
        if not item.done.done():
            item.done.set_exception(error)


def _item(txn: Txn, done: asyncio.Future[TxnResult]) -> _Item:
    size, written = 0, set()
    for op in (*txn.then, *txn.orelse):
        if isinstance(op, Put):
            size += len(op.value) + len(op.key) + _PUT_BYTES
            written.add(op.key)
        elif isinstance(op, Delete):
            written.add(op.key)
    ops = max(len(txn.compare), len(txn.then), len(txn.orelse))
    return _Item(txn, size, ops, written, done)


__all__ = ["AmbiguousCommit", "GroupCommitter", "GuardFailed", "fill_first"]
