"""Spans made of an attempt's times: parented right, in order, whatever is missing."""

from __future__ import annotations

import itertools

import pytest

from broker.feedback.spans import (
    attempt_spans,
    dispatched_traceparent,
    job_span,
    submit_span,
    trace_of,
)
from broker.model.jobs import Outcome, OutcomeKind
from federation.runs import Runs
from federation.traces import KeptSpans, NoSpans, Span, parse_traceparent, span_id_of, trace_id_of
from regional_agent.feedback.spans import site_span
from regional_agent.session.commands import Placement
from regional_agent.session.events import Ended, Event, Prepared, Refused, Started
from regional_agent.session.held import Held
from tests.unit.lifecycle.builders import JOB, a_job, an_attempt

GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
DONE = {
    "reserved_ms": 2_010, "prepared_ms": 2_200, "started_ms": 2_300, "ended_ms": 9_000,
    "outcome": Outcome(OutcomeKind.SUCCEEDED),
}  # fmt: skip


def spans_of(**changes: object) -> dict[str, Span]:
    attempt = an_attempt(a_job(), **(DONE | changes))
    return {span.name: span for span in attempt_spans(trace_of(JOB, GIVEN, KeptSpans()), attempt)}


def test_an_attempt_has_its_steps_one_after_the_other() -> None:
    spans = spans_of()
    assert list(spans) == ["attempt", "handshake", "prepare", "launch", "run"]
    times = [(s.start_ms, s.end_ms) for s in list(spans.values())[1:]]
    assert times == [(2_000, 2_010), (2_010, 2_200), (2_200, 2_300), (2_300, 9_000)]
    whole = spans.pop("attempt")
    assert {s.parent_id for s in spans.values()} == {whole.span_id}
    assert whole.parent_id == span_id_of(JOB)
    assert {s.trace_id for s in (whole, *spans.values())} == {GIVEN.split("-")[1]}


@pytest.mark.parametrize(
    ("changes", "steps", "failed"),
    [
        ({"reserved_ms": 0, "prepared_ms": 0, "started_ms": 0,
          "outcome": Outcome(OutcomeKind.REFUSED, code="no_capacity", text="full")},
         ["handshake"], "handshake"),
        ({"prepared_ms": 0, "started_ms": 0, "outcome": Outcome(OutcomeKind.FAILED, text="x")},
         ["handshake", "prepare"], "prepare"),
        ({"prepared_ms": 0, "outcome": Outcome(OutcomeKind.LOST)},
         ["handshake", "prepare", "run"], "run"),
        ({"outcome": Outcome(OutcomeKind.FAILED, exit_code=3)},
         ["handshake", "prepare", "launch", "run"], "run"),
    ],
)  # fmt: skip
def test_the_step_that_was_cut_short_carries_the_error(
    changes: dict[str, object], steps: list[str], failed: str
) -> None:
    spans = spans_of(**changes)
    assert list(spans)[1:] == steps
    assert {name for name, s in spans.items() if s.error} == {"attempt", failed}
    assert spans[failed].end_ms == 9_000


def test_a_clock_that_is_off_turns_no_span_around() -> None:
    """Times of sites may be anything: no span ends before it begins or outlasts its attempt."""
    times = (0, 1_900, 2_000, 5_000, 99_000)
    for reserved, prepared, started in itertools.product(times, repeat=3):
        spans = spans_of(reserved_ms=reserved, prepared_ms=prepared, started_ms=started)
        whole = spans.pop("attempt")
        ordered = [t for s in spans.values() for t in (s.start_ms, s.end_ms)]
        assert ordered == sorted(ordered)
        assert whole.start_ms <= ordered[0] and ordered[-1] <= whole.end_ms


def test_a_cancelled_job_is_no_error_and_an_array_says_how_much() -> None:
    job = a_job(
        outcome=Outcome(OutcomeKind.CANCELLED), ended_ms=9_000, tasks=Runs.of([(0, 99)])
    )
    span = job_span(trace_of(JOB, "", KeptSpans()), job)
    assert not span.error and span.attributes["tradewind.tasks"] == 100
    assert (span.trace_id, span.parent_id) == (trace_id_of(JOB), "")


def test_what_goes_to_the_site_is_the_span_of_its_run() -> None:
    uid = f"{JOB}-1"
    sent = dispatched_traceparent(uid, JOB, GIVEN, KeptSpans())
    assert parse_traceparent(sent) == trace_of(JOB, GIVEN, KeptSpans()).run_of(uid)
    assert spans_of()["run"].span_id == sent.split("-")[2]
    assert dispatched_traceparent(uid, JOB, GIVEN, NoSpans()) == GIVEN
    assert dispatched_traceparent(uid, JOB, "", NoSpans()) == ""
    assert dispatched_traceparent(uid, JOB, "nonsense", KeptSpans()).split("-")[1] == (
        trace_id_of(JOB)
    )


def test_the_brokers_own_submission_hangs_below_the_clients_or_the_job() -> None:
    below_client = submit_span(trace_of(JOB, GIVEN, KeptSpans()), 1, 5, {})
    assert below_client.parent_id == GIVEN.split("-")[2]
    alone = submit_span(trace_of(JOB, "", KeptSpans()), 1, 5, {})
    assert alone.parent_id == span_id_of(JOB) and alone.kind == "server"


def held(traceparent: str) -> Held:
    made = Held(f"{JOB}-1", 1, 1, b"", JOB, "lab", None, Placement("cpu"), 2_000, traceparent)
    made.started_ms = 2_300
    return made


def test_a_sites_spans_hang_below_the_steps_the_broker_tells() -> None:
    attempt = held(dispatched_traceparent(f"{JOB}-1", JOB, GIVEN, KeptSpans()))
    told = spans_of()
    for said, below, times in (
        (Prepared(150, 10, 20), "prepare", (2_050, 2_200)),
        (Started(80, "77"), "launch", (2_220, 2_300)),
        (Ended("succeeded"), "run", (2_300, 9_000)),
    ):
        span = site_span(Event(attempt.uid, 1, times[1], said), attempt, "eu")
        assert span is not None and span.parent_id == told[below].span_id
        assert (span.start_ms, span.end_ms) == times and not span.error
    assert site_span(Event(attempt.uid, 1, 5, Refused(1, "paused", "")), attempt, "eu") is None
    for silent in ("", GIVEN[:-2] + "00"):
        assert site_span(Event("x", 1, 5, Prepared(1)), held(silent), "eu") is None
