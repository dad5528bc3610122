"""What every blob store does, whatever it is made of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.feedback.backends.directory_blobs import DirectoryBlobs
from broker.feedback.backends.memory import MemoryBlobs
from broker.feedback.ports import (
    BlobMismatch,
    BlobNotFound,
    BlobStat,
    BlobStore,
    BlobTooLarge,
    SweepResult,
)
from tests.unit.feedback.builders import NOW_MS, chunks_of, sha256_of

HELLO = b"hello, federation"
SHA = sha256_of(HELLO)


@pytest.fixture(params=["memory", "directory"])
async def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BlobStore]:
    made = MemoryBlobs() if request.param == "memory" else DirectoryBlobs(tmp_path / "blobs")
    yield made
    await made.close()


async def put(store: BlobStore, data: bytes, now_ms: int = NOW_MS) -> str:
    sha256 = sha256_of(data)
    await store.put(sha256, chunks_of(data), now_ms=now_ms)
    return sha256


async def content(store: BlobStore, sha256: str, offset: int = 0) -> bytes:
    return b"".join([chunk async for chunk in store.open(sha256, offset=offset)])


async def test_what_was_put_is_read_back(blobs: BlobStore) -> None:
    stat = await blobs.put(SHA, chunks_of(HELLO, 5), now_ms=NOW_MS)
    assert stat == BlobStat(SHA, len(HELLO), NOW_MS)
    assert await blobs.stat(SHA) == stat
    assert await content(blobs, SHA) == HELLO
    assert await content(blobs, SHA, offset=7) == HELLO[7:]
    assert await content(blobs, SHA, offset=10_000) == b""


async def test_the_empty_blob_is_a_blob(blobs: BlobStore) -> None:
    empty = await put(blobs, b"")
    assert await content(blobs, empty) == b""
    assert await blobs.stat(empty) == BlobStat(empty, 0, NOW_MS)


async def test_a_blob_of_many_steps(blobs: BlobStore) -> None:
    data = bytes(range(256)) * 14_000  # 3.4 MiB, not a whole number of steps
    sha256 = await put(blobs, data)
    assert await content(blobs, sha256) == data


async def test_other_content_than_promised_is_refused_and_not_kept(blobs: BlobStore) -> None:
    with pytest.raises(BlobMismatch) as refusal:
        await blobs.put(SHA, chunks_of(b"something else"), now_ms=NOW_MS)
    assert refusal.value.actual == sha256_of(b"something else")
    assert await blobs.stat(SHA) is None


async def test_wrong_content_does_not_harm_the_blob_already_there(blobs: BlobStore) -> None:
    await put(blobs, HELLO)
    with pytest.raises(BlobMismatch):
        await blobs.put(SHA, chunks_of(b"something else"), now_ms=NOW_MS + 1)
    assert await content(blobs, SHA) == HELLO
    assert await blobs.stat(SHA) == BlobStat(SHA, len(HELLO), NOW_MS)


async def test_the_size_limit_is_exact_and_stops_reading(blobs: BlobStore) -> None:
    await blobs.put(SHA, chunks_of(HELLO), now_ms=NOW_MS, max_bytes=len(HELLO))
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while True:
            taken += 1000
            yield b"x" * 1000

    with pytest.raises(BlobTooLarge):
        await blobs.put("0" * 64, endless(), now_ms=NOW_MS, max_bytes=10_000)
    assert taken == 11_000
    assert await blobs.stat("0" * 64) is None


async def test_an_upload_that_breaks_off_leaves_nothing(blobs: BlobStore) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield HELLO
        raise ConnectionResetError("client gone")

    with pytest.raises(ConnectionResetError):
        await blobs.put(SHA, broken(), now_ms=NOW_MS)
    assert await blobs.stat(SHA) is None


@pytest.mark.parametrize(
    "name", ["", "0" * 63, "0" * 65, "A" * 64, "../" * 21 + "a", "/" * 64, "0" * 63 + "\n"]
)
async def test_a_name_that_is_no_digest_reaches_no_disk(blobs: BlobStore, name: str) -> None:
    for call in (
        blobs.stat(name),
        blobs.exists([name]),
        blobs.grant(name, "acme"),
        blobs.may_read(name, "acme"),
        blobs.put(name, chunks_of(b""), now_ms=NOW_MS),
        content(blobs, name),
    ):
        with pytest.raises(ValueError, match="64 lower-case hex"):
            await call


async def test_a_missing_blob_is_said_to_be_missing(blobs: BlobStore) -> None:
    with pytest.raises(BlobNotFound):
        await content(blobs, SHA)
    with pytest.raises(BlobNotFound):
        await blobs.grant(SHA, "acme")
    assert await blobs.stat(SHA) is None
    assert not await blobs.may_read(SHA, "acme")


async def test_existence_of_many(blobs: BlobStore) -> None:
    other = await put(blobs, b"other")
    assert await blobs.exists([SHA, other]) == {other}
    assert await blobs.exists([]) == frozenset()


async def test_knowing_a_digest_opens_nothing(blobs: BlobStore) -> None:
    await put(blobs, HELLO)
    assert not await blobs.may_read(SHA, "acme")
    await blobs.grant(SHA, "acme")
    await blobs.grant(SHA, "acme")
    assert await blobs.may_read(SHA, "acme")
    assert not await blobs.may_read(SHA, "acm")
    assert not await blobs.may_read(SHA, "rival")
    other = await put(blobs, b"other")
    assert await blobs.readable([SHA, other, "0" * 64], "acme") == {SHA}


@pytest.mark.parametrize("tenant", ["", "..", "a/b", "A", "x" * 33, "a\x00"])
async def test_a_malformed_tenant_is_refused(blobs: BlobStore, tenant: str) -> None:
    await put(blobs, HELLO)
    for call in (blobs.grant(SHA, tenant), blobs.may_read(SHA, tenant)):
        with pytest.raises(ValueError, match="tenant"):
            await call


async def test_a_sweep_takes_what_is_old_and_unwanted(blobs: BlobStore) -> None:
    old, young = await put(blobs, b"old"), await put(blobs, b"young", NOW_MS + 10)
    kept = await put(blobs, b"kept")
    assert await blobs.sweep({kept}, older_than_ms=NOW_MS) == SweepResult(0, 0)
    assert await blobs.sweep({kept}, older_than_ms=NOW_MS + 10) == SweepResult(1, 3)
    assert await blobs.exists([old, young, kept]) == {young, kept}


async def test_putting_again_makes_a_blob_young(blobs: BlobStore) -> None:
    await put(blobs, HELLO)
    await put(blobs, HELLO, NOW_MS + 50)
    assert (await blobs.sweep(set(), older_than_ms=NOW_MS + 50)).blobs == 0


async def test_a_swept_blob_takes_its_grants_along(blobs: BlobStore) -> None:
    await put(blobs, HELLO)
    await blobs.grant(SHA, "acme")
    await blobs.sweep(set(), older_than_ms=NOW_MS + 1)
    await put(blobs, HELLO, NOW_MS + 2)  # by somebody else
    assert not await blobs.may_read(SHA, "acme")


async def test_the_same_blob_from_many_at_once(blobs: BlobStore) -> None:
    data = b"z" * 300_000
    await asyncio.gather(*(put(blobs, data) for _ in range(8)))
    assert await content(blobs, sha256_of(data)) == data
