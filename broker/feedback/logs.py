"""Rules of logs that do not depend on where they lie: names, and what an append adds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from broker.feedback.ports import MAX_APPEND_BYTES, LogGap, LogStream

_UID: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_STREAM: Final = re.compile(r"(output|task-(0|[1-9][0-9]{0,9}))(\.r([1-9][0-9]{0,4}))?")


@dataclass(frozen=True, slots=True)
class AppendPlan:
    """Skip the first `skip` bytes of the data, store `take` after them; `truncated` if some are
    left over because the cap is reached."""

    skip: int
    take: int
    truncated: bool


def check_uid(uid: str) -> str:
    """The attempt uid, if well formed (so also safe as a file name); else ValueError."""
    if not _UID.fullmatch(uid):
        raise ValueError("malformed attempt uid")
    return uid


def check_stream(stream: str) -> str:
    """The stream name: `output` or `task-<n>`, with `.r<rank>` for a gang's further members; else
    ValueError."""
    if not _STREAM.fullmatch(stream):
        raise ValueError("a log stream is named output or task-<n>, then .r<rank> if a member")
    return stream


def check_append(uid: str, stream: str, offset: int, size_bytes: int) -> None:
    """Raises ValueError for malformed names, a negative offset, or more than
    `MAX_APPEND_BYTES`."""
    check_uid(uid)
    check_stream(stream)
    if offset < 0:
        raise ValueError("a log offset is not negative")
    if size_bytes > MAX_APPEND_BYTES:
        raise ValueError(f"at most {MAX_APPEND_BYTES} bytes an append")


def plan_append(length: int, offset: int, size_bytes: int, cap_bytes: int) -> AppendPlan:
    """What to do with `size_bytes` bytes sent for `offset` when `length` are stored.

    Raises `LogGap` if they begin after the end. At the cap there is no gap: nothing more will
    ever be stored, and a sender that does not know yet is no error.
    """
    if offset > length and length < cap_bytes:
        raise LogGap(length, offset)
    skip = min(max(length - offset, 0), size_bytes)
    if offset + size_bytes <= length:
        return AppendPlan(skip=size_bytes, take=0, truncated=False)
    take = max(min(size_bytes - skip, cap_bytes - length), 0)
    return AppendPlan(skip=skip, take=take, truncated=skip + take < size_bytes)


@dataclass(frozen=True, slots=True)
class StreamMark:
    """What is remembered of a stream beside its bytes: the total told by the site, and whether
    an append was cut at the cap."""

    total_bytes: int | None = None
    cut: bool = False


def completed(mark: StreamMark, length: int, total_bytes: int) -> StreamMark:
    """The mark with the total known: never less than what is stored or was said before."""
    if total_bytes < 0:
        raise ValueError("a log length is not negative")
    return StreamMark(max(total_bytes, length, mark.total_bytes or 0), mark.cut)


def stream_state(name: str, length: int, mark: StreamMark, cap_bytes: int) -> LogStream:
    """The stream as callers see it: full and known to be longer is truncated, too."""
    longer = mark.total_bytes is not None and mark.total_bytes > length
    return LogStream(name, length, mark.total_bytes, mark.cut or (longer and length >= cap_bytes))


def stream_order(name: str) -> tuple[int, int]:
    """Sort key: `output`, then tasks by number."""
    head, _, rank = name.partition(".r")
    task = -1 if head == "output" else int(head.removeprefix("task-"))
    return task, int(rank or 0)
