"""A key-value map with every version since the last compaction, as etcd keeps it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence

from federation.kv import Compacted, InvalidRequest, KeyValue, WatchBatch, WatchEvent

# etcd catches a watcher up by at most this many revisions in one answer.
REVISIONS_PER_BATCH_MAX = 1000

# One version of a key: the revision that made it, and the value or None where it was deleted.
_Version = tuple[int, KeyValue | None]


class History:
    """Keys by revision. Writes are pending until `commit`, yet `latest` sees them."""

    def __init__(self) -> None:
        self.revision = 1
        self.compacted = 0
        self._versions: dict[str, list[_Version]] = {}
        self._index: list[str] = []
        self._log: list[WatchBatch] = []
        self._pending: list[WatchEvent] = []

    # Reading ----------------------------------------------------------------------------------

    def latest(self, key: str) -> KeyValue | None:
        """The key now, pending writes included."""
        versions = self._versions.get(key)
        return versions[-1][1] if versions else None

    def at(self, key: str, revision: int) -> KeyValue | None:
        """The key as of a readable revision."""
        versions = self._versions.get(key, [])
        after = bisect_right(versions, revision, key=_revision_of)
        return versions[after - 1][1] if after else None

    def under(self, prefix: str, *, after: str = "") -> Iterator[str]:
        """Keys with `prefix`, strictly after `after`, in order; deleted ones too."""
        start = bisect_left(self._index, prefix)
        if after:
            start = max(start, bisect_right(self._index, after))
        for position in range(start, len(self._index)):
            key = self._index[position]
            if not key.startswith(prefix):
                return
            yield key

    def readable(self, revision: int) -> int:
        """The revision a read of `revision` (0 = now) sees.

        Raises `Compacted` for one forgotten, `InvalidRequest` for one of the future.
        """
        if revision <= 0:
            return self.revision
        if revision > self.revision:
            raise InvalidRequest(f"revision {revision} is of the future, now {self.revision}")
        if revision < self.compacted:
            raise Compacted(self.compacted)
        return revision

    def since(self, prefix: str, revision: int) -> list[WatchBatch]:
        """Changes under `prefix` from `revision` on, in batches of whole revisions.

        Raises `Compacted` when any of them is forgotten: at the compacted revision itself the
        values are still known but its deletions are not.
        """
        if revision <= self.compacted:
            raise Compacted(self.compacted)
        first = bisect_left(self._log, revision, key=_revision_of_batch)
        batches: list[WatchBatch] = []
        for start in range(first, len(self._log), REVISIONS_PER_BATCH_MAX):
            part = self._log[start : start + REVISIONS_PER_BATCH_MAX]
            events = [e for batch in part for e in batch.events if e.key.startswith(prefix)]
            if events:
                batches.append(WatchBatch(events[-1].mod_revision, events))
        return batches

    # Writing ----------------------------------------------------------------------------------

    def put(self, key: str, value: bytes, lease: int) -> None:
        """Write a key in the pending revision."""
        revision = self.revision + 1
        old = self.latest(key)
        if old is None:
            kv = KeyValue(key, value, revision, revision, 1, lease)
        else:
            kv = KeyValue(key, value, old.create_revision, revision, old.version + 1, lease)
        self._append(key, kv)

    def delete(self, key: str) -> KeyValue | None:
        """Delete a key in the pending revision; returns what it was, None for nothing."""
        old = self.latest(key)
        if old is not None:
            self._append(key, None)
        return old

    def commit(self) -> WatchBatch | None:
        """Make the pending writes one revision; None where there were none."""
        if not self._pending:
            return None
        self.revision += 1
        batch = WatchBatch(self.revision, tuple(self._pending))
        self._pending.clear()
        self._log.append(batch)
        return batch

    def _append(self, key: str, kv: KeyValue | None) -> None:
        revision = self.revision + 1
        versions = self._versions.get(key)
        if versions is None:
            self._versions[key] = [(revision, kv)]
            insort(self._index, key)
        else:
            versions.append((revision, kv))
        self._pending.append(WatchEvent(key, kv, revision))

    # Forgetting -------------------------------------------------------------------------------

    def compact(self, revision: int) -> None:
        """Forget what was before `revision`; an older one again does nothing.

        Raises `InvalidRequest` for a revision of the future.
        """
        if revision > self.revision:
            raise InvalidRequest(f"revision {revision} is of the future, now {self.revision}")
        if revision <= self.compacted:
            return
        self.compacted = revision
        keep_from = bisect_right(self._log, revision, key=_revision_of_batch)
        touched = {event.key for batch in self._log[:keep_from] for event in batch.events}
        del self._log[:keep_from]
        emptied = [key for key in touched if not self._trim(key, revision)]
        for key in emptied:
            del self._versions[key]
        if emptied:
            self._index = [key for key in self._index if key in self._versions]

    def _trim(self, key: str, revision: int) -> bool:
        """Drop versions of one key that no readable revision shows; False if none is left."""
        versions = self._versions[key]
        last = bisect_right(versions, revision, key=_revision_of) - 1
        if last >= 0:
            del versions[: last + (versions[last][1] is None)]
        return bool(versions)


def _revision_of(version: _Version) -> int:
    return version[0]


def _revision_of_batch(batch: WatchBatch) -> int:
    return batch.revision


def matching(batch: WatchBatch, prefix: str) -> Sequence[WatchEvent]:
    """The events of `batch` under `prefix`."""
    return [event for event in batch.events if event.key.startswith(prefix)]
