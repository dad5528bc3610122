"""File steps that survive a power cut, and one lock several processes may share."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def make_directory(path: Path) -> None:
    """Create a directory for this user alone, with its parents; on disk when this returns."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make names created, renamed or removed in `path` durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes, offset: int) -> None:
    """Write every byte of `data` at `offset`; the system may take them in parts."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view = view[written:]
        offset += written


def replace_file(path: Path, data: bytes) -> None:
    """Put `data` at `path` whole or not at all, durably. One writer at a time per path."""
    # A leading dot cannot begin any name we give a stream, tenant or blob.
    temporary = path.with_name(f".{path.name}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        write_all(descriptor, data, 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.replace(path)
    sync_directory(path.parent)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path`, against threads and processes alike."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
