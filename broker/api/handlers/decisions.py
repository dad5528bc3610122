"""Why a job is where it is, and what would be decided for one that is not submitted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from aiohttp import web

from broker.api.catalog import Found
from broker.api.handlers.jobs import may_act_for
from broker.api.problems import Problem, field_problem
from broker.api.requests import PriceChangeBody
from broker.api.routes import Call, answer
from broker.api.views import attempt_view
from broker.control.closing_receipt import CLOSING
from broker.control.whatif import WhatIfAsk
from broker.decide.whatif import Changes, PriceChange, QuotaChange, UnknownTarget
from federation.jobs import InvalidJob, JobSpec, parse_job_spec


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


async def whatif(call: Call) -> web.Response:
    """POST /v1/whatif."""
    body, viewer = call.body, call.viewer
    if body.policies and not viewer.operator:
        raise Problem(403, "operators_only", "to try a policy needs an operator's token")
    for quota in body.quotas:
        may_act_for(viewer, quota.tenant)
    changes = Changes(
        drain=tuple(body.drain),
        lose=tuple(body.lose),
        prices=tuple(_price(index, price) for index, price in enumerate(body.prices)),
        quotas=tuple(QuotaChange(q.tenant, q.accelerators, q.cluster) for q in body.quotas),
    )
    jobs = tuple((_added(call, i, job.spec), job.count) for i, job in enumerate(body.jobs))
    asked = WhatIfAsk(changes, tuple(body.policies), jobs)
    try:
        told = await call.api.services.control.whatif(asked, viewer)
    except UnknownTarget as unknown:
        remedy = "name one that is there"
        raise field_problem(
            422, "unknown_target", "changes", str(unknown), remedy, unknown.name
        ) from None
    return answer(200, told)


def _price(index: int, price: PriceChangeBody) -> PriceChange:
    if (price.usd is None) == (price.factor is None):
        path = f"prices.{index}"
        raise field_problem(422, "bad_body", path, "not one figure", "give either usd or factor")
    return PriceChange(price.target, price.usd, 1.0 if price.factor is None else price.factor)


def _added(call: Call, index: int, spec: Mapping[str, Any]) -> JobSpec:
    try:
        return call.api.submissions.specs.read(spec, call.viewer).spec
    except InvalidJob as error:
        raise InvalidJob(
            [replace(fault, path=f"jobs.{index}.spec.{fault.path}") for fault in error.errors]
        ) from None


async def plan(call: Call) -> web.Response:
    """POST /v1/plan."""
    spec = call.api.submissions.specs.read(call.body, call.viewer).spec
    tenant = spec.tenant or call.viewer.home_tenant
    told = await call.api.services.control.dry_run(spec, tenant, call.viewer)
    return answer(200, told)
