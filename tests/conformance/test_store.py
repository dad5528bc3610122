"""One suite for every backend of the store: memory and a real etcd must agree."""

import pytest

from broker.state.store import Store
from federation.kv import (
    OPS_PER_TXN_MAX,
    REQUEST_BYTES_MAX,
    Absent,
    Compare,
    Delete,
    DeletePrefix,
    Get,
    InvalidRequest,
    KeyValue,
    LeaseNotFound,
    ModRevisionIs,
    Present,
    Put,
    RequestTooLarge,
    Txn,
    ValueIs,
)
from tests.store_steps import do, value


class TestKeys:
    async def test_an_absent_key_is_none(self, store: Store, base: str) -> None:
        assert await store.get(base + "no") is None

    async def test_versions_and_revisions_count(self, store: Store, base: str) -> None:
        key = base + "k"
        first = await do(store, Put(key, b"1"))
        assert await store.get(key) == KeyValue(key, b"1", first, first, 1)
        second = await do(store, Put(key, b""))
        assert second == first + 1
        assert await store.get(key) == KeyValue(key, b"", first, second, 2)
        await do(store, Delete(key))
        again = await do(store, Put(key, b"3"))
        assert again == first + 3
        assert await store.get(key) == KeyValue(key, b"3", again, again, 1)

    async def test_a_key_may_be_any_text(self, store: Store, base: str) -> None:
        key = base + "Zürich 東京\x01"
        await do(store, Put(key, bytes(range(256))))
        assert await value(store, key) == bytes(range(256))
        assert [kv.key for kv in (await store.range(base + "Zü")).kvs] == [key]

    async def test_an_empty_key_is_refused(self, store: Store) -> None:
        with pytest.raises(InvalidRequest):
            await store.get("")
        for txn in (Txn(then=(Put("", b""),)), Txn(compare=(Absent(""),))):
            with pytest.raises(InvalidRequest):
                await store.txn(txn)


class TestRange:
    async def test_keys_come_in_order_and_of_the_prefix_only(
        self, store: Store, base: str
    ) -> None:
        names = ["b", "a/2", "a/10", "a0", "a", "a/"]
        revision = await do(store, *(Put(base + name, name.encode()) for name in names))
        found = await store.range(base + "a/")
        assert [kv.key for kv in found.kvs] == [base + "a/", base + "a/10", base + "a/2"]
        assert (found.revision, found.more) == (revision, False)

    async def test_pages_join_without_gap(self, store: Store, base: str) -> None:
        names = [f"{base}{i:02}" for i in range(7)]
        await do(store, *(Put(name, b"") for name in names), Put(base[:-1] + "0", b""))
        seen: list[str] = []
        more, after = True, ""
        while more:
            page = await store.range(base, after=after, limit=3)
            seen += [kv.key for kv in page.kvs]
            more, after = page.more, seen[-1]
        assert seen == names
        exact = await store.range(base, after=names[3], limit=3)
        assert ([kv.key for kv in exact.kvs], exact.more) == (names[4:], False)
        assert (await store.range(base, after=names[-1])).kvs == ()
        assert len((await store.range(base, after="")).kvs) == 7

    async def test_after_a_key_before_the_prefix_is_the_whole_prefix(
        self, store: Store, base: str
    ) -> None:
        await do(store, Put(base + "a", b""))
        assert len((await store.range(base, after="!")).kvs) == 1

    async def test_the_past_can_be_read(self, store: Store, base: str) -> None:
        first = await do(store, Put(base + "a", b"1"), Put(base + "b", b"1"))
        second = await do(store, Put(base + "a", b"2"), Delete(base + "b"))
        past = await store.range(base, revision=first)
        assert [(kv.key, kv.value) for kv in past.kvs] == [
            (base + "a", b"1"),
            (base + "b", b"1"),
        ]
        assert past.revision == first
        now = await store.range(base, revision=second)
        assert [(kv.key, kv.value) for kv in now.kvs] == [(base + "a", b"2")]
        assert (await store.range(base, revision=first - 1)).kvs == ()

    async def test_more_keys_than_one_answer_carries(self, store: Store, base: str) -> None:
        count = 5300
        names = [f"{base}{i:05}" for i in range(count)]
        for start in range(0, count, OPS_PER_TXN_MAX):
            await do(store, *(Put(n, b"") for n in names[start : start + OPS_PER_TXN_MAX]))
        assert [kv.key for kv in (await store.range(base)).kvs] == names
        most = await store.range(base, limit=5100)
        assert (len(most.kvs), most.more) == (5100, True)

    async def test_the_future_is_refused(self, store: Store, base: str) -> None:
        now = await do(store, Put(base + "a", b""))
        with pytest.raises(InvalidRequest):
            await store.range(base, revision=now + 1000)


