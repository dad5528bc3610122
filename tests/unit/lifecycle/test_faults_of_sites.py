"""What a site may say wrongly, late or for ever: none of it breaks a job or runs a task twice."""

from __future__ import annotations

import pytest

from broker.lifecycle import events as ev
from broker.lifecycle.handlers import LISTED_BYTES_MAX
from broker.lifecycle.invariants import check
from broker.lifecycle.machine import step
from broker.lifecycle.outcomes import ATTEMPTS_WITHOUT_START_MAX
from broker.lifecycle.reconcile import Needed, needed
from broker.model.jobs import (
    FailedTasks,
    Job,
    JobPhase,
    Outcome,
    OutcomeKind,
    Output,
    Terms,
)
from broker.state.codec import encode_attempt, encode_job
from federation.runs import Runs
from tests.unit.lifecycle.builders import JOB, a_job, an_attempt, ended, runs

NO_RETRY = Terms()
FIRST, SECOND = f"{JOB}-1", f"{JOB}-2"


def after(job: Job, *events: ev.Event, terms: Terms = NO_RETRY, now_ms: int = 5_000) -> Job:
    for event in events:
        job = check(step(job, event, terms, now_ms).job)
    return job


def a_slice(tasks: Runs, of: Runs | None = None) -> Job:
    job = a_job(tasks=of or runs(0, 99))
    slice_ = an_attempt(job, tasks=tasks, width=4)
    return after(
        job,
        ev.AttemptPlaced(slice_),
        ev.Accepted(FIRST, 1, 3_000, 1),
        ev.Started(FIRST, 2, 3_000, 1, "s"),
    )


def two_slices() -> Job:
    job = a_slice(runs(0, 9), of=runs(0, 29))
    second = an_attempt(job, 2, tasks=runs(10, 19), width=4)
    return after(job, ev.AttemptPlaced(second))


# Slices -----------------------------------------------------------------------------------------


def test_tasks_added_to_a_slice_that_ended_meanwhile_come_back() -> None:
    job = after(a_slice(runs(0, 15)), ev.SliceDecided(FIRST, runs(0, 31), 2))
    assert job.unassigned_tasks == runs(32, 99)
    done = ev.TasksChanged(FIRST, 3, 4_000, runs(0, 15), runs(0, 15), ())
    job = after(job, done, ended(FIRST, 4))
    assert job.unassigned_tasks == runs(16, 99) and job.phase is JobPhase.QUEUED


def test_a_site_that_takes_a_part_of_a_slice_gives_the_rest_back() -> None:
    job = after(a_slice(runs(0, 15)), ev.SliceDecided(FIRST, runs(0, 31), 2))
    job = after(job, ev.SliceSet(FIRST, 3, 4_000, 2, runs(0, 19)))
    assert job.unassigned_tasks == runs(20, 99)


def test_a_site_never_takes_more_of_an_array_than_it_was_given() -> None:
    job = after(two_slices(), ev.SliceDecided(FIRST, runs(0, 9).union(runs(20, 21)), 3))
    job = after(job, ev.SliceSet(FIRST, 3, 4_000, 3, runs(0, 29)))
    first = job.attempt(FIRST)
    assert first is not None and first.tasks == runs(0, 9).union(runs(20, 21))


def test_what_a_slice_started_stays_with_it_whatever_set_it_answers() -> None:
    job = after(
        a_slice(runs(0, 15)),
        ev.TasksChanged(FIRST, 3, 4_000, runs(0, 3), Runs(), ()),
        ev.SliceDecided(FIRST, runs(0, 31), 2),
        ev.SliceSet(FIRST, 4, 4_000, 2, runs(8, 9)),
    )
    assert not job.unassigned_tasks.intersection(runs(0, 3))


def test_an_answer_to_a_command_never_given_confirms_nothing_beyond_it() -> None:
    job = after(a_slice(runs(0, 15)), ev.SliceSet(FIRST, 3, 4_000, 99, runs(0, 15)))
    job = after(job, ev.SliceDecided(FIRST, runs(0, 31), 2))
    attempt = job.attempt(FIRST)
    assert attempt is not None and needed(attempt) is Needed.SET_SLICE


def test_a_task_told_as_succeeded_and_failed_at_once_ends_once() -> None:
    both = ev.TasksChanged(FIRST, 3, 4_000, runs(0, 3), runs(0, 3), (FailedTasks(runs(2, 5), 1),))
    job = after(a_slice(runs(0, 15)), both)
    assert job.task_states.succeeded == runs(0, 3)
    assert job.task_states.failed_runs == runs(4, 5)


def test_tasks_of_others_that_a_site_says_it_started_are_not_its_own() -> None:
    told = ev.TasksChanged(FIRST, 3, 4_000, runs(0, 999_999), Runs(), ())
    again = ev.TasksChanged(FIRST, 4, 4_000, runs(1_000_001, 2_000_000), Runs(), ())
    job = after(a_slice(runs(0, 15)), told, again)
    attempt = job.attempt(FIRST)
    assert attempt is not None and attempt.started_tasks == runs(0, 15)


