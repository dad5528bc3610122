"""Decisions of the leader: as stored, and what they gained."""

from __future__ import annotations

import asyncio
import zlib
from typing import Any

from aiohttp import web

from broker.api.problems import not_found
from broker.api.routes import JSON, Call, answer
from broker.api.views import usd, utc
from broker.feedback.decision_days import DAY_MS
from broker.feedback.decision_entries import CalibrationTotal, GainTotal
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


async def stats(call: Call) -> web.Response:
    """GET /v1/decide/stats: what decisions gained, and how predictions came true, by day."""
    to_ms = call.now_ms + 1
    from_ms = (to_ms // DAY_MS - call.query.days + 1) * DAY_MS
    found = await call.api.services.ledger.decision_days(from_ms, to_ms)
    gains = {total.day: total for total in found.gains} if call.viewer.operator else {}
    counts = {total.day: total for total in found.cycles}
    known = {total.day for total in found.cycles} | {total.day for total in found.gains}
    days = sorted(known | {total.day for total in found.calibration})
    return answer(
        200,
        {
            "from_at": utc(from_ms),
            "to_at": utc(to_ms),
            "days": [
                {
                    "day": (utc(day * DAY_MS + 1) or "")[:10],
                    "decisions": counts[day].cycles if day in counts else 0,
                    "optimal": counts[day].optimal if day in counts else 0,
                    "placed": counts[day].placed if day in counts else 0,
                    "gain": _gain(gains[day]) if day in gains else None,
                    "calibration": [_calibrated(c) for c in found.calibration if c.day == day],
                }
                for day in days
            ],
        },
    )


def _gain(total: GainTotal) -> dict[str, Any]:
    return {
        "measured": total.measured,
        "gaining": total.gaining,
        "copies": total.copies,
        "floor_copies": total.floor_copies,
        "more_copies": total.more_copies,
        "fewer_copies": total.fewer_copies,
        "cost_usd": usd(total.cost_micro_usd),
        "floor_cost_usd": usd(total.floor_cost_micro_usd),
        "saved_usd": usd(total.saved_micro_usd),
        "sooner_s": total.sooner_ms / 1000,
        "wait_saved_s": total.wait_saved_ms / 1000,
    }


def _calibrated(total: CalibrationTotal) -> dict[str, Any]:
    return {
        "kind": total.kind,
        "predictions": total.predictions,
        "within_p50": total.within_p50 / total.predictions,
        "within_p90": total.within_p90 / total.predictions,
    }


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
