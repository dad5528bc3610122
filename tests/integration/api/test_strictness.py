"""Bad input of every kind is a 4xx that names the field and the remedy; the broker lives on."""

from __future__ import annotations

import json

import pytest

from federation.kv import StoreUnavailable
from tests.integration.api.world import World

JSON = {"Content-Type": "application/json"}
HELLO = b'{"run": "echo hello"}'


@pytest.mark.parametrize(
    ("data", "status", "path"),
    [
        (b"", 400, "body"),
        (b"{", 400, "body"),
        (b"[1, 2", 400, "body"),
        (b'"text"', 422, ""),
        (b"[]", 422, ""),
        (b"null", 422, ""),
        (b'{"run": "a", "run": "b"}', 400, "run"),
        (b'{"run": "a", "env": {"A": "1", "A": "2"}}', 400, "A"),
        (b'{"run": "a", "priority": NaN}', 400, "priority"),
        (b'{"run": "a", "priority": Infinity}', 400, "priority"),
        (b'{"run": "a", "priority": -Infinity}', 400, "priority"),
        (b'{"run": "a", "priority": 1e999}', 400, "priority"),
        (b'{"run": "a", "priority": ' + b"9" * 5000 + b"}", 400, "body"),
        (b'{"run": "a", "priority": ' + b"9" * 300 + b"}", 422, "priority"),
        (b'{"run": "\xff\xfe"}', 400, "body"),
        (b'{"run": "\\ud800"}', 400, "body"),
        (b'{"run": "a\\u0000b"}', 422, "run"),
        (b"[" * 100_000, 400, "body"),
        (b'{"labels": ' + b'{"a":' * 40 + b"1" + b"}" * 40 + b"}", 400, "body"),
        (b'{"run": "a", "resorces": {}}', 422, "resorces"),
        (b'{"run": "a", "resources": {"memory": 64}}', 422, "resources.memory"),
        (b'{"run": "a", "resources": {"memory": "64"}}', 422, "resources.memory"),
        (b'{"run": "a", "resources": {"memory": "-4GiB"}}', 422, "resources.memory"),
        (b'{"run": "a", "resources": {"replicas": -1}}', 422, "resources.replicas"),
        (b'{"run": "a", "resources": {"cpus": 1e300}}', 422, "resources.cpus"),
        (b'{"run": "a", "max_runtime": "90"}', 422, "max_runtime"),
        (b'{"run": "a", "deadline": "2020-01-01T00:00:00Z"}', 422, "deadline"),
        (b'{"run": ["a"]}', 422, "run"),
        (b'{"run": "a", "command": ["b"]}', 422, ""),
    ],
)
async def test_bodies(world: World, data: bytes, status: int, path: str) -> None:
    for target in ("/v1/jobs", "/v1/plan"):
        got, body, response = await world.call("POST", target, data=data, headers=JSON)
        assert got == status, body
        assert response.content_type == "application/problem+json"
        assert body["status"] == status and body["request_id"] and body["detail"]
        assert body["request_id"] == response.headers["X-Request-Id"]
        assert body["errors"][0]["path"] == path and body["errors"][0]["remedy"]
    assert (await world.call("POST", "/v1/jobs", data=HELLO, headers=JSON))[0] == 201


async def test_an_unknown_key_gets_a_suggestion(world: World) -> None:
    data = b'{"run": "a", "resorces": {}}'
    _, body, _ = await world.call("POST", "/v1/jobs", data=data, headers=JSON)
    assert "resources" in body["errors"][0]["remedy"]


async def test_a_megabyte_of_nonsense(world: World) -> None:
    status, body, _ = await world.call("POST", "/v1/jobs", data=b"x" * 1_000_000, headers=JSON)
    assert status == 400
    status, body, _ = await world.call("POST", "/v1/jobs", data=b"x" * 3_000_000, headers=JSON)
    assert status == 413 and body["code"] == "body_too_large"


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-yaml", "application/json; charset=utf-16", "", "nonsense"],
)
async def test_media_types(world: World, content_type: str) -> None:
    headers = {"Content-Type": content_type}
    status, body, _ = await world.call("POST", "/v1/jobs", data=HELLO, headers=headers)
    assert status == 415 and body["errors"][0]["path"] == "Content-Type"


async def test_media_types_that_are_json(world: World) -> None:
    headers = {"Content-Type": "Application/JSON; Charset=UTF-8"}
    assert (await world.call("POST", "/v1/jobs", data=HELLO, headers=headers))[0] == 201


async def test_a_broken_encoding_is_a_400(world: World) -> None:
    headers = {**JSON, "Content-Encoding": "gzip"}
    status, body, _ = await world.call("POST", "/v1/jobs", data=b"no gzip", headers=headers)
    assert status == 400, body


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("limt=5", "limt"),
        ("limit=0", "limit"),
        ("limit=5000", "limit"),
        ("limit=five", "limit"),
        ("limit=1.0", "limit"),
        ("limit=1&limit=2", "limit"),
        ("phase=done", "phase"),
        ("tenant=Red", "tenant"),
        ("label=red", "label.0"),
        ("cursor=xyz", "cursor"),
        ("name=%00%ff", None),
    ],
)
async def test_queries(world: World, query: str, path: str | None) -> None:
    status, body, _ = await world.call("GET", f"/v1/jobs?{query}")
    assert status == (400 if path else 200), body
    if path:
        assert body["errors"][0]["path"] == path and body["errors"][0]["remedy"]


