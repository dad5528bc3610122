"""What of an attempt's directory is carried, and by which rules.

A pod has a directory of its own in the place of the attempt's. Into it go scripts and the working
directory; out of it come claims, marks, logs and what the job is to bring back. The agent's copy
decides: a claim is taken there, and whoever asked first has it.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from regional_agent.act.keeper import capture

CLAIM = re.compile(r"(?:rank\.)?\d{1,10}(?:\.\d{1,6})?")
MARK = re.compile(r"(?:(?:rank|first)\.)?\d{1,10}(?:\.\d{1,6})?|stop")
SCRIPT = re.compile(r"job-\d+\.sh|tasks-\d+|env\.sh|rank\.sh|run")
TO_ALL = re.compile(r"first\.\d{1,10}|stop")
"""Marks that every member of a gang looks for; the others are for its first."""
KEEP = "keep"
"""The file that names what comes back, a pattern a line."""
_DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Claimed:
    """Whether a task may run, and what is to lie in the pod's `claims`, so that its script sees
    what it would see on a shared disk."""

    granted: bool
    lay: dict[str, str] = field(default_factory=dict)


def claim(claims: Path, name: str, part: int, local: str) -> Claimed:
    """Take a claim for a run; the same run may ask again. One that was taken back from an earlier
    part of a slice, and given to this one, has a name of its own. Raises OSError."""
    path, lay = claims / name, {}
    with contextlib.suppress(FileNotFoundError):
        word, _, at = path.read_text().strip().partition(" ")
        if word == _DROPPED and int(at) < part:
            lay[name] = path.read_text()
            path = claims / f"{name}.{part}"
    mine = f"run {local}\n"
    if put_once(path, mine) or (said := path.read_text()) == mine:
        return Claimed(granted=True, lay=lay)
    return Claimed(granted=False, lay=lay | {path.name: said})


def put_once(path: Path, text: str) -> bool:
    """Make a file whole, unless there is one: False. Raises OSError."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(text)
    try:
        os.link(fresh, path)
    except FileExistsError:
        return False
    finally:
        fresh.unlink()
    return True


def append(log: Path, offset: int, data: bytes) -> int:
    """Add to a log whose size is `offset`; returns its size, at which the next piece begins. A
    piece that does not fit there is left out, as is what no log keeps. Raises OSError."""
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    with open(fd, "ab") as file:
        size = os.fstat(fd).st_size
        if size != offset:
            return size
        return size + file.write(data[: max(0, capture.KEPT_BYTES - size)])


def scripts(root: Path) -> bytes:
    """The small files of an attempt as a tar archive. Raises OSError."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for entry in sorted(os.scandir(root), key=lambda e: e.name):
            if entry.is_file(follow_symlinks=False) and (
                SCRIPT.fullmatch(entry.name) or entry.name == KEEP
            ):
                tar.add(entry.path, entry.name)
    return packed.getvalue()


def pack(directory: Path, paths: Iterator[tuple[str, Path]], into: Path) -> None:
    """A tar archive of files of a directory, by their names in it. Raises OSError."""
    with tarfile.open(into, "w") as tar:
        for name, path in paths:
            tar.add(path, name, recursive=False)


def everything(work: Path) -> Iterator[tuple[str, Path]]:
    """All of a working directory, directories before what is in them; no sockets and such."""
    for top, names, files in os.walk(work):
        here = Path(top)
        for name in sorted((*names, *files)):
            path = here / name
            if path.is_symlink() or path.is_dir() or path.is_file():
                yield str(path.relative_to(work)), path
