"""The span of a submission, where the environment asks for traces (OTEL_*).

A TRACEPARENT in the environment is continued: that of a build, or of the job that submits.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from federation.environment import Clock, Ids
from federation.otlp import open_spans, wanted
from federation.system import SystemClock, SystemIds
from federation.traces import (
    TRACEPARENT,
    NoSpans,
    Span,
    SpanSink,
    TraceContext,
    parse_traceparent,
)

SEND_S = 2.0
"""A collector that does not answer must not keep anybody at the prompt."""


class Submitting:
    """A submission under way. `traceparent` goes with the request; empty for no trace."""

    def __init__(self, sink: SpanSink, given: TraceContext | None, clock: Clock, ids: Ids) -> None:
        self._sink = sink
        self._given = given
        self._clock = clock
        self._began_ms = clock.now_ms()
        self._told = False
        self._own: TraceContext | None = None
        if sink.on:
            trace_id = given.trace_id if given else ids.token_bytes(16).hex()
            sampled = given.sampled if given else sink.samples(trace_id)
            self._own = TraceContext(trace_id, ids.token_bytes(8).hex(), sampled)

    @property
    def traceparent(self) -> str:
        """Our own span; without one, what we were given."""
        context = self._own or self._given
        return context.traceparent if context else ""

    def submitted(self, job: str) -> None:
        """The broker has it: the span ends here, whatever is waited for after."""
        self._tell({"tradewind.job": job}, "")

    def over(self, error: str = "") -> None:
        """The command ends; an unsubmitted job's span says why."""
        self._tell({}, error or "nothing was submitted")
        self._sink.close()

    def _tell(self, attributes: Mapping[str, str], error: str) -> None:
        own = self._own
        if self._told or own is None or not own.sampled:
            return
        self._told = True
        parent = self._given.span_id if self._given else ""
        span = Span(
            "submit", own.trace_id, own.span_id, parent, self._began_ms, self._clock.now_ms(),
            attributes, kind="client", error=error,
        )  # fmt: skip
        self._sink.emit([span])


@contextmanager
def submitting(environ: Mapping[str, str] | None = None) -> Iterator[Submitting]:
    """Around a submission; `environ` is this process's unless given."""
    environ = os.environ if environ is None else environ
    sink: SpanSink = NoSpans()
    if wanted(environ):
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        sink = open_spans(environ, "tradewind-cli", timeout_s=SEND_S)
    given = parse_traceparent(environ.get(TRACEPARENT, ""))
    trace = Submitting(sink, given, SystemClock(), SystemIds())
    error = ""
    try:
        yield trace
    except BaseException as raised:
        error = type(raised).__name__
        raise
    finally:
        trace.over(error)
