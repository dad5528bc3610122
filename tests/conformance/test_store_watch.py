"""Watches, compaction and leases: the same for every backend of the store."""

import asyncio
import time

import pytest

from broker.state.store import Store
from federation.kv import (
    Compacted,
    Delete,
    InvalidRequest,
    KeyValue,
    LeaseNotFound,
    Put,
)
from tests.store_steps import collect, do, flat, value


class TestWatch:
    async def test_from_the_past_everything_once_in_order(
        self, store: Store, base: str
    ) -> None:
        first = await do(store, Put(base + "a", b"1"))
        await do(store, Put(base[:-1] + "0", b"not under the prefix"))
        await do(store, Put(base + "a", b"2"), Put(base + "b", b""))
        last = await do(store, Delete(base + "a"))
        events = flat(await collect(store, base, first, 4))
        told = [(e.key, e.kv.value if e.kv else None, e.mod_revision) for e in events]
        assert told == [
            (base + "a", b"1", first),
            (base + "a", b"2", first + 2),
            (base + "b", b"", first + 2),
            (base + "a", None, last),
        ]
        assert events[1].kv == KeyValue(base + "a", b"2", first, first + 2, 2)
        later = flat(await collect(store, base, first + 2, 3))
        assert later == events[1:]

    async def test_a_revision_is_one_batch(self, store: Store, base: str) -> None:
        start = await do(store, Put(base + "x", b"")) + 1
        watching = asyncio.create_task(collect(store, base, start, 300))
        await asyncio.sleep(0.3)
        for round_ in range(3):
            await do(store, *(Put(f"{base}{i}", b"%d" % round_) for i in range(100)))
        batches = await watching
        assert [(b.revision - start, len(b.events)) for b in batches] == [
            (0, 100),
            (1, 100),
            (2, 100),
        ]

    async def test_a_revision_larger_than_a_message(self, store: Store, base: str) -> None:
        """4 MB to catch up with: etcd sends it in parts that break inside a revision."""
        start = await do(store, Put(base + "x", b"")) + 1
        for _ in range(3):
            await do(store, *(Put(f"{base}{i}", bytes(14_000)) for i in range(100)))
        batches = await collect(store, base, start, 300)
        assert len(flat(batches)) == 300
        assert all(b.revision == b.events[-1].mod_revision for b in batches)
        per_batch = [{event.mod_revision for event in batch.events} for batch in batches]
        assert sum(map(len, per_batch)) == 3, "a revision lies in two batches"

    async def test_catching_up_over_thousands_of_revisions(
        self, store: Store, base: str
    ) -> None:
        start = await do(store, Put(base + "k", b"first"))
        for _ in range(40):
            await asyncio.gather(*(do(store, Put(base + "k", b"")) for _ in range(64)))
        batches = await collect(store, base, start, 1 + 40 * 64)
        revisions = [event.mod_revision for event in flat(batches)]
        assert revisions == list(range(start, start + 1 + 40 * 64))
        ends = [batch.revision for batch in batches]
        assert ends == [batch.events[-1].mod_revision for batch in batches]

    async def test_from_the_future(self, store: Store, base: str) -> None:
        now = await do(store, Put(base + "k", b"0"))
        watching = asyncio.create_task(collect(store, base, now + 3, 1))
        await asyncio.sleep(0.2)
        for number in range(1, 4):
            await do(store, Put(base + "k", b"%d" % number))
        events = flat(await watching)
        assert [(e.kv.value if e.kv else None) for e in events] == [b"3"]

    async def test_two_watchers_see_the_same(self, store: Store, base: str) -> None:
        start = await do(store, Put(base + "k", b"0"))
        first, second = await asyncio.gather(
            collect(store, base, start, 1), collect(store, base, start, 1)
        )
        assert flat(first) == flat(second)

    async def test_revision_zero_is_refused(self, store: Store, base: str) -> None:
        with pytest.raises(InvalidRequest):
            await collect(store, base, 0, 1)


