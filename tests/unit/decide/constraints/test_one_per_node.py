"""Replicas on different nodes."""

from __future__ import annotations

from dataclasses import replace

from broker.decide.decision import decide
from broker.decide.explain import explain_unplaced
from broker.decide.verify import verify
from federation.refusals import RefusalCode
from tests.unit.decide.constraints.judging import (
    change_for,
    options_of,
    problem_of,
    reason_for,
    violations_of,
)
from tests.unit.decide.problems import a_job, a_pool


def test_a_node_takes_one_replica_of_a_job() -> None:
    jobs = [a_job(count=3, one_per_node=True), a_job("j1", count=2, one_per_node=True)]
    problem = problem_of(jobs=jobs)
    assert {pool for _, pool in options_of(problem)} == {"p0"}
    plan = decide(problem)
    assert verify(problem, plan) == ()
    assert plan.placed == {0: 4} and [(u.job, u.count) for u in plan.unplaced] == [("j0", 1)]
    assert plan.unplaced[0].refusal.code is RefusalCode.NODES_TAKEN
    told = explain_unplaced(problem, plan, "j0")
    assert told.advice is not None and "1 more free place" in told.advice.text
    both = replace(plan.fills[0], nodes=1, contents=(("j0", 2), ("j1", 2)))
    wrong = {violation.text for violation in verify(problem, replace(plan, fills=(both,)))}
    assert "j0: 2 replicas on node 0 of p0, at most 1" in wrong
    assert not any("at most 1" in line for line in violations_of(problem).splitlines())


def test_a_gang_wants_as_many_nodes_as_it_has_members() -> None:
    problem = problem_of(jobs=[a_job(replicas=3, one_per_node=True)])
    assert options_of(problem) == set()
    reason = reason_for(problem)
    assert reason is not None and reason.code is RefusalCode.NODES_TAKEN
    assert change_for(problem) == "one_per_node true -> false"


def test_gangs_that_share_a_node_keep_apart_as_gangs() -> None:
    gang = a_job(count=3, replicas=2, topology="node", one_per_node=True)
    problem = problem_of(jobs=[gang])
    plan = decide(problem)
    assert verify(problem, plan) == () and plan.placed == {0: 4}


def test_large_pools_keep_replicas_apart_as_well() -> None:
    pool = a_pool(free_nodes={"8": 200, "5": 40})
    jobs = [a_job(f"j{n}", count=300, one_per_node=True) for n in range(12)]
    jobs += [a_job("j99", count=30, accelerators_per_replica=3)]
    problem = problem_of(pools=[pool], jobs=jobs)
    plan = decide(problem)
    assert verify(problem, plan) == () and plan.placed[0] > 0
