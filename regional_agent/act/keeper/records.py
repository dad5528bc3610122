"""The keeper's records of one attempt: an append-only file, a line each, with a checksum.

Writing and syncing are apart so that one sync serves everything of a turn. A line that is cut
short at the end was never synced, so nothing was done because of it: it is dropped. A bad line
with good ones after it means a damaged disk, and nothing may be started on its word.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from zlib import crc32

Record = dict[str, Any]


def encode(record: Record) -> bytes:
    """One line: checksum, space, JSON, newline."""
    body = json.dumps(record, separators=(",", ":")).encode()
    return b"%08x %s\n" % (crc32(body), body)


def decode(line: bytes) -> Record | None:
    """The record of a line without its newline; None if it is not whole."""
    try:
        if int(line[:8], 16) != crc32(line[9:]):
            return None
        body = json.loads(line[9:])
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


def read(path: Path) -> tuple[list[Record], int, bool]:
    """All records, the length in bytes of the good part, and whether there is damage within."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return [], 0, False
    found: list[Record] = []
    good_bytes = 0
    bad = False
    for line in data.splitlines(keepends=True):
        record = decode(line[:-1]) if line.endswith(b"\n") else None
        if record is None:
            bad = True
        elif bad:
            return found, good_bytes, True
        else:
            found.append(record)
            good_bytes += len(line)
    return found, good_bytes, False


class RecordFile:
    """A file of records. `append` buffers, `write` hands over to the kernel (which a kill of
    this process cannot undo), `sync` makes it outlast the machine. After an OSError of either,
    nothing is lost: they may be called again. Open only between a write and `close`."""

    def __init__(self, path: Path, good_bytes: int) -> None:
        """Append after the good part, which is all that is kept."""
        self._path = path
        self._fd = -1
        self._good_bytes: int | None = good_bytes
        self._buffer = b""
        self.size_bytes = good_bytes

    def append(self, record: Record) -> None:
        """Add a record to what the next `write` writes."""
        self._buffer += encode(record)

    def write(self) -> None:
        """Hand the buffered records to the kernel."""
        self._open()
        while self._buffer:
            written = os.write(self._fd, self._buffer)
            self.size_bytes += written
            self._buffer = self._buffer[written:]

    def sync(self) -> None:
        """`write`, and wait for the disk."""
        self.write()
        os.fdatasync(self._fd)

    def replace(self, record: Record) -> None:
        """Put one record in the place of all. Buffered ones must be in it."""
        data = encode(record)
        replace_file(self._path, data)
        self._buffer = b""
        self._good_bytes = None
        self.size_bytes = len(data)
        self.close()

    def close(self) -> None:
        """Close the file; the next `write` opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> None:
        if self._fd >= 0:
            return
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        if self._good_bytes is not None:
            os.ftruncate(self._fd, self._good_bytes)
            self._good_bytes = None


def replace_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Durably give `path` this content: whoever reads it sees the old or the new, whole."""
    fresh = path.with_name(path.name + ".new")
    write_file(fresh, data, mode)
    sync_file(fresh)
    os.rename(fresh, path)
    sync_dir(path.parent)


def write_file(path: Path, data: bytes, mode: int) -> None:
    """Write a file whole, not synced. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        write_all(fd, data)
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes) -> None:
    """Write everything to an open file. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def sync_file(path: Path) -> None:
    """Make what is in a file outlast the machine. Raises OSError."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_dir(path: Path) -> None:
    """Make the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
