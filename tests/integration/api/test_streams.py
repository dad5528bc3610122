"""Events and logs as streams; blobs; how sites come in."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from broker.api.services import ApiSettings
from broker.model.jobs import AttemptPhase, JobPhase, Outcome, OutcomeKind
from broker.state import keys
from broker.state.codec import encode_attempt
from federation.certificates import ca_hash, make_csr, new_key, prove
from federation.kv import Put, Txn
from federation.tickets import Ticket, sign_ticket, ticket_header
from tests.integration.api.test_jobs import HELLO, attempt_of, set_job, submit, write
from tests.integration.api.world import World, running


class Sse:
    """What a client sees of a stream: (event, id, data)."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def next(self) -> tuple[str, str, dict[str, object]]:
        fields: dict[str, str] = {}
        async with asyncio.timeout(5):
            async for raw in self.response.content:
                line = raw.decode().rstrip("\n")
                if line == "" and "event" in fields:
                    return fields["event"], fields.get("id", ""), json.loads(fields["data"])
                name, _, value = line.partition(": ")
                if name:
                    fields[name] = value
        raise EOFError

    async def until(self, event: str) -> dict[str, object]:
        while True:
            name, _, data = await self.next()
            if name == event:
                return data


@asynccontextmanager
async def stream(world: World, path: str, token: str = "", **headers: str) -> AsyncIterator[Sse]:
    sent = {
        "Authorization": f"Bearer {token or world.operator}",
        "Accept": "text/event-stream",
        **headers,
    }
    async with world.session.get(world.url + path, headers=sent) as response:
        assert response.status == 200, await response.read()
        assert response.content_type == "text/event-stream"
        yield Sse(response)


# Events -------------------------------------------------------------------------------------------


async def test_events_come_in_order_and_go_on_after_the_last_id(world: World) -> None:
    async with stream(world, "/v1/events") as sse:
        job_id = await submit(world)
        name, first_id, data = await sse.next()
        assert (name, data["id"], data["phase"]) == ("job", job_id, "queued")
        await set_job(world, job_id, phase=JobPhase.PLACED)
        attempt = attempt_of(job_id)
        await write(world, Put(keys.attempt("east-1", attempt.uid), encode_attempt(attempt)))
        assert (await sse.next())[2]["phase"] == "placed"
        name, last_id, data = await sse.next()
        assert (name, data["cluster"]) == ("attempt", "east-1")
    revision, place = first_id.split(".")
    assert int(revision) > 0 and int(place) >= 0
    # From the ring, by parameter and by header.
    async with stream(world, f"/v1/events?since={first_id}") as sse:
        assert (await sse.next())[2]["phase"] == "placed"
    async with stream(world, "/v1/events", **{"Last-Event-ID": first_id}) as sse:
        assert (await sse.next())[2]["phase"] == "placed"
        assert (await sse.next())[1] == last_id


async def test_events_of_a_batch_have_places_within_one_revision(world: World) -> None:
    async with stream(world, "/v1/events") as sse:
        jobs = {"jobs": [HELLO, HELLO, HELLO]}
        assert (await world.call("POST", "/v1/jobs/batch", json=jobs))[0] == 201
        ids = [(await sse.next())[1] for _ in range(3)]
    revisions, places = zip(*(tuple(map(int, i.split("."))) for i in ids), strict=True)
    assert len(set(revisions)) == 1 and len(set(places)) == 3
    async with stream(world, f"/v1/events?since={ids[1]}") as sse:
        assert (await sse.next())[1] == ids[2]


async def test_events_older_than_this_replica_come_from_the_store(tmp_path: Path) -> None:
    async with running(tmp_path, ApiSettings(events_kept=4)) as world:
        ids = [await submit(world, name=f"n{n}") for n in range(12)]
        async with stream(world, "/v1/events?since=1.0") as sse:
            seen: list[object] = []
            while len(seen) < 12:
                name, _, data = await sse.next()
                seen += [data["id"]] if name == "job" else []
            assert seen == ids
            late = await submit(world, name="late")
            assert (await sse.until("job"))["id"] == late


async def test_a_compacted_past_is_told_by_one_reset(world: World) -> None:
    await submit(world)
    await submit(world)
    await world.store.compact(world.store.revision)
    # Older than what the hub holds: only the store could tell, and it forgot.
    async with stream(world, "/v1/events?since=1.0") as sse:
        name, event_id, _ = await sse.next()
        assert name == "reset"
        job_id = await submit(world)
        name, later_id, data = await sse.next()
        assert (name, data["id"]) == ("job", job_id)
        assert int(later_id.split(".")[0]) > int(event_id.split(".")[0])