class TestCompaction:
    async def test_reading(self, store: Store, base: str) -> None:
        revisions = [await do(store, Put(base + "k", b"%d" % i)) for i in range(3)]
        await store.compact(revisions[1])
        with pytest.raises(Compacted):
            await store.range(base, revision=revisions[0])
        assert (await store.range(base, revision=revisions[1])).kvs[0].value == b"1"
        assert await value(store, base + "k") == b"2"

    async def test_again_and_older_is_nothing(self, store: Store, base: str) -> None:
        now = await do(store, Put(base + "k", b""))
        for revision in (now, now, now - 1, 1):
            await store.compact(revision)

    async def test_the_future_is_refused(self, store: Store, base: str) -> None:
        now = await do(store, Put(base + "k", b""))
        with pytest.raises(InvalidRequest):
            await store.compact(now + 1000)

    async def test_a_watch_from_what_is_gone(self, store: Store, base: str) -> None:
        first = await do(store, Put(base + "a", b""))
        last = await do(store, Put(base + "a", b"2"), Put(base + "b", b""))
        await store.compact(last)
        with pytest.raises(Compacted) as caught:
            await collect(store, base, first, 1)
        assert caught.value.revision == last

    async def test_a_watch_from_the_compacted_revision_itself(
        self, store: Store, base: str
    ) -> None:
        """The deletion made there is forgotten: silence would be a lost event."""
        await do(store, Put(base + "a", b""))
        deleted = await do(store, Delete(base + "a"))
        await store.compact(deleted)
        with pytest.raises(Compacted):
            await collect(store, base, deleted, 1)
        after = await do(store, Put(base + "a", b"new"))
        events = flat(await collect(store, base, deleted + 1, 1))
        assert [event.mod_revision for event in events] == [after]

    async def test_a_key_deleted_before_stays_gone(self, store: Store, base: str) -> None:
        await do(store, Put(base + "a", b""), Put(base + "b", b""))
        deleted = await do(store, Delete(base + "a"))
        await do(store, Put(base + "b", b"2"))
        await store.compact(deleted)
        assert [kv.key for kv in (await store.range(base, revision=deleted)).kvs] == [
            base + "b"
        ]
        again = await do(store, Put(base + "a", b"2"))
        assert await store.get(base + "a") == KeyValue(base + "a", b"2", again, again, 1)


class TestLeases:
    async def test_revoking_deletes_in_one_revision(self, store: Store, base: str) -> None:
        lease = await store.grant(60)
        written = await do(
            store,
            Put(base + "b", b"", lease),
            Put(base + "a", b"", lease),
            Put(base + "c", b""),
        )
        kv = await store.get(base + "a")
        assert kv is not None
        assert kv.lease == lease
        await store.revoke(lease)
        batches = await collect(store, base, written + 1, 2)
        assert [(e.key, e.kv, e.mod_revision) for e in flat(batches)] == [
            (base + "a", None, written + 1),
            (base + "b", None, written + 1),
        ]
        assert [kv.key for kv in (await store.range(base)).kvs] == [base + "c"]

    async def test_a_put_without_the_lease_frees_the_key(self, store: Store, base: str) -> None:
        lease, other = await store.grant(60), await store.grant(60)
        await do(store, *(Put(base + name, b"", lease) for name in "abcd"))
        await do(store, Put(base + "a", b"2"), Put(base + "b", b"2", other), Delete(base + "c"))
        await do(store, Put(base + "c", b"2"))
        await store.revoke(lease)
        assert [kv.key[-1] for kv in (await store.range(base)).kvs] == ["a", "b", "c"]

    async def test_an_unknown_lease(self, store: Store, base: str) -> None:
        lease = await store.grant(60)
        await store.revoke(lease)
        with pytest.raises(LeaseNotFound):
            await store.keep(lease)
        with pytest.raises(LeaseNotFound):
            await store.revoke(lease)
        with pytest.raises(LeaseNotFound):
            await do(store, Put(base + "k", b"", lease))

    async def test_a_lease_without_time_is_refused(self, store: Store) -> None:
        with pytest.raises(InvalidRequest):
            await store.grant(0)

    async def test_expiry_is_a_revision(self, store: Store, base: str) -> None:
        dying, kept = await store.grant(2), await store.grant(2)
        written = await do(store, Put(base + "a", b"", dying), Put(base + "b", b"", kept))
        gone = asyncio.create_task(collect(store, base, written + 1, 1))
        begun = time.monotonic()
        while not gone.done():
            assert await store.keep(kept) == 2
            await asyncio.wait([gone], timeout=0.5)
        assert 1.5 < time.monotonic() - begun < 6
        assert [(e.key, e.kv) for e in flat(gone.result())] == [(base + "a", None)]
        assert await store.get(base + "b") is not None
        with pytest.raises(LeaseNotFound):
            await store.keep(dying)
        await store.revoke(kept)
