"""Figures of an agent for Prometheus; docs/telemetry.md lists all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from regional_agent.session.events import Ended, Event, Prepared, Refused, Started
from regional_agent.session.held import Held
from regional_agent.status import Status

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)


class AgentMetrics:
    """Counts what is told to the broker; reads the rest from `status` when somebody asks."""

    def __init__(self, status: Callable[[], Status]) -> None:
        self.registry = to = CollectorRegistry()
        to.register(_Standing(status))
        self._refusals = Counter(
            "tradewind_agent_refusals", "Dispatches refused here, by reason.", ["code"], registry=to
        )
        self._ended = Counter(
            "tradewind_agent_attempts_ended", "Attempts by how they ended.", ["outcome"],
            registry=to,
        )  # fmt: skip
        self._prepare_s = Histogram(
            "tradewind_agent_prepare_seconds", "Laying files, code and data.", registry=to,
            buckets=SECONDS,
        )  # fmt: skip
        self._prepare_bytes = Counter(
            "tradewind_agent_prepare_bytes", "Bytes laid, by where they came from.", ["source"],
            registry=to,
        )  # fmt: skip
        self._launch_s = Histogram(
            "tradewind_agent_launch_seconds", "From the local scheduler's taking it until running.",
            registry=to, buckets=SECONDS,
        )  # fmt: skip
        self._start_s = Histogram(
            "tradewind_agent_start_seconds", "From acceptance until running.", registry=to,
            buckets=SECONDS,
        )  # fmt: skip

    def told(self, event: Event, held: Held | None) -> None:
        """An event is durable."""
        said = event.said
        if isinstance(said, Refused):
            self._refusals.labels(str(said.code)).inc()
        elif isinstance(said, Prepared):
            self._prepare_s.observe(said.prepare_ms / 1000)
            self._prepare_bytes.labels("fetched").inc(said.fetched_bytes)
            self._prepare_bytes.labels("cached").inc(said.cached_bytes)
        elif isinstance(said, Started):
            self._launch_s.observe(said.launch_ms / 1000)
            if held is not None and held.accepted_ms:  # else accepted in an earlier journal
                self._start_s.observe(max(event.at_ms - held.accepted_ms, 0) / 1000)
        elif isinstance(said, Ended):
            self._ended.labels(said.kind).inc()

    def text(self) -> bytes:
        """All figures in Prometheus' text format."""
        return generate_latest(self.registry)


class _Standing(Collector):
    """How the agent stands now."""

    def __init__(self, status: Callable[[], Status]) -> None:
        self._status = status

    def describe(self) -> Iterable[Metric]:
        """Nothing is asked of an agent that is still being built."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """See prometheus_client."""
        s = self._status()
        yield GaugeMetricFamily(
            "tradewind_agent_session_connected", "1 while a session with a broker stands.",
            int(s.connected),
        )  # fmt: skip
        yield GaugeMetricFamily(
            "tradewind_agent_events_unacknowledged",
            "Events the broker has not yet committed.",
            s.unacknowledged,
        )
        yield GaugeMetricFamily(
            "tradewind_agent_live_attempts", "Attempts that have not ended.", s.live_attempts
        )
        yield GaugeMetricFamily(
            "tradewind_agent_epoch", "Highest epoch of a broker ever seen.", s.epoch
        )
        yield GaugeMetricFamily(
            "tradewind_agent_certificate_expiry_timestamp_seconds",
            "When the certificate of this agent expires (UTC).",
            s.certificate_expires_ms / 1000,
        )
        cards = GaugeMetricFamily(
            "tradewind_agent_accelerators",
            "Accelerators by pool as last reported: free, and total.",
            labels=("pool", "accelerator", "state"),
        )
        for pool, accelerator, free, total in s.pools:
            cards.add_metric((pool, accelerator, "free"), free)
            cards.add_metric((pool, accelerator, "total"), total)
        yield cards
