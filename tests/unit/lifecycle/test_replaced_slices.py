"""Slices of an array whose site falls silent: their tasks go elsewhere, and each counts once."""

from __future__ import annotations

import pytest

from broker.control.slices import top_up
from broker.lifecycle import events as ev
from broker.lifecycle.invariants import check
from broker.lifecycle.machine import step
from broker.lifecycle.reconcile import Needed, needed
from broker.model.jobs import (
    Attempt,
    FailedTasks,
    Job,
    JobPhase,
    Outcome,
    OutcomeKind,
    Reconcile,
    Terms,
)
from federation.runs import Runs
from tests.unit.lifecycle.builders import JOB, a_job, an_attempt, ended, runs

FIRST, SECOND = f"{JOB}-1", f"{JOB}-2"
GONE = ev.ReplaceDecided(FIRST, "us-east is silent for 12m")
NONE = Runs()
FENCED = Outcome(OutcomeKind.LOST, code="fenced", text="no contact")
RULES = list(Reconcile)
BOTH_KEEP = [Reconcile.KEEP_ORIGINAL, Reconcile.LONGEST_RUNNING]


def after(job: Job, *events: ev.Event, rule: Reconcile = Reconcile.KEEP_ORIGINAL) -> Job:
    for event in events:
        job = check(step(job, event, Terms(reconcile=rule), 8_000).job)
    return job


def told(uid: str, seq: int, started: Runs, succeeded: Runs = NONE, failed: Runs = NONE):
    groups = (FailedTasks(failed, 3),) if failed else ()
    return ev.TasksChanged(uid, seq, 7_000, started, succeeded, groups)


def slice_(job: Job, n: int, tasks: Runs, **changes: object) -> Attempt:
    return an_attempt(job, n, tasks=tasks, width=2, fence_after_s=600, stop_grace_s=30, **changes)


def running() -> Job:
    """Tasks 0-3 at us-east, of which 0 has ended and 1 and 2 run; 4 and 5 are with nobody."""
    job = a_job(tasks=runs(0, 5))
    return after(
        job,
        ev.AttemptPlaced(slice_(job, 1, runs(0, 3))),
        ev.Accepted(FIRST, 1, 3_000, 1),
        ev.Started(FIRST, 2, 3_000, 1, "p"),
        told(FIRST, 3, runs(0, 2), runs(0, 0)),
    )


def replaced() -> Job:
    """Tasks 1-5 in a slice elsewhere, of which 1 and 2 run."""
    job = after(running(), GONE)
    second = slice_(job, 2, runs(1, 5), cluster="far", placed_ms=5_000)
    return after(
        job,
        ev.AttemptPlaced(second),
        ev.Accepted(SECOND, 1, 6_000, 2),
        ev.Started(SECOND, 2, 6_000, 1, "q"),
        told(SECOND, 3, runs(1, 2)),
    )


def attempt(job: Job, uid: str) -> Attempt:
    found = job.attempt(uid)
    assert found is not None
    return found


def test_what_had_not_ended_goes_back_and_the_site_is_told_to_stop() -> None:
    job = after(running(), GONE)
    assert (job.phase, job.reason_code) == (JobPhase.QUEUED, "site_lost")
    assert job.unassigned_tasks == runs(1, 5)
    assert needed(attempt(job, FIRST)) is Needed.STOP


def test_other_slices_of_the_array_run_on() -> None:
    job = running()
    job = after(job, ev.AttemptPlaced(slice_(job, 2, runs(4, 5), cluster="far")), GONE)
    assert job.phase is JobPhase.PLACED and job.unassigned_tasks == runs(1, 3)


@pytest.mark.parametrize("rule", RULES)
def test_a_success_nobody_has_in_hand_any_more_counts(rule: Reconcile) -> None:
    job = after(running(), GONE, told(FIRST, 4, NONE, runs(1, 1)), rule=rule)
    assert job.task_states.succeeded == runs(0, 1)
    assert job.unassigned_tasks == runs(2, 5)


