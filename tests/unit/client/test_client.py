from __future__ import annotations

import hashlib
import io
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from broker.client import (
    Client,
    Connection,
    Garbled,
    NotReachable,
    Patience,
    Refused,
    all_jobs,
    connect,
)
from broker.client.client import log_range
from broker.client.replies import Answer
from broker.client.upload import Blob
from tests.unit.client.speaking_server import (
    JOB,
    TOKEN,
    SpeakingServer,
    ended,
    job_object,
    problem,
)

QUICK = Patience(total_s=2.0, first_pause_s=0.01, longest_pause_s=0.05)
SPEC = {"command": ["python", "train.py"], "name": "train"}


@pytest.fixture(params=[False, True], ids=["kept", "brief"])
async def client(
    server: SpeakingServer, request: pytest.FixtureRequest
) -> AsyncIterator[Client]:
    async with connect(Connection(server.url, TOKEN), QUICK, brief=request.param) as connected:
        yield connected


def drop(request: web.Request) -> None:
    """The connection dies before an answer."""
    assert request.transport is not None
    request.transport.close()


async def test_a_submission_always_carries_a_key(
    client: Client, server: SpeakingServer
) -> None:
    submitted = await client.submit(SPEC)
    assert submitted.id in server.jobs
    (_, _, _, headers), = server.asked("POST", "/v1/jobs")
    assert len(headers["Idempotency-Key"]) == 32


async def test_an_ambiguous_submission_is_repeated_under_its_key_and_makes_one_job(
    client: Client, server: SpeakingServer
) -> None:
    server.faults = [drop]
    await client.submit(SPEC)
    keys = {each[3]["Idempotency-Key"] for each in server.asked("POST", "/v1/jobs")}
    assert len(server.asked("POST", "/v1/jobs")) == 2
    assert len(keys) == 1
    assert len(server.jobs) == 1


async def test_the_same_key_is_told_as_a_replay(client: Client, server: SpeakingServer) -> None:
    first = await client.submit(SPEC, "k1")
    again = await client.submit(SPEC, "k1")
    assert (first.replayed, again.replayed) == (False, True)
    assert first.id == again.id
    with pytest.raises(Refused) as refused:
        await client.submit({**SPEC, "name": "other"}, "k1")
    assert refused.value.problem.status == 422


async def test_retry_after_is_honoured(client: Client, server: SpeakingServer) -> None:
    server.answers["status"] = {"queued": 1}
    server.faults = [lambda _: problem(503, "busy", "no leader", headers={"Retry-After": "1"})]
    start = time.monotonic()
    assert await client.status() == {"queued": 1}
    assert time.monotonic() - start >= 1.0


async def test_a_wait_longer_than_our_patience_is_not_begun(
    client: Client, server: SpeakingServer
) -> None:
    server.faults = [lambda _: problem(503, "busy", "no leader", headers={"Retry-After": "60"})]
    start = time.monotonic()
    with pytest.raises(NotReachable, match="no leader"):
        await client.status()
    assert time.monotonic() - start < 1.0


async def test_what_is_not_safe_is_not_repeated(client: Client, server: SpeakingServer) -> None:
    server.faults = [drop]
    with pytest.raises(NotReachable, match="may or may not have been done"):
        await client.invite("us-east-1", "us-east")
    assert len(server.asked("POST", "/v1/clusters/invite")) == 1


async def test_a_refusal_says_field_and_remedy(client: Client, server: SpeakingServer) -> None:
    errors = [{"path": "resources.memory", "value": "64", "problem": "no unit", "remedy": "64GiB"}]
    server.faults = [lambda _: problem(422, "bad", "the job is wrong", errors=errors)]
    with pytest.raises(Refused) as refused:
        await client.submit(SPEC)
    assert str(refused.value.problem.errors[0]) == "resources.memory: no unit (got 64); 64GiB"


async def test_a_page_of_a_proxy_is_one_line(client: Client, server: SpeakingServer) -> None:
    server.faults = [lambda _: web.Response(status=403, text="<html>" + "x" * 9000)]
    with pytest.raises(Refused) as refused:
        await client.status()
    assert refused.value.text == "403 Forbidden"


async def test_an_answer_that_is_no_json_is_garbled(
    client: Client, server: SpeakingServer
) -> None:
    server.faults = [lambda _: web.Response(text="<html>hello")]
    with pytest.raises(Garbled):
        await client.status()


async def test_nothing_listening_is_said_with_the_reason() -> None:
    nobody = connect(Connection("http://127.0.0.1:1", TOKEN), Patience(total_s=0.2))
    async with nobody as client:
        with pytest.raises(NotReachable, match="127.0.0.1:1 cannot be reached: .+"):
            await client.status()


async def test_a_token_that_is_missing_is_told(server: SpeakingServer) -> None:
    async with connect(Connection(server.url), QUICK) as client:
        with pytest.raises(Refused, match="TRADEWIND_TOKEN"):
            await client.status()


async def test_pages_are_followed_up_to_the_limit(
    client: Client, server: SpeakingServer
) -> None:
    for number in range(700):
        job_id = f"j{number:016x}"
        server.jobs[job_id] = job_object(job_id)
    counts = [len(page) async for page, _ in all_jobs(client, 650)]
    assert counts == [500, 150]


async def test_blobs_go_once_and_come_back_checked(
    client: Client, server: SpeakingServer, tmp_path: Path
) -> None:
    file = tmp_path / "a.bin"
    file.write_bytes(b"hello" * 1000)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert await client.missing_blobs([digest]) == {digest}
    server.faults = [drop]
    await client.put_blob(Blob(digest, 5000, path=file))
    assert await client.missing_blobs([digest]) == set()
    back = io.BytesIO()
    assert await client.get_blob(digest, back) == 5000
    server.blobs[digest] = b"tampered"
    with pytest.raises(Garbled, match="damaged"):
        await client.get_blob(digest, io.BytesIO())


async def test_intents_and_what_is_missing(client: Client, server: SpeakingServer) -> None:
    server.jobs[JOB] = job_object()
    assert (await client.cancel(JOB, "by mistake"))["state"] == "cancelling"
    server.jobs[JOB] = ended(job_object())
    with pytest.raises(Refused) as refused:
        await client.cancel(JOB)
    assert refused.value.problem.status == 409
    with pytest.raises(Refused) as refused:
        await client.job("../../etc/passwd")
    assert refused.value.problem.status == 404


def test_log_headers_may_be_missing() -> None:
    assert log_range(Answer(200, {}, b"abc"), 5).total is None
    odd = {"X-Log-Offset": "-3", "X-Log-Total": "two", "X-Log-Complete": "maybe"}
    piece = log_range(Answer(200, odd, b"abc"), 5)
    assert (piece.offset, piece.total, piece.complete) == (5, None, False)