async def test_users_hear_of_their_own_jobs_only(world: World) -> None:
    red = await world.token("red")
    async with stream(world, "/v1/events", token=red) as sse:
        await submit(world)  # of the default tenant
        _, body, _ = await world.call("POST", "/v1/jobs", json=HELLO, token=red)
        assert (await sse.next())[2]["id"] == body["id"]


async def test_a_stream_says_that_it_is_alive_and_ends_with_the_server(tmp_path: Path) -> None:
    async with running(tmp_path, ApiSettings(sse_keepalive_s=0.05)) as world:
        opened = stream(world, "/v1/events")
        sse = await opened.__aenter__()
        assert (await sse.response.content.readline()).startswith(b": ")
    # `running` returned: the server did not wait for the client to go away.


async def test_streams_are_bounded(tmp_path: Path) -> None:
    few = ApiSettings(streams_max=1, sse_keepalive_s=0.05)
    async with running(tmp_path, few) as world, stream(world, "/v1/events") as sse:
        await sse.response.content.readline()
        status, _, response = await world.call("GET", "/v1/events")
        assert status == 503 and response.headers["Retry-After"]


# Logs ---------------------------------------------------------------------------------------------


async def test_a_log_is_followed_over_attempts_to_the_end(world: World) -> None:
    job_id = await submit(world)
    first, second = attempt_of(job_id, 1), attempt_of(job_id, 2)
    async with stream(world, f"/v1/jobs/{job_id}/logs?follow=true") as sse:
        assert (await sse.until("waiting"))["text"]
        await write(world, Put(keys.attempt("east-1", first.uid), encode_attempt(first)))
        world.control.logs[first.uid, "output"] = b"one\n"
        data = await sse.until("log")
        assert (data["attempt"], data["offset"], data["text"]) == (first.uid, 0, "one\n")
        world.control.logs[first.uid, "output"] += b"two\n\xff"
        data = await sse.until("log")
        assert data["offset"] == 4
        assert base64.b64decode(str(data["data_base64"])) == b"two\n\xff"
        world.control.complete.add((first.uid, "output"))
        world.control.logs[second.uid, "output"] = b"again\n"
        world.control.complete.add((second.uid, "output"))
        await write(world, Put(keys.attempt("east-1", second.uid), encode_attempt(second)))
        data = await sse.until("log")
        assert (data["attempt"], data["offset"], data["text"]) == (second.uid, 0, "again\n")
        ended = Outcome(OutcomeKind.FAILED, exit_code=3)
        await set_job(world, job_id, phase=JobPhase.ENDED, outcome=ended)
        data = await sse.until("end")
        assert data == {"phase": "ended", "outcome": "failed", "exit_code": 3}
        assert await sse.response.content.read() == b""


async def test_a_piece_of_a_log_is_bytes_with_its_place(world: World) -> None:
    job_id = await submit(world)
    attempt = attempt_of(job_id, phase=AttemptPhase.RUNNING)
    await write(world, Put(keys.attempt("east-1", attempt.uid), encode_attempt(attempt)))
    world.control.logs[attempt.uid, "task-3"] = b"0123456789"
    world.control.complete.add((attempt.uid, "task-3"))
    path = f"/v1/jobs/{job_id}/logs?task=3&offset=4&limit=3"
    status, body, response = await world.call("GET", path)
    assert (status, body) == (200, b"456")
    assert response.headers["X-Log-Offset"] == "4" and response.headers["X-Log-Total"] == "10"
    assert response.headers["X-Log-Complete"] == "false"
    status, body, response = await world.call("GET", path.replace("offset=4", "offset=8"))
    assert body == b"89" and response.headers["X-Log-Complete"] == "true"
    assert (await world.call("GET", f"/v1/jobs/{job_id}/logs?attempt=9"))[0] == 404


# Blobs --------------------------------------------------------------------------------------------


async def test_blobs_are_read_by_grant_not_by_digest(world: World) -> None:
    red, blue = await world.token("red"), await world.token("blue", subject="eve")
    data = b"secret code"
    sha256 = hashlib.sha256(data).hexdigest()
    path = f"/v1/blobs/{sha256}"
    assert (await world.call("PUT", path, data=data, token=red))[0] == 201
    assert (await world.call("PUT", path, data=data, token=red))[0] == 200
    status, body, response = await world.call("GET", path, token=red)
    assert (status, body) == (200, data)
    assert (await world.call("HEAD", path, token=red))[2].headers["Content-Length"] == "11"
    status, body, response = await world.call("GET", path, token=red, headers={"Range": "bytes=7-"})
    assert (status, body) == (206, b"code")
    assert response.headers["Content-Range"] == "bytes 7-10/11"
    assert (await world.call("GET", path, token=blue))[0] == 404
    assert (await world.call("HEAD", path, token=blue))[0] == 404
    asked = {"sha256": [sha256, "0" * 64]}
    _, body, _ = await world.call("POST", "/v1/blobs/missing", json=asked, token=red)
    assert body["missing"] == ["0" * 64]
    _, body, _ = await world.call("POST", "/v1/blobs/missing", json=asked, token=blue)
    assert body["missing"] == [sha256, "0" * 64]
    # Who has the content himself may have it.
    assert (await world.call("PUT", path, data=data, token=blue))[0] == 201
    wrong = await world.call("PUT", f"/v1/blobs/{'0' * 64}", data=data, token=red)
    assert wrong[0] == 400 and sha256 in wrong[1]["errors"][0]["remedy"]
    refused = await world.call("PUT", f"{path}?tenant=blue", data=data, token=red)
    assert refused[0] == 403


