"""For machines that watch the broker: alive, ready, and figures."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aiohttp import web
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from broker.api.context import Api
from broker.feedback.metrics import CONTENT_TYPE, BrokerMetrics

_GAUGES = (
    ("queued", "tradewind_jobs_queued", "Jobs that wait."),
    ("held", "tradewind_jobs_held", "Jobs that are held."),
    ("running", "tradewind_jobs_running", "Jobs that run."),
)


class Health:
    """The three unversioned paths."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._metrics = api.services.observer.metrics
        self._metrics.public.register(_Figures(api))

    async def healthz(self, _: web.Request) -> web.Response:
        """The process answers."""
        return web.json_response({"status": "ok"})

    async def readyz(self, _: web.Request) -> web.Response:
        """The replica has seen the whole state and can answer from it."""
        ready = self._api.services.projection.ready.is_set()
        text = "ready" if ready else "reading the state"
        return web.json_response({"status": text}, status=200 if ready else 503)

    async def metrics(self, request: web.Request) -> web.Response:
        """Prometheus text. Series that name tenants and clusters are for operators."""
        header, named = request.headers.get("Authorization", ""), False
        if header:
            named = (await self._api.auth.bearer(header)).viewer.operator
        return _text(self._metrics, named=named)


def figures_app(metrics: BrokerMetrics) -> web.Application:
    """All figures without a token, for a listener that only this machine reaches."""

    async def answer(_: web.Request) -> web.Response:
        return _text(metrics, named=True)

    app = web.Application()
    app.router.add_get("/metrics", answer)
    return app


def _text(metrics: BrokerMetrics, *, named: bool) -> web.Response:
    return web.Response(body=metrics.text(named=named), headers={"Content-Type": CONTENT_TYPE})


class _Figures(Collector):
    """What this replica's API sees."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def describe(self) -> Iterable[Metric]:
        """Nothing is asked of a broker that is still being built."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """See prometheus_client."""
        services = self._api.services
        told, leader = services.control.status(), services.control.leader()
        for key, name, text in _GAUGES:
            if isinstance(told.get(key), int | float):
                yield GaugeMetricFamily(name, text, told[key])
        clusters: Any = told.get("clusters")
        if isinstance(clusters, dict):
            by_state = GaugeMetricFamily(
                "tradewind_clusters", "Clusters by state.", labels=("state",)
            )
            for state, count in clusters.items():
                by_state.add_metric((state,), count)
            yield by_state
        yield GaugeMetricFamily(
            "tradewind_leader", "1 while this replica leads.", int(bool(leader.get("here")))
        )
        yield GaugeMetricFamily(
            "tradewind_state_revision", "Store revision seen.", services.projection.revision
        )
        yield GaugeMetricFamily(
            "tradewind_event_streams", "Event streams open.", len(self._api.streams)
        )
        yield from _ages(told)


def _ages(told: dict[str, Any]) -> Iterable[Metric]:
    oldest, cycle = told.get("oldest_wait"), told.get("cycle")
    yield GaugeMetricFamily(
        "tradewind_oldest_wait_seconds", "Age of the job that waits longest; 0 when none waits.",
        oldest["age_s"] if isinstance(oldest, dict) else 0,
    )  # fmt: skip
    if isinstance(cycle, dict):
        yield GaugeMetricFamily(
            "tradewind_cycle_age_seconds", "Since the last decision began.", cycle["age_s"]
        )
