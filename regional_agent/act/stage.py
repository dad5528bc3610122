"""Staging: what a job needs is laid into its working directory before, and fetched out after.

Nothing is trusted: a blob counts only once its hash is right, also when it comes from the cache; a
path only if it stays inside the working directory. Whatever can be wrong with it is a `Refusal`;
the disk's own troubles (OSError) are turned into `disk_full` or `stage_failed`.
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
from regional_agent.act.blobs import BlobSink
from regional_agent.act.cache import Bad, BlobCache, Damaged, Got
from regional_agent.act.cache_value import Item
from regional_agent.act.keeper.layout import AttemptDir, attempts_dir
from regional_agent.act.matching import matching

LAY_TRIES = 3
WARM_SHARE = 4
"""What is fetched ahead for one job may take one part in so many of the cache, and of the disk."""
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


class Stager:
    """Working directories under `state`, laid from the cache."""

    def __init__(self, state: Path, cache: BlobCache) -> None:
        self._state = state
        self.cache = cache

    async def stage(self, request: StageRequest) -> Staged | Refusal:
        """Lay the working directory of an attempt. May be repeated; the last one stands, and
        once the keeper has taken the attempt on nothing is touched any more.

        Refuses unknown_blob, blob_corrupt, stage_failed, disk_full.
        """
        place = AttemptDir(self._state, request.uid)
        if place.order.exists():
            return Staged(0, 0)
        try:
            with self.cache.pinned(digests_of(request)):
                got = await self._laid(place, request)
            await self.cache.trim()
        except Bad as bad:
            return bad.refusal
        except unpack.UnsafeArchive as error:
            return _failed(request.uid, f"the workdir archive is not safe: {error}")
        except OSError as error:
            return _refusal_of(request.uid, error)
        return Staged(got.fetched_bytes, got.found_bytes)

    async def _laid(self, place: AttemptDir, request: StageRequest) -> Got:
        """Have all, then lay it; what turns out to be damaged in the cache is fetched again."""
        for _ in range(LAY_TRIES):
            got = await self.cache.have(digests_of(request))
            try:
                trees = await asyncio.to_thread(self._lay, place, request)
            except Damaged as damaged:
                await self.cache.drop(damaged)
                continue
            self.cache.keep(trees)
            return got
        raise Bad(_failed(request.uid, "what is fetched does not stay as it was"))

    async def warm(self, sha256: str, size_bytes: int) -> Staged | Refusal:
        """Have one blob here, for a job that may come. Refuses like `stage`, and disk_full where
        it would crowd out what is used."""
        try:
            with self.cache.pinned((sha256,)):
                free_bytes = shutil.disk_usage(self._state).free
                if size_bytes * WARM_SHARE > min(self.cache.limit_bytes, free_bytes):
                    return Refusal(RefusalCode.DISK_FULL, sha256, available="kept free for jobs")
                got = await self.cache.have((sha256,))
            await self.cache.trim()
        except Bad as bad:
            return bad.refusal
        except OSError as error:
            return _refusal_of(sha256, error)
        return Staged(got.fetched_bytes, got.found_bytes)

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

    # Laying -------------------------------------------------------------------------------

    def _lay(self, place: AttemptDir, request: StageRequest) -> list[Item]:
        """Build the directory beside its place, then move it there whole; archives that were
        left unpacked in the cache on the way."""
        place.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh, trees = place.root / "work.new", []
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        if request.workdir_sha256:
            tree = self.cache.lay_archive(request.workdir_sha256, fresh)
            trees += [tree] if tree else []
        for file in request.files:
            self._lay_file(fresh, file)
        shutil.rmtree(place.work, ignore_errors=True)
        os.rename(fresh, place.work)
        return trees

    def _lay_file(self, work: Path, file: StageFile) -> None:
        target = unpack.inside(work, file.path)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The archive may hold a link of that name, which would be written through.
        target.unlink(missing_ok=True)
        self.cache.lay_file(file.sha256, target, file.mode)


def digests_of(request: StageRequest) -> tuple[str, ...]:
    """Every blob a request needs, once."""
    wanted = [f.sha256 for f in request.files]
    wanted += [request.workdir_sha256] if request.workdir_sha256 else []
    return tuple(dict.fromkeys(wanted))


def _collect(work: Path, patterns: tuple[str, ...]) -> tuple[Collected, ...]:
    return tuple(_measure(path, file) for path, file in matching(work, patterns).items())


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


def _failed(uid: str, text: str) -> Refusal:
    return Refusal(RefusalCode.STAGE_FAILED, uid, available=text)


def _refusal_of(uid: str, error: OSError) -> Refusal:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Refusal(RefusalCode.DISK_FULL, uid, available=str(error))
    return _failed(uid, str(error))
