"""Copies out of the cache that are checked while they are made.

At a site where jobs run as the agent's own user a job can reach the cache. So nothing is taken
from it on trust: a copy counts only if it has the digest it should have.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

CHUNK_BYTES = 2**20


def copy_file(source: Path, target: Path, mode: int) -> str:
    """Copy a regular file to a path where nothing is; returns the digest of what was copied."""
    digest = hashlib.sha256()
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with source.open("rb") as data, open(handle, "wb") as out:
        while chunk := data.read(CHUNK_BYTES):
            digest.update(chunk)
            out.write(chunk)
    target.chmod(mode & 0o777)
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """The digest of a file."""
    with path.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def copy_tree(source: Path, target: Path) -> str:
    """Copy a directory's content into an empty one; returns the digest of what was copied.

    Links are copied as links. Raises OSError for anything but files, directories and links.
    """
    whole = hashlib.sha256()
    for directory, names, files in os.walk(source):
        names.sort()
        here = Path(directory)
        there = target / here.relative_to(source)
        for name in sorted(files + [n for n in names if (here / n).is_symlink()]):
            told = _copy_entry(here / name, there / name)
            whole.update(f"{(here / name).relative_to(source)}\0{told}\n".encode())
        for name in names:
            if not (here / name).is_symlink():
                (there / name).mkdir(mode=0o700)
                whole.update(f"{(here / name).relative_to(source)}\0dir\n".encode())
    return whole.hexdigest()


def _copy_entry(source: Path, target: Path) -> str:
    if source.is_symlink():
        aim = os.readlink(source)
        target.symlink_to(aim)
        return f"link {aim}"
    if not source.is_file():
        raise OSError(f"{source} is neither file, directory nor link")
    mode = source.stat().st_mode & 0o777
    return f"{mode:o} {copy_file(source, target, mode)}"


def remove_tree(path: Path) -> None:
    """Remove a directory and all in it, as far as that goes."""
    shutil.rmtree(path, ignore_errors=True)
