"""Clusters closed to a job."""

from __future__ import annotations

from dataclasses import replace

from federation.refusals import Refusal, RefusalCode
from tests.unit.decide.constraints.judging import (
    change_for,
    options_of,
    problem_of,
    reason_for,
    two_clusters,
    violations_of,
)
from tests.unit.decide.problems import a_job, a_pool

WHY = Refusal(RefusalCode.POLICY_DENIED, "c1", advice="ask for policy x")


def test_a_job_does_not_go_to_a_cluster_that_is_closed_to_it_alone() -> None:
    problem = problem_of(
        clusters=two_clusters(),
        pools=[a_pool(), a_pool("p1", cluster="c1")],
        jobs=[a_job("j0"), a_job("j1", runtime_h=2)],
    )
    first = replace(problem.jobs[0], excluded={"c1": WHY, "elsewhere": WHY})
    problem = replace(problem, jobs=(first, problem.jobs[1]))
    assert options_of(problem) == {("j0", "p0"), ("j1", "p0"), ("j1", "p1")}
    assert "exclusion" in violations_of(problem, "p1")
    assert "exclusion" not in violations_of(problem, "p0")
    assert reason_for(problem, "p1") == WHY
    assert change_for(problem, "p1") == "ask for policy x"
