"""Quotas of tenants in one cluster."""

from __future__ import annotations

from tests.unit.decide.constraints.judging import (
    change_for,
    options_of,
    problem_of,
    reason_for,
    two_clusters,
    violations_of,
)
from tests.unit.decide.problems import a_job, a_pool


def test_only_that_cluster_is_closed() -> None:
    problem = problem_of(
        clusters=two_clusters(),
        pools=[a_pool(), a_pool("p1", cluster="c1")],
        tenants=[{"name": "t0", "quota_accelerators": 40, "cluster_quota": {"c0": 5}}],
        jobs=[a_job(replicas=2, accelerators_per_replica=4)],
    )
    assert options_of(problem) == {("j0", "p1")}
    assert "t0 in c0: 8 accelerators of 5" in violations_of(problem)
    assert "t0 in" not in violations_of(problem, "p1")
    reason = reason_for(problem)
    assert reason is not None and "needs 8 accelerators, has 5 left of the quota" in reason.text
    assert change_for(problem) == "3 more of quota for t0 in c0"


def test_pools_of_one_cluster_share_it() -> None:
    problem = problem_of(
        pools=[a_pool(), a_pool("p1")],
        tenants=[{"name": "t0", "cluster_quota": {"c0": 5}}],
        jobs=[a_job(count=8)],
    )
    assert "t0 in c0: 6 accelerators of 5" in violations_of(problem, copies=6)
    assert "t0 in" not in violations_of(problem, copies=5)
