"""Records come back as they went in, and what a newer version wrote is kept."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.model.jobs import (
    AttemptPhase,
    AvoidedCluster,
    FailedTasks,
    JobPhase,
    Outcome,
    OutcomeKind,
    Output,
    TaskStates,
)
from broker.state.codec import decode_attempt, decode_job, encode_attempt, encode_job
from broker.state.task_chunks import chunks_touched, decode_chunks, encode_chunk
from federation.ids import Cluster
from federation.runs import Runs
from federation.usage import Usage
from tests.unit.lifecycle.builders import a_job, an_attempt, runs


def test_a_job_round_trips() -> None:
    job = a_job(
        phase=JobPhase.ENDED,
        outcome=Outcome(OutcomeKind.FAILED, 3, 9, "code", "text", Usage(1, 2, 3, 4)),
        ended_ms=5,
        tasks=Runs.of([(0, 5), (9, 9)]),
        avoid=(AvoidedCluster(Cluster("us-east"), "paused", 7),),
        retries_used=2,
        cost_micro_usd=11,
    )
    assert decode_job("k", encode_job(job)) == job


def test_an_attempt_round_trips() -> None:
    attempt = an_attempt(
        a_job(),
        phase=AttemptPhase.RUNNING,
        outputs=(Output("a/b", "0" * 64, 3, 0o644),),
        nodes=("n1", "n2"),
        log_bytes=(("output", 12),),
        tasks=runs(1, 9),
        width=3,
        started_tasks=runs(1, 2),
    )
    assert decode_attempt("k", encode_attempt(attempt)) == attempt


def test_fields_of_a_newer_version_survive_a_rewrite() -> None:
    newer = encode_job(a_job()) + bytes([0xFA, 0x3E, 3]) + b"new"  # field 1007, bytes
    job = decode_job("k", newer)
    again = encode_job(replace(job, priority=7))
    assert again.endswith(bytes([0xFA, 0x3E, 3]) + b"new")
    assert decode_job("k", again).priority == 7


_state = st.sampled_from(["unstarted", "ok", "failed", "cancelled"])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9_000), _state, st.integers(1, 3)), max_size=12))
def test_task_states_round_trip_over_chunks(spans: list[tuple[int, str, int]]) -> None:
    at, ok, cancelled = 0, [], []
    failed: dict[int, list[tuple[int, int]]] = {}
    for length, state, code in spans:
        span = (at, at + length - 1)
        at += length
        if state == "ok":
            ok.append(span)
        elif state == "cancelled":
            cancelled.append(span)
        elif state == "failed":
            failed.setdefault(code, []).append(span)
    states = TaskStates(
        Runs.of(ok),
        tuple(FailedTasks(Runs.of(failed[code]), code) for code in sorted(failed)),
        Runs.of(cancelled),
    )
    chunks = [encode_chunk(states, n) for n in chunks_touched(TaskStates(), states)]
    assert decode_chunks(chunks) == states


def test_a_million_ended_tasks_are_few_bytes() -> None:
    states = TaskStates(succeeded=runs(0, 999_999))
    chunks = [encode_chunk(states, n) for n in chunks_touched(TaskStates(), states)]
    assert len(chunks) == 62 and sum(map(len, chunks)) < 1_000