async def test_unknown_parameters_are_refused_everywhere(world: World) -> None:
    status, body, _ = await world.call("GET", "/v1/clusters?verbose=1")
    assert status == 400 and body["errors"][0]["path"] == "verbose"


async def test_unknown_paths_and_methods(world: World) -> None:
    assert (await world.call("GET", "/v1/job"))[0] == 404
    assert (await world.call("GET", "/v1/jobs/1"))[0] == 404
    status, body, response = await world.call("DELETE", "/v1/jobs")
    assert status == 405 and "GET" in response.headers["Allow"] and body["code"]


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("", "no token"),
        ("Basic abc", "Bearer"),
        ("Bearer ", "malformed"),
        ("Bearer tw_operator_short", "malformed"),
        ("Bearer tw_operator_" + "A" * 43, "not known"),
        ("Bearer tw_nobody_" + "A" * 43, "not known"),
    ],
)
async def test_without_a_good_token_there_is_nothing(
    world: World, header: str, why: str
) -> None:
    headers = {"Authorization": header} if header else {}
    # Authentication comes first: nothing is told about the body.
    for method, path in (("GET", "/v1/jobs"), ("POST", "/v1/jobs"), ("GET", "/v1/jobs/x")):
        status, body, response = await world.call(method, path, token="", headers=headers)
        assert status == 401 and why in body["detail"] and "\n" not in body["detail"]
        assert "WWW-Authenticate" in response.headers


async def test_tokens_are_made_used_and_revoked(world: World) -> None:
    made = {"subject": "ada", "tenants": ["red"], "ttl": "1h"}
    status, body, _ = await world.call("POST", "/v1/tokens", json=made)
    assert status == 201
    text, token_id = body["token"], body["id"]
    _, me, _ = await world.call("GET", "/v1/whoami", token=text)
    assert (me["subject"], me["role"], me["tenants"]) == ("ada", "user", ["red"])
    assert (await world.call("GET", "/v1/tokens", token=text))[0] == 403
    assert (await world.call("POST", "/v1/clusters/invite", token=text))[0] == 403
    listed = (await world.call("GET", "/v1/tokens"))[1]
    assert text.split("_", 2)[2] not in json.dumps(listed)
    assert (await world.call("DELETE", f"/v1/tokens/{token_id}"))[0] == 200
    for _ in range(20):
        status, body, _ = await world.call("GET", "/v1/whoami", token=text)
        if status == 401:
            break
    assert status == 401 and "revoked" in body["detail"]


async def test_a_fault_of_ours_is_a_500_with_an_id_and_the_next_request_works(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.control.broken = RuntimeError("secret detail")
    status, body, _ = await world.call("GET", "/v1/clusters")
    assert status == 500 and body["code"] == "internal_error"
    assert "secret detail" not in json.dumps(body) and body["request_id"] in caplog.text
    world.control.broken = None
    assert (await world.call("GET", "/v1/clusters"))[0] == 200


async def test_a_store_that_is_away_is_a_503_with_retry_after(world: World) -> None:
    world.control.broken = StoreUnavailable("no leader", retry_after_s=2.5)
    status, body, response = await world.call("GET", "/v1/clusters")
    assert status == 503 and response.headers["Retry-After"] == "3"
    assert body["code"] == "store_unavailable"


async def test_health(world: World) -> None:
    assert (await world.call("GET", "/healthz", token=""))[0] == 200
    assert (await world.call("GET", "/readyz", token=""))[0] == 200
    status, body, _ = await world.call("GET", "/metrics", token="")
    text = body.decode()
    assert status == 200 and "tradewind_jobs_queued 3" in text
    assert 'tradewind_clusters{state="silent"} 1' in text
    assert "tradewind_leader 1" in text
    world.services.projection.ready.clear()
    assert (await world.call("GET", "/readyz", token=""))[0] == 503


async def test_figures_with_names_are_for_operators(world: World) -> None:
    world.services.observer.metrics.placements.labels("us-east").inc()
    user = await world.token("default")
    for token, named in ((world.operator, True), (user, False), ("", False)):
        status, body, _ = await world.call("GET", "/metrics", token=token)
        assert status == 200
        assert ('tradewind_placements_total{cluster="us-east"} 1.0' in body.decode()) is named
    assert (await world.call("GET", "/metrics", token="tw_no_such"))[0] == 401


async def test_answers_are_timed_by_route_never_by_what_was_sent(world: World) -> None:
    await world.call("GET", "/v1/jobs/j0000000000000000")
    await world.call("GET", "/v1/secret-path", token="")
    text = world.services.observer.metrics.text(named=False).decode()
    route = 'method="GET",route="/v1/jobs/{id}"'
    assert f"tradewind_http_request_seconds_count{{{route}}} 1.0" in text
    assert 'route="unmatched"' in text and "secret-path" not in text
    assert 'tradewind_http_responses_total{code="404"} 2.0' in text
