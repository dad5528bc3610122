"""What lies in the cache, what it cost and when it was used: kept in a file beside it.

The index is convenience, not truth: what is on disk counts. Opening brings it in line with the
directories, and one that cannot be read is made anew.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import threading
from collections.abc import Iterable
from pathlib import Path

from regional_agent.act.cache_value import Item, Kind

FILE = "cache.db"
PLACES = {Kind.BLOB: "blobs", Kind.ARCHIVE: "archives"}
"""Where each kind lies in the state directory. Images are kept by the site's container runtime."""
_TABLE = """
CREATE TABLE IF NOT EXISTS items (
    kind TEXT NOT NULL, sha256 TEXT NOT NULL, size_bytes INTEGER NOT NULL,
    cost_ms INTEGER NOT NULL, used_ms INTEGER NOT NULL, uses INTEGER NOT NULL,
    tree_sha256 TEXT NOT NULL,
    PRIMARY KEY (kind, sha256)
)
"""
_DIGITS = frozenset("0123456789abcdef")


class CacheIndex:
    """The index file of one state directory. One thread at a time uses the file: a closing
    agent may still have one that opens it."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._db: sqlite3.Connection | None = None
        self._one = threading.RLock()

    def open(self) -> list[Item]:
        """Everything that is really there, used longest ago first. Raises OSError."""
        with self._one:
            return self._open()

    def _open(self) -> list[Item]:
        for place in PLACES.values():
            (self._state / place).mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            known = self._read()
        except sqlite3.Error:
            self.close()
            self._remove_file()
            known = self._read()
        items = []
        for kind in PLACES:
            for name in self._names(kind):
                item = known.get((kind, name)) or self._found(kind, name)
                items += [item] if item else []
        there = {item.key for item in items}
        self.forget(key for key in known if key not in there)
        self.put(item for item in items if item.key not in known)
        return sorted(items, key=lambda item: item.used_ms)

    def put(self, items: Iterable[Item]) -> None:
        """Write items down. What cannot be written costs knowledge, never a job."""
        rows = [
            (i.kind.value, i.sha256, i.size_bytes, i.cost_ms, i.used_ms, i.uses, i.tree_sha256)
            for i in items
        ]
        with self._one, contextlib.suppress(sqlite3.Error):
            if not rows or self._db is None:
                return
            with self._db as db:
                db.executemany("INSERT OR REPLACE INTO items VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def forget(self, keys: Iterable[tuple[Kind, str]]) -> None:
        """Strike items out."""
        rows = [(kind.value, sha256) for kind, sha256 in keys]
        with self._one, contextlib.suppress(sqlite3.Error):
            if not rows or self._db is None:
                return
            with self._db as db:
                db.executemany("DELETE FROM items WHERE kind = ? AND sha256 = ?", rows)

    def close(self) -> None:
        """Close the file."""
        with self._one:
            if self._db is not None:
                self._db.close()
                self._db = None

    def _read(self) -> dict[tuple[Kind, str], Item]:
        handle = os.open(self._state / FILE, os.O_RDWR | os.O_CREAT, 0o600)
        os.close(handle)
        db = self._db = sqlite3.connect(self._state / FILE, check_same_thread=False)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute(_TABLE)
        columns = "kind, sha256, size_bytes, cost_ms, used_ms, uses, tree_sha256"
        kinds = {kind.value for kind in PLACES}
        found = [
            Item(Kind(row[0]), row[1], row[2], row[3], row[4], row[5], tree_sha256=row[6])
            for row in db.execute(f"SELECT {columns} FROM items")
            if row[0] in kinds
        ]
        return {item.key: item for item in found}

    def _remove_file(self) -> None:
        for tail in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                (self._state / (FILE + tail)).unlink()

    def _names(self, kind: Kind) -> list[str]:
        """Digests there; what a fetch or an unpacking left half done is cleared away."""
        names = []
        for entry in list(os.scandir(self._state / PLACES[kind])):
            if len(entry.name) == 64 and set(entry.name) <= _DIGITS:
                names.append(entry.name)
            elif entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                os.unlink(entry.path)
        return names

    def _found(self, kind: Kind, name: str) -> Item | None:
        """A blob the index does not know: as old as it looks, of unknown cost. What an unpacked
        archive should hold nobody can say any more: it goes."""
        path = self._state / PLACES[kind] / name
        if kind is not Kind.BLOB:
            shutil.rmtree(path, ignore_errors=True)
            return None
        found = path.stat()
        return Item(kind, name, found.st_size, 0, int(found.st_mtime * 1000))
