"""Staging: what a job needs is laid into its working directory before, and fetched out after.

Nothing from the network is trusted: a blob counts only once its hash is right, a path only if it
stays inside the working directory. Whatever can be wrong with it is a `Refusal`; the disk's own
troubles (OSError) are turned into `disk_full` or `stage_failed`.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import shutil
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from federation.refusals import Refusal, RefusalCode
from regional_agent.act import unpack
from regional_agent.act.blobs import BlobSink, BlobSource, BlobUnavailable, BlobUnknown
from regional_agent.act.keeper.layout import AttemptDir, attempts_dir

MAX_BLOB_BYTES = 64 * 2**20
MAX_OUTPUT_FILES = 10_000
HASH_CHUNK_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class StageFile:
    """One file: its path relative to the working directory, what it holds, and its mode."""

    path: str
    sha256: str
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class StageRequest:
    """`workdir_sha256` names a tar archive, gzipped or not; empty = an empty directory."""

    uid: str
    workdir_sha256: str = ""
    files: tuple[StageFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Staged:
    """How many bytes came over the network, and how many were here already."""

    fetched_bytes: int
    cached_bytes: int


@dataclass(frozen=True, slots=True)
class Collected:
    """A file of the working directory that matches `outputs`; `path` is relative to it."""

    path: str
    file: Path
    sha256: str
    size_bytes: int
    mode: int


class _Bad(Exception):
    """Carries the refusal out of the depth of staging."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal


class Stager:
    """Working directories under `state`; blobs kept in `state/blobs` up to `cache_bytes`."""

    def __init__(self, state: Path, source: BlobSource, cache_bytes: int = 10 * 2**30) -> None:
        self._state = state
        self._source = source
        self._cache = state / "blobs"
        self._cache_bytes = cache_bytes
        self._fetching: dict[str, asyncio.Lock] = {}

    async def stage(self, request: StageRequest) -> Staged | Refusal:
        """Lay the working directory of an attempt. May be repeated; the last one stands, and
        once the keeper has taken the attempt on nothing is touched any more.

        Refuses unknown_blob, blob_corrupt, stage_failed, disk_full.
        """
        place = AttemptDir(self._state, request.uid)
        if place.order.exists():
            return Staged(0, 0)
        try:
            wanted = [f.sha256 for f in request.files]
            wanted += [request.workdir_sha256] if request.workdir_sha256 else []
            sizes = [await self._have(sha256) for sha256 in dict.fromkeys(wanted)]
            await asyncio.to_thread(self._lay, place, request)
            await asyncio.to_thread(self._trim, frozenset(wanted))
        except _Bad as bad:
            return bad.refusal
        except unpack.UnsafeArchive as error:
            return _failed(request.uid, f"the workdir archive is not safe: {error}")
        except OSError as error:
            return _refusal_of(request.uid, error)
        return Staged(sum(f for f, _ in sizes), sum(c for _, c in sizes))

    async def collect(self, uid: str, patterns: Collection[str]) -> tuple[Collected, ...]:
        """Files of the working directory that match any pattern (`*`, `**`; a directory means
        all in it), sorted by path. Links and what lies outside are left out.

        Raises ValueError for a pattern that leads out, or for too many files."""
        work = AttemptDir(self._state, uid).work
        return await asyncio.to_thread(_collect, work, tuple(patterns))

    async def upload(self, files: Iterable[Collected], sink: BlobSink) -> None:
        """Put every file into the sink. Raises BlobUnavailable; may then be repeated."""
        for entry in files:
            await sink.put(entry.sha256, entry.file, entry.size_bytes)

    async def remove(self, uid: str) -> None:
        """Remove what was staged for an attempt that will not run; its logs go as well."""
        root = AttemptDir(self._state, uid).root
        await asyncio.to_thread(shutil.rmtree, root, ignore_errors=True)

    async def sweep(self, keep: Collection[str]) -> tuple[str, ...]:
        """Remove directories of attempts not in `keep` that the keeper never took on.

        Those it did take on go through the scheduler's `forget`.
        """
        return await asyncio.to_thread(_sweep, self._state, frozenset(keep))

    # Blobs --------------------------------------------------------------------------------

    async def _have(self, sha256: str) -> tuple[int, int]:
        """Bytes fetched and bytes found, after which the blob is in the cache."""
        if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
            raise _Bad(Refusal(RefusalCode.BLOB_CORRUPT, sha256[:64], needed="a sha256"))
        path = self._cache / sha256
        async with self._fetching.setdefault(sha256, asyncio.Lock()):
            if path.exists():
                os.utime(path)
                return 0, path.stat().st_size
            return await self._fetch(sha256, path), 0

    async def _fetch(self, sha256: str, path: Path) -> int:
        self._cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        digest = hashlib.sha256()
        size = 0
        try:
            with open(part, "wb", opener=_private) as file:
                async for chunk in self._source.fetch(sha256):
                    size += len(chunk)
                    if size > MAX_BLOB_BYTES:
                        raise _corrupt(sha256, f"more than {MAX_BLOB_BYTES} bytes")
                    digest.update(chunk)
                    file.write(chunk)
            if digest.hexdigest() != sha256:
                raise _corrupt(sha256, f"bytes that hash to {digest.hexdigest()}")
            os.rename(part, path)
        except BlobUnknown as error:
            raise _Bad(Refusal(RefusalCode.UNKNOWN_BLOB, sha256, available=str(error))) from error
        except BlobUnavailable as error:
            raise _Bad(Refusal(RefusalCode.STAGE_FAILED, sha256, available=str(error))) from error
        finally:
            part.unlink(missing_ok=True)
        return size

    def _trim(self, keep: frozenset[str]) -> None:
        """Remove the blobs used longest ago until the cache is within its bounds."""
        if not self._cache.exists():
            return
        blobs = sorted(
            (entry.stat().st_mtime, entry.stat().st_size, entry.name)
            for entry in os.scandir(self._cache)
        )
        excess = sum(size for _, size, _ in blobs) - self._cache_bytes
        for _, size, name in blobs:
            if excess <= 0:
                return
            if name not in keep and name not in self._fetching_now():
                (self._cache / name).unlink(missing_ok=True)
                excess -= size

    def _fetching_now(self) -> set[str]:
        return {sha256 for sha256, lock in self._fetching.items() if lock.locked()}

    # Laying -------------------------------------------------------------------------------

    def _lay(self, place: AttemptDir, request: StageRequest) -> None:
        """Build the directory beside its place, then move it there whole."""
        place.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = place.root / "work.new"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        if request.workdir_sha256:
            unpack.unpack(self._cache / request.workdir_sha256, fresh)
        for file in request.files:
            self._lay_file(fresh, file)
        shutil.rmtree(place.work, ignore_errors=True)
        os.rename(fresh, place.work)

    def _lay_file(self, work: Path, file: StageFile) -> None:
        target = unpack.inside(work, file.path)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The archive may hold a link of that name, which would be written through.
        target.unlink(missing_ok=True)
        shutil.copyfile(self._cache / file.sha256, target)
        target.chmod(file.mode & 0o777)


