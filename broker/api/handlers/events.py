"""Events of the federation as they happen."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator

from aiohttp import web

from broker.api.events_hub import Cursor, Notice, Told, TooSlow
from broker.api.problems import field_problem
from broker.api.routes import Call
from broker.api.streams import Event, with_idle
from broker.api.views import to_json
from federation.kv import StoreUnavailable

_CURSOR = re.compile(r"[0-9]{1,18}\.[0-9]{1,9}", re.ASCII)


async def events(call: Call) -> web.StreamResponse:
    """GET /v1/events."""
    text = call.query.since or call.request.headers.get("Last-Event-ID", "")
    if text and not _CURSOR.fullmatch(text):
        raise field_problem(
            400, "bad_cursor", "Last-Event-ID", "not an event's id", "send the last id you saw"
        )
    if call.query.job is not None:
        await call.api.catalog.find(call.query.job, call.viewer)
    since = Cursor.parse(text) if text else None
    idle_s = call.api.services.settings.sse_keepalive_s
    return await call.api.streams.serve(call.request, with_idle(_events(call, since), idle_s))


async def _events(call: Call, since: Cursor | None) -> AsyncGenerator[Event, None]:
    try:
        async for item in call.api.hub.follow(since):
            if not isinstance(item, Notice):
                text = "older events are compacted: look at everything again"
                yield Event("reset", to_json({"text": text}), str(item.cursor))
                continue
            told = item.told
            if told is not None and _wanted(call, told):
                yield Event(item.kind, told.data, str(item.cursor))
    except (TooSlow, StoreUnavailable) as error:
        yield Event("bye", to_json({"text": str(error)}))


def _wanted(call: Call, told: Told) -> bool:
    query = call.query
    if query.job is not None and told.job != query.job:
        return False
    if query.tenant is not None and told.tenant != query.tenant:
        return False
    return not told.tenant or call.viewer.may_see(told.tenant)
