"""Spans by OTLP over HTTP: the one door to OpenTelemetry.

The SDK reads its own variables: headers, certificates, time-outs, sampler, resource, batches.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from opentelemetry import trace as api
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace.propagation import set_span_in_context

from federation.traces import Span

QUEUE_SPANS = 16_384
"""Spans that wait for a slow collector; beyond it they are dropped (OTEL_BSP_MAX_QUEUE_SIZE)."""
QUEUE_SPANS_MIN = 512
CLOSE_S = 3.0
_SCOPE = "tradewind"


class _NextIds(IdGenerator):
    """Gives a span the ids it is made with; they are derived, not drawn."""

    def __init__(self) -> None:
        self.trace_id = self.span_id = 0

    def generate_trace_id(self) -> int:
        """See `IdGenerator`."""
        return self.trace_id

    def generate_span_id(self) -> int:
        """See `IdGenerator`."""
        return self.span_id

    def is_trace_id_random(self) -> bool:
        """See `IdGenerator`."""
        return False


class OtlpSpans:
    """`SpanSink` to the collector the environment names, from a thread of the SDK."""

    on = True

    def __init__(
        self,
        environ: Mapping[str, str],
        service: str,
        attributes: Mapping[str, str],
        *,
        timeout_s: float | None = None,
    ) -> None:
        name = environ.get("OTEL_SERVICE_NAME") or _named(environ) or service
        self._ids = _NextIds()
        self._provider = TracerProvider(
            resource=Resource.create({**attributes, "service.name": name}),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        asked = environ.get("OTEL_BSP_MAX_QUEUE_SIZE", "")
        queue = max(int(asked), QUEUE_SPANS_MIN) if asked.isdigit() else QUEUE_SPANS
        exporter = OTLPSpanExporter(timeout=timeout_s)
        self._provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=queue))
        self._tracer = self._provider.get_tracer(_SCOPE)

    def samples(self, trace_id: str) -> bool:
        """See `SpanSink`."""
        asked = self._provider.sampler.should_sample(None, int(trace_id, 16), "job")
        return asked.decision is Decision.RECORD_AND_SAMPLE

    def emit(self, spans: Sequence[Span]) -> None:
        """See `SpanSink`. Not for several threads."""
        for span in spans:
            self._emit(span)

    def _emit(self, span: Span) -> None:
        trace_id = int(span.trace_id, 16)
        parent = api.NonRecordingSpan(
            api.SpanContext(
                trace_id,
                int(span.parent_id or "0", 16),
                is_remote=True,
                trace_flags=api.TraceFlags(api.TraceFlags.SAMPLED),
            )
        )
        self._ids.trace_id, self._ids.span_id = trace_id, int(span.span_id, 16)
        made = self._tracer.start_span(
            span.name,
            set_span_in_context(parent) if span.parent_id else None,
            kind=api.SpanKind[span.kind.upper()],
            attributes=dict(span.attributes),
            start_time=span.start_ms * 1_000_000,
        )
        if span.error:
            made.set_status(api.Status(api.StatusCode.ERROR, span.error))
        made.end(span.end_ms * 1_000_000)

    def close(self) -> None:
        """See `SpanSink`. A collector that does not answer is not waited for."""
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(CLOSE_S)


def _named(environ: Mapping[str, str]) -> str:
    """A service name among OTEL_RESOURCE_ATTRIBUTES, over which ours would win."""
    pairs = (part.partition("=") for part in environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","))
    return next((v.strip() for k, _, v in pairs if k.strip() == "service.name"), "")
