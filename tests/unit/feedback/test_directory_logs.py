from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.feedback.backends.directory_logs import DirectoryLogs
from broker.feedback.ports import FeedbackUnavailable, LogGap, LogStream

UID = "j0123456789abcdef-1"


def the_file(root: Path, name: str) -> Path:
    (found,) = root.rglob(name)
    return found


async def test_logs_and_their_marks_outlive_the_process(tmp_path: Path) -> None:
    logs = DirectoryLogs(tmp_path, cap_bytes=10)
    await logs.append(UID, "output", 0, b"0123456789abc")
    await logs.append(UID, "task-7", 0, b"seven")
    await logs.mark_complete(UID, "task-7", 9)
    await logs.close()
    again = DirectoryLogs(tmp_path, cap_bytes=10)
    assert await again.streams(UID) == (
        LogStream("output", 10, None, truncated=True),
        LogStream("task-7", 5, 9),
    )
    assert await again.append(UID, "task-7", 5, b"teen") == 9
    assert await again.read(UID, "task-7", 0, 99) == b"seventeen"
    await again.close()


async def test_after_a_torn_write_the_sender_is_asked_from_what_survived(
    tmp_path: Path,
) -> None:
    logs = DirectoryLogs(tmp_path)
    await logs.append(UID, "output", 0, b"0123456789")
    with the_file(tmp_path, "output.log").open("r+b") as file:
        file.truncate(4)
    with pytest.raises(LogGap) as gap:
        await logs.append(UID, "output", 10, b"abc")
    assert gap.value.expected_offset == 4
    assert await logs.append(UID, "output", 4, b"456789abc") == 13
    assert await logs.read(UID, "output", 0, 99) == b"0123456789abc"
    await logs.close()


async def test_two_brokers_writing_the_same_bytes_write_them_once(tmp_path: Path) -> None:
    old, new = DirectoryLogs(tmp_path), DirectoryLogs(tmp_path)
    source = bytes(range(250))

    async def ship(logs: DirectoryLogs) -> None:
        offset = 0
        while offset < len(source):
            offset = await logs.append(UID, "output", offset, source[offset : offset + 10])

    await asyncio.gather(ship(old), ship(new))
    assert await new.read(UID, "output", 0, 999) == source
    await old.close()
    await new.close()


async def test_the_default_cap_is_sixteen_mebibytes(tmp_path: Path) -> None:
    logs = DirectoryLogs(tmp_path)
    step, length = b"x" * 2**20, 0
    for _ in range(17):
        length = await logs.append(UID, "output", length, step)
    assert length == 16 * 2**20
    (stream,) = await logs.streams(UID)
    assert stream.truncated
    assert len(await logs.read(UID, "output", 0, 2**30)) == 2**20
    await logs.close()


async def test_nobody_else_on_the_machine_may_look(tmp_path: Path) -> None:
    logs = DirectoryLogs(tmp_path / "logs")
    await logs.append(UID, "output", 0, b"secret")
    await logs.mark_complete(UID, "output", 6)
    for path in (tmp_path / "logs").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
    await logs.close()


async def test_one_unwritable_stream_fails_alone(tmp_path: Path) -> None:
    logs = DirectoryLogs(tmp_path)
    await logs.append(UID, "output", 0, b"x")
    directory = the_file(tmp_path, "output.log").parent
    (directory / "task-1.log").mkdir()
    bad, good = await asyncio.gather(
        logs.append(UID, "task-1", 5_000_000, b"x"),
        logs.append(UID, "task-2", 0, b"fine"),
        return_exceptions=True,
    )
    assert good == 4
    assert isinstance(bad, LogGap | FeedbackUnavailable)
    await logs.close()


async def test_a_place_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FeedbackUnavailable):
        DirectoryLogs(tmp_path / "file" / "logs")
