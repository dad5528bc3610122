"""The Python client against the API, over TLS with the federation's own CA."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest

from broker.client.client import Client
from broker.client.configuration import Connection
from broker.client.errors import NotReachable, Refused
from broker.client.following import LogChoice, LogEnd, LogPiece, follow_log, wait_for_jobs
from broker.client.transport import Transport
from broker.model.jobs import AttemptPhase, JobPhase, Outcome, OutcomeKind
from broker.state import keys
from broker.state.codec import encode_attempt
from federation.jobs import parse_job_file
from federation.kv import Put
from federation.system import SystemIds, SystemRng
from tests.integration.api.test_jobs import attempt_of, set_job, write
from tests.integration.api.world import running


async def test_submit_follow_wait_and_fetch(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print(42)")
    async with running(tmp_path, tls=True) as world:
        connection = Connection(world.url, world.operator, tmp_path / "ca.pem")
        async with Client(Transport(connection, SystemRng()), SystemIds()) as client:
            job = parse_job_file({"run": "python a.py", "files": ["a.py"]})
            taken = await client.submit_file(job, tmp_path, "key-1")
            again = await client.submit_file(job, tmp_path, "key-1")
            assert (again.id, again.replayed) == (taken.id, True)
            attempt = attempt_of(taken.id, phase=AttemptPhase.RUNNING)
            await write(world, Put(keys.attempt("east-1", attempt.uid), encode_attempt(attempt)))
            world.control.logs[attempt.uid, "output"] = b"42\n"
            world.control.complete.add((attempt.uid, "output"))

            async def end_it() -> None:
                await asyncio.sleep(0.2)
                ended = Outcome(OutcomeKind.SUCCEEDED)
                await set_job(world, taken.id, phase=JobPhase.ENDED, outcome=ended)

            ending = asyncio.create_task(end_it())
            waited = asyncio.create_task(wait_for_jobs(client, [taken.id], 10))
            told = [event async for event in follow_log(client, LogChoice(taken.id))]
            assert [e.data for e in told if isinstance(e, LogPiece)] == [b"42\n"]
            end = told[-1]
            assert isinstance(end, LogEnd) and end.outcome is not None
            assert end.outcome["kind"] == "succeeded"
            await ending
            assert (await waited)[taken.id]["outcome"]["kind"] == "succeeded"
            (file,) = (await client.job(taken.id))["spec"]["files"]
            into = io.BytesIO()
            await client.get_blob(file["sha256"], into)
            assert into.getvalue() == b"print(42)"
            with pytest.raises(Refused):
                await client.cancel(taken.id)


async def test_a_client_that_does_not_know_our_ca_sends_no_token(tmp_path: Path) -> None:
    async with running(tmp_path, tls=True) as world:
        connection = Connection(world.url, world.operator)
        async with Client(Transport(connection, SystemRng()), SystemIds()) as client:
            with pytest.raises(NotReachable):
                await client.whoami()