async def test_more_than_a_megabyte_goes_up_as_a_blob(world: World) -> None:
    data = bytes(range(256)) * 12_000
    sha256 = hashlib.sha256(data).hexdigest()
    assert (await world.call("PUT", f"/v1/blobs/{sha256}", data=data))[0] == 201
    assert (await world.call("GET", f"/v1/blobs/{sha256}"))[1] == data
    too_large = {"Content-Length": str(65 << 20), "Authorization": f"Bearer {world.operator}"}
    url = world.url + f"/v1/blobs/{'1' * 64}"
    async with world.session.put(url, data=b"x", headers=too_large, expect100=True) as refused:
        assert refused.status == 413


async def test_a_ticket_opens_the_inputs_and_takes_the_results_of_its_attempt(
    world: World,
) -> None:
    code = b"print(42)"
    sha256 = hashlib.sha256(code).hexdigest()
    await world.call("PUT", f"/v1/blobs/{sha256}", data=code)
    await world.call("PUT", f"/v1/blobs/{hashlib.sha256(b'other').hexdigest()}", data=b"other")
    files = [{"path": "a.py", "sha256": sha256, "bytes": len(code)}]
    job_id = await submit(world, files=files)
    attempt = attempt_of(job_id, phase=AttemptPhase.RUNNING)
    await write(world, Put(keys.attempt("east-1", attempt.uid), encode_attempt(attempt)))
    signer = world.services.keyring.signer
    # Long expired: results of a job that ran for days come back under it all the same.
    ticket = Ticket(attempt.uid, job_id, 1, "east-1", "default", "operator", "0" * 64, 1)

    async def call(method: str, path: str, raw: bytes, **more: object) -> int:
        headers = {"Authorization": ticket_header(raw)}
        return (await world.call(method, path, token="", headers=headers, **more))[0]

    raw = sign_ticket(ticket, signer)
    assert await call("GET", f"/v1/blobs/{sha256}", raw) == 200
    assert await call("GET", f"/v1/blobs/{hashlib.sha256(b'other').hexdigest()}", raw) == 404
    result = hashlib.sha256(b"result").hexdigest()
    assert await call("PUT", f"/v1/blobs/{result}", raw, data=b"result") == 201
    assert (await world.call("GET", f"/v1/blobs/{result}"))[1] == b"result"
    assert await call("GET", f"/v1/jobs/{job_id}", raw) == 401  # blobs, and nothing else
    forged = raw[:-1] + bytes([raw[-1] ^ 1])
    assert await call("GET", f"/v1/blobs/{sha256}", forged) == 401
    foreign = sign_ticket(
        Ticket(attempt.uid, job_id, 1, "west-1", "default", "operator", "0" * 64, 1), signer
    )
    assert await call("GET", f"/v1/blobs/{sha256}", foreign) == 401
    await world.store.txn(
        Txn(then=(Put(keys.attempt("east-1", attempt.uid), b""),))
    )  # no longer readable: the attempt is not known here any more
    for _ in range(20):
        if await call("GET", f"/v1/blobs/{sha256}", raw) == 401:
            break
        await asyncio.sleep(0.01)
    assert await call("GET", f"/v1/blobs/{sha256}", raw) == 401


async def test_a_ticket_to_prepare_opens_the_inputs_for_its_time_and_takes_nothing(
    world: World,
) -> None:
    code = b"print(43)"
    sha256 = hashlib.sha256(code).hexdigest()
    await world.call("PUT", f"/v1/blobs/{sha256}", data=code)
    job_id = await submit(world, files=[{"path": "a", "sha256": sha256, "bytes": len(code)}])
    signer, now_ms = world.services.keyring.signer, world.services.clock.now_ms()

    def ticket(not_after_ms: int, job: str = job_id) -> dict[str, str]:
        made = Ticket(f"{job}-0", job, 1, "east-1", "default", "me", "0" * 64, not_after_ms)
        return {"Authorization": ticket_header(sign_ticket(made, signer))}

    async def call(method: str, sha: str, headers: dict[str, str], **more: object) -> int:
        path = f"/v1/blobs/{sha}"
        return (await world.call(method, path, token="", headers=headers, **more))[0]

    good = ticket(now_ms + 60_000)
    assert await call("GET", sha256, good) == 200
    assert await call("GET", hashlib.sha256(b"other").hexdigest(), good) == 404
    result = hashlib.sha256(b"result").hexdigest()
    assert await call("PUT", result, good, data=b"result") == 401
    assert await call("GET", sha256, ticket(now_ms - 1)) == 401
    assert await call("GET", sha256, ticket(now_ms + 60_000, "j" + "0" * 16)) == 401


