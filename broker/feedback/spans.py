"""The life of a job as spans: what the books say of its times, told once it is over. Pure.

    submit (of the client)             where the submission came with a trace
      job                              from taken on to ended
        decide                         one per attempt: the cycle that placed it
        attempt                        from placed to ended
          handshake prepare launch run
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.lifecycle.outcomes import cost_micro_usd
from broker.model.jobs import Attempt, Job, Outcome, OutcomeKind
from federation.traces import (
    STEPS,
    Attribute,
    Span,
    SpanSink,
    TraceContext,
    parse_traceparent,
    span_id_of,
    trace_id_of,
)

_FINE = frozenset({OutcomeKind.SUCCEEDED, OutcomeKind.CANCELLED, OutcomeKind.WITHDRAWN})
ERROR_CHARS_MAX = 200


@dataclass(frozen=True, slots=True)
class JobTrace:
    """Where the spans of one job hang. `parent_id` is the client's span, empty for none."""

    job: str
    context: TraceContext
    parent_id: str = ""

    @property
    def recorded(self) -> bool:
        """Whether its spans are wanted."""
        return self.context.sampled

    def run_of(self, uid: str) -> TraceContext:
        """The span an attempt runs in: what the job itself does hangs below it."""
        return self.context.at(span_id_of(uid, STEPS[-1]))


def trace_of(job: str, traceparent: str, sink: SpanSink) -> JobTrace:
    """The trace its submission came with, or one of its own."""
    given = parse_traceparent(traceparent)
    own = span_id_of(job)
    if given is not None:
        return JobTrace(job, given.at(own), given.span_id)
    trace_id = trace_id_of(job)
    return JobTrace(job, TraceContext(trace_id, own, sink.samples(trace_id)))


def dispatched_traceparent(uid: str, job: str, traceparent: str, sink: SpanSink) -> str:
    """What goes to the site: the span of the run; as it came, where we tell no spans."""
    if not sink.on:
        return traceparent
    return trace_of(job, traceparent, sink).run_of(uid).traceparent


def decide_span(trace: JobTrace, attempt: Attempt, started_ms: int, queued_ms: int) -> Span:
    """The cycle that placed an attempt, from its snapshot until the placement was durable.

    `queued_ms`: how long the job had waited when the cycle began.
    """
    attributes: dict[str, Attribute] = {
        **_names(attempt),
        "tradewind.cycle": attempt.cycle,
        "tradewind.queued_ms": queued_ms,
        "tradewind.price_usd_per_accelerator_hour": (
            attempt.price_micro_usd_per_accelerator_hour / 1e6
        ),
        "tradewind.expected_start_delay_ms": attempt.expected_start_delay_ms,
    }
    begun_ms = min(started_ms, attempt.placed_ms)
    times_ms = (begun_ms, attempt.placed_ms)
    return _span(trace, "decide", (attempt.uid, "decide"), times_ms, attributes)


def attempt_spans(trace: JobTrace, attempt: Attempt) -> tuple[Span, ...]:
    """An ended attempt with the steps it came through; the last may have been cut short."""
    ended_ms = max(attempt.ended_ms, attempt.placed_ms)
    outcome = attempt.outcome
    whole = _span(
        trace,
        "attempt",
        (attempt.uid, ""),
        (attempt.placed_ms, ended_ms),
        _names(attempt) | _facts(attempt),
        error=_error(outcome),
    )
    steps = _steps(attempt, ended_ms)
    below = trace.context.at(whole.span_id)
    return (whole, *(
        Span(
            name,
            below.trace_id,
            span_id_of(attempt.uid, name),
            below.span_id,
            begun_ms,
            over_ms,
            _names(attempt) | _measured(attempt, name),
            error=_error(outcome) if name == steps[-1][0] else "",
        )
        for name, begun_ms, over_ms in steps
    ))  # fmt: skip


