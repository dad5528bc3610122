"""Which jobs are planned as one class: deadlines and run times in steps, and never past a limit."""

from __future__ import annotations

import random

import pytest

from broker.control.books import Admitted, Books, terms_of
from broker.control.build_problem import World, build
from broker.control.survey import survey
from broker.control.waitlist import alike, planned_deadline_ms, planned_runtime_s
from broker.model.fleet import Fleet
from broker.model.policies import Ruling
from federation.ids import JobId
from federation.jobs import JobSpec, parse_job_spec
from tests.unit.lifecycle.builders import a_job

NOW_MS = 1_800_000_000_000
MINUTE_MS = 60_000


def a_spec(**changes: object) -> JobSpec:
    return parse_job_spec({"run": "x", "tenant": "default", "max_runtime": "1h", **changes})


def key(created_ms: int, **changes: object) -> object:
    return alike(a_job(id=JobId("j" * 17), created_ms=created_ms), Ruling(a_spec(**changes)))


def test_a_planned_deadline_is_never_later_than_any_members_and_hardly_earlier() -> None:
    dice = random.Random(7)
    for _ in range(2_000):
        created_ms = NOW_MS + dice.randrange(10**7)
        time_ms = int(1_000 * 10 ** dice.uniform(0, 7))
        spec = a_spec(deadline=f"{max(1, time_ms // 1000)}s")
        exact_ms = spec.deadline_ms(created_ms)
        planned_ms = planned_deadline_ms(spec, created_ms)
        assert exact_ms is not None and planned_ms is not None
        assert 0 <= exact_ms - planned_ms < 15 * MINUTE_MS
        assert exact_ms - planned_ms <= (exact_ms - created_ms) / 50


def test_jobs_of_a_sweep_with_deadlines_are_few_classes() -> None:
    keys = {key(NOW_MS + n * 100, deadline="24h") for n in range(3_000)}  # over five minutes
    assert len(keys) <= 2
    assert len({key(NOW_MS + n * 100, deadline="20m") for n in range(3_000)}) <= 21
    assert key(NOW_MS, deadline="24h") != key(NOW_MS, deadline="25h")
    assert key(NOW_MS) != key(NOW_MS, deadline="24h")


def test_run_times_count_in_steps_of_a_tenth_rounded_up_where_no_limit_depends_on_them() -> None:
    same = {key(NOW_MS, expected_runtime=f"{n}s") for n in range(3_310, 3_330)}
    assert len(same) == 1
    for seconds in (1, 59, 601, 3_599):
        planned_s = planned_runtime_s(a_spec(expected_runtime=f"{seconds}s"))
        assert seconds <= planned_s <= seconds * 1.1 + 1
    for limit in ({"deadline": "2h"}, {"placement": {"budget_usd": 5}}):
        assert planned_runtime_s(a_spec(expected_runtime="3313s", **limit)) == 3_313


@pytest.mark.parametrize("jobs", [1, 40])
def test_a_class_is_planned_with_the_earliest_deadline_of_its_step(jobs: int) -> None:
    books = Books(lambda kid: None)
    for n in range(jobs):
        job = a_job(id=JobId(f"j{n:016d}"), created_ms=NOW_MS + n)
        spec = a_spec(deadline="10h")
        books.install([job])
        books._admitted[job.id] = Admitted(spec, b"", "", "", "", terms_of(spec))
    waiting, _ = survey(books, NOW_MS + 1_000)
    problem = build(World(Fleet({}), {}, {}, NOW_MS), waiting)
    (planned,) = problem.jobs
    assert planned.count == jobs and planned.deadline_h is not None
    if jobs == 1:
        assert planned.deadline_h == 10.0
    else:
        assert 9.8 <= planned.deadline_h <= 10.0
