"""What an agent shows to those who watch it: figures on loopback, spans, log lines."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from federation.log_lines import put_fields
from federation.otlp import open_spans
from federation.traces import SpanSink
from regional_agent.feedback.metrics import CONTENT_TYPE, AgentMetrics
from regional_agent.feedback.spans import site_span
from regional_agent.session.events import Accepted, Ended, Event, Refused, Started
from regional_agent.session.held import Held
from regional_agent.settings import AgentSettings
from regional_agent.status import Status

if TYPE_CHECKING:
    from aiohttp import web

_log = logging.getLogger("tradewind.attempts")
_LOGGED = (Accepted, Refused, Started, Ended)


class Watching:
    """Made with the agent, told every event once it is durable."""

    def __init__(
        self,
        settings: AgentSettings,
        cluster: str,
        held: Callable[[str], Held | None],
        status: Callable[[], Status],
        spans: SpanSink | None = None,
    ) -> None:
        self._listen = settings.metrics_listen
        self._cluster = cluster
        self._held = held
        self._runner: web.AppRunner | None = None
        self.metrics = AgentMetrics(status)
        self.spans = spans or open_spans(
            dict(settings.otel), "tradewind-agent", {"tradewind.cluster": cluster}
        )

    async def start(self) -> None:
        """Serve figures, where the settings say so. Raises OSError for an address in use."""
        put_fields(cluster=self._cluster)
        if not self._listen:
            return
        host, _, port = self._listen.rpartition(":")
        from aiohttp import web  # 2 MiB that an agent without a listener need not hold

        app = web.Application()
        app.router.add_get("/metrics", self._answer)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, host.strip("[]"), int(port)).start()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where figures are served."""
        return list(self._runner.addresses) if self._runner else []

    async def _answer(self, _: web.Request) -> web.Response:
        from aiohttp import web

        return web.Response(body=self.metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    def told(self, event: Event) -> None:
        """An event is durable."""
        held = self._held(event.uid)
        self.metrics.told(event, held)
        if isinstance(event.said, _LOGGED):
            _log.log(
                logging.INFO if isinstance(event.said, Ended | Refused) else logging.DEBUG,
                "attempt %s",
                type(event.said).__name__.lower(),
                extra=_about(event, held),
            )
        if self.spans.on and held is not None:
            span = site_span(event, held, self._cluster)
            if span is not None:
                self.spans.emit([span])

    async def close(self) -> None:
        """Serve nothing more, and send what spans are left."""
        if self._runner is not None:
            await self._runner.cleanup()
        if self.spans.on:
            await asyncio.to_thread(self.spans.close)


def _about(event: Event, held: Held | None) -> dict[str, object]:
    about: dict[str, object] = {
        "job": held.job if held else event.uid.rpartition("-")[0],
        "attempt": event.uid,
        "epoch": event.epoch,
    }
    said = event.said
    if isinstance(said, Refused):
        about |= {"code": str(said.code), "text": said.text}
    elif isinstance(said, Ended):
        about |= {"outcome": said.kind, "exit_code": said.exit_code}
        if said.text:
            about["text"] = said.text
    return about