# Joining and the fleet ----------------------------------------------------------------------------


async def test_a_site_is_invited_joins_renews_and_is_removed(world: World) -> None:
    body = {"name": "east-2", "region": "us-east", "ttl": "1h"}
    status, invitation, _ = await world.call("POST", "/v1/clusters/invite", json=body)
    assert status == 201 and invitation["token"] in invitation["command"]
    _, ca, _ = await world.call("GET", "/v1/ca", token="")
    assert ca["ca_hash"] == ca_hash(ca["ca_pem"].encode())
    assert f"--ca-hash {ca['ca_hash']}" in invitation["command"]
    key = new_key()
    csr = make_csr(key, "east-2").decode()
    asked = {"token": invitation["token"], "csr": csr}
    status, signed, _ = await world.call("POST", "/v1/enrol", json=asked, token="")
    assert status == 200 and signed["cluster"] == "east-2"
    other = {"token": invitation["token"], "csr": make_csr(new_key(), "east-2").decode()}
    status, refused, _ = await world.call("POST", "/v1/enrol", json=other, token="")
    assert status == 409 and refused["code"] == "token_used" and refused["detail"]
    wrong = {"token": "tw-join_nothing", "csr": csr}
    assert (await world.call("POST", "/v1/enrol", json=wrong, token=""))[0] == 403
    certificate = signed["certificate_pem"]
    check = {"certificate": certificate}
    assert (await world.call("POST", "/v1/session-check", json=check, token=""))[1]["ok"]
    next_csr = make_csr(new_key(), "east-2")
    proof = base64.b64encode(prove(key, next_csr)).decode()
    renewal = {"certificate": certificate, "csr": next_csr.decode(), "proof": proof}
    assert (await world.call("POST", "/v1/renew", json=renewal, token=""))[0] == 200
    assert (await world.call("POST", "/v1/clusters/east-2/drain"))[0] == 202
    assert (await world.call("POST", "/v1/clusters/east-2/remove"))[0] == 202
    assert (await world.call("POST", "/v1/clusters/east-9/remove"))[0] == 404
    _, verdict, _ = await world.call("POST", "/v1/session-check", json=check, token="")
    assert not verdict["ok"] and verdict["reason"]
    assert (await world.call("POST", "/v1/renew", json=renewal, token=""))[0] == 403


async def test_the_fleet_is_shown_with_ages_and_what_is_unknown(world: World) -> None:
    _, body, _ = await world.call("GET", "/v1/clusters")
    east, west = body["clusters"]
    assert east["connected"] and east["capacity_age_s"] >= 3
    pool = east["pools"][0]
    assert (pool["total"], pool["free"], pool["price_usd_per_accelerator_hour"]) == (16, 10, 2.49)
    assert west["silent_since_at"] and west["capacity_age_s"] is None and west["pools"] == []
    assert (await world.call("GET", "/v1/clusters/east-1"))[1]["name"] == "east-1"
    assert (await world.call("GET", "/v1/clusters/nowhere"))[0] == 404
    _, body, _ = await world.call("GET", "/v1/prices")
    assert body["prices"][0]["source"] == "contract" and body["prices"][0]["age_s"] >= 60
    _, body, _ = await world.call("GET", "/v1/latency")
    trips = {(t["from"], t["to"]): t for t in body["round_trips"]}
    assert trips["us-east", "eu-west"]["rtt_ms"] == 81.5
    assert trips["eu-west", "us-east"]["source"] == "unknown"
    near, far = body["data_rates"]
    assert (near["from_region"], near["to_region"], near["cluster"]) == (
        "eu-west", "us-east", "east-1",
    )  # fmt: skip
    assert (near["gbps"], near["readings"], near["flagged"]) == (0.04, 9, None)
    assert near["age_s"] >= 60 and (far["gbps"], far["flagged"]) == (None, "nothing came")
    _, body, _ = await world.call("GET", "/v1/status")
    assert body["leader"]["name"] == "broker-1" and body["epoch"] == 4 and body["queued"] == 3
    assert (await world.call("GET", "/v1/usage"))[1]["usage"] == []
    status, _, _ = await world.call(
        "GET", "/v1/usage?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z"
    )
    assert status == 400