@pytest.mark.parametrize("code", ["spec_mismatch", "blob_corrupt"])
def test_a_permanent_refusal_of_one_slice_lets_the_others_end(code: str) -> None:
    job = after(two_slices(), ev.Refused(SECOND, 3, 4_000, 2, code, "never"))
    assert job.phase is JobPhase.RUNNING and not job.unassigned_tasks
    done = ev.TasksChanged(FIRST, 4, 4_000, runs(0, 9), runs(0, 9), ())
    job = after(job, done, ended(FIRST, 5))
    assert job.outcome and job.outcome.kind is OutcomeKind.FAILED
    assert job.task_states.succeeded == runs(0, 9)


def test_a_slice_that_fails_before_its_first_task_is_not_tried_there_again_at_once() -> None:
    for kind in (OutcomeKind.FAILED, OutcomeKind.LOST, OutcomeKind.CANCELLED):
        job = after(a_slice(runs(0, 15)), ended(FIRST, 3, kind, 1))
        assert job.unassigned_tasks == runs(0, 99)
        assert [a.cluster for a in job.avoid] == ["us-east"]


def test_a_lost_slice_is_retried_after_a_wait() -> None:
    terms = Terms(retry_attempts=3, retry_on=frozenset({OutcomeKind.LOST}))
    told = ev.TasksChanged(FIRST, 3, 4_000, runs(0, 3), Runs(), ())
    job = after(a_slice(runs(0, 15)), told, ended(FIRST, 4, OutcomeKind.LOST), terms=terms)
    assert job.retries_used == 1 and job.not_before_ms > 5_000


# Times, lists, disks ----------------------------------------------------------------------------


def test_a_site_whose_clock_runs_wild_costs_what_passed_here() -> None:
    job = a_job()
    job = after(
        job,
        ev.AttemptPlaced(an_attempt(job, placed_ms=2_000)),
        ev.Started(FIRST, 1, 0, 1, "s"),
        now_ms=3_000,
    )
    job = after(job, ev.Ended(FIRST, 2, 2**62, Outcome(OutcomeKind.SUCCEEDED)), now_ms=12_000)
    assert job.started_ms == 2_000 and job.cost_micro_usd == 10_000
    encode_job(job)


def test_an_end_with_more_results_than_a_record_holds_is_still_written_down() -> None:
    outputs = tuple(Output(f"out/{n:06d}" + "x" * 500, "a" * 64, 1, 0o644) for n in range(20_000))
    logs = tuple((f"task-{n}", 5) for n in range(100_000))
    job = a_job()
    job = after(
        job,
        ev.AttemptPlaced(an_attempt(job)),
        ev.Accepted(FIRST, 1, 3_000, 1, tuple(f"node-{n}" for n in range(100_000))),
        ev.Ended(FIRST, 2, 4_000, Outcome(OutcomeKind.SUCCEEDED), outputs, logs),
    )
    attempt = job.attempt(FIRST)
    assert attempt is not None and attempt.outcome is not None
    assert len(encode_attempt(attempt)) < 4 * LISTED_BYTES_MAX
    assert "more results are not listed" in attempt.outcome.text


def test_a_site_with_another_disk_is_asked_until_it_answers() -> None:
    job = a_job()
    job = after(job, ev.AttemptPlaced(an_attempt(job)))
    placed = job.attempt(FIRST)
    assert placed is not None and needed(placed) is Needed.DISPATCH
    job = after(job, ev.Started(FIRST, 1, 3_000, 1, "s"), ev.SiteForgot(FIRST))
    asked = job.attempt(FIRST)
    assert asked is not None and needed(asked) is Needed.ADOPT and asked.lagging
    job = after(job, ev.Accepted(FIRST, 2, 4_000, 1))
    answered = job.attempt(FIRST)
    assert answered is not None and needed(answered) is Needed.NOTHING


# Without end ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [OutcomeKind.WITHDRAWN, OutcomeKind.REFUSED])
def test_a_job_that_never_gets_to_start_ends_some_time(kind: OutcomeKind) -> None:
    job = a_job(attempts_made=ATTEMPTS_WITHOUT_START_MAX - 1)
    job = after(job, ev.AttemptPlaced(an_attempt(job)))
    if kind is OutcomeKind.WITHDRAWN:
        job = after(job, ev.StopDecided(FIRST, kind), ended(FIRST, 1, OutcomeKind.CANCELLED))
    else:
        job = after(job, ev.Refused(FIRST, 1, 3_000, 1, "capacity_taken", "full"))
    assert job.outcome and job.outcome.kind is OutcomeKind.REFUSED
    assert "200 attempts" in job.outcome.text


def test_a_job_preempted_before_it_started_is_not_sent_there_again_at_once() -> None:
    job = a_job()
    job = after(job, ev.AttemptPlaced(an_attempt(job)), ended(FIRST, 1, OutcomeKind.PREEMPTED))
    assert job.phase is JobPhase.QUEUED and job.avoid[0].cluster == "us-east"
