"""Policies over REST: written by operators, versioned, read by those whom they concern."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.integration.api.world import World

FIRST = "name: eu\nrequire:\n  regions: [eu-west]\n"
SECOND = "name: eu\nmatch: {tenants: [clinic, physics]}\nrequire: {regions: [eu-north]}\n"


async def put(world: World, source: str, name: str = "eu", **more: Any) -> tuple[int, Any]:
    body = {"source": source, **more.pop("body", {})}
    status, answer, _ = await world.call("PUT", f"/v1/policies/{name}", json=body, **more)
    return status, answer


async def test_a_policy_is_written_shown_and_kept(world: World) -> None:
    status, made = await put(world, FIRST, body={"why": "the law"})
    assert (status, made["version"], made["unchanged"]) == (200, 1, False)
    assert made["require"]["regions"] == ["eu-west"] and made["match"] is None
    status, again = await put(world, FIRST)
    assert (again["version"], again["unchanged"]) == (1, True)
    assert (await put(world, SECOND))[1]["version"] == 2
    _, old, _ = await world.call("GET", "/v1/policies/eu?version=1")
    assert (old["source"], old["in_force"], old["why"]) == (FIRST, False, "the law")
    status, back, _ = await world.call("POST", "/v1/policies/eu/rollback", json={"to": 1})
    assert (status, back["version"], back["restores"], back["source"]) == (200, 3, 1, FIRST)
    _, told, _ = await world.call("GET", "/v1/policies/eu/history")
    assert [(v["version"], v["in_force"], v["restores"]) for v in told["versions"]] == [
        (3, True, 1), (2, False, None), (1, False, None),
    ]  # fmt: skip
    _, listed, _ = await world.call("GET", "/v1/policies")
    assert [p["version"] for p in listed["policies"]] == [3]


async def test_faults_carry_line_and_column(world: World) -> None:
    status, body = await put(world, "name: eu\nrequire:\n  regons: [a]\nspot: perhaps\n")
    assert (status, body["code"]) == (422, "invalid_policy")
    assert [(e["line"], e["column"], e["path"]) for e in body["errors"]] == [
        (3, 3, "require.regons"), (4, 7, "spot"),
    ]  # fmt: skip
    assert "did you mean `regions`?" in body["errors"][0]["remedy"]
    status, body = await put(world, FIRST, name="us")
    assert status == 422 and "PUT it to /v1/policies/eu" in body["errors"][0]["remedy"]
    assert (await world.call("GET", "/v1/policies"))[1]["policies"] == []


async def test_two_writers_do_not_overwrite_each_other(world: World) -> None:
    assert (await put(world, FIRST, body={"expect_version": 1}))[0] == 409
    assert (await put(world, FIRST, body={"expect_version": 0}))[0] == 200
    status, body = await put(world, SECOND, body={"expect_version": 0})
    assert (status, body["code"]) == (409, "version_conflict") and "version 1" in body["detail"]
    answers = await asyncio.gather(
        *(put(world, f"{FIRST}priority: {n}\n") for n in range(1, 9))
    )
    assert sorted(answer["version"] for _, answer in answers) == list(range(2, 10))


async def test_users_read_what_concerns_them_and_write_nothing(world: World) -> None:
    await put(world, SECOND)
    await put(world, "name: other\nmatch: {tenants: [clinic]}\n", name="other")
    ada = await world.token("physics")
    _, listed, _ = await world.call("GET", "/v1/policies", token=ada)
    (only,) = listed["policies"]
    assert only["match"]["tenants"] == ["physics"] and only["source"] is None
    assert (await world.call("GET", "/v1/policies/other", token=ada))[0] == 404
    assert (await world.call("GET", "/v1/policies/other/history", token=ada))[0] == 404
    assert (await put(world, FIRST, token=ada))[0] == 403
    for path, body in (("eu/rollback", {"to": 1}), ("test", {"source": FIRST})):
        status, _, _ = await world.call("POST", f"/v1/policies/{path}", token=ada, json=body)
        assert status == 403


async def test_what_is_not_there_is_not_found(world: World) -> None:
    await put(world, FIRST)
    for method, path, body in (
        ("GET", "us", None), ("GET", "eu?version=9", None), ("GET", "us/history", None),
        ("POST", "eu/rollback", {"to": 9}), ("POST", "us/rollback", {"to": 1}),
    ):  # fmt: skip
        more = {} if body is None else {"json": body}
        assert (await world.call(method, f"/v1/policies/{path}", **more))[0] == 404, path


async def test_a_job_under_a_policy(world: World) -> None:
    await put(world, FIRST)
    job = {"run": "true", "placement": {"policy": "eu"}}
    assert (await world.call("POST", "/v1/jobs", json=job))[0] == 201
    job["placement"] = {"policy": "eu", "regions": ["us-east"]}
    status, body, _ = await world.call("POST", "/v1/jobs", json=job)
    assert (status, body["code"]) == (422, "invalid_job")
    assert body["errors"][0]["path"] == "placement.regions"
    assert "the job allows us-east, policy eu@1 allows eu-west" in body["errors"][0]["problem"]
    await put(world, SECOND)
    job["placement"] = {"policy": "eu@1"}
    status, body, _ = await world.call("POST", "/v1/jobs", json=job)
    assert status == 422 and "version 2 of this policy is in force" in body["errors"][0]["problem"]
