"""What every log store does, whatever it is made of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.feedback.backends.directory_logs import DirectoryLogs
from broker.feedback.backends.memory import MemoryLogs
from broker.feedback.ports import MAX_APPEND_BYTES, LogGap, LogStore, LogStream

UID = "j0123456789abcdef-1"
CAP = 100


@pytest.fixture(params=["memory", "directory"])
async def logs(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LogStore]:
    if request.param == "memory":
        made: LogStore = MemoryLogs(cap_bytes=CAP)
    else:
        made = DirectoryLogs(tmp_path / "logs", cap_bytes=CAP)
    yield made
    await made.close()


async def whole(logs: LogStore, stream: str = "output") -> bytes:
    return await logs.read(UID, stream, 0, 10_000)


async def test_appends_follow_each_other(logs: LogStore) -> None:
    assert await logs.append(UID, "output", 0, b"one ") == 4
    assert await logs.append(UID, "output", 4, b"two") == 7
    assert await whole(logs) == b"one two"
    assert await logs.length(UID, "output") == 7
    assert await logs.read(UID, "output", 4, 2) == b"tw"
    assert await logs.read(UID, "output", 7, 10) == b""
    assert await logs.read(UID, "output", 999, 10) == b""


async def test_repeats_and_overlaps_are_stored_once(logs: LogStore) -> None:
    await logs.append(UID, "output", 0, b"abcdef")
    assert await logs.append(UID, "output", 0, b"abcdef") == 6
    assert await logs.append(UID, "output", 2, b"cd") == 6
    assert await logs.append(UID, "output", 4, b"efgh") == 8
    assert await whole(logs) == b"abcdefgh"


async def test_a_gap_is_refused_with_the_offset_to_send_from(logs: LogStore) -> None:
    with pytest.raises(LogGap) as gap:
        await logs.append(UID, "output", 3, b"x")
    assert gap.value.expected_offset == 0
    assert await logs.streams(UID) == ()
    await logs.append(UID, "output", 0, b"ab")
    with pytest.raises(LogGap) as gap:
        await logs.append(UID, "output", 3, b"x")
    assert gap.value.expected_offset == 2
    assert await whole(logs) == b"ab"


async def test_the_cap_truncates_and_says_so(logs: LogStore) -> None:
    await logs.append(UID, "output", 0, b"a" * 90)
    assert await logs.append(UID, "output", 90, b"b" * 30) == CAP
    assert await whole(logs) == b"a" * 90 + b"b" * 10
    assert await logs.append(UID, "output", 120, b"c" * 5) == CAP
    (stream,) = await logs.streams(UID)
    assert stream == LogStream("output", CAP, None, truncated=True)
    assert stream.complete


async def test_a_log_of_exactly_the_cap_is_not_truncated(logs: LogStore) -> None:
    assert await logs.append(UID, "output", 0, b"a" * CAP) == CAP
    assert await logs.streams(UID) == (LogStream("output", CAP),)
    assert await logs.mark_complete(UID, "output", CAP) == LogStream("output", CAP, CAP)


async def test_a_full_log_known_to_be_longer_is_truncated(logs: LogStore) -> None:
    await logs.append(UID, "output", 0, b"a" * CAP)
    state = await logs.mark_complete(UID, "output", CAP + 1)
    assert state == LogStream("output", CAP, CAP + 1, truncated=True)
    assert await logs.streams(UID) == (state,)


async def test_what_is_missing_at_the_end_may_still_come(logs: LogStore) -> None:
    await logs.append(UID, "output", 0, b"ab")
    assert not (await logs.mark_complete(UID, "output", 4)).complete
    assert await logs.append(UID, "output", 2, b"cd") == 4
    (stream,) = await logs.streams(UID)
    assert stream == LogStream("output", 4, 4)
    assert stream.complete


async def test_completing_again_never_takes_back(logs: LogStore) -> None:
    await logs.append(UID, "output", 0, b"abcd")
    await logs.mark_complete(UID, "output", 6)
    assert (await logs.mark_complete(UID, "output", 6)).total_bytes == 6
    assert (await logs.mark_complete(UID, "output", 1)).total_bytes == 6


async def test_a_total_below_what_is_here_is_what_is_here(logs: LogStore) -> None:
    await logs.append(UID, "output", 0, b"abcd")
    assert await logs.mark_complete(UID, "output", 0) == LogStream("output", 4, 4)


async def test_a_job_that_said_nothing_has_an_empty_complete_log(logs: LogStore) -> None:
    assert await logs.mark_complete(UID, "output", 0) == LogStream("output", 0, 0)
    assert await logs.streams(UID) == (LogStream("output", 0, 0),)
    assert await whole(logs) == b""


async def test_nothing_sent_makes_no_stream(logs: LogStore) -> None:
    assert await logs.append(UID, "output", 0, b"") == 0
    assert await logs.length(UID, "output") == 0
    assert await logs.streams(UID) == ()


async def test_tasks_are_streams_of_their_own_in_number_order(logs: LogStore) -> None:
    for name in ("task-10", "task-9", "output", "task-0"):
        await logs.append(UID, name, 0, name.encode())
    found = [stream.name for stream in await logs.streams(UID)]
    assert found == ["output", "task-0", "task-9", "task-10"]
    assert await whole(logs, "task-9") == b"task-9"


async def test_attempts_do_not_share_logs(logs: LogStore) -> None:
    await logs.append(UID, "output", 0, b"first")
    await logs.append("j0123456789abcdef-2", "output", 0, b"second")
    assert await whole(logs) == b"first"
    await logs.remove("j0123456789abcdef-2")
    await logs.remove("j0123456789abcdef-2")
    assert await logs.streams("j0123456789abcdef-2") == ()
    assert await whole(logs) == b"first"


@pytest.mark.parametrize("uid", ["", "..", "a/b", "A", "-a", "x" * 64, "a\n"])
async def test_a_malformed_uid_is_refused(logs: LogStore, uid: str) -> None:
    for call in (
        logs.append(uid, "output", 0, b"x"),
        logs.read(uid, "output", 0, 1),
        logs.length(uid, "output"),
        logs.mark_complete(uid, "output", 0),
        logs.streams(uid),
        logs.remove(uid),
    ):
        with pytest.raises(ValueError, match="uid"):
            await call


@pytest.mark.parametrize("stream", ["", "stdout", "task-", "task-01", "../output", "task-1\n"])
async def test_an_unknown_stream_name_is_refused(logs: LogStore, stream: str) -> None:
    for call in (
        logs.append(UID, stream, 0, b"x"),
        logs.read(UID, stream, 0, 1),
        logs.length(UID, stream),
        logs.mark_complete(UID, stream, 0),
    ):
        with pytest.raises(ValueError, match="stream"):
            await call


async def test_absurd_sizes_are_refused(logs: LogStore) -> None:
    with pytest.raises(ValueError, match="at most"):
        await logs.append(UID, "output", 0, b"x" * (MAX_APPEND_BYTES + 1))
    with pytest.raises(ValueError, match="negative"):
        await logs.append(UID, "output", -1, b"x")
    with pytest.raises(ValueError, match="negative"):
        await logs.mark_complete(UID, "output", -1)
    assert await logs.read(UID, "output", -5, 10) == b""
    assert await logs.read(UID, "output", 0, -1) == b""


async def test_many_streams_at_once_each_keep_their_order(logs: LogStore) -> None:
    async def ship(task: int) -> None:
        for offset in range(0, 20, 2):
            await logs.append(UID, f"task-{task}", offset, f"{task:02}".encode())

    await asyncio.gather(*(ship(task) for task in range(30)))
    for task in range(30):
        assert await whole(logs, f"task-{task}") == f"{task:02}".encode() * 10
