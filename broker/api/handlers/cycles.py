"""Decisions of the leader as stored: which are kept, and each as one planning problem."""

from __future__ import annotations

import asyncio
import zlib
from typing import Any

from aiohttp import web

from broker.api.problems import not_found
from broker.api.routes import JSON, Call, answer
from broker.api.views import utc
from broker.feedback.decisions import StoredDecision
from broker.feedback.ports import CycleEntry

_FIGURES_MAX = 1000


async def cycles(call: Call) -> web.Response:
    """GET /v1/cycles: stored decisions of this replica, the newest first."""
    services = call.api.services
    stored = await services.decisions.stored() if services.decisions else ()
    shown = stored[: call.query.limit]
    figures = {entry.cycle: entry for entry in await services.ledger.cycles(_FIGURES_MAX)}
    return answer(
        200,
        {
            "cycles": [_view(item, figures.get(item.cycle)) for item in shown],
            "kept": len(stored),
            "size_bytes": sum(item.size_bytes for item in stored),
        },
    )


async def cycle(call: Call) -> web.Response:
    """GET /v1/cycles/{cycle}: its problem, with what was decided under `recorded`."""
    name, store = call.params["cycle"], call.api.services.decisions
    body = await store.get(name) if store else None
    if body is None:
        raise not_found("stored decision", name)
    if "gzip" in call.request.headers.get("Accept-Encoding", ""):
        headers = {"Content-Encoding": "gzip"}
        return web.Response(body=body, content_type=JSON, headers=headers)
    plain = await asyncio.to_thread(zlib.decompress, body, 31)
    return web.Response(body=plain, content_type=JSON)


def _view(stored: StoredDecision, figures: CycleEntry | None) -> dict[str, Any]:
    return {
        "cycle": stored.cycle,
        "decided_at": utc(figures.at_ms if figures else stored.stored_ms),
        "status": figures.status if figures else None,
        "gap": figures.gap if figures else None,
        "considered": figures.considered if figures else None,
        "placed": figures.placed if figures else None,
        "unplaced": figures.unplaced if figures else None,
        "cpu_s": figures.cpu_s if figures else None,
        "size_bytes": stored.size_bytes,
        "why_kept": stored.why,
    }
