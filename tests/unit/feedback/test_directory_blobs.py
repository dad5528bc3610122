from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.feedback.backends.directory_blobs import DirectoryBlobs
from broker.feedback.ports import BlobCorrupt, FeedbackUnavailable
from tests.unit.feedback.builders import NOW_MS, chunks_of, sha256_of

HELLO = b"hello, federation"
SHA = sha256_of(HELLO)


def files(root: Path) -> list[str]:
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())


async def content(store: DirectoryBlobs, sha256: str) -> bytes:
    return b"".join([chunk async for chunk in store.open(sha256)])


async def test_blobs_and_grants_outlive_the_process(tmp_path: Path) -> None:
    store = DirectoryBlobs(tmp_path)
    await store.put(SHA, chunks_of(HELLO), now_ms=NOW_MS)
    await store.grant(SHA, "acme")
    await store.close()
    again = DirectoryBlobs(tmp_path)
    assert await content(again, SHA) == HELLO
    assert await again.may_read(SHA, "acme")
    assert not await again.may_read(SHA, "rival")
    stat = await again.stat(SHA)
    assert stat is not None and stat.stored_ms == NOW_MS
    await again.close()


async def test_nobody_else_on_the_machine_may_look(tmp_path: Path) -> None:
    store = DirectoryBlobs(tmp_path / "data")
    await store.put(SHA, chunks_of(HELLO), now_ms=NOW_MS)
    await store.grant(SHA, "acme")
    for path in (tmp_path / "data").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
    await store.close()


async def test_a_cancelled_upload_leaves_no_file(tmp_path: Path) -> None:
    store = DirectoryBlobs(tmp_path)
    arrived = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"x" * 2_000_000
        arrived.set()
        await asyncio.sleep(60)
        yield b""

    task = asyncio.create_task(store.put(SHA, slow(), now_ms=NOW_MS))
    await arrived.wait()
    assert files(tmp_path / "incoming")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await store.close()
    assert files(tmp_path) == []


async def test_uploads_broken_by_a_crash_are_swept(tmp_path: Path) -> None:
    store = DirectoryBlobs(tmp_path)
    (tmp_path / "incoming" / "tmpdead").write_bytes(b"half")
    await store.sweep(set(), older_than_ms=1)
    assert files(tmp_path / "incoming") == ["tmpdead"]
    await store.sweep(set(), older_than_ms=2**45)
    assert files(tmp_path / "incoming") == []
    await store.close()


async def test_damage_on_disk_is_noticed_and_healed_by_the_next_upload(tmp_path: Path) -> None:
    store = DirectoryBlobs(tmp_path)
    await store.put(SHA, chunks_of(HELLO), now_ms=NOW_MS)
    (tmp_path / "blobs" / SHA[:2] / SHA).write_bytes(b"hello, federatioN")
    with pytest.raises(BlobCorrupt):
        await content(store, SHA)
    await store.put(SHA, chunks_of(HELLO), now_ms=NOW_MS)
    assert await content(store, SHA) == HELLO
    await store.close()


async def test_a_reader_finishes_although_the_blob_is_swept(tmp_path: Path) -> None:
    data = b"y" * 3_000_000
    store = DirectoryBlobs(tmp_path)
    await store.put(sha256_of(data), chunks_of(data), now_ms=NOW_MS)
    reading = store.open(sha256_of(data))
    first = await anext(reading)
    assert (await store.sweep(set(), older_than_ms=NOW_MS + 1)).blobs == 1
    rest = b"".join([chunk async for chunk in reading])
    assert first + rest == data
    await store.close()


async def test_two_brokers_share_a_directory(tmp_path: Path) -> None:
    first, second = DirectoryBlobs(tmp_path), DirectoryBlobs(tmp_path)
    await first.put(SHA, chunks_of(HELLO), now_ms=NOW_MS)
    await second.grant(SHA, "acme")
    assert await first.may_read(SHA, "acme")
    swept = await asyncio.gather(
        first.sweep(set(), older_than_ms=NOW_MS + 1), second.sweep(set(), older_than_ms=NOW_MS + 1)
    )
    assert sum(result.blobs for result in swept) == 1
    await first.close()
    await second.close()


async def test_sweeps_and_uploads_at_once_never_lose_an_acknowledged_blob(
    tmp_path: Path,
) -> None:
    store = DirectoryBlobs(tmp_path)
    for turn in range(40):
        await store.put(SHA, chunks_of(HELLO), now_ms=NOW_MS)
        await asyncio.gather(
            store.sweep(set(), older_than_ms=NOW_MS + 1),
            store.put(SHA, chunks_of(HELLO), now_ms=NOW_MS + 1),
        )
        assert await content(store, SHA) == HELLO, turn
    await store.close()


async def test_a_place_that_cannot_be_written_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FeedbackUnavailable):
        DirectoryBlobs(tmp_path / "file" / "blobs")
    store = DirectoryBlobs(tmp_path / "data")
    (tmp_path / "data" / "incoming").rmdir()
    with pytest.raises(FeedbackUnavailable):
        await store.put(SHA, chunks_of(HELLO), now_ms=NOW_MS)
    await store.close()
