"""Joining the queue of a site."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from broker.decide.answer import plan_to_json
from broker.decide.decision import decide
from broker.decide.explain import candidates
from broker.decide.problem_file import parse_problem
from broker.decide.problem_json import problem_to_json
from broker.decide.strict_json import ProblemError
from broker.decide.verify import verify
from broker.model.plan import Assignment, PlanStatus
from broker.model.problem import NodeGroup, Problem, Queue
from federation.refusals import RefusalCode
from tests.unit.decide.constraints.judging import (
    change_for,
    options_of,
    problem_of,
    reason_for,
    two_clusters,
    violations_of,
    with_pool,
)
from tests.unit.decide.problems import a_job, a_pool, a_problem, scalar

FIVE_MINUTES = {"start_s": 300, "max_pending": 2}


def full_and_far(objective: Any = None, **job: Any) -> Problem:
    """One site full with a queue of 5 minutes, one 300 ms away and ten times dearer."""
    return problem_of(
        objective=objective or {"mode": "place_first"},
        clusters=two_clusters(),
        rtt_ms=[[1, 300], [300, 1]],
        pools=[
            a_pool(free_nodes={"8": 0}, queue=FIVE_MINUTES),
            a_pool("p1", cluster="c1", price_usd_per_accelerator_hour=10),
        ],
        jobs=[a_job(user_region="east", **job)],
    )


@pytest.mark.parametrize("objective", [{"mode": "place_first"}, scalar(100)])
def test_the_queue_of_a_full_site_is_chosen_over_a_far_site_ten_times_dearer(
    objective: dict[str, Any],
) -> None:
    problem = full_and_far(objective=objective)
    plan = decide(problem)
    assert plan.status is PlanStatus.OPTIMAL and verify(problem, plan) == ()
    assert plan.assignments == (Assignment("j0", "p0", 1, queued=True),)
    assert plan.fills == () and plan.placed == {0: 1} and plan.cost_usd == pytest.approx(1.0)
    answer = plan_to_json(problem, plan, 0.0)
    assert answer["assignments"] == [{"job": "j0", "pool": "p0", "count": 1, "queued": True}]


def test_a_deadline_or_the_value_of_time_can_make_the_far_site_the_better_one() -> None:
    for changes in ({"deadline_h": 1.05}, {"value_of_time_usd_per_h": 109}):
        (found,) = decide(full_and_far(**changes)).assignments
        assert found == Assignment("j0", "p1", 1), changes
    (found,) = decide(full_and_far(value_of_time_usd_per_h=107)).assignments
    assert found.queued


def test_of_two_places_that_cost_the_same_the_free_one_is_taken() -> None:
    problem = problem_of(pools=[a_pool(free_nodes={"1": 1}, queue=FIVE_MINUTES)])
    assert decide(problem).assignments == (Assignment("j0", "p0", 1),)


def test_no_more_copies_wait_than_may_and_the_rest_is_told_so() -> None:
    problem = problem_of(
        pools=[a_pool(free_nodes={"1": 1}, queue=FIVE_MINUTES)], jobs=[a_job(count=5)]
    )
    assert options_of(problem) == {("j0", "p0"), ("j0", "queue of p0")}
    plan = decide(problem)
    assert plan.assignments == (
        Assignment("j0", "p0", 1),
        Assignment("j0", "p0", 2, queued=True),
    )
    assert plan.unplaced[0].count == 2
    full = with_pool(problem, queue=Queue(300, 0))
    reason = reason_for(full, "queue of p0")
    assert reason is not None and reason.code is RefusalCode.QUEUE_FULL
    assert change_for(full, "queue of p0") == "max_pending 0 -> 1"


def test_the_verifier_counts_what_waits() -> None:
    problem = problem_of(
        pools=[a_pool(free_nodes={"1": 1}, queue=FIVE_MINUTES)], jobs=[a_job(count=5)]
    )
    assert "queue" not in violations_of(problem)
    plan = decide(problem)
    wrong = verify(with_pool(problem, queue=Queue(300, 1)), plan)
    assert "p0: 2 copies in a queue of 1" in {violation.text for violation in wrong}
    wrong = verify(with_pool(problem, queue=None), plan)
    assert "j0 in the queue of p0: it has none" in {violation.text for violation in wrong}


def test_a_gang_that_the_empty_site_could_not_hold_does_not_wait_for_it() -> None:
    job = a_job(replicas=3, accelerators_per_replica=8)
    problem = problem_of(pools=[a_pool(free_nodes={"8": 0}, queue=FIVE_MINUTES)], jobs=[job])
    assert options_of(problem) == {("j0", "queue of p0")}
    small = with_pool(problem, when_empty=(NodeGroup(2, 8),))
    assert options_of(small) == set()
    plan = decide(problem)
    assert "j0 in the queue of p0: the pool could not hold it empty" in {
        violation.text for violation in verify(small, plan)
    }


def test_quotas_and_the_cold_start_count_for_what_waits() -> None:
    problem = problem_of(
        clusters=[{"name": "c0", "region": "east", "cold_start_s": {"*": 1800}}],
        pools=[a_pool(free_nodes={"8": 0}, queue={"start_s": 300, "max_pending": 9})],
        tenants=[{"name": "t0", "quota_accelerators": 3}],
        jobs=[a_job(count=5, value_of_time_usd_per_h=12)],
    )
    plan = decide(problem)
    assert plan.placed == {0: 3}
    # An hour and the cold start are paid for; the wait is that of the queue.
    assert plan.cost_usd == pytest.approx(3 * (1.5 + 12 * 300 / 3600))


def test_a_running_copy_sent_to_the_queue_of_its_own_pool_has_moved() -> None:
    job = a_job(current_pool="p0", migration_usd=7, lost_work_usd=5)
    pool = a_pool(free_nodes={"8": 0}, queue=FIVE_MINUTES)
    assert decide(problem_of(pools=[pool], jobs=[job])).cost_usd == pytest.approx(13.0)


def test_a_queue_is_read_strictly_and_written_again() -> None:
    document = a_problem(pools=[a_pool(queue=FIVE_MINUTES)])
    problem = parse_problem(json.dumps(document))
    assert problem_to_json(problem)["pools"][0]["queue"] == FIVE_MINUTES
    for bad in ({"start_s": 3}, {"start_s": -1, "max_pending": 2}, {**FIVE_MINUTES, "start": 1}):
        with pytest.raises(ProblemError, match=r"pools\[0\].queue"):
            parse_problem(json.dumps(a_problem(pools=[a_pool(queue=bad)])))


def test_a_job_that_says_nothing_of_its_time_pays_for_waiting_what_the_queue_says() -> None:
    """An hour in the queue costs what an hour of running costs there: ten times dearer is worth
    five minutes, a tenth dearer is not worth a day."""
    for dearer, start_s, queued in ((10, 300, True), (1.1, 86_400, False), (1.1, 300, True)):
        problem = problem_of(
            clusters=two_clusters(),
            pools=[
                a_pool(
                    free_nodes={"8": 0},
                    queue={
                        "start_s": start_s, "max_pending": 2, "waiting_usd_per_accelerator_h": 1
                    },
                ),
                a_pool("p1", cluster="c1", price_usd_per_accelerator_hour=dearer),
            ],
        )
        plan = decide(problem)
        assert [item.queued for item in plan.assignments] == [queued] and not verify(problem, plan)
        if queued:
            assert plan.cost_usd == pytest.approx(1 + start_s / 3600)


def test_a_job_joins_no_queue_that_is_longer_than_it_may_wait_and_is_told_so() -> None:
    problem = problem_of(
        pools=[a_pool(free_nodes={"8": 0}, queue=FIVE_MINUTES)], jobs=[a_job(max_queue_s=299)]
    )
    plan = decide(problem)
    assert plan.assignments == () and not options_of(problem)
    assert plan.unplaced[0].refusal.code is RefusalCode.NO_CAPACITY
    (row,) = [item for item in candidates(problem, problem.jobs[0], plan) if item.queued]
    assert row.refusals[0].code is RefusalCode.NO_QUEUE
    assert change_for(problem, "queue of p0") == "max_start_delay 299 -> 300"
    forced = replace(plan, assignments=(Assignment("j0", "p0", 1, queued=True),), unplaced=())
    assert any("too long" in violation.text for violation in verify(problem, forced))
    for most_s, queued in ((None, True), (300, True), (0, False)):
        jobs = tuple(replace(job, max_queue_s=most_s) for job in problem.jobs)
        assert bool(decide(replace(problem, jobs=jobs)).assignments) is queued
