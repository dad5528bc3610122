"""Whether spans are wanted, and by whom: the standard OTEL_* variables decide.

Off unless they name an endpoint. OpenTelemetry itself is loaded only then, from
`federation.otlp_exporter`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from federation.traces import NoSpans, SpanSink

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_log = logging.getLogger(__name__)


def wanted(environ: Mapping[str, str]) -> bool:
    """Whether the environment asks for traces."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    if environ.get("OTEL_TRACES_EXPORTER", "otlp").strip().lower() != "otlp":
        return False
    return any(environ.get(name, "").strip() for name in ENDPOINTS)


def open_spans(
    environ: Mapping[str, str],
    service: str,
    attributes: Mapping[str, str] | None = None,
    *,
    timeout_s: float | None = None,
) -> SpanSink:
    """Where spans go, as the environment says: to its collector, or nowhere.

    `service` is the service's name unless the environment gives another, `attributes` are those
    of the resource, `timeout_s` bounds one request (None: OTEL_EXPORTER_OTLP_TIMEOUT). Without
    the extra `telemetry` nothing is sent, and the log says so once.
    """
    if not wanted(environ):
        return NoSpans()
    try:
        from federation.otlp_exporter import OtlpSpans
    except ImportError as missing:
        _log.warning("no traces: %s; install tradewind[telemetry]", missing)
        return NoSpans()
    return OtlpSpans(environ, service, attributes or {}, timeout_s=timeout_s)
