"""Figures for Prometheus: what is counted as it happens. docs/telemetry.md lists all of them.

Two registries: `public` names nobody and is shown to whoever reaches the API; `named` has series
that name tenants and clusters, for operators and for the listener on loopback.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections import deque
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.registry import Collector

from broker.model.jobs import Attempt, OutcomeKind
from federation.environment import Clock

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SHORT_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
LONG_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14_400, 86_400)
GAPS = (0.0, 1e-6, 1e-4, 1e-3, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
ITEMS = (1, 2, 4, 8, 15, 30, 45, 60)
RATE_OVER = 1_000
"""Settled placements the two ratios are taken over."""

_BOUNCED = frozenset({OutcomeKind.REFUSED, OutcomeKind.WITHDRAWN})


class BrokerMetrics:
    """Everything one broker process counts."""

    def __init__(self) -> None:
        self.public = CollectorRegistry()
        self.named = CollectorRegistry()
        self._settled: deque[str] = deque(maxlen=RATE_OVER)
        self._shares: Counts[str] = Counts()
        self._decisions()
        self._attempts()
        self._shell()

    def _decisions(self) -> None:
        to = self.public
        self.decisions = Counter(
            "tradewind_decisions", "Decisions by how far the plan was proved.", ["status"],
            registry=to,
        )  # fmt: skip
        self.decision_s = Histogram(
            "tradewind_decision_seconds", "From snapshot until the plan was durable.",
            registry=to, buckets=SHORT_S,
        )  # fmt: skip
        self.decision_cpu_s = Histogram(
            "tradewind_decision_cpu_seconds", "CPU time of deciding.", registry=to, buckets=SHORT_S
        )
        self.decision_gap = Histogram(
            "tradewind_decision_gap_ratio", "Proved gap to the best plan, where a bound is known.",
            registry=to, buckets=GAPS,
        )  # fmt: skip
        self.decision_objective_usd = Gauge(
            "tradewind_decision_objective_usd", "What the last plan reached.", registry=to
        )
        self.decision_bound_usd = Gauge(
            "tradewind_decision_bound_usd", "The most any plan could have; NaN where not known.",
            registry=to,
        )  # fmt: skip
        self.queue_wait_s = Histogram(
            "tradewind_queue_wait_seconds", "From submission until the first placement.",
            registry=to, buckets=LONG_S,
        )  # fmt: skip
        self.fallen = Counter(
            "tradewind_placements_fallen", "Placements of a plan that no longer held when applied.",
            registry=to,
        )  # fmt: skip

    def _attempts(self) -> None:
        to = self.named
        self.moves = Counter(
            "tradewind_moves", "Running jobs sent on to a better place.", registry=self.public
        )
        self.moves_saved_usd = Counter(
            "tradewind_moves_saved_usd", "What these moves were expected to save.",
            registry=self.public,
        )  # fmt: skip
        self.slices_let_go = Counter(
            "tradewind_slices_let_go", "Slices given no more tasks: a better place was free.",
            registry=self.public,
        )  # fmt: skip
        self.placements = Counter(
            "tradewind_placements", "Attempts placed.", ["cluster"], registry=to
        )
        self.start_s = Histogram(
            "tradewind_start_seconds", "From placement until running.", ["cluster"],
            registry=to, buckets=LONG_S,
        )  # fmt: skip
        self.attempts_ended = Counter(
            "tradewind_attempts_ended", "Attempts by how they ended.", ["cluster", "outcome"],
            registry=to,
        )  # fmt: skip
        self.refusals = Counter(
            "tradewind_refusals", "Dispatches a site refused, by reason.", ["cluster", "code"],
            registry=to,
        )  # fmt: skip
        self.honoured = Gauge(
            "tradewind_plan_honoured_ratio",
            f"Share of the last {RATE_OVER:,} settled placements that started.",
            registry=self.public,
        )
        self.bounced = Gauge(
            "tradewind_bounce_ratio",
            f"Share of the last {RATE_OVER:,} settled placements refused or withdrawn.",
            registry=self.public,
        )
        self.honoured.set(float("nan"))
        self.bounced.set(float("nan"))

    def _shell(self) -> None:
        to = self.public
        self.alarms = Counter("tradewind_alarms", "Alarms raised.", registry=to)
        self.request_s = Histogram(
            "tradewind_http_request_seconds", "Time to answer a request; event streams left out.",
            ["method", "route"], registry=to, buckets=SHORT_S,
        )  # fmt: skip
        self.responses = Counter(
            "tradewind_http_responses", "Responses by status code.", ["code"], registry=to
        )
        self.commit_s = Histogram(
            "tradewind_commit_seconds", "One group commit, etcd included.", ["lane"],
            registry=to, buckets=SHORT_S,
        )  # fmt: skip
        self.commit_items = Histogram(
            "tradewind_commit_items", "Changes in one group commit.", ["lane"],
            registry=to, buckets=ITEMS,
        )  # fmt: skip

    def started(self, attempt: Attempt) -> None:
        """An attempt runs, as its plan said it would."""
        waited_s = max(attempt.started_ms - attempt.placed_ms, 0) / 1000
        self.start_s.labels(attempt.cluster).observe(waited_s)
        self._settle("started")

    def ended(self, attempt: Attempt) -> None:
        """An attempt ended. One cancelled before it could start says nothing of its plan."""
        outcome = attempt.outcome
        if outcome is None:
            return
        self.attempts_ended.labels(attempt.cluster, outcome.kind.value).inc()
        if outcome.kind is OutcomeKind.REFUSED:
            self.refusals.labels(attempt.cluster, outcome.code or "unknown").inc()
        if not attempt.started_ms and outcome.kind is not OutcomeKind.CANCELLED:
            self._settle("bounced" if outcome.kind in _BOUNCED else "other")

    def _settle(self, how: str) -> None:
        if len(self._settled) == RATE_OVER:
            self._shares[self._settled[0]] -= 1
        self._settled.append(how)
        self._shares[how] += 1
        self.honoured.set(self._shares["started"] / len(self._settled))
        self.bounced.set(self._shares["bounced"] / len(self._settled))

    def commits(self, lane: str, clock: Clock) -> Callable[[int], Callable[[], None]]:
        """A meter for the group commits of one lane: called with the number of changes as one
        begins, it gives what to call when it is over."""
        seconds, items = self.commit_s.labels(lane), self.commit_items.labels(lane)

        def begin(count: int) -> Callable[[], None]:
            began_s = clock.monotonic_s()
            items.observe(count)
            return lambda: seconds.observe(clock.monotonic_s() - began_s)

        return begin

    def watch(self, public: Collector, named: Collector) -> None:
        """Figures that are read from the state when somebody asks."""
        self.public.register(public)
        self.named.register(named)

    def text(self, *, named: bool) -> bytes:
        """All figures in Prometheus' text format; those with names only where `named`."""
        return generate_latest(self.public) + (generate_latest(self.named) if named else b"")
