"""Logs as files of one directory.

`<aa>/<uid>/<stream>.log` holds the bytes, its size being the stored length; `<stream>.json`
beside it what `StreamMark` says, once there is something to say. All writes go through one
thread, many appends to a visit. Appends are synced when their stream is complete: until then
the site still has the bytes, and after a power cut they are asked for again from the length
that survived.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from broker.feedback.backends.durable_files import (
    make_directory,
    replace_file,
    sync_directory,
    write_all,
)
from broker.feedback.grouping import GroupWriter
from broker.feedback.logs import (
    StreamMark,
    check_append,
    check_stream,
    check_uid,
    completed,
    plan_append,
    stream_order,
    stream_state,
)
from broker.feedback.ports import (
    MAX_APPEND_BYTES,
    MAX_LOG_BYTES,
    FeedbackUnavailable,
    LogGap,
    LogStore,
    LogStream,
)

Answer = TypeVar("Answer")

_READERS: Final = 2


@dataclass(frozen=True, slots=True)
class _Append:
    uid: str
    stream: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class _Complete:
    uid: str
    stream: str
    total_bytes: int


@dataclass(frozen=True, slots=True)
class _Remove:
    uid: str


_Change = _Append | _Complete | _Remove


class DirectoryLogs(LogStore):
    """`LogStore` in a directory. Construction touches the disk once, briefly."""

    def __init__(self, root: Path, *, cap_bytes: int = MAX_LOG_BYTES) -> None:
        """Raises `FeedbackUnavailable` if the directory cannot be made."""
        self._root = root
        self._cap_bytes = cap_bytes
        try:
            make_directory(root)
        except OSError as error:
            raise FeedbackUnavailable(f"logs: {error}") from error
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="logs-read")
        self._writer: GroupWriter[_Change, LogStream] = GroupWriter(
            self._write_group, thread="logs-write"
        )

    async def append(self, uid: str, stream: str, offset: int, data: bytes) -> int:
        """See `LogStore`."""
        check_append(uid, stream, offset, len(data))
        return (await self._writer.submit(_Append(uid, stream, offset, data))).length_bytes

    async def read(self, uid: str, stream: str, offset: int, limit: int) -> bytes:
        """See `LogStore`."""
        path = self._log(check_uid(uid), check_stream(stream))
        return await self._run(lambda: _read(path, offset, min(limit, MAX_APPEND_BYTES)))

    async def length(self, uid: str, stream: str) -> int:
        """See `LogStore`."""
        path = self._log(check_uid(uid), check_stream(stream))
        return await self._run(lambda: _size(path))

    async def mark_complete(self, uid: str, stream: str, total_bytes: int) -> LogStream:
        """See `LogStore`."""
        check_append(uid, stream, total_bytes, 0)
        return await self._writer.submit(_Complete(uid, stream, total_bytes))

    async def streams(self, uid: str) -> tuple[LogStream, ...]:
        """See `LogStore`."""
        check_uid(uid)
        return await self._run(lambda: self._streams(uid))

    async def remove(self, uid: str) -> None:
        """See `LogStore`."""
        await self._writer.submit(_Remove(check_uid(uid)))

    async def close(self) -> None:
        """See `LogStore`."""
        await self._writer.close()
        await asyncio.to_thread(self._readers.shutdown)

    async def _run(self, call: Callable[[], Answer]) -> Answer:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._readers, call)
        except OSError as error:
            raise FeedbackUnavailable(f"logs: {error}") from error

    def _directory(self, uid: str) -> Path:
        # Uids begin with a time, so their first letters would all fall into one directory.
        return self._root / hashlib.sha256(uid.encode()).hexdigest()[:2] / uid

    def _log(self, uid: str, stream: str) -> Path:
        return self._directory(uid) / f"{stream}.log"

    def _write_group(self, changes: Sequence[_Change]) -> Sequence[LogStream | Exception]:
        return [self._outcome(change) for change in changes]

    def _outcome(self, change: _Change) -> LogStream | Exception:
        try:
            return self._apply(change)
        except OSError as error:
            return FeedbackUnavailable(f"logs: {error}")
        except LogGap as gap:
            return gap

    def _apply(self, change: _Change) -> LogStream:
        if isinstance(change, _Remove):
            shutil.rmtree(self._directory(change.uid), ignore_errors=True)
            return LogStream("", 0)
        path = self._log(change.uid, change.stream)
        if isinstance(change, _Complete):
            return self._complete(path, change)
        return self._append(path, change)

    def _append(self, path: Path, change: _Append) -> LogStream:
        # The file is asked each time: another broker sharing the directory may have written.
        length = _size(path)
        plan = plan_append(length, change.offset, len(change.data), self._cap_bytes)
        if not plan.take and not plan.truncated:
            return LogStream(change.stream, length)
        descriptor = _open_log(path)
        try:
            write_all(descriptor, change.data[plan.skip : plan.skip + plan.take], length)
            length += plan.take
            mark = _read_mark(path)
            if plan.truncated and not mark.cut:
                mark = StreamMark(mark.total_bytes, cut=True)
                _write_mark(path, mark)
            state = stream_state(change.stream, length, mark, self._cap_bytes)
            if state.complete and plan.take:
                os.fsync(descriptor)
            return state
        finally:
            os.close(descriptor)

    def _complete(self, path: Path, change: _Complete) -> LogStream:
        descriptor = _open_log(path)
        try:
            os.fsync(descriptor)
            length = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
        sync_directory(path.parent)
        before = _read_mark(path)
        mark = completed(before, length, change.total_bytes)
        if mark != before:
            _write_mark(path, mark)
        return stream_state(change.stream, length, mark, self._cap_bytes)

    def _streams(self, uid: str) -> tuple[LogStream, ...]:
        directory = self._directory(uid)
        if not directory.is_dir():
            return ()
        names = [path.stem for path in directory.iterdir() if path.suffix == ".log"]
        found = []
        for name in sorted(names, key=stream_order):
            path = self._log(uid, name)
            found.append(stream_state(name, _size(path), _read_mark(path), self._cap_bytes))
        return tuple(found)


def _open_log(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    except FileNotFoundError:
        make_directory(path.parent)
        return os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _read(path: Path, offset: int, limit: int) -> bytes:
    if offset < 0 or limit <= 0:
        return b""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(limit)
    except FileNotFoundError:
        return b""


def _read_mark(log: Path) -> StreamMark:
    try:
        found = json.loads(log.with_suffix(".json").read_bytes())
    except FileNotFoundError:
        return StreamMark()
    return StreamMark(found["total_bytes"], found["cut"])


def _write_mark(log: Path, mark: StreamMark) -> None:
    data = json.dumps({"total_bytes": mark.total_bytes, "cut": mark.cut}).encode()
    replace_file(log.with_suffix(".json"), data)
