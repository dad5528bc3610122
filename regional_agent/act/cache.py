"""The cache of a site: blobs by content, and archives unpacked once they are used again.

It opens to nobody who merely knows a digest: what is asked of it comes from a spec whose digest
stands in a ticket of the broker, which looked whether the tenant may read it. It is bounded;
what goes first is what is cheapest to have again (`cache_value`). What is being used is pinned.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import secrets
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from weakref import WeakValueDictionary

from federation.environment import Clock
from federation.refusals import Refusal, RefusalCode
from federation.task_group import TaskGroup
from regional_agent.act import unpack
from regional_agent.act.blobs import BlobSource, BlobUnavailable, BlobUnknown
from regional_agent.act.cache_index import PLACES, CacheIndex
from regional_agent.act.cache_value import Item, Kind, Pace, pace_of, victims
from regional_agent.act.copying import copy_file, copy_tree, file_digest, remove_tree

MAX_BLOB_BYTES = 64 * 2**20
FETCHES_AT_ONCE = 8
FETCHES_REMEMBERED = 100
DEFAULT_BYTES = 10 * 2**30


class Bad(Exception):
    """Carries a refusal out of the depth of staging."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal


class Damaged(Exception):
    """What lies in the cache is not what it should be, or is gone."""

    def __init__(self, kind: Kind, sha256: str) -> None:
        super().__init__(f"{kind} {sha256}")
        self.key = kind, sha256


@dataclass(frozen=True, slots=True)
class Got:
    """How many bytes came over the network, and how many were here already."""

    fetched_bytes: int = 0
    found_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Inventory:
    """What is in the cache: the largest items, and how much in all."""

    items: tuple[Item, ...]
    total_items: int
    total_bytes: int
    limit_bytes: int
    fetch_bytes_per_s: int


