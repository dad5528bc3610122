"""The projection: folded by revision, listed again, and never brought down by one bad record."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from broker.model.jobs import JobPhase
from broker.state import keys
from broker.state.backends.memory import MemoryStore
from broker.state.codec import RecordUnreadable, encode_attempt, encode_job
from broker.state.projection import Projection
from federation.kv import Delete, Put, Txn
from federation.system import SystemClock
from federation.wire import records as pb
from tests.unit.lifecycle.builders import JOB, a_job, an_attempt

SOUND = encode_job(a_job())


class Watched:
    """A store and the projection that follows it."""

    def __init__(self) -> None:
        self.store = MemoryStore(SystemClock())
        self.complaints: list[str] = []
        self.projection = Projection(self.store, self.complaints.append)

    async def put(self, key: str, value: bytes) -> int:
        return (await self.store.txn(Txn(then=(Put(key, value),)))).revision

    async def seen(self, revision: int) -> None:
        async with asyncio.timeout(5):
            while self.projection.revision < revision:
                await asyncio.sleep(0.005)


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    made = Watched()
    following = asyncio.create_task(made.projection.run())
    await made.projection.ready.wait()
    yield made
    assert not following.done(), "the projection gave up"
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


def broken(**fields: object) -> bytes:
    record = pb.JobRecord.FromString(SOUND)
    for name, value in fields.items():
        if name == "task_runs":
            record.task_runs.append(pb.Run(first=5, last=1))
        elif name == "outcome":
            record.outcome.kind = str(value)
        else:
            setattr(record, name, value)
    return record.SerializeToString()


@pytest.mark.parametrize(
    "value",
    [
        b"\xff\xff",
        broken(phase="dancing"),
        broken(outcome="exploded"),
        broken(task_runs=True),
        broken(job="j0000000000000009"),
    ],
)
async def test_a_job_record_that_makes_no_sense_is_named_and_left_out(
    watched: Watched, value: bytes
) -> None:
    await watched.put(keys.job(JOB), value)
    other = a_job(id="j0000000000000002")
    revision = await watched.put(keys.job(other.id), encode_job(other))
    await watched.seen(revision)
    assert watched.projection.job(JOB) is None
    assert [job.id for job in watched.projection.jobs()] == [other.id]
    assert keys.job(JOB) in watched.complaints[0]


@pytest.mark.parametrize(
    ("cluster", "uid"),
    [("us-east", f"{JOB}-x"), ("us-east", "nonsense"), ("elsewhere", f"{JOB}-1")],
)
async def test_an_attempt_that_lies_elsewhere_than_it_says_is_left_out(
    watched: Watched, cluster: str, uid: str
) -> None:
    await watched.put(keys.job(JOB), SOUND)
    attempt = an_attempt(a_job(), uid=uid)
    revision = await watched.put(keys.attempt(cluster, uid), encode_attempt(attempt))
    await watched.seen(revision)
    job = watched.projection.job(JOB)
    assert job is not None and job.attempts == () and len(watched.complaints) == 1


async def test_task_states_that_cannot_be_read_are_not_taken_for_unstarted(
    watched: Watched,
) -> None:
    await watched.put(keys.job(JOB), SOUND)
    await watched.seen(await watched.put(keys.task_chunk(JOB, 0), b"\xff\xff"))
    with pytest.raises(RecordUnreadable):
        watched.projection.job(JOB)


async def test_a_follower_hears_everything_from_the_call_on(watched: Watched) -> None:
    follower = watched.projection.follow()
    await watched.seen(await watched.put(keys.job(JOB), SOUND))
    async with asyncio.timeout(1):
        change = await anext(follower)
    assert change is not None and change.key == keys.job(JOB)
    await follower.aclose()


async def test_own_writes_and_the_watch_agree_whichever_comes_first(watched: Watched) -> None:
    key = keys.job(JOB)
    projection = watched.projection
    await watched.put(key, SOUND)
    ended = encode_job(a_job(phase=JobPhase.HELD))
    newer = await watched.put(key, ended)
    projection.fold_own(newer, [Put(key, ended)])
    projection.fold_own(newer - 1, [Put(key, SOUND)])  # an older answer that comes late
    await watched.seen(newer)
    job = projection.job(JOB)
    assert job is not None and job.phase is JobPhase.HELD
    gone = (await watched.store.txn(Txn(then=(Delete(key),)))).revision
    await watched.seen(gone)
    projection.fold_own(newer, [Put(key, ended)])
    assert projection.job(JOB) is None
    await watched.seen(await watched.put(key, SOUND))
    assert projection.job(JOB) is not None


async def test_lists_of_a_kind_do_not_look_at_the_others(watched: Watched) -> None:
    projection = watched.projection
    puts = [Put(keys.job(f"j{n:016d}"), b"") for n in range(30_000)]
    puts += [Put(keys.cluster(f"c{n:03d}"), b"") for n in range(200)]
    projection.fold_own(10_000_000, puts)
    assert [kv.key for kv in projection.under(keys.CLUSTERS)][:2] == [
        keys.cluster("c000"), keys.cluster("c001")
    ]
    assert len(projection.under(keys.JOBS + "j00000000000000")) == 100
    assert len(projection.under("/tradewind/v1/")) == 30_200
    began_s = time.perf_counter()
    for _ in range(100):
        projection.under(keys.CLUSTERS)
    clusters_s = time.perf_counter() - began_s
    began_s = time.perf_counter()
    projection.under("/tradewind/v1/")
    assert clusters_s < 5 * (time.perf_counter() - began_s)


async def test_nothing_is_kept_of_what_is_gone(watched: Watched) -> None:
    projection = watched.projection
    for n in range(5):
        job = a_job(id=f"j{n:016d}")
        ops = [
            Put(keys.job(job.id), encode_job(job)),
            Put(keys.task_chunk(job.id, 0), b""),
            Put(keys.attempt("us-east", f"{job.id}-1"), encode_attempt(an_attempt(job))),
        ]
        projection.fold_own(100 + 2 * n, ops)
        projection.jobs()
        projection.fold_own(101 + 2 * n, [Delete(op.key) for op in ops])
    kept = [
        projection._jobs, projection._attempts, projection._chunks, projection._listed,
        projection._values,
    ]
    assert not any(kept)
