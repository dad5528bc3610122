"""Copies of a job over clusters."""

from __future__ import annotations

from dataclasses import replace

from broker.decide.decision import decide
from broker.decide.explain import explain_unplaced
from broker.decide.verify import verify
from broker.model.plan import Assignment
from federation.refusals import RefusalCode
from tests.unit.decide.constraints.judging import (
    change_for,
    options_of,
    problem_of,
    reason_for,
    two_clusters,
    violations_of,
)
from tests.unit.decide.problems import a_job, a_pool

WORLD = {
    "clusters": two_clusters(),
    "pools": [a_pool(), a_pool("p1"), a_pool("p2", cluster="c1")],
}


def test_pools_of_one_cluster_share_the_limit_and_jobs_alike_do_not() -> None:
    jobs = [a_job(f"j{n}", count=4, spread_max_per_cluster=1) for n in range(2)]
    problem = problem_of(**WORLD, jobs=jobs)
    assert len(options_of(problem)) == 6
    plan = decide(problem)
    assert verify(problem, plan) == ()
    placed = [(item.job, item.count) for item in plan.assignments]
    assert sorted(placed) == [("j0", 1), ("j0", 1), ("j1", 1), ("j1", 1)]
    assert {rest.refusal.code for rest in plan.unplaced} == {RefusalCode.SPREAD_LIMIT}
    told = explain_unplaced(problem, plan, "j0")
    assert told.advice is not None
    assert told.advice.text.startswith("spread_max_per_cluster 1 -> 2: then a copy starts in")
    both = (Assignment("j0", "p0", 1), Assignment("j0", "p1", 1))
    wrong = verify(problem, replace(plan, assignments=both))
    assert "j0: 2 copies in c0, at most 1" in {violation.text for violation in wrong}


def test_one_copy_too_many_is_a_violation_in_one_pool_too() -> None:
    problem = problem_of(jobs=[a_job(count=3, spread_max_per_cluster=2)])
    assert "j0: 3 copies in c0, at most 2" in violations_of(problem, copies=3)
    assert "copies in c0" not in violations_of(problem, copies=2)
    assert reason_for(problem) is None
    closed = replace(problem, jobs=(replace(problem.jobs[0], spread_max_per_cluster=0),))
    assert options_of(closed) == set()
    assert change_for(closed) == "spread_max_per_cluster 0 -> 1"
