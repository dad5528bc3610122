"""Files that hold keys: written whole or not at all, readable by their owner only.

A key that others on the machine could read is refused rather than used: it has to be taken as
known to them.
"""

from __future__ import annotations

import os
from pathlib import Path

_OTHERS = 0o077


class PrivateFileError(OSError):
    """A private file or directory that must not be used; the text says why and the remedy."""


def write_private(path: Path, data: bytes) -> None:
    """Replace `path` by `data` (mode 0600) in one step, crash or not. Raises OSError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_directory(path.parent)


def read_private(path: Path) -> bytes:
    """Content of a private file.

    Raises FileNotFoundError, or PrivateFileError when group or others have any access to it.
    """
    refuse_shared(path)
    return path.read_bytes()


def make_private_directory(path: Path) -> None:
    """Make `path` (mode 0700) unless it is there; raises PrivateFileError when it is shared."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    refuse_shared(path)


def refuse_shared(path: Path) -> None:
    """Raises PrivateFileError when group or others have any access to `path`."""
    mode = path.stat().st_mode & 0o777
    if mode & _OTHERS:
        raise PrivateFileError(
            f"{path} is open to others (mode {mode:04o}); run: chmod go-rwx {path}"
        )


def sync_directory(path: Path) -> None:
    """Make names written in a directory durable. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
