"""`txn_once` on a store that loses answers: before or after it applied, at once or much later."""

import asyncio
from collections.abc import Iterator

import pytest

from broker.state.backends.memory import MemoryStore
from federation.kv import (
    Absent,
    AmbiguousCommit,
    Get,
    KeyValue,
    ModRevisionIs,
    Put,
    SpaceExhausted,
    StoreUnavailable,
    Txn,
    TxnResult,
)
from federation.once import txn_once
from tests.conformance.test_store_memory import SetClock

PROBE = Put("probe", b"nonce")
TXN = Txn((Absent("probe"), Absent("veto")), (PROBE, Put("work", b"")), (Get("work"),))


class LossyStore:
    """A memory store that does with each transaction what its script says.

    "ok": answers; "applied", "dropped": the answer is lost after or instead of applying it;
    "late": it is applied when the next one has been; "refused": unavailable; "full": applied
    and refused for space; "other": as dropped, and someone else takes the probe key.
    """

    def __init__(self, *script: str) -> None:
        self.memory = MemoryStore(SetClock())
        self._script: Iterator[str] = iter(script)
        self._late: list[Txn] = []

    async def get(self, key: str) -> KeyValue | None:
        return await self.memory.get(key)

    async def txn(self, txn: Txn) -> TxnResult:
        fate = next(self._script)
        if fate == "refused":
            raise StoreUnavailable("refused")
        if fate == "late":
            self._late.append(txn)
        elif fate == "other":
            await self.memory.txn(Txn(then=(Put("probe", b"theirs"),)))
        elif fate != "dropped":
            result = await self.memory.txn(txn)
            for late in self._late:
                await self.memory.txn(late)
            if fate == "ok":
                return result
            if fate == "full":
                raise SpaceExhausted("full")
        raise AmbiguousCommit(fate)


@pytest.mark.parametrize(
    "script",
    [
        ("ok",),
        ("applied", "ok"),
        ("dropped", "ok"),
        ("late", "ok"),
        ("late", "applied", "late", "refused", "ok"),
        ("applied", "refused", "dropped", "ok"),
        ("full",),
        ("dropped", "full"),
    ],
    ids=" ".join,
)
async def test_it_is_applied_once_and_known(script: tuple[str, ...]) -> None:
    store = LossyStore(*script)
    once = await txn_once(store, TXN, PROBE)
    work = await store.get("work")
    assert once.succeeded
    assert work is not None
    assert (work.version, work.mod_revision) == (1, once.revision)
    assert (once.results is not None) == (script in {("ok",), ("dropped", "ok"), ("late", "ok")})


@pytest.mark.parametrize("script", [("ok",), ("dropped", "ok"), ("dropped", "refused", "ok")])
async def test_a_failed_compare_is_no(script: tuple[str, ...]) -> None:
    store = LossyStore(*script)
    await store.memory.txn(Txn(then=(Put("veto", b""),)))
    once = await txn_once(store, TXN, PROBE)
    assert not once.succeeded
    assert once.results is not None
    assert len(once.results) == 1
    assert await store.get("work") is None


async def test_someone_elses_probe_is_no() -> None:
    assert not (await txn_once(LossyStore("other", "ok"), TXN, PROBE)).succeeded


async def test_a_rewritten_probe_stays_uncertain() -> None:
    """Ours may have been there before theirs."""
    with pytest.raises(AmbiguousCommit):
        await txn_once(LossyStore("applied", "other", "ok"), TXN, PROBE)


async def test_the_guard_may_be_a_revision() -> None:
    store = LossyStore("applied", "ok")
    before = await store.memory.txn(Txn(then=(Put("probe", b"old"),)))
    txn = Txn((ModRevisionIs("probe", before.revision),), (PROBE,))
    once = await txn_once(store, txn, PROBE)
    assert (once.succeeded, once.revision) == (True, before.revision + 1)


async def test_a_stale_revision_is_no_and_a_moved_one_uncertain() -> None:
    txn = Txn((ModRevisionIs("probe", 99),), (PROBE,))
    assert not (await txn_once(LossyStore("ok"), txn, PROBE)).succeeded
    store = LossyStore("other", "ok")
    before = await store.memory.txn(Txn(then=(Put("probe", b"old"),)))
    guarded = Txn((ModRevisionIs("probe", before.revision),), (PROBE,))
    with pytest.raises(AmbiguousCommit):
        await txn_once(store, guarded, PROBE)


async def test_unavailable_passes_only_while_nothing_was_sent() -> None:
    with pytest.raises(StoreUnavailable):
        await txn_once(LossyStore("refused"), TXN, PROBE)
    with pytest.raises(AmbiguousCommit):
        await txn_once(LossyStore("dropped", *["refused"] * 9), TXN, PROBE, patience_s=0.25)


async def test_full_and_not_applied_is_full() -> None:
    store = LossyStore("full")
    await store.memory.txn(Txn(then=(Put("veto", b""),)))
    with pytest.raises(SpaceExhausted):
        await txn_once(store, TXN, PROBE)


def test_without_a_guard_it_is_refused() -> None:
    async def run(txn: Txn) -> None:
        await txn_once(LossyStore(), txn, PROBE)

    for txn in (
        Txn(then=(PROBE,)),
        Txn((Absent("other"),), (PROBE,)),
        Txn((Absent("probe"),), (Put("probe", b"another"),)),
    ):
        with pytest.raises(ValueError, match="not guarded"):
            asyncio.run(run(txn))
