"""What the leader's rounds leave for those who watch: spans, figures, log lines.

Told at the edges, once something is durable; nothing here decides, waits or raises.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from broker.feedback.metrics import BrokerMetrics
from broker.feedback.spans import (
    attempt_spans,
    decide_span,
    dispatched_traceparent,
    job_span,
    submit_span,
    trace_of,
)
from broker.lifecycle.commands import Audit
from broker.model.jobs import Attempt, AttemptPhase, Job, OutcomeKind
from federation.traces import Attribute, NoSpans, SpanSink

if TYPE_CHECKING:
    from broker.control.cycle import CycleRecord
    from broker.decide.admission.moving import Move

_log = logging.getLogger("tradewind.jobs")
SUCCESSES_LOGGED_PER_S = 100
"""A line costs as much as the rest of telling an end; beyond so many they share one."""
_RUNNING, _ENDED = AttemptPhase.RUNNING.value, AttemptPhase.ENDED.value


class Observer:
    """Turns what happened to jobs into telemetry."""

    def __init__(
        self, metrics: BrokerMetrics | None = None, spans: SpanSink | None = None
    ) -> None:
        self.metrics = metrics or BrokerMetrics()
        self.spans = spans or NoSpans()
        self._second = self._said = self._unsaid = 0

    def dispatched(self, uid: str, job: str, traceparent: str) -> str:
        """The trace context that goes to the site with an attempt."""
        return dispatched_traceparent(uid, job, traceparent, self.spans)

    def submitted(
        self, jobs: Sequence[str], traceparent: str, began_ms: int, ended_ms: int
    ) -> None:
        """A submission was taken on. A batch has one span, and only where it came with a trace:
        otherwise each of its jobs has a trace of its own."""
        if not self.spans.on or not jobs:
            return
        trace = trace_of(jobs[0], traceparent, self.spans)
        if not trace.recorded or (len(jobs) > 1 and not trace.parent_id):
            return
        about: dict[str, Attribute] = {"tradewind.jobs": len(jobs), "tradewind.job": jobs[0]}
        self.spans.emit([submit_span(trace, began_ms, ended_ms, about)])

    def cycle(
        self,
        record: CycleRecord,
        job_of: Callable[[str], Job | None],
        traceparent_of: Callable[[str], str],
    ) -> None:
        """A plan was decided and applied."""
        metrics, plan = self.metrics, record.decided.plan
        metrics.decisions.labels(plan.status.value).inc()
        metrics.decision_s.observe(record.wall_s)
        metrics.decision_cpu_s.observe(record.decided.cpu_s)
        metrics.decision_objective_usd.set(plan.objective_usd)
        metrics.decision_bound_usd.set(math.nan if plan.bound_usd is None else plan.bound_usd)
        if plan.gap is not None:
            metrics.decision_gap.observe(plan.gap)
        metrics.fallen.inc(len(record.applier.fallen))
        for attempt in record.applier.placed:
            metrics.placements.labels(attempt.cluster).inc()
            job = job_of(attempt.job)
            if job is None:
                continue
            if job.attempts_made <= 1:
                metrics.queue_wait_s.observe(max(attempt.placed_ms - job.created_ms, 0) / 1000)
            if self.spans.on:
                self._decided(record, job, attempt, traceparent_of(job.id))

    def _decided(
        self, record: CycleRecord, job: Job, attempt: Attempt, traceparent: str
    ) -> None:
        trace = trace_of(job.id, traceparent, self.spans)
        if trace.recorded:
            queued_ms = max(record.started_ms - job.created_ms, 0)
            self.spans.emit([decide_span(trace, attempt, record.started_ms, queued_ms)])

    def transitions(
        self, audits: Sequence[Audit], attempt_of: Callable[[str], Attempt | None]
    ) -> None:
        """Durable transitions of one job and its attempts."""
        talkative = _log.isEnabledFor(logging.DEBUG)
        for audit in audits:
            if audit.after in (_RUNNING, _ENDED) and audit.before != audit.after:
                attempt = attempt_of(audit.subject)
                if attempt is not None:
                    self._moved(attempt, audit)
            if talkative:
                job, _, number = audit.subject.partition("-")
                about = {"job": job, "attempt": audit.subject} if number else {"job": job}
                _log.debug("%s: %s -> %s", audit.what, audit.before, audit.after, extra=about)

    def _moved(self, attempt: Attempt, audit: Audit) -> None:
        if audit.after == _ENDED:
            self.metrics.ended(attempt)
            if self._worth_a_line(attempt):
                _log.info("attempt ended", extra=_story(attempt))
        elif attempt.started_ms:
            self.metrics.started(attempt)

    def _worth_a_line(self, attempt: Attempt) -> bool:
        """Every end that is not a success, and so many successes a second."""
        second = attempt.ended_ms // 1000
        if second > self._second:
            if self._unsaid:
                _log.info("%d more attempts succeeded", self._unsaid)
            self._second, self._said, self._unsaid = second, 0, 0
        outcome = attempt.outcome
        if outcome is None or outcome.kind is not OutcomeKind.SUCCEEDED:
            return True
        if self._said >= SUCCESSES_LOGGED_PER_S:
            self._unsaid += 1
            return False
        self._said += 1
        return True

    def attempt_ended(self, job: Job, attempt: Attempt, traceparent: str) -> None:
        """An attempt ended; also one that an earlier leader found so, which may have died before
        its spans were sent. A span told twice is the same span."""
        if self.spans.on:
            trace = trace_of(job.id, traceparent, self.spans)
            if trace.recorded:
                self.spans.emit(attempt_spans(trace, attempt))

    def job_ended(self, job: Job, traceparent: str) -> None:
        """A job ended."""
        if self.spans.on:
            trace = trace_of(job.id, traceparent, self.spans)
            if trace.recorded:
                self.spans.emit([job_span(trace, job)])

    def moves_begun(self, moves: Sequence[Move]) -> None:
        """Jobs are on their way to better places, or what is left of arrays."""
        slices = [move for move in moves if move.mover.ahead_h]
        for move in slices:
            about = {"job": move.mover.attempt.job, "attempt": move.mover.attempt.uid}
            _log.info("slice %s", move.text, extra=about)
        self.metrics.slices_let_go.inc(len(slices))
        self.metrics.moves.inc(len(moves) - len(slices))
        self.metrics.moves_saved_usd.inc(sum(max(move.saved_usd, 0.0) for move in moves))

    def alarm(self) -> None:
        """Something an operator should know."""
        self.metrics.alarms.inc()


def _story(attempt: Attempt) -> dict[str, object]:
    outcome, started_ms = attempt.outcome, attempt.started_ms
    story: dict[str, object] = {
        "job": attempt.job,
        "attempt": attempt.uid,
        "epoch": attempt.epoch,
        "cluster": attempt.cluster,
        "tenant": attempt.tenant,
        "outcome": outcome.kind.value if outcome else "",
    }
    if outcome and outcome.code:
        story["code"] = outcome.code
    if outcome and outcome.text:
        story["text"] = outcome.text
    if started_ms:
        story["start_ms"] = max(started_ms - attempt.placed_ms, 0)
        story["ran_ms"] = max(attempt.ended_ms - started_ms, 0)
    return story
