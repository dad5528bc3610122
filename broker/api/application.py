"""The application: routes, one boundary for errors, and what runs beside the handlers."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import cache
from itertools import count

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from broker.api.context import Api
from broker.api.health import Health
from broker.api.openapi import document
from broker.api.problems import Problem, problem_of
from broker.api.routes import JSON
from broker.api.services import Services
from broker.api.table import ROUTES
from broker.api.views import to_json
from broker.feedback.metrics import BrokerMetrics

BODY_MAX_BYTES = 1 << 20
SHUTDOWN_S = 5.0
REQUEST_ID = "X-Request-Id"
EVENT_STREAM = "text/event-stream"

_log = logging.getLogger(__name__)
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


def build_api(services: Services) -> web.Application:
    """The API over these services. It follows the store while it runs; the projection and the
    lanes are run by the caller."""
    api = Api.build(services)
    app = web.Application(middlewares=[_boundary(services)], client_max_size=BODY_MAX_BYTES)
    for route in ROUTES:
        app.router.add_route(route.method, route.path, route.aiohttp_handler(api))
    health = Health(api)
    app.router.add_route("GET", "/healthz", health.healthz)
    app.router.add_route("GET", "/readyz", health.readyz)
    app.router.add_route("GET", "/metrics", health.metrics)
    app.router.add_route("GET", "/v1/openapi.json", _openapi(services))
    app.cleanup_ctx.append(_beside(api))

    async def end_streams(_: web.Application) -> None:
        await api.streams.close()

    app.on_shutdown.append(end_streams)
    return app


async def serve(
    app: web.Application, host: str, port: int, ssl_context: ssl.SSLContext | None
) -> web.AppRunner:
    """Listen; `runner.addresses` tells where (port 0 = any). End with `runner.cleanup()`."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    site = web.TCPSite(runner, host, port, ssl_context=ssl_context, reuse_address=True)
    await site.start()
    return runner


def _beside(api: Api) -> Callable[[web.Application], AsyncIterator[None]]:
    async def run(_: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(api.hub.run(), name="events-hub")
        task.add_done_callback(_log_end)
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    return run


def _log_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        _log.error("the events hub ended", exc_info=task.exception())


def _openapi(services: Services) -> Handler:
    body = to_json(document(ROUTES, services.settings.version))

    async def openapi(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, content_type=JSON)

    return openapi


def _boundary(services: Services) -> Middleware:
    """Every error becomes a problem document here, and nowhere else; every answer is counted."""
    clock, counted = services.clock, _Counted(services.observer.metrics)
    ours, numbers = services.ids.token_bytes(5).hex(), count(1)

    @web.middleware
    async def boundary(request: web.Request, handler: Handler) -> web.StreamResponse:
        request_id = request.headers.get(REQUEST_ID, "")
        if not (request_id and _ID.fullmatch(request_id)):
            request_id = f"{ours}{next(numbers):06x}"
        began_s = clock.monotonic_s()
        try:
            response = await handler(request)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - the boundary: the broker lives on
            response = _refusal(request, error, request_id)
        counted.count(request, response, clock.monotonic_s() - began_s)
        if not response.prepared:
            response.headers[REQUEST_ID] = request_id
        return response

    return boundary


class _Counted:
    """Counts answers. Labels come from the table of routes, never from what was sent; the figure
    of each route and of each status is looked up once."""

    def __init__(self, metrics: BrokerMetrics) -> None:
        self._responses = cache(lambda status: metrics.responses.labels(status))
        self._request_s = cache(lambda method, route: metrics.request_s.labels(method, route))

    def count(self, request: web.Request, response: web.StreamResponse, took_s: float) -> None:
        """An answer was made."""
        self._responses(response.status).inc()
        if not isinstance(response, web.Response) and response.content_type == EVENT_STREAM:
            return  # as long as its reader wants it
        resource = request.match_info.route.resource
        known = resource is not None
        route = resource.canonical if resource is not None else "unmatched"
        self._request_s(request.method if known else "any", route).observe(took_s)


def _refusal(request: web.Request, error: Exception, request_id: str) -> web.StreamResponse:
    problem = problem_of(error)
    if problem is None:
        where = f"{request.method} {request.path[:200]}"
        _log.error("request %s: %s failed", request_id, where, exc_info=error)
        problem = Problem(
            500, "internal_error", f"this is a fault of the broker; its log names {request_id}"
        )
    return problem.response(request_id)
