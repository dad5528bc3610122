"""What a slice has ahead lasts ten minutes, and never less than a round: the rest of its array
stays free for whatever place opens."""

from __future__ import annotations

import pytest

from broker.control.slices import first_tasks, top_up
from broker.lifecycle import events as ev
from broker.lifecycle.machine import step
from broker.model.jobs import Job, Terms
from federation.runs import Runs
from tests.unit.lifecycle.builders import JOB, a_job, an_attempt, runs

WIDTH = 4
UID = f"{JOB}-1"
STARTED_MS = 3_000


def running(given: int, begun: int, done: int) -> Job:
    """A slice with so many tasks, of which so many have begun and ended, of an array of 1,000."""
    job = a_job(tasks=runs(0, 999))
    for event in (
        ev.AttemptPlaced(an_attempt(job, 1, tasks=runs(0, given - 1), width=WIDTH)),
        ev.Accepted(UID, 1, STARTED_MS, 1),
        ev.Started(UID, 2, STARTED_MS, 1, "p"),
        ev.TasksChanged(
            UID, 3, STARTED_MS, runs(0, begun - 1), Runs.of([(0, done - 1)][:done]), ()
        ),
    ):
        job = step(job, event, Terms(), 8_000).job
    return job


def ahead_after_top_up(job: Job, ran_s: float) -> int | None:
    attempt = job.attempt(UID)
    assert attempt is not None
    tasks = top_up(job, attempt, STARTED_MS + round(ran_s * 1000))
    return None if tasks is None else tasks.difference(attempt.started_tasks).count


@pytest.mark.parametrize(
    ("task_s", "rounds"), [(None, 2), (0.01, 4), (60, 4), (300, 3), (599, 3), (600, 2), (7200, 2)]
)
def test_a_slice_begins_with_one_round_and_what_lasts_ten_minutes(
    task_s: float | None, rounds: int
) -> None:
    assert first_tasks(a_job(tasks=runs(0, 999)), WIDTH, task_s=task_s).count == rounds * WIDTH


@pytest.mark.parametrize("task_s", [600, 3_600, 86_400])
def test_of_long_tasks_no_more_than_a_round_is_ahead(task_s: int) -> None:
    """Also none more while as much is there already."""
    assert ahead_after_top_up(running(8, 4, 0), ran_s=task_s - 1) is None
    assert ahead_after_top_up(running(8, 8, 4), ran_s=task_s) == WIDTH


@pytest.mark.parametrize(
    ("task_s", "ahead"), [(200, 12), (100, 16), (10, 16), (0.5, 40), (0.1, 200)]
)
def test_of_short_tasks_more_is_ahead(task_s: float, ahead: int) -> None:
    """Four rounds at most that last longer than a round trip, else five seconds' worth."""
    assert ahead_after_top_up(running(60, 60, 56), ran_s=task_s * 56 / WIDTH) == ahead


def test_no_slice_runs_dry_before_it_asks() -> None:
    """At whatever point, tasks are ahead or more are asked for."""
    for task_s in (0.01, 1, 30, 300, 3_600):
        for begun in range(4, 17):
            job = running(16, begun, begun - 4)
            more = ahead_after_top_up(job, ran_s=task_s * max(begun - 4, 1) / WIDTH)
            assert more or 16 - begun >= 1
