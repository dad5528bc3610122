"""Reading the log files of attempts, which lie below the agent's state directory."""

from __future__ import annotations

import os
from pathlib import Path

from regional_agent.act.keeper import capture
from regional_agent.act.schedulers.port import LogExtent, LogSlice


def read(path: Path, offset: int, limit: int, *, ended: bool) -> LogSlice:
    """At most `limit` bytes from `offset` (negative: from the end); nothing if there is no file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return LogSlice(b"", 0, 0, complete=ended)
    try:
        size = os.fstat(fd).st_size
        total = capture.visible_bytes(size, ended=ended)
        start = max(0, total + offset) if offset < 0 else min(offset, total)
        data = os.pread(fd, max(0, min(limit, total - start)), start)
        cut = capture.is_truncated(fd, size)
    finally:
        os.close(fd)
    return LogSlice(data, start, total, complete=ended, truncated=cut)


def extents(logs: Path) -> tuple[LogExtent, ...]:
    """Every log in a directory that is not empty, by name."""
    try:
        found = [(entry.name, entry.stat().st_size) for entry in os.scandir(logs)]
    except FileNotFoundError:
        return ()
    return tuple(LogExtent(name, size) for name, size in sorted(found) if size)
