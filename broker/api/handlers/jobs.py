"""Jobs: submit, list, look at, and ask something of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from aiohttp import web

from broker.api.problems import Problem, field_problem
from broker.api.routes import Call, answer
from broker.api.views import SpecFacts, job_view, utc
from broker.control.submission import Request, Submitted
from broker.control.viewing import Viewer
from broker.model.fleet import ClusterState
from broker.model.jobs import Intent, Job, JobPhase

REPLAYED = "Idempotent-Replayed"
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_TRACEPARENT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


async def submit(call: Call) -> web.Response:
    """POST /v1/jobs."""
    taken = await _take_on(call, [call.body])
    job_id = taken.ids[0]
    headers = {"Location": f"/v1/jobs/{job_id}"}
    if taken.replayed:
        headers[REPLAYED] = "true"
        found = await call.api.catalog.find(job_id, call.viewer)
        view = await call.api.catalog.whole_view(found)
        return answer(200, {"id": job_id, "job": view}, headers)
    return answer(201, {"id": job_id, "job": _fresh_view(taken)}, headers)


async def submit_batch(call: Call) -> web.Response:
    """POST /v1/jobs/batch."""
    taken = await _take_on(call, call.body.jobs)
    headers = {REPLAYED: "true"} if taken.replayed else {}
    return answer(200 if taken.replayed else 201, {"ids": list(taken.ids)}, headers)


async def _take_on(call: Call, data: Sequence[Any]) -> Submitted:
    request, began_ms = _request(call), call.now_ms
    taken = await call.api.submissions.submit(data, request)
    if not taken.replayed:
        observer = call.api.services.observer
        observer.submitted(taken.ids, request.traceparent, began_ms, call.now_ms)
    return taken


def _fresh_view(taken: Submitted) -> dict[str, Any]:
    spec = taken.specs[0]
    return job_view(taken.jobs[0], SpecFacts(spec.kind, spec.labels))


def _request(call: Call) -> Request:
    headers = call.request.headers
    key = headers.get("Idempotency-Key", "")
    if "Idempotency-Key" in headers and not _KEY.fullmatch(key):
        raise field_problem(
            400,
            "bad_header",
            "Idempotency-Key",
            "not 1 to 255 printable ASCII characters without spaces",
            "send for example a UUID",
        )
    traceparent = headers.get("traceparent", "")
    digest = hashlib.sha256(call.request.path.encode() + b"\n" + call.raw).digest()
    return Request(
        viewer=call.viewer,
        body_sha256=digest,
        idempotency_key=key,
        traceparent=traceparent if _TRACEPARENT.fullmatch(traceparent) else "",
    )


async def list_jobs(call: Call) -> web.Response:
    """GET /v1/jobs."""
    page = await call.api.catalog.page(call.query, call.viewer)
    return answer(
        200, {"jobs": page.jobs, "next_cursor": page.next_cursor, "notes": silence(call)}
    )


def silence(call: Call) -> list[str]:
    """One line for each site whose work is unknown now."""
    return [
        f"{name} is silent since {utc(view.silent_since_ms)}: its jobs are shown as last heard"
        for name, view in sorted(call.api.services.control.fleet().clusters.items())
        if view.silent_since_ms and view.identity.state is not ClusterState.REMOVED
    ]


async def show(call: Call) -> web.Response:
    """GET /v1/jobs/{id}."""
    found = await call.api.catalog.find(call.params["id"], call.viewer)
    return answer(200, await call.api.catalog.whole_view(found))


async def outputs(call: Call) -> web.Response:
    """GET /v1/jobs/{id}/outputs. What a superseded attempt brought is no result of its job."""
    found = await call.api.catalog.find(call.params["id"], call.viewer)
    view = await call.api.catalog.whole_view(found)
    files = [
        {**output, "attempt": attempt["uid"], "task": None}
        for attempt in view["attempts"]
        if not attempt["superseded_at"]
        for output in attempt["outputs"]
    ]
    return answer(200, {"outputs": files})


# Asking something of a job ------------------------------------------------------------------------


async def _ask(call: Call, change: Any, state: str) -> web.Response:
    job_id = call.params["id"]
    await call.api.catalog.find(job_id, call.viewer)
    await call.api.intents.ask(
        job_id, change, subject=call.viewer.subject, now_ms=call.now_ms
    )
    return answer(202, {"id": job_id, "state": state})


async def cancel(call: Call) -> web.Response:
    """POST /v1/jobs/{id}/cancel."""
    why = call.body.why or f"cancelled by {call.viewer.subject}"

    def change(_: Job, intent: Intent) -> Intent:
        return intent if intent.cancel else replace(intent, cancel=True, why=why)

    return await _ask(call, change, "cancelling")


async def hold(call: Call) -> web.Response:
    """POST /v1/jobs/{id}/hold."""
    why = call.body.why or f"held by {call.viewer.subject}"

    def change(job: Job, intent: Intent) -> Intent:
        if job.phase not in (JobPhase.QUEUED, JobPhase.HELD):
            raise Problem(
                409, "not_waiting", f"job {job.id} is {job.phase}: only a waiting job can be held"
            )
        return intent if intent.hold else replace(intent, hold=True, why=why)

    return await _ask(call, change, "held")


async def release(call: Call) -> web.Response:
    """POST /v1/jobs/{id}/release."""

    def change(_: Job, intent: Intent) -> Intent:
        return replace(intent, hold=False, why="") if intent.hold else intent

    return await _ask(call, change, "released")


async def reprioritise(call: Call) -> web.Response:
    """PATCH /v1/jobs/{id}."""
    priority = call.body.priority
    tier_of = call.api.submissions.specs.tier_of

    def change(job: Job, intent: Intent) -> Intent:
        tier = None if call.viewer.operator else tier_of(job.id)
        if tier is not None and tier[0] != priority:
            text = f"policy {tier[1]} keeps job {job.id} at priority {tier[0]}"
            raise Problem(409, "policy_tier", f"{text}; an operator may change it")
        return replace(intent, priority=priority)

    return await _ask(call, change, "reprioritised")


def may_act_for(viewer: Viewer, tenant: str | None) -> str:
    """The tenant meant, if the viewer may act for it; Problem 403 otherwise."""
    meant = tenant or viewer.home_tenant
    if not viewer.may_see(meant):
        raise Problem(403, "tenant_refused", f"this token is not for tenant {meant}")
    return meant
