"""Figures of the state, read when Prometheus asks. docs/telemetry.md lists all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from broker.control.standing import Standing
from broker.model.fleet import ClusterView
from broker.model.jobs import JobPhase

NOT_DECIDED = "not_decided"


class OpenFigures(Collector):
    """Figures that name nobody."""

    def __init__(self, standing: Standing) -> None:
        self._standing = standing

    def describe(self) -> Iterable[Metric]:
        """Nothing is asked of a broker that is still being built."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """See prometheus_client."""
        standing = self._standing
        waits: Counter[str] = Counter(
            job.reason_code or NOT_DECIDED
            for job in standing.projection.jobs()
            if job.phase is JobPhase.QUEUED
        )
        waiting = GaugeMetricFamily(
            "tradewind_waiting_jobs", "Queued jobs by why they wait.", labels=("code",)
        )
        for code, count in sorted(waits.items()):
            waiting.add_metric((code,), count)
        yield waiting
        yield GaugeMetricFamily(
            "tradewind_epoch", "Epoch in force.", standing.leader()["epoch"]
        )
        yield GaugeMetricFamily(
            "tradewind_ledger_lag_seconds",
            "Age of the oldest row the leader has not yet written to the ledger.",
            standing.ledger_lag_ms() / 1000,
        )


class NamedFigures(Collector):
    """Figures by tenant and by cluster."""

    def __init__(self, standing: Standing) -> None:
        self._standing = standing

    def describe(self) -> Iterable[Metric]:
        """Nothing is asked of a broker that is still being built."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """See prometheus_client."""
        now_ms = self._standing.clock.now_ms()
        yield from self._by_tenant(now_ms)
        yield from self._by_cluster(now_ms)

    def _by_tenant(self, now_ms: int) -> Iterable[Metric]:
        counts: Counter[tuple[str, str]] = Counter()
        oldest_ms: dict[str, int] = {}
        for job in self._standing.projection.jobs():
            if job.phase is not JobPhase.ENDED:
                counts[job.tenant, job.phase.value] += 1
            if job.phase is JobPhase.QUEUED:
                first_ms = oldest_ms.get(job.tenant, job.created_ms)
                oldest_ms[job.tenant] = min(first_ms, job.created_ms)
        jobs = GaugeMetricFamily(
            "tradewind_jobs", "Jobs by tenant and phase; ended ones left out.",
            labels=("tenant", "phase"),
        )  # fmt: skip
        for (tenant, phase), count in sorted(counts.items()):
            jobs.add_metric((tenant, phase), count)
        yield jobs
        ages = GaugeMetricFamily(
            "tradewind_queue_age_seconds", "Age of a tenant's oldest queued job.",
            labels=("tenant",),
        )  # fmt: skip
        for tenant, created_ms in sorted(oldest_ms.items()):
            ages.add_metric((tenant,), (now_ms - created_ms) / 1000)
        yield ages

    def _by_cluster(self, now_ms: int) -> Iterable[Metric]:
        connected = GaugeMetricFamily(
            "tradewind_session_connected", "1 while a cluster's session stands.",
            labels=("cluster",),
        )  # fmt: skip
        ages = GaugeMetricFamily(
            "tradewind_report_age_seconds", "Age of a cluster's newest report.",
            labels=("cluster", "kind"),
        )  # fmt: skip
        expiries = GaugeMetricFamily(
            "tradewind_certificate_expiry_timestamp_seconds",
            "When a cluster's certificate expires (UTC).", labels=("cluster",),
        )  # fmt: skip
        lags = GaugeMetricFamily(
            "tradewind_events_unacknowledged",
            "Events a site's newest report reflects and the leader has not committed.",
            labels=("cluster",),
        )
        waiting = GaugeMetricFamily(
            "tradewind_site_queue_attempts", "Attempts that wait in a site's own queue.",
            labels=("cluster",),
        )  # fmt: skip
        term = self._standing.office.term
        queued = Counter(a.cluster for a in term.books.in_queues.values()) if term else Counter()
        for name, view in sorted(self._standing.sites.fleet().clusters.items()):
            connected.add_metric((name,), int(view.connected))
            for kind, received_ms in _received(view):
                ages.add_metric((name, kind), (now_ms - received_ms) / 1000)
            if expires_ms := view.identity.certificate_expires_ms:
                expiries.add_metric((name,), expires_ms / 1000)
            if view.capacity is not None and term is not None:
                committed = term.books.event_seqs.get(name, 0)
                behind = view.capacity.reflects_event_seq - committed
                lags.add_metric((name,), max(behind, 0))
            if term is not None:
                waiting.add_metric((name,), queued[name])
        yield from (connected, ages, expiries, lags, waiting)


def _received(view: ClusterView) -> Iterable[tuple[str, int]]:
    """Kinds of reports with the time each was received; those never received left out."""
    times = (
        ("capacity", view.capacity.received_ms if view.capacity else 0),
        ("price", view.price_received_ms),
        ("latency", view.latency_received_ms),
    )
    return ((kind, received_ms) for kind, received_ms in times if received_ms)
