"""Taking jobs on when the store is slow to say, says nothing, or says no."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from broker.control.submission import (
    BatchTooLarge,
    IdempotencyConflict,
    OutcomeUnknown,
    Request,
    Shell,
    Submissions,
)
from broker.control.viewing import Viewer
from broker.feedback.backends.memory import MemoryBlobs, MemoryLedger
from broker.state import keys
from broker.state.backends.memory import MemoryStore
from broker.state.group_commit import GroupCommitter
from broker.state.projection import Projection
from federation.ids import JobId, make_job_id
from federation.kv import AmbiguousCommit, KeyValue, StoreUnavailable, Txn, TxnResult
from federation.system import SystemClock

HELLO = {"run": "echo hello"}


@dataclass
class CountingIds:
    """Ids in a row, so that two sources may draw the same."""

    n: int = 0

    def job_id(self, now_ms: int) -> JobId:
        self.n += 1
        return make_job_id(1_800_000_000_000, self.n)

    def token_bytes(self, n: int) -> bytes:
        return bytes(n)


class MacKey:
    @property
    def mac_key(self) -> tuple[str, bytes]:
        return "k1", b"m" * 32


class ScriptedStore(MemoryStore):
    """The memory store, whose answers to writes may be lost or refused in turn."""

    script: list[str]

    async def txn(self, txn: Txn) -> TxnResult:
        step = self.script.pop(0) if self.script else "fine"
        if step == "away":
            raise StoreUnavailable("no leader")
        if step == "lost":
            raise AmbiguousCommit("the request got lost")
        result = await super().txn(txn)
        if step == "silent":
            raise AmbiguousCommit("the answer got lost")
        return result


@dataclass
class Bench:
    store: ScriptedStore
    projection: Projection
    submissions: Submissions
    ids: CountingIds = field(default_factory=CountingIds)

    def jobs(self) -> int:
        return len(self.projection.job_ids())

    async def stored(self, job: str) -> KeyValue | None:
        return await self.store.get(keys.job(job))


def bench(store: ScriptedStore | None = None, ids_from: int = 0) -> Bench:
    clock, ids = SystemClock(), CountingIds(ids_from)
    if store is None:
        store = ScriptedStore(clock)
        store.script = []
    projection = Projection(store, on_unreadable=lambda text: None)
    shell = Shell(
        store, (GroupCommitter(store),), projection, MacKey(), MemoryBlobs(), clock, ids,
        MemoryLedger().job, 0.001,
    )
    return Bench(store, projection, Submissions(shell), ids)


def request(key: str = "", body: bytes = b"1") -> Request:
    return Request(Viewer("ada", ("default",)), body, key)


@pytest.mark.parametrize("jobs", [1, 3, 200])
@pytest.mark.parametrize("key", ["", "k"])
@pytest.mark.parametrize("script", [["silent"], ["lost"], ["lost", "silent", "away"]])
async def test_an_uncertain_commit_makes_each_job_once(
    jobs: int, key: str, script: list[str]
) -> None:
    it = bench()
    it.store.script = list(script)
    taken = await it.submissions.submit([HELLO] * jobs, request(key))
    assert len(taken.ids) == jobs == it.jobs() and not taken.replayed
    page = await it.store.range(keys.JOBS)
    assert {keys.last_part(kv.key) for kv in page.kvs} == set(taken.ids)
    specs = await it.store.range(keys.SPECS)
    assert len(specs.kvs) == jobs


async def test_a_store_that_is_away_takes_nothing_on() -> None:
    it = bench()
    it.store.script = ["away"]
    with pytest.raises(StoreUnavailable) as refused:
        await it.submissions.submit([HELLO], request("k"))
    assert not isinstance(refused.value, OutcomeUnknown)
    assert (await it.store.range(keys.ROOT)).kvs == () and it.jobs() == 0


async def test_a_fate_nobody_knows_is_said_and_a_repeat_finds_the_job() -> None:
    it = bench()
    it.store.script = ["silent", "away", "away", "away", "away"]
    with pytest.raises(OutcomeUnknown):
        await it.submissions.submit([HELLO], request("k"))
    it.store.script = []
    again = await it.submissions.submit([HELLO], request("k"))
    assert again.replayed and await it.stored(again.ids[0]) is not None
    assert len((await it.store.range(keys.JOBS)).kvs) == 1


async def test_a_repeat_after_a_crash_finds_the_job_through_the_store_alone() -> None:
    first = bench()
    taken = await first.submissions.submit([HELLO] * 3, request("k"))
    # Another replica, whose projection is empty.
    second = bench(first.store, ids_from=1000)
    again = await second.submissions.submit([HELLO] * 3, request("k"))
    assert again.replayed and again.ids == taken.ids
    with pytest.raises(IdempotencyConflict):
        await second.submissions.submit([HELLO], request("k", b"other"))


async def test_an_id_that_is_taken_is_drawn_anew() -> None:
    first = bench()
    taken = await first.submissions.submit([HELLO], request())
    second = bench(first.store)  # its ids begin again at the first
    again = await second.submissions.submit([{"run": "echo other"}], request())
    assert again.ids != taken.ids and not again.replayed
    assert len((await first.store.range(keys.JOBS)).kvs) == 2


async def test_a_job_changed_by_the_leader_is_not_folded_back() -> None:
    """The answer got lost, the leader placed the job, then the repeat reads its own spec."""
    it = bench()
    it.store.script = ["silent"]
    follow = asyncio.create_task(it.projection.run())
    await it.projection.ready.wait()
    taken = await it.submissions.submit([HELLO], request())
    kv = await it.stored(taken.ids[0])
    assert kv is not None and it.projection.mod_revision(kv.key) == kv.mod_revision
    follow.cancel()


async def test_two_at_once_under_one_key_make_one() -> None:
    it = bench()
    results = await asyncio.gather(
        *(it.submissions.submit([HELLO] * n, request("k")) for n in (1, 1, 1, 1))
    )
    assert len({r.ids for r in results}) == 1 and it.jobs() == 1
    assert [r.replayed for r in results].count(False) == 1


async def test_a_batch_beyond_one_transaction_is_refused_whole() -> None:
    it = bench()
    large = {"run": "x" * 60_000}
    with pytest.raises(BatchTooLarge, match="smaller batches"):
        await it.submissions.submit([large] * 30, request())
    assert it.jobs() == 0 and (await it.store.range(keys.ROOT)).kvs == ()


async def test_a_thousand_jobs_of_a_kilobyte_fit() -> None:
    it = bench()
    kilobyte = {"run": "x" * 900, "name": "n" * 40}
    taken = await it.submissions.submit([kilobyte] * 1000, request("k"))
    assert len(set(taken.ids)) == 1000 == it.jobs()


async def test_old_replays_are_forgotten() -> None:
    it = bench()
    await it.submissions.submit([HELLO], request("k"))
    now_ms = SystemClock().now_ms()
    assert await it.submissions.forget_replays(now_ms - 86_400_000) == 0
    assert await it.submissions.forget_replays(now_ms + 1) == 1
    assert (await it.store.range(keys.IDEMPOTENCY)).kvs == ()
