"""The life of a job: the table is total, steps keep the invariants, faults of peers stay theirs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.lifecycle import events as ev
from broker.lifecycle.handlers import Rejected
from broker.lifecycle.invariants import check, violations
from broker.lifecycle.machine import step
from broker.lifecycle.reconcile import Needed, needed
from broker.lifecycle.table import ATTEMPT_TABLE, JOB_TABLE
from broker.model.jobs import (
    AttemptPhase,
    Awaited,
    Desired,
    FailedTasks,
    Job,
    JobPhase,
    Outcome,
    OutcomeKind,
    Reconcile,
    Terms,
)
from federation.ids import JobId
from federation.runs import Runs
from tests.unit.lifecycle.builders import JOB, a_job, an_attempt, ended, runs

NO_RETRY = Terms()
UID = f"{JOB}-1"


def test_every_pair_of_phase_and_event_has_a_row() -> None:
    assert set(ATTEMPT_TABLE) == {(p, e) for p in AttemptPhase for e in ev.SITE_EVENTS}
    assert set(JOB_TABLE) == {(p, e) for p in JobPhase for e in ev.JOB_EVENTS}


def placed(**job: object) -> Job:
    fresh = a_job(**job)
    return step(fresh, ev.AttemptPlaced(an_attempt(fresh)), NO_RETRY, 2_000).job


def running() -> Job:
    job = step(placed(), ev.Accepted(UID, 1, 2_100, 1), NO_RETRY, 2_100).job
    job = step(job, ev.Prepared(UID, 2, 2_200, 5), NO_RETRY, 2_200).job
    return step(job, ev.Started(UID, 3, 2_300, 7, "p1"), NO_RETRY, 2_300).job


def test_a_job_runs_to_its_end_and_is_paid_for() -> None:
    job = running()
    assert job.phase is JobPhase.RUNNING
    done = step(job, ev.Ended(UID, 4, 12_300, Outcome(OutcomeKind.SUCCEEDED)), NO_RETRY, 12_300)
    assert done.job.phase is JobPhase.ENDED
    assert done.job.cost_micro_usd == 10_000  # 10 s of one accelerator at 3.60 USD an hour
    assert {type(c).__name__ for c in done.commands} == {"Audit", "CloseAttempt", "CloseJob"}


def test_an_event_told_twice_changes_nothing() -> None:
    job = running()
    again = step(job, ev.Started(UID, 3, 2_300, 7, "p1"), NO_RETRY, 2_400)
    assert again.job is job and "already in the books" in again.ignored


def test_a_late_event_after_the_end_is_ignored() -> None:
    done = step(running(), ended(UID, 4), NO_RETRY, 9_000).job
    late = step(done, ev.Started(UID, 9, 9_500, 1, "x"), NO_RETRY, 9_500)
    assert late.job is done and late.ignored


def test_events_lost_on_the_way_are_completed_by_later_ones() -> None:
    job = step(placed(), ev.Started(UID, 3, 2_300, 7, "p1"), NO_RETRY, 2_300).job
    attempt = job.attempt(UID)
    assert attempt and attempt.phase is AttemptPhase.RUNNING
    assert needed(attempt) is Needed.NOTHING


def test_cancel_of_a_queued_job_ends_it_at_once() -> None:
    job = step(a_job(), ev.CancelAsked("ada"), NO_RETRY, 2_000).job
    assert job.outcome and job.outcome.kind is OutcomeKind.CANCELLED


def test_cancel_of_a_running_job_waits_for_the_site() -> None:
    job = step(running(), ev.CancelAsked("ada"), NO_RETRY, 3_000).job
    assert job.phase is JobPhase.RUNNING
    attempt = job.attempt(UID)
    assert attempt and attempt.desired is Desired.STOP and needed(attempt) is Needed.STOP
    over = step(job, ended(UID, 9, OutcomeKind.CANCELLED, -15), NO_RETRY, 4_000).job
    assert over.outcome and over.outcome.kind is OutcomeKind.CANCELLED


def test_a_terminal_event_wins_over_a_later_cancel() -> None:
    job = step(running(), ev.CancelAsked("ada"), NO_RETRY, 3_000).job
    over = step(job, ended(UID, 9), NO_RETRY, 4_000).job
    assert over.outcome and over.outcome.kind is OutcomeKind.SUCCEEDED
    assert step(over, ev.CancelAsked("ada"), NO_RETRY, 5_000).ignored


def test_a_cancelled_job_is_never_placed_again() -> None:
    job = step(placed(), ev.CancelAsked("ada"), NO_RETRY, 3_000).job
    with pytest.raises(Rejected):
        step(job, ev.AttemptPlaced(an_attempt(job, 2)), NO_RETRY, 3_100)
    refused = ev.Refused(UID, 2, 3_200, 1, "capacity_taken", "full")
    assert step(job, refused, NO_RETRY, 3_200).job.phase is JobPhase.ENDED


def test_one_gang_has_at_most_one_live_attempt() -> None:
    with pytest.raises(Rejected):
        step(placed(), ev.AttemptPlaced(an_attempt(a_job(), 2)), NO_RETRY, 3_000)


@pytest.mark.parametrize(
    ("kind", "on", "again"),
    [
        (OutcomeKind.LOST, {OutcomeKind.LOST}, True),
        (OutcomeKind.LOST, {OutcomeKind.FAILED}, False),
        (OutcomeKind.FAILED, {OutcomeKind.FAILED}, True),
        (OutcomeKind.CANCELLED, {OutcomeKind.FAILED}, False),
    ],
)
def test_an_end_is_retried_only_as_the_policy_says(
    kind: OutcomeKind, on: set[OutcomeKind], again: bool
) -> None:
    terms = Terms(retry_attempts=1, retry_on=frozenset(on))
    job = step(running(), ended(UID, 9, kind, 1), terms, 4_000).job
    assert (job.phase is JobPhase.QUEUED) is again
    if again:
        assert job.not_before_ms > 4_000 and job.retries_used == 1
        second = step(
            job, ev.AttemptPlaced(an_attempt(job, 2, dispatch_seq=2)), terms, 9_000
        ).job
        assert step(second, ended(f"{JOB}-2", 20, kind, 1), terms, 9_900).job.outcome is not None


def test_a_refusal_elsewhere_avoids_that_cluster_and_a_permanent_one_ends() -> None:
    elsewhere = ev.Refused(UID, 1, 2_100, 1, "capacity_taken", "a local user was faster")
    job = step(placed(), elsewhere, NO_RETRY, 2_100).job
    assert job.phase is JobPhase.QUEUED and job.avoid[0].cluster == "us-east"
    permanent = ev.Refused(UID, 1, 2_100, 1, "spec_mismatch", "digest differs")
    assert step(placed(), permanent, NO_RETRY, 2_100).job.phase is JobPhase.ENDED


def test_lesson_9_a_message_of_an_old_attempt_never_touches_the_new_one() -> None:
    terms = Terms(retry_attempts=1, retry_on=frozenset({OutcomeKind.LOST}))
    job = step(running(), ended(UID, 9, OutcomeKind.LOST), terms, 4_000).job
    job = step(job, ev.AttemptPlaced(an_attempt(job, 2, dispatch_seq=2)), terms, 9_000).job
    late = step(job, ended(UID, 10, OutcomeKind.FAILED, 3), terms, 9_100)
    assert late.job is job and late.ignored


def test_lesson_48_what_is_confirmed_and_missing_is_lost_never_launched_again() -> None:
    attempt = running().attempt(UID)
    assert attempt and needed(attempt, disk_replaced=True) is Needed.ADOPT
    job = step(running(), ev.FoundMissing(UID, 9, 5_000, "new disk"), NO_RETRY, 5_000).job
    assert job.outcome and job.outcome.kind is OutcomeKind.LOST


# Arrays -------------------------------------------------------------------------------------------


def an_array(width: int = 4, tasks: Runs | None = None) -> Job:
    job = a_job(tasks=runs(0, 99))
    attempt = an_attempt(job, tasks=tasks or runs(0, 15), width=width)
    job = step(job, ev.AttemptPlaced(attempt), NO_RETRY, 2_000).job
    return step(job, ev.Started(UID, 1, 2_100, 1, "s"), NO_RETRY, 2_100).job


def test_an_array_ends_when_all_its_tasks_did() -> None:
    job = an_array(tasks=runs(0, 99))
    done = ev.TasksChanged(UID, 2, 3_000, runs(0, 99), runs(0, 98), (FailedTasks(runs(99, 99), 3),))
    job = step(job, done, NO_RETRY, 3_000).job
    assert job.phase is JobPhase.RUNNING
    job = step(job, ended(UID, 3), NO_RETRY, 3_100).job
    assert job.outcome and (job.outcome.kind, job.outcome.exit_code) == (OutcomeKind.FAILED, 3)


def test_tasks_that_never_started_go_back_when_a_slice_ends() -> None:
    job = an_array()
    told = ev.TasksChanged(UID, 2, 3_000, runs(0, 5), runs(0, 3), ())
    job = step(job, told, NO_RETRY, 3_000).job
    job = step(job, ended(UID, 3, OutcomeKind.LOST), NO_RETRY, 3_100).job
    assert job.task_states.failed_runs == runs(4, 5)
    assert job.unassigned_tasks == runs(6, 99)


def test_lost_tasks_run_again_where_the_policy_says_so() -> None:
    terms = Terms(retry_attempts=1, retry_on=frozenset({OutcomeKind.LOST}))
    job = an_array()
    told = ev.TasksChanged(UID, 2, 3_000, runs(0, 5), runs(0, 3), ())
    job = step(job, told, terms, 3_000).job
    job = step(job, ended(UID, 3, OutcomeKind.LOST), terms, 3_100).job
    assert job.unassigned_tasks == runs(4, 99)


def test_slices_never_overlap() -> None:
    job = an_array()
    with pytest.raises(Rejected):
        second = an_attempt(job, 2, tasks=runs(10, 30), width=4)
        step(job, ev.AttemptPlaced(second), NO_RETRY, 3_000)


# Any order of anything ----------------------------------------------------------------------------

_kinds = st.sampled_from(list(OutcomeKind))


@st.composite
def histories(draw: st.DrawFn) -> tuple[Job, list[ev.Event], Terms]:
    array = draw(st.booleans())
    awaited = Awaited(JobId("j" + "9" * 16))
    awaits = (awaited,) if draw(st.booleans()) else ()
    job = a_job(tasks=runs(0, 9) if array else Runs(), awaits=awaits)
    terms = Terms(
        retry_attempts=draw(st.integers(0, 2)),
        retry_on=frozenset(draw(st.sets(_kinds))),
        reconcile=draw(st.sampled_from(list(Reconcile))),
    )
    events: list[ev.Event] = []
    for n in range(1, draw(st.integers(2, 14))):
        uid = f"{JOB}-{draw(st.integers(1, 3))}"
        seq = draw(st.integers(1, 30))
        some = Runs.of([(a := draw(st.integers(0, 9)), min(9, a + draw(st.integers(0, 4))))])
        outcome = Outcome(draw(_kinds), draw(st.integers(0, 3)), code="capacity_taken")
        events.append(
            draw(
                st.sampled_from(
                    [
                        ev.AttemptPlaced(
                            an_attempt(
                                job,
                                draw(st.integers(1, 3)),
                                tasks=some if array else Runs(),
                                width=2 if array else 0,
                                dispatch_seq=n,
                                placed_seq=n,
                                fence_after_s=0 if array else 60,
                            )
                        ),
                        ev.Accepted(uid, seq, 100 * n, n),
                        ev.Refused(uid, seq, 100 * n, n, "capacity_taken", ""),
                        ev.Prepared(uid, seq, 100 * n, 1),
                        ev.Started(uid, seq, 100 * n, 1, ""),
                        ev.TasksChanged(uid, seq, 100 * n, some, some, ()),
                        ev.Ended(uid, seq, 100 * n, outcome),
                        ev.FoundMissing(uid, seq, 100 * n, ""),
                        ev.CancelAsked("ada"),
                        ev.HoldAsked("ada"),
                        ev.ReleaseAsked("ada"),
                        ev.StopDecided(uid, OutcomeKind.PREEMPTED),
                        ev.PredecessorsCame((awaited,)),
                        ev.PredecessorFailed("j9 has failed"),
                        ev.ReplaceDecided(uid, "silent for 2m"),
                    ]
                )
            )
        )
    return job, events, terms


@settings(max_examples=400, deadline=None)
@given(histories())
def test_no_order_of_events_breaks_an_invariant(
    history: tuple[Job, list[ev.Event], Terms],
) -> None:
    job, events, terms = history
    for number, event in enumerate(events):
        before = job
        if isinstance(event, ev.AttemptPlaced):
            known = {a.uid for a in job.attempts}
            if event.attempt.uid in known:
                continue  # the leader numbers attempts; it never reuses one
        try:
            job = step(job, event, terms, 1_000 * (number + 1)).job
        except Rejected:
            continue
        assert violations(job) == []
        check(job)
        for attempt in before.attempts:
            now = job.attempt(attempt.uid)
            assert now is not None and now.phase.rank >= attempt.phase.rank
        if before.phase is JobPhase.ENDED:
            told = replace(before, changed_ms=job.changed_ms, cost_micro_usd=job.cost_micro_usd)
            assert replace(job, attempts=()) == replace(told, attempts=())
            for attempt in before.attempts:
                assert attempt.superseded_ms or job.attempt(attempt.uid) == attempt