class TestTxn:
    @pytest.mark.parametrize("there", [True, False])
    async def test_compares(self, store: Store, base: str, there: bool) -> None:
        key = base + "k"
        revision = await do(store, Put(key, b"v"))
        if not there:
            await do(store, Delete(key))
        expected: list[tuple[Compare, bool]] = [
            (Absent(key), not there),
            (Present(key), there),
            (ModRevisionIs(key, revision), there),
            (ModRevisionIs(key, 0), not there),
            (ModRevisionIs(key, revision + 1), False),
            (ValueIs(key, b"v"), there),
            (ValueIs(key, b""), False),
        ]
        for compare, holds in expected:
            assert (await store.txn(Txn((compare,)))).succeeded is holds, compare
        both = Txn((expected[0][0], expected[1][0]))
        assert not (await store.txn(both)).succeeded

    async def test_the_other_branch_runs(self, store: Store, base: str) -> None:
        await do(store, Put(base + "k", b"1"))
        txn = Txn((Absent(base + "k"),), (Put(base + "k", b"2"),), (Get(base + "k"),))
        result = await store.txn(txn)
        assert not result.succeeded
        assert result.results[0].kv is not None
        assert result.results[0].kv.value == b"1"

    async def test_a_get_sees_the_writes_before_it(self, store: Store, base: str) -> None:
        key = base + "k"
        result = await store.txn(Txn(then=(Get(key), Put(key, b"1"), Get(key))))
        assert result.results[0].kv is None
        assert result.results[2].kv == KeyValue(key, b"1", result.revision, result.revision, 1)

    async def test_reading_and_deleting_nothing_make_no_revision(
        self, store: Store, base: str
    ) -> None:
        before = await do(store, Put(base + "k", b""))
        for txn in (
            Txn(then=(Get(base + "k"),)),
            Txn(then=(Delete(base + "no"), DeletePrefix(base + "no"))),
            Txn((Absent(base + "k"),), (Put(base + "k", b""),)),
            Txn(),
        ):
            assert (await store.txn(txn)).revision == before

    async def test_deletes_count(self, store: Store, base: str) -> None:
        await do(store, *(Put(base + name, b"") for name in ("a", "a/1", "a/2", "b")))
        result = await store.txn(Txn(then=(DeletePrefix(base + "a/"), Delete(base + "b"))))
        assert [each.deleted for each in result.results] == [2, 1]
        assert [kv.key for kv in (await store.range(base)).kvs] == [base + "a"]

    async def test_overlapping_deletes_count_once(self, store: Store, base: str) -> None:
        await do(store, Put(base + "a", b""), Put(base + "ab", b""))
        result = await store.txn(Txn(then=(Delete(base + "a"), DeletePrefix(base + "a"))))
        assert [each.deleted for each in result.results] == [1, 1]


class TestNested:
    async def test_one_failed_item_fails_alone(self, store: Store, base: str) -> None:
        await do(store, Put(base + "1", b"old"))
        items = [
            Txn((Absent(f"{base}{i}"),), (Put(f"{base}{i}", b"new"),), (Get(f"{base}{i}"),))
            for i in range(3)
        ]
        result = await store.txn(Txn(then=tuple(items)))
        inner = [each.txn for each in result.results]
        assert [each.succeeded for each in inner if each] == [True, False, True]
        assert {each.revision for each in inner if each} == {result.revision}
        assert inner[1] is not None
        assert inner[1].results[0].kv is not None
        assert inner[1].results[0].kv.value == b"old"
        values = [kv.value for kv in (await store.range(base)).kvs]
        assert values == [b"new", b"old", b"new"]

    async def test_compares_are_judged_before_anything_is_written(
        self, store: Store, base: str
    ) -> None:
        inner = Txn((Absent(base + "a"),), (Put(base + "b", b"a was absent"),))
        deep = Txn(then=(Txn((Present(base + "a"),), (Put(base + "c", b""),)),))
        result = await store.txn(Txn(then=(Put(base + "a", b""), inner, deep)))
        assert result.results[1].txn is not None
        assert result.results[1].txn.succeeded
        assert await value(store, base + "b") == b"a was absent"
        assert await value(store, base + "c") is None

    async def test_nothing_in_it_is_fine(self, store: Store, base: str) -> None:
        result = await store.txn(Txn(then=(Txn(), Txn((Present(base + "no"),)), Txn())))
        assert [each.txn and each.txn.succeeded for each in result.results] == [
            True,
            False,
            True,
        ]

    async def test_a_refused_txn_leaves_nothing(self, store: Store, base: str) -> None:
        bad_lease = Put(base + "b", b"", lease=12345)
        with pytest.raises(LeaseNotFound):
            await store.txn(Txn(then=(Put(base + "a", b""), Txn(then=(bad_lease,)))))
        assert (await store.range(base)).kvs == ()
        # A lease named in the branch not taken does not matter.
        assert (await store.txn(Txn((Absent(base + "a"),), (), (bad_lease,)))).succeeded


