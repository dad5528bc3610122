"""Keeping the log files of running programs within bounds.

Programs write straight to files: reading pipes would put every byte through the keeper and block
programs when it is down; a limit on file size (RLIMIT_FSIZE) would also hit their checkpoints. So
files are looked at now and then. What is kept of a long one is its first `HEAD_BYTES`, a line
that says something is missing, and its last `TAIL_BYTES`; while the program runs only the head is
shown, so that an offset read once means the same for ever. Between two looks a program may fill
the disk by at most `SLACK_BYTES` plus what it writes in that time.
"""

from __future__ import annotations

import os
from pathlib import Path

HEAD_BYTES = 15 * 2**20
MARK = b"\n[tradewind: output was cut here; its end follows]\n"
TAIL_BYTES = 2**20 - len(MARK)
KEPT_BYTES = HEAD_BYTES + len(MARK) + TAIL_BYTES
SLACK_BYTES = 64 * 2**20


def visible_bytes(size_bytes: int, *, ended: bool) -> int:
    """How much of a file of this size is shown."""
    return size_bytes if ended else min(size_bytes, HEAD_BYTES)


def is_truncated(fd: int, size_bytes: int) -> bool:
    """True if the open file is not all its program wrote."""
    return size_bytes > HEAD_BYTES and os.pread(fd, len(MARK), HEAD_BYTES) == MARK


def rein_in(path: Path) -> None:
    """Cut a file that is still written to, if it has grown beyond what is kept and slack."""
    _cut(path, KEPT_BYTES + SLACK_BYTES)


def close_off(path: Path) -> None:
    """Bring the file of an ended program to its final form; an empty one is removed."""
    if _cut(path, KEPT_BYTES) == 0:
        path.unlink(missing_ok=True)


def _cut(path: Path, limit_bytes: int) -> int:
    try:
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW)
    except OSError:
        return -1
    try:
        size = os.fstat(fd).st_size
        if size > limit_bytes:
            tail = os.pread(fd, TAIL_BYTES, size - TAIL_BYTES)
            os.ftruncate(fd, HEAD_BYTES)
            os.write(fd, MARK + tail)
        return size
    except OSError:
        return -1  # The disk has other troubles; a log is not worth more of them.
    finally:
        os.close(fd)
