"""A small server that speaks the API, for tests of the client and the command line.

It is real HTTP on a real port, in a thread of its own; what it knows is plain data that tests set.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Asked = tuple[str, str, dict[str, str], dict[str, str]]  # method, path, query, headers
TOKEN = "tw_test_secret"
JOB = "j00000000000000a1"


def problem(status: int, code: str, detail: str, **more: Any) -> web.Response:
    headers = more.pop("headers", {})
    body = {"type": "about:blank", "title": code, "status": status, "detail": detail,
            "code": code, "errors": [], "request_id": "r1", **more}  # fmt: skip
    return web.json_response(
        body, status=status, headers=headers, content_type="application/problem+json"
    )


def job_object(job_id: str = JOB, **changes: Any) -> dict[str, Any]:
    job: dict[str, Any] = {
        "id": job_id, "name": "train", "tenant": "team-a", "subject": "ada", "kind": "batch",
        "phase": "queued", "outcome": None, "priority": 100,
        "created_at": "2026-11-30T13:00:00.000Z", "started_at": None, "ended_at": None,
        "reason": {"code": "undecided", "text": "waiting for the next decision"}, "array": None,
        "attempts": [], "cost_usd": 0.0, "labels": {},
    }  # fmt: skip
    return job | changes


def ended(job: dict[str, Any], kind: str = "succeeded", exit_code: int = 0) -> dict[str, Any]:
    return job | {
        "phase": "ended", "reason": None, "started_at": "2026-11-30T13:00:02.000Z",
        "ended_at": "2026-11-30T13:04:12.000Z",
        "outcome": {"kind": kind, "exit_code": exit_code, "signal": None, "code": "", "text": ""},
    }  # fmt: skip


@dataclass
class SpeakingServer:
    """What the server knows, and what it was asked."""

    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    keys: dict[str, tuple[str, str]] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    outputs: list[dict[str, Any]] = field(default_factory=list)
    answers: dict[str, Any] = field(default_factory=dict)
    log_script: list[list[tuple[str, Any] | None]] = field(default_factory=list)
    log: bytes = b""
    faults: list[Callable[[web.Request], web.Response | None]] = field(default_factory=list)
    requests: list[Asked] = field(default_factory=list)
    events: bool = True
    port: int = 0
    _changed: asyncio.Event | None = None
    loop: asyncio.AbstractEventLoop | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def asked(self, method: str, path: str) -> list[Asked]:
        return [each for each in self.requests if each[0] == method and each[1] == path]

    def end_job(self, job_id: str, kind: str = "succeeded", exit_code: int = 0) -> None:
        """From any thread: the job ends, and listeners hear of it."""
        assert self.loop is not None

        def change() -> None:
            self.jobs[job_id] = ended(self.jobs[job_id], kind, exit_code)
            if self._changed is not None:
                self._changed.set()

        self.loop.call_soon_threadsafe(change)

    # The server ---------------------------------------------------------------------------------

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._check], client_max_size=80 << 20)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._healthz)
        app.router.add_post("/v1/jobs", self._create)
        app.router.add_get("/v1/jobs", self._list)
        app.router.add_get("/v1/jobs/{id}", self._get)
        app.router.add_get("/v1/jobs/{id}/logs", self._logs)
        app.router.add_get("/v1/jobs/{id}/outputs", self._outputs)
        app.router.add_get("/v1/jobs/{id}/explain", self._plan)
        app.router.add_post("/v1/jobs/{id}/{intent:cancel|hold|release}", self._intent)
        app.router.add_post("/v1/plan", self._plan)
        app.router.add_get("/v1/events", self._events)
        app.router.add_post("/v1/blobs/missing", self._missing)
        app.router.add_put("/v1/blobs/{sha}", self._put_blob)
        app.router.add_get("/v1/blobs/{sha}", self._get_blob)
        app.router.add_route("*", "/v1/{rest:.*}", self._canned)
        return app

    @web.middleware
    async def _check(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.requests.append((
            request.method, request.path, dict(request.query), dict(request.headers),
        ))  # fmt: skip
        if self.faults:
            answer = self.faults.pop(0)(request)
            if answer is not None:
                return answer
        if request.path.startswith("/v1") and (
            request.headers.get("Authorization") != f"Bearer {TOKEN}"
        ):
            return problem(401, "no_token", "no token, or one that is not valid")
        response: web.StreamResponse = await handler(request)
        return response

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.json_response({"ok": True})

    async def _create(self, request: web.Request) -> web.Response:
        body = await request.text()
        key = request.headers.get("Idempotency-Key", "")
        if key in self.keys:
            job_id, before = self.keys[key]
            if before != body:
                return problem(422, "key_reused", "this key was used for another job")
            return web.json_response(
                {"id": job_id, "job": self.jobs[job_id]},
                headers={"Idempotent-Replayed": "true"},
            )
        job_id = f"j{len(self.jobs) + 161:016x}"
        spec = json.loads(body)
        self.jobs[job_id] = job_object(job_id, name=spec.get("name"), spec=spec)
        self.keys[key] = (job_id, body)
        return web.json_response({"id": job_id, "job": self.jobs[job_id]}, status=201)

    async def _list(self, request: web.Request) -> web.Response:
        if "jobs" in self.answers:
            return web.json_response(self.answers["jobs"])
        name, limit = request.query.get("name", ""), int(request.query.get("limit", "100"))
        found = sorted(
            (j for j in self.jobs.values() if str(j.get("name") or "").startswith(name)),
            key=lambda job: str(job["id"]), reverse=True,
        )  # fmt: skip
        start = int(request.query.get("cursor") or 0)
        page = found[start : start + limit]
        more = str(start + limit) if start + limit < len(found) else None
        notes = self.answers.get("notes", [])
        return web.json_response({"jobs": page, "next_cursor": more, "notes": notes})

    async def _get(self, request: web.Request) -> web.Response:
        job = self.jobs.get(request.match_info["id"])
        return web.json_response(job) if job else problem(404, "no_job", "no such job")

    async def _intent(self, request: web.Request) -> web.Response:
        job = self.jobs.get(request.match_info["id"])
        if job is None:
            return problem(404, "no_job", "no such job")
        if job["phase"] == "ended":
            return problem(409, "ended", f"{job['id']} has ended already")
        return web.json_response({"id": job["id"], "state": "cancelling"}, status=202)

    async def _plan(self, request: web.Request) -> web.Response:
        return web.json_response(self.answers.get("plan", {"candidates": []}))

    async def _outputs(self, request: web.Request) -> web.Response:
        return web.json_response({"outputs": self.outputs})

    async def _missing(self, request: web.Request) -> web.Response:
        wanted = (await request.json())["sha256"]
        return web.json_response({"missing": [one for one in wanted if one not in self.blobs]})

    async def _put_blob(self, request: web.Request) -> web.Response:
        body = await request.read()
        if hashlib.sha256(body).hexdigest() != request.match_info["sha"]:
            return problem(400, "digest_mismatch", "the content is not that of the hash")
        self.blobs[request.match_info["sha"]] = body
        return web.json_response({}, status=201)

    async def _get_blob(self, request: web.Request) -> web.Response:
        return web.Response(body=self.blobs[request.match_info["sha"]])

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        if "text/event-stream" in request.headers.get("Accept", ""):
            script = self.log_script.pop(0) if self.log_script else []
            return await self._play(request, script)
        offset, limit = int(request.query.get("offset", "0")), int(self.answers.get("limit", 9))
        data = self.log[offset : offset + limit]
        headers = {"X-Log-Offset": str(offset), "X-Log-Total": str(len(self.log)),
                   "X-Log-Complete": "true"}  # fmt: skip
        return web.Response(body=data, headers=headers)

    async def _play(
        self, request: web.Request, script: list[tuple[str, Any] | None]
    ) -> web.StreamResponse:
        """Send the script's events; a None in it breaks the connection there."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for step in script:
            if step is None:
                assert request.transport is not None
                request.transport.close()
                return response
            name, data = step
            await response.write(f"event: {name}\ndata: {json.dumps(data)}\n\n".encode())
        await response.write_eof()
        return response

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if not self.events:
            return problem(404, "no_events", "no such thing")
        self._changed = asyncio.Event()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b": hello\n\n")
        while True:
            await self._changed.wait()
            self._changed.clear()
            for number, job in enumerate(self.jobs.values()):
                data = json.dumps({"type": "job", "id": job["id"], "phase": job["phase"]})
                await response.write(f"id: 7.{number}\nevent: job\ndata: {data}\n\n".encode())

    async def _canned(self, request: web.Request) -> web.Response:
        name = request.match_info["rest"]
        if name in self.answers:
            return web.json_response(self.answers[name])
        return problem(404, "not_found", f"no such thing: {name}")


def piece(attempt: str, offset: int, text: str) -> tuple[str, dict[str, Any]]:
    encoded = base64.b64encode(text.encode()).decode()
    return "log", {
        "attempt": attempt, "stream": "output", "offset": offset, "data_base64": encoded,
    }  # fmt: skip


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[SpeakingServer]:
    """A server of the API in a thread of its own."""
    server, started, stop = SpeakingServer(), threading.Event(), asyncio.Event()

    async def run() -> None:
        runner = web.AppRunner(server.application(), shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        server.port = runner.addresses[0][1]
        server.loop = asyncio.get_running_loop()
        started.set()
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    assert started.wait(10)
    try:
        yield server
    finally:
        assert server.loop is not None
        server.loop.call_soon_threadsafe(stop.set)
        thread.join(10)
