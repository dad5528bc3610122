"""Blobs as files of one directory, which several brokers may share.

`blobs/<aa>/<sha256>` holds the bytes, `grants/<sha256>/<tenant>` an empty file for each tenant
that may read them, `incoming/` what is being uploaded. A file's modification time is when the
blob was last put. Only whole, verified, synced files ever get a name under `blobs/`.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import AsyncIterable, AsyncIterator, Callable, Collection, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

from broker.feedback.backends.durable_files import (
    locked,
    make_directory,
    sync_directory,
    write_all,
)
from broker.feedback.blobs import StreamCheck, check_sha256, check_tenant
from broker.feedback.ports import (
    MAX_BLOB_BYTES,
    BlobCorrupt,
    BlobNotFound,
    BlobStat,
    BlobStore,
    FeedbackUnavailable,
    SweepResult,
)

Answer = TypeVar("Answer")

_STEP_BYTES: Final = 1024 * 1024
"""Bytes gathered before a thread is asked to hash and write them."""

_THREADS: Final = 4
_NS_PER_MS: Final = 1_000_000


class DirectoryBlobs(BlobStore):
    """`BlobStore` in a directory. Construction touches the disk once, briefly."""

    def __init__(self, root: Path) -> None:
        """Raises `FeedbackUnavailable` if the directory cannot be made."""
        self._blobs = root / "blobs"
        self._grants = root / "grants"
        self._incoming = root / "incoming"
        self._lock = root / "lock"
        try:
            for path in (self._blobs, self._grants, self._incoming):
                make_directory(path)
        except OSError as error:
            raise FeedbackUnavailable(f"blobs: {error}") from error
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="blobs")

    async def put(
        self,
        sha256: str,
        chunks: AsyncIterable[bytes],
        *,
        now_ms: int,
        max_bytes: int = MAX_BLOB_BYTES,
    ) -> BlobStat:
        """See `BlobStore`."""
        upload = _Upload(self._incoming, StreamCheck(sha256, max_bytes))
        try:
            async for chunk in chunks:
                if upload.gather(chunk) >= _STEP_BYTES:
                    await self._run(upload.flush)
            return await self._run(self._finish, upload, now_ms)
        finally:
            # In a thread of its own accord: a cancelled caller may await nothing more.
            self._executor.submit(upload.discard)

    async def open(self, sha256: str, *, offset: int = 0) -> AsyncIterator[bytes]:
        """See `BlobStore`."""
        file = await self._run(self._open, sha256, offset)
        digest = hashlib.sha256() if offset == 0 else None
        try:
            while chunk := await self._run(_read_step, file, digest):
                yield chunk
        finally:
            file.close()
        if digest is not None and digest.hexdigest() != sha256:
            raise BlobCorrupt(sha256)

    async def stat(self, sha256: str) -> BlobStat | None:
        """See `BlobStore`."""
        return await self._run(self._stat, sha256)

    async def exists(self, sha256s: Collection[str]) -> frozenset[str]:
        """See `BlobStore`."""
        paths = [(sha256, self._path(sha256)) for sha256 in sha256s]
        return await self._run(lambda: frozenset(sha for sha, path in paths if path.is_file()))

    async def grant(self, sha256: str, tenant: str) -> None:
        """See `BlobStore`."""
        await self._run(self._grant, check_sha256(sha256), check_tenant(tenant))

    async def readable(self, sha256s: Collection[str], tenant: str) -> frozenset[str]:
        """See `BlobStore`."""
        check_tenant(tenant)
        paths = [(sha256, self._path(sha256), self._grants / sha256 / tenant) for sha256 in sha256s]
        return await self._run(
            lambda: frozenset(
                sha for sha, blob, grant in paths if grant.is_file() and blob.is_file()
            )
        )

    async def may_read(self, sha256: str, tenant: str) -> bool:
        """See `BlobStore`."""
        return sha256 in await self.readable((sha256,), tenant)

    async def sweep(self, keep: Set[str], *, older_than_ms: int) -> SweepResult:
        """See `BlobStore`."""
        return await self._run(self._sweep, frozenset(keep), older_than_ms)

    async def close(self) -> None:
        """See `BlobStore`."""
        await asyncio.to_thread(self._executor.shutdown)

    async def _run(self, call: Callable[..., Answer], *arguments: object) -> Answer:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._executor, call, *arguments)
        except OSError as error:
            raise FeedbackUnavailable(f"blobs: {error}") from error

    def _path(self, sha256: str) -> Path:
        return self._blobs / check_sha256(sha256)[:2] / sha256

    def _finish(self, upload: _Upload, now_ms: int) -> BlobStat:
        source = upload.seal(now_ms)
        if source is None:
            raise FeedbackUnavailable("blobs: the upload was given up")
        path = self._path(upload.check.sha256)
        make_directory(path.parent)
        # Also over a blob already here: that heals a damaged one, and a sweep sees a new age.
        with locked(self._lock):
            source.replace(path)
        sync_directory(path.parent)
        return BlobStat(upload.check.sha256, upload.check.size_bytes, now_ms)

    def _open(self, sha256: str, offset: int) -> BinaryIO:
        try:
            file = self._path(sha256).open("rb")
        except FileNotFoundError as error:
            raise BlobNotFound(sha256) from error
        file.seek(offset)
        return file

    def _stat(self, sha256: str) -> BlobStat | None:
        try:
            found = self._path(sha256).stat()
        except FileNotFoundError:
            return None
        return BlobStat(sha256, found.st_size, found.st_mtime_ns // _NS_PER_MS)

    def _grant(self, sha256: str, tenant: str) -> None:
        directory = self._grants / sha256
        # Under the lock, or a sweep could take the blob and leave a grant for whoever puts the
        # same content next.
        with locked(self._lock):
            if not self._path(sha256).is_file():
                raise BlobNotFound(sha256)
            make_directory(directory)
            (directory / tenant).touch(mode=0o600)
        sync_directory(directory)

    def _sweep(self, keep: frozenset[str], older_than_ms: int) -> SweepResult:
        blobs = size_bytes = 0
        for shard in self._blobs.iterdir():
            for path in shard.iterdir():
                if path.name not in keep:
                    freed = self._remove_if_old(path, older_than_ms)
                    blobs += freed is not None
                    size_bytes += freed or 0
        for path in self._incoming.iterdir():  # left by a crash
            with suppress(FileNotFoundError):  # or an upload that has just ended
                if path.stat().st_mtime_ns < older_than_ms * _NS_PER_MS:
                    path.unlink()
        return SweepResult(blobs, size_bytes)

    def _remove_if_old(self, path: Path, older_than_ms: int) -> int | None:
        """Bytes freed, or None if the blob is too young. Looks and removes under the lock, so a
        blob put again meanwhile is never taken away."""
        with locked(self._lock):
            try:
                found = path.stat()
            except FileNotFoundError:  # another broker's sweep
                return None
            if found.st_mtime_ns >= older_than_ms * _NS_PER_MS:
                return None
            # Grants first: one that outlived its blob would open the next upload to its reader.
            grants = self._grants / path.name
            if grants.is_dir():
                shutil.rmtree(grants)
            path.unlink()
        return found.st_size


class _Upload:
    """One upload on its way: gathered on the event loop, hashed and written in threads."""

    def __init__(self, directory: Path, check: StreamCheck) -> None:
        self.check = check
        self._directory = directory
        self._file: tuple[int, Path] | None = None
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._written_bytes = 0
        # A discard after a cancelled put may come while a step is still being written.
        self._busy = threading.Lock()
        self._discarded = False

    def gather(self, chunk: bytes) -> int:
        """Take a chunk; returns the bytes waiting for `flush`. Raises `BlobTooLarge`."""
        self.check.count(len(chunk))
        self._gathered.append(chunk)
        self._gathered_bytes += len(chunk)
        return self._gathered_bytes

    def flush(self) -> None:
        """Hash and write what was gathered; in a thread."""
        with self._busy:
            if not self._discarded:
                self._flush()

    def seal(self, now_ms: int) -> Path | None:
        """Flush, verify, date and sync; the file is then whole. None if it was discarded, its
        caller being cancelled. Raises `BlobMismatch`."""
        with self._busy:
            if self._discarded:
                return None
            descriptor, path = self._flush()
            self.check.finish()
            os.utime(descriptor, ns=(now_ms * _NS_PER_MS, now_ms * _NS_PER_MS))
            os.fsync(descriptor)
            return path

    def discard(self) -> None:
        """Close, and remove the file if it was not moved away."""
        with self._busy:
            self._discarded = True
            if self._file is not None:
                descriptor, path = self._file
                self._file = None
                os.close(descriptor)
                path.unlink(missing_ok=True)

    def _flush(self) -> tuple[int, Path]:
        if self._file is None:
            opened, name = tempfile.mkstemp(dir=self._directory)
            self._file = (opened, Path(name))
        data = b"".join(self._gathered)
        self._gathered.clear()
        self._gathered_bytes = 0
        self.check.digest(data)
        write_all(self._file[0], data, self._written_bytes)
        self._written_bytes += len(data)
        return self._file


def _read_step(file: BinaryIO, digest: hashlib._Hash | None) -> bytes:
    chunk = file.read(_STEP_BYTES)
    if digest is not None:
        digest.update(chunk)
    return chunk
