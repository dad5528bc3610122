"""Why a job is where it is, and what would be decided for one that is not submitted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web

from broker.api.catalog import Found
from broker.api.routes import Call, answer
from broker.api.views import attempt_view
from broker.control.closing_receipt import CLOSING
from federation.jobs import parse_job_spec


async def explain(call: Call) -> web.Response:
    """GET /v1/jobs/{id}/explain."""
    found = await call.api.catalog.find(call.params["id"], call.viewer)
    if found.job is not None and not found.ended:
        spec = parse_job_spec(json.loads(await call.api.catalog.spec_bytes(found)))
        told = await call.api.services.control.explain(found.job, spec, call.viewer)
        starts = _starts([attempt_view(attempt) for attempt in found.job.attempts])
        head = {"job": found.job.id, "phase": found.job.phase.value, "starts": starts}
        return answer(200, {**head, **told})
    return answer(200, await _ended(call, found))


def _starts(attempts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For every attempt how its start was expected, and how it was."""
    kept = ("cluster", "expected_start_delay_s", "expected_start_p90_s", "measured_start")
    return [{"attempt": a["uid"], **{key: a[key] for key in kept}} for a in attempts]


async def _ended(call: Call, found: Found) -> dict[str, Any]:
    """The last decision about a job that has ended, from its receipts."""
    view = await call.api.catalog.whole_view(found)
    receipts = await call.api.services.ledger.receipts(view["id"])
    bodies = [json.loads(r.body_json) for r in receipts if r.cycle != CLOSING]
    told: dict[str, Any] = bodies[-1] if bodies and isinstance(bodies[-1], dict) else {}
    outcome = view["outcome"] or {"kind": "ended", "text": ""}
    text = f": {outcome['text']}" if outcome["text"] else ""
    return {
        "chosen": None,
        "candidates": [],
        "waiting": [],
        "smallest_change": None,
        "decision": None,
        "others": None,
        **told,
        "starts": _starts(view["attempts"]),
        "job": view["id"],
        "phase": view["phase"],
        "summary": f"{outcome['kind'].replace('_', ' ')}{text}",
    }


async def plan(call: Call) -> web.Response:
    """POST /v1/plan."""
    spec = call.api.submissions.specs.read(call.body, call.viewer).spec
    tenant = spec.tenant or call.viewer.home_tenant
    told = await call.api.services.control.dry_run(spec, tenant, call.viewer)
    return answer(200, told)
