"""For machines that watch the broker: alive, ready, and a few figures."""

from __future__ import annotations

from collections import Counter
from typing import Any

from aiohttp import web

from broker.api.context import Api

_GAUGES = (
    ("queued", "tradewind_jobs_queued", "Jobs that wait."),
    ("running", "tradewind_jobs_running", "Jobs that run."),
)


class Health:
    """The three unversioned paths."""

    def __init__(self, api: Api, answered: Counter[int]) -> None:
        self._api = api
        self._answered = answered

    async def healthz(self, _: web.Request) -> web.Response:
        """The process answers."""
        return web.json_response({"status": "ok"})

    async def readyz(self, _: web.Request) -> web.Response:
        """The replica has seen the whole state and can answer from it."""
        ready = self._api.services.projection.ready.is_set()
        text = "ready" if ready else "reading the state"
        return web.json_response({"status": text}, status=200 if ready else 503)

    async def metrics(self, _: web.Request) -> web.Response:
        """Prometheus text."""
        body = "\n".join([*self._figures(), ""]).encode()
        return web.Response(
            body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )

    def _figures(self) -> list[str]:
        services = self._api.services
        told, leader = services.control.status(), services.control.leader()
        lines = []
        for key, name, text in _GAUGES:
            if isinstance(told.get(key), int | float):
                lines += _metric(name, text, "gauge", {"": told[key]})
        clusters: Any = told.get("clusters")
        if isinstance(clusters, dict):
            by_state = {
                f'{{state="{state}"}}': count
                for state, count in clusters.items()
                if isinstance(count, int)
            }
            lines += _metric("tradewind_clusters", "Clusters by state.", "gauge", by_state)
        here = {"": int(bool(leader.get("here")))}
        lines += _metric("tradewind_leader", "1 while this replica leads.", "gauge", here)
        seen = {"": services.projection.revision}
        lines += _metric("tradewind_state_revision", "Store revision seen.", "gauge", seen)
        streams = {"": len(self._api.streams)}
        lines += _metric("tradewind_event_streams", "Event streams open.", "gauge", streams)
        answered = {f'{{code="{code}"}}': count for code, count in sorted(self._answered.items())}
        name = "tradewind_http_responses_total"
        return lines + _metric(name, "Responses by status code.", "counter", answered)


def _metric(name: str, text: str, kind: str, values: dict[str, Any]) -> list[str]:
    samples = [f"{name}{labels} {value}" for labels, value in values.items()]
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *samples]
