"""Jobs over HTTP: submitted once, listed together, asked things of."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

from broker.control.closing_receipt import closing_receipt
from broker.feedback.ports import AttemptEntry, JobEntry, LedgerBatch
from broker.model.jobs import Attempt, AttemptPhase, Job, JobPhase, Outcome, OutcomeKind, Output
from broker.state import keys
from broker.state.codec import decode_job, encode_attempt, encode_job
from federation.ids import AttemptUid, Cluster, JobId, Tenant, make_job_id
from federation.kv import Delete, Put, Txn
from federation.tickets import admission_holds, spec_digest
from federation.wire import records as pb
from tests.integration.api.world import World

HELLO = {"run": "echo hello", "name": "hello", "labels": {"team": "red"}}


async def submit(world: World, **more: object) -> str:
    status, body, _ = await world.call("POST", "/v1/jobs", json={**HELLO, **more})
    assert status == 201, body
    return str(body["id"])


async def write(world: World, *ops: Put | Delete) -> None:
    result = await world.store.txn(Txn(then=ops))
    world.services.projection.fold_own(result.revision, ops)


async def set_job(world: World, job_id: str, **changes: object) -> Job:
    job = world.services.projection.job(job_id)
    assert job is not None
    job = replace(job, **changes)  # type: ignore[arg-type]
    await write(world, Put(keys.job(job_id), encode_job(job)))
    return job


def attempt_of(job_id: str, n: int = 1, **more: object) -> Attempt:
    plain = Attempt(
        uid=AttemptUid(f"{job_id}-{n}"),
        job=JobId(job_id),
        tenant=Tenant("default"),
        cluster=Cluster("east-1"),
        region="us-east",
        pool="h",
        epoch=1,
        dispatch_seq=1,
        ticket=b"t",
        placed_ms=1_800_000_000_000,
        accelerator="H100-80GB",
        accelerators_per_replica=2,
        cpus_milli_per_replica=4_000,
    )
    return replace(plain, **more)  # type: ignore[arg-type]


async def test_a_submitted_job_is_durable_sealed_and_visible_at_once(world: World) -> None:
    status, body, response = await world.call("POST", "/v1/jobs", json=HELLO)
    assert status == 201
    job_id = body["id"]
    assert response.headers["Location"] == f"/v1/jobs/{job_id}"
    assert body["job"]["phase"] == "queued" and body["job"]["tenant"] == "default"
    assert body["job"]["reason"]["code"] == "undecided"
    spec = await world.store.get(keys.spec(job_id))
    assert spec is not None and await world.store.get(keys.job(job_id)) is not None
    record = pb.SpecRecord.FromString(spec.value)
    key = world.services.keyring.mac_key_of(record.kid)
    assert key is not None
    digest = spec_digest(record.spec)
    assert admission_holds(record.mac, key, job_id, "default", digest, "operator")
    assert json.loads(record.spec)["max_runtime"] == "1d"  # the tenant's default
    status, shown, _ = await world.call("GET", f"/v1/jobs/{job_id}")
    assert status == 200 and shown["spec"]["run"] == "echo hello"
    assert shown["labels"] == {"team": "red"}


async def test_the_same_key_twice_makes_one_job(world: World) -> None:
    headers = {"Idempotency-Key": "k-1"}
    calls = [world.call("POST", "/v1/jobs", json=HELLO, headers=headers) for _ in range(8)]
    answers = await asyncio.gather(*calls)
    assert len({body["id"] for _, body, _ in answers}) == 1
    assert sorted(status for status, _, _ in answers) == [200] * 7 + [201]
    assert len(world.services.projection.job_ids()) == 1
    replayed = [r.headers.get("Idempotent-Replayed") for s, _, r in answers if s == 200]
    assert replayed == ["true"] * 7
    other = {**HELLO, "run": "echo other"}
    status, body, _ = await world.call("POST", "/v1/jobs", json=other, headers=headers)
    assert status == 422 and body["code"] == "idempotency_conflict"


async def test_a_key_of_another_submitter_is_another_key(world: World) -> None:
    headers = {"Idempotency-Key": "k-1"}
    ada, bob = await world.token("red"), await world.token("red", subject="bob")
    first = await world.call("POST", "/v1/jobs", json=HELLO, headers=headers, token=ada)
    second = await world.call("POST", "/v1/jobs", json=HELLO, headers=headers, token=bob)
    assert (first[0], second[0]) == (201, 201) and first[1]["id"] != second[1]["id"]
    assert first[1]["job"]["tenant"] == "red"


async def test_a_batch_of_a_thousand_is_one_revision(world: World) -> None:
    jobs = [{"run": f"echo {n}", "name": f"n{n}"} for n in range(1000)]
    headers = {"Idempotency-Key": "b"}
    before = world.store.revision
    status, body, _ = await world.call(
        "POST", "/v1/jobs/batch", json={"jobs": jobs}, headers=headers
    )
    assert status == 201 and len(set(body["ids"])) == 1000
    assert world.store.revision == before + 1
    for index in (0, 500, 999):
        job = world.services.projection.job(body["ids"][index])
        assert job is not None and job.name == f"n{index}"
    again = await world.call("POST", "/v1/jobs/batch", json={"jobs": jobs}, headers=headers)
    assert again[0] == 200 and again[1]["ids"] == body["ids"]
    assert len(world.services.projection.job_ids()) == 1000


async def test_one_bad_job_of_a_batch_refuses_all_of_it(world: World) -> None:
    jobs = [HELLO, {**HELLO, "resources": {"memory": 4}}, HELLO]
    status, body, _ = await world.call("POST", "/v1/jobs/batch", json={"jobs": jobs})
    assert status == 422 and body["errors"][0]["path"] == "jobs[1].resources.memory"
    assert "GiB" in body["errors"][0]["remedy"]
    assert world.services.projection.job_ids() == []


async def test_what_this_version_does_not_do_is_refused_by_name(world: World) -> None:
    asked = {
        "kind": "service",
        "secrets": ["TOKEN"],
        "ports": [80],
        "inputs": [{"dataset": "d"}, {"uri": "s3://b/c"}],
        "checkpoint": {"path": "ckpt"},
        "on_disconnect": {"replace": True},
        "array": "0-9",
        "resources": {"isolation": "hard"},
        "outputs": [{"path": "a", "to": "s3://b/c"}],
    }
    status, body, _ = await world.call("POST", "/v1/jobs", json={**HELLO, **asked})
    assert status == 422
    assert {error["path"] for error in body["errors"]} == {
        "kind", "secrets", "ports", "inputs[0].dataset", "inputs[1].size",
        "inputs[1].regions", "checkpoint.path",
        "resources.isolation", "outputs",
    }  # fmt: skip
    assert all(error["remedy"] for error in body["errors"])


async def test_a_job_waits_only_for_jobs_that_its_submitter_can_see(world: World) -> None:
    first = await submit(world)
    job = await submit(world, depends_on=[first, {"job": first, "when": "ended"}])
    shown = (await world.call("GET", f"/v1/jobs/{job}"))[1]
    assert shown["reason"]["code"] == "dependency_pending"
    assert shown["reason"]["text"] == f"waits for {first} to succeed, {first} to end"
    assert shown["waits_for"][0] == {"job": first, "when": "succeeded"}
    unknown = "j0000000000000000"
    for missing, token in ((unknown, None), (first, await world.token("chemistry"))):
        status, body, _ = await world.call(
            "POST", "/v1/jobs", json={**HELLO, "depends_on": [missing]}, token=token
        )
        assert status == 422
        (error,) = body["errors"]
        assert error["path"] == "depends_on[0].job" and error["value"] == missing
        assert error["problem"] == "no such job"


async def test_limits_that_placement_understands_are_taken(world: World) -> None:
    placement = {
        "regions": ["us-east"], "clusters": ["east-1"], "avoid": ["west-1"],
        "user_region": "us-east", "max_rtt": {"to": "eu-west", "ms": 120}, "spot": True,
        "max_price_usd_per_accelerator_hour": 3, "budget_usd": 100, "max_start_delay": "10m",
    }  # fmt: skip
    job_id = await submit(world, placement=placement, deadline="12h", expected_runtime="30d")
    shown = (await world.call("GET", f"/v1/jobs/{job_id}"))[1]["spec"]
    assert shown["deadline"].endswith("Z")  # relative no more
    assert shown["max_runtime"] == "31d"  # not cut off after the default day


async def test_files_must_be_uploaded_first(world: World) -> None:
    spec = {**HELLO, "files": [{"path": "a.py", "sha256": "0" * 64, "bytes": 3}]}
    status, body, _ = await world.call("POST", "/v1/jobs", json=spec)
    assert status == 422 and body["errors"][0]["path"] == "files[0]"
    assert "PUT /v1/blobs/" in body["errors"][0]["remedy"]


async def test_foreign_jobs_do_not_exist(world: World) -> None:
    red, blue = await world.token("red"), await world.token("blue", subject="eve")
    _, body, _ = await world.call("POST", "/v1/jobs", json=HELLO, token=red)
    job_id = body["id"]
    for method, path in (
        ("GET", f"/v1/jobs/{job_id}"),
        ("GET", f"/v1/jobs/{job_id}/explain"),
        ("GET", f"/v1/jobs/{job_id}/logs"),
        ("GET", f"/v1/jobs/{job_id}/outputs"),
        ("GET", f"/v1/events?job={job_id}"),
        ("POST", f"/v1/jobs/{job_id}/cancel"),
        ("POST", f"/v1/jobs/{job_id}/hold"),
    ):
        assert (await world.call(method, path, token=blue))[0] == 404, path
        unknown = path.replace(job_id, "j0000000000000000")
        assert (await world.call(method, unknown, token=blue))[0] == 404, path
    assert (await world.call("GET", "/v1/jobs", token=blue))[1]["jobs"] == []
    assert (await world.call("GET", "/v1/jobs?tenant=red", token=blue))[1]["jobs"] == []
    status, body, _ = await world.call(
        "POST", "/v1/jobs", json={**HELLO, "tenant": "red"}, token=blue
    )
    assert status == 403 and body["code"] == "tenant_refused"


async def test_a_list_merges_live_and_ended_jobs_page_by_page(world: World) -> None:
    live = [await submit(world, name=f"live-{n}") for n in range(5)]
    now_ms = world.services.clock.now_ms()
    ended = [make_job_id(now_ms - 1_000_000 + n, n) for n in range(5)]
    entries = tuple(
        JobEntry(
            job=job_id, tenant="default", name=f"old-{n}", created_ms=now_ms - 1_000_000 + n,
            ended_ms=now_ms, outcome="succeeded" if n % 2 else "failed", clusters="east-1",
        )
        for n, job_id in enumerate(ended)
    )  # fmt: skip
    # For some minutes an ended job is in both places: it is listed once.
    both = replace(entries[0], job=live[0], created_ms=now_ms)
    await world.services.ledger.record(LedgerBatch(jobs=(*entries, both)))
    seen: list[str] = []
    cursor = ""
    for _ in range(9):
        _, page, _ = await world.call("GET", f"/v1/jobs?limit=3&cursor={cursor}")
        seen += [job["id"] for job in page["jobs"]]
        cursor = page["next_cursor"] or ""
        if not cursor:
            break
    assert seen == sorted([*live, *ended], reverse=True)
    assert "west-1 is silent since" in page["notes"][0]

    async def ids(query: str) -> set[str]:
        return {job["id"] for job in (await world.call("GET", f"/v1/jobs?{query}"))[1]["jobs"]}

    assert await ids("phase=queued") == set(live)
    assert await ids("outcome=failed") == {ended[0], ended[2], ended[4]}
    assert await ids("name=old-") == set(ended)
    assert await ids("label=team%3Dred") == set(live)
    assert await ids("cluster=east-1") == set(ended)
    assert await ids("tenant=nobody") == set()


async def test_an_ended_job_is_whole_after_it_left_etcd(world: World) -> None:
    job_id = await submit(world)
    spec = await world.store.get(keys.spec(job_id))
    assert spec is not None
    done = Outcome(OutcomeKind.SUCCEEDED)
    output = Output("out.bin", "a" * 64, 12, 0o644)
    attempt = attempt_of(
        job_id, phase=AttemptPhase.ENDED, outcome=done, outputs=(output,), nodes=("n1",),
        ended_ms=1_800_000_100_000, price_source="contract",
    )  # fmt: skip
    entry = AttemptEntry(
        uid=attempt.uid, job=job_id, tenant="default", cluster="east-1",
        placed_ms=attempt.placed_ms, ended_ms=attempt.ended_ms, outcome="succeeded",
    )  # fmt: skip
    closed = JobEntry(
        job=job_id, tenant="default", name="hello", created_ms=1, ended_ms=2,
        outcome="succeeded", spec_json=pb.SpecRecord.FromString(spec.value).spec,
    )  # fmt: skip
    await world.services.ledger.record(
        LedgerBatch(jobs=(closed,), attempts=(entry,), receipts=(closing_receipt(attempt),))
    )
    await write(world, Delete(keys.job(job_id)), Delete(keys.spec(job_id)))
    _, shown, _ = await world.call("GET", f"/v1/jobs/{job_id}")
    assert shown["phase"] == "ended" and shown["outcome"]["kind"] == "succeeded"
    assert shown["spec"]["run"] == "echo hello"
    assert shown["attempts"][0]["nodes"] == ["n1"]
    assert shown["attempts"][0]["price_source"] == "contract"
    _, files, _ = await world.call("GET", f"/v1/jobs/{job_id}/outputs")
    assert files["outputs"][0]["path"] == "out.bin"
    assert (await world.call("POST", f"/v1/jobs/{job_id}/cancel"))[0] == 409
    _, told, _ = await world.call("GET", f"/v1/jobs/{job_id}/explain")
    assert told["phase"] == "ended" and told["summary"] == "succeeded"


async def test_earlier_attempts_come_from_the_ledger_beside_the_live_one(world: World) -> None:
    job_id = await submit(world)
    live = attempt_of(job_id, 2)
    await write(world, Put(keys.attempt("east-1", live.uid), encode_attempt(live)))
    entry = AttemptEntry(
        uid=f"{job_id}-1", job=job_id, tenant="default", cluster="west-1", placed_ms=1,
        ended_ms=2, outcome="lost",
    )  # fmt: skip
    await world.services.ledger.record(LedgerBatch(attempts=(entry,)))
    _, shown, _ = await world.call("GET", f"/v1/jobs/{job_id}")
    assert [(a["uid"], a["phase"]) for a in shown["attempts"]] == [
        (f"{job_id}-1", "ended"), (f"{job_id}-2", "placed"),
    ]  # fmt: skip
    assert shown["attempts"][1]["accelerators"] == 2 and shown["attempts"][1]["cpus"] == 4


async def test_results_of_a_superseded_attempt_are_none_of_the_job(world: World) -> None:
    job_id = await submit(world)
    done = Outcome(OutcomeKind.SUCCEEDED)
    for number, superseded_ms in ((1, 1_800_000_050_000), (2, 0)):
        output = Output("out.bin", str(number) * 64, 12, 0o644)
        attempt = attempt_of(
            job_id, number, phase=AttemptPhase.ENDED, outcome=done, outputs=(output,),
            ended_ms=1_800_000_100_000, superseded_ms=superseded_ms, fence_after_s=600,
        )  # fmt: skip
        await write(world, Put(keys.attempt("east-1", attempt.uid), encode_attempt(attempt)))
    _, shown, _ = await world.call("GET", f"/v1/jobs/{job_id}")
    assert [bool(a["superseded_at"]) for a in shown["attempts"]] == [True, False]
    _, files, _ = await world.call("GET", f"/v1/jobs/{job_id}/outputs")
    assert [f["sha256"] for f in files["outputs"]] == ["2" * 64]


async def test_intents_are_durable_and_refused_after_the_end(world: World) -> None:
    job_id = await submit(world)

    async def ask(verb: str, **more: Any) -> int:
        return (await world.call("POST", f"/v1/jobs/{job_id}/{verb}", **more))[0]

    assert await ask("hold") == 202
    assert world.services.projection.intent(job_id)[0].hold
    assert await ask("release") == 202
    assert (await world.call("PATCH", f"/v1/jobs/{job_id}", json={"priority": 7}))[0] == 202
    assert await ask("cancel", json={"why": "wrong data"}) == 202
    assert await ask("cancel") == 202
    intent, _ = world.services.projection.intent(job_id)
    assert (intent.cancel, intent.hold, intent.priority, intent.why) == (
        True, False, 7, "wrong data",
    )  # fmt: skip
    await set_job(world, job_id, phase=JobPhase.RUNNING)
    assert await ask("hold") == 409
    ended = Outcome(OutcomeKind.SUCCEEDED)
    await set_job(world, job_id, phase=JobPhase.ENDED, outcome=ended)
    assert await ask("cancel") == 409
    assert (await world.call("PATCH", f"/v1/jobs/{job_id}", json={"priority": 7}))[0] == 409


async def test_a_cancel_never_beats_an_end_the_replica_has_not_seen(world: World) -> None:
    job_id = await submit(world)
    kv = await world.store.get(keys.job(job_id))
    assert kv is not None
    ended = replace(decode_job(kv.key, kv.value), phase=JobPhase.ENDED)
    # Straight into the store, in the same tick: the projection still says queued.
    await world.store.txn(Txn(then=(Put(kv.key, encode_job(ended)),)))
    seen = world.services.projection.job(job_id)
    assert seen is not None and seen.phase is JobPhase.QUEUED
    status, body, _ = await world.call("POST", f"/v1/jobs/{job_id}/cancel")
    assert status == 409 and body["code"] == "already_ended"


async def test_plan_stores_nothing_and_explain_answers(world: World) -> None:
    before = world.store.revision
    status, told, _ = await world.call("POST", "/v1/plan", json=HELLO)
    assert status == 200 and told["candidates"][0]["cluster"] == "east-1"
    assert world.store.revision == before
    job_id = await submit(world)
    status, told, _ = await world.call("GET", f"/v1/jobs/{job_id}/explain")
    assert status == 200 and told["job"] == job_id and told["phase"] == "queued"


async def test_a_tenants_limits_are_filled_in_and_kept(world: World) -> None:
    limits = {"default_max_runtime": "2h", "max_runtime": "3h"}
    assert (await world.call("PUT", "/v1/tenants/red", json=limits))[0] == 200
    job_id = await submit(world, tenant="red")
    assert (await world.call("GET", f"/v1/jobs/{job_id}"))[1]["spec"]["max_runtime"] == "2h"
    spec = {**HELLO, "tenant": "red", "max_runtime": "4h"}
    status, body, _ = await world.call("POST", "/v1/jobs", json=spec)
    assert status == 422 and body["errors"][0]["path"] == "max_runtime"
    status, body, _ = await world.call("POST", "/v1/jobs", json={**HELLO, "tenant": "rde"})
    assert status == 422 and "red" in body["errors"][0]["remedy"]
