"""Trace context as the W3C recommendation has it, and ids both sides derive alike."""

from __future__ import annotations

import pytest

from federation.otlp import open_spans, wanted
from federation.traces import (
    NoSpans,
    TraceContext,
    parse_traceparent,
    span_id_of,
    trace_id_of,
)

GOOD = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_traceparent_is_read_and_written_alike() -> None:
    context = parse_traceparent(GOOD)
    assert context == TraceContext("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", True)
    assert context is not None and context.traceparent == GOOD
    unsampled = parse_traceparent(GOOD[:-2] + "00")
    assert unsampled is not None and not unsampled.sampled
    assert unsampled.at("1" * 16).traceparent.endswith("-1111111111111111-00")


@pytest.mark.parametrize(
    "text",
    [
        "", "garbage", GOOD.upper(), GOOD + "-more", "ff" + GOOD[2:], GOOD[:-1],
        "00-" + "0" * 32 + "-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01",
    ],
)  # fmt: skip
def test_what_is_no_traceparent_is_none(text: str) -> None:
    assert parse_traceparent(text) is None


def test_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    context = parse_traceparent("01" + GOOD[2:-2] + "03-later")
    assert context is not None and context.sampled


def test_derived_ids_are_valid_and_differ_by_what_they_are_about() -> None:
    uids = [f"j{n}-1" for n in range(200)]
    spans = {span_id_of(uid, step) for uid in uids for step in ("", "run", "prepare")}
    assert len(spans) == 600
    assert all(parse_traceparent(f"00-{trace_id_of(u)}-{span_id_of(u)}-01") for u in uids)


@pytest.mark.parametrize(
    ("environ", "on"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_SDK_DISABLED": "TRUE"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_SERVICE_NAME": "x"}, False),
    ],
)
def test_only_the_standard_variables_switch_traces_on(
    environ: dict[str, str], on: bool
) -> None:
    assert wanted(environ) is on
    if not on:
        assert isinstance(open_spans(environ, "broker"), NoSpans)