@pytest.mark.parametrize("rule", BOTH_KEEP)
def test_a_success_told_late_counts_and_what_runs_again_counts_no_more(rule: Reconcile) -> None:
    job = after(replaced(), told(FIRST, 4, NONE, runs(1, 1)), rule=rule)
    assert job.task_states.succeeded == runs(0, 1)
    job = after(job, told(SECOND, 4, NONE, NONE, runs(1, 1)), rule=rule)
    assert job.task_states.succeeded == runs(0, 1) and not job.task_states.failed


def test_it_is_not_begun_again_where_it_only_waits() -> None:
    job = after(replaced(), told(FIRST, 4, runs(3, 3), runs(3, 3)))
    assert top_up(job, attempt(job, SECOND), 9_000) == runs(1, 2).union(runs(4, 5))


def test_the_replacement_is_kept_where_the_job_says_so() -> None:
    keep = Reconcile.KEEP_REPLACEMENT
    job = after(replaced(), told(FIRST, 4, NONE, runs(1, 1)), rule=keep)
    assert job.task_states.succeeded == runs(0, 0)
    job = after(job, told(SECOND, 4, NONE, runs(1, 1)), rule=keep)
    assert job.task_states.succeeded == runs(0, 1)


@pytest.mark.parametrize("rule", RULES)
def test_a_failure_told_late_is_nothing(rule: Reconcile) -> None:
    job = after(replaced(), told(FIRST, 4, NONE, NONE, runs(1, 1)), rule=rule)
    assert not job.task_states.failed


@pytest.mark.parametrize("rule", RULES)
def test_the_end_of_the_original_changes_nothing(rule: Reconcile) -> None:
    job = after(replaced(), ev.Ended(FIRST, 4, 7_000, FENCED), rule=rule)
    assert job.phase is JobPhase.RUNNING and job.task_states.succeeded == runs(0, 0)
    job = after(job, told(SECOND, 4, runs(3, 5), runs(1, 5)), ended(SECOND, 5), rule=rule)
    assert job.outcome == Outcome(OutcomeKind.SUCCEEDED)


def test_the_array_ends_with_its_last_task_although_the_original_is_unheard() -> None:
    job = after(replaced(), told(SECOND, 4, runs(3, 5), runs(1, 5)), ended(SECOND, 5))
    assert job.phase is JobPhase.ENDED and attempt(job, FIRST).live
    late = after(job, told(FIRST, 4, NONE, runs(1, 2)), ev.Ended(FIRST, 5, 7_000, FENCED))
    assert late.outcome == job.outcome and late.cost_micro_usd > job.cost_micro_usd


def test_all_that_was_left_had_succeeded_unheard() -> None:
    """Nothing took its place yet: the array has ended when its site has told all of it."""
    job = a_job(tasks=runs(0, 1))
    job = after(
        job,
        ev.AttemptPlaced(slice_(job, 1, runs(0, 1))),
        ev.Accepted(FIRST, 1, 3_000, 1),
        ev.Started(FIRST, 2, 3_000, 1, "p"),
        GONE,
        told(FIRST, 3, runs(0, 1), runs(0, 1)),
        ended(FIRST, 4),
    )
    assert job.outcome == Outcome(OutcomeKind.SUCCEEDED)


def test_stopped_before_the_leader_decided_its_tasks_are_tried_elsewhere() -> None:
    """The site was back a moment too early: no task has failed, and no retry is used up."""
    job = after(running(), ev.Ended(FIRST, 4, 7_000, FENCED))
    assert (job.phase, job.reason_code, job.retries_used) == (JobPhase.QUEUED, "site_lost", 0)
    assert [entry.cluster for entry in job.avoid] == ["us-east"]
    assert job.unassigned_tasks == runs(1, 5) and not job.task_states.failed


def test_a_cancel_is_over_once_every_slice_has_stopped_for_certain() -> None:
    job = after(running(), ev.CancelAsked("ada"), GONE)
    assert job.phase is JobPhase.ENDED and job.outcome is not None
    assert job.outcome.kind is OutcomeKind.CANCELLED
