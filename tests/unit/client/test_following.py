from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from broker.client import (
    Client,
    Connection,
    LogChoice,
    LogEnd,
    LogPiece,
    LogWaiting,
    NotReachable,
    Patience,
    Refused,
    TimedOut,
    connect,
    follow_log,
    wait_for_jobs,
)
from tests.unit.client.speaking_server import (
    JOB,
    TOKEN,
    SpeakingServer,
    ended,
    job_object,
    piece,
)

QUICK = Patience(total_s=1.0, first_pause_s=0.01, longest_pause_s=0.05)
END = ("end", {"phase": "ended", "outcome": {"kind": "succeeded"}})


@pytest.fixture
async def client(server: SpeakingServer) -> AsyncIterator[Client]:
    async with connect(Connection(server.url, TOKEN), QUICK) as connected:
        yield connected


async def read_all(client: Client, choice: LogChoice) -> tuple[str, list[str], LogEnd]:
    shown, waits = "", []
    async for event in follow_log(client, choice, reconnect_s=3.0):
        if isinstance(event, LogPiece):
            shown += event.data.decode()
        elif isinstance(event, LogWaiting):
            waits.append(event.text)
        else:
            return shown, waits, event
    raise AssertionError("a followed log ends with its end")


async def test_a_log_is_shown_to_its_end(client: Client, server: SpeakingServer) -> None:
    server.log_script = [[("waiting", {"text": "queued"}), piece("a-1", 0, "one\n"),
                          piece("a-1", 4, "two\n"), END]]  # fmt: skip
    shown, waits, end = await read_all(client, LogChoice(JOB))
    assert (shown, waits, end.phase) == ("one\ntwo\n", ["queued"], "ended")


async def test_a_broken_stream_goes_on_where_it_was(
    client: Client, server: SpeakingServer
) -> None:
    server.jobs[JOB] = ended(job_object())
    server.log_script = [
        [piece("a-1", 0, "one\n"), None],
        [piece("a-1", 4, "two\n"), None],
        [END],
    ]
    shown, _, _ = await read_all(client, LogChoice(JOB))
    assert shown == "one\ntwo\n"
    assert all(each[2].get("attempt") in (None, "1")
               for each in server.asked("GET", f"/v1/jobs/{JOB}/logs"))  # fmt: skip
    offsets = [each[2]["offset"] for each in server.asked("GET", f"/v1/jobs/{JOB}/logs")]
    assert offsets == ["0", "4", "8"]


async def test_nothing_is_shown_twice_when_the_server_starts_over(
    client: Client, server: SpeakingServer
) -> None:
    server.jobs[JOB] = ended(job_object())
    server.log_script = [
        [piece("a-1", 0, "one\n"), None],
        [piece("a-1", 0, "one\ntwo\n"), piece("a-1", 2, "e\ntwo\nthree\n"), END],
    ]
    shown, _, _ = await read_all(client, LogChoice(JOB))
    assert shown == "one\ntwo\nthree\n"


async def test_after_a_break_attempts_are_read_one_by_one_and_none_is_skipped(
    client: Client, server: SpeakingServer
) -> None:
    # While we were away the first attempt wrote on and ended, and a second one began.
    server.jobs[JOB] = ended(job_object(attempts=[{"uid": f"{JOB}-1"}, {"uid": f"{JOB}-2"}]))
    server.log_script = [
        [piece(f"{JOB}-1", 0, "one\n"), None],
        [piece(f"{JOB}-1", 4, "last words\n"), ("end", {"phase": "running"})],
        [piece(f"{JOB}-2", 0, "two\n"), END],
    ]
    shown, _, end = await read_all(client, LogChoice(JOB))
    assert shown == "one\nlast words\ntwo\n"
    assert end.outcome["kind"] == "succeeded"
    asked = [each[2] for each in server.asked("GET", f"/v1/jobs/{JOB}/logs")]
    assert [(each.get("attempt"), each["offset"]) for each in asked] == [
        (None, "0"), ("1", "4"), ("2", "0"),
    ]  # fmt: skip


async def test_attempts_without_the_task_are_passed_over(
    client: Client, server: SpeakingServer
) -> None:
    attempts = [
        {"uid": f"{JOB}-1", "tasks": "0-9"}, {"uid": f"{JOB}-2", "tasks": "10-19"},
        {"uid": f"{JOB}-3", "tasks": "7"},
    ]  # fmt: skip
    server.jobs[JOB] = ended(job_object(attempts=attempts))
    server.log_script = [
        [piece(f"{JOB}-1", 0, "one\n"), None], [END], [piece(f"{JOB}-3", 0, "three\n"), END],
    ]  # fmt: skip
    shown, _, _ = await read_all(client, LogChoice(JOB, task="7"))
    assert shown == "one\nthree\n"


async def test_a_stream_that_never_comes_back_is_an_error(
    client: Client, server: SpeakingServer
) -> None:
    with pytest.raises(NotReachable):
        async for _ in follow_log(client, LogChoice(JOB), reconnect_s=0.6):
            pass


@pytest.mark.parametrize("events", [True, False])
async def test_waiting_hears_of_the_end_with_and_without_events(
    client: Client, server: SpeakingServer, events: bool
) -> None:
    server.events = events
    server.jobs[JOB] = job_object()
    seen: list[str] = []
    waiting = asyncio.create_task(
        wait_for_jobs(client, [JOB], 20.0, lambda job: seen.append(job["phase"]))
    )
    await asyncio.sleep(0.4)
    server.end_job(JOB, "failed", 3)
    done = await waiting
    assert done[JOB]["outcome"]["exit_code"] == 3
    assert seen == ["queued", "ended"]


async def test_waiting_for_many_looks_only_at_those_that_changed(
    client: Client, server: SpeakingServer
) -> None:
    ids = [f"j{number:016x}" for number in range(20)]
    server.jobs = {job_id: ended(job_object(job_id)) for job_id in ids}
    server.jobs[ids[0]] = job_object(ids[0])
    waiting = asyncio.create_task(wait_for_jobs(client, ids, 20.0))
    await asyncio.sleep(0.4)
    server.end_job(ids[0])
    assert set(await waiting) == set(ids)
    assert all(len(server.asked("GET", f"/v1/jobs/{job_id}")) == 1 for job_id in ids[1:])


async def test_waiting_ends_by_its_timeout_and_says_who_is_left(
    client: Client, server: SpeakingServer
) -> None:
    server.jobs[JOB] = job_object()
    with pytest.raises(TimedOut, match=JOB):
        await wait_for_jobs(client, [JOB], 0.3)


async def test_waiting_for_nobody_is_refused(client: Client) -> None:
    with pytest.raises(Refused) as refused:
        await wait_for_jobs(client, [JOB], 5.0)
    assert refused.value.problem.status == 404