def job_span(trace: JobTrace, job: Job) -> Span:
    """A job from the moment it was taken on until it ended."""
    outcome = job.outcome
    attributes: dict[str, Attribute] = {
        "tradewind.job": job.id,
        "tradewind.tenant": job.tenant,
        "tradewind.attempts": job.attempts_made,
        "tradewind.priority": job.priority,
        "tradewind.outcome": outcome.kind.value if outcome else "",
        "tradewind.cost_usd": job.cost_micro_usd / 1e6,
    }
    if job.is_array:
        attributes["tradewind.tasks"] = job.tasks.count
    return Span(
        "job",
        trace.context.trace_id,
        trace.context.span_id,
        trace.parent_id,
        job.created_ms,
        max(job.ended_ms, job.created_ms),
        attributes,
        error=_error(outcome),
    )


def submit_span(
    trace: JobTrace, began_ms: int, ended_ms: int, attributes: dict[str, Attribute]
) -> Span:
    """The broker taking a submission on: beside the job's span, below the client's if any."""
    parent = trace.parent_id or trace.context.span_id
    return Span(
        "submit",
        trace.context.trace_id,
        span_id_of(trace.job, "submit"),
        parent,
        began_ms,
        max(ended_ms, began_ms),
        attributes,
        kind="server",
    )


def _span(
    trace: JobTrace,
    name: str,
    about: tuple[str, str],
    times_ms: tuple[int, int],
    attributes: dict[str, Attribute],
    *,
    error: str = "",
) -> Span:
    context = trace.context
    return Span(
        name, context.trace_id, span_id_of(*about), context.span_id, *times_ms, attributes,
        error=error,
    )  # fmt: skip


def _steps(attempt: Attempt, ended_ms: int) -> list[tuple[str, int, int]]:
    """(name, from, to) of every step begun. Times of the site may be missing or a little off:
    none begins before the one before it."""
    begins = (attempt.placed_ms, attempt.reserved_ms, attempt.prepared_ms, attempt.started_ms)
    begun = [(name, at_ms) for name, at_ms in zip(STEPS, begins, strict=True) if at_ms]
    steps: list[tuple[str, int, int]] = []
    floor_ms = 0
    for index, (name, at_ms) in enumerate(begun):
        from_ms = min(max(at_ms, floor_ms), ended_ms)
        to_ms = begun[index + 1][1] if index + 1 < len(begun) else ended_ms
        floor_ms = min(max(to_ms, from_ms), ended_ms)
        steps.append((name, from_ms, floor_ms))
    return steps


def _names(attempt: Attempt) -> dict[str, Attribute]:
    return {
        "tradewind.job": attempt.job,
        "tradewind.attempt": attempt.uid,
        "tradewind.tenant": attempt.tenant,
        "tradewind.cluster": attempt.cluster,
        "tradewind.epoch": attempt.epoch,
    }


def _facts(attempt: Attempt) -> dict[str, Attribute]:
    outcome = attempt.outcome
    facts: dict[str, Attribute] = {
        "tradewind.region": attempt.region,
        "tradewind.pool": attempt.pool,
        "tradewind.accelerator": attempt.accelerator,
        "tradewind.accelerators": attempt.accelerators,
        "tradewind.cost_usd": cost_micro_usd(attempt) / 1e6,
        "tradewind.outcome": outcome.kind.value if outcome else "",
    }
    if outcome and outcome.code:
        facts["tradewind.refusal"] = outcome.code
    if attempt.tasks:
        facts["tradewind.tasks"] = attempt.tasks.count
        facts["tradewind.width"] = attempt.width
    return facts


def _measured(attempt: Attempt, step: str) -> dict[str, Attribute]:
    """What the site itself measured of a step."""
    if step == "handshake":
        return {"tradewind.handshake_ms": attempt.handshake_ms}
    if step == "prepare":
        return {"tradewind.prepare_ms": attempt.prepare_ms}
    if step == "launch":
        return {"tradewind.launch_ms": attempt.launch_ms}
    if attempt.outcome is None:
        return {}
    usage = attempt.outcome.usage
    return {"tradewind.cpu_ms": usage.cpu_ms, "tradewind.max_rss_bytes": usage.max_rss_bytes}


def _error(outcome: Outcome | None) -> str:
    if outcome is None or outcome.kind in _FINE:
        return ""
    return f"{outcome.kind.value}: {outcome.text}"[:ERROR_CHARS_MAX].rstrip(": ")