def _collect(work: Path, patterns: tuple[str, ...]) -> tuple[Collected, ...]:
    found: dict[str, Path] = {}
    for pattern in patterns:
        unpack.check_relative(pattern)
        for match in work.glob(pattern):
            for file in _files_under(match):
                found[str(file.relative_to(work))] = file
    if len(found) > MAX_OUTPUT_FILES:
        raise ValueError(f"{len(found)} files match outputs; at most {MAX_OUTPUT_FILES}")
    inside = work.resolve()
    return tuple(
        _measure(path, file)
        for path, file in sorted(found.items())
        if file.resolve().is_relative_to(inside)
    )


def _files_under(path: Path) -> list[Path]:
    if path.is_symlink():
        return []
    if path.is_file():
        return [path]
    return [
        Path(top) / name
        for top, _, names in os.walk(path)
        for name in names
        if (Path(top) / name).is_file() and not (Path(top) / name).is_symlink()
    ]


def _measure(path: str, file: Path) -> Collected:
    digest = hashlib.sha256()
    size = 0
    with file.open("rb") as data:
        while chunk := data.read(HASH_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return Collected(path, file, digest.hexdigest(), size, file.stat().st_mode & 0o777)


def _sweep(state: Path, keep: frozenset[str]) -> tuple[str, ...]:
    removed = []
    top = attempts_dir(state)
    for name in sorted(os.listdir(top)) if top.exists() else []:
        if name not in keep and not AttemptDir(state, name).order.exists():
            shutil.rmtree(top / name, ignore_errors=True)
            removed.append(name)
    return tuple(removed)


def _corrupt(sha256: str, found: str) -> _Bad:
    return _Bad(Refusal(RefusalCode.BLOB_CORRUPT, sha256, available=found))


def _failed(uid: str, text: str) -> Refusal:
    return Refusal(RefusalCode.STAGE_FAILED, uid, available=text)


def _refusal_of(uid: str, error: OSError) -> Refusal:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Refusal(RefusalCode.DISK_FULL, uid, available=str(error))
    return _failed(uid, str(error))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
