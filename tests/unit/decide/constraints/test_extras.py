"""Things that are counted beside accelerators."""

from __future__ import annotations

import json

from broker.decide.decision import decide
from broker.decide.explain import explain_unplaced
from broker.decide.problem_file import parse_problem
from broker.decide.problem_json import problem_to_json
from broker.decide.verify import verify
from broker.model.plan import Assignment
from federation.refusals import RefusalCode
from tests.unit.decide.constraints.judging import (
    change_for,
    options_of,
    problem_of,
    reason_for,
    violations_of,
)
from tests.unit.decide.problems import a_job, a_pool

NEEDY = a_job(replicas=2, extras_per_replica={"matlab": 2}, count=5)


def test_a_gang_goes_only_where_there_are_enough_for_all_its_replicas() -> None:
    pools = [a_pool(extras={"matlab": 3}), a_pool("p1"), a_pool("p2", extras={"matlab": 4})]
    problem = problem_of(pools=pools, jobs=[NEEDY, a_job("free")])
    assert options_of(problem) == {("j0", "p2"), *(("free", f"p{n}") for n in range(3))}
    assert "p0: 4 matlab used of 3" in violations_of(problem)
    assert "p1: 4 matlab used of 0" in violations_of(problem, "p1")
    reason = reason_for(problem)
    assert reason is not None and reason.code is RefusalCode.NO_EXTRAS
    assert "needs 4 matlab, has 3; 1 more matlab" in reason.text
    assert change_for(problem) == "1 more matlab free in p0"
    assert parse_problem(json.dumps(problem_to_json(problem))) == problem


def test_copies_share_them_and_the_rest_is_told_what_is_missing() -> None:
    problem = problem_of(pools=[a_pool(extras={"matlab": 9, "scratch": 1})], jobs=[NEEDY])
    plan = decide(problem)
    assert verify(problem, plan) == ()
    assert plan.assignments == (Assignment("j0", "p0", 2),)
    assert plan.unplaced[0].refusal.code is RefusalCode.NO_EXTRAS
    told = explain_unplaced(problem, plan, "j0")
    assert told.advice is not None and told.advice.text.startswith("3 more matlab free in p0")


def test_one_that_waits_in_a_queue_takes_none_yet() -> None:
    queue = {"start_s": 60, "max_pending": 9}
    problem = problem_of(pools=[a_pool(extras={"matlab": 4}, queue=queue)], jobs=[NEEDY])
    plan = decide(problem)
    assert verify(problem, plan) == ()
    assert [item.count for item in plan.assignments] == [1, 4]
