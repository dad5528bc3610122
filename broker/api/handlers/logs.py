"""Logs of a job: a piece as bytes, or all that comes as server-sent events."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from broker.api.catalog import Found
from broker.api.problems import Problem
from broker.api.requests import LogsQuery
from broker.api.routes import Call
from broker.api.streams import Event, with_idle
from broker.api.views import to_json
from broker.control.viewing import LogRequest, LogSlice, RegionUnreachable
from broker.model.jobs import Job, JobPhase, Outcome, OutcomeKind
from federation.ids import JobId, Tenant
from federation.runs import Runs, parse_runs

LOOK_AGAIN_S = 0.25
SILENT_AGAIN_S = 2.0
CHUNK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class _Tried:
    """An attempt whose log may be read."""

    number: int
    uid: str
    cluster: str
    tasks: Runs


async def logs(call: Call) -> web.StreamResponse:
    """GET /v1/jobs/{id}/logs."""
    found = await call.api.catalog.find(call.params["id"], call.viewer)
    if "text/event-stream" in call.request.headers.get("Accept", ""):
        idle_s = call.api.services.settings.sse_keepalive_s
        events = with_idle(_Follower(call).events(), idle_s)
        return await call.api.streams.serve(call.request, events)
    return await _piece(call, found)


async def _piece(call: Call, found: Found) -> web.Response:
    query: LogsQuery = call.query
    tried = _choose(await _tried(call, found), query, after=0)
    if tried is None:
        if query.attempt is not None:
            raise Problem(404, "not_found", f"no attempt {query.attempt} of this job")
        piece = LogSlice(b"", query.offset, None, complete=found.ended)
    else:
        wait_ms = call.api.services.settings.log_poll_ms if query.follow else 0
        ask = _request(tried, query, query.offset, query.limit, wait_ms)
        piece = await call.api.services.control.read_log(_job_of(found), ask)
    headers = {
        "X-Log-Offset": str(piece.offset),
        "X-Log-Complete": "true" if piece.complete else "false",
        "X-Content-Type-Options": "nosniff",
    }
    if piece.total_bytes is not None:
        headers["X-Log-Total"] = str(piece.total_bytes)
    if tried is not None:
        headers["X-Log-Attempt"] = tried.uid
    return web.Response(
        body=piece.data, content_type="application/octet-stream", headers=headers
    )


def _request(
    tried: _Tried, query: LogsQuery, offset: int, limit: int, wait_ms: int
) -> LogRequest:
    return LogRequest(tried.uid, tried.cluster, _stream(query), offset, limit, wait_ms)


def _stream(query: LogsQuery) -> str:
    return query.stream if query.task is None else f"task-{query.task}"


async def _tried(call: Call, found: Found) -> list[_Tried]:
    """All attempts, those in the ledger too, in the order they were made."""
    by_uid: dict[str, _Tried] = {}
    job = found.job
    if job is None or len(job.attempts) < job.attempts_made:
        job_id = job.id if job is not None else call.params["id"]
        for entry in await call.api.services.ledger.attempts(job_id):
            tasks = parse_runs(entry.tasks) if entry.tasks else Runs()
            by_uid[entry.uid] = _Tried(_number(entry.uid), entry.uid, entry.cluster, tasks)
    for attempt in job.attempts if job is not None else ():
        by_uid[attempt.uid] = _Tried(
            _number(attempt.uid), attempt.uid, attempt.cluster, attempt.tasks
        )
    return sorted(by_uid.values(), key=lambda tried: tried.number)


def _number(uid: str) -> int:
    return int(uid.rsplit("-", 1)[1])


def _choose(tried: list[_Tried], query: LogsQuery, *, after: int) -> _Tried | None:
    """The attempt asked for; else the latest at first, then the next after the one read."""
    task = query.task
    if task is None and query.stream.startswith("task-"):
        task = int(query.stream[5:])
    fit = [
        t
        for t in tried
        if t.number > after
        and query.attempt in (None, t.number)
        and (task is None or not t.tasks or task in t.tasks)
    ]
    if not fit:
        return None
    return fit[0] if after else fit[-1]


def _job_of(found: Found) -> Job:
    if found.job is not None:
        return found.job
    entry = found.entry
    if entry is None:
        raise AssertionError("a found job is in etcd or in the ledger")
    return Job(
        id=JobId(entry.job),
        tenant=Tenant(entry.tenant),
        name=entry.name,
        subject=entry.subject,
        priority=entry.priority,
        class_key="",
        created_ms=entry.created_ms,
        changed_ms=entry.ended_ms,
        phase=JobPhase.ENDED,
        ended_ms=entry.ended_ms,
        outcome=Outcome(OutcomeKind(entry.outcome), entry.exit_code or 0, text=entry.reason),
    )


class _Follower:
    """One client reading along. Goes over to the next attempt when the job is tried again."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._query: LogsQuery = call.query
        self._offset = self._query.offset
        self._tried: _Tried | None = None
        self._read_up = 0  # number of the last attempt read to its end
        self._said = ""

    async def events(self) -> AsyncGenerator[Event, None]:
        """log, waiting and finally end events."""
        while True:
            found = await self._call.api.catalog.find(
                self._call.params["id"], self._call.viewer
            )
            job = _job_of(found)
            if self._tried is None:
                self._tried = await self._next(found)
            if self._tried is None:
                if found.ended or self._over():
                    yield _end(job)
                    return
                for event in self._waiting(_why(job)):
                    yield event
                await asyncio.sleep(LOOK_AGAIN_S)
                continue
            async for event in self._read(job, self._tried):
                yield event

    async def _next(self, found: Found) -> _Tried | None:
        tried = _choose(await _tried(self._call, found), self._query, after=self._read_up)
        if tried is not None and self._read_up:
            self._offset = 0
        return tried

    def _over(self) -> bool:
        """One attempt or task was asked for, and it is read."""
        one = self._query.attempt is not None or _stream(self._query) != "output"
        return one and self._read_up > 0

    def _waiting(self, text: str) -> list[Event]:
        if text == self._said:
            return []
        self._said = text
        return [Event("waiting", to_json({"text": text}))]

    async def _read(self, job: Job, tried: _Tried) -> AsyncGenerator[Event, None]:
        wait_ms = self._call.api.services.settings.log_poll_ms
        ask = _request(tried, self._query, self._offset, CHUNK_BYTES, wait_ms)
        try:
            piece = await self._call.api.services.control.read_log(job, ask)
        except RegionUnreachable as error:
            for event in self._waiting(str(error)):
                yield event
            await asyncio.sleep(SILENT_AGAIN_S)
            return
        if piece.data:
            self._said = ""
            self._offset = piece.offset + len(piece.data)
            yield Event("log", to_json(_log(tried.uid, ask.stream, piece)))
        elif piece.complete:
            self._read_up, self._tried = tried.number, None
        elif piece.waiting:
            for event in self._waiting(piece.waiting):
                yield event
            await asyncio.sleep(LOOK_AGAIN_S)


def _log(uid: str, stream: str, piece: LogSlice) -> dict[str, Any]:
    view: dict[str, Any] = {"attempt": uid, "stream": stream, "offset": piece.offset}
    try:
        view["text"] = piece.data.decode("utf-8")
    except UnicodeDecodeError:
        view["data_base64"] = base64.b64encode(piece.data).decode("ascii")
    return view


def _why(job: Job) -> str:
    return job.reason_text or f"the job is {job.phase}, waiting for the next decision"


def _end(job: Job) -> Event:
    outcome = job.outcome
    view = {
        "phase": job.phase.value,
        "outcome": outcome.kind.value if outcome else None,
        "exit_code": outcome.exit_code if outcome else None,
    }
    return Event("end", to_json(view))