class BlobCache:
    """Blobs under `state/blobs`, unpacked archives under `state/archives`, at most `limit_bytes`
    in all, but for what is being used."""

    def __init__(
        self, state: Path, source: BlobSource, clock: Clock, limit_bytes: int = DEFAULT_BYTES
    ) -> None:
        self._state = state
        self._source = source
        self._clock = clock
        self._limit_bytes = limit_bytes
        self._index = CacheIndex(state)
        self._items: dict[tuple[Kind, str], Item] = {}
        self._fetches: deque[tuple[int, int]] = deque(maxlen=FETCHES_REMEMBERED)
        self._pinned: Counter[str] = Counter()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._lanes = asyncio.Semaphore(FETCHES_AT_ONCE)
        self._opening: asyncio.Lock = asyncio.Lock()
        self._is_open = False
        self._turn = 0
        self._changed = asyncio.Event()

    # Reading --------------------------------------------------------------------------------

    @property
    def pace(self) -> Pace:
        """How fast fetches went lately."""
        return pace_of(self._fetches)

    @property
    def limit_bytes(self) -> int:
        """The bound."""
        return self._limit_bytes

    async def inventory(self, items_max: int) -> Inventory:
        """What is there now, by size. Raises OSError."""
        await self._open()
        by_size = sorted(self._items.values(), key=lambda i: (-i.size_bytes, i.sha256))
        return Inventory(
            items=tuple(by_size[:items_max]),
            total_items=len(by_size),
            total_bytes=sum(item.size_bytes for item in by_size),
            limit_bytes=self._limit_bytes,
            fetch_bytes_per_s=round(self.pace.measured_bytes_per_s),
        )

    async def changed(self) -> None:
        """Returns when something came or went since the last call."""
        await self._changed.wait()
        self._changed.clear()

    # Having ---------------------------------------------------------------------------------

    @contextlib.contextmanager
    def pinned(self, digests: Iterable[str]) -> Iterator[None]:
        """Nothing of these is removed meanwhile."""
        held = tuple(digests)
        self._pinned.update(held)
        try:
            yield
        finally:
            self._pinned.subtract(held)
            self._pinned += Counter()  # forget those that stand at zero

    async def have(self, digests: Iterable[str]) -> Got:
        """See that these blobs are here. Raises Bad, OSError."""
        await self._open()
        wanted = tuple(dict.fromkeys(digests))
        try:
            async with TaskGroup() as tasks:
                fetching = [tasks.create_task(self._have(sha256)) for sha256 in wanted]
        except ExceptionGroup as failed:
            first = failed.exceptions[0]
            raise first from first.__cause__
        got = [task.result() for task in fetching]
        return Got(sum(g.fetched_bytes for g in got), sum(g.found_bytes for g in got))

    async def trim(self) -> None:
        """Bring the cache within its bounds."""
        excess = sum(item.size_bytes for item in self._items.values()) - self._limit_bytes
        out = victims(
            self._items.values(), excess, self._clock.now_ms(), self.pace, self._pinned
        )
        await self._remove(out)

    async def drop(self, damaged: Damaged) -> None:
        """Remove what was found to be damaged."""
        item = self._items.get(damaged.key)
        await self._remove((item,) if item else ())

    def keep(self, trees: Iterable[Item]) -> None:
        """Take in what `lay_archive` left unpacked."""
        for item in trees:
            self._add(item)

    async def close(self) -> None:
        """Close the index."""
        await asyncio.to_thread(self._index.close)

    # Laying: in a thread, with what is laid pinned ------------------------------------------

    def lay_file(self, sha256: str, target: Path, mode: int) -> None:
        """Copy a blob to a path where nothing is. Raises Damaged, OSError."""
        path = self._path(Kind.BLOB, sha256)
        if not path.exists() or copy_file(path, target, mode) != sha256:
            raise Damaged(Kind.BLOB, sha256)

    def lay_archive(self, sha256: str, target: Path) -> Item | None:
        """Unpack an archive into an empty directory. From its second use on it is kept unpacked
        beside: the item to `keep`, if that was done now.

        Raises Damaged, UnsafeArchive, OSError."""
        tree = self._items.get((Kind.ARCHIVE, sha256))
        if tree is not None:
            kept = self._path(Kind.ARCHIVE, sha256)
            if not kept.exists() or copy_tree(kept, target) != tree.tree_sha256:
                raise Damaged(Kind.ARCHIVE, sha256)
            return None
        path, blob = self._path(Kind.BLOB, sha256), self._items.get((Kind.BLOB, sha256))
        if blob is None or not path.exists() or file_digest(path) != sha256:
            raise Damaged(Kind.BLOB, sha256)
        if blob.uses > 1:
            return self._unpack_beside(sha256, path, target)
        unpack.unpack(path, target)
        return None

    def _unpack_beside(self, sha256: str, archive: Path, target: Path) -> Item | None:
        fresh = self._path(Kind.ARCHIVE, f"{sha256}.{secrets.token_hex(4)}")
        began_s = self._clock.monotonic_s()
        try:
            fresh.mkdir(mode=0o700)
            size_bytes = unpack.unpack(archive, fresh)
            took_ms = self._ms_since(began_s)
            tree = copy_tree(fresh, target)
            os.rename(fresh, self._path(Kind.ARCHIVE, sha256))
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            return None  # another attempt of the same moment was first
        finally:
            remove_tree(fresh)
        return Item(Kind.ARCHIVE, sha256, size_bytes, took_ms, 0, tree_sha256=tree)

    # Inside ---------------------------------------------------------------------------------

    async def _open(self) -> None:
        async with self._opening:
            if self._is_open:
                return
            for item in await asyncio.to_thread(self._index.open):
                self._turn += 1
                self._items[item.key] = replace(item, turn=self._turn)
                if item.kind is Kind.BLOB and item.cost_ms:
                    self._fetches.append((item.size_bytes, item.cost_ms))
            self._is_open = True
        await self.trim()

    async def _have(self, sha256: str) -> Got:
        if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
            raise Bad(Refusal(RefusalCode.BLOB_CORRUPT, sha256[:64], needed="a sha256"))
        lock = self._locks.get(sha256)
        if lock is None:
            lock = self._locks[sha256] = asyncio.Lock()
        async with lock:
            if (Kind.BLOB, sha256) in self._items:
                self._touch(Kind.ARCHIVE, sha256)
                return Got(0, self._touch(Kind.BLOB, sha256))
            async with self._lanes:
                began_s = self._clock.monotonic_s()
                size_bytes = await self._fetch(sha256)
            took_ms = max(self._ms_since(began_s), 1)
            self._fetches.append((size_bytes, took_ms))
            self._add(Item(Kind.BLOB, sha256, size_bytes, took_ms, 0))
            return Got(size_bytes, 0)

    async def _fetch(self, sha256: str) -> int:
        path = self._path(Kind.BLOB, sha256)
        part = path.with_suffix(".part")
        digest, size_bytes = hashlib.sha256(), 0
        try:
            with open(part, "wb", opener=_private) as file:
                async for chunk in self._source.fetch(sha256):
                    size_bytes += len(chunk)
                    if size_bytes > MAX_BLOB_BYTES:
                        raise _corrupt(sha256, f"more than {MAX_BLOB_BYTES} bytes")
                    digest.update(chunk)
                    file.write(chunk)
            if digest.hexdigest() != sha256:
                raise _corrupt(sha256, f"bytes that hash to {digest.hexdigest()}")
            os.rename(part, path)
        except BlobUnknown as error:
            raise Bad(Refusal(RefusalCode.UNKNOWN_BLOB, sha256, available=str(error))) from error
        except BlobUnavailable as error:
            raise Bad(Refusal(RefusalCode.STAGE_FAILED, sha256, available=str(error))) from error
        finally:
            part.unlink(missing_ok=True)
        return size_bytes

    def _add(self, item: Item) -> None:
        self._turn += 1
        item = replace(item, used_ms=self._clock.now_ms(), turn=self._turn)
        self._items[item.key] = item
        self._index.put((item,))
        self._changed.set()

    def _touch(self, kind: Kind, sha256: str) -> int:
        """Used now; returns its size, 0 for what is not here."""
        old = self._items.get((kind, sha256))
        if old is None:
            return 0
        self._turn += 1
        now_ms = self._clock.now_ms()
        item = replace(old, used_ms=now_ms, uses=old.uses + 1, turn=self._turn)
        self._items[item.key] = item
        self._index.put((item,))
        return item.size_bytes

    async def _remove(self, items: Iterable[Item]) -> None:
        """Gone at once, so that a fetch of the same that begins now is not undone."""
        gone, trash = tuple(items), []
        for item in gone:
            del self._items[item.key]
            path = self._path(item.kind, item.sha256)
            if item.kind is Kind.BLOB:
                path.unlink(missing_ok=True)
            else:
                trash.append(path.with_name(f"{path.name}.{secrets.token_hex(4)}"))
                with contextlib.suppress(FileNotFoundError):
                    path.rename(trash[-1])
        if gone:
            self._index.forget(item.key for item in gone)
            self._changed.set()
        for path in trash:
            await asyncio.to_thread(remove_tree, path)

    def _path(self, kind: Kind, name: str) -> Path:
        return self._state / PLACES[kind] / name

    def _ms_since(self, began_s: float) -> int:
        return round((self._clock.monotonic_s() - began_s) * 1000)


def _corrupt(sha256: str, found: str) -> Bad:
    return Bad(Refusal(RefusalCode.BLOB_CORRUPT, sha256, available=found))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