def puts(base: str, count: int) -> tuple[Put, ...]:
    return tuple(Put(f"{base}{i}", b"") for i in range(count))


def groups(base: str, outer: int, inner: int, compares: int = 0) -> Txn:
    """`outer` nested transactions of `inner` puts each."""
    return Txn(
        tuple(Absent(f"{base}c{i}") for i in range(compares)),
        tuple(Txn(then=puts(f"{base}{i}/", inner)) for i in range(outer)),
    )


class TestLimits:
    async def test_operations(self, store: Store, base: str) -> None:
        most = OPS_PER_TXN_MAX
        for txn in (
            Txn(then=puts(base, most)),
            Txn(tuple(Absent(f"{base}z{i}") for i in range(most)), puts(base, most)),
            groups(base, 64, 64),
            groups(base, 127, 1),
            groups(base, most, 0),
            groups(base, 2, 28, compares=100),
        ):
            await store.txn(txn)
        for txn in (
            Txn(then=puts(base, most + 1)),
            Txn(orelse=puts(base, most + 1)),
            Txn(tuple(Absent(f"{base}z{i}") for i in range(most + 1))),
            groups(base, 126, 3),
            groups(base, most, 1),
            groups(base, 2, 29, compares=100),
            Txn(then=(Txn(then=(groups(base, 63, 64),)),)),
        ):
            with pytest.raises(RequestTooLarge):
                await store.txn(txn)

    async def test_bytes(self, store: Store, base: str) -> None:
        # Room for tags, lengths and the key: 40 bytes or so.
        await do(store, Put(base + "k", bytes(REQUEST_BYTES_MAX - 100)))
        with pytest.raises(RequestTooLarge):
            await do(store, Put(base + "k", bytes(REQUEST_BYTES_MAX)))

    async def test_bytes_to_the_last_one(self, store: Store, base: str) -> None:
        """Both backends draw the line at the same byte, whatever the operations."""

        def txn(fill: int) -> Txn:
            compare = (
                Absent(base + "x"),
                Present(base + "k"),
                ModRevisionIs(base + "k", 300),
                ValueIs(base + "k", b"x" * 200),
            )
            inner = Txn(compare, (Get(base + "ü"),), (Delete(base + "d"),))
            ops = (Put(base + "k", bytes(fill), 99), Put(base + "e", b""))
            return Txn(then=(*ops, inner, DeletePrefix(base + "p"), DeletePrefix(base + "q")))

        low, high = REQUEST_BYTES_MAX - 1500, REQUEST_BYTES_MAX
        while high - low > 1:
            fill = (low + high) // 2
            try:
                await store.txn(txn(fill))
            except RequestTooLarge:
                high = fill
            except LeaseNotFound:
                low = fill
        overhead = REQUEST_BYTES_MAX - low
        # base is 34 characters; measured on the message etcd is sent.
        assert overhead == 710

    async def test_one_key_written_twice(self, store: Store, base: str) -> None:
        key = base + "k"
        put = Put(key, b"")
        for ops in (
            (put, put),
            (put, Delete(key)),
            (DeletePrefix(base), put),
            (Txn(then=(put,)), Txn(then=(put,))),
            (Txn(then=(put,)), Txn(orelse=(put,))),
            (Txn(then=(put,)), put),
            (Txn(then=(put,)), Delete(key)),
            (Txn(then=(Delete(key),)), Txn(then=(put,))),
            (Txn(then=(Txn(then=(DeletePrefix(base),)),)), put),
        ):
            with pytest.raises(InvalidRequest):
                await store.txn(Txn(then=ops))
            with pytest.raises(InvalidRequest):
                await store.txn(Txn(orelse=ops))
        assert await store.get(key) is None

    async def test_what_is_not_twice(self, store: Store, base: str) -> None:
        put = Put(base + "k", b"")
        await do(store, Txn((Absent(base + "k"),), (put,), (put,)))
        await store.txn(Txn((), (put,), (put,)))
        # A blind spot of etcd that everyone shares: the later of two nested ones deletes.
        await do(store, Txn(then=(put,)), Txn(then=(Delete(base + "k"),)))
        assert await store.get(base + "k") is None
