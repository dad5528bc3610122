"""Copies put off to a start to come."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from broker.decide.answer import plan_to_json
from broker.decide.decision import decide
from broker.decide.explain import candidates, explain_copy
from broker.decide.later_starts import with_later_starts
from broker.decide.problem_file import parse_problem
from broker.decide.problem_json import problem_to_json
from broker.decide.strict_json import ProblemError
from broker.decide.verify import verify
from broker.model.plan import Assignment, Plan, PlanStatus, Unplaced
from broker.model.problem import Later, NodeGroup, Problem
from federation.refusals import Refusal, RefusalCode
from tests.unit.decide.constraints import judging
from tests.unit.decide.constraints.judging import (
    options_of,
    problem_of,
    reason_for,
    two_clusters,
    violations_of,
    with_pool,
)
from tests.unit.decide.problems import a_job, a_pool, a_problem, scalar

NIGHT = {"from_h": 6, "to_h": 16, "price_usd_per_accelerator_hour": 0.25}
AT_NIGHT = "p0 in 6 h"


def with_a_night(jobs: list[Any], objective: Any = None, **pool: Any) -> Problem:
    """One pool of eight at 1 USD, a quarter of that at night."""
    return problem_of(
        objective=objective or {"mode": "place_first"},
        pools=[a_pool(free_nodes={"8": 1}, prices=[NIGHT], **pool)],
        jobs=jobs,
    )


def change_for(problem: Problem, pool_name: str) -> str:
    with_starts = with_later_starts(replace(problem, jobs=(replace(problem.jobs[0], defer_h=99),)))
    return judging.change_for(replace(with_starts, jobs=problem.jobs), pool_name)


@pytest.mark.parametrize("objective", [{"mode": "place_first"}, scalar(100)])
def test_a_start_is_put_off_to_the_cheap_hours_and_the_answer_says_from_when(
    objective: Any,
) -> None:
    problem = with_a_night([a_job(runtime_h=2, defer_h=12)], objective=objective)
    plan = decide(problem)
    assert plan.status is PlanStatus.OPTIMAL and verify(problem, plan) == ()
    assert plan.assignments == (Assignment("j0", "p0", 1, start_h=6.0),)
    assert plan.fills == () and plan.placed == {0: 1} and plan.cost_usd == pytest.approx(0.5)
    answer = plan_to_json(problem, plan, 0.0)
    assert answer["assignments"] == [{"job": "j0", "pool": "p0", "count": 1, "start_h": 6.0}]


@pytest.mark.parametrize(
    "held_back",
    [{}, {"defer_h": 5.9}, {"defer_h": 12, "deadline_h": 7.9},
     {"defer_h": 12, "value_of_time_usd_per_h": 0.26}],
)  # fmt: skip
def test_what_may_not_wait_or_pays_more_for_waiting_starts_now(held_back: Any) -> None:
    (found,) = decide(with_a_night([a_job(runtime_h=2, **held_back)])).assignments
    assert found == Assignment("j0", "p0", 1)


def test_not_everything_is_put_off_to_the_same_cheap_hours() -> None:
    """Nine copies that fill the pool: one of them has no room at night and pays the day."""
    jobs = [a_job(count=16, runtime_h=2, defer_h=12)]
    plan = decide(with_a_night(jobs))
    assert {(item.start_h, item.count) for item in plan.assignments} == {(0.0, 8), (6.0, 8)}


def test_what_starts_now_and_still_runs_then_takes_room_at_night() -> None:
    jobs = [a_job("long", count=6, runtime_h=7), a_job("late", count=4, runtime_h=2, defer_h=12)]
    problem = with_a_night(jobs)
    plan = decide(problem)
    late = {(item.start_h, item.count) for item in plan.assignments if item.job == "late"}
    assert late == {(0.0, 2), (6.0, 2)} and verify(problem, plan) == ()


def test_who_may_wait_makes_room_for_who_may_not() -> None:
    jobs = [a_job("late", count=8, runtime_h=2, defer_h=12), a_job("now", count=8, priority=0)]
    plan = decide(with_a_night(jobs, when_empty=[{"count": 1, "free_accelerators": 8}]))
    assert set(plan.assignments) == {
        Assignment("late", "p0", 8, start_h=6.0), Assignment("now", "p0", 8)
    }  # fmt: skip


def test_the_room_of_a_start_that_is_stated_bounds_it_and_the_rest_is_told_so() -> None:
    later = [{"start_h": 6, "free_accelerators": 8}]
    problem = problem_of(
        pools=[a_pool(free_nodes={"8": 0}, later=later)],
        jobs=[a_job(count=9, defer_h=8)],
    )
    assert options_of(problem) == {("j0", AT_NIGHT)}
    plan = decide(problem)
    assert plan.assignments == (Assignment("j0", "p0", 8, start_h=6.0),)
    assert plan.unplaced[0].refusal.code is RefusalCode.LATER_FULL
    full = with_pool(problem, later=(Later(6, 0),))
    reason = reason_for(full, AT_NIGHT)
    assert reason is not None and reason.code is RefusalCode.LATER_FULL
    assert change_for(full, AT_NIGHT) == "1 more H100 free in 6 h"
    assert explain_copy(problem, plan, problem.jobs[0]).reasons


def test_a_job_is_told_of_starts_only_as_far_as_it_may_be_put_off() -> None:
    problem = with_a_night([a_job(defer_h=4)])
    assert [row.pool for row in candidates(problem, problem.jobs[0])] == ["p0"]
    assert change_for(problem, AT_NIGHT) == "defer_h 4 -> 6"
    longer = with_a_night([a_job(defer_h=6)])
    (row,) = [row for row in candidates(longer, longer.jobs[0], decide(longer)) if row.later_h]
    assert (row.pool, row.later_h, row.chosen) == (AT_NIGHT, 6.0, 1)


def test_the_verifier_counts_what_is_put_off() -> None:
    problem = with_a_night([a_job(count=9, runtime_h=2, defer_h=12)])
    assert "accelerators of" not in violations_of(problem)
    why = Refusal(RefusalCode.NOT_CHOSEN, "p0")

    def wrong(start_h: float, copies: int = 1, **job: Any) -> str:
        asked = replace(problem, jobs=(replace(problem.jobs[0], **job),))
        items = (Assignment("j0", "p0", copies, start_h=start_h),)
        left = (Unplaced("j0", 9 - copies, why),) if copies < 9 else ()
        plan = Plan(PlanStatus.FLOOR, 0.0, None, 0.0, assignments=items, unplaced=left)
        return "\n".join(violation.text for violation in verify(asked, plan))

    assert "p0 in 6 h: 9 accelerators of 8" in wrong(6.0, 9)
    assert "j0 in p0 in 6 h: it may be put off by 3 h" in wrong(6.0, defer_h=3.0)
    assert "j0 in p0 in 5 h: no start is known then" in wrong(5.0)
    assert "could not hold it empty" in wrong(
        6.0, replicas=3, accelerators_per_replica=8, count=9
    ) or "accelerators of 8" in wrong(6.0, replicas=3, accelerators_per_replica=8, count=9)


def test_a_gang_that_the_empty_pool_could_not_hold_is_not_put_off_to_it() -> None:
    later = [{"start_h": 6, "free_accelerators": 64}]
    job = a_job(replicas=3, accelerators_per_replica=8, defer_h=8)
    problem = problem_of(pools=[a_pool(free_nodes={"8": 0}, later=later)], jobs=[job])
    assert options_of(problem) == {("j0", AT_NIGHT)}
    assert options_of(with_pool(problem, when_empty=(NodeGroup(2, 8),))) == set()


def test_starts_follow_from_where_the_price_falls_and_from_the_end_of_maintenance() -> None:
    hours = [
        {"from_h": 1, "to_h": 2, "price_usd_per_accelerator_hour": 3},
        {"from_h": 4, "to_h": 5, "price_usd_per_accelerator_hour": 0.5},
        {"from_h": 5, "to_h": 6, "price_usd_per_accelerator_hour": 0.4},
    ]
    closed = [{"from_h": 7, "to_h": 9, "reason": "power"}]
    problem = problem_of(
        pools=[a_pool(free_nodes={"8": 1}, prices=hours, maintenance=closed)],
        jobs=[a_job(defer_h=24)],
    )
    found = [pool.starts_h for pool in with_later_starts(problem).pools if pool.starts_h]
    assert found == [2, 4, 5, 9]


def test_a_job_that_fits_only_after_a_maintenance_is_put_off_to_it() -> None:
    closed = [{"from_h": 1, "to_h": 3}]
    job = a_job(runtime_h=4, defer_h=6)
    problem = problem_of(pools=[a_pool(free_nodes={"8": 1}, maintenance=closed)], jobs=[job])
    assert decide(problem).assignments == (Assignment("j0", "p0", 1, start_h=3.0),)


def test_of_two_places_the_cheaper_hours_are_weighed_against_the_other_place() -> None:
    problem = problem_of(
        clusters=two_clusters(),
        pools=[
            a_pool(free_nodes={"8": 1}, prices=[NIGHT]),
            a_pool("p1", cluster="c1", price_usd_per_accelerator_hour=0.2),
        ],
        jobs=[a_job(defer_h=12)],
    )
    assert decide(problem).assignments == (Assignment("j0", "p1", 1),)


def test_nothing_of_it_costs_a_problem_in_which_nobody_may_wait() -> None:
    problem = with_a_night([a_job()])
    assert with_later_starts(problem) is problem


def test_the_keys_are_read_strictly_and_written_again() -> None:
    later = [{"start_h": 6, "free_accelerators": 8}, {"start_h": 7.5, "free_accelerators": 16}]
    document = a_problem(pools=[a_pool(free_nodes={"8": 1}, later=later)], jobs=[a_job(defer_h=9)])
    problem = parse_problem(json.dumps(document))
    written = problem_to_json(problem)
    assert written["pools"][0]["later"] == later and written["jobs"][0]["defer_h"] == 9
    none = parse_problem(json.dumps(a_problem(pools=[a_pool(later=[], prices=[NIGHT])])))
    assert problem_to_json(none)["pools"][0]["later"] == []
    for bad in (
        [{"start_h": 0, "free_accelerators": 8}],
        [later[1], later[0]],
        [{"start_h": 1}],
        [{"start_h": 1, "free_accelerators": 7}],
    ):
        with pytest.raises(ProblemError, match=r"pools\[0\].later"):
            parse_problem(json.dumps(a_problem(pools=[a_pool(free_nodes={"8": 1}, later=bad)])))
    with pytest.raises(ProblemError, match=r"jobs\[0\].defer_h: what runs"):
        parse_problem(json.dumps(a_problem(jobs=[a_job(defer_h=1, current_pool="p0")])))
