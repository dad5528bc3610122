"""Freezing what runs, and approving what would disturb much of it: for operators."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from aiohttp import web

from broker.api.problems import Problem
from broker.api.routes import Call, answer
from broker.api.views import utc
from broker.control.freeze_record import Freeze, read_freeze, read_proposal, write_freeze
from broker.feedback.ports import AuditEntry, FeedbackUnavailable

SUBJECT = "freeze"
log = logging.getLogger("tradewind.freeze")


def freeze_view(call: Call) -> dict[str, Any]:
    """Whether what runs is frozen, and what waits for an operator."""
    projection = call.api.services.projection
    freeze, proposal = read_freeze(projection), read_proposal(projection)
    waits = None
    if proposal is not None:
        waits = {
            "cycle": proposal.cycle,
            "at": utc(proposal.at_ms),
            "attempts": len(proposal.attempts),
            "accelerators": proposal.accelerators,
            "accelerators_in_use": proposal.in_use,
            "why": proposal.why,
            "approved": freeze.approved_cycle == proposal.cycle,
        }
    return {
        "frozen": freeze.frozen,
        "by": freeze.subject,
        "why": freeze.why,
        "at": utc(freeze.at_ms),
        "proposal": waits,
    }


async def show(call: Call) -> web.Response:
    """GET /v1/freeze."""
    return answer(200, freeze_view(call))


async def write(call: Call) -> web.Response:
    """PUT /v1/freeze: on or off. What was approved before counts no more."""
    frozen, why = call.body.frozen, call.body.why
    await _say(call, Freeze(frozen, call.viewer.subject, why, call.now_ms), _FROZEN[frozen])
    return answer(200, freeze_view(call))


async def approve(call: Call) -> web.Response:
    """POST /v1/freeze/approve: what waits may be carried out, once."""
    projection, cycle = call.api.services.projection, call.body.cycle
    freeze, proposal = read_freeze(projection), read_proposal(projection)
    if proposal is None or proposal.cycle != cycle:
        known = f"it is {proposal.cycle} that waits" if proposal else "nothing waits"
        raise Problem(409, "no_such_proposal", f"cycle {cycle} does not wait for approval: {known}")
    if freeze.frozen:
        raise Problem(409, "frozen", "nothing is stopped while frozen; write frozen: false first")
    said = replace(
        freeze,
        subject=call.viewer.subject,
        why=call.body.why,
        at_ms=call.now_ms,
        approved_cycle=cycle,
    )
    await _say(call, said, f"approved cycle {cycle}: {len(proposal.attempts)} attempts")
    return answer(200, freeze_view(call))


_FROZEN = {True: "frozen", False: "not frozen"}


async def _say(call: Call, freeze: Freeze, what: str) -> None:
    services = call.api.services
    revision = await write_freeze(services.store, services.projection, freeze)
    row = AuditEntry(
        subject=SUBJECT,
        key=f"{revision}.0",
        at_ms=freeze.at_ms,
        who=freeze.subject,
        what=what,
        why=freeze.why,
    )
    try:
        await services.ledger.record_audit([row])
    except FeedbackUnavailable as error:  # the record in etcd names who and why as well
        log.warning("the audit of %s is not written: %s", what, error)
