"""Unpacking an archive somebody else made, so that nothing lands outside the directory."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path, PurePosixPath

MAX_UNPACKED_BYTES = 4 * 2**30
MAX_MEMBERS = 100_000


class UnsafeArchive(ValueError):
    """The archive is damaged, too large, or holds something that must not be unpacked."""


def check_relative(path: str) -> PurePosixPath:
    """The path, if it is relative, names something and never goes up. Raises UnsafeArchive."""
    pure = PurePosixPath(path)
    if not pure.parts or pure.is_absolute() or ".." in pure.parts or "\0" in path:
        raise UnsafeArchive(f"{path!r} is not a path inside the working directory")
    return pure


def inside(directory: Path, path: str) -> Path:
    """Where `path` lies in `directory`; no link on the way may lead out of it.

    Raises UnsafeArchive.
    """
    target = directory / check_relative(path)
    if not target.parent.resolve().is_relative_to(directory.resolve()):
        raise UnsafeArchive(f"{path!r} goes through a link that leads out")
    return target


def unpack(archive: Path, directory: Path, max_bytes: int = MAX_UNPACKED_BYTES) -> int:
    """Unpack a tar archive (gzipped or not) into an empty directory; returns the bytes written.

    Regular files, directories, and links that stay inside; owners are ignored, set-id and
    world bits dropped. Raises UnsafeArchive, after which the directory holds what came before.
    """
    total = 0
    directory = directory.resolve()
    try:
        with tarfile.open(archive, "r:*") as tar:
            for count, member in enumerate(tar):
                if count >= MAX_MEMBERS:
                    raise UnsafeArchive(f"more than {MAX_MEMBERS} entries")
                total += member.size
                if total > max_bytes:
                    raise UnsafeArchive(f"more than {max_bytes} bytes when unpacked")
                _place(tar, member, directory)
    except UnsafeArchive:
        raise
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise UnsafeArchive(str(error) or type(error).__name__) from error
    except OSError as error:
        # A damaged gzip stream shows as OSError without a number; the disk's has one.
        if error.errno is None:
            raise UnsafeArchive(str(error)) from error
        raise
    return total


def _place(tar: tarfile.TarFile, member: tarfile.TarInfo, directory: Path) -> None:
    if PurePosixPath(member.name) == PurePosixPath("."):
        return
    target = inside(directory, member.name)
    if member.isdir():
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        return
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if target.is_symlink() or target.is_file():
        # An earlier entry of the same name; writing through it is what an attacker wants.
        target.unlink()
    if member.isreg():
        _write(tar, member, target)
    elif member.issym():
        _link(member, target, directory)
    elif member.islnk():
        os.link(inside(directory, member.linkname), target, follow_symlinks=False)
    else:
        raise UnsafeArchive(f"{member.name!r} is neither file, directory nor link")


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    source = tar.extractfile(member)
    if source is None:
        raise UnsafeArchive(f"{member.name!r} has no content")
    mode = 0o700 if member.mode & 0o100 else 0o600
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with source, open(fd, "wb") as file:
        while chunk := source.read(2**20):
            file.write(chunk)


def _link(member: tarfile.TarInfo, target: Path, directory: Path) -> None:
    aim = PurePosixPath(member.linkname)
    # Both by its letters and through the links already there, for `..` means another thing in each.
    landings = (Path(os.path.normpath(target.parent / aim)), (target.parent / aim).resolve())
    if aim.is_absolute() or not all(p.is_relative_to(directory) for p in landings):
        raise UnsafeArchive(f"the link {member.name!r} leads out to {member.linkname!r}")
    target.symlink_to(aim)
