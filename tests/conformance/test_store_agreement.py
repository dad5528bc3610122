"""Random histories on the memory store and a real etcd, step by step with the same outcome."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)

from broker.state.backends.etcd import open_store
from broker.state.backends.memory import MemoryStore
from broker.state.store import Store
from federation.kv import (
    Absent,
    Delete,
    DeletePrefix,
    Get,
    KeyValue,
    ModRevisionIs,
    Op,
    OpResult,
    Present,
    Put,
    RangeResult,
    StoreError,
    Txn,
    TxnResult,
    ValueIs,
    WatchEvent,
)
from tests.etcd_server import EtcdServer, require_binary
from tests.store_steps import RealClock

pytestmark = pytest.mark.etcd

T = TypeVar("T")
NAMES = ("a", "a/1", "b", "ü")
PREFIXES = ("", "a", "a/", "z")
VALUES = (b"", b"1")
_runs = itertools.count(1)


# Keys get a base of the history's own put before them, and revisions are counted from where the
# history began; each store has its own shift. Few names and revisions, so that steps meet.
names = st.sampled_from(NAMES)
prefixes = st.sampled_from(PREFIXES)
values = st.sampled_from(VALUES)
near = st.integers(-1, 3)
compares = st.one_of(
    st.builds(Absent, names),
    st.builds(Present, names),
    st.builds(ValueIs, names, values),
    st.builds(ModRevisionIs, names, st.integers(0, 4)),
)
flat_ops = st.one_of(
    st.builds(Put, names, values, st.sampled_from((0, 0, 0, 1, 1, 1, 2))),
    st.builds(Delete, names),
    st.builds(DeletePrefix, prefixes),
    st.builds(Get, names),
)


def txns(ops: st.SearchStrategy[Any], most: int) -> st.SearchStrategy[Txn]:
    some = st.lists(ops, max_size=most).map(tuple)
    return st.builds(Txn, st.lists(compares, max_size=2).map(tuple), some, some)


any_txn = st.one_of(
    txns(flat_ops, 2),
    txns(st.one_of(flat_ops, txns(st.one_of(flat_ops, txns(flat_ops, 2)), 2)), 3),
)


class Side:
    """One store with its own base revision and lease ids."""

    def __init__(self, store: Store, base: str) -> None:
        self.store = store
        self.base = base
        self.start = 0
        # Ids by name, and the names of all there ever were: the past still tells them.
        self.leases: dict[int, int] = {}
        self.names: dict[int, int] = {0: 0}

    async def grant(self, name: int) -> None:
        self.leases[name] = await self.store.grant(600)
        self.names[self.leases[name]] = name

    # From the words of the history to those of the store.

    def revision(self, relative: int) -> int:
        return self.start + relative

    def compare(self, compare: Any) -> Any:
        compare = replace(compare, key=self.base + compare.key)
        if isinstance(compare, ModRevisionIs) and compare.revision:
            return replace(compare, revision=self.revision(compare.revision))
        return compare

    def op(self, op: Op) -> Op:
        match op:
            case Txn():
                return self.txn(op)
            case DeletePrefix():
                return DeletePrefix(self.base + op.prefix)
            case Put():
                # A lease never granted is one that no store knows.
                lease = self.leases.get(op.lease, 424242) if op.lease else 0
                return Put(self.base + op.key, op.value, lease)
            case _:
                return replace(op, key=self.base + op.key)

    def txn(self, txn: Txn) -> Txn:
        return Txn(
            tuple(map(self.compare, txn.compare)),
            tuple(map(self.op, txn.then)),
            tuple(map(self.op, txn.orelse)),
        )

    # And back.

    def said_kv(self, kv: KeyValue | None) -> KeyValue | None:
        if kv is None:
            return None
        return KeyValue(
            kv.key.removeprefix(self.base),
            kv.value,
            kv.create_revision - self.start,
            kv.mod_revision - self.start,
            kv.version,
            self.names[kv.lease],
        )

    def said_txn(self, result: TxnResult) -> TxnResult:
        return TxnResult(
            result.succeeded,
            result.revision - self.start,
            tuple(
                OpResult(
                    self.said_kv(each.kv), each.deleted, each.txn and self.said_txn(each.txn)
                )
                for each in result.results
            ),
        )

    def said_range(self, result: RangeResult) -> object:
        kvs = [self.said_kv(kv) for kv in result.kvs]
        return kvs, result.revision - self.start, result.more

    def said_event(self, event: WatchEvent) -> object:
        key = event.key.removeprefix(self.base)
        return key, self.said_kv(event.kv), event.mod_revision - self.start


class Agreement(RuleBasedStateMachine):
    """Every step is taken on both stores and must say the same."""

    etcd_url = ""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        base = f"/{next(_runs)}/"
        self.memory = Side(MemoryStore(RealClock()), base)
        self.etcd = Side(open_store([self.etcd_url]), base)
        # The first two relative to the start, and known to be equal.
        self.compacted = self.now = self.watched = 0
        for side in (self.memory, self.etcd):
            self.loop.run_until_complete(self.begin(side))

    async def begin(self, side: Side) -> None:
        side.start = (await side.store.txn(Txn(then=(Put("/start", b""),)))).revision
        # What was before is another history's.
        await side.store.compact(side.start)
        await side.grant(1)

    def both(self, step: Callable[[Side], Coroutine[Any, Any, T]]) -> T | None:
        """Run `step` on both; equal results or equal errors (then None)."""

        async def run(side: Side) -> tuple[T | None, type[StoreError] | None]:
            try:
                return await asyncio.wait_for(step(side), 20), None
            except StoreError as error:
                return None, type(error)

        said = [self.loop.run_until_complete(run(side)) for side in (self.memory, self.etcd)]
        assert said[0] == said[1]
        return said[0][0]

    @rule(txns=st.lists(any_txn, min_size=1, max_size=5))
    def change(self, txns: list[Txn]) -> None:
        for txn in txns:

            async def step(side: Side, txn: Txn = txn) -> TxnResult:
                return side.said_txn(await side.store.txn(side.txn(txn)))

            result = self.both(step)
            self.now = result.revision if result else self.now

    @rule(prefix=prefixes, after=st.one_of(st.just(""), names), limit=st.integers(0, 3))
    def read(self, prefix: str, after: str, limit: int) -> None:
        async def step(side: Side) -> object:
            start = side.base + after if after else ""
            return side.said_range(
                await side.store.range(side.base + prefix, after=start, limit=limit)
            )

        self.both(step)

    @rule(prefix=prefixes, offset=near)
    def read_the_past(self, prefix: str, offset: int) -> None:
        age = self.compacted + offset

        async def step(side: Side) -> object:
            found = await side.store.range(side.base + prefix, revision=side.revision(age))
            return side.said_range(found)

        self.both(step)

    @rule()
    def revoke(self) -> None:
        async def step(side: Side) -> None:
            await side.store.revoke(side.leases[1])
            await side.grant(1)

        async def current(side: Side) -> int:
            return (await side.store.txn(Txn())).revision - side.start

        self.both(step)
        self.now = self.both(current) or self.now

    @rule(back=near)
    def compact(self, back: int) -> None:
        age = self.now - back

        async def step(side: Side) -> bool:
            await side.store.compact(side.revision(age))
            return True

        if self.both(step):
            self.compacted = max(self.compacted, age)

    # Each takes etcd a tenth of a second.
    @precondition(lambda self: self.watched < 3)
    @rule(prefix=prefixes, offset=near)
    def watch(self, prefix: str, offset: int) -> None:
        """Everything from a past revision to a mark written now."""
        age = self.compacted + offset
        self.watched += 1

        async def step(side: Side) -> tuple[int, list[object]]:
            mark = Put(side.base + prefix + "~mark", b"")
            end = (await side.store.txn(Txn(then=(mark,)))).revision
            seen: list[object] = []
            stream = side.store.watch(side.base + prefix, min(side.revision(age), end))
            async with aclosing(stream) as batches:  # type: ignore[type-var]
                async for batch in batches:
                    assert batch.revision == batch.events[-1].mod_revision
                    seen += map(side.said_event, batch.events)
                    if batch.revision >= end:
                        break
            return end - side.start, seen

        self.both(step)
        self.now += 1

    def teardown(self) -> None:
        async def step(side: Side) -> object:
            return side.said_range(await side.store.range(side.base))

        try:
            self.both(step)
        finally:
            for side in (self.memory, self.etcd):
                self.loop.run_until_complete(side.store.close())
            self.loop.close()


@pytest.fixture(scope="module")
def server() -> Iterator[EtcdServer]:
    running = EtcdServer(require_binary())
    try:
        yield running.start()
    finally:
        running.stop()


def test_memory_and_etcd_agree(server: EtcdServer) -> None:
    Agreement.etcd_url = server.urls[0]
    run_state_machine_as_test(
        Agreement,
        settings=settings(
            max_examples=60,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
