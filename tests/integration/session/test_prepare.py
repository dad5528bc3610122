"""Fetching ahead over a real session: what it saves, and what a ticket for it is not good for."""

import asyncio

from broker.act import gateway as gw
from broker.lifecycle import events as ev
from broker.model.jobs import OutcomeKind
from federation.ids import prepare_uid
from federation.jobs import canonical_bytes, parse_job_spec
from tests.integration.session.federation_site import lines, running

JOB = "j0000000000000007"
MIB = 2**20


def spec(broker, data: bytes, **more) -> dict:
    sha = broker.blob(data)
    return {
        "run": "wc -c < data",
        "files": [{"path": "data", "sha256": sha, "bytes": len(data)}],
        **more,
    }


def prepare(broker, job: dict, **in_ticket) -> gw.Prepare:
    raw = canonical_bytes(parse_job_spec(job))
    uid = prepare_uid(JOB)
    return gw.Prepare(uid, broker.ticket(uid, raw, "eu", **in_ticket), raw)


async def holding(broker, *shas: str) -> gw.CacheArrived:
    await broker.until(
        lambda: broker.caches and set(shas) <= set(broker.caches[-1].cache.blobs),
        "the cache report",
    )
    return broker.caches[-1]


async def test_what_was_prepared_is_not_fetched_when_the_job_comes(broker, state):
    broker.admit("eu", state)
    job = spec(broker, b"x" * (3 * MIB))
    (sha,) = broker.blobs
    async with running(state):
        opened = await broker.connected("eu")
        assert "prepare" in opened.capabilities
        await broker.send(prepare(broker, job))
        told = await holding(broker, sha)
        assert told.cache.blobs == {sha: 3 * MIB}
        assert (told.cache.total_items, told.cache.total_bytes) == (1, 3 * MIB)
        assert told.cache.limit_bytes == 10 * 2**30 and told.cache.fetch_bytes_per_s > 0
        assert broker.fetched == [(f"{JOB}-0", sha)]
        assert not broker.events, "nothing is said of what is no attempt"
        await broker.run(f"{JOB}-1", job)
        ready = await broker.event(f"{JOB}-1", ev.Prepared)
        assert (ready.fetched_bytes, ready.cached_bytes) == (0, 3 * MIB)
        ended = await broker.event(f"{JOB}-1", ev.Ended)
        assert ended.outcome.kind is OutcomeKind.SUCCEEDED
        assert len(broker.fetched) == 1


async def test_a_job_that_comes_while_it_is_prepared_waits_for_the_same_bytes(broker, state):
    broker.admit("eu", state)
    job = spec(broker, b"y" * MIB)
    broker.blobs_open.clear()
    async with running(state):
        await broker.connected("eu")
        await broker.send(prepare(broker, job))
        async with asyncio.timeout(10):
            while not broker.fetched:
                await asyncio.sleep(0.02)
        await broker.run(f"{JOB}-1", job)
        await broker.event(f"{JOB}-1", ev.Accepted)
        await asyncio.sleep(0.3)
        broker.blobs_open.set()
        ready = await broker.event(f"{JOB}-1", ev.Prepared)
        assert (ready.fetched_bytes, ready.cached_bytes) == (0, MIB)
        assert len(broker.fetched) == 1


async def test_a_ticket_to_prepare_starts_nothing(broker, state, tmp_path):
    broker.admit("eu", state)
    mark = tmp_path / "ran"
    job = spec(broker, b"z", run=f"echo ran >> {mark}")
    raw = canonical_bytes(parse_job_spec(job))
    async with running(state):
        await broker.connected("eu")
        uid = prepare_uid(JOB)
        command = broker.dispatch(uid, job)
        assert command.spec == raw
        await broker.send(command)
        await broker.run(f"{JOB}-1", job)
        await broker.event(f"{JOB}-1", ev.Ended)
        assert lines(mark) == ["ran"] and not broker.events[uid]
        assert not (state / "attempts" / uid).exists()


async def test_one_that_cannot_be_had_harms_nobody(broker, state):
    broker.admit("eu", state)
    job = spec(broker, b"w" * 100)
    broker.blobs.clear()
    async with running(state):
        await broker.connected("eu")
        await broker.send(prepare(broker, job), prepare(broker, job, epoch=0))
        await broker.run("j8-1", {"run": "true"})
        ended = await broker.event("j8-1", ev.Ended)
        assert ended.outcome.kind is OutcomeKind.SUCCEEDED
        assert broker.caches[-1].cache.total_items == 0
