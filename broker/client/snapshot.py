"""A directory as one archive: the same files give the same bytes, whoever packs them, whenever.

`.gitignore` and `.twignore` files are honoured as git does it, in every directory; `.twignore`
has the last word (`!data/` brings back what git ignores). `.git` is never sent.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

from broker.client.documents import MAX_BLOB_BYTES
from broker.client.errors import BadFile
from federation.units import format_bytes

MANY_FILES = 10_000
IGNORE_FILES = (".gitignore", ".twignore")
_NEVER = frozenset({".git", ".hg", ".svn"})


@dataclass(frozen=True, slots=True)
class Rules:
    """Ignore rules of one directory, and of those above it."""

    base: str
    spec: GitIgnoreSpec
    above: Rules | None

    def ignores(self, path: str, *, is_directory: bool) -> bool:
        """Whether `path` (from the top of the snapshot, `/` between parts) is left out."""
        rules: Rules | None = self
        shown = f"{path}/" if is_directory else path
        while rules is not None:
            verdict = rules.spec.check_file(shown.removeprefix(rules.base)).include
            if verdict is not None:
                return verdict
            rules = rules.above
        return False


@dataclass(frozen=True, slots=True)
class Archive:
    """A packed directory, its digest, how many entries it has, and what to tell."""

    content: bytes
    sha256: str
    files: int
    warnings: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        """Size of the archive."""
        return len(self.content)


def pack_directory(top: Path) -> Archive:
    """`top` as a tar.gz of at most 64 MiB; raises BadFile."""
    if not top.is_dir():
        raise BadFile(f"{top} is not a directory")
    warnings: list[str] = []
    spool = io.BytesIO()
    files = _write_tar(top, spool, warnings)
    if files > MANY_FILES:
        warnings.append(
            f"{top} holds {files:,} files; leave out what the job does not need in .twignore"
        )
    content = spool.getvalue()
    return Archive(content, hashlib.sha256(content).hexdigest(), files, tuple(warnings))


def _write_tar(top: Path, spool: io.BytesIO, warnings: list[str]) -> int:
    count = 0
    # No name and no time in the gzip header, or the bytes would differ from run to run.
    with (
        gzip.GzipFile(filename="", fileobj=spool, mode="wb", compresslevel=6, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path, entry in _walk(top, "", None, warnings):
            _add(tar, path, entry)
            count += 1
            if spool.tell() > MAX_BLOB_BYTES:
                break
    if spool.tell() > MAX_BLOB_BYTES:
        raise BadFile(
            f"{top} is more than {format_bytes(MAX_BLOB_BYTES)} even packed",
            "leave out what the job does not need in .twignore, or give big data as inputs",
        )
    return count


def _add(tar: tarfile.TarFile, path: str, entry: Path) -> None:
    member = tarfile.TarInfo(path)
    try:
        found = entry.lstat()
        if stat.S_ISLNK(found.st_mode):
            member.type, member.linkname, member.mode = tarfile.SYMTYPE, os.readlink(entry), 0o777
            tar.addfile(member)
        elif stat.S_ISDIR(found.st_mode):
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(member)
        else:
            with entry.open("rb") as content:
                member.size = os.fstat(content.fileno()).st_size
                member.mode = 0o755 if found.st_mode & 0o100 else 0o644
                tar.addfile(member, content)
    except OSError as error:
        reason = error.strerror or str(error)
        raise BadFile(f"cannot pack {entry}: {reason}", "try again when it is at rest") from None


def _walk(
    top: Path, inside: str, above: Rules | None, warnings: list[str]
) -> Iterator[tuple[str, Path]]:
    """(path in the archive, file) of all that is sent below `inside`, in one fixed order."""
    directory = top / inside
    try:
        names = sorted(os.listdir(directory))
    except OSError as error:
        raise BadFile(f"cannot read {directory}: {error.strerror}") from None
    rules = _rules(directory, inside, names, above)
    for name in names:
        entry, path = directory / name, inside + name
        mode = entry.lstat().st_mode
        is_directory = stat.S_ISDIR(mode)
        if name in _NEVER or (rules and rules.ignores(path, is_directory=is_directory)):
            continue
        if is_directory:
            yield path, entry
            yield from _walk(top, f"{path}/", rules, warnings)
        elif stat.S_ISREG(mode) or _stays_inside(top, entry, mode, warnings):
            yield path, entry


def _stays_inside(top: Path, entry: Path, mode: int, warnings: list[str]) -> bool:
    if not stat.S_ISLNK(mode):
        return False  # sockets, pipes and devices mean nothing elsewhere
    target = os.readlink(entry)
    landing = os.path.normpath(entry.parent / target)
    if os.path.isabs(target) or not Path(landing).is_relative_to(os.path.normpath(top)):
        warnings.append(f"{entry} points outside the directory and is left out")
        return False
    return True


def _rules(directory: Path, inside: str, names: list[str], above: Rules | None) -> Rules | None:
    lines: list[str] = []
    for name in IGNORE_FILES:
        if name in names:
            try:
                text = (directory / name).read_text(encoding="utf-8", errors="replace")
                GitIgnoreSpec.from_lines(text.splitlines())
            except (OSError, ValueError) as error:
                raise BadFile(f"cannot read {directory / name}: {error}") from None
            lines.extend(text.splitlines())
    if not lines:
        return above
    return Rules(inside, GitIgnoreSpec.from_lines(lines), above)
